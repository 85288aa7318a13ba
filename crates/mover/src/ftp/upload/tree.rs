//! A tree here, and its copy at a server: directories are made ahead, and what is in one goes when it is there.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use venturi_gridftp::{Command, Kind, Path as There};

use super::{Upload, chmod, differs};
use crate::error::{Failure, said};
use crate::ftp::batch::FOLDERS_AHEAD;
use crate::ftp::desk::Gone;
use crate::ftp::failures;
use crate::ftp::links::Stored;
use crate::ftp::listing::Found;
use crate::ftp::messages::{Answer, Question};
use crate::ftp::names;
use crate::order::{Existing, Preserve};
use crate::temporary::Token;

/// Below so many files in a directory that is there, each is looked at by itself: the directory may have a million others.
const WORTH_A_LISTING: usize = 4;

/// A directory at the server, and what its source has.
pub(super) struct Made {
    path: There,
    mode: u32,
    modify_s: i64,
    /// Whether its mode is ours to set.
    ours: bool,
    /// Of the first of a tree: the directory in it that tells that the copy is not done.
    journal: Option<There>,
}

impl Made {
    /// What makes a directory at the server as its source is, when all is in it.
    pub(super) fn commands(self, preserve: Preserve, whole: bool) -> impl Iterator<Item = Command> {
        let mode = preserve.mode && self.ours && differs(self.mode, 0o755);
        let (path, time_s) = (self.path.clone(), self.modify_s);
        let commands = [
            self.journal.filter(|_| whole).map(Command::Rmd),
            mode.then(|| chmod(self.path, self.mode)),
            preserve.times.then_some(Command::Mfmt { time_s, path }),
        ];
        commands.into_iter().flatten()
    }
}

/// A directory that is being made.
pub(super) struct Folder {
    from: PathBuf,
    to: There,
    token: Token,
    mode: u32,
    modify_s: i64,
    /// Directories that it is in, to know when a link leads back into one.
    above: Vec<(u64, u64)>,
    asked: Option<Receiver<(u64, Answer)>>,
}

impl Upload<'_> {
    pub(super) fn folder(
        &self,
        from: PathBuf,
        to: There,
        token: Token,
        seen: &fs::Metadata,
        mut above: Vec<(u64, u64)>,
    ) -> Folder {
        let ask = |to: &There| self.desk.ask(Question::Command(Command::Mkd(to.clone())));
        let asked = (!self.shared.order.dry_run).then(|| ask(&to));
        above.push((seen.dev(), seen.ino()));
        Folder {
            from,
            to,
            token,
            mode: seen.mode(),
            modify_s: seen.mtime(),
            above,
            asked,
        }
    }

    /// Through a tree: directories are asked for ahead, and what is in one goes when it is there.
    pub(super) fn tree(&mut self, root: Folder, mut journal: Option<There>) -> Result<(), Gone> {
        let mut todo = VecDeque::from([root]);
        let mut goes_on = false;
        while let Some(folder) = todo.pop_front() {
            if self.shared.stop.asked() {
                return Ok(());
            }
            let Some(fresh) = self.await_folder(&folder)? else {
                continue;
            };
            let journal = journal.take().filter(|_| !self.shared.order.dry_run);
            if let Some(journal) = &journal {
                // A name for the same command to find; that it is there already says the same.
                goes_on = !self.desk.call(&Command::Mkd(journal.clone()))?.is_success();
            }
            self.shared.totals.count(&self.shared.totals.directories);
            self.made.push(Made {
                path: folder.to.clone(),
                mode: folder.mode,
                modify_s: folder.modify_s,
                // Those of an unfinished copy are ours too: who made them did not come to give them their modes.
                ours: fresh || goes_on,
                journal,
            });
            self.contents(&folder, fresh, &mut todo)?;
        }
        Ok(())
    }

    /// Waits for a directory that was asked for. Whether it is new; none if there is no place for it, which is told.
    fn await_folder(&mut self, folder: &Folder) -> Result<Option<bool>, Gone> {
        let Some(asked) = &folder.asked else {
            return Ok(Some(self.desk.see(&folder.to)?.is_none()));
        };
        let reply = self.desk.hear(asked, &Command::Mkd(folder.to.clone()))?;
        if reply.is_success() {
            return Ok(Some(true));
        }
        let there = self.desk.see(&folder.to)?;
        if there.is_some_and(|entry| matches!(entry.kind, Some(Kind::Directory | Kind::Current))) {
            return Ok(Some(false));
        }
        let place = self.shared.place(&folder.to);
        let failure = failures::no_folder(place, reply.to_string());
        self.shared.tell(&failure);
        Ok(None)
    }

    fn contents(
        &mut self,
        folder: &Folder,
        fresh: bool,
        todo: &mut VecDeque<Folder>,
    ) -> Result<(), Gone> {
        let read = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name());
        let names = fs::read_dir(&folder.from)
            .and_then(|entries| entries.map(read).collect::<io::Result<Vec<_>>>());
        let names = match names {
            Ok(names) => names,
            Err(error) => {
                let failure = failures::unreadable(folder.from.clone(), said(&error));
                self.shared.tell(&failure);
                return Ok(());
            }
        };
        let found = if fresh || self.shared.order.existing == Existing::Replace {
            Found::Nothing
        } else if names.len() < WORTH_A_LISTING {
            Found::Unknown
        } else {
            Found::of(self.desk, self.lister, &folder.to)?
        };
        for name in names {
            if self.shared.stop.asked() {
                return Ok(());
            }
            self.entry(folder, &name, &found, todo)?;
        }
        self.batch.give();
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        found: &Found,
        todo: &mut VecDeque<Folder>,
    ) -> Result<(), Gone> {
        let shared = self.shared;
        let from = folder.from.join(name);
        let Some(seen) = self.seen(&from) else {
            return Ok(());
        };
        let Ok(to) = names::below(&folder.to, name.as_bytes()) else {
            let advice = "give it another name first";
            let expected = "a name without line ends";
            shared.tell(&Failure::found(from, expected, "another", advice));
            return Ok(());
        };
        if !self.is_carried(&to) {
            return Ok(());
        }
        if seen.is_dir() {
            self.directory(folder, from, to, &seen, todo);
        } else if seen.is_symlink() {
            let token = folder.token;
            self.links.push(Stored { from, to, token });
        } else if seen.is_file() {
            return self.file(from, to, folder.token, &seen, found);
        } else {
            let reason = "it is neither file, directory nor link";
            shared.left_out(&from, reason);
        }
        Ok(())
    }

    /// What something here is; none if it went away, which is told.
    fn seen(&self, from: &Path) -> Option<fs::Metadata> {
        let seen = match self.shared.order.follow {
            true => fs::metadata(from),
            false => fs::symlink_metadata(from),
        };
        let failed = |error| {
            let advice = "it went away meanwhile; run the same command again";
            let failure = Failure::found(from.into(), "to see what it is", said(&error), advice);
            self.shared.tell(&failure);
        };
        seen.map_err(failed).ok()
    }

    fn directory(
        &mut self,
        folder: &Folder,
        from: PathBuf,
        to: There,
        seen: &fs::Metadata,
        todo: &mut VecDeque<Folder>,
    ) {
        if folder.above.contains(&(seen.dev(), seen.ino())) {
            return self.shared.tell(&failures::circle(from));
        }
        let folder = self.folder(from, to, folder.token, seen, folder.above.clone());
        todo.push_back(folder);
        // More than these are asked for when these are there.
        if todo.len() >= FOLDERS_AHEAD {
            self.batch.give();
        }
    }
}
