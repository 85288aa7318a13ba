//! Scanner of downloads: resolves sources, lists remote directories, creates local ones, and checks files. Sessions transfer files while
//! the scan continues.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use venturi_gridftp::{EntryKind, FtpCommand, FtpReply, ListEntry, Mode, Path as RemotePath};

use super::batch::{Batch, ROOTS_AHEAD};
use super::chunks::{self, ChunkedDownload, LARGE_BYTES};
use super::failures;
use super::files::{Fetch, FtpMetadata};
use super::listing::Lister;
use super::messages::{RequestResult, SessionRequest};
use super::names;
use super::resolve_paths::{EndpointLocation, FtpRoot};
use super::session_config::ServerCapabilities;
use super::session_handle::{SessionClosed, SessionHandle, parse_entry, receive_reply};
use super::shared::Shared;
use super::skip_check::{CopyAction, DestinationState, check};
use super::verify;
use super::work::FtpDirection;
use crate::error::{Failure, describe};
use crate::journal::Origin;
use crate::roots::{self, create_parents};
use tree::{CreatedDirectory, Tree};

mod tree;

/// Scanner of a download.
pub(crate) struct Download<'d> {
    shared: &'d Shared<'d>,
    handle: &'d SessionHandle,
    lister: Lister,
    cuts_names: bool,
    regions: bool,
    /// True if each file arrives in order over one connection.
    in_order: bool,
    batch: Batch<'d>,
    /// Existing and created local directories, parents first.
    created: Vec<CreatedDirectory>,
    trees: Vec<Tree>,
    /// Directories that contain top-level copies.
    around: BTreeSet<PathBuf>,
}

/// Source whose metadata is requested.
struct SourceRequest {
    root: FtpRoot,
    path: RemotePath,
    result: Receiver<(u64, RequestResult)>,
}

/// True if a local directory is the unfinished copy of this source.
pub(crate) fn is_unfinished(from: &EndpointLocation, to: &EndpointLocation) -> bool {
    roots::is_unfinished(&to.local_path(), names::token(from, to))
}

impl<'d> Download<'d> {
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
            // Data nodes that share a file share all of it.
            regions: capabilities.features.has("ERET") && !shared.options.network.stripe,
            in_order: capabilities.mode == Mode::Stream,
            batch: Batch::new(shared),
            created: Vec::new(),
            trees: Vec::new(),
            around: BTreeSet::new(),
        }
    }

    /// Scans all sources.
    pub(crate) fn scan(&mut self, roots: Vec<FtpRoot>) {
        let mut waiting = VecDeque::new();
        let mut roots = roots.into_iter();
        // Each iteration sends requests or handles a reply.
        while !self.shared.stop.is_cancelled() {
            while waiting.len() < ROOTS_AHEAD
                && let Some(root) = roots.next()
            {
                waiting.extend(self.request(root));
            }
            let Some(pending) = waiting.pop_front() else {
                break;
            };
            let reply = match receive_reply(&pending.result) {
                Some(reply) => Ok(reply),
                None => self
                    .handle
                    .call(&FtpCommand::Mlst(Some(pending.path.clone()))),
            };
            match reply {
                Ok(reply) => self.handle_reply(pending, &reply),
                Err(SessionClosed) => {
                    self.shared.session_lost();
                    break;
                }
            }
        }
        self.batch.give();
    }

    fn request(&self, root: FtpRoot) -> Option<SourceRequest> {
        let path = match root.from.remote_path() {
            Ok(path) => path,
            Err(error) => {
                let failure = failures::no_path(root.from.shown(), error.to_string());
                self.shared.report_failure(&failure);
                return None;
            }
        };
        self.is_supported_name(&path).then(|| {
            let request = SessionRequest::Command(FtpCommand::Mlst(Some(path.clone())));
            let result = self.handle.request(request);
            SourceRequest { root, path, result }
        })
    }

    fn is_supported_name(&self, path: &RemotePath) -> bool {
        self.shared.is_supported_name(path, self.cuts_names)
    }

    fn handle_reply(&mut self, pending: SourceRequest, reply: &FtpReply) {
        match parse_entry(reply) {
            Some(entry) => self.root(&pending.root, pending.path, &entry),
            None => {
                let failure = failures::nothing(pending.root.from.shown(), reply.to_string());
                self.shared.report_failure(&failure);
            }
        }
    }

    fn root(&mut self, root: &FtpRoot, from: RemotePath, entry: &ListEntry) {
        let shared = self.shared;
        let known = FtpMetadata::from(entry);
        let to = root.to.local_path();
        let token = names::token(&root.from, &root.to);
        let parent = to.parent().unwrap_or(Path::new("/"));
        if root.create_parents
            && !shared.options.dry_run
            && let Err(error) = create_parents(parent, shared.options.sync)
        {
            return shared
                .report_failure(&failures::no_directory(parent.to_owned(), describe(&error)));
        }
        if shared.options.sync {
            self.around.insert(parent.join("."));
        }
        match entry.kind {
            Some(EntryKind::Directory | EntryKind::Current) if !shared.options.recursive => {
                shared.report_failure(&failures::not_recursive(root.from.shown()));
            }
            Some(EntryKind::Directory | EntryKind::Current) => {
                let copy = (to, token, root.as_written);
                self.tree(from, copy, known, entry.unique.clone());
            }
            _ => {
                self.file(from, to, Origin::of(token), known, false);
            }
        }
    }

    fn file(
        &mut self,
        from: RemotePath,
        to: PathBuf,
        origin: Origin,
        known: FtpMetadata,
        fresh: bool,
    ) {
        let shared = self.shared;
        if !self.is_supported_name(&from) {
            return;
        }
        let existing = match read_destination(&to, fresh) {
            Ok(existing) => existing,
            Err(failure) => return shared.report_failure(&failure),
        };
        // If this session is lost, another one transfers the file.
        let same = || verify::is_same(self.handle, &from, &to).unwrap_or(false);
        if check(
            shared,
            || to.clone(),
            known,
            existing,
            origin.reliable,
            same,
        ) != CopyAction::Copy
        {
            return;
        }
        let Some(last) = to.file_name().map(OsStrExt::as_bytes) else {
            let advice = "add a file name";
            let failure = Failure::found(to, "a destination with a file name", "none", advice);
            return shared.report_failure(&failure);
        };
        let sibling = |created: std::ffi::CString| {
            to.with_file_name(OsString::from_vec(created.into_bytes()))
        };
        let (part, record) = (
            sibling(origin.token.part(last)),
            sibling(origin.token.progress(last)),
        );
        let fetch = Arc::new(Fetch {
            from,
            to,
            part,
            known,
            changes: 0,
        });
        match known.size {
            Some(size) if size >= LARGE_BYTES && self.resumes(known) => {
                self.large(fetch, size, record);
            }
            _ => self.batch.push(FtpDirection::Fetch(fetch)),
        }
    }

    /// True if a large file can be resumed: the server sends byte ranges, or all data from an offset of the same version.
    fn resumes(&self, known: FtpMetadata) -> bool {
        self.regions || (self.in_order && known.modify_s.is_some())
    }

    /// Adds a large file to the queue, in chunks or as one remaining part.
    fn large(&mut self, fetch: Arc<Fetch>, size: u64, record: PathBuf) {
        let shared = self.shared;
        let source = shared
            .display_url(&fetch.from)
            .to_string_lossy()
            .into_owned();
        let to = fetch.to.clone();
        let how = (shared.options.sync, !self.regions);
        match ChunkedDownload::open(fetch, size, &source, record, how) {
            Ok((large, missing)) => {
                let chunks = chunks::count(size);
                let existing = if large.in_order {
                    missing.first().copied().unwrap_or(0)
                } else {
                    chunks - missing.len() as u64
                };
                if existing > 0 {
                    shared.report.chunks_kept(&to, existing, chunks);
                }
                for job in FtpDirection::of(large, missing) {
                    self.batch.push(job);
                }
                self.batch.give();
            }
            Err(rustix::io::Errno::WOULDBLOCK) => shared.report_failure(&Failure::found(
                to,
                "a file that no other process writes",
                "another running copy of the same source",
                "wait until it ends",
            )),
            Err(errno) => {
                let expected = "a writable location";
                shared.report_failure(&Failure::kernel(to, expected, errno));
            }
        }
    }

    /// Sets times and modes of directories after their contents, syncs their names if requested, and deletes the journals if nothing failed.
    pub(crate) fn finish(self, whole: bool) {
        if whole {
            for failure in self.trees.into_iter().filter_map(|tree| tree.close().err()) {
                self.shared.report_failure(&failure);
            }
        }
        let options = self.shared.options;
        if options.dry_run || self.shared.stop.is_cancelled() {
            return;
        }
        // Children first, because changes in a directory change its time.
        for created in self.created.iter().rev() {
            if let Err(failure) = created.give(options) {
                self.shared.report_failure(&failure);
            }
        }
        for directory in self.around {
            let synced = fs::File::open(&directory).and_then(|directory| directory.sync_all());
            if let Err(error) = synced {
                let expected = "to sync the directory to stable storage";
                let advice = "check its disk, then run the same command again";
                let failure = Failure::found(directory, expected, describe(&error), advice);
                self.shared.report_failure(&failure);
            }
        }
    }
}

/// Returns the metadata of an existing destination file, if any.
fn read_destination(to: &Path, fresh: bool) -> Result<Option<DestinationState>, Failure> {
    if fresh {
        return Ok(None);
    }
    match fs::symlink_metadata(to) {
        Ok(existing) => Ok(Some(DestinationState::from(&existing))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let advice = "fix the cause, then run the same command again";
            let expected = "to read the metadata of the destination";
            Err(Failure::found(
                to.to_owned(),
                expected,
                describe(&error),
                advice,
            ))
        }
    }
}
