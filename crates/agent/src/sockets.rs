//! TCP sockets, as the kernel counts them: all that are open at a fixed interval, and each once more when it is destroyed.
//!
//! Which ones: in a network namespace of its own (a host of a lab) all, on a machine those of processes that the agent has
//! started. A thread of its own does it, so that a long list of sockets makes no other sample late.

mod diag;
mod netlink;
mod owners;
mod tcp_info;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;
use venturi_plan::{Bytes, Finding, Socket};

use crate::clock::{NS_PER_S, monotonic_ns};
use crate::findings;
use diag::Seen;
use netlink::{Netlink, Reading};

/// Sockets in one sample, at most: 1.5 MB of text.
const SOCKETS_LIMIT: usize = 2048;

/// How long a socket that is in no list any more is remembered: one whose process keeps it open after the connection has
/// ended is destroyed much later.
const MEMORY_NS: u64 = 60 * NS_PER_S;

/// What is remembered at most, for a machine that makes connections faster than it forgets them.
const MEMORY_LIMIT: usize = 16 * 1024;

/// The longest sleep at once, so that the end of a run with a long interval is not waited for.
const LONGEST_SLEEP_NS: u64 = NS_PER_S / 10;

/// How long the end waits for news: the kernel tells of a destroyed socket a little later, from a queue of its own.
const LAST_WAIT_NS: u64 = NS_PER_S / 10;

/// The groups `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`, numbers 1 and 3 (`linux/sock_diag.h`).
const DESTROYED: u32 = 1 << 0 | 1 << 2;

/// The thread that watches sockets.
#[derive(Debug)]
pub(crate) struct Sockets {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Finding>>,
}

/// Whose sockets are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// All of this network namespace.
    All,
    /// Those of processes that the agent has started.
    Descendants,
}

impl Whose {
    /// The rule of the agent.
    pub(crate) fn here() -> Self {
        if owners::in_a_network_of_its_own() {
            Self::All
        } else {
            Self::Descendants
        }
    }
}

impl Sockets {
    /// Calls `emit` every `interval_ns` and when sockets were destroyed, with the reading of the monotonic clock and the
    /// sockets, unless there are none; `emit` says whether they were taken.
    pub(crate) fn start(
        whose: Whose,
        interval_ns: u64,
        emit: impl FnMut(u64, Vec<Socket>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        // Before the thread: no socket that is destroyed from here on is missed, however late the thread gets a core.
        let watch = Watch::new(whose, emit);
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new()
                .name("sockets".into())
                .spawn(move || match watch {
                    Ok(watch) => watch.keep_on(interval_ns.max(1), &theirs),
                    Err(error) => vec![findings::sockets_not_seen(&error)],
                })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, after a last look, and tells what was doubtful.
    pub(crate) fn finish(self) -> Vec<Finding> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// What a destroyed socket does not tell any more.
#[derive(Debug)]
struct Known {
    seen_ns: u64,
    congestion_control: Option<String>,
    send_buffer_bytes: Option<Bytes>,
    receive_buffer_bytes: Option<Bytes>,
}

/// What was lost on the way.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Sockets beyond the limit, over all samples.
    pub(crate) beyond_limit: u64,
    /// Times that the kernel had no room for news of destroyed sockets.
    pub(crate) overruns: u64,
    /// Records that the controller was too slow for.
    pub(crate) left_out: u64,
}

struct Watch<E> {
    whose: Whose,
    emit: E,
    questions: Netlink,
    /// News of destroyed sockets, where this process may have them.
    news: Result<Netlink, io::Error>,
    known: HashMap<u64, Known>,
    losses: Losses,
    failure: Option<io::Error>,
}

impl<E: FnMut(u64, Vec<Socket>) -> bool> Watch<E> {
    fn new(whose: Whose, emit: E) -> io::Result<Self> {
        if whose == Whose::Descendants && owners::sockets_of_descendants().is_none() {
            return Err(io::Error::other(
                "/proc/PID/task/TID/children is missing (CONFIG_PROC_CHILDREN)",
            ));
        }
        let news = Netlink::open().and_then(|news| {
            news.join(DESTROYED)?;
            Ok(news)
        });
        Ok(Self {
            whose,
            emit,
            questions: Netlink::open()?,
            news,
            known: HashMap::new(),
            losses: Losses::default(),
            failure: None,
        })
    }

    /// The schedule is `start + k·interval`, as that of the counters.
    fn keep_on(mut self, interval_ns: u64, stop: &AtomicBool) -> Vec<Finding> {
        let mut due_ns = monotonic_ns();
        while !stop.load(Ordering::Relaxed) && self.failure.is_none() {
            let now_ns = monotonic_ns();
            if now_ns < due_ns {
                self.wait(due_ns.min(now_ns + LONGEST_SLEEP_NS) - now_ns);
                self.take_news();
                continue;
            }
            self.sample();
            due_ns += interval_ns;
            let passed = monotonic_ns().saturating_sub(due_ns) / interval_ns;
            due_ns += passed * interval_ns;
        }
        self.last_look();
        self.conclude()
    }

    /// What is open at the end has its last counts here; what was closed just now has a moment to be destroyed.
    fn last_look(&mut self) {
        let end_ns = monotonic_ns() + LAST_WAIT_NS;
        self.sample();
        while self.news.is_ok() && self.failure.is_none() {
            let now_ns = monotonic_ns();
            if now_ns >= end_ns {
                return;
            }
            self.wait(end_ns - now_ns);
            self.take_news();
        }
    }

    fn conclude(self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(error) = &self.failure {
            findings.push(findings::sockets_not_seen(error));
        }
        if let Err(error) = &self.news {
            findings.push(findings::sockets_not_final(error));
        }
        if self.losses != Losses::default() {
            findings.push(findings::sockets_incomplete(self.losses, SOCKETS_LIMIT));
        }
        findings
    }

    fn wait(&self, ns: u64) {
        let timeout = TimeSpec::from(Duration::from_nanos(ns));
        let result = match &self.news {
            Ok(news) => {
                let mut watched = [PollFd::new(news.as_fd(), PollFlags::POLLIN)];
                nix::poll::ppoll(&mut watched, Some(timeout), None)
            }
            Err(_) => nix::poll::ppoll(&mut [], Some(timeout), None),
        };
        if !matches!(result, Ok(_) | Err(Errno::EINTR)) {
            std::thread::sleep(Duration::from_nanos(ns)); // whatever it is, the loop must not spin
        }
    }

    /// One list of all sockets.
    fn sample(&mut self) {
        let now_ns = monotonic_ns();
        // Before the list: a socket that is opened in between is in neither, one that is closed in between only in this one.
        let owned = match self.whose {
            Whose::All => None,
            Whose::Descendants => Some(owners::sockets_of_descendants().unwrap_or_default()),
        };
        let mut seen = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            if let Err(error) = self.list(u8::try_from(family).expect("2 and 10"), &mut seen) {
                self.failure = Some(error);
                return;
            }
        }
        if let Some(owned) = owned {
            seen.retain(|seen| {
                owned.contains(&seen.inode) || self.known.contains_key(&seen.cookie)
            });
        }
        self.losses.beyond_limit += seen.len().saturating_sub(SOCKETS_LIMIT) as u64;
        seen.truncate(SOCKETS_LIMIT);
        self.remember(&seen, now_ns);
        self.tell(now_ns, seen.into_iter().map(|seen| seen.socket).collect());
    }

    fn list(&mut self, family: u8, seen: &mut Vec<Seen>) -> io::Result<()> {
        self.questions.send(&diag::dump_request(family))?;
        loop {
            let reading = self
                .questions
                .read(true, |message| seen.extend(diag::read(message, false)))?;
            if reading == Reading::Done {
                return Ok(());
            }
        }
    }

    fn remember(&mut self, seen: &[Seen], now_ns: u64) {
        for Seen { cookie, socket, .. } in seen {
            let known = Known {
                seen_ns: now_ns,
                congestion_control: socket.congestion_control.clone(),
                send_buffer_bytes: socket.send_buffer_bytes,
                receive_buffer_bytes: socket.receive_buffer_bytes,
            };
            self.known.insert(*cookie, known);
        }
        let horizon_ns = if self.known.len() > MEMORY_LIMIT {
            now_ns
        } else {
            now_ns.saturating_sub(MEMORY_NS)
        };
        self.known.retain(|_, known| known.seen_ns >= horizon_ns);
    }

    /// Reads what has come about destroyed sockets.
    fn take_news(&mut self) {
        let Ok(news) = &mut self.news else {
            return;
        };
        let mut gone = Vec::new();
        loop {
            match news.read(false, |message| gone.extend(diag::read(message, true))) {
                Ok(Reading::More | Reading::Done) => {}
                Ok(Reading::Lost) => self.losses.overruns += 1,
                Ok(Reading::Nothing) => break,
                Err(error) => {
                    self.news = Err(error);
                    break;
                }
            }
            if gone.len() >= SOCKETS_LIMIT {
                break; // the rest is read in the next turn
            }
        }
        let now_ns = monotonic_ns();
        let sockets = gone.into_iter().filter_map(|seen| self.complete(seen));
        let sockets = sockets.collect();
        self.tell(now_ns, sockets);
    }

    /// Adds to a destroyed socket what was known of it. `None`: it is nobody's who matters.
    fn complete(&mut self, seen: Seen) -> Option<Socket> {
        let mut socket = seen.socket;
        match self.known.remove(&seen.cookie) {
            Some(known) => {
                socket.congestion_control = known.congestion_control;
                socket.send_buffer_bytes = known.send_buffer_bytes;
                socket.receive_buffer_bytes = known.receive_buffer_bytes;
            }
            None if self.whose == Whose::Descendants => return None,
            None => {}
        }
        Some(socket)
    }

    fn tell(&mut self, time_ns: u64, sockets: Vec<Socket>) {
        if !sockets.is_empty() && !(self.emit)(time_ns, sockets) {
            self.losses.left_out += 1;
        }
    }
}
