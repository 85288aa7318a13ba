//! One attempt of a transfer: its commands and its state.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use super::job::{GetSource, TransferJob};
use crate::{ByteRanges, FtpReply};

/// Purpose of a command of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferCommand {
    /// PASV, in MODE S.
    Passive,
    /// CWD, to the directory of a LIST.
    ChangeDirectory,
    /// REST.
    Restart,
    /// SCKS.
    Check,
    /// RETR, STOR and similar commands.
    Transfer,
    /// MLST after a download.
    Stat,
    /// SIZE.
    Size,
    /// MLST of the final name.
    StatFinal,
    /// MFMT.
    Modify,
    /// RNFR.
    RenameFrom,
    /// RNTO.
    RenameTo,
}

impl TransferCommand {
    /// Returns `true` if the command can be retracted before it is sent.
    pub fn is_before_bytes(self) -> bool {
        matches!(
            self,
            Self::Passive
                | Self::ChangeDirectory
                | Self::Restart
                | Self::Check
                | Self::Transfer
                | Self::Stat
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptState {
    /// The result counts.
    Running,
    /// The reply is awaited, but does not count; the transfer will be repeated.
    Void,
    /// All bytes are stored; the rename is pending.
    Committing { time_kept: bool },
}

/// One attempt of a transfer.
#[derive(Debug)]
pub(super) struct TransferAttempt {
    pub job: TransferJob,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// `true` if this void attempt counts.
    pub counted: bool,
    pub state: AttemptState,
    /// `true` after the server reported the start.
    pub started: bool,
    /// Number in the sender.
    pub file: Option<u64>,
    /// Number in the receiver.
    pub slot: Option<u64>,
    /// Received ranges, once complete.
    pub received_ranges: Option<ByteRanges>,
    pub final_reply: Option<FtpReply>,
    /// MLST reply after a download.
    pub seen: Option<FtpReply>,
    /// Reason for a certain failure, independent of the reply.
    pub fault: Option<String>,
    /// Final failure and whether another session can succeed. It is reported after the reply, so
    /// that the reply is not matched to another transfer.
    pub final_failure: Option<(String, bool)>,
    /// Received bytes, in MODE S.
    pub position: u64,
    /// Ranges to be sent, in MODE S.
    pub ranges: VecDeque<Range<u64>>,
    /// `true` after the driver got the last byte, in MODE S.
    pub closed: bool,
    /// Address of its connection, in MODE S.
    pub address: Option<SocketAddr>,
    /// `true` while the result of the connection is pending, in MODE S.
    pub connecting: bool,
    /// `true` if its connection can belong to another transfer.
    pub mismatched: bool,
}

impl TransferAttempt {
    pub fn new(job: TransferJob, attempt: u32) -> Self {
        Self {
            job,
            attempt,
            counted: false,
            state: AttemptState::Running,
            started: false,
            file: None,
            slot: None,
            received_ranges: None,
            final_reply: None,
            seen: None,
            fault: None,
            final_failure: None,
            position: 0,
            ranges: VecDeque::new(),
            closed: false,
            address: None,
            connecting: false,
            mismatched: false,
        }
    }

    /// In MODE S the driver keeps received bytes: the next attempt resumes after them, unless they
    /// can belong to another file.
    pub fn keep_received(&mut self) {
        if let TransferJob::Get(get) = &mut self.job
            && !self.mismatched
            && get.source == GetSource::File
            && get.size_bytes.is_some()
        {
            let end = get.present.prefix_bytes() + std::mem::take(&mut self.position);
            get.present = ByteRanges::from_range(0..end);
        }
    }

    /// Creates an attempt that only needs the rename.
    pub fn awaiting_rename(job: TransferJob, attempt: u32) -> Self {
        Self {
            state: AttemptState::Committing { time_kept: false },
            final_reply: Some(FtpReply::new(226, "all there")),
            ..Self::new(job, attempt)
        }
    }
}
