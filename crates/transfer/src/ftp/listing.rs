//! Listings of remote directories.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};

use venturi_gridftp::{
    EntryKind, Features, FtpCommand, FtpReply, ListEntry, Path, parse_list, parse_timestamp,
};

use super::messages::{RequestResult, SessionRequest};
use super::names::below;
use super::session_handle::{SessionClosed, SessionHandle, receive_reply};

/// Attempts to list a directory if sessions are lost.
pub(crate) const MAX_ATTEMPTS: u32 = 4;

/// Requests for file times in flight, for listings without times.
const TIMES_IN_FLIGHT: usize = 128;

/// Kind of listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lister {
    /// MLSC: over the control connection, so that many listings can be in flight.
    Control,
    /// MLSD: over a data connection.
    Data,
    /// LIST, if the server has no other: over a data connection, for people; times are requested separately.
    People,
}

impl Lister {
    pub(crate) fn of(features: &Features) -> Self {
        if features.has("MLSC") {
            Self::Control
        } else if features.lists() {
            Self::Data
        } else {
            Self::People
        }
    }

    fn request(self, path: &Path) -> SessionRequest {
        match self {
            Self::Control => SessionRequest::Command(FtpCommand::Mlsc(Some(path.clone()))),
            Self::Data | Self::People => SessionRequest::Listing(path.clone()),
        }
    }
}

type Results = Receiver<(u64, RequestResult)>;

/// Listing in progress.
#[derive(Debug)]
pub(crate) struct PendingListing {
    results: Results,
    lister: Lister,
    handle: SessionHandle,
    path: Path,
    /// Entries of a complete LIST, with its final reply.
    listed: Option<(VecDeque<ListEntry>, FtpReply)>,
    /// First entries, with the requests for their times.
    timing: VecDeque<(ListEntry, Option<Results>)>,
}

/// Event of a listing.
#[derive(Debug)]
pub(crate) enum ListingEvent {
    Entry(ListEntry),
    /// No entry available yet.
    Nothing,
    /// End of the listing.
    ServerEnd(FtpReply),
}

impl PendingListing {
    pub(crate) fn new(handle: &SessionHandle, lister: Lister, path: &Path) -> Self {
        Self {
            results: handle.request(lister.request(path)),
            lister,
            handle: handle.clone(),
            path: path.clone(),
            listed: None,
            timing: VecDeque::new(),
        }
    }

    /// True if a positive reply is not a listing: the reply for an empty directory has at least a first and a last line;
    /// a reply of one line belongs to another command.
    fn lacks_lines(&self, reply: &FtpReply) -> bool {
        self.lister == Lister::Control && reply.is_success() && reply.lines.len() < 2
    }

    /// Returns the next entry; waits for it unless `now`.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) fn next(&mut self, now: bool) -> Result<ListingEvent, SessionClosed> {
        match self.lister {
            Lister::Control | Lister::Data => self.receive(now),
            Lister::People => self.next_with_time(),
        }
    }

    /// Returns the next entry of a LIST, with a separate request for the time of each file.
    fn next_with_time(&mut self) -> Result<ListingEvent, SessionClosed> {
        let all = match self.listed.take() {
            Some(all) => all,
            None => self.all()?,
        };
        let (listed, reply) = self.listed.insert(all);
        while self.timing.len() < TIMES_IN_FLIGHT
            && let Some(entry) = listed.pop_front()
        {
            let is_file = entry.kind == Some(EntryKind::File);
            let path = entry.safe_name().and_then(|name| below(&self.path, name));
            let path = path.ok().filter(|_| is_file);
            let pending = path.map(|path| {
                self.handle
                    .request(SessionRequest::Command(FtpCommand::Mdtm(path)))
            });
            self.timing.push_back((entry, pending));
        }
        let Some((mut entry, pending)) = self.timing.pop_front() else {
            return Ok(ListingEvent::ServerEnd(reply.clone()));
        };
        if let Some(pending) = pending {
            let reply = receive_reply(&pending).ok_or(SessionClosed)?;
            let time = reply.lines.last().filter(|_| reply.code == 213);
            entry.modify_s = time.and_then(|text| parse_timestamp(text.trim_ascii()).ok());
        }
        Ok(ListingEvent::Entry(entry))
    }

    fn all(&mut self) -> Result<(VecDeque<ListEntry>, FtpReply), SessionClosed> {
        let mut listed = VecDeque::new();
        loop {
            match self.receive(false)? {
                ListingEvent::Entry(entry) => listed.push_back(entry),
                ListingEvent::Nothing => {}
                ListingEvent::ServerEnd(reply) => return Ok((listed, reply)),
            }
        }
    }

    fn receive(&mut self, now: bool) -> Result<ListingEvent, SessionClosed> {
        // Each iteration takes a result.
        loop {
            let result = if now {
                match self.results.try_recv() {
                    Err(TryRecvError::Empty) => return Ok(ListingEvent::Nothing),
                    other => other.map_err(|_| SessionClosed)?.1,
                }
            } else {
                self.results.recv().map_err(|_| SessionClosed)?.1
            };
            match result {
                RequestResult::Reply(reply) if self.lacks_lines(&reply) => {
                    return Ok(ListingEvent::ServerEnd(FtpReply::new(550, "empty listing")));
                }
                RequestResult::Reply(reply) => return Ok(ListingEvent::ServerEnd(reply)),
                RequestResult::Lost => return Err(SessionClosed),
                RequestResult::Preliminary(_) => {}
                RequestResult::ListingLine(line) => {
                    let entry = match self.lister {
                        Lister::Control => {
                            ListEntry::parse(line.strip_prefix(b" ").unwrap_or(&line)).ok()
                        }
                        Lister::Data => ListEntry::parse(&line).ok(),
                        Lister::People => parse_list(&line),
                    };
                    // A line without an entry, such as the title of the reply, describes no file.
                    if let Some(entry) = entry
                        && entry.is_inside()
                    {
                        return Ok(ListingEvent::Entry(entry));
                    }
                }
            }
        }
    }
}

/// Returns all entries of a directory, or the reply with the reason why not.
///
/// # Errors
/// The session is lost repeatedly.
pub(crate) fn list_all(
    handle: &SessionHandle,
    lister: Lister,
    path: &Path,
) -> Result<Result<Vec<ListEntry>, FtpReply>, SessionClosed> {
    let mut found = Err(SessionClosed);
    for _ in 0..MAX_ATTEMPTS {
        found = list_once(handle, lister, path);
        if found.is_ok() {
            break;
        }
    }
    found
}

fn list_once(
    handle: &SessionHandle,
    lister: Lister,
    path: &Path,
) -> Result<Result<Vec<ListEntry>, FtpReply>, SessionClosed> {
    let mut pending = PendingListing::new(handle, lister, path);
    let mut entries = Vec::new();
    // Each iteration takes an entry.
    loop {
        match pending.next(false)? {
            ListingEvent::Entry(entry) => entries.push(entry),
            ListingEvent::Nothing => {}
            ListingEvent::ServerEnd(reply) if reply.is_success() => return Ok(Ok(entries)),
            ListingEvent::ServerEnd(reply) => return Ok(Err(reply)),
        }
    }
}

/// Known contents of a remote directory.
pub(crate) enum DirectoryContents {
    /// Empty: this copy has created it.
    Nothing,
    /// Exactly these entries.
    Entries(HashMap<Vec<u8>, ListEntry>),
    /// Only one requested entry, or nothing.
    Single(Option<Box<ListEntry>>),
    /// Unknown: each name must be requested.
    Unknown,
}

impl DirectoryContents {
    /// Lists a directory. If this fails, the contents are unknown, which differs from empty.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) fn of(
        handle: &SessionHandle,
        lister: Lister,
        path: &Path,
    ) -> Result<Self, SessionClosed> {
        let named = |entry: ListEntry| (entry.name.clone(), entry);
        Ok(match list_all(handle, lister, path)? {
            Ok(entries) => Self::Entries(entries.into_iter().map(named).collect()),
            Err(_) => Self::Unknown,
        })
    }

    /// Returns the entry with a name.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) fn named(
        &self,
        handle: &SessionHandle,
        path: &Path,
    ) -> Result<Option<ListEntry>, SessionClosed> {
        match self {
            Self::Nothing => Ok(None),
            Self::Entries(entries) => Ok(entries.get(path.split().1).cloned()),
            Self::Single(entry) => Ok(entry.as_deref().cloned()),
            Self::Unknown => handle.stat(path),
        }
    }
}
