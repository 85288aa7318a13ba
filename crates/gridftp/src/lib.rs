//! The GridFTP protocol without I/O.
//!
//! It implements commands and replies of control connections, blocks of data connections in MODE E,
//! and client and server sessions as state machines. Inputs are bytes, time and results of the
//! driver. Outputs are bytes and actions for the driver.
//!
//! Deliberate omissions: sockets, files, clocks, threads, and the mapping of paths to a disk, which
//! a driver must confine. TLS is supplied as a [`Security`]; [`gsi`] implements the one of grids.
//!
//! Read [`client::Client`] first. It has the rule that motivates this crate: a failed upload never
//! shifts the bytes of the next file. Then read [`server::Server`] and [`mode_e::BlockReceiver`].

#![deny(missing_docs)]

pub mod address;
pub mod base64;
pub mod client;
mod command;
mod data;
mod error;
mod facts;
mod features;
pub mod gsi;
mod line;
mod list;
mod marker;
pub mod mode_e;
mod path;
mod ranges;
mod reply;
mod secret;
mod security;
pub mod server;
mod stall_timer;
mod timestamp;

pub use command::{
    BufferName, Dcau, Family, FtpCommand, Layout, Marker, Mode, Options, Partial, Protection,
    Restart, RetrieveOptions, SiteCommand,
};
pub use data::{DataOut, Delivery, DeliveryResult};
pub use error::{FtpError, excerpt};
pub use facts::{EntryKind, FACTS, ListEntry};
pub use features::Features;
pub use line::{FtpLine, LineBuffer, MAX_LINE_BYTES};
pub use list::parse_list;
pub use marker::{PerformanceMarker, ProgressMarker};
pub use path::{MAX_PATH_BYTES, Path};
pub use ranges::{ByteRanges, MAX_RANGES};
pub use reply::{
    FtpReply, MAX_REPLY_BYTES, MAX_REPLY_LINES, ReplyCollector, ReplyEvent, ReplyLine, ReplyParser,
};
pub use secret::Secret;
pub use security::{ConnectionRole, DataSecurity, DataSecurityRequest, Handshake, Peer, Security};
pub use stall_timer::StallTimer;
pub use timestamp::{parse_timestamp, write_timestamp};

/// Parses digits only; the standard library also accepts a sign.
pub(crate) fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok()
}
