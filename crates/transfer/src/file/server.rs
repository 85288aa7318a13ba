//! Operations of a server, without rules: one implementation per protocol.

use serde::Serialize;

use super::content::{Checksums, NewFile};
use super::error::FileError;
use super::location::FileLocation;
use crate::checksum::Algorithm;

/// Type of a path on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RemoteKind {
    File,
    Directory,
    Other,
}

/// Metadata of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Metadata {
    pub(super) kind: RemoteKind,
    /// None for directories, or if unknown.
    pub(super) size_bytes: Option<u64>,
    /// Modification time, in seconds since 1970; none if unknown.
    pub(super) modified_s: Option<i64>,
}

impl Metadata {
    /// A directory without other metadata.
    pub(super) const DIRECTORY: Self = Self {
        kind: RemoteKind::Directory,
        size_bytes: None,
        modified_s: None,
    };
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RemoteEntry {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) metadata: Metadata,
}

/// Operations of a server. Errors describe the reason only: the caller adds location and action.
pub(super) trait FileServer {
    /// Return the metadata of a path.
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError>;

    /// Return the entries of a directory.
    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError>;

    /// Write a file that does not exist.
    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError>;

    /// Pass the content of a file to `sink`, in order.
    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError>;

    /// Return a checksum that the server has or computes; none if it has no such checksum. Without an algorithm, any is good.
    fn checksum(
        &mut self,
        at: &FileLocation,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError>;

    /// Remove a file.
    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError>;

    /// Remove an empty directory.
    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError>;

    /// Create one directory, without its parents. Return whether it is new.
    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError>;

    /// Remove the parts of an interrupted upload of a file that does not exist.
    fn remove_unfinished(&mut self, _: &FileLocation) -> Result<(), FileError> {
        Ok(())
    }

    /// True if files need an existing parent directory.
    fn needs_parents(&self) -> bool {
        true
    }
}

/// Return the bytes of hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.is_empty()
        || !digits.len().is_multiple_of(2)
        || !digits.iter().all(u8::is_ascii_hexdigit)
    {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}
