//! What a session is to be like.

use crate::{Dcau, Mode, Protection, Secret};

/// Who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Nobody in particular.
    Anonymous,
    /// A user of the server.
    Password {
        /// Name.
        user: Vec<u8>,
        /// Password.
        password: Secret,
    },
    /// Whom the security layer showed; the server maps the name.
    Mapped,
    /// Nobody: the server knows, since it was started by ssh.
    Done,
}

/// Whether bytes of an upload go out before the server says that it takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// They do: no round trip a file.
    Eager,
    /// They wait: a round trip a file.
    Gated,
}

/// What a session is to be like.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who logs in.
    pub login: Login,
    /// The server's address: where data connections go when it names none.
    pub server: std::net::IpAddr,
    /// MODE; a server without MODE E is spoken to in MODE S.
    pub mode: Mode,
    /// Data connections a file in MODE E.
    pub connections: u16,
    /// Transfers that are asked for ahead of their end.
    pub depth: usize,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Socket buffers of the server.
    pub buffer_bytes: Option<u64>,
    /// Who must be at the other end of data connections, and what protects them. Only with a security layer.
    pub data: Option<(Dcau, Protection)>,
    /// How uploads are sent; `None`: eagerly to servers of the Globus toolkit, whose ways are known, gated to others.
    pub upload: Option<Upload>,
    /// How often a transfer is tried.
    pub attempts: u32,
    /// Whether all data nodes of a server that has several shall move each file in MODE E.
    pub striped: bool,
    /// How long nothing may move.
    pub patience: std::time::Duration,
}
