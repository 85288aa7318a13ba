//! Messages from other threads to a session, and results of requests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use venturi_gridftp::{FtpCommand, FtpReply, Path};

use super::files::Source;
use super::work::Item;
use crate::error::Failure;

/// Flags that control the life of a session.
#[derive(Debug)]
pub(crate) struct SessionFlags {
    /// Requests can arrive although all items are complete.
    pub(crate) accepts_requests: AtomicBool,
    /// The session takes no more items.
    pub(crate) retired: AtomicBool,
}

/// Message to a session.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Send a command.
    Request(PendingRequest),
    /// A file of an upload is open, or cannot be opened.
    Opened(Item, Result<Arc<Source>, Failure>),
    /// A connection has sent its data and has capacity.
    Capacity,
    /// A connection has failed; with a reason if it is not the network.
    Broken {
        connection: u64,
        why: Option<String>,
    },
    /// A source file has changed.
    Spoiled { number: u64, found: String },
    /// The flags have changed.
    FlagsChanged,
}

/// Request other than a transfer, with the sender for its results.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: SessionRequest,
    /// Tag of the results, so that one receiver can distinguish requests.
    pub(crate) tag: u64,
    pub(crate) sender: Sender<(u64, RequestResult)>,
}

/// Command or listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionRequest {
    Command(FtpCommand),
    /// Directory listing over a data connection (MLSD).
    Listing(Path),
}

/// Result of a request.
#[derive(Debug)]
pub(crate) enum RequestResult {
    /// Line of a listing; the reply follows.
    ListingLine(Vec<u8>),
    /// Preliminary reply; the final reply follows.
    Preliminary(FtpReply),
    Reply(FtpReply),
    /// The session is lost.
    Lost,
}
