//! Scanner of uploads: walks local trees, creates remote directories before their contents, and lists each existing remote directory
//! once.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use venturi_gridftp::{FtpCommand, ListEntry, Mode, Path as RemotePath, SiteCommand};

use super::batch::{Batch, DIRECTORIES_AHEAD, ROOTS_AHEAD};
use super::chunks::{LARGE_BYTES, SHARED_BYTES};
use super::failures;
use super::files::{FtpMetadata, UploadTask};
use super::listing::{DirectoryContents, Lister};
use super::messages::SessionRequest;
use super::names;
use super::opener;
use super::parent_dirs::ParentDirs;
use super::parts::ChunkedUpload;
use super::resolve_paths::{EndpointLocation, FtpRoot};
use super::session_config::ServerCapabilities;
use super::session_handle::{SessionClosed, SessionHandle, parse_entry, receive_reply};
use super::shared::Shared;
use super::skip_check::{CopyAction, DestinationState, check};
use super::symlinks::{self, StoredLink};
use super::verify;
use super::work::FtpDirection;
use crate::attributes::LocalMetadata;
use crate::error::describe;
use crate::options::Existing;
use crate::temporary::Token;
use lock::UploadLock;
use tree::CreatedServerDirectory;

mod lock;
mod tree;

/// Scanner of an upload.
pub(crate) struct Upload<'d> {
    shared: &'d Shared<'d>,
    handle: &'d SessionHandle,
    lister: Lister,
    cuts_names: bool,
    /// True if the server accepts parts of files.
    takes_parts: bool,
    /// Minimum size of a file in chunks.
    large_bytes: u64,
    /// True if each file is sent in order over one connection.
    in_order: bool,
    batch: Batch<'d>,
    created: Vec<CreatedServerDirectory>,
    /// Kept files whose modes differ.
    modes: Vec<(RemotePath, u32)>,
    /// Symbolic links, created after their targets.
    links: Vec<StoredLink>,
    parent_dirs: ParentDirs,
    alone: UploadLock,
}

impl<'d> Upload<'d> {
    pub(crate) fn new(
        shared: &'d Shared<'d>,
        handle: &'d SessionHandle,
        capabilities: &ServerCapabilities,
    ) -> Self {
        Self {
            shared,
            handle,
            lister: Lister::of(&capabilities.features),
            cuts_names: Shared::cuts_names(&shared.server, &capabilities.features),
            // In MODE S, only its size would show whether a part is complete.
            takes_parts: capabilities.mode == Mode::Extended
                && ChunkedUpload::are_supported(&capabilities.features),
            large_bytes: SHARED_BYTES,
            in_order: capabilities.mode == Mode::Stream,
            batch: Batch::new(shared),
            created: Vec::new(),
            modes: Vec::new(),
            links: Vec::new(),
            parent_dirs: ParentDirs::default(),
            alone: UploadLock::default(),
        }
    }

    /// Scans all sources.
    pub(crate) fn scan(&mut self, roots: &[FtpRoot]) {
        if !self.shared.options.dry_run
            && let Err(root) = self.alone.claim(roots)
        {
            let root_text = root.to.shown();
            return self
                .shared
                .report_failure(&failures::concurrent_upload(root_text));
        }
        if let [root] = roots
            && !root.from.local_path().is_dir()
        {
            // One session does all of the work.
            self.large_bytes = LARGE_BYTES;
        }
        // With `--existing replace`, no metadata is needed; otherwise it is requested in advance.
        let replaces = self.shared.options.existing == Existing::Replace;
        let mut waiting = roots.iter();
        let mut pending = VecDeque::new();
        for root in roots {
            while !replaces
                && pending.len() < ROOTS_AHEAD
                && let Some(next) = waiting.next()
            {
                let request = next.to.remote_path().map(|to| FtpCommand::Mlst(Some(to)));
                pending.push_back(
                    request.map(|command| self.handle.request(SessionRequest::Command(command))),
                );
            }
            let found = match pending.pop_front() {
                None => DirectoryContents::Nothing,
                Some(result) => match result.ok().as_ref().and_then(receive_reply) {
                    Some(reply) => DirectoryContents::Single(parse_entry(&reply).map(Box::new)),
                    None => DirectoryContents::Unknown,
                },
            };
            if self.shared.stop.is_cancelled() {
                break;
            }
            if let Err(SessionClosed) = self.root(root, &found) {
                self.shared.session_lost();
                break;
            }
        }
        self.batch.give();
    }

    fn root(&mut self, root: &FtpRoot, found: &DirectoryContents) -> Result<(), SessionClosed> {
        let (shared, options) = (self.shared, self.shared.options);
        let from = root.from.local_path();
        let followed = options.follow || root.from.is_contents() || !options.recursive;
        let source_stat = match followed {
            true => fs::metadata(&from),
            false => fs::symlink_metadata(&from),
        };
        let source_stat = match source_stat {
            Ok(source_stat) => source_stat,
            Err(error) => {
                shared.report_failure(&failures::nothing(from, describe(&error)));
                return Ok(());
            }
        };
        if !(source_stat.is_file() || source_stat.is_dir() || source_stat.is_symlink()) {
            shared.report_failure(&failures::no_file(from, source_stat.file_type()));
            return Ok(());
        }
        let Some(to) = self.name(&root.to) else {
            return Ok(());
        };
        if root.create_parents && !options.dry_run {
            let root_text = |path: &RemotePath| shared.display_url(path);
            if !self
                .parent_dirs
                .make(shared, self.handle, &to, &root_text)?
            {
                return Ok(());
            }
        }
        let token = names::token(&root.from, &root.to);
        if source_stat.is_symlink() {
            // As in a tree.
            self.links.push(StoredLink { from, to, token });
            return Ok(());
        }
        if source_stat.is_file() {
            return self.file(from, to, token, &source_stat, found);
        }
        if !options.recursive {
            shared.report_failure(&failures::not_recursive(from));
            return Ok(());
        }
        let directory = self.directory(from, to, token, &source_stat, Vec::new());
        let journal = names::journal(&root.from, &root.to).remote_path().ok();
        self.tree(directory, journal)
    }

    /// Returns the remote path; none, after a report, if the server does not support it.
    fn name(&self, location: &EndpointLocation) -> Option<RemotePath> {
        match location.remote_path() {
            Ok(path) => self.is_supported_name(&path).then_some(path),
            Err(error) => {
                let failure = failures::no_path(location.shown(), error.to_string());
                self.shared.report_failure(&failure);
                None
            }
        }
    }

    fn is_supported_name(&self, path: &RemotePath) -> bool {
        self.shared.is_supported_name(path, self.cuts_names)
    }

    fn file(
        &mut self,
        from: PathBuf,
        to: RemotePath,
        token: Token,
        source_stat: &fs::Metadata,
        found: &DirectoryContents,
    ) -> Result<(), SessionClosed> {
        let (shared, known) = (self.shared, FtpMetadata::from(source_stat));
        let existing = found.named(self.handle, &to)?;
        let present = existing.as_ref().map(DestinationState::from);
        // If this session is lost, another one sends the file.
        let same = || verify::is_same(self.handle, &to, &from).unwrap_or(false);
        let action = check(
            shared,
            || shared.display_url(&to),
            known,
            present,
            true,
            same,
        );
        if action == CopyAction::Kept {
            self.fix_mode(existing.as_ref(), to, source_stat.mode() & 0o7777);
            return Ok(());
        }
        if action == CopyAction::Reported {
            return Ok(());
        }
        let large = self.takes_parts && source_stat.len() >= self.large_bytes;
        let resume_from = match self.in_order && source_stat.len() >= LARGE_BYTES {
            true => rustix::fs::stat(&from).ok().map(LocalMetadata::from),
            false => None,
        };
        let last = (
            source_stat.len(),
            source_stat.mtime(),
            source_stat.mtime_nsec(),
        );
        let resume_from = resume_from.filter(|f| (f.size, f.modified.0, f.modified.1) == last);
        let of_version = |how| {
            let version = format!("{} {}.{}{how}", last.0, last.1, last.2);
            names::part_of_version(&to, token, &version)
        };
        // Chunks leave holes, and data in order has none: the temporary names must differ.
        let part = match (large, resume_from) {
            (true, _) => of_version(""),
            (_, Some(_)) => of_version(" in order"),
            _ => names::part(&to, token),
        };
        let store = part.map(|part| UploadTask {
            from,
            to: to.clone(),
            part,
            known,
            resume_from,
        });
        match store.map(Arc::new) {
            Ok(store) if large => return self.large(store, found),
            Ok(store) => self.batch.push(FtpDirection::Store(store)),
            Err(error) => {
                let root_text = shared.display_url(&to);
                shared.report_failure(&failures::no_path(root_text, error.to_string()));
            }
        }
        Ok(())
    }

    /// Adds the missing chunks of a large file to the queue.
    fn large(
        &mut self,
        store: Arc<UploadTask>,
        found: &DirectoryContents,
    ) -> Result<(), SessionClosed> {
        let shared = self.shared;
        let mut entry = self.existing_part(&store.part, found)?;
        let (file, source_metadata) =
            match opener::file(&store, shared.options.follow || !shared.options.recursive) {
                Ok(found) => found,
                Err(failure) => {
                    shared.report_failure(&failure);
                    return Ok(());
                }
            };
        let bytes = |entry: &ListEntry| entry.size_bytes.unwrap_or(0);
        if entry.as_ref().map_or(0, bytes) > source_metadata.size {
            // A path that is too long fails for all chunks.
            self.handle.call(&FtpCommand::Dele(store.part.clone()))?;
            entry = None;
        }
        let existing = entry.as_ref().map_or(0, bytes);
        let source = (&file, source_metadata.size);
        let present = verify::present(self.handle, shared.stop, &store, source, existing);
        let chunks = ChunkedUpload::count(source_metadata.size);
        if !present.is_empty() {
            let root_text = shared.display_url(&store.to);
            shared
                .report
                .chunks_kept(&root_text, present.len() as u64, chunks);
        }
        let missing = chunks - present.len() as u64;
        let parts = Arc::new(ChunkedUpload::new(store, source_metadata, missing));
        if !present.is_empty() {
            parts.is_same(entry.as_ref());
        }
        for index in (0..chunks).filter(|index| !present.contains(index)) {
            self.batch
                .push(FtpDirection::Part(Arc::clone(&parts), index));
        }
        if missing == 0 {
            self.batch.push(FtpDirection::Name(parts));
        }
        self.batch.give();
        Ok(())
    }

    /// Returns the metadata of the temporary file at the server, if there is one.
    fn existing_part(
        &self,
        part: &RemotePath,
        found: &DirectoryContents,
    ) -> Result<Option<ListEntry>, SessionClosed> {
        let replaces = self.shared.options.existing == Existing::Replace;
        match found {
            DirectoryContents::Nothing if !replaces => Ok(None),
            DirectoryContents::Entries(_) => found.named(self.handle, part),
            // With `--existing replace`, it was not requested yet.
            DirectoryContents::Nothing
            | DirectoryContents::Single(_)
            | DirectoryContents::Unknown => self.handle.stat(part),
        }
    }

    /// Sets the mode of a kept file: an earlier copy can have been killed between rename and mode.
    fn fix_mode(&mut self, existing: Option<&ListEntry>, to: RemotePath, mode: u32) {
        let found = existing.and_then(|existing| existing.mode);
        let is_other = found.is_some_and(|found| found & 0o7777 != mode);
        if is_other && self.shared.options.preserve.mode && differs(mode, 0o644) {
            self.modes.push((to, mode));
        }
    }

    /// Sets modes and times of directories after their contents, and deletes the journals if nothing failed.
    pub(crate) fn finish(self, whole: bool) -> Result<(), SessionClosed> {
        let options = self.shared.options;
        if options.dry_run || self.shared.stop.is_cancelled() {
            return Ok(());
        }
        for link in &self.links {
            symlinks::store(self.shared, self.handle, link)?;
        }
        let modes = self.modes.into_iter().chain(self.shared.modes());
        let files = modes.map(|(path, mode)| chmod(path, mode));
        // Children first: changes in a directory change its time, and the copy is complete only with all modes.
        let directories = self.created.into_iter().rev();
        let directories = directories.flat_map(|created| created.commands(options.preserve, whole));
        let (shared, handle) = (self.shared, self.handle);
        let receive_reply_of = |(results, command): (_, FtpCommand)| {
            let reply = handle.wait_reply(&results, &command)?;
            // Failures to set times are ignored.
            if let FtpCommand::Site(SiteCommand::Chmod { path, .. }) = &command {
                shared.check_mode_reply(path, &reply);
            }
            Ok(())
        };
        // Commands are pipelined.
        let mut pending = VecDeque::new();
        for command in files.chain(directories) {
            pending.push_back((
                handle.request(SessionRequest::Command(command.clone())),
                command,
            ));
            if pending.len() >= DIRECTORIES_AHEAD {
                pending.pop_front().map_or(Ok(()), receive_reply_of)?;
            }
        }
        pending.into_iter().try_for_each(receive_reply_of)
    }
}

/// Returns the command that sets a mode.
pub(crate) fn chmod(path: RemotePath, mode: u32) -> FtpCommand {
    let mode = mode & 0o7777;
    FtpCommand::Site(SiteCommand::Chmod { mode, path })
}

/// True if the mode differs from the default of servers, so that a command is needed.
pub(crate) fn differs(mode: u32, usual: u32) -> bool {
    mode & 0o7777 != usual
}
