//! Journals of unfinished downloads of trees: each is in the first directory of its tree, so that
//! the same command finds the tree.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::directory::OpenDirectory;
use super::target::HttpTarget;
use super::work::HttpContext;
use crate::error::Failure;
use crate::journal::{self, Journal, Origin};
use crate::roots;
use crate::temporary::Token;

/// Token of temporary names, computed from source and absolute destination.
pub(super) fn token(from: &HttpTarget, to: &Path) -> Token {
    let from = from.to_string();
    // The empty path is the current directory.
    let to = std::path::absolute(Path::new(".").join(to)).unwrap_or_else(|_| to.to_owned());
    let to: PathBuf = to.components().collect();
    Token::new(Path::new(from.trim_end_matches('/')), &to)
}

/// Unfinished trees with their journals.
#[derive(Debug, Default)]
pub(crate) struct TreeJournals(Mutex<Vec<(PathBuf, Journal, OwnedFd)>>);

impl TreeJournals {
    /// Open a journal in the copy of a tree, whose first directory may be `fresh`.
    ///
    /// # Errors
    /// Another copy has the journal, or a kernel error.
    pub(super) fn start(
        &self,
        cx: &HttpContext<'_>,
        token: Token,
        copy: &OpenDirectory,
        fresh: bool,
    ) -> Result<Origin, Failure> {
        if cx.order.dry_run {
            return Ok(Origin::of(token));
        }
        let failed = |errno| journal::none(copy.path.clone(), errno);
        let journal = Journal::open(copy.fd.as_fd(), token, cx.order.sync, fresh);
        let journal = journal.map_err(failed)?;
        if let Some(decision) = roots::resumed(&copy.path, &journal) {
            cx.report.decision(&decision);
        }
        let reliable = journal.reliable;
        let directory = rustix::io::fcntl_dupfd_cloexec(&copy.fd, 0).map_err(failed)?;
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        trees.push((copy.path.clone(), journal, directory));
        Ok(Origin { token, reliable })
    }

    /// Close all journals.
    pub(super) fn close(&self, cx: &HttpContext<'_>) {
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (copy, journal, directory) in trees.drain(..) {
            if let Err(errno) = journal.close(directory.as_fd()) {
                cx.report_failure(&journal::stays(copy, errno));
            }
        }
    }
}
