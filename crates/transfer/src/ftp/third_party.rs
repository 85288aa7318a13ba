//! Third-party copies between two servers: data goes directly between them, and this host sends only commands.
//!
//! First, files are scanned and directories created. Then pairs of dedicated sessions each copy a part of the files.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use venturi_gridftp::client::CopyPair;
use venturi_gridftp::{FtpCommand, Path as RemotePath};

use super::listing::Lister;
use super::messages::SessionRequest;
use super::resolve_paths::{self, FtpRoot};
use super::session_config::{ServerCapabilities, SessionConfig};
use super::session_handle::{SessionHandle, receive_reply};
use super::shared::Shared;
use crate::net::url::Url;
use crate::threads;
use scan::Search;
use session_pair::SessionPair;

mod scan;
mod session_pair;

/// Commands in flight.
const MAX_IN_FLIGHT: usize = 256;

/// File to copy, with its modification time.
#[derive(Debug)]
struct FileCopy {
    pair: CopyPair,
    modify_s: Option<i64>,
}

/// Server with its session for requests.
#[derive(Clone, Copy)]
pub(crate) struct ServerEnd<'d> {
    pub(crate) handle: &'d SessionHandle,
    pub(crate) capabilities: &'d ServerCapabilities,
    pub(crate) server: &'d Url,
}

/// Both servers.
pub(crate) struct ServerEnds<'d> {
    pub(crate) source: ServerEnd<'d>,
    pub(crate) destination: ServerEnd<'d>,
}

impl<'d> ServerEnd<'d> {
    /// Returns access to the server for the resolution of paths.
    pub(crate) fn stat(self) -> resolve_paths::ServerStat<'d> {
        resolve_paths::ServerStat {
            handle: self.handle,
            lister: self.lister(),
        }
    }

    fn lister(self) -> Lister {
        Lister::of(&self.capabilities.features)
    }

    /// Returns the URL of a path, for messages.
    fn display_url(self, path: &RemotePath) -> PathBuf {
        let url = self.server.with_path(path.as_bytes().to_vec());
        url.to_string().into()
    }
}

/// Copies between two servers.
pub(crate) fn relay<'s, 'o: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    shared: &'o Shared<'o>,
    configs: &(SessionConfig, SessionConfig),
    ends: &ServerEnds<'_>,
    roots: &[FtpRoot],
) {
    let mut search = Search::new(shared, ends);
    search.scan(roots);
    // Temporary files of failed copies.
    let leftovers = Mutex::new(Vec::new());
    let split = split(shared, search.found);
    let (pairs, split) = (split.len(), Mutex::new(split));
    let next = || split.lock().map_or(None, |mut split| split.pop());
    let execute = || {
        let pair = SessionPair {
            scope,
            shared,
            configs,
            ends,
        };
        while let Some(files) = next() {
            pair.execute(files, &leftovers);
        }
    };
    std::thread::scope(|inner| {
        // Up to the thread limit, including this thread.
        for started in 1..pairs {
            if let Err(error) = threads::start(inner, execute) {
                shared
                    .report
                    .decision(&threads::fewer("pairs of sessions", started, &error));
                break;
            }
        }
        execute();
    });
    let leftovers = leftovers.into_inner().unwrap_or_default();
    let whole = shared.totals.failed.load(Ordering::Relaxed) == 0 && !shared.stop.is_cancelled();
    let journals = search.journals.into_iter().filter(|_| whole);
    let commands = leftovers.into_iter().map(FtpCommand::Dele);
    let commands = commands.chain(journals.map(FtpCommand::Rmd));
    // The reply to the last command follows all earlier replies.
    tidy(ends.destination.handle, commands.chain([FtpCommand::Noop]));
}

/// Divides the files among pairs of sessions.
fn split(shared: &Shared<'_>, found: Vec<FileCopy>) -> Vec<Vec<FileCopy>> {
    let sessions = shared.options.concurrency.unwrap_or(1) as usize;
    let mut split: Vec<Vec<FileCopy>> = Vec::new();
    split.resize_with(sessions.min(found.len()), Vec::new);
    let count = split.len();
    for (index, file) in found.into_iter().enumerate() {
        split[index % count].push(file);
    }
    split
}

/// Sends commands without waiting for each reply; failures are ignored.
fn tidy(handle: &SessionHandle, commands: impl Iterator<Item = FtpCommand>) {
    let mut pending = VecDeque::new();
    for command in commands {
        pending.push_back(handle.request(SessionRequest::Command(command)));
        if pending.len() > MAX_IN_FLIGHT {
            pending.pop_front().map(|results| receive_reply(&results));
        }
    }
    pending
        .iter()
        .for_each(|results| drop(receive_reply(results)));
}
