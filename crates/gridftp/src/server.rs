//! Server session: replies to commands in order, one at a time. A driver works on files and
//! sockets.
//!
//! [`ServerPolicy`] bounds the resources of a client: bytes of queued commands, data
//! connections, failed logins, and time without a command or a byte.
//!
//! Read [`Server`] first, then [`DriverRequest`].

mod commands;
mod completion;
mod data;
mod driver_api;
mod listing;
mod replies;
mod security;
mod setup;
mod transfer;

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use commands::RequestPurpose;
pub use driver_api::{
    DriverRequest, DriverResponse, GlobusError, ServerOutput, ServerPolicy, WriteMode,
};
use transfer::{DataConnections, ServerTransfer};

use crate::line::{FtpLine, LineBuffer, MAX_LINE_BYTES};
use crate::security::Security;
use crate::{Dcau, FtpCommand, FtpError, FtpReply, Mode, Path, Protection, Restart};

/// Maximum facts that OPTS MLST can select.
const MAX_FACTS: usize = 32;

/// State of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LoginState {
    /// No user.
    None,
    /// A user without a password yet.
    User(Vec<u8>),
    /// Logged in.
    Done,
}

/// State of a session.
#[derive(Debug)]
enum SessionState {
    /// Waiting for a command.
    Idle,
    /// Waiting for the driver.
    AwaitingDriver(RequestPurpose),
    /// Transferring data.
    Transferring(ServerTransfer),
    /// The session is over.
    Closed,
}

/// Settings changed by commands.
#[derive(Debug)]
struct SessionSettings {
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
    /// Authentication of data connections.
    dcau: Dcau,
    protection: Protection,
}

/// Server side of a session.
pub struct Server {
    policy: ServerPolicy,
    /// Write and third-party permissions of the policy.
    granted: (bool, bool),
    lines: LineBuffer,
    state: SessionState,
    login: LoginState,
    failed_logins: u32,
    settings: SessionSettings,
    data: DataConnections,
    security: Option<Box<dyn Security>>,
    /// `None` before the handshake; then `true` if it is complete.
    protected: Option<bool>,
    outputs: VecDeque<ServerOutput>,
    /// Last transfer command.
    command: &'static str,
    leaving: bool,
    started_at: Duration,
    moved: Duration,
}

impl Server {
    /// Creates a session on a control connection that was accepted at `now`, counted from any
    /// moment.
    #[must_use]
    pub fn new(policy: ServerPolicy, security: Option<Box<dyn Security>>, now: Duration) -> Self {
        let greeting = format!("{} ready.", policy.greeting);
        let mut server = Self {
            settings: SessionSettings {
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
            state: SessionState::Idle,
            login: LoginState::None,
            failed_logins: 0,
            data: DataConnections::default(),
            security,
            protected: None,
            outputs: VecDeque::new(),
            command: "",
            leaving: false,
            started_at: now,
            moved: now,
        };
        server.reply(&FtpReply::new(220, greeting));
        server
    }

    /// Returns the number of bytes that the session accepts from the control connection now. 0:
    /// commands are queued; read again after progress. A driver must not read while replies are
    /// unsent, so that a client cannot fill the memory.
    #[must_use]
    pub fn input_capacity(&self) -> usize {
        let max_connections = match self.state {
            SessionState::Closed => 0,
            _ if self.lines.has_line() => self.policy.queued_bytes,
            // An incomplete line must end or exceed the limit.
            _ => self.policy.queued_bytes.max(MAX_LINE_BYTES + 1),
        };
        max_connections.saturating_sub(self.lines.len())
    }

    /// Handles bytes of the control connection, at most [`input_capacity`](Self::input_capacity).
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        self.lines.push(bytes);
        self.pump(now);
    }

    /// Handles the end of the control connection.
    pub fn handle_closed(&mut self) {
        self.close();
    }

    /// Shuts down: the session ends when idle, after the current transfer.
    pub fn leave(&mut self, now: Duration) {
        self.leaving = true;
        self.pump(now);
    }

    /// Returns `true` during a transfer, including its start.
    #[must_use]
    pub fn is_transferring(&self) -> bool {
        matches!(self.state, SessionState::Transferring(_))
    }

    /// Returns the socket buffer size requested by the client, for later data connections.
    #[must_use]
    pub fn buffer_bytes(&self) -> Option<u64> {
        self.settings.buffer_bytes
    }

    /// Returns the size of a block, in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.policy.block_bytes
    }

    /// Handles the passage of time.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match &mut self.state {
            SessionState::Transferring(transfer)
                if now < transfer.last.at() + self.policy.stall_timeout =>
            {
                self.mark(now);
            }
            SessionState::Transferring(_) => {
                self.fail(&FtpReply::new(426, "Data connection stalled."));
                self.pump(now);
            }
            _ => {
                self.reply(&FtpReply::new(
                    421,
                    "Idle for too long, closing the control connection.",
                ));
                self.close();
            }
        }
    }

    /// Returns the deadline for [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match &self.state {
            // The driver has no time limit.
            SessionState::Closed | SessionState::AwaitingDriver(_) => None,
            SessionState::Transferring(transfer) => {
                let still = transfer.last.at() + self.policy.stall_timeout;
                let next = |last| still.min(last + self.settings.marker_interval);
                Some(transfer.marked.map_or(still, next))
            }
            SessionState::Idle if self.login == LoginState::Done => {
                Some(self.moved + self.policy.idle_timeout)
            }
            // Bytes do not extend the login timeout: they can arrive one by one forever.
            SessionState::Idle => Some(self.started_at + self.policy.login_timeout),
        }
    }

    /// Returns the next output for the driver.
    pub fn poll_output(&mut self) -> Option<ServerOutput> {
        self.outputs.pop_front()
    }

    /// Handles the response of the driver.
    pub fn respond(&mut self, now: Duration, response: DriverResponse) {
        self.moved = self.moved.max(now);
        if matches!(self.state, SessionState::Transferring(_)) {
            self.listed(now, response);
            return self.pump(now);
        }
        match std::mem::replace(&mut self.state, SessionState::Idle) {
            SessionState::AwaitingDriver(purpose) => self.driver_responded(now, purpose, response),
            other => self.state = other,
        }
        self.pump(now);
    }

    /// Executes commands until one must wait.
    fn pump(&mut self, now: Duration) {
        loop {
            match &self.state {
                SessionState::Idle if self.leaving => {
                    self.reply(&FtpReply::new(
                        421,
                        "The server shuts down, closing the control connection.",
                    ));
                    return self.close();
                }
                SessionState::Idle => {}
                SessionState::Transferring(_) if self.abort_waits() => {
                    self.fail(&FtpReply::new(426, "Transfer aborted."));
                    continue;
                }
                _ => return,
            }
            let line = self.lines.next();
            if line.is_some() {
                // Commands extend the idle timeout; single bytes do not.
                self.moved = self.moved.max(now);
            }
            match line {
                None => return,
                Some(FtpLine::TooLong) => self.reply(&FtpReply::new(500, "Command line too long.")),
                Some(FtpLine::Complete(line)) => self.line(now, &line),
            }
        }
    }

    /// Returns `true` if the next command is ABOR.
    fn abort_waits(&self) -> bool {
        self.protected.is_none()
            && self
                .lines
                .is_next(|line| FtpCommand::parse(line) == Ok(FtpCommand::Abor))
    }

    fn line(&mut self, now: Duration, line: &[u8]) {
        let opened = match self.unprotected(line) {
            Ok(Some(opened)) => opened,
            Ok(None) => return,
            Err(error) => return self.reply(&FtpReply::new(535, error.to_string())),
        };
        match FtpCommand::parse(&opened) {
            Ok(command) => self.execute(now, command),
            Err(FtpError::UnknownCommand { .. }) => {
                self.reply(&FtpReply::new(500, "Command not supported."))
            }
            Err(error) => self.reply(&FtpReply::new(501, error.to_string())),
        }
    }

    fn request_from_driver(&mut self, purpose: RequestPurpose, request: DriverRequest) {
        self.state = SessionState::AwaitingDriver(purpose);
        self.outputs.push_back(ServerOutput::Request(request));
    }

    fn close(&mut self) {
        if !matches!(self.state, SessionState::Closed) {
            if matches!(
                self.state,
                SessionState::Transferring(_) | SessionState::AwaitingDriver(RequestPurpose::Sent)
            ) {
                self.outputs.push_back(ServerOutput::CloseFile);
                self.ended(426);
            }
            self.state = SessionState::Closed;
            self.drop_data();
            self.outputs.push_back(ServerOutput::Close);
        }
    }

    /// Returns `true` if data connections to this address are allowed.
    fn is_allowed_address(&self, address: SocketAddr) -> bool {
        let same = |a: IpAddr, b: IpAddr| a.to_canonical() == b.to_canonical();
        // Ports below 1024 belong to system services, and no client listens on them.
        address.port() >= 1024 && (self.policy.third_party || same(address.ip(), self.policy.peer))
    }

    fn selected_facts(&self) -> BTreeSet<String> {
        let all = || crate::FACTS.iter().map(|fact| (*fact).to_owned()).collect();
        let mut selected = self.settings.facts.clone().unwrap_or_else(all);
        selected.truncate(MAX_FACTS);
        selected
            .into_iter()
            .map(|fact| fact.to_ascii_lowercase())
            .collect()
    }
}
