//! The network between the hosts of a lab: interfaces, routers, directed links, next-hop routes, planned changes.
//!
//! This module contains only the data. `docs/concepts/emulator.md` defines the effect of a link on
//! a packet, and `crates/emulator` implements it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Bytes, Name, Seconds};

/// Key in a router's routes for all destinations without a separate route.
pub const ANY_DESTINATION: &str = "*";

/// The modelled network of a lab.
///
/// ```
/// use venturi_plan::Network;
/// let network: Network = serde_json::from_str(r#"{
///     "interfaces": {"a.eth0": {"host": "a", "device": "eth0", "address": "10.77.0.1"},
///                    "b.eth0": {"host": "b", "device": "eth0", "address": "10.77.0.2"}},
///     "links": {"a>b": {"from": "a.eth0", "to": "b.eth0", "rate_bit_per_s": 1e9, "delay_s": 0.01, "queue_bytes": 50000},
///               "b>a": {"from": "b.eth0", "to": "a.eth0", "rate_bit_per_s": 1e9, "delay_s": 0.01, "queue_bytes": 50000}}
/// }"#)?;
/// assert_eq!(network.interfaces["a.eth0"].mtu, 1500);
/// assert!(network.links["a>b"].up);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "The modelled network of a lab.")] // without the example
pub struct Network {
    /// Interfaces of the hosts by name. Each has exactly one outgoing and one incoming link.
    pub interfaces: BTreeMap<Name, Interface>,
    /// Names of the routers, which differ from the names of interfaces.
    #[serde(default)]
    pub routers: Vec<Name>,
    /// Directed links by name.
    pub links: BTreeMap<Name, Link>,
    /// For each router: destination interface → outgoing link; [`ANY_DESTINATION`] for all others.
    /// A packet without a route is dropped.
    #[serde(default)]
    pub routes: BTreeMap<Name, BTreeMap<Name, Name>>,
    /// Changes of links at planned times.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// A network interface of a host. Its host receives all packets that arrive there, with any
/// destination address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The host that it belongs to.
    pub host: Name,
    /// Its name in the host, at most 15 bytes.
    pub device: String,
    /// Its address, unique in the network.
    pub address: Ipv4Addr,
    /// Maximum size of an IP packet that it sends or receives, in bytes.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// Whether the host can pass several segments as one packet (TSO, USO), like to a network card
    /// that splits them.
    #[serde(default = "yes")]
    pub offload: bool,
}

/// A link in one direction: a drop-tail queue, a transmitter of finite rate, loss, and propagation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Start: an interface or a router.
    pub from: Name,
    /// End: an interface or a router.
    pub to: Name,
    /// Rate of the transmitter, counted over IP bytes and `overhead_bytes`.
    pub rate_bit_per_s: f64,
    /// Propagation delay in this direction.
    pub delay_s: Seconds,
    /// Standard deviation of the delay. Packets keep their order, unless reordering is set.
    #[serde(default)]
    pub jitter_s: Seconds,
    /// Capacity of the queue before the transmitter.
    pub queue_bytes: Bytes,
    /// Random loss; null: none.
    #[serde(default)]
    pub loss: Option<Loss>,
    /// Probability that a packet overtakes earlier packets.
    #[serde(default)]
    pub reorder_probability: f64,
    /// Bytes of a packet on the link in addition to its IP bytes, for example 38 for Ethernet.
    #[serde(default)]
    pub overhead_bytes: u32,
    /// Whether the link transmits; a link that is down drops all packets.
    #[serde(default = "yes")]
    pub up: bool,
}

/// Random loss of packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// Each packet independently.
    Independent {
        /// Probability that a packet is lost.
        probability: f64,
    },
    /// In bursts (Gilbert–Elliott): the link is in a good state without loss, or in a bad state. It
    /// can change its state after each packet.
    Bursty {
        /// Probability of a change from good to bad, per packet.
        enter: f64,
        /// Probability of a change from bad to good, per packet. The bad state lasts `1 / leave`
        /// packets on average.
        leave: f64,
        /// Probability that a packet is lost in the bad state.
        probability: f64,
    },
}

/// A change of one link at a planned time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time of the change, counted from `go`.
    pub time_s: Seconds,
    /// The link.
    pub link: Name,
    /// New values.
    pub set: LinkSet,
}

/// New values of a link; absent values do not change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSet {
    /// New rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<f64>,
    /// New delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<Seconds>,
    /// New standard deviation of the delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_s: Option<Seconds>,
    /// New size of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<Bytes>,
    /// New loss; null: no loss.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub loss: Option<Option<Loss>>,
    /// New probability of reordering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_probability: Option<f64>,
    /// False: start of an outage; true: its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
}

impl LinkSet {
    /// Apply the change.
    ///
    /// ```
    /// # use venturi_plan::{Link, LinkSet};
    /// # let mut link: Link = serde_json::from_str(
    /// #     r#"{"from": "a", "to": "b", "rate_bit_per_s": 1e9, "delay_s": 0.005, "queue_bytes": 1250000}"#)?;
    /// let outage: LinkSet = serde_json::from_str(r#"{"up": false}"#)?;
    /// outage.apply(&mut link);
    /// assert!(!link.up);
    /// assert_eq!(link.rate_bit_per_s, 1e9);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn apply(&self, link: &mut Link) {
        fn set<T: Copy>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut link.rate_bit_per_s, self.rate_bit_per_s);
        set(&mut link.delay_s, self.delay_s);
        set(&mut link.jitter_s, self.jitter_s);
        set(&mut link.queue_bytes, self.queue_bytes);
        set(&mut link.loss, self.loss);
        set(&mut link.reorder_probability, self.reorder_probability);
        set(&mut link.up, self.up);
    }

    /// Merge a later change: its values replace earlier ones.
    pub fn update(&mut self, later: &Self) {
        *self = Self {
            rate_bit_per_s: later.rate_bit_per_s.or(self.rate_bit_per_s),
            delay_s: later.delay_s.or(self.delay_s),
            jitter_s: later.jitter_s.or(self.jitter_s),
            queue_bytes: later.queue_bytes.or(self.queue_bytes),
            loss: later.loss.or(self.loss),
            reorder_probability: later.reorder_probability.or(self.reorder_probability),
            up: later.up.or(self.up),
        };
    }
}

const fn usual_mtu() -> u32 {
    1500
}

const fn yes() -> bool {
    true
}

/// Read a key that is present, even if its value is null.
fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Option<Loss>>, D::Error> {
    Option::deserialize(input).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_loss_ends_the_loss_and_an_absent_one_keeps_it() {
        let ends: LinkSet = serde_json::from_str(r#"{"loss": null}"#).expect("a set");
        let leaves: LinkSet = serde_json::from_str(r#"{"up": true}"#).expect("a set");
        assert_eq!((ends.loss, leaves.loss), (Some(None), None));
        for (set, text) in [(ends, r#"{"loss":null}"#), (leaves, r#"{"up":true}"#)] {
            assert_eq!(serde_json::to_string(&set).expect("JSON"), text);
        }
    }

    #[test]
    fn a_link_round_trips_through_json() {
        let text = concat!(
            r#"{"from":"a","to":"b","rate_bit_per_s":1000000000.0,"delay_s":0.005,"jitter_s":0.0,"queue_bytes":1250000,"#,
            r#""loss":{"kind":"bursty","enter":0.001,"leave":0.1,"probability":0.5},"reorder_probability":0.0,"#,
            r#""overhead_bytes":38,"up":true}"#
        );
        let link: Link = serde_json::from_str(text).expect("a link");
        assert_eq!(serde_json::to_string(&link).expect("JSON"), text);
    }

    #[test]
    fn an_unknown_key_is_rejected_at_every_level() {
        for (text, key) in [
            (r#"{"interfaces":{},"links":{},"hubs":[]}"#, "hubs"),
            (
                r#"{"interfaces":{},"links":{"l":{"from":"a","to":"b","rate_bit_per_s":1.0,"delay_s":0.0,"queue_bytes":1,"loss":{"kind":"independent","p":0.1}}}}"#,
                "p",
            ),
            (
                r#"{"interfaces":{},"links":{},"changes":[{"time_s":1.0,"link":"l","set":{"rate":1.0}}]}"#,
                "rate",
            ),
        ] {
            let error = serde_json::from_str::<Network>(text).expect_err("an unknown key");
            assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        }
    }
}
