//! Items of a copy.

use std::sync::Arc;
use std::time::Instant;

use super::chunks::{ChunkedDownload, MIN_CHUNK_BYTES};
use super::files::{Fetch, UploadTask};
use super::parts::ChunkedUpload;

/// File, or chunk of a file, to transfer.
#[derive(Debug)]
pub(crate) struct Item {
    /// Unique number.
    pub(crate) number: u64,
    /// Sessions that failed since the last progress.
    pub(crate) attempts: u32,
    /// Offset of the last progress of a resumed item.
    pub(crate) resume_offset: u64,
    /// Number of starts at a server, and the time of the first.
    pub(crate) starts: u32,
    pub(crate) since: Option<Instant>,
    /// True if a straggler has returned the item.
    pub(crate) passed: bool,
    pub(crate) job: FtpDirection,
}

/// Kind of transfer.
#[derive(Debug, Clone)]
pub(crate) enum FtpDirection {
    /// Download.
    Fetch(Arc<Fetch>),
    /// Chunk of a download.
    Chunk(Arc<ChunkedDownload>, u64),
    /// Remaining data of a download in order, if the server does not send byte ranges.
    Rest(Arc<ChunkedDownload>),
    /// Download that changed during the transfer: request its metadata and download it again; with its chunks, if any.
    Again(Arc<Fetch>, Option<Arc<ChunkedDownload>>),
    /// Upload.
    Store(Arc<UploadTask>),
    /// Chunk of an upload.
    Part(Arc<ChunkedUpload>, u64),
    /// Rename of an upload after its last chunk.
    Name(Arc<ChunkedUpload>),
}

impl FtpDirection {
    /// Returns the transfers for the missing chunks of a download.
    pub(crate) fn of(large: ChunkedDownload, missing: Vec<u64>) -> Vec<Self> {
        let large = Arc::new(large);
        if large.in_order {
            return vec![Self::Rest(large)];
        }
        let chunk = |index| Self::Chunk(Arc::clone(&large), index);
        missing.into_iter().map(chunk).collect()
    }

    /// True for uploads.
    pub(crate) fn is_upload(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Part(..) | Self::Name(_))
    }

    /// Returns the file of an upload; none for downloads.
    pub(crate) fn store(&self) -> Option<&Arc<UploadTask>> {
        match self {
            Self::Store(store) => Some(store),
            Self::Part(parts, _) | Self::Name(parts) => Some(&parts.store),
            Self::Fetch(_) | Self::Chunk(..) | Self::Rest(_) | Self::Again(..) => None,
        }
    }

    /// True if another part of its file has failed.
    pub(crate) fn is_void(&self) -> bool {
        match self {
            Self::Chunk(large, _) | Self::Rest(large) => large.has_failed(),
            Self::Part(parts, _) | Self::Name(parts) => parts.has_failed(),
            Self::Fetch(_) | Self::Store(_) | Self::Again(..) => false,
        }
    }

    /// Marks its file as failed. Returns true for the first caller, which reports it.
    pub(crate) fn fail(&self) -> bool {
        match self {
            Self::Chunk(large, _) | Self::Rest(large) => large.fail(),
            Self::Part(parts, _) | Self::Name(parts) => parts.fail(),
            Self::Fetch(_) | Self::Store(_) | Self::Again(..) => true,
        }
    }
}

impl Item {
    /// Returns the bytes to transfer, as far as known.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.job {
            FtpDirection::Fetch(fetch) => fetch.known.size.unwrap_or(0),
            FtpDirection::Chunk(large, index) => {
                large.range(*index).end - large.range(*index).start
            }
            FtpDirection::Rest(large) => large.size - large.start(),
            FtpDirection::Store(store) => store.known.size.unwrap_or(0),
            FtpDirection::Part(parts, index) => parts.range(*index).end - parts.range(*index).start,
            FtpDirection::Name(_) | FtpDirection::Again(..) => 0,
        }
    }

    /// Records the start offset. With progress, earlier failures do not count, because connections of a very large file can break many
    /// times.
    pub(crate) fn reach(&mut self, resume_offset: u64) {
        if resume_offset >= self.resume_offset + MIN_CHUNK_BYTES {
            (self.attempts, self.resume_offset) = (0, resume_offset);
        }
    }

    /// True if it was started before: its earlier transfer can still be open.
    pub(crate) fn is_retry(&self) -> bool {
        self.attempts > 0 || self.passed
    }

    /// True if the server may have all data: a lost session can have sent it, and only the reply is missing.
    pub(crate) fn may_be_complete(&self) -> bool {
        self.attempts > 0 && matches!(self.job, FtpDirection::Part(..))
    }
}
