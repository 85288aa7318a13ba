//! Files that are copied, by their names at both ends, and one that is open to be sent.

use std::fs::File;
use std::path::PathBuf;

use venturi_gridftp::Path;

use crate::attributes::Facts;

/// What is known of a file at a server or here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) size: Option<u64>,
    /// When it was modified, in seconds since 1970.
    pub(crate) modify_s: Option<i64>,
    /// Permission bits.
    pub(crate) mode: Option<u32>,
}

/// A file of a server and the name of its copy here.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: Path,
    pub(crate) to: PathBuf,
    /// Its name while it is not whole.
    pub(crate) part: PathBuf,
    pub(crate) known: Known,
    /// How often it was begun before, and changed while it came.
    pub(crate) changes: u32,
}

/// A file of this host and the name of its copy at a server.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) from: PathBuf,
    pub(crate) to: Path,
    /// Its name while it is not whole.
    pub(crate) part: Path,
    pub(crate) known: Known,
    /// What the source was when it was found, where one that was stopped goes on: what the server has under the temporary name is of this file.
    pub(crate) goes_on: Option<Facts>,
}

/// A file of this host that is being sent.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) number: u64,
    pub(crate) file: File,
    pub(crate) size: u64,
    /// Where that ends of it which is sent.
    pub(crate) end: u64,
    /// What it was when it was opened.
    pub(crate) facts: Facts,
    /// Its Adler-32, where the server is to compare it.
    pub(crate) checksum: Option<u32>,
    /// All of it, where that is little.
    pub(crate) content: Option<Vec<u8>>,
}
