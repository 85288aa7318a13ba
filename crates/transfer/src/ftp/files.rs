//! Files of a copy with their paths at source and destination, and open files of uploads.

use std::fs::File;
use std::path::PathBuf;

use venturi_gridftp::Path;

use crate::attributes::LocalMetadata;

/// Metadata of a local or remote file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FtpMetadata {
    pub(crate) size: Option<u64>,
    /// Modification time, seconds since 1970.
    pub(crate) modify_s: Option<i64>,
    /// Permission bits.
    pub(crate) mode: Option<u32>,
}

/// Remote source and local destination of a download.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: Path,
    pub(crate) to: PathBuf,
    /// Temporary name.
    pub(crate) part: PathBuf,
    pub(crate) known: FtpMetadata,
    /// Number of changes of the file during the download so far.
    pub(crate) changes: u32,
}

/// Local source and remote destination of an upload.
#[derive(Debug)]
pub(crate) struct UploadTask {
    pub(crate) from: PathBuf,
    pub(crate) to: Path,
    /// Temporary name.
    pub(crate) part: Path,
    pub(crate) known: FtpMetadata,
    /// Metadata of the scanned source, if the upload resumes a partial file on the server: that
    /// file belongs to this version.
    pub(crate) resume_from: Option<LocalMetadata>,
}

/// Local file that is sent.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) number: u64,
    pub(crate) file: File,
    pub(crate) size: u64,
    /// End of the sent part.
    pub(crate) end: u64,
    /// Metadata at opening.
    pub(crate) source_metadata: LocalMetadata,
    /// Adler-32 that the server compares.
    pub(crate) checksum: Option<u32>,
    /// Content of a small file.
    pub(crate) content: Option<Vec<u8>>,
}
