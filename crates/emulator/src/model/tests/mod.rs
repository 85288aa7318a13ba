//! The network compared with its definition: conservation, order, exact times, limits, and effects of seeds and
//! changes.

mod changes;
mod links;
mod properties;
mod segments;
mod topology;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use venturi_plan::{Network, Seconds};

use super::*;

/// Result of each segment: delivered at a time, or dropped. Panics if a segment gets two results.
#[derive(Debug, Default)]
struct Account {
    fates: BTreeMap<(PacketId, u16), Option<u64>>,
    /// Delivered runs: packet, first segment, count, due time.
    deliveries: Vec<(PacketId, u16, u16, u64)>,
    captured: u64,
}

impl Account {
    fn poll(&mut self, world: &mut EmulatorWorld, now_ns: u64) {
        while let Some(output) = world.poll(now_ns) {
            let (chunk, arrival_ns) = match output {
                NetworkOutput::Deliver { due_ns, chunk, .. } => {
                    assert!(
                        due_ns <= now_ns,
                        "delivered {due_ns} before its time {now_ns}"
                    );
                    self.deliveries
                        .push((chunk.packet, chunk.first, chunk.count, due_ns));
                    (chunk, Some(due_ns))
                }
                NetworkOutput::Drop(chunk) => (chunk, None),
                NetworkOutput::Capture { sent, .. } => {
                    self.captured += u64::from(sent.chunk.count);
                    continue;
                }
                NetworkOutput::Changed { .. } => continue,
            };
            for segment in chunk.first..chunk.first + chunk.count {
                let before = self.fates.insert((chunk.packet, segment), arrival_ns);
                assert_eq!(
                    before, None,
                    "segment {segment} of {:?} came out twice",
                    chunk.packet
                );
            }
        }
    }

    /// Run the network until it is empty.
    fn drain(&mut self, world: &mut EmulatorWorld) {
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

/// Return the description of a link with these changes to the default.
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

/// Return a network of two hosts with a link in each direction; the link from `a` to `b` has these
/// changes.
fn pair(forward: Value) -> Network {
    parse(json!({
        "interfaces": {"a": interface("a", 1), "b": interface("b", 2)},
        "links": {"there": link("a", "b", forward), "back": link("b", "a", json!({}))},
    }))
}

/// Return a network with one link from each of the hosts `a` and `b` to router `r`, one from there
/// to router `s`, and one to host `c`.
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

fn world(network: &Network) -> EmulatorWorld {
    EmulatorWorld::new(network, 1).expect("a network that can be built")
}

/// Return the shape of a packet with segments of 1500 bytes.
fn full(segments: u16) -> PacketShape {
    PacketShape {
        segments,
        segment_bytes: 1500,
        last_bytes: 1500,
    }
}

/// Send a packet from the first interface to the last.
fn send(world: &mut EmulatorWorld, now_ns: u64, packet: u32, shape: PacketShape) {
    send_from(world, now_ns, InterfaceId(0), packet, shape);
}

/// Send a packet to the last interface.
fn send_from(
    world: &mut EmulatorWorld,
    now_ns: u64,
    from: InterfaceId,
    packet: u32,
    shape: PacketShape,
) {
    let interfaces = world.destinations().count() - 1;
    let last = world
        .destinations()
        .nth(interfaces - 1)
        .expect("it is there");
    world.handle_packet(now_ns, from, PacketId(packet), shape, last);
}
