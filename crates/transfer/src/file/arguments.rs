//! Command line of `venturi-engine file`; the requests of a batch have the same keys.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::checksum::Algorithm;
use crate::options::{count, max_rate};

/// Create, inspect, check and remove files on an existing server.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct FileArgs {
    #[command(subcommand)]
    pub(super) action: FileSubcommand,
    /// Maximum time without progress, in seconds. Default: 60
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 60,
        hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub(super) timeout: u64,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum FileSubcommand {
    #[command(flatten)]
    One(FileCommand),
    /// Execute requests from standard input, one JSON object per line
    Batch(BatchArgs),
    /// Transfer files at the same time, one JSON object per line of standard input, and print bytes and time
    Stream(StreamArgs),
}

/// A request.
#[derive(Debug, Clone, clap::Subcommand, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(super) enum FileCommand {
    /// Print the metadata of a file or directory
    Stat(UrlArgs),
    /// List a directory, one entry per line
    List(UrlArgs),
    /// Write a new file with generated content; never overwrite a file
    Create(CreateArgs),
    /// Print the checksum of a file
    Checksum(ChecksumArgs),
    /// Remove a file or an empty directory
    Remove(UrlArgs),
    /// Create a directory and its parents
    Mkdir(UrlArgs),
    /// Print whether your credentials allow to create and remove files in a directory
    Access(AccessArgs),
}

/// A request with only a URL.
#[derive(Debug, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UrlArgs {
    /// URL: ftp, gsiftp, http, https, dav, davs, s3, s3s, sftp, root, roots, srm
    pub(super) url: String,
}

/// A new file.
#[derive(Debug, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateArgs {
    /// URL of the new file
    pub(super) url: String,
    /// Size of the file in bytes
    #[arg(long, value_name = "BYTES")]
    pub(super) size_bytes: u64,
    /// Seed of the content. Default: 0
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    #[serde(default)]
    pub(super) seed: u64,
    /// Number of the file in its dataset. Default: 0
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    #[serde(default)]
    pub(super) index: u64,
}

/// A checksum.
#[derive(Debug, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChecksumArgs {
    /// URL of the file
    pub(super) url: String,
    /// Algorithm. Default: a checksum of the server, otherwise adler32
    #[arg(long, value_enum)]
    #[serde(default)]
    pub(super) algorithm: Option<AlgorithmName>,
    /// Computation of the checksum. Default: by the server if it can, otherwise by reading
    #[arg(long, value_enum)]
    #[serde(default)]
    pub(super) by: Option<ChecksumBy>,
}

/// Permissions in a directory.
#[derive(Debug, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessArgs {
    /// URL of an existing directory
    pub(super) url: String,
    /// Create no file; use only the content of the credentials
    #[arg(long)]
    #[serde(default)]
    pub(super) no_probe: bool,
}

/// Requests from standard input.
#[derive(Debug, clap::Args)]
pub(super) struct BatchArgs {
    /// Requests that are executed at the same time. Default: 1
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = count::<u32>(64))]
    pub(super) concurrency: u32,
}

/// Transfers from standard input.
#[derive(Debug, clap::Args)]
pub(super) struct StreamArgs {
    /// Maximum rate of all transfers together, such as '500 Mb/s'
    #[arg(long, value_name = "RATE", value_parser = max_rate)]
    pub(super) max_rate: Option<u64>,
}

/// Name of a checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AlgorithmName {
    Adler32,
    Md5,
    Sha256,
}

/// Origin of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ChecksumBy {
    /// The server computes it
    Server,
    /// The command reads the file
    Reading,
}

impl FileCommand {
    /// Return the URL as written.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Stat(request)
            | Self::List(request)
            | Self::Remove(request)
            | Self::Mkdir(request) => &request.url,
            Self::Create(request) => &request.url,
            Self::Checksum(request) => &request.url,
            Self::Access(request) => &request.url,
        }
    }

    /// Return the action for messages, after "cannot".
    pub(super) fn action(&self) -> &'static str {
        match self {
            Self::Stat(_) => "read the metadata",
            Self::List(_) => "list the directory",
            Self::Create(_) => "create the file",
            Self::Checksum(_) => "compute the checksum",
            Self::Remove(_) => "remove it",
            Self::Mkdir(_) => "create the directory",
            Self::Access(_) => "check the permissions",
        }
    }
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Self {
        match name {
            AlgorithmName::Adler32 => Self::Adler32,
            AlgorithmName::Md5 => Self::Md5,
            AlgorithmName::Sha256 => Self::Sha256,
        }
    }
}

impl From<Algorithm> for AlgorithmName {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Adler32 => Self::Adler32,
            Algorithm::Md5 => Self::Md5,
            Algorithm::Sha256 => Self::Sha256,
        }
    }
}

const HELP: &str = "This example creates a file, prints its checksum, and removes it:

  venturi-engine file create davs://se.example.org/dteam/f1 --size-bytes 1000000
  venturi-engine file checksum davs://se.example.org/dteam/f1
  venturi-engine file remove davs://se.example.org/dteam/f1

For results, credentials and errors, see docs/reference/file.md.

Exit codes: 0 done; 1 the operation failed (an `error` object has the reason); 2 wrong usage.";
