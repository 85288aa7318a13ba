//! Command-line arguments of `venturi copy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::options::{block, count, max_rate, pacing};

/// Copy files and directory trees.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = HELP)]
pub struct CopyArgs {
    /// Sources, then the destination: paths or URLs (file, ftp, gsiftp, sshftp, http, https, dav, davs). Sources can contain quoted wildcards
    #[arg(value_name = "SRC DST", required_unless_present = "list")]
    pub(crate) operands: Vec<OsString>,
    /// Copy directories with their contents
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Use the destination as the name of the copy, even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Create missing parent directories of the destination
    #[arg(long)]
    pub(crate) mkpath: bool,
    /// File with a line `SOURCE DESTINATION` per copied file; for names with spaces, add --null
    #[arg(long, value_name = "FILE", conflicts_with = "files_from")]
    pub(crate) list: Option<PathBuf>,
    /// File with names relative to SRC, one per line, to copy to the same names below DST; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// End names in lists with a zero byte, not a newline (`find -print0`); --list then contains pairs of names
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Copy the targets of symbolic links instead of the links
    #[arg(short = 'L', long)]
    pub(crate) follow: bool,
    /// Attributes to preserve, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "mode,times",
        value_name = "ATTRIBUTES"
    )]
    pub(crate) preserve: Vec<PreserveValue>,
    /// Action for existing destination files
    #[arg(long, value_enum, default_value_t = ExistingValue::Update)]
    pub(crate) existing: ExistingValue,
    /// Compare existing files by content or checksum instead of size and time
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Compare each copy with its source: content (local) or checksums (servers). The check precedes the rename, except for HTTP uploads and copies between servers
    #[arg(long)]
    pub(crate) verify: bool,
    /// Write each file to stable storage before the rename
    #[arg(long)]
    pub(crate) sync: bool,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,
    /// Method to copy local data
    #[arg(long, value_enum, default_value_t = MethodValue::Auto)]
    pub(crate) method: MethodValue,
    /// Disable automatic tuning; use --concurrency (default 1) and --block (default 256 KiB)
    #[arg(long)]
    pub(crate) fixed: bool,
    /// Concurrent files or chunks of large files; concurrent sessions with a server
    #[arg(long, value_name = "N", value_parser = count::<u32>(1024))]
    pub(crate) concurrency: Option<u32>,
    /// Data connections per session with a server
    #[arg(long, value_name = "N", value_parser = count::<u16>(256))]
    pub(crate) streams: Option<u16>,
    /// Transfer each file through all data nodes of a striped server
    #[arg(long)]
    pub(crate) stripe: bool,
    /// Files in flight per session with a server
    #[arg(long, value_name = "N", value_parser = count::<u32>(4096))]
    pub(crate) pipelining: Option<u32>,
    /// Socket buffer size of data connections, such as 4MiB
    #[arg(long, value_name = "SIZE", value_parser = block::<u32>)]
    pub(crate) window: Option<u32>,
    /// Congestion control of local sockets of data connections, such as bbr
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// Maximum rate of each data connection, such as '500 Mb/s'; uploads only
    #[arg(long, value_name = "RATE", value_parser = pacing)]
    pub(crate) pacing: Option<u64>,
    /// Maximum rate of the whole copy, such as '500 Mb/s'; not directly between two servers
    #[arg(long, value_name = "RATE", value_parser = max_rate)]
    pub(crate) max_rate: Option<u64>,
    /// Security of gsiftp data connections. Default: authenticated, or open if the server does not support it
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(crate) data_channel: Option<DataChannelValue>,
    /// HTTP proxy, such as http://proxy.example:3128, or `none`. Default: http_proxy, https_proxy, all_proxy and no_proxy
    #[arg(long, value_name = "URL")]
    #[allow(rustdoc::bare_urls, reason = "the text is that of --help")]
    pub(crate) proxy: Option<OsString>,
    /// Size of reads, writes and blocks sent to a server, such as 256KiB
    #[arg(long, value_name = "SIZE", value_parser = block::<u64>)]
    pub(crate) block: Option<u64>,
    /// Print the planned copies and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print events to standard output, one JSON object per line
    #[arg(long, conflicts_with_all = ["verbose", "quiet"])]
    pub(crate) json: bool,
    /// Print decisions and files
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Value of `--preserve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreserveValue {
    /// Permission bits
    Mode,
    /// Access and modification times
    Times,
    /// Owner and group, if permitted
    Owner,
    /// Hard links between files of one source
    Links,
    /// Extended attributes, including access control lists
    Xattr,
    /// Named pipes, sockets and devices; skipped by default
    Special,
    /// All attributes
    All,
    /// No attributes
    None,
}

/// Value of `--existing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExistingValue {
    /// Keep complete files (same size and time, or --checksum), replace others
    Update,
    /// Replace all files
    Replace,
    /// Keep all files, even partial ones
    Keep,
}

/// Value of `--method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodValue {
    /// Clone extents if possible; otherwise use the fastest method
    Auto,
    /// As auto, but never clone extents
    Copy,
    /// Copy in the kernel (copy_file_range); otherwise read and write
    Kernel,
    /// Read and write all data through buffers
    Buffers,
}

/// Value of `--data-channel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataChannelValue {
    /// No authentication: any host can connect to the port (DCAU N)
    Open,
    /// Both hosts present a certificate of the user (DCAU A)
    Authenticated,
    /// Authenticated, with integrity protection (PROT S)
    Safe,
    /// Authenticated and encrypted (PROT P)
    Private,
}

const USAGE: &str = "venturi copy [OPTIONS] SRC... DST
       venturi copy [OPTIONS] --list FILE";

const EXAMPLES: &str = "  venturi copy -r data /mnt/copies/
  venturi copy -r gsiftp://se.example:2811/data/run7 /scratch/

More: venturi copy --help";

const HELP: &str = r#"DST is the name of the copy. If DST is a directory, ends with a slash, or follows several sources, each copy keeps its own name in DST.
If SRC ends with a slash (`-r SRC/ DST`), the contents of SRC are copied to DST.

  venturi copy -r data /mnt/copies/                  a tree into a directory
  venturi copy -r --preserve all data /mnt/data      with owners, hard links, attributes
  venturi copy --json big.root /mnt/ | tail -n 1     result as JSON
  find . -name '*.root' -print0 | venturi copy -0 --files-from - . /mnt/copies

  venturi copy -r 'gsiftp://se.example:2811/data/run[0-9]*' /scratch/   from a GridFTP server
  venturi copy -r results davs://se.example:8443/data/                  to a WebDAV server
  venturi copy -r ftp://a.example/data/run7 ftp://b.example/data/       directly between two servers

Files are written under temporary names and renamed when they are complete. Uploads to HTTP servers use the final name: an interrupted upload can leave a partial file.
To resume an interrupted copy, run the same command again.

Exit codes: 0 all files complete, 1 copy not possible, 2 wrong usage, 3 some files failed, 130 interrupted by a signal."#;
