//! One try of a transfer: what its commands do, and how far it is.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use super::job::{Job, Source};
use crate::{ByteRanges, Reply};

/// What a command of a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// PASV, in MODE S.
    Passive,
    /// CWD, to the directory that LIST is to tell of.
    Enter,
    /// REST.
    Restart,
    /// SCKS.
    Check,
    /// RETR, STOR and their like.
    Transfer,
    /// MLST behind a download.
    Look,
    /// SIZE.
    Size,
    /// MLST of the name that it shall have.
    See,
    /// MFMT.
    Modify,
    /// RNFR.
    RenameFrom,
    /// RNTO.
    RenameTo,
}

impl Part {
    /// Whether it can be taken back while it is not written.
    pub fn is_before_bytes(self) -> bool {
        matches!(
            self,
            Self::Passive | Self::Enter | Self::Restart | Self::Check | Self::Transfer | Self::Look
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its outcome counts.
    Running,
    /// Its answer is awaited, but does not count: it is to be done again.
    Void,
    /// All bytes are there; its name is not.
    Committing { time_kept: bool },
}

/// One try of a transfer.
#[derive(Debug)]
pub(super) struct Active {
    pub job: Job,
    /// How often it was tried, this time included.
    pub tries: u32,
    /// Whether this try counts though it is void.
    pub charged: bool,
    pub state: State,
    /// Whether the server said that it has begun.
    pub begun: bool,
    /// Number in the sender.
    pub file: Option<u64>,
    /// Number in the receiver.
    pub slot: Option<u64>,
    /// What came, once all of it has.
    pub whole: Option<ByteRanges>,
    pub answer: Option<Reply>,
    /// What the server said of the file behind it.
    pub seen: Option<Reply>,
    /// Why it cannot succeed any more, whatever the server answers.
    pub spoiled: Option<String>,
    /// Why it has failed for good, and whether another session may succeed: that is told when its answer is there, which may not be
    /// taken for another's.
    pub over: Option<(String, bool)>,
    /// Bytes that came, in MODE S.
    pub position: u64,
    /// Ranges to be sent, in MODE S.
    pub pieces: VecDeque<Range<u64>>,
    /// Whether the last byte was given to the driver, in MODE S.
    pub closed: bool,
    /// Where its connection goes, in MODE S.
    pub address: Option<SocketAddr>,
    /// Whether the driver is still to say what became of its connection, in MODE S.
    pub connecting: bool,
    /// Whether it may have the connection of another.
    pub strayed: bool,
}

impl Active {
    pub fn new(job: Job, tries: u32) -> Self {
        Self {
            job,
            tries,
            charged: false,
            state: State::Running,
            begun: false,
            file: None,
            slot: None,
            whole: None,
            answer: None,
            seen: None,
            spoiled: None,
            over: None,
            position: 0,
            pieces: VecDeque::new(),
            closed: false,
            address: None,
            connecting: false,
            strayed: false,
        }
    }

    /// What came of a file in MODE S is with the driver: its next try goes on behind it, unless it may have been another's.
    pub fn go_on(&mut self) {
        if let Job::Get(get) = &mut self.job
            && !self.strayed
            && get.source == Source::File
            && get.size_bytes.is_some()
        {
            let end = get.present.prefix_bytes() + std::mem::take(&mut self.position);
            get.present = ByteRanges::of(0..end);
        }
    }

    /// One that only lacks its name.
    pub fn there(job: Job, tries: u32) -> Self {
        Self {
            state: State::Committing { time_kept: false },
            answer: Some(Reply::new(226, "all there")),
            ..Self::new(job, tries)
        }
    }
}
