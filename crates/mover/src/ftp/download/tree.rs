//! A tree at a server, and its copy here: directories are asked for ahead, made when they are heard of, and get their modes and times at the
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
use venturi_gridftp::{Entry, Kind, Path as There};

use super::Download;
use crate::attributes::Facts;
use crate::error::{Failure, said};
use crate::ftp::batch::FOLDERS_AHEAD;
use crate::ftp::desk::Gone;
use crate::ftp::failures;
use crate::ftp::files::Known;
use crate::ftp::links;
use crate::ftp::listing::{Asked, Heard, MOST_TRIES};
use crate::ftp::names;
use crate::ftp::received::times;
use crate::journal::{self, Journal, Origin};
use crate::order::Order;
use crate::roots;
use crate::temporary::Token;

/// A directory here.
pub(super) struct Made {
    path: PathBuf,
    known: Known,
}

/// A tree that is being copied.
pub(super) struct Tree {
    at: PathBuf,
    journal: Journal,
    folder: OwnedFd,
}

/// The first directory of a tree's copy.
struct Opened {
    /// Where it is, without a link.
    at: PathBuf,
    fresh: bool,
    /// Whether what is in it is whole if size and time say so.
    reliable: bool,
}

/// A directory whose entries are to be copied.
struct Folder {
    from: There,
    to: PathBuf,
    origin: Origin,
    /// Whether nothing can be in its copy that we did not put there.
    fresh: bool,
    tries: u32,
    /// Names that were heard: a listing that is asked for again tells them again.
    seen: HashSet<Vec<u8>>,
    /// The first directory of the tree, and the length of its path: links within it stay links.
    root_bytes: usize,
    /// What the server calls the directories that it is in, to know when a link leads back into one.
    above: Vec<String>,
}

impl Download<'_> {
    pub(super) fn tree(
        &mut self,
        from: There,
        (to, token, as_written): (PathBuf, Token, bool),
        known: Known,
        unique: Option<String>,
    ) {
        let opened = match self.open_tree(&to, token, as_written) {
            Ok(opened) => opened,
            Err(failure) => return self.shared.tell(&failure),
        };
        self.found(&opened.at, known);
        let (fresh, reliable) = (opened.fresh, opened.reliable);
        self.walk(Folder {
            root_bytes: from.as_bytes().len(),
            from,
            to,
            origin: Origin { token, reliable },
            fresh,
            tries: 0,
            seen: HashSet::new(),
            above: unique.into_iter().collect(),
        });
    }

    fn found(&mut self, folder: &Path, known: Known) {
        self.shared.totals.count(&self.shared.totals.directories);
        self.made.push(Made {
            path: folder.to_owned(),
            known,
        });
    }

    /// Makes the copy of a tree's first directory, with a journal in it.
    fn open_tree(&mut self, to: &Path, token: Token, as_written: bool) -> Result<Opened, Failure> {
        let order = self.shared.order;
        let failure = |found: String| failures::no_folder(to.to_owned(), found);
        // Else one that is written as the copy itself may be a link.
        let at = if as_written && to.is_dir() {
            fs::canonicalize(to).map_err(|error| failure(said(&error)))?
        } else {
            to.to_owned()
        };
        let fresh = make(&at, order.dry_run).map_err(|error| failure(said(&error)))?;
        if order.dry_run {
            let reliable = true;
            return Ok(Opened {
                at,
                fresh,
                reliable,
            });
        }
        let kernel = |errno| failure(crate::error::reason(errno));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&at, flags, Mode::empty()).map_err(kernel)?;
        let journal = Journal::open(folder.as_fd(), token, order.sync, fresh);
        let journal = journal.map_err(|errno| journal::none(to.to_owned(), errno))?;
        if let Some(decision) = roots::going_on(to, &journal) {
            self.shared.report.decision(&decision);
        }
        let reliable = journal.reliable;
        self.trees.push(Tree {
            at: at.clone(),
            journal,
            folder,
        });
        Ok(Opened {
            at,
            fresh,
            reliable,
        })
    }

    /// Through a tree: some directories are asked for ahead.
    fn walk(&mut self, root: Folder) {
        let mut todo = vec![root];
        let mut asked: VecDeque<(Asked, Folder)> = VecDeque::new();
        while !self.shared.stop.asked() {
            while asked.len() < FOLDERS_AHEAD
                && let Some(folder) = todo.pop()
            {
                asked.push_back((Asked::new(self.desk, self.lister, &folder.from), folder));
            }
            let Some((mut listing, mut folder)) = asked.pop_front() else {
                return;
            };
            if let Err(Gone) = self.folder(&mut listing, &mut folder, &mut todo) {
                folder.tries += 1;
                if folder.tries >= MOST_TRIES {
                    return self.shared.gone();
                }
                todo.push(folder);
            }
        }
    }

    fn folder(
        &mut self,
        listing: &mut Asked,
        folder: &mut Folder,
        todo: &mut Vec<Folder>,
    ) -> Result<(), Gone> {
        loop {
            let heard = match listing.next(true)? {
                Heard::Nothing => {
                    // What is known goes to the sessions before we wait.
                    self.batch.give();
                    listing.next(false)?
                }
                other => other,
            };
            match heard {
                Heard::Entry(entry) if folder.seen.insert(entry.name.clone()) => {
                    self.entry(folder, &entry, todo);
                }
                Heard::Entry(_) | Heard::Nothing => {}
                Heard::End(reply) => {
                    if !reply.is_success() {
                        let place = self.shared.place(&folder.from);
                        let failure = failures::unreadable(place, reply.to_string());
                        self.shared.tell(&failure);
                    }
                    return Ok(());
                }
            }
        }
    }

    fn entry(&mut self, folder: &Folder, entry: &Entry, todo: &mut Vec<Folder>) {
        let shared = self.shared;
        let name = entry.safe_name();
        let from = name.and_then(|name| Ok((name, names::below(&folder.from, name)?)));
        let (name, from) = match from {
            Ok(found) => found,
            Err(error) => {
                let place = shared.place(&folder.from);
                return shared.tell(&failures::no_name(place, error.to_string()));
            }
        };
        let to = folder.to.join(OsStr::from_bytes(name));
        // Servers of the Globus toolkit call a link what it leads to, and tell where that is.
        let is_link = entry.kind == Some(Kind::Link) || entry.target.is_some();
        match &entry.kind {
            _ if is_link && !shared.order.follow => {
                let link = links::Fetched {
                    root: &folder.from.as_bytes()[..folder.root_bytes],
                    folder: &folder.from,
                    from: &from,
                    target: entry.target.as_deref(),
                    to,
                    token: folder.origin.token,
                };
                links::fetch(shared, link);
            }
            Some(Kind::Link) => {
                let reason = "a link of which the server does not tell what it leads to";
                shared.left_out(&shared.place(&from), reason);
            }
            Some(Kind::Directory) => self.directory(folder, entry, from, to, todo),
            Some(Kind::Other(what)) => {
                let reason = format!("it is neither file nor directory, but `{what}`");
                shared.left_out(&shared.place(&from), &reason);
            }
            _ => self.file(from, to, folder.origin, Known::from(entry), folder.fresh),
        }
    }

    fn directory(
        &mut self,
        folder: &Folder,
        entry: &Entry,
        from: There,
        to: PathBuf,
        todo: &mut Vec<Folder>,
    ) {
        let mut above = folder.above.clone();
        if let Some(unique) = &entry.unique {
            if above.contains(unique) {
                let place = self.shared.place(&from);
                return self.shared.tell(&failures::circle(place));
            }
            above.push(unique.clone());
        }
        match make(&to, self.shared.order.dry_run) {
            Ok(fresh) => {
                self.found(&to, Known::from(entry));
                todo.push(Folder {
                    from,
                    to,
                    origin: folder.origin,
                    fresh,
                    tries: 0,
                    seen: HashSet::new(),
                    root_bytes: folder.root_bytes,
                    above,
                });
            }
            Err(error) => self.shared.tell(&failures::no_folder(to, said(&error))),
        }
    }
}

impl Tree {
    /// All of it is there.
    pub(super) fn close(self) -> Result<(), Failure> {
        let closed = self.journal.close(self.folder.as_fd());
        closed.map_err(|errno| journal::stays(self.at, errno))
    }
}

impl Made {
    /// Gives a directory its mode and time, when all is in it, and has what is in it on stable storage by name, as far as it was asked for.
    pub(super) fn give(&self, order: &Order) -> Result<(), Failure> {
        let (mode, time) = (order.preserve.mode, order.preserve.times);
        let failure = |errno| Failure::unset(self.path.clone(), ("to set mode and times", errno));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(failure)?;
        if let Some(mode) = self.known.mode.filter(|_| mode) {
            let made = Facts::from(rustix::fs::fstat(&folder).map_err(failure)?);
            let mode = Mode::from_raw_mode(mode & 0o1777 | made.inherited());
            rustix::fs::fchmod(&folder, mode).map_err(failure)?;
        }
        if let Some(modify_s) = self.known.modify_s.filter(|_| time) {
            rustix::fs::futimens(&folder, &times(modify_s)).map_err(failure)?;
        }
        if order.sync {
            rustix::fs::fsync(&folder).map_err(failure)?;
        }
        Ok(())
    }
}

/// Makes a directory, or finds it; a link to one is none. Whether it is new, or would be.
fn make(path: &Path, dry_run: bool) -> io::Result<bool> {
    if !dry_run {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| true),
        }
    }
    match rustix::fs::lstat(path).map(Facts::from) {
        Ok(there) if there.kind == FileType::Directory => Ok(false),
        Ok(_) => Err(io::Error::from(Errno::NOTDIR)),
        Err(Errno::NOENT) if dry_run => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}
