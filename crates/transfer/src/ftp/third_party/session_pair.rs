//! Pair of sessions, one with each server, and the files that they copy.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use venturi_gridftp::client::{CopyPair, SessionSide, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{FtpCommand, Mode, Path as RemotePath};

use super::{FileCopy, ServerEnds};
use crate::error::Failure;
use crate::ftp::messages::{RequestResult, SessionRequest};
use crate::ftp::session_config::{ServerCapabilities, SessionConfig};
use crate::ftp::session_handle::SessionHandle;
use crate::ftp::session_pool;
use crate::ftp::shared::Shared;
use crate::ftp::verify;

/// Interval of checks for cancellation.
const GLANCE: Duration = Duration::from_millis(100);
/// Attempts per file.
const ATTEMPTS: u32 = 3;
/// Maximum number of reopened pairs.
const MAX_REOPENED: u64 = 100;
/// Bit of the destination in tags of results.
const DESTINATION: u64 = 1 << 63;
/// Position of the generation in tags of results.
const GENERATION_BITS: u32 = 40;

/// Copies files by a pair of sessions.
pub(super) struct SessionPair<'s, 'o, 'd, 'e> {
    pub(super) scope: &'s std::thread::Scope<'s, 'e>,
    pub(super) shared: &'o Shared<'o>,
    pub(super) configs: &'d (SessionConfig, SessionConfig),
    pub(super) ends: &'d ServerEnds<'d>,
}

/// Files of one pair by number, and temporary files of failed ones.
struct PairFiles<'a> {
    files: HashMap<u64, FileCopy>,
    leftovers: &'a Mutex<Vec<RemotePath>>,
}

/// Dedicated sessions with both servers.
struct Sessions {
    source: SessionHandle,
    destination: SessionHandle,
    /// Capabilities of the destination.
    capabilities: ServerCapabilities,
    /// Number of earlier pairs: their results are ignored.
    generation: u64,
}

impl Sessions {
    fn send(
        &self,
        side: SessionSide,
        request: u64,
        command: FtpCommand,
        sender: &Sender<(u64, RequestResult)>,
    ) {
        let (handle, bit) = match side {
            SessionSide::Source => (&self.source, 0),
            SessionSide::Destination => (&self.destination, DESTINATION),
        };
        let tag = bit | (self.generation << GENERATION_BITS) | request;
        handle.request_tagged(SessionRequest::Command(command), tag, sender.clone());
    }

    fn handle_result(&self, tag: u64, handle_result: &RequestResult, copies: &mut ThirdParty) {
        if (tag & !DESTINATION) >> GENERATION_BITS != self.generation {
            return;
        }
        let request = tag & ((1 << GENERATION_BITS) - 1);
        match handle_result {
            RequestResult::Preliminary(reply) | RequestResult::Reply(reply) => {
                copies.handle_reply(request, reply)
            }
            RequestResult::Lost => copies.lost("the session was lost"),
            RequestResult::ListingLine(_) => {}
        }
    }

    fn retire(&self) {
        self.source.retire();
        self.destination.retire();
    }
}

impl<'s, 'o: 's> SessionPair<'s, 'o, '_, '_> {
    /// Copies files and reports failures.
    pub(super) fn execute(&self, files_of_pair: Vec<FileCopy>, leftovers: &Mutex<Vec<RemotePath>>) {
        let pairs: Vec<CopyPair> = files_of_pair
            .iter()
            .map(|files| files.pair.clone())
            .collect();
        let numbered = files_of_pair
            .into_iter()
            .map(|one| (one.pair.transfer, one));
        let mut files_of_pair = PairFiles {
            files: numbered.collect(),
            leftovers,
        };
        let Err(reason) = self.copy(pairs, &mut files_of_pair) else {
            return;
        };
        if let Some(one) = files_of_pair.files.values().next() {
            let advice = "check both servers, then run the same command again";
            let display_url = self.shared.display_url(&one.pair.from);
            let failure = Failure {
                ends_all: true,
                ..Failure::found(display_url, "a session with both servers", reason, advice)
            };
            self.shared.report_failure(&failure);
        }
    }

    /// Opens both sessions.
    fn open(&self, generation: u64) -> Result<Sessions, String> {
        let (source, source_ready) =
            session_pool::open(self.scope, self.shared, self.configs.0.clone(), true);
        let (destination, destination_ready) =
            session_pool::open(self.scope, self.shared, self.configs.1.clone(), true);
        let ended = || Err("session closed".to_owned());
        let result = source_ready.recv().unwrap_or_else(|_| ended());
        let other = destination_ready.recv().unwrap_or_else(|_| ended());
        match (result, other) {
            (Ok(_), Ok(capabilities)) => Ok(Sessions {
                source,
                destination,
                capabilities,
                generation,
            }),
            (Err(reason), _) | (_, Err(reason)) => {
                source.retire();
                destination.retire();
                Err(reason)
            }
        }
    }

    fn reopen(&self, sessions: &mut Sessions) -> Result<(), String> {
        self.shared.troubles.fetch_add(1, Ordering::Relaxed);
        sessions.retire();
        if sessions.generation >= MAX_REOPENED {
            return Err("too many failures in a row".into());
        }
        *sessions = self.open(sessions.generation + 1)?;
        Ok(())
    }

    /// Returns the common mode of both servers.
    fn mode(&self) -> Mode {
        let ends = [self.ends.source, self.ends.destination];
        match ends
            .iter()
            .all(|end| end.capabilities.mode == Mode::Extended)
        {
            true => Mode::Extended,
            false => Mode::Stream,
        }
    }

    fn copy(&self, pairs: Vec<CopyPair>, files_of_pair: &mut PairFiles<'_>) -> Result<(), String> {
        let mut sessions = self.open(0)?;
        let capabilities = &sessions.capabilities;
        let (ahead, address) = (capabilities.pipelining, capabilities.address);
        let ends = [self.ends.source, self.ends.destination];
        let striped =
            self.configs.0.striped && ends.iter().all(|end| end.capabilities.is_striped());
        let mut copies = ThirdParty::new(pairs, self.mode(), ahead, ATTEMPTS, address, striped);
        let (sender, results) = channel();
        // Each iteration handles outputs, or takes a result.
        loop {
            while let Some(output) = copies.poll_output() {
                match output {
                    ThirdPartyOutput::Request {
                        side,
                        request,
                        command,
                    } => sessions.send(side, request, command, &sender),
                    ThirdPartyOutput::Reopen => {
                        self.reopen(&mut sessions)?;
                        copies.reopened();
                    }
                    ThirdPartyOutput::Done { transfer } => self.done(transfer, files_of_pair),
                    ThirdPartyOutput::Failed {
                        transfer, reason, ..
                    } => self.failed(transfer, &reason, files_of_pair),
                }
            }
            if copies.is_done() || self.shared.stop.is_cancelled() {
                sessions.retire();
                return Ok(());
            }
            match results.recv_timeout(GLANCE) {
                Ok((tag, handle_result)) => {
                    sessions.handle_result(tag, &handle_result, &mut copies)
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("no replies".into()),
            }
        }
    }

    fn done(&self, transfer: u64, files_of_pair: &mut PairFiles<'_>) {
        let Some(one) = files_of_pair.files.remove(&transfer) else {
            return;
        };
        let size = one.pair.size_bytes.unwrap_or(0);
        let shared = self.shared;
        if shared.options.verify {
            let (source, destination) = (self.ends.source.handle, self.ends.destination.handle);
            let same = verify::is_same_at((source, &one.pair.from), (destination, &one.pair.to));
            if !matches!(same, Ok(Some(true))) {
                let advice = "delete the copy, then run the same command again";
                let (display_url, expected) = (
                    self.ends.destination.display_url(&one.pair.to),
                    "the checksum of the source",
                );
                let found = "another checksum, or a server without checksums";
                return shared.report_failure(&Failure::found(
                    display_url,
                    expected,
                    found,
                    advice,
                ));
            }
        }
        shared.totals.moved_bytes.fetch_add(size, Ordering::Relaxed);
        let display_url = || self.ends.destination.display_url(&one.pair.to);
        shared.copied(display_url, size, "between servers");
        if let Some(time_s) = one.modify_s.filter(|_| shared.options.preserve.times) {
            // Immediately: after a kill, the time identifies a complete file. The end of the copy waits for all replies.
            let path = one.pair.to;
            let command = FtpCommand::Mfmt { time_s, path };
            let _ = self
                .ends
                .destination
                .handle
                .request(SessionRequest::Command(command));
        }
    }

    fn failed(&self, transfer: u64, reason: &str, files_of_pair: &mut PairFiles<'_>) {
        if let Some(one) = files_of_pair.files.remove(&transfer) {
            let advice = "fix the cause at the servers, then run the same command again";
            let display_url = self.shared.display_url(&one.pair.from);
            let failure = Failure::found(display_url, "a copy at the other server", reason, advice);
            self.shared.report_failure(&failure);
            if let Ok(mut leftovers) = files_of_pair.leftovers.lock() {
                leftovers.push(one.pair.temporary);
            }
        }
    }
}
