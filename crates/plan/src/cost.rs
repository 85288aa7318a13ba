//! Costs of transfers in addition to bytes on links: parameters of a scenario for its simulation.
//!
//! Each parameter is optional. The default of its mover or service applies to an absent parameter;
//! without a default, it is unknown. For the formulas, see `docs/concepts/transfer-costs.md`.

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
    /// Zero.
    pub const ZERO: Self = Self(0.0);

    /// Create an amount.
    ///
    /// # Errors
    /// The expected and the found value, if the number is negative or not finite.
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

/// Costs from the scenario; a plan without them has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cost {
    /// Costs of movers. All matching rules of a call apply; for each parameter, later rules
    /// override earlier ones.
    pub movers: Vec<MoverRule>,
    /// Costs of services by name.
    pub services: BTreeMap<Name, ServiceCost>,
    /// Costs of storages by name.
    pub storages: BTreeMap<Name, StorageCost>,
    /// Costs of hosts by name.
    pub hosts: BTreeMap<Name, HostCost>,
    /// CPU cores that all hosts share, like the hosts of a lab on one machine; null: each host has
    /// its own.
    pub machine_cores: Option<Amount>,
}

/// Calls of a mover with the same costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoverRule {
    /// Name of the mover.
    pub mover: String,
    /// Source: a protocol of a service port, or `file`. Null: any.
    #[serde(default)]
    pub source: Option<String>,
    /// Destination: a protocol of a service port, or `file`. Null: any.
    #[serde(default)]
    pub destination: Option<String>,
    /// Options that a call must have, in base units.
    #[serde(default)]
    pub options: BTreeMap<Name, Scalar>,
    /// Costs of these calls.
    pub cost: MoverCost,
}

/// Costs of a call of a mover in addition to its bytes: `start_s + start_core_s + session_round_trips · RTT`, and for
/// each file `file_s + file_core_s + file_round_trips · RTT`; the costs of the services are added.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MoverCost {
    /// Time of a call without CPU use that is independent of distance and files.
    pub start_s: Option<Amount>,
    /// CPU time of the client for a call, in core-seconds: start, its part of the login, end.
    pub start_core_s: Option<Amount>,
    /// Round trips of a call that are independent of files: connection, greeting, login, logout.
    pub session_round_trips: Option<Amount>,
    /// Time of a file without CPU use that is independent of distance.
    pub file_s: Option<Amount>,
    /// CPU time of the client for a file, in core-seconds.
    pub file_core_s: Option<Amount>,
    /// Round trips of a file, including its data connection if each file has a new one.
    pub file_round_trips: Option<Amount>,
    /// CPU time of the client for a byte, in core-seconds.
    pub byte_core_s: Option<Amount>,
    /// Files whose commands are in flight together in one session; 1 waits for each reply.
    pub pipelining: Option<u32>,
    /// Maximum number of parallel sessions of a call without an explicit number; null: one.
    pub sessions: Option<u32>,
    /// Files per session; null: one. The larger quotient of files and bytes per session counts.
    pub session_files: Option<u32>,
    /// Bytes per session; null: only files count.
    pub session_bytes: Option<Amount>,
    /// Minimum number of sessions, but not more than files; null: one.
    pub min_sessions: Option<u32>,
    /// Size from which a file is sent in chunks, each like a separate file; null: no chunks.
    pub large_bytes: Option<Amount>,
    /// Bytes of a chunk.
    pub chunk_bytes: Option<Amount>,
    /// Bytes that the tool requests in advance on a connection; null: limited by TCP only.
    pub in_flight_bytes: Option<Amount>,
    /// Bytes that are read and then sent, in turns; null: reading and sending overlap.
    pub block_bytes: Option<Amount>,
    /// Additional time of a block, such as its system calls.
    pub block_s: Option<Amount>,
    /// Whether a data connection stays open for the next file, which then needs no slow start.
    pub keeps_connection: Option<bool>,
    /// Authentications of the client by each server in a session; null: one.
    pub logins: Option<Amount>,
    /// For a job that calls a tool several times: time of each call without CPU use.
    pub session_s: Option<Amount>,
    /// CPU time of the client for each of these calls, in core-seconds.
    pub session_core_s: Option<Amount>,
    /// For a tool that requests a checksum of each file from both endpoints: time of one request
    /// without CPU use.
    pub check_s: Option<Amount>,
    /// CPU time of the client for such a request.
    pub check_core_s: Option<Amount>,
    /// Round trips of such a request.
    pub check_round_trips: Option<Amount>,
    /// CPU time of the server per byte of the file.
    pub check_byte_core_s: Option<Amount>,
    /// Concurrent requests; null: one after the other.
    pub checks: Option<u32>,
    /// Maximum time of an attempt without a byte; null: limited by TCP and the timeout of the call.
    pub stall_timeout_s: Option<Amount>,
    /// Retries of a failed call; null: its options `retries` or `restarts`, otherwise none.
    pub retries: Option<u32>,
    /// Pause before the second attempt; it doubles before each further attempt.
    pub retry_pause_s: Option<Amount>,
    /// Whether an attempt resumes the previous attempt.
    pub resumes: Option<bool>,
}

/// Costs of a server program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceCost {
    /// CPU time of a session in addition to authentication, in core-seconds: a process, a login.
    pub session_core_s: Option<Amount>,
    /// CPU time of authentication, in core-seconds, on one core.
    pub auth_core_s: Option<Amount>,
    /// Variation of this time between logins, for example from key generation: standard deviation
    /// divided by mean; null: none.
    pub auth_scatter: Option<Amount>,
    /// CPU time of a file or request, in core-seconds.
    pub file_core_s: Option<Amount>,
    /// CPU time for a byte, in core-seconds.
    pub byte_core_s: Option<Amount>,
    /// Maximum number of concurrent sessions; others wait. Null: unlimited.
    pub sessions: Option<u32>,
    /// Maximum rate of one of its processes; null: unlimited.
    pub process_bytes_per_s: Option<Amount>,
    /// Round trips of a redirected client.
    pub redirect_round_trips: Option<Amount>,
    /// Contention of its sessions: sigma of the universal scalability law.
    pub contention: Option<Amount>,
    /// Coherency of its sessions: kappa of the universal scalability law.
    pub coherency: Option<Amount>,
    /// Capacity of its cache for files of other servers.
    pub cache_bytes: Option<Amount>,
}

/// Costs of storage: a single head (`seek_s`, `read_ahead_bytes`), an array (`half_users`), or the universal
/// scalability law (`contention`, `coherency`); at most one of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StorageCost {
    /// Maximum read rate of one reader; for an array, of many readers.
    pub read_bytes_per_s: Option<Amount>,
    /// Maximum write rate, in the same sense.
    pub write_bytes_per_s: Option<Amount>,
    /// Seek time of a single head.
    pub seek_s: Option<Amount>,
    /// Bytes that are read before the head goes to the next file.
    pub read_ahead_bytes: Option<Amount>,
    /// For an array: the number of users that reach half of its rate.
    pub half_users: Option<Amount>,
    /// Contention of users: sigma of the universal scalability law.
    pub contention: Option<Amount>,
    /// Coherency of users: kappa of the universal scalability law.
    pub coherency: Option<Amount>,
    /// Time to open or to create a file.
    pub open_s: Option<Amount>,
    /// Size of a read or write; null: as requested by the tool.
    pub block_bytes: Option<Amount>,
    /// Time to find a block, for a tool that requests blocks in sequence; null: none.
    pub block_s: Option<Amount>,
}

/// Resources of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostCost {
    /// CPU cores.
    pub cores: Option<Amount>,
    /// Speed of a core, relative to the machine on which CPU times were measured.
    pub core_speed: Option<Amount>,
    /// Size of the page cache.
    pub page_cache_bytes: Option<Amount>,
    /// Maximum read rate from the page cache.
    pub page_cache_bytes_per_s: Option<Amount>,
    /// Maximum send buffer of a connection.
    pub send_buffer_bytes: Option<Amount>,
    /// Maximum receive buffer of a connection.
    pub receive_buffer_bytes: Option<Amount>,
    /// Initial window of a connection, in segments.
    pub initial_window_segments: Option<Amount>,
    /// Exponent a of the weight of a flow on a shared link: streams · RTT^-a.
    pub rtt_exponent: Option<f64>,
}
