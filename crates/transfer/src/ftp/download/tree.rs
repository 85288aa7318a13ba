//! Remote tree and its local copy: listings are requested in advance, directories are created when listed, and modes and times are set at the
//! end.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use venturi_gridftp::{EntryKind, ListEntry, Path as RemotePath};

use super::Download;
use crate::attributes::LocalMetadata;
use crate::error::{Failure, describe};
use crate::ftp::batch::DIRECTORIES_AHEAD;
use crate::ftp::failures;
use crate::ftp::files::FtpMetadata;
use crate::ftp::listing::{ListingEvent, MAX_ATTEMPTS, PendingListing};
use crate::ftp::names;
use crate::ftp::received::times;
use crate::ftp::session_handle::SessionClosed;
use crate::ftp::symlinks;
use crate::journal::{self, Journal, Origin};
use crate::options::CopyOptions;
use crate::roots;
use crate::temporary::Token;

/// Local directory.
pub(super) struct CreatedDirectory {
    path: PathBuf,
    known: FtpMetadata,
}

/// Tree in progress.
pub(super) struct Tree {
    at: PathBuf,
    journal: Journal,
    directory: OwnedFd,
}

/// Root directory of a local copy.
struct Opened {
    /// Path without symbolic links.
    at: PathBuf,
    fresh: bool,
    /// True if complete files are identified by size and time.
    reliable: bool,
}

/// Directory whose entries are copied.
struct DirectoryTask {
    from: RemotePath,
    to: PathBuf,
    origin: Origin,
    /// True if this copy has created the local directory, so that it is empty.
    fresh: bool,
    attempts: u32,
    /// Names that were listed: a repeated listing contains them again.
    listed: HashSet<Vec<u8>>,
    /// Root directory of the tree, with its path length: links within it stay links.
    root_bytes: usize,
    /// Unique identifiers of the parent directories, to detect cycles of links.
    above: Vec<String>,
}

impl Download<'_> {
    pub(super) fn tree(
        &mut self,
        from: RemotePath,
        (to, token, as_written): (PathBuf, Token, bool),
        known: FtpMetadata,
        unique: Option<String>,
    ) {
        let opened = match self.open_tree(&to, token, as_written) {
            Ok(opened) => opened,
            Err(failure) => return self.shared.report_failure(&failure),
        };
        self.found(&opened.at, known);
        let (fresh, reliable) = (opened.fresh, opened.reliable);
        self.walk(DirectoryTask {
            root_bytes: from.as_bytes().len(),
            from,
            to,
            origin: Origin { token, reliable },
            fresh,
            attempts: 0,
            listed: HashSet::new(),
            above: unique.into_iter().collect(),
        });
    }

    fn found(&mut self, directory: &Path, known: FtpMetadata) {
        self.shared.totals.count(&self.shared.totals.directories);
        self.created.push(CreatedDirectory {
            path: directory.to_owned(),
            known,
        });
    }

    /// Creates the root directory of a copy, with a journal.
    fn open_tree(&mut self, to: &Path, token: Token, as_written: bool) -> Result<Opened, Failure> {
        let options = self.shared.options;
        let failure = |found: String| failures::no_directory(to.to_owned(), found);
        // Follow a link at the destination only if the user named it.
        let at = if as_written && to.is_dir() {
            fs::canonicalize(to).map_err(|error| failure(describe(&error)))?
        } else {
            to.to_owned()
        };
        let fresh = make(&at, options.dry_run).map_err(|error| failure(describe(&error)))?;
        if options.dry_run {
            let reliable = true;
            return Ok(Opened {
                at,
                fresh,
                reliable,
            });
        }
        let kernel = |errno| failure(crate::error::reason(errno));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&at, flags, Mode::empty()).map_err(kernel)?;
        let journal = Journal::open(directory.as_fd(), token, options.sync, fresh);
        let journal = journal.map_err(|errno| journal::none(to.to_owned(), errno))?;
        if let Some(decision) = roots::resumed(to, &journal) {
            self.shared.report.decision(&decision);
        }
        let reliable = journal.reliable;
        self.trees.push(Tree {
            at: at.clone(),
            journal,
            directory,
        });
        Ok(Opened {
            at,
            fresh,
            reliable,
        })
    }

    /// Walks a tree with several listings in flight.
    fn walk(&mut self, root: DirectoryTask) {
        let mut todo = vec![root];
        let mut pending: VecDeque<(PendingListing, DirectoryTask)> = VecDeque::new();
        while !self.shared.stop.is_cancelled() {
            while pending.len() < DIRECTORIES_AHEAD
                && let Some(directory) = todo.pop()
            {
                pending.push_back((
                    PendingListing::new(self.handle, self.lister, &directory.from),
                    directory,
                ));
            }
            let Some((mut listing, mut directory)) = pending.pop_front() else {
                return;
            };
            if let Err(SessionClosed) = self.directory(&mut listing, &mut directory, &mut todo) {
                directory.attempts += 1;
                if directory.attempts >= MAX_ATTEMPTS {
                    return self.shared.session_lost();
                }
                todo.push(directory);
            }
        }
    }

    fn directory(
        &mut self,
        listing: &mut PendingListing,
        directory: &mut DirectoryTask,
        todo: &mut Vec<DirectoryTask>,
    ) -> Result<(), SessionClosed> {
        loop {
            let event = match listing.next(true)? {
                ListingEvent::Nothing => {
                    // Known items go to the sessions before a wait.
                    self.batch.give();
                    listing.next(false)?
                }
                other => other,
            };
            match event {
                ListingEvent::Entry(entry) if directory.listed.insert(entry.name.clone()) => {
                    self.entry(directory, &entry, todo);
                }
                ListingEvent::Entry(_) | ListingEvent::Nothing => {}
                ListingEvent::ServerEnd(reply) => {
                    if !reply.is_success() {
                        let location = self.shared.display_url(&directory.from);
                        let failure = failures::unreadable(location, reply.to_string());
                        self.shared.report_failure(&failure);
                    }
                    return Ok(());
                }
            }
        }
    }

    fn entry(
        &mut self,
        directory: &DirectoryTask,
        entry: &ListEntry,
        todo: &mut Vec<DirectoryTask>,
    ) {
        let shared = self.shared;
        let name = entry.safe_name();
        let from = name.and_then(|name| Ok((name, names::below(&directory.from, name)?)));
        let (name, from) = match from {
            Ok(found) => found,
            Err(error) => {
                let location = shared.display_url(&directory.from);
                return shared.report_failure(&failures::no_name(location, error.to_string()));
            }
        };
        let to = directory.to.join(OsStr::from_bytes(name));
        // Globus servers report the type of the target for a link, and its path.
        let is_link = entry.kind == Some(EntryKind::Link) || entry.target.is_some();
        match &entry.kind {
            _ if is_link && !shared.options.follow => {
                let link = symlinks::FetchedLink {
                    root: &directory.from.as_bytes()[..directory.root_bytes],
                    directory: &directory.from,
                    from: &from,
                    target: entry.target.as_deref(),
                    to,
                    token: directory.origin.token,
                };
                symlinks::fetch(shared, link);
            }
            Some(EntryKind::Link) => {
                let reason = "a symbolic link whose target the server does not report";
                shared.left_out(&shared.display_url(&from), reason);
            }
            Some(EntryKind::Directory) => self.subdirectory(directory, entry, from, to, todo),
            Some(EntryKind::Other(what)) => {
                let reason = format!("neither file nor directory, but `{what}`");
                shared.left_out(&shared.display_url(&from), &reason);
            }
            _ => self.file(
                from,
                to,
                directory.origin,
                FtpMetadata::from(entry),
                directory.fresh,
            ),
        }
    }

    fn subdirectory(
        &mut self,
        parent: &DirectoryTask,
        entry: &ListEntry,
        from: RemotePath,
        to: PathBuf,
        todo: &mut Vec<DirectoryTask>,
    ) {
        let mut above = parent.above.clone();
        if let Some(unique) = &entry.unique {
            if above.contains(unique) {
                let location = self.shared.display_url(&from);
                return self.shared.report_failure(&failures::circle(location));
            }
            above.push(unique.clone());
        }
        match make(&to, self.shared.options.dry_run) {
            Ok(fresh) => {
                self.found(&to, FtpMetadata::from(entry));
                todo.push(DirectoryTask {
                    from,
                    to,
                    origin: parent.origin,
                    fresh,
                    attempts: 0,
                    listed: HashSet::new(),
                    root_bytes: parent.root_bytes,
                    above,
                });
            }
            Err(error) => self
                .shared
                .report_failure(&failures::no_directory(to, describe(&error))),
        }
    }
}

impl Tree {
    /// Marks a directory as complete.
    pub(super) fn close(self) -> Result<(), Failure> {
        let closed = self.journal.close(self.directory.as_fd());
        closed.map_err(|errno| journal::stays(self.at, errno))
    }
}

impl CreatedDirectory {
    /// Sets mode and time of a directory after its contents, and syncs its names if requested.
    pub(super) fn give(&self, options: &CopyOptions) -> Result<(), Failure> {
        let (mode, time) = (options.preserve.mode, options.preserve.times);
        let failure = |errno| Failure::unset(self.path.clone(), ("to set mode and times", errno));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(failure)?;
        if let Some(mode) = self.known.mode.filter(|_| mode) {
            let created = LocalMetadata::from(rustix::fs::fstat(&directory).map_err(failure)?);
            let mode = Mode::from_raw_mode(mode & 0o1777 | created.inherited());
            rustix::fs::fchmod(&directory, mode).map_err(failure)?;
        }
        if let Some(modify_s) = self.known.modify_s.filter(|_| time) {
            rustix::fs::futimens(&directory, &times(modify_s)).map_err(failure)?;
        }
        if options.sync {
            rustix::fs::fsync(&directory).map_err(failure)?;
        }
        Ok(())
    }
}

/// Creates or finds a directory; a link to one does not count. Returns true if it is new, or would be.
fn make(path: &Path, dry_run: bool) -> io::Result<bool> {
    if !dry_run {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|()| true),
        }
    }
    match rustix::fs::lstat(path).map(LocalMetadata::from) {
        Ok(found) if found.kind == FileType::Directory => Ok(false),
        Ok(_) => Err(io::Error::from(Errno::NOTDIR)),
        Err(Errno::NOENT) if dry_run => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}
