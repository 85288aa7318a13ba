//! Trees that come here, while they are not done: each has a journal in its first directory, by which the same command finds it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::folder::Folder;
use super::target::Target;
use super::work::Context;
use crate::error::Failure;
use crate::journal::{self, Journal, Origin};
use crate::roots;
use crate::temporary::Token;

/// What the temporary names of a copy follow from: its two places, however the one here is written.
pub(super) fn token(from: &Target, to: &Path) -> Token {
    let from = from.to_string();
    // The empty one is that which we are in.
    let to = std::path::absolute(Path::new(".").join(to)).unwrap_or_else(|_| to.to_owned());
    let to: PathBuf = to.components().collect();
    Token::new(Path::new(from.trim_end_matches('/')), &to)
}

/// Trees that are not done, with their journals.
#[derive(Debug, Default)]
pub(crate) struct Trees(Mutex<Vec<(PathBuf, Journal, OwnedFd)>>);

impl Trees {
    /// Has a journal in the copy of a tree, whose first directory may be `fresh`.
    ///
    /// # Errors
    /// If another copy has it, or as the kernel says.
    pub(super) fn begin(
        &self,
        cx: &Context<'_>,
        token: Token,
        copy: &Folder,
        fresh: bool,
    ) -> Result<Origin, Failure> {
        if cx.order.dry_run {
            return Ok(Origin::of(token));
        }
        let failed = |errno| journal::none(copy.path.clone(), errno);
        let journal = Journal::open(copy.fd.as_fd(), token, cx.order.sync, fresh);
        let journal = journal.map_err(failed)?;
        if let Some(decision) = roots::going_on(&copy.path, &journal) {
            cx.report.decision(&decision);
        }
        let reliable = journal.reliable;
        let folder = rustix::io::fcntl_dupfd_cloexec(&copy.fd, 0).map_err(failed)?;
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        trees.push((copy.path.clone(), journal, folder));
        Ok(Origin { token, reliable })
    }

    /// All of them are there.
    pub(super) fn close(&self, cx: &Context<'_>) {
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (copy, journal, folder) in trees.drain(..) {
            if let Err(errno) = journal.close(folder.as_fd()) {
                cx.tell(&journal::stays(copy, errno));
            }
        }
    }
}
