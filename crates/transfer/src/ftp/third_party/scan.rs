//! Scanner of third-party copies: walks trees of the source server, and creates directories at the destination server.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use venturi_gridftp::client::CopyPair;
use venturi_gridftp::{EntryKind, FtpCommand, ListEntry, Path as RemotePath};

use super::{FileCopy, ServerEnd, ServerEnds};
use crate::error::Failure;
use crate::ftp::batch::ROOTS_AHEAD;
use crate::ftp::failures;
use crate::ftp::files::FtpMetadata;
use crate::ftp::listing::{self, DirectoryContents};
use crate::ftp::messages::{RequestResult, SessionRequest};
use crate::ftp::names;
use crate::ftp::parent_dirs::ParentDirs;
use crate::ftp::resolve_paths::{EndpointLocation, FtpRoot};
use crate::ftp::session_handle::{SessionClosed, SessionHandle, parse_entry, receive_reply};
use crate::ftp::shared::Shared;
use crate::ftp::skip_check::{CopyAction, DestinationState, check};
use crate::ftp::verify;
use crate::net::url::Url;
use crate::options::Existing;
use crate::roots;
use crate::temporary::Token;

/// Scanner of a third-party copy.
pub(super) struct Search<'d> {
    shared: &'d Shared<'d>,
    ends: &'d ServerEnds<'d>,
    pub(super) found: Vec<FileCopy>,
    /// Remote journal directories of unfinished copies.
    pub(super) journals: Vec<RemotePath>,
    parent_dirs: ParentDirs,
}

/// Metadata requests for a source and its copy.
#[derive(Default)]
struct RootRequests {
    source: Option<Receiver<(u64, RequestResult)>>,
    /// None: not needed.
    copy: Option<Receiver<(u64, RequestResult)>>,
}

/// Directory whose entries are copied.
struct DirectoryTask {
    from: RemotePath,
    to: RemotePath,
    /// Unique identifiers of this directory and its parents, to detect cycles of links.
    above: Vec<String>,
}

impl<'d> Search<'d> {
    pub(super) fn new(shared: &'d Shared<'d>, ends: &'d ServerEnds<'d>) -> Self {
        Self {
            shared,
            ends,
            found: Vec::new(),
            journals: Vec::new(),
            parent_dirs: ParentDirs::default(),
        }
    }

    /// Scans all sources, with metadata requests in flight.
    pub(super) fn scan(&mut self, roots: &[FtpRoot]) {
        let mut waiting = roots.iter();
        let mut pending = VecDeque::new();
        for root in roots {
            while pending.len() < ROOTS_AHEAD
                && let Some(next) = waiting.next()
            {
                pending.push_back(self.request(next));
            }
            if self.shared.stop.is_cancelled() {
                return;
            }
            let pending = pending.pop_front().unwrap_or_default();
            if let Err(SessionClosed) = self.root(root, pending) {
                return self.shared.session_lost();
            }
        }
    }

    fn request(&self, root: &FtpRoot) -> RootRequests {
        let stat = |handle: &SessionHandle, location: &EndpointLocation| {
            let path = location.remote_path().ok()?;
            Some(handle.request(SessionRequest::Command(FtpCommand::Mlst(Some(path)))))
        };
        // With `--existing replace`, no metadata is needed.
        let replaces = self.shared.options.existing == Existing::Replace;
        RootRequests {
            source: stat(self.ends.source.handle, &root.from),
            copy: (!replaces)
                .then(|| stat(self.ends.destination.handle, &root.to))
                .flatten(),
        }
    }

    fn root(&mut self, root: &FtpRoot, pending: RootRequests) -> Result<(), SessionClosed> {
        let (shared, options) = (self.shared, self.shared.options);
        let destination = self.ends.destination;
        let (from, to) = match (root.from.remote_path(), root.to.remote_path()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => {
                let failure = failures::no_path(root.from.shown(), error.to_string());
                shared.report_failure(&failure);
                return Ok(());
            }
        };
        if let Some(failure) = itself(root, options.recursive) {
            shared.report_failure(&failure);
            return Ok(());
        }
        let entry = match pending.source.as_ref().and_then(receive_reply) {
            Some(reply) => parse_entry(&reply),
            None => self.ends.source.handle.stat(&from)?,
        };
        let Some(entry) = entry else {
            shared.report_failure(&failures::nothing(root.from.shown(), "nothing"));
            return Ok(());
        };
        if root.create_parents && !options.dry_run {
            let display_url = |path: &RemotePath| destination.display_url(path);
            if !self
                .parent_dirs
                .make(shared, destination.handle, &to, &display_url)?
            {
                return Ok(());
            }
        }
        let token = names::token(&root.from, &root.to);
        if !matches!(entry.kind, Some(EntryKind::Directory | EntryKind::Current)) {
            let found = match pending.copy.as_ref().map(receive_reply) {
                Some(Some(reply)) => DirectoryContents::Single(parse_entry(&reply).map(Box::new)),
                Some(None) => DirectoryContents::Unknown,
                None => DirectoryContents::Nothing,
            };
            return self.file(&entry, from, to, token, &found);
        }
        if !options.recursive {
            shared.report_failure(&failures::not_recursive(root.from.shown()));
            return Ok(());
        }
        let journal = names::journal(&root.from, &root.to).remote_path().ok();
        let above = entry.unique.into_iter().collect();
        self.tree(DirectoryTask { from, to, above }, token, journal)
    }

    fn tree(
        &mut self,
        root: DirectoryTask,
        token: Token,
        mut journal: Option<RemotePath>,
    ) -> Result<(), SessionClosed> {
        let (shared, destination) = (self.shared, self.ends.destination);
        let mut todo = vec![root];
        while let Some(directory) = todo.pop() {
            if shared.stop.is_cancelled() {
                return Ok(());
            }
            let Some(fresh) = self.make(&directory.to)? else {
                continue;
            };
            if let Some(journal) = journal.take()
                && !shared.options.dry_run
            {
                // The same command finds this directory; it can exist already.
                destination.handle.call(&FtpCommand::Mkd(journal.clone()))?;
                self.journals.push(journal);
            }
            shared.totals.count(&shared.totals.directories);
            let copies = if fresh || shared.options.existing == Existing::Replace {
                DirectoryContents::Nothing
            } else {
                DirectoryContents::of(destination.handle, destination.lister(), &directory.to)?
            };
            self.contents(&directory, token, &copies, &mut todo)?;
        }
        Ok(())
    }

    /// Creates or finds a directory. Returns true if it is new, none after a reported failure.
    fn make(&self, to: &RemotePath) -> Result<Option<bool>, SessionClosed> {
        let destination = self.ends.destination;
        let fresh = destination.handle.stat(to)?.is_none();
        if fresh && !self.shared.options.dry_run {
            let reply = destination.handle.call(&FtpCommand::Mkd(to.clone()))?;
            if !reply.is_success() {
                let failure =
                    failures::no_directory(destination.display_url(to), reply.to_string());
                self.shared.report_failure(&failure);
                return Ok(None);
            }
        }
        Ok(Some(fresh))
    }

    fn contents(
        &mut self,
        directory: &DirectoryTask,
        token: Token,
        copies: &DirectoryContents,
        todo: &mut Vec<DirectoryTask>,
    ) -> Result<(), SessionClosed> {
        let (shared, source) = (self.shared, self.ends.source);
        for entry in self.entries(&directory.from)? {
            let paths = entry.safe_name().and_then(|name| {
                let from = names::below(&directory.from, name)?;
                Ok((from, names::below(&directory.to, name)?))
            });
            let is_link = entry.kind == Some(EntryKind::Link) || entry.target.is_some();
            match (paths, &entry.kind) {
                (Err(error), _) => {
                    let display_url = source.display_url(&directory.from);
                    shared.report_failure(&failures::no_name(display_url, error.to_string()));
                }
                (Ok((from, _)), _) if is_link && !shared.options.follow => {
                    let reason = "a symbolic link; --follow copies the target";
                    shared.left_out(&source.display_url(&from), reason);
                }
                (Ok(paths), Some(EntryKind::Directory)) => {
                    self.subdirectory(directory, entry, paths, todo)
                }
                (Ok((from, to)), Some(EntryKind::File) | None) => {
                    self.file(&entry, from, to, token, copies)?;
                }
                (Ok((from, _)), _) => {
                    let reason = "neither file nor directory";
                    shared.left_out(&source.display_url(&from), reason);
                }
            }
        }
        Ok(())
    }

    /// Returns the entries of a source directory; none after a reported failure.
    fn entries(&self, from: &RemotePath) -> Result<Vec<ListEntry>, SessionClosed> {
        let source = self.ends.source;
        let found = listing::list_all(source.handle, source.lister(), from)?;
        Ok(found.unwrap_or_else(|reply| {
            let failure = failures::unreadable(source.display_url(from), reply.to_string());
            self.shared.report_failure(&failure);
            Vec::new()
        }))
    }

    fn subdirectory(
        &self,
        parent: &DirectoryTask,
        entry: ListEntry,
        (from, to): (RemotePath, RemotePath),
        todo: &mut Vec<DirectoryTask>,
    ) {
        let mut above = parent.above.clone();
        if entry
            .unique
            .as_ref()
            .is_some_and(|unique| above.contains(unique))
        {
            let display_url = self.ends.source.display_url(&from);
            return self.shared.report_failure(&failures::circle(display_url));
        }
        above.extend(entry.unique);
        todo.push(DirectoryTask { from, to, above });
    }

    fn file(
        &mut self,
        entry: &ListEntry,
        from: RemotePath,
        to: RemotePath,
        token: Token,
        copies: &DirectoryContents,
    ) -> Result<(), SessionClosed> {
        let (shared, ends) = (self.shared, self.ends);
        let display_url = || ends.destination.display_url(&to);
        let pairs = [(ends.source, &from), (ends.destination, &to)];
        let cuts = |end: &ServerEnd<'_>| Shared::cuts_names(end.server, &end.capabilities.features);
        let cut = |(end, path): &(ServerEnd<'_>, &RemotePath)| cuts(end) && !path.is_ascii();
        if let Some((end, path)) = pairs.into_iter().find(cut) {
            shared.report_failure(&failures::unsupported_name(end.display_url(path)));
            return Ok(());
        }
        let existing = copies.named(ends.destination.handle, &to)?;
        let existing = existing.as_ref().map(DestinationState::from);
        let same = || {
            let (source, destination) = (ends.source.handle, ends.destination.handle);
            let same = verify::is_same_at((source, &from), (destination, &to));
            matches!(same, Ok(Some(true)))
        };
        if check(
            shared,
            display_url,
            FtpMetadata::from(entry),
            existing,
            true,
            same,
        ) != CopyAction::Copy
        {
            return Ok(());
        }
        let Ok(temporary) = names::part(&to, token) else {
            shared.report_failure(&failures::no_path(display_url(), "a path that is too long"));
            return Ok(());
        };
        self.found.push(FileCopy {
            modify_s: entry.modify_s,
            pair: CopyPair {
                transfer: self.found.len() as u64,
                from,
                to,
                temporary,
                size_bytes: entry.size_bytes,
            },
        });
        Ok(())
    }
}

/// Returns the failure for a copy within one server onto or into its source.
fn itself(root: &FtpRoot, recursive: bool) -> Option<Failure> {
    let (from, to) = (root.from.server.as_ref()?, root.to.server.as_ref()?);
    let display_url = |url: &Url| (url.host.to_ascii_lowercase(), url.port);
    if display_url(from) != display_url(to) {
        return None;
    }
    let within = roots::within(&root.from.bytes, &root.to.bytes)?;
    roots::itself(root.to.shown(), within, recursive)
}
