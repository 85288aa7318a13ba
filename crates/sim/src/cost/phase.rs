//! What a transfer does, one thing after another, for a driver that puts each on the resources it needs.

use serde::{Deserialize, Serialize};

/// One thing a transfer does. The next begins when it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    /// Time passes, and nothing is used.
    Delay {
        /// How long.
        seconds: f64,
        /// For what.
        why: Why,
    },
    /// A processor of the client works.
    ClientCpu {
        /// Processor time of the machine that parameters were measured on.
        core_s: f64,
        /// Cores that it can use at most: one a session.
        width: f64,
        /// For what.
        why: Why,
    },
    /// A processor of a server works.
    ServerCpu {
        /// Which one.
        end: End,
        /// Processor time of the machine that parameters were measured on.
        core_s: f64,
        /// Cores that it can use at most: one a session.
        width: f64,
        /// For what.
        why: Why,
    },
    /// Bytes go from the source to the destination, through all that is between.
    Bytes {
        /// How many.
        bytes: f64,
        /// The fastest that they go, in bytes a second, whatever the resources have left.
        cap: f64,
        /// Their share where they meet others.
        weight: f64,
        /// What the cap is, for who asks why it was not faster.
        bound: Bound,
    },
    /// Remember the present moment; takes no time.
    Mark,
    /// Wait until so much time has passed since the last `Mark`; if it has, go on at once.
    NotBefore {
        /// How much.
        seconds: f64,
        /// For what.
        why: Why,
    },
}

/// An end of a transfer that has a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The server that is read from.
    Source,
    /// The server that is written to.
    Destination,
}

/// Which way bytes go at a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Out of it.
    Read,
    /// Into it.
    Write,
}

/// What time or processors are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The tool starts and ends.
    Start,
    /// Connection, greeting, login, farewell: round trips and the server's part.
    Session,
    /// Who the client is, is found out.
    Authentication,
    /// Another server is the right one.
    Redirect,
    /// Commands of a file and their answers: round trips.
    Commands,
    /// A file is opened, looked up, closed: what does not depend on distance.
    File,
    /// A connection finds out how fast it can be.
    SlowStart,
    /// A server is asked for a checksum.
    Check,
}

/// What bounds the rate of a transfer besides the resources that it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Nothing.
    None,
    /// Windows of its connections.
    Window,
    /// What the tool asks for ahead.
    Ahead,
    /// What the sender lets each connection have.
    Pacing,
    /// Random loss, or the kind of congestion control.
    Loss,
    /// A core of the client.
    ClientCpu,
    /// A core of a server.
    ServerCpu,
    /// The process of a server.
    ServerProcess,
    /// Blocks that are read and sent by turns.
    Block,
}
