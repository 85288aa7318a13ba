//! Two sessions, one with each server, and the files that they copy.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use venturi_gridftp::client::{Pair, Side, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{Command, Mode, Path as There};

use super::{Ends, Wanted};
use crate::error::Failure;
use crate::ftp::crew;
use crate::ftp::desk::Desk;
use crate::ftp::manner::{Manner, Welcome};
use crate::ftp::messages::{Answer, Question};
use crate::ftp::shared::Shared;
use crate::ftp::verify;

/// How often it is seen whether to stop.
const GLANCE: Duration = Duration::from_millis(100);
/// How often a copy is tried.
const ATTEMPTS: u32 = 3;
/// How often two sessions are opened again.
const MOST_REOPENED: u64 = 100;
/// In the tags of answers: those of the destination.
const DESTINATION: u64 = 1 << 63;
/// In the tags of answers: where the number of the sessions begins.
const GENERATION_BITS: u32 = 40;

/// Copies shares by two sessions each.
pub(super) struct Line<'s, 'o, 'd, 'e> {
    pub(super) scope: &'s std::thread::Scope<'s, 'e>,
    pub(super) shared: &'o Shared<'o>,
    pub(super) manners: &'d (Manner, Manner),
    pub(super) ends: &'d Ends<'d>,
}

/// What one line has to copy, by its numbers, and what is left of what failed.
struct Share<'a> {
    wanted: HashMap<u64, Wanted>,
    leftovers: &'a Mutex<Vec<There>>,
}

/// Two sessions, used for nothing else.
struct Sessions {
    source: Desk,
    destination: Desk,
    /// Of the destination.
    welcome: Welcome,
    /// How many were open before them: answers of those are of no meaning for these.
    generation: u64,
}

impl Sessions {
    fn ask(&self, side: Side, request: u64, command: Command, answer: &Sender<(u64, Answer)>) {
        let (desk, bit) = match side {
            Side::Source => (&self.source, 0),
            Side::Destination => (&self.destination, DESTINATION),
        };
        let tag = bit | (self.generation << GENERATION_BITS) | request;
        desk.ask_for(Question::Command(command), tag, answer.clone());
    }

    fn heard(&self, tag: u64, heard: &Answer, copies: &mut ThirdParty) {
        if (tag & !DESTINATION) >> GENERATION_BITS != self.generation {
            return;
        }
        let request = tag & ((1 << GENERATION_BITS) - 1);
        match heard {
            Answer::Notice(reply) | Answer::Reply(reply) => copies.handle_reply(request, reply),
            Answer::Lost => copies.lost("the session was lost"),
            Answer::Line(_) => {}
        }
    }

    fn retire(&self) {
        self.source.retire();
        self.destination.retire();
    }
}

impl<'s, 'o: 's> Line<'s, 'o, '_, '_> {
    /// Copies a share, and tells what cannot be.
    pub(super) fn carry_out(&self, share: Vec<Wanted>, leftovers: &Mutex<Vec<There>>) {
        let pairs: Vec<Pair> = share.iter().map(|wanted| wanted.pair.clone()).collect();
        let numbered = share.into_iter().map(|one| (one.pair.transfer, one));
        let mut share = Share {
            wanted: numbered.collect(),
            leftovers,
        };
        let Err(reason) = self.copy(pairs, &mut share) else {
            return;
        };
        if let Some(one) = share.wanted.values().next() {
            let advice = "see whether both servers are well, then run the same command again";
            let place = self.shared.place(&one.pair.from);
            let failure = Failure {
                ends_all: true,
                ..Failure::found(place, "a session with both servers", reason, advice)
            };
            self.shared.tell(&failure);
        }
    }

    /// Opens two sessions.
    fn open(&self, generation: u64) -> Result<Sessions, String> {
        let (source, told) = crew::open(self.scope, self.shared, self.manners.0.clone(), true);
        let (destination, also) = crew::open(self.scope, self.shared, self.manners.1.clone(), true);
        let gone = || Err("the session ended".to_owned());
        let result = told.recv().unwrap_or_else(|_| gone());
        let other = also.recv().unwrap_or_else(|_| gone());
        match (result, other) {
            (Ok(_), Ok(welcome)) => Ok(Sessions {
                source,
                destination,
                welcome,
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
        if sessions.generation >= MOST_REOPENED {
            return Err("too many failures, one after the other".into());
        }
        *sessions = self.open(sessions.generation + 1)?;
        Ok(())
    }

    /// What both servers speak.
    fn mode(&self) -> Mode {
        let ends = [self.ends.source, self.ends.destination];
        match ends.iter().all(|end| end.welcome.mode == Mode::Extended) {
            true => Mode::Extended,
            false => Mode::Stream,
        }
    }

    fn copy(&self, pairs: Vec<Pair>, share: &mut Share<'_>) -> Result<(), String> {
        let mut sessions = self.open(0)?;
        let welcome = &sessions.welcome;
        let (ahead, address) = (welcome.pipelining, welcome.address);
        let ends = [self.ends.source, self.ends.destination];
        let striped = self.manners.0.striped && ends.iter().all(|end| end.welcome.is_striped());
        let mut copies = ThirdParty::new(pairs, self.mode(), ahead, ATTEMPTS, address, striped);
        let (answer, answers) = channel();
        // Each turn does what is asked for, or takes an answer.
        loop {
            while let Some(output) = copies.poll_output() {
                match output {
                    ThirdPartyOutput::Request {
                        side,
                        request,
                        command,
                    } => sessions.ask(side, request, command, &answer),
                    ThirdPartyOutput::Reopen => {
                        self.reopen(&mut sessions)?;
                        copies.reopened();
                    }
                    ThirdPartyOutput::Done { transfer } => self.done(transfer, share),
                    ThirdPartyOutput::Failed {
                        transfer, reason, ..
                    } => self.failed(transfer, &reason, share),
                }
            }
            if copies.is_done() || self.shared.stop.asked() {
                sessions.retire();
                return Ok(());
            }
            match answers.recv_timeout(GLANCE) {
                Ok((tag, heard)) => sessions.heard(tag, &heard, &mut copies),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("no answers".into()),
            }
        }
    }

    fn done(&self, transfer: u64, share: &mut Share<'_>) {
        let Some(one) = share.wanted.remove(&transfer) else {
            return;
        };
        let size = one.pair.size_bytes.unwrap_or(0);
        let shared = self.shared;
        if shared.order.verify {
            let (source, destination) = (self.ends.source.desk, self.ends.destination.desk);
            let same = verify::is_same_at((source, &one.pair.from), (destination, &one.pair.to));
            if !matches!(same, Ok(Some(true))) {
                let advice = "remove the copy and run the same command again";
                let (place, expected) = (
                    self.ends.destination.place(&one.pair.to),
                    "the bytes of the source",
                );
                let found = "others, or a server that does not tell";
                return shared.tell(&Failure::found(place, expected, found, advice));
            }
        }
        shared.totals.moved_bytes.fetch_add(size, Ordering::Relaxed);
        let place = || self.ends.destination.place(&one.pair.to);
        shared.copied(place, size, "between servers");
        if let Some(time_s) = one.modify_s.filter(|_| shared.order.preserve.times) {
            // At once: by its time it is told after a kill that it is whole. Whoever ends the copy waits for all answers.
            let path = one.pair.to;
            let command = Command::Mfmt { time_s, path };
            let _ = self.ends.destination.desk.ask(Question::Command(command));
        }
    }

    fn failed(&self, transfer: u64, reason: &str, share: &mut Share<'_>) {
        if let Some(one) = share.wanted.remove(&transfer) {
            let advice = "mend that at the servers, then run the same command again";
            let place = self.shared.place(&one.pair.from);
            let failure = Failure::found(place, "a copy at the other server", reason, advice);
            self.shared.tell(&failure);
            if let Ok(mut leftovers) = share.leftovers.lock() {
                leftovers.push(one.pair.temporary);
            }
        }
    }
}
