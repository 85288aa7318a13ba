//! Reads and writes of one disk, without a network.
//!
//! A read bypasses the page cache if the file system can; otherwise the result says that it came from the cache. A write
//! counts the time until the data are on the disk. Data are incompressible. The file of a write has no name, so that
//! the kernel removes it whatever happens.

mod cache;
mod content;
mod file_system;
mod make;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) use self::file_system::FileSystem;
use crate::error::MeasureError;

/// Test of a disk: reads and writes without a network
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Create files of incompressible data, and remove them from the page cache
    #[command(after_long_help = EXIT_CODES)]
    Make(MakeArgs),
    /// Read a file for a time, past the page cache if possible
    #[command(after_long_help = READ_HELP)]
    Read(ReadArgs),
    /// Write new data for a time, until they are on the disk
    #[command(after_long_help = WRITE_HELP)]
    Write(WriteArgs),
    /// Remove files from the page cache
    #[command(after_long_help = EXIT_CODES)]
    Evict {
        /// Files to remove from the cache; they stay on the disk
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Options of `disk make`.
#[derive(Debug, Args)]
pub struct MakeArgs {
    /// Files to create
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Size of each file in bytes
    #[arg(long)]
    bytes: u64,
    /// Change the size of existing files of this command. Without it, an existing file is an error
    #[arg(long)]
    resize: bool,
    /// Seconds after which a file stays as large as it is. Default: unlimited
    #[arg(long)]
    time_s: Option<f64>,
}

/// Options of `disk read`.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// File to read
    file: PathBuf,
    #[command(flatten)]
    limits: LimitArgs,
    /// Concurrent reads, 1 to 64. Default: 4
    #[arg(long, default_value_t = 4, hide_default_value = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Read through the page cache
    #[arg(long)]
    buffered: bool,
}

/// Options of `disk write`.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// Directory on the disk to test
    directory: PathBuf,
    #[command(flatten)]
    limits: LimitArgs,
    /// Write past the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
}

/// Limits of one measurement.
#[derive(Debug, Clone, Copy, Args)]
struct LimitArgs {
    /// Seconds of the measurement, 0.05 to 3600. Default: 2
    #[arg(long, default_value_t = 2.0, hide_default_value = true, value_parser = parse_time)]
    time_s: f64,
    /// Largest number of bytes. Default: unlimited
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    bytes: u64,
    /// Bytes of one call, a multiple of 4096, up to 64 MiB. Default: 1 MiB
    #[arg(long, default_value_t = 1 << 20, hide_default_value = true, value_parser = parse_block)]
    block: usize,
}

const EXIT_CODES: &str = "The output is one JSON object per file.

Exit codes: 0 done; 1 no result (standard error has the reason); 2 wrong usage; 128 + n ended by signal n.";

const READ_HELP: &str = "The output is one JSON object. `direct` is true if the reads bypassed the page cache (O_DIRECT). A file that is read through the cache is
read once at most. `resident_before` is the share of the file in the page cache, from mincore or cachestat. `cached` is true if the data
came from memory: from the page cache, or a file system in memory. It is null if the file system has a cache of its own that no system
call shows.

Exit codes: 0 done; 1 no result (standard error has the reason); 2 wrong usage; 128 + n ended by signal n.";

const WRITE_HELP: &str = "The output is one JSON object. `duration_s` includes `sync_s`, the time of fsync at the end. The kernel writes data back while the file grows, so that
fsync has little left. The file has no name in DIRECTORY; the kernel removes it when the command ends.
The command never uses more than half of the free space.

Exit codes: 0 done; 1 no result (standard error has the reason); 2 wrong usage; 128 + n ended by signal n.";

/// Executes a `disk` command.
pub(crate) fn execute(command: &DiskCommand) -> Result<(), MeasureError> {
    match command {
        DiskCommand::Make(arguments) => arguments
            .files
            .iter()
            .try_for_each(|file| crate::print(&make::make(file, arguments)?)),
        DiskCommand::Read(arguments) => crate::print(&read::read(arguments)?),
        DiskCommand::Write(arguments) => crate::print(&write::write(arguments)?),
        DiskCommand::Evict { files } => files
            .iter()
            .try_for_each(|file| crate::print(&make::evict(file)?)),
    }
}

fn parse_time(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(time_s) if (0.05..=3600.0).contains(&time_s) => Ok(time_s),
        _ => Err("expected seconds from 0.05 to 3600".to_owned()),
    }
}

fn parse_block(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes % venturi_linux::ALIGNMENT == 0 && (1..=64 << 20).contains(&bytes) => {
            Ok(bytes)
        }
        _ => Err("expected a multiple of 4096 bytes, up to 67108864".to_owned()),
    }
}
