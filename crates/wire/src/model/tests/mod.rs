//! The network against its own definition: conservation, order, exact times, bounds, and what seeds and changes may do.

mod changes;
mod links;
mod properties;
mod segments;
mod topology;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use venturi_plan::{Network, Seconds};

use super::*;

/// What happened to each segment: delivered at a time, or dropped. Panics if something happens to one twice.
#[derive(Debug, Default)]
struct Account {
    fates: BTreeMap<(PacketId, u16), Option<u64>>,
    /// Runs as they were delivered: packet, first segment, count, due.
    deliveries: Vec<(PacketId, u16, u16, u64)>,
    captured: u64,
}

impl Account {
    fn poll(&mut self, world: &mut World, now_ns: u64) {
        while let Some(output) = world.poll(now_ns) {
            let (chunk, fate) = match output {
                Output::Deliver { due_ns, chunk, .. } => {
                    assert!(
                        due_ns <= now_ns,
                        "delivered {due_ns} before its time {now_ns}"
                    );
                    self.deliveries
                        .push((chunk.packet, chunk.first, chunk.count, due_ns));
                    (chunk, Some(due_ns))
                }
                Output::Drop(chunk) => (chunk, None),
                Output::Capture { sent, .. } => {
                    self.captured += u64::from(sent.chunk.count);
                    continue;
                }
                Output::Changed { .. } => continue,
            };
            for segment in chunk.first..chunk.first + chunk.count {
                let before = self.fates.insert((chunk.packet, segment), fate);
                assert_eq!(
                    before, None,
                    "segment {segment} of {:?} came out twice",
                    chunk.packet
                );
            }
        }
    }

    /// Lets the network work until nothing is left in it.
    fn drain(&mut self, world: &mut World) {
        loop {
            let due_ns = world.poll_timeout();
            if due_ns == u64::MAX {
                return;
            }
            self.poll(world, due_ns);
        }
    }

    fn delivered(&self) -> u64 {
        self.fates.values().flatten().count() as u64
    }

    fn dropped(&self) -> u64 {
        self.fates.len() as u64 - self.delivered()
    }

    fn last_due_ns(&self) -> u64 {
        self.fates
            .values()
            .flatten()
            .max()
            .copied()
            .expect("something was delivered")
    }
}

/// The description of a link, with what differs from a usual one.
fn link(from: &str, to: &str, differing: Value) -> Value {
    let mut link = json!({"from": from, "to": to, "rate_bit_per_s": 1e9, "delay_s": 0.001, "queue_bytes": 1_000_000});
    let Value::Object(differing) = differing else {
        panic!("expected an object")
    };
    link.as_object_mut().expect("an object").extend(differing);
    link
}

fn interface(host: &str, number: u8) -> Value {
    json!({"host": host, "device": "eth0", "address": format!("10.77.0.{number}")})
}

/// Two hosts, a link each way; the one from `a` to `b` as asked for.
fn pair(there: Value) -> Network {
    parse(json!({
        "interfaces": {"a": interface("a", 1), "b": interface("b", 2)},
        "links": {"there": link("a", "b", there), "back": link("b", "a", json!({}))},
    }))
}

/// Hosts `a`, `b` and `c`: from `a` and `b` over a link each to router `r`, over one link to router `s`, over one to
/// `c`.
fn funnel(first: &Value, middle: &Value, last: &Value) -> Network {
    parse(json!({
        "interfaces": {"a": interface("a", 1), "b": interface("b", 2), "c": interface("c", 3)},
        "routers": ["r", "s"],
        "links": {
            "ar": link("a", "r", first.clone()), "br": link("b", "r", first.clone()), "rs": link("r", "s", middle.clone()),
            "sc": link("s", "c", last.clone()), "cs": link("c", "s", json!({})), "sr": link("s", "r", json!({})),
            "ra": link("r", "a", json!({})), "rb": link("r", "b", json!({})),
        },
        "routes": {"r": {"a": "ra", "b": "rb", "c": "rs"}, "s": {"a": "sr", "b": "sr", "c": "sc"}},
    }))
}

fn parse(network: Value) -> Network {
    serde_json::from_value(network).expect("a network")
}

fn world(network: &Network) -> World {
    World::new(network, 1).expect("a network that can be built")
}

/// A packet of segments of 1500 bytes.
fn full(segments: u16) -> Shape {
    Shape {
        segments,
        segment_bytes: 1500,
        last_bytes: 1500,
    }
}

/// Sends a packet from the first interface to the last.
fn send(world: &mut World, now_ns: u64, packet: u32, shape: Shape) {
    send_from(world, now_ns, InterfaceId(0), packet, shape);
}

/// Sends a packet to the last interface.
fn send_from(world: &mut World, now_ns: u64, from: InterfaceId, packet: u32, shape: Shape) {
    let interfaces = world.destinations().count() - 1;
    let last = world
        .destinations()
        .nth(interfaces - 1)
        .expect("it is there");
    world.handle_packet(now_ns, from, PacketId(packet), shape, last);
}
