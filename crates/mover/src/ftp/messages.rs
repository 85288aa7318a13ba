//! What other threads tell a session, and what it answers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use venturi_gridftp::{Command, Path, Reply};

use super::files::Source;
use super::work::Item;
use crate::error::Failure;

/// How long a session stays.
#[derive(Debug)]
pub(crate) struct Post {
    /// Questions may come when all items are settled.
    pub(crate) asked: AtomicBool,
    /// It takes no more items.
    pub(crate) retired: AtomicBool,
}

/// What other threads tell a session.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command is to be sent.
    Ask(Ask),
    /// A file to be sent is open, or cannot be.
    Opened(Item, Result<Arc<Source>, Failure>),
    /// A connection has sent what it was given.
    Room,
    /// A connection cannot send; why, where it is not the network.
    Broken {
        connection: u64,
        why: Option<String>,
    },
    /// A file is not what it was.
    Spoiled { number: u64, found: String },
    /// Nothing more will be asked.
    Leave,
}

/// What is asked of a server besides transfers, and where it is answered.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) question: Question,
    /// What the answers carry, so that whoever asks much can tell them apart.
    pub(crate) tag: u64,
    pub(crate) answer: Sender<(u64, Answer)>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Command(Command),
    /// What is in a directory, over a data connection (MLSD).
    Listing(Path),
}

/// What a server answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A line of a listing; the reply follows.
    Line(Vec<u8>),
    /// The server is at it; the reply follows.
    Notice(Reply),
    Reply(Reply),
    /// The session is lost.
    Lost,
}
