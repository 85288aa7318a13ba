//! What is to be transferred.

use std::sync::Arc;
use std::time::Instant;

use super::chunks::{LEAST_CHUNK_BYTES, Large};
use super::files::{Fetch, Store};
use super::parts::Parts;

/// A file, or a chunk of one, to be moved.
#[derive(Debug)]
pub(crate) struct Item {
    /// One that no other has.
    pub(crate) number: u64,
    /// Sessions that have failed with it since it last got on.
    pub(crate) tries: u32,
    /// How far it had got then, of one that goes on where it was.
    pub(crate) there: u64,
    /// How often a server began to send it, and when it first did.
    pub(crate) begins: u32,
    pub(crate) since: Option<Instant>,
    /// Whether a session that was left behind has passed it on.
    pub(crate) passed: bool,
    pub(crate) job: Job,
}

/// Which way.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    /// From a server.
    Fetch(Arc<Fetch>),
    /// One chunk of a large file from a server.
    Chunk(Arc<Large>, u64),
    /// What is missing of one from its first gap on, where a server sends no parts of files.
    Rest(Arc<Large>),
    /// A file that was changed while it came, to be asked about and to come as a new one; where it came in chunks, with these.
    Again(Arc<Fetch>, Option<Arc<Large>>),
    /// To a server.
    Store(Arc<Store>),
    /// One chunk of a large file to a server.
    Part(Arc<Parts>, u64),
    /// The name of a large file at a server, when all its chunks are there.
    Name(Arc<Parts>),
}

impl Job {
    /// What is to be moved of a large file from a server, of which these chunks are missing.
    pub(crate) fn of(large: Large, missing: Vec<u64>) -> Vec<Self> {
        let large = Arc::new(large);
        if large.in_order {
            return vec![Self::Rest(large)];
        }
        let chunk = |index| Self::Chunk(Arc::clone(&large), index);
        missing.into_iter().map(chunk).collect()
    }

    /// Whether its bytes go to a server.
    pub(crate) fn is_upload(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Part(..) | Self::Name(_))
    }

    /// What it uploads; none: it is a download.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        match self {
            Self::Store(store) => Some(store),
            Self::Part(parts, _) | Self::Name(parts) => Some(&parts.store),
            Self::Fetch(_) | Self::Chunk(..) | Self::Rest(_) | Self::Again(..) => None,
        }
    }

    /// Whether it is of a file that will not be whole.
    pub(crate) fn is_void(&self) -> bool {
        match self {
            Self::Chunk(large, _) | Self::Rest(large) => large.has_failed(),
            Self::Part(parts, _) | Self::Name(parts) => parts.has_failed(),
            Self::Fetch(_) | Self::Store(_) | Self::Again(..) => false,
        }
    }

    /// Its file will not be whole. True for the first that says so, which tells it.
    pub(crate) fn fail(&self) -> bool {
        match self {
            Self::Chunk(large, _) | Self::Rest(large) => large.fail(),
            Self::Part(parts, _) | Self::Name(parts) => parts.fail(),
            Self::Fetch(_) | Self::Store(_) | Self::Again(..) => true,
        }
    }
}

impl Item {
    /// Bytes to be moved, as far as they are known.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.job {
            Job::Fetch(fetch) => fetch.known.size.unwrap_or(0),
            Job::Chunk(large, index) => large.range(*index).end - large.range(*index).start,
            Job::Rest(large) => large.size - large.begin(),
            Job::Store(store) => store.known.size.unwrap_or(0),
            Job::Part(parts, index) => parts.range(*index).end - parts.range(*index).start,
            Job::Name(_) | Job::Again(..) => 0,
        }
    }

    /// It is begun from here on. One that is further than ever before does not fail for what was: connections may break many times in a very large
    /// file.
    pub(crate) fn reach(&mut self, there: u64) {
        if there >= self.there + LEAST_CHUNK_BYTES {
            (self.tries, self.there) = (0, there);
        }
    }

    /// Whether it was begun before: what came of it may not be closed yet.
    pub(crate) fn is_again(&self) -> bool {
        self.tries > 0 || self.passed
    }

    /// Whether the server may have all of it: a session that was lost may have sent it, and only the answer is missing.
    pub(crate) fn may_be_there(&self) -> bool {
        self.tries > 0 && matches!(self.job, Job::Part(..))
    }
}
