//! Local tree and its remote copy: directories are created in advance, and their contents follow.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use venturi_gridftp::{EntryKind, FtpCommand, Path as RemotePath};

use super::{Upload, chmod, differs};
use crate::error::{Failure, describe};
use crate::ftp::batch::DIRECTORIES_AHEAD;
use crate::ftp::failures;
use crate::ftp::listing::DirectoryContents;
use crate::ftp::messages::{RequestResult, SessionRequest};
use crate::ftp::names;
use crate::ftp::session_handle::SessionClosed;
use crate::ftp::symlinks::StoredLink;
use crate::options::{Existing, Preserve};
use crate::temporary::Token;

/// Below this number of files, an existing directory is not listed, because it can have a million others.
const MIN_NAMES_FOR_LISTING: usize = 4;

/// Remote directory with the metadata of its source.
pub(super) struct CreatedServerDirectory {
    path: RemotePath,
    mode: u32,
    modify_s: i64,
    /// True if this copy must set its mode.
    ours: bool,
    /// Remote journal directory; root of a tree only.
    journal: Option<RemotePath>,
}

impl CreatedServerDirectory {
    /// Returns the commands that set mode and time after the contents.
    pub(super) fn commands(
        self,
        preserve: Preserve,
        whole: bool,
    ) -> impl Iterator<Item = FtpCommand> {
        let mode = preserve.mode && self.ours && differs(self.mode, 0o755);
        let (path, time_s) = (self.path.clone(), self.modify_s);
        let commands = [
            self.journal.filter(|_| whole).map(FtpCommand::Rmd),
            mode.then(|| chmod(self.path, self.mode)),
            preserve.times.then_some(FtpCommand::Mfmt { time_s, path }),
        ];
        commands.into_iter().flatten()
    }
}

/// Directory that is being created.
pub(super) struct DirectoryTask {
    from: PathBuf,
    to: RemotePath,
    token: Token,
    mode: u32,
    modify_s: i64,
    /// Parent directories, to detect cycles of links.
    above: Vec<(u64, u64)>,
    pending: Option<Receiver<(u64, RequestResult)>>,
}

impl Upload<'_> {
    pub(super) fn directory(
        &self,
        from: PathBuf,
        to: RemotePath,
        token: Token,
        stat_source: &fs::Metadata,
        mut above: Vec<(u64, u64)>,
    ) -> DirectoryTask {
        let request = |to: &RemotePath| {
            self.handle
                .request(SessionRequest::Command(FtpCommand::Mkd(to.clone())))
        };
        let pending = (!self.shared.options.dry_run).then(|| request(&to));
        above.push((stat_source.dev(), stat_source.ino()));
        DirectoryTask {
            from,
            to,
            token,
            mode: stat_source.mode(),
            modify_s: stat_source.mtime(),
            above,
            pending,
        }
    }

    /// Walks a tree with several directories in flight.
    pub(super) fn tree(
        &mut self,
        root: DirectoryTask,
        mut journal: Option<RemotePath>,
    ) -> Result<(), SessionClosed> {
        let mut todo = VecDeque::from([root]);
        let mut goes_on = false;
        while let Some(directory) = todo.pop_front() {
            if self.shared.stop.is_cancelled() {
                return Ok(());
            }
            let Some(fresh) = self.await_directory(&directory)? else {
                continue;
            };
            let journal = journal.take().filter(|_| !self.shared.options.dry_run);
            if let Some(journal) = &journal {
                // The same command finds this directory; it can exist already.
                goes_on = !self
                    .handle
                    .call(&FtpCommand::Mkd(journal.clone()))?
                    .is_success();
            }
            self.shared.totals.count(&self.shared.totals.directories);
            self.created.push(CreatedServerDirectory {
                path: directory.to.clone(),
                mode: directory.mode,
                modify_s: directory.modify_s,
                // Directories of an unfinished copy are set too, because the earlier copy did not set their modes.
                ours: fresh || goes_on,
                journal,
            });
            self.contents(&directory, fresh, &mut todo)?;
        }
        Ok(())
    }

    /// Waits for the creation of a directory. Returns true if it is new, none after a reported failure.
    fn await_directory(
        &mut self,
        directory: &DirectoryTask,
    ) -> Result<Option<bool>, SessionClosed> {
        let Some(pending) = &directory.pending else {
            return Ok(Some(self.handle.stat(&directory.to)?.is_none()));
        };
        let reply = self
            .handle
            .wait_reply(pending, &FtpCommand::Mkd(directory.to.clone()))?;
        if reply.is_success() {
            return Ok(Some(true));
        }
        let existing = self.handle.stat(&directory.to)?;
        if existing.is_some_and(|entry| {
            matches!(entry.kind, Some(EntryKind::Directory | EntryKind::Current))
        }) {
            return Ok(Some(false));
        }
        let location = self.shared.display_url(&directory.to);
        let failure = failures::no_directory(location, reply.to_string());
        self.shared.report_failure(&failure);
        Ok(None)
    }

    fn contents(
        &mut self,
        directory: &DirectoryTask,
        fresh: bool,
        todo: &mut VecDeque<DirectoryTask>,
    ) -> Result<(), SessionClosed> {
        let read = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name());
        let names = fs::read_dir(&directory.from)
            .and_then(|entries| entries.map(read).collect::<io::Result<Vec<_>>>());
        let names = match names {
            Ok(names) => names,
            Err(error) => {
                let failure = failures::unreadable(directory.from.clone(), describe(&error));
                self.shared.report_failure(&failure);
                return Ok(());
            }
        };
        let found = if fresh || self.shared.options.existing == Existing::Replace {
            DirectoryContents::Nothing
        } else if names.len() < MIN_NAMES_FOR_LISTING {
            DirectoryContents::Unknown
        } else {
            DirectoryContents::of(self.handle, self.lister, &directory.to)?
        };
        for name in names {
            if self.shared.stop.is_cancelled() {
                return Ok(());
            }
            self.entry(directory, &name, &found, todo)?;
        }
        self.batch.give();
        Ok(())
    }

    fn entry(
        &mut self,
        directory: &DirectoryTask,
        name: &OsStr,
        found: &DirectoryContents,
        todo: &mut VecDeque<DirectoryTask>,
    ) -> Result<(), SessionClosed> {
        let shared = self.shared;
        let from = directory.from.join(name);
        let Some(stat_source) = self.stat_source(&from) else {
            return Ok(());
        };
        let Ok(to) = names::below(&directory.to, name.as_bytes()) else {
            let advice = "rename it first";
            let expected = "a name without line ends";
            shared.report_failure(&Failure::found(from, expected, "another name", advice));
            return Ok(());
        };
        if !self.is_supported_name(&to) {
            return Ok(());
        }
        if stat_source.is_dir() {
            self.subdirectory(directory, from, to, &stat_source, todo);
        } else if stat_source.is_symlink() {
            let token = directory.token;
            self.links.push(StoredLink { from, to, token });
        } else if stat_source.is_file() {
            return self.file(from, to, directory.token, &stat_source, found);
        } else {
            let reason = "neither file, directory nor symbolic link";
            shared.left_out(&from, reason);
        }
        Ok(())
    }

    /// Returns the metadata of a local file; none after a reported failure.
    fn stat_source(&self, from: &Path) -> Option<fs::Metadata> {
        let stat_source = match self.shared.options.follow {
            true => fs::metadata(from),
            false => fs::symlink_metadata(from),
        };
        let failed = |error| {
            let advice = "the path was removed during the copy; run the same command again";
            let failure = Failure::found(
                from.into(),
                "to read its metadata",
                describe(&error),
                advice,
            );
            self.shared.report_failure(&failure);
        };
        stat_source.map_err(failed).ok()
    }

    fn subdirectory(
        &mut self,
        parent: &DirectoryTask,
        from: PathBuf,
        to: RemotePath,
        stat_source: &fs::Metadata,
        todo: &mut VecDeque<DirectoryTask>,
    ) {
        if parent
            .above
            .contains(&(stat_source.dev(), stat_source.ino()))
        {
            return self.shared.report_failure(&failures::circle(from));
        }
        let directory = self.directory(from, to, parent.token, stat_source, parent.above.clone());
        todo.push_back(directory);
        // Further directories are created after these.
        if todo.len() >= DIRECTORIES_AHEAD {
            self.batch.give();
        }
    }
}
