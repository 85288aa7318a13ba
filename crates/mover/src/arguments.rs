//! What can be said on the command line of `venturi copy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::order::{block, count, pacing};

/// Copy files and trees.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES, after_long_help = HELP)]
pub struct Arguments {
    /// Sources, then the destination: paths, file:///PATH, or ftp, gsiftp, sshftp, http, https, dav or davs ://HOST/PATH; the source may have wildcards, in quotes
    #[arg(value_name = "SRC DST", required_unless_present = "list")]
    pub(crate) places: Vec<OsString>,
    /// Copy directories, with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// The destination is the name of the copy, never a directory to put it into
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Make the directories that lead to the destination
    #[arg(long)]
    pub(crate) mkpath: bool,
    /// A file with a line `SOURCE DESTINATION` for each file to copy; names with blanks: use --null
    #[arg(long, value_name = "FILE", conflicts_with = "files_from")]
    pub(crate) list: Option<PathBuf>,
    /// A file with names below SRC, one a line, that are copied to the same names below DST; `-` reads them from stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Names in lists end with a zero byte, not a line (`find -print0`); in --list they come in pairs
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Copy what symbolic links point to, in place of the links
    #[arg(short = 'L', long)]
    pub(crate) follow: bool,
    /// What is kept besides the bytes
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "mode,times",
        value_name = "WORDS"
    )]
    pub(crate) preserve: Vec<PreserveWord>,
    /// What becomes of a file that is there already
    #[arg(long, value_enum, default_value_t = ExistingWord::Update)]
    pub(crate) existing: ExistingWord,
    /// Tell whether a file is there already by its content, not by size and time
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Read source and copy again before the copy gets its name, and compare them
    #[arg(long)]
    pub(crate) verify: bool,
    /// Have each file on stable storage before it gets its name
    #[arg(long)]
    pub(crate) sync: bool,
    /// Past the page cache (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,
    /// How bytes are moved
    #[arg(long, value_enum, default_value_t = MethodWord::Auto)]
    pub(crate) method: MethodWord,
    /// Decide nothing: --concurrency (1 if not given) and --block (256 KiB) hold as they are
    #[arg(long)]
    pub(crate) fixed: bool,
    /// Workers: files, or chunks of a large file, at the same time; sessions with a server
    #[arg(long, value_name = "N", value_parser = count::<u32>(1024))]
    pub(crate) concurrency: Option<u32>,
    /// Data connections of each session with a server
    #[arg(long, value_name = "N", value_parser = count::<u16>(256))]
    pub(crate) streams: Option<u16>,
    /// Have all data nodes of a striped server move each file, each over its own data connections
    #[arg(long)]
    pub(crate) stripe: bool,
    /// Files that each session asks a server for ahead of their end
    #[arg(long, value_name = "N", value_parser = count::<u32>(4096))]
    pub(crate) pipelining: Option<u32>,
    /// Socket buffers of data connections, such as 4MiB
    #[arg(long, value_name = "SIZE", value_parser = block::<u32>)]
    pub(crate) window: Option<u32>,
    /// Congestion control of data connections that are opened or accepted here, such as bbr
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// What each data connection sends at most, such as '500 Mb/s'; of uploads, since it is the sender who paces
    #[arg(long, value_name = "RATE", value_parser = pacing)]
    pub(crate) pacing: Option<u64>,
    /// How data connections of gsiftp are secured; if not given `authenticated`, or `open` where a server cannot
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) data_channel: Option<DataChannelWord>,
    /// The proxy of HTTP to go through, such as http://proxy.example:3128, or `none`; if not given, those that http_proxy, https_proxy, all_proxy and no_proxy name
    #[arg(long, value_name = "URL")]
    pub(crate) proxy: Option<OsString>,
    /// Bytes of one read and write, or of a block sent to a server, such as 256KiB
    #[arg(long, value_name = "SIZE", value_parser = block::<u64>)]
    pub(crate) block: Option<u64>,
    /// Only tell what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Events on standard output, one JSON object a line
    #[arg(long, conflicts_with_all = ["verbose", "quiet"])]
    pub(crate) json: bool,
    /// Tell decisions and files
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Tell nothing but errors, also on a terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// A word of `--preserve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreserveWord {
    /// Permission bits
    Mode,
    /// Times of access and change
    Times,
    /// Owner and group, as far as you may
    Owner,
    /// Hard links among the files of one source
    Links,
    /// Extended attributes, access control lists with them
    Xattr,
    /// Named pipes, sockets and devices, which are left out otherwise
    Special,
    /// All of these
    All,
    /// None of these
    None,
}

/// A word of `--existing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExistingWord {
    /// Kept if it is whole (same size and time, or --checksum), else replaced
    Update,
    /// Replaced
    Replace,
    /// Kept, whatever it is
    Keep,
}

/// A word of `--method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodWord {
    /// Clone extents, else what is fastest: the kernel copies, or bytes are read and written
    Auto,
    /// The same, but never clone: bytes really move
    Copy,
    /// Let the kernel copy (copy_file_range), else read and write
    Kernel,
    /// Read and write every byte
    Buffers,
}

/// A word of `--data-channel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataChannelWord {
    /// Whoever reaches the port first is at the other end (DCAU N)
    Open,
    /// Both ends show a certificate of the user (DCAU A)
    Authenticated,
    /// The same, and no byte can be changed on its way (PROT S)
    Safe,
    /// The same, and no byte can be read (PROT P)
    Private,
}

const USAGE: &str = "venturi copy [OPTIONS] SRC... DST
       venturi copy [OPTIONS] --list FILE";

const EXAMPLES: &str = "  venturi copy -r data /mnt/copies/
  venturi copy -r gsiftp://se.example:2811/data/run7 /scratch/

More: venturi copy --help";

const HELP: &str = r#"SRC is copied to the name DST; into DST, under its own name, if DST is a directory or ends in a slash, or if there are several.
With a trailing slash (`-r SRC/ DST`) it is what is in SRC that comes to be in DST.

  venturi copy -r data /mnt/copies/                  a tree into a directory
  venturi copy -r --preserve all data /mnt/data      with owners, hard links, attributes
  venturi copy --json big.root /mnt/ | tail -n 1     what came of it, for programs
  find . -name '*.root' -print0 | venturi copy -0 --files-from - . /mnt/copies

  venturi copy -r 'gsiftp://se.example:2811/data/run[0-9]*' /scratch/   from a server of GridFTP
  venturi copy -r results davs://se.example:8443/data/                  to one of WebDAV
  venturi copy -r ftp://a.example/data/run7 ftp://b.example/data/       from one to another: bytes go between them

A file gets its name when it is whole. Whatever ended a copy: the same command goes on where it was.

Exit codes: 0 all is there, 1 it cannot be done as it was asked for, 2 wrong usage, 3 some files failed, 130 stopped by a signal."#;
