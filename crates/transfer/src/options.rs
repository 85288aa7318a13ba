//! Validated options of a copy.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::CopyError;
use crate::http::proxy::Through;
use crate::inputs::{CopyInputs, Route};

mod reading;

pub(crate) use reading::{block, bytes, count, max_rate, pacing};

/// Validated options of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOptions {
    /// Sources and destination as written.
    pub sources: CopySources,
    /// Copy directories.
    pub recursive: bool,
    /// Use the destination as the name of the copy, even if it is a directory.
    pub no_target_directory: bool,
    /// Create missing parent directories of the destination.
    pub mkpath: bool,
    /// Copy the targets of symbolic links instead of the links.
    pub follow: bool,
    /// Attributes to preserve.
    pub preserve: Preserve,
    /// Action for existing destination files.
    pub existing: Existing,
    /// Compare existing files by content instead of size and time.
    pub checksum: bool,
    /// Compare each copy with its source.
    pub verify: bool,
    /// Write each file to stable storage before the rename.
    pub sync: bool,
    /// Bypass the page cache.
    pub direct: bool,
    /// Method to copy local data.
    pub method: Method,
    /// Disable automatic tuning.
    pub fixed: bool,
    /// Number of workers; none: chosen for the host and the files.
    pub concurrency: Option<u32>,
    /// Bytes per read and write; none: chosen for the host.
    pub block_bytes: Option<u64>,
    /// Network options.
    pub network: NetworkOptions,
    /// Maximum rate of all bytes of the copy together, bytes per second.
    pub max_rate_bytes_per_s: Option<u64>,
    /// Change nothing.
    pub dry_run: bool,
    /// Kind of output.
    pub output: OutputMode,
}

/// Sources and destination as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopySources {
    /// Sources to a destination.
    Operands {
        /// At least one source.
        sources: Vec<OsString>,
        /// Destination.
        destination: OsString,
    },
    /// Names in a file, below a source.
    Names {
        /// Path of the list; `-` is standard input.
        list: PathBuf,
        /// A zero byte ends each name.
        null: bool,
        /// Source directory.
        source: OsString,
        /// Destination directory.
        destination: OsString,
    },
    /// Pairs in a file.
    Pairs {
        /// Path of the list.
        list: PathBuf,
        /// A zero byte ends each name.
        null: bool,
    },
}

/// Network options; none: chosen for the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Data connections per session.
    pub streams: Option<u16>,
    /// Transfer each file through all data nodes of a striped server.
    pub stripe: bool,
    /// Transfers in flight per session.
    pub pipelining: Option<u32>,
    /// Socket buffers of data connections, bytes.
    pub window_bytes: Option<u32>,
    /// Congestion control of data connections.
    pub congestion: Option<String>,
    /// Maximum rate of each data connection, bytes per second.
    pub pacing_bytes_per_s: Option<u64>,
    /// Security of GridFTP data connections; none: authenticated, or open if the server does not support it.
    pub data_channel: Option<DataChannel>,
    /// HTTP proxy.
    pub proxy: Through,
}

/// Security of GridFTP data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataChannel {
    /// No authentication: any host can connect to the port (DCAU N).
    Open,
    /// Both hosts present a certificate of the user; data is not protected (DCAU A, PROT C).
    Authenticated,
    /// Authenticated, with integrity protection (PROT S).
    Safe,
    /// Authenticated and encrypted (PROT P).
    Private,
}

/// Attributes to preserve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Access and modification times.
    pub times: bool,
    /// Owner and group.
    pub owner: bool,
    /// Hard links between files of one source.
    pub links: bool,
    /// Extended attributes.
    pub xattr: bool,
    /// Pipes, sockets, devices.
    pub special: bool,
}

/// Action for existing destination files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep complete files, replace others.
    Update,
    /// Replace all files.
    Replace,
    /// Keep all files.
    Keep,
}

/// Method to copy local data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Clone extents if possible; otherwise use the kernel or buffers, the faster of both.
    Auto,
    /// As `Auto`, but never clone.
    Copy,
    /// Copy in the kernel; otherwise through buffers.
    Kernel,
    /// Copy through buffers.
    Buffers,
}

/// Kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// Errors, and progress on a terminal.
    Usual,
    /// Also decisions and files.
    Verbose,
    /// Errors only.
    Quiet,
    /// Events as JSON Lines.
    Json,
}

impl CopyOptions {
    /// Checks that the options have an effect for this route, so that none is ignored silently.
    ///
    /// # Errors
    /// The first option without effect.
    pub(crate) fn check_route(&self, inputs: &CopyInputs, route: Route) -> Result<(), CopyError> {
        let (preserve, network) = (self.preserve, &self.network);
        let local = route == Route::Local;
        let beyond = preserve.owner || preserve.links || preserve.xattr || preserve.special;
        let server = "a server as source or destination";
        let options = [
            ("--direct", self.direct, !local, "local paths only"),
            (
                "--method",
                matches!(self.method, Method::Kernel | Method::Buffers),
                !local,
                "local paths only",
            ),
            (
                "--preserve",
                beyond,
                !local,
                "mode and times; servers preserve no other attributes",
            ),
            ("--streams", network.streams.is_some(), local, server),
            (
                "--stripe",
                network.stripe,
                route != Route::Ftp,
                "an FTP or GridFTP server as source or destination",
            ),
            (
                "--pipelining",
                network.pipelining.is_some(),
                route != Route::Ftp,
                "an FTP or GridFTP server as source or destination",
            ),
            ("--window", network.window_bytes.is_some(), local, server),
            ("--congestion", network.congestion.is_some(), local, server),
            (
                "--pacing",
                network.pacing_bytes_per_s.is_some(),
                !inputs.is_upload(),
                "a local source and a server as destination, because only the sender can pace (for downloads, see `venturi serve --pacing`)",
            ),
            (
                "--max-rate",
                self.max_rate_bytes_per_s.is_some(),
                inputs.is_between_servers(),
                "this host as source or destination, because the data of other copies do not pass this host",
            ),
            (
                "--data-channel",
                network.data_channel.is_some(),
                route != Route::Ftp,
                "a GridFTP server (gsiftp) as source or destination",
            ),
            (
                "--proxy",
                matches!(network.proxy, Through::One(_)),
                route != Route::Http,
                "an HTTP server as source or destination",
            ),
        ];
        let invalid = options
            .into_iter()
            .find(|(_, options, invalid, _)| *options && *invalid);
        invalid.map_or(Ok(()), |(option, _, _, expected)| {
            let found = match route {
                Route::Local => "local paths only",
                _ if option == "--pacing" => "another source or destination",
                _ if option == "--max-rate" => "two servers",
                Route::Ftp => "an FTP server",
                Route::Http => "an HTTP server",
            };
            Err(CopyError::InvalidOption {
                option,
                expected,
                found: found.into(),
            })
        })
    }
}
