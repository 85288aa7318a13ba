//! A session with a client: commands are answered in order, one at a time; what they mean on a disk, and on sockets, is
//! asked of a driver.
//!
//! Everything that a client can make grow has a bound in [`Policy`]: bytes of commands that wait, data connections,
//! failed logins, and time without a command or a byte.
//!
//! Read [`Server`] first, then [`Request`].

mod answers;
mod commands;
mod data;
mod ending;
mod exchange;
mod listing;
mod opening;
mod security;
mod transfer;

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use commands::Purpose;
pub use exchange::{Answer, Begin, Output, Policy, Refusal, Request};
use transfer::{Data, Transfer};

use crate::line::{Line, LineBuffer, MAX_LINE_BYTES};
use crate::security::Security;
use crate::{Command, Dcau, Error, Mode, Path, Protection, Reply, Restart};

/// Most facts that OPTS MLST may choose.
const MAX_FACTS: usize = 32;

/// How far a login is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Login {
    /// Nobody.
    None,
    /// This user is to say a password.
    User(Vec<u8>),
    /// Somebody.
    Done,
}

/// What the session does.
#[derive(Debug)]
enum State {
    /// It takes the next command.
    Idle,
    /// The driver is to answer.
    Asking(Purpose),
    /// Bytes move.
    Transferring(Transfer),
    /// It is over.
    Closed,
}

/// What commands set for later ones.
#[derive(Debug)]
struct Chosen {
    mode: Mode,
    directory: Path,
    parallelism: u16,
    facts: Option<Vec<String>>,
    restart: Option<Restart>,
    rename_from: Option<Path>,
    check: Option<(String, String)>,
    marker_interval: Duration,
    only_extended_passive: bool,
    buffer_bytes: Option<u64>,
    /// Who has to be at the other end of data connections, and what becomes of their bytes.
    dcau: Dcau,
    protection: Protection,
}

/// A server's side of a session.
pub struct Server {
    policy: Policy,
    /// Whether anybody may write, and have third parties, as the policy has it.
    granted: (bool, bool),
    lines: LineBuffer,
    state: State,
    login: Login,
    failed_logins: u32,
    chosen: Chosen,
    data: Data,
    security: Option<Box<dyn Security>>,
    /// Whether the handshake has begun, and whether it is over.
    protected: Option<bool>,
    outputs: VecDeque<Output>,
    /// The last that asked for a transfer.
    command: &'static str,
    leaving: bool,
    began: Duration,
    moved: Duration,
}

impl Server {
    /// A session on a control connection that was accepted at `now`, counted from any moment.
    #[must_use]
    pub fn new(policy: Policy, security: Option<Box<dyn Security>>, now: Duration) -> Self {
        let greeting = format!("{} ready.", policy.greeting);
        let mut server = Self {
            chosen: Chosen {
                mode: Mode::Stream,
                directory: Path::root(),
                parallelism: 1,
                facts: None,
                restart: None,
                rename_from: None,
                check: None,
                marker_interval: policy.marker_interval,
                only_extended_passive: false,
                buffer_bytes: None,
                dcau: Dcau::None,
                protection: Protection::Clear,
            },
            granted: (policy.writes, policy.third_party),
            policy,
            lines: LineBuffer::default(),
            state: State::Idle,
            login: Login::None,
            failed_logins: 0,
            data: Data::default(),
            security,
            protected: None,
            outputs: VecDeque::new(),
            command: "",
            leaving: false,
            began: now,
            moved: now,
        };
        server.reply(&Reply::new(220, greeting));
        server
    }

    /// Bytes of the control connection that are taken now. None: commands wait; read again when something has moved.
    /// A driver reads none either while replies wait to be written: a client that only asks would fill the memory.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        let most = match self.state {
            State::Closed => 0,
            _ if self.lines.has_line() => self.policy.queued_bytes,
            // A line that is not whole has to end, or to become too long.
            _ => self.policy.queued_bytes.max(MAX_LINE_BYTES + 1),
        };
        most.saturating_sub(self.lines.len())
    }

    /// Takes bytes of the control connection, of which there should be no more than [`room_bytes`](Self::room_bytes).
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        self.lines.push(bytes);
        self.pump(now);
    }

    /// The control connection has ended.
    pub fn handle_closed(&mut self) {
        self.close();
    }

    /// The server goes down: the session ends when it is idle, after the transfer that goes on.
    pub fn leave(&mut self, now: Duration) {
        self.leaving = true;
        self.pump(now);
    }

    /// Whether bytes move, or are about to.
    #[must_use]
    pub fn is_transferring(&self) -> bool {
        matches!(self.state, State::Transferring(_))
    }

    /// Bytes of the buffers of sockets that the client asked for, for data connections from now on.
    #[must_use]
    pub fn buffer_bytes(&self) -> Option<u64> {
        self.chosen.buffer_bytes
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.policy.block_bytes
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match &mut self.state {
            State::Transferring(transfer)
                if now < transfer.last.at() + self.policy.data_patience =>
            {
                self.mark(now);
            }
            State::Transferring(_) => {
                self.fail(&Reply::new(426, "Data connection stood still."));
                self.pump(now);
            }
            _ => {
                self.reply(&Reply::new(
                    421,
                    "Idle for too long, closing the control connection.",
                ));
                self.close();
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match &self.state {
            // How long the driver may take is its own affair.
            State::Closed | State::Asking(_) => None,
            State::Transferring(transfer) => {
                let still = transfer.last.at() + self.policy.data_patience;
                let next = |last| still.min(last + self.chosen.marker_interval);
                Some(transfer.marked.map_or(still, next))
            }
            State::Idle if self.login == Login::Done => {
                Some(self.moved + self.policy.idle_patience)
            }
            // Bytes do not put off the end of a login: they may come one by one for ever.
            State::Idle => Some(self.began + self.policy.login_patience),
        }
    }

    /// What the driver is to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The driver has done what it was asked.
    pub fn answer(&mut self, now: Duration, answer: Answer) {
        self.moved = self.moved.max(now);
        if matches!(self.state, State::Transferring(_)) {
            self.listed(now, answer);
            return self.pump(now);
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Asking(purpose) => self.answered(now, purpose, answer),
            other => self.state = other,
        }
        self.pump(now);
    }

    /// Carries commands out as far as they wait for nothing.
    fn pump(&mut self, now: Duration) {
        loop {
            match &self.state {
                State::Idle if self.leaving => {
                    self.reply(&Reply::new(
                        421,
                        "The server goes down, closing the control connection.",
                    ));
                    return self.close();
                }
                State::Idle => {}
                State::Transferring(_) if self.abort_waits() => {
                    self.fail(&Reply::new(426, "Transfer aborted."));
                    continue;
                }
                _ => return,
            }
            let line = self.lines.next();
            if line.is_some() {
                // Commands put off the end of a session; single bytes do not.
                self.moved = self.moved.max(now);
            }
            match line {
                None => return,
                Some(Line::TooLong) => self.reply(&Reply::new(500, "Command line too long.")),
                Some(Line::Whole(line)) => self.line(now, &line),
            }
        }
    }

    /// Whether the client says nothing but ABOR.
    fn abort_waits(&self) -> bool {
        self.protected.is_none()
            && self
                .lines
                .is_next(|line| Command::parse(line) == Ok(Command::Abor))
    }

    fn line(&mut self, now: Duration, line: &[u8]) {
        let opened = match self.unprotected(line) {
            Ok(Some(opened)) => opened,
            Ok(None) => return,
            Err(error) => return self.reply(&Reply::new(535, error.to_string())),
        };
        match Command::parse(&opened) {
            Ok(command) => self.execute(now, command),
            Err(Error::UnknownCommand { .. }) => {
                self.reply(&Reply::new(500, "Command not supported."))
            }
            Err(error) => self.reply(&Reply::new(501, error.to_string())),
        }
    }

    fn ask(&mut self, purpose: Purpose, request: Request) {
        self.state = State::Asking(purpose);
        self.outputs.push_back(Output::Ask(request));
    }

    fn close(&mut self) {
        if !matches!(self.state, State::Closed) {
            if matches!(
                self.state,
                State::Transferring(_) | State::Asking(Purpose::Sent)
            ) {
                self.outputs.push_back(Output::CloseFile);
                self.ended(426);
            }
            self.state = State::Closed;
            self.drop_data();
            self.outputs.push_back(Output::Close);
        }
    }

    /// Whether data may go there.
    fn may_connect(&self, address: SocketAddr) -> bool {
        let same = |a: IpAddr, b: IpAddr| a.to_canonical() == b.to_canonical();
        // Below 1024 are services of the system, which no client listens on.
        address.port() >= 1024 && (self.policy.third_party || same(address.ip(), self.policy.peer))
    }

    fn wanted_facts(&self) -> BTreeSet<String> {
        let all = || crate::FACTS.iter().map(|fact| (*fact).to_owned()).collect();
        let mut wanted = self.chosen.facts.clone().unwrap_or_else(all);
        wanted.truncate(MAX_FACTS);
        wanted
            .into_iter()
            .map(|fact| fact.to_ascii_lowercase())
            .collect()
    }
}
