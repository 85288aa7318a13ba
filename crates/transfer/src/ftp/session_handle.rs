//! Handle for requests to a session: commands and listings in order, and prefetched requests.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use venturi_gridftp::{FtpCommand, FtpReply, ListEntry, Path};

use super::messages::{PendingRequest, RequestResult, SessionEvent, SessionFlags, SessionRequest};

/// Attempts to send a command if sessions are lost.
const MAX_ATTEMPTS: u32 = 3;

/// Handle for requests to a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    events: UnboundedSender<SessionEvent>,
    flags: Arc<SessionFlags>,
    prefetched: Arc<Mutex<Prefetched>>,
}

/// Prefetched requests with the receivers of their results.
type Prefetched = VecDeque<(SessionRequest, Receiver<(u64, RequestResult)>)>;

impl SessionHandle {
    pub(crate) fn new(events: UnboundedSender<SessionEvent>, flags: Arc<SessionFlags>) -> Self {
        Self {
            events,
            flags,
            prefetched: Arc::default(),
        }
    }

    /// Sends requests together with the login, in the order of their later use, so that they need no further round trip. Later requests take
    /// these results, up to the first request that was not prefetched.
    pub(crate) fn prefetch(&self, requests: impl IntoIterator<Item = SessionRequest>) {
        let sent = requests.into_iter().map(|request| {
            let (sender, results) = channel();
            self.request_tagged(request.clone(), 0, sender);
            (request, results)
        });
        self.prefetched().extend(sent);
    }

    fn prefetched(&self) -> std::sync::MutexGuard<'_, Prefetched> {
        let prefetched = self.prefetched.lock();
        prefetched.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the results of a prefetched request. Skipped requests are discarded, except
    /// directory creations: when repeated, the server would report that the directory exists. After
    /// a request that was not prefetched, all are discarded.
    fn take_prefetched(&self, expected: &SessionRequest) -> Option<Receiver<(u64, RequestResult)>> {
        let mut prefetched = self.prefetched();
        let Some(at) = prefetched.iter().position(|(sent, _)| sent == expected) else {
            prefetched.clear();
            return None;
        };
        let creates = |(sent, _): &(SessionRequest, _)| {
            matches!(sent, SessionRequest::Command(FtpCommand::Mkd(_)))
        };
        if prefetched.iter().take(at).any(creates) {
            return None;
        }
        prefetched
            .drain(..=at)
            .next_back()
            .map(|(_, results)| results)
    }

    /// Announces that no more requests follow: the session can end when all items are complete.
    pub(crate) fn close(&self) {
        self.flags.accepts_requests.store(false, Ordering::Relaxed);
        let _ = self.events.send(SessionEvent::FlagsChanged);
    }

    /// Ends the session after its current items.
    pub(crate) fn retire(&self) {
        self.flags.retired.store(true, Ordering::Relaxed);
        let _ = self.events.send(SessionEvent::FlagsChanged);
    }

    /// Sends a request; its results arrive after the results of all earlier requests.
    pub(crate) fn request(&self, request: SessionRequest) -> Receiver<(u64, RequestResult)> {
        if let Some(results) = self.take_prefetched(&request) {
            return results;
        }
        let (sender, results) = channel();
        self.request_tagged(request, 0, sender);
        results
    }

    /// Sends a request with a tag, and with the sender for its results.
    pub(crate) fn request_tagged(
        &self,
        request: SessionRequest,
        tag: u64,
        sender: Sender<(u64, RequestResult)>,
    ) {
        let request = PendingRequest {
            request,
            tag,
            sender,
        };
        if let Err(rejected) = self.events.send(SessionEvent::Request(request))
            && let SessionEvent::Request(request) = rejected.0
        {
            let _ = request.sender.send((tag, RequestResult::Lost));
        }
    }

    /// Sends a command and waits for the reply.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) fn call(&self, command: &FtpCommand) -> Result<FtpReply, SessionClosed> {
        for _ in 0..MAX_ATTEMPTS {
            let results = self.request(SessionRequest::Command(command.clone()));
            if let Some(reply) = receive_reply(&results) {
                return Ok(reply);
            }
        }
        Err(SessionClosed)
    }

    /// Waits for the reply to a sent command; repeats the command if its session was lost.
    ///
    /// # Errors
    /// The session is lost for good.
    pub(crate) fn wait_reply(
        &self,
        results: &Receiver<(u64, RequestResult)>,
        command: &FtpCommand,
    ) -> Result<FtpReply, SessionClosed> {
        receive_reply(results).map_or_else(|| self.call(command), Ok)
    }

    /// Returns the metadata of a remote path; none if it does not exist.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) fn stat(&self, path: &Path) -> Result<Option<ListEntry>, SessionClosed> {
        let reply = self.call(&FtpCommand::Mlst(Some(path.clone())))?;
        Ok(parse_entry(&reply))
    }
}

/// Waits for the final reply among the results; none if the session is lost.
pub(crate) fn receive_reply(results: &Receiver<(u64, RequestResult)>) -> Option<FtpReply> {
    results.iter().find_map(|(_, sender)| match sender {
        RequestResult::Reply(reply) => Some(Some(reply)),
        RequestResult::Lost => Some(None),
        _ => None,
    })?
}

/// Parses the reply to MLST: the line between the first and the last one.
pub(crate) fn parse_entry(reply: &FtpReply) -> Option<ListEntry> {
    let line = reply.lines.get(1).filter(|_| reply.is_success())?;
    ListEntry::parse(line.trim_ascii_start()).ok()
}

/// The session has ended, and its requests are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionClosed;
