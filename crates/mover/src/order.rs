//! What is to be copied, and how: everything that was asked for, checked.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::Error;
use crate::given::{Given, Route};
use crate::http::proxy::Through;

mod reading;

pub(crate) use reading::{block, bytes, count, pacing};

/// What is to be copied, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What is copied, as it was written.
    pub what: What,
    /// Whether directories are copied.
    pub recursive: bool,
    /// Whether the destination is never a directory to put things into.
    pub no_target_directory: bool,
    /// Whether directories that lead to the destination are made.
    pub mkpath: bool,
    /// Whether symbolic links are replaced by what they point to.
    pub follow: bool,
    /// What is kept besides the bytes.
    pub preserve: Preserve,
    /// What becomes of a file that is there already.
    pub existing: Existing,
    /// Whether a file that is there already is told by its content.
    pub checksum: bool,
    /// Whether both ends are read again and compared.
    pub verify: bool,
    /// Whether a file is on stable storage before it gets its name.
    pub sync: bool,
    /// Whether the page cache is avoided.
    pub direct: bool,
    /// How bytes are moved.
    pub method: Method,
    /// Whether nothing is decided here.
    pub fixed: bool,
    /// Workers; none: as the machine and the set suggest.
    pub concurrency: Option<u32>,
    /// Bytes of one read and write; none: as the machine suggests.
    pub block_bytes: Option<u64>,
    /// What is asked of networks.
    pub network: Network,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// What is told.
    pub output: Output,
}

/// What is copied, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Sources to a destination.
    Places {
        /// One or more.
        sources: Vec<OsString>,
        /// Where to.
        destination: OsString,
    },
    /// The names in a file, below a source.
    Names {
        /// The file; `-` is stdin.
        list: PathBuf,
        /// Whether a zero byte ends each.
        null: bool,
        /// The directory that they are in.
        source: OsString,
        /// The directory that they come to.
        destination: OsString,
    },
    /// The pairs in a file.
    Pairs {
        /// The file.
        list: PathBuf,
        /// Whether a zero byte ends each.
        null: bool,
    },
}

/// What is asked of networks; none: as the path suggests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Data connections of a session.
    pub streams: Option<u16>,
    /// Whether all data nodes of a server that has several move each file.
    pub stripe: bool,
    /// Transfers that a session asks for ahead of their end.
    pub pipelining: Option<u32>,
    /// Socket buffers of data connections, bytes.
    pub window_bytes: Option<u32>,
    /// Congestion control of data connections.
    pub congestion: Option<String>,
    /// What each data connection sends a second at most, bytes.
    pub pacing_bytes_per_s: Option<u64>,
    /// How data connections of GridFTP are secured; none: authenticated, or open where a server cannot.
    pub data_channel: Option<DataChannel>,
    /// Which proxy requests of HTTP go through.
    pub proxy: Through,
}

/// How data connections of GridFTP are secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataChannel {
    /// Whoever reaches the port first is at the other end (DCAU N).
    Open,
    /// Both ends show a certificate of the user, and bytes pass as they are (DCAU A, PROT C).
    Authenticated,
    /// The same, and no byte can be changed on its way (PROT S).
    Safe,
    /// The same, and no byte can be read (PROT P).
    Private,
}

/// What is kept besides the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Times of access and change.
    pub times: bool,
    /// Owner and group.
    pub owner: bool,
    /// Hard links among the files of one source.
    pub links: bool,
    /// Extended attributes.
    pub xattr: bool,
    /// Pipes, sockets, devices.
    pub special: bool,
}

/// What becomes of a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Kept if it is whole, else replaced.
    Update,
    /// Replaced.
    Replace,
    /// Kept.
    Keep,
}

/// How bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Cloned, else copied by the kernel or through buffers, whichever is faster.
    Auto,
    /// The same, but never cloned.
    Copy,
    /// Copied by the kernel, else through buffers.
    Kernel,
    /// Through buffers.
    Buffers,
}

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Errors; on a terminal progress as well.
    Usual,
    /// Decisions and files as well.
    Verbose,
    /// Errors alone.
    Quiet,
    /// Events as JSON Lines.
    Json,
}

impl Order {
    /// Sees whether all that was asked for can be had on this way: nothing is passed over in silence.
    ///
    /// # Errors
    /// The first option that would do nothing.
    pub(crate) fn fits(&self, given: &Given, route: Route) -> Result<(), Error> {
        let (preserve, network) = (self.preserve, &self.network);
        let local = route == Route::Local;
        let beyond = preserve.owner || preserve.links || preserve.xattr || preserve.special;
        let server = "a place at a server as source or destination";
        let asked = [
            ("--direct", self.direct, !local, "places of this host alone"),
            (
                "--method",
                matches!(self.method, Method::Kernel | Method::Buffers),
                !local,
                "places of this host alone",
            ),
            (
                "--preserve",
                beyond,
                !local,
                "mode and times, which is what can be kept at servers",
            ),
            ("--streams", network.streams.is_some(), local, server),
            (
                "--stripe",
                network.stripe,
                route != Route::Ftp,
                "a place at a server of FTP or GridFTP",
            ),
            (
                "--pipelining",
                network.pipelining.is_some(),
                route != Route::Ftp,
                "a place at a server of FTP or GridFTP",
            ),
            ("--window", network.window_bytes.is_some(), local, server),
            ("--congestion", network.congestion.is_some(), local, server),
            (
                "--pacing",
                network.pacing_bytes_per_s.is_some(),
                !given.is_upload(),
                "this host as source and a server as destination, since it is the sender who paces (`venturi serve --pacing`)",
            ),
            (
                "--data-channel",
                network.data_channel.is_some(),
                route != Route::Ftp,
                "a place at a server of GridFTP (gsiftp)",
            ),
            (
                "--proxy",
                matches!(network.proxy, Through::One(_)),
                route != Route::Http,
                "a place at a server of HTTP",
            ),
        ];
        let unfit = asked
            .into_iter()
            .find(|(_, asked, unfit, _)| *asked && *unfit);
        unfit.map_or(Ok(()), |(option, _, _, expected)| {
            let found = match route {
                Route::Local => "places of this host alone",
                _ if option == "--pacing" => "another source or destination",
                Route::Ftp => "one of FTP",
                Route::Http => "one of HTTP",
            };
            Err(Error::Order {
                option,
                expected,
                found: found.into(),
            })
        })
    }
}
