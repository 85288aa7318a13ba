//! What transfers cost besides bytes on links, as a scenario may say it: parameters for a simulated world.
//!
//! Each parameter may be absent: then the default that stands beside its mover or service holds, and where there is none it is not
//! known. What the parameters mean in formulas is in `docs/concepts/transfer-costs.md`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{Name, Scalar};

/// A finite number that is not negative: seconds, bytes, counts, rates.
///
/// ```
/// use venturi_plan::Amount;
/// assert_eq!(Amount::new(0.5)?.get(), 0.5);
/// assert!(Amount::new(-1.0).is_err() && Amount::new(f64::NAN).is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Amount(f64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);

    /// So much.
    ///
    /// # Errors
    /// Saying what was expected and found, if the number is negative or not finite.
    pub fn new(value: f64) -> Result<Self, String> {
        if value.is_finite() && value >= 0.0 {
            Ok(Self(value))
        } else {
            Err(format!(
                "expected a finite number, 0 or more, found {value}"
            ))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Amount {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value)
    }
}

impl From<Amount> for f64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "minimum": 0})
    }
}

/// What a scenario says of costs, and a plan carries only then.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cost {
    /// Of movers. Every rule that fits a call counts, later ones over earlier ones, parameter by parameter.
    pub movers: Vec<MoverRule>,
    /// Of services by name.
    pub services: BTreeMap<Name, ServiceCost>,
    /// Of places by name.
    pub places: BTreeMap<Name, StorageCost>,
    /// Of hosts by name.
    pub hosts: BTreeMap<Name, HostCost>,
    /// Processors that all hosts share, as those of a lab on one machine do; null: each host has its own.
    pub machine_cores: Option<Amount>,
}

/// Which calls of a mover cost so much.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoverRule {
    /// Name of the mover.
    pub mover: String,
    /// What it reads from: a protocol of a door, or `file`. Null: whatever.
    #[serde(default)]
    pub source: Option<String>,
    /// What it writes to: a protocol of a door, or `file`. Null: whatever.
    #[serde(default)]
    pub destination: Option<String>,
    /// Options that a call must have, in base units.
    #[serde(default)]
    pub options: BTreeMap<Name, Scalar>,
    /// What it costs then.
    pub cost: MoverCost,
}

/// What a call of a mover costs besides its bytes: `start_s + start_core_s + session_round_trips · RTT`, and for each file
/// `file_s + file_core_s + file_round_trips · RTT`; what the services take comes besides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MoverCost {
    /// Time of a call that depends on neither distance nor files, and in which no processor works for it.
    pub start_s: Option<Amount>,
    /// Processor time of the client for a call, in core-seconds: start, its part of the login, end.
    pub start_core_s: Option<Amount>,
    /// Round trips of a call that do not depend on files: connection, greeting, login, farewell.
    pub session_round_trips: Option<Amount>,
    /// Time of a file that does not depend on distance, and in which no processor works for it.
    pub file_s: Option<Amount>,
    /// Processor time of the client for a file, in core-seconds.
    pub file_core_s: Option<Amount>,
    /// Round trips of a file, its data connection included where there is a new one for each.
    pub file_round_trips: Option<Amount>,
    /// Processor time of the client for a byte, in core-seconds.
    pub byte_core_s: Option<Amount>,
    /// Files whose commands are under way together in one session; 1 waits for each answer.
    pub pipelining: Option<u32>,
    /// Sessions side by side that a call opens which is not told how many; null: one.
    pub sessions: Option<u32>,
    /// Files for each of these: of fewer files it opens fewer; null: one.
    pub session_files: Option<u32>,
    /// Bytes for each of these, where there are fewer files than that; null: only files count.
    pub session_bytes: Option<Amount>,
    /// Sessions, but no more than files, that it opens also where less is worth one; null: one.
    pub sessions_least: Option<u32>,
    /// The smallest file that goes in pieces, each of them as a file of its own; null: none does.
    pub large_bytes: Option<Amount>,
    /// Bytes of such a piece.
    pub piece_bytes: Option<Amount>,
    /// Bytes that the tool asks for ahead on a connection; null: as many as TCP lets.
    pub in_flight_bytes: Option<Amount>,
    /// Bytes that are read and then sent, by turns; null: reading and sending overlap.
    pub block_bytes: Option<Amount>,
    /// Time a block takes besides, such as its system calls.
    pub block_s: Option<Amount>,
    /// Whether a data connection stays for the next file, so that its slow start is over.
    pub keeps_connection: Option<bool>,
    /// How often each server finds out in a session who the client is; null: once.
    pub logins: Option<Amount>,
    /// Of a job that calls a tool several times: time of each of its calls in which no processor works for it.
    pub session_s: Option<Amount>,
    /// Processor time of the client for each of these calls, in core-seconds.
    pub session_core_s: Option<Amount>,
    /// Of a tool that asks both ends of each file for a checksum: time of one question in which no processor works for it.
    pub check_s: Option<Amount>,
    /// Processor time of the client for a question.
    pub check_core_s: Option<Amount>,
    /// Round trips of a question.
    pub check_round_trips: Option<Amount>,
    /// Processor time of the server for a byte of the checksum.
    pub check_byte_core_s: Option<Amount>,
    /// Questions under way together; null: one after the other.
    pub checks: Option<u32>,
    /// Time without a byte after which the tool gives an attempt up; null: as long as TCP and the timeout of the call let it.
    pub patience_s: Option<Amount>,
    /// Further attempts of a call that broke; null: those of its options `retries` or `restarts`, else none.
    pub retries: Option<u32>,
    /// Pause before the second attempt; before each later one twice as long.
    pub retry_pause_s: Option<Amount>,
    /// Whether an attempt goes on where the one before broke off.
    pub resumes: Option<bool>,
}

/// What a server program costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceCost {
    /// Processor time of a session besides authentication, in core-seconds: a process, a login.
    pub session_core_s: Option<Amount>,
    /// Processor time of authentication, in core-seconds, on one core.
    pub auth_core_s: Option<Amount>,
    /// Scatter of that from login to login, as where keys are made: standard deviation over mean; null: none.
    pub auth_scatter: Option<Amount>,
    /// Processor time of a file or request, in core-seconds.
    pub file_core_s: Option<Amount>,
    /// Processor time for a byte, in core-seconds.
    pub byte_core_s: Option<Amount>,
    /// Sessions that it serves together, the others wait; null: any number.
    pub sessions: Option<u32>,
    /// The fastest that one process of it sends or receives; null: as fast as the rest lets.
    pub process_bytes_per_s: Option<Amount>,
    /// Round trips of a client that it sends elsewhere.
    pub redirect_round_trips: Option<Amount>,
    /// Contention of its sessions: sigma of the universal scalability law.
    pub contention: Option<Amount>,
    /// Coherency of its sessions: kappa of the universal scalability law.
    pub coherency: Option<Amount>,
    /// What it keeps of other servers' files.
    pub cache_bytes: Option<Amount>,
}

/// What storage costs: a single head (`seek_s`, `read_ahead_bytes`), an array (`half_users`), or the universal scalability law
/// (`contention`, `coherency`); one of them, or none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StorageCost {
    /// The fastest that it is read: by one reader; of an array, by many.
    pub read_bytes_per_s: Option<Amount>,
    /// The fastest that it is written, in the same sense.
    pub write_bytes_per_s: Option<Amount>,
    /// Time to begin at another place of a single head.
    pub seek_s: Option<Amount>,
    /// Bytes that are read before the head goes to the next file.
    pub read_ahead_bytes: Option<Amount>,
    /// Of an array: the number of users at which it gives half of its rate.
    pub half_users: Option<Amount>,
    /// Contention of users: sigma of the universal scalability law.
    pub contention: Option<Amount>,
    /// Coherency of users: kappa of the universal scalability law.
    pub coherency: Option<Amount>,
    /// Time to open or to create a file.
    pub open_s: Option<Amount>,
    /// What it reads and writes at once; null: whatever a tool asks for.
    pub block_bytes: Option<Amount>,
    /// Time until a block has been found, for a tool that asks for one after the other; null: none.
    pub block_s: Option<Amount>,
}

/// What a machine gives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostCost {
    /// Processors.
    pub cores: Option<Amount>,
    /// Speed of a core, relative to the machine that processor times were measured on.
    pub core_speed: Option<Amount>,
    /// Memory that keeps files once read.
    pub page_cache_bytes: Option<Amount>,
    /// The fastest that files are read from that memory.
    pub page_cache_bytes_per_s: Option<Amount>,
    /// Send buffer of a connection at most.
    pub send_buffer_bytes: Option<Amount>,
    /// Receive buffer of a connection at most.
    pub receive_buffer_bytes: Option<Amount>,
    /// Segments that a connection begins with.
    pub initial_window_segments: Option<Amount>,
    /// Exponent a of a flow's weight, streams · RTT^-a, where flows share a link.
    pub rtt_exponent: Option<f64>,
}
