//! Settings of a session.

use crate::{Dcau, Mode, Protection, Secret};

/// User of the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// Anonymous user.
    Anonymous,
    /// A user of the server.
    Password {
        /// User name.
        user: Vec<u8>,
        /// Password.
        password: Secret,
    },
    /// Identity of the security layer; the server maps it.
    Mapped,
    /// No login, because ssh has authenticated the user.
    Done,
}

/// Start of the bytes of an upload: before or after the server accepts the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadMode {
    /// Before: no round trip per file.
    Eager,
    /// After: one round trip per file.
    Gated,
}

/// Settings of a session.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// User of the login.
    pub login: Login,
    /// Address of the server, used if a reply has none.
    pub server: std::net::IpAddr,
    /// Transfer mode; servers without MODE E use MODE S.
    pub mode: Mode,
    /// Data connections per file in MODE E.
    pub connections: u16,
    /// Number of pipelined transfers.
    pub depth: usize,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Size of the server's socket buffers, in bytes.
    pub buffer_bytes: Option<u64>,
    /// Authentication and protection of data connections. Needs a security layer.
    pub data: Option<(Dcau, Protection)>,
    /// Upload mode; `None`: eager for Globus servers, gated for others.
    pub upload: Option<UploadMode>,
    /// Maximum attempts of a transfer.
    pub attempts: u32,
    /// `true` if all data nodes of a server move each file in MODE E.
    pub striped: bool,
    /// Timeout without progress.
    pub stall_timeout: std::time::Duration,
}
