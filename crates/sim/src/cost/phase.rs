//! Phases of a transfer, one after another, for a driver that assigns each to its resources.

use serde::{Deserialize, Serialize};

/// Phase of a transfer. The next phase starts when it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TransferPhase {
    /// Time passes without use of a resource.
    Delay {
        /// Duration.
        seconds: f64,
        /// Purpose.
        why: Why,
    },
    /// The client uses CPU time.
    ClientCpu {
        /// CPU time on the machine used to measure the parameters.
        core_s: f64,
        /// Maximum number of cores: one per session.
        width: f64,
        /// Purpose.
        why: Why,
    },
    /// A server uses CPU time.
    ServerCpu {
        /// The server.
        end: EndpointRole,
        /// CPU time on the machine used to measure the parameters.
        core_s: f64,
        /// Maximum number of cores: one per session.
        width: f64,
        /// Purpose.
        why: Why,
    },
    /// Bytes move from the source to the destination, through all resources between them.
    Bytes {
        /// Number of bytes.
        bytes: f64,
        /// Maximum rate, in bytes a second, independent of the resources.
        cap: f64,
        /// Weight at shared resources.
        weight: f64,
        /// Reason for the cap.
        bottleneck: TransferLimit,
    },
    /// Store the current time; takes no time.
    Mark,
    /// Wait until this time has passed since the last `Mark`; if it has, continue immediately.
    NotBefore {
        /// Duration.
        seconds: f64,
        /// Purpose.
        why: Why,
    },
}

/// Endpoint of a transfer with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointRole {
    /// Server of the source.
    Source,
    /// Server of the destination.
    Destination,
}

/// Direction of bytes at a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Read from the storage.
    Read,
    /// Write to the storage.
    Write,
}

/// Purpose of time or CPU use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The tool starts and ends.
    Start,
    /// Connection, greeting, login and logout: round trips and the server's part.
    Session,
    /// Authentication of the client.
    Authentication,
    /// Redirect to another server.
    Redirect,
    /// Commands of a file and their replies: round trips.
    Commands,
    /// Opening, looking up and closing a file: the part that does not depend on distance.
    File,
    /// Slow start of a connection.
    SlowStart,
    /// A server computes a requested checksum.
    Check,
}

/// Limit of the rate of a transfer other than its shared resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferLimit {
    /// No limit.
    None,
    /// Windows of its connections.
    Window,
    /// Bytes that the tool requests in advance.
    Ahead,
    /// Pacing rate of the sender for each connection.
    Pacing,
    /// Random loss, or the kind of congestion control.
    Loss,
    /// A core of the client.
    ClientCpu,
    /// A core of a server.
    ServerCpu,
    /// The process of a server.
    ServerProcess,
    /// Blocks that are read and sent alternately.
    Block,
}
