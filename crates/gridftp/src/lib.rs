//! The GridFTP protocol without I/O: the commands and replies of a control connection, the blocks of data
//! connections in MODE E, and the sessions of a client and a server as state machines. Bytes, time and what a driver has
//! done go in; bytes, and what a driver shall do, come out.
//!
//! Left out on purpose: sockets, files, clocks, threads, and what a path means on a disk: a driver confines it. TLS is put in
//! as a [`Security`]; [`gsi`] has that of grids.
//!
//! Read [`client::Client`] first, for it has the rule that the crate exists for: an upload that fails never shifts the
//! bytes of the next file. Then [`server::Server`], and [`mode_e::Receiver`].

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
mod last_moved;
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
mod timestamp;

pub use command::{
    BufferName, Command, Dcau, Family, Layout, Marker, Mode, Options, Partial, Protection, Restart,
    RetrieveOptions, Site,
};
pub use data::{DataOut, Delivered, Delivery};
pub use error::{Error, excerpt};
pub use facts::{Entry, FACTS, Kind};
pub use features::Features;
pub use last_moved::LastMoved;
pub use line::{Line, LineBuffer, MAX_LINE_BYTES};
pub use list::parse_list;
pub use marker::{Performance, Progress};
pub use path::{MAX_PATH_BYTES, Path};
pub use ranges::{ByteRanges, MAX_RANGES};
pub use reply::{
    Collected, MAX_REPLY_BYTES, MAX_REPLY_LINES, Part, Reply, ReplyCollector, ReplyParser,
};
pub use secret::Secret;
pub use security::{DataSecurity, DataWish, End, Handshake, Peer, Security};
pub use timestamp::{parse_timestamp, write_timestamp};

/// A number of digits and nothing else; the standard library also takes a sign.
pub(crate) fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok()
}
