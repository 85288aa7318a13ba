//! A session with a server: login, settings, then transfers and other commands, pipelined.
//!
//! **Uploads are transactions.** A server assigns the bytes of a data connection to the next file.
//! If it rejects one STOR of a pipeline after the client sent all bytes, it stores the bytes of the
//! rejected file under the name of the next file, and reports success. Therefore the client sends
//! every file under a temporary name. It renames a file only after the success of this transfer and
//! all earlier ones on the same connections. The first rejection voids all later transfers: the
//! client closes the data connections, waits for all replies, and sends those files again over new
//! connections.
//!
//! **Downloads are bound by their replies.** A rejected RETR sends no bytes. The n-th file on a
//! connection is the n-th file that the server started, not the n-th request. The client reads no
//! bytes before the reply that names them.
//!
//! **A port can belong to another transfer.** In MODE S a server can reuse the port of a rejected
//! file for the next one, before the client has read either reply. The result of such a transfer
//! does not count; the client repeats it.
//!
//! Read [`Client`] first, then [`ClientOutput`]. A driver executes the outputs of `poll_output` and
//! reports their results. The session ends if the driver or the server is silent for
//! [`ClientSettings::stall_timeout`], unless the server continues after the client drops the data
//! connections.

mod active;
mod channel;
mod control;
mod failure;
mod flow;
mod job;
mod login;
mod outcome;
mod reply_check;
mod reply_progress;
mod settings;
mod stat_fallback;
mod third_party;
mod transfers;
mod unmatched;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use active::TransferCommand;
use control::{CommandPipeline, MatchedReply};
pub use job::{
    ClientOutput, ConnectionPurpose, Get, GetSource, Put, TransferDirection, TransferFailure,
    TransferJob,
};
use login::LoginStep;
use reply_progress::ReplyProgress;
pub use settings::{ClientSettings, Login, UploadMode};
use stat_fallback::{StatFallback, StatQuery};
pub use third_party::{CopyPair, SessionSide, ThirdParty, ThirdPartyOutput};
use transfers::Transfers;

use crate::security::{ConnectionRole, DataSecurity, DataSecurityRequest, Peer, Security};
use crate::{
    Dcau, Features, FtpCommand, FtpError, FtpReply, Mode, Options, Protection, RetrieveOptions,
};

/// Purpose of a command, used to interpret its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Login(LoginStep),
    /// PORT or PASV of a pipeline, with its channel number.
    Channel(u64),
    /// Part of a transfer.
    Transfer(u64, TransferCommand),
    /// Request of the driver, by number.
    Request(u64),
    /// Part of a stat request.
    Stat(u64, StatQuery),
    /// The reply is ignored.
    Ignored,
}

/// Client side of a session.
pub struct Client {
    settings: ClientSettings,
    control: CommandPipeline<Tag>,
    features: Features,
    /// `true` if the whole login was sent in one flight.
    ahead: bool,
    /// `true` if unauthenticated data connections are allowed for a server without DCAU.
    opens_data: bool,
    ready: bool,
    /// Requests of the driver before the session is ready.
    requests: VecDeque<(u64, FtpCommand)>,
    stat_requests: BTreeMap<u64, StatFallback>,
    transfers: Transfers,
    outputs: VecDeque<ClientOutput>,
    /// Time of the last progress.
    moved: Duration,
    /// Progress of the current command.
    progress: ReplyProgress,
    ended: Option<FtpError>,
}

impl Client {
    /// Creates a session on a control connection opened at `now`, counted from any moment.
    ///
    /// # Errors
    /// If the login contains a line end.
    pub fn new(
        settings: ClientSettings,
        security: Option<Box<dyn Security>>,
        now: Duration,
    ) -> Result<Self, FtpError> {
        if let Login::Password { user, password } = &settings.login
            && [user, &password.0]
                .iter()
                .any(|text| text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)))
        {
            return Err(FtpError::malformed(
                "login",
                "a user and password without line end",
                b"a line end",
            ));
        }
        Ok(Self {
            control: CommandPipeline::new(Tag::Login(LoginStep::Greeting), security),
            features: Features::default(),
            ahead: false,
            opens_data: false,
            ready: false,
            requests: VecDeque::new(),
            stat_requests: BTreeMap::new(),
            transfers: Transfers::new(&settings),
            settings,
            outputs: VecDeque::new(),
            moved: now,
            progress: ReplyProgress::default(),
            ended: None,
        })
    }

    /// Returns the features of the server; complete when the session is ready.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Returns the transfer mode; final when the session is ready.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// Returns the identity of the server, once the session is secured.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.control.security().and_then(Security::peer)
    }

    /// Allows unauthenticated data connections if the server has no DCAU; otherwise such a server
    /// ends the session. Call it before the server's greeting.
    pub fn allow_open_data(&mut self) {
        self.opens_data = true;
    }

    /// Returns the authentication and protection of data connections. `None`: no security. Final
    /// when the session is ready.
    #[must_use]
    pub fn data(&self) -> Option<&(Dcau, Protection)> {
        self.settings.data.as_ref()
    }

    /// Returns the security layer of a data connection, to be placed between its socket and the
    /// session; see [`gsi`](crate::gsi). `None`: the bytes are not protected. `now_s` is in seconds
    /// since 1970.
    ///
    /// # Errors
    /// If the credential has expired.
    pub fn data_layer(
        &self,
        role: ConnectionRole,
        now_s: u64,
    ) -> Result<Option<Box<dyn DataSecurity>>, FtpError> {
        let security = self.control.security();
        let (Some(security), Some((dcau, protection))) = (security, &self.settings.data) else {
            return Ok(None);
        };
        security.data_layer(DataSecurityRequest {
            role,
            dcau,
            protection: *protection,
            now_s,
        })
    }

    /// Opens data connections for this direction early, so that the first transfer does not wait.
    /// No effect in MODE S.
    pub fn prepare(&mut self, direction: TransferDirection) {
        self.transfers.prepared = Some(direction);
    }

    /// Sets the number of connections for later transfers. Existing connections keep their number,
    /// so the next transfer opens new ones. Returns whether the number changed.
    pub fn widen(&mut self, connections: u16) -> bool {
        let connections = connections.max(1);
        if self.settings.mode != Mode::Extended || self.transfers.connections == connections {
            return false;
        }
        self.transfers.widen(connections);
        let options = RetrieveOptions {
            parallelism: Some(connections),
            ..RetrieveOptions::default()
        };
        let command = FtpCommand::Opts(Options::Retrieve(options));
        self.control.submit(vec![(Tag::Ignored, command)]);
        true
    }

    /// Sets the number of pipelined transfers.
    pub fn set_depth(&mut self, depth: usize) {
        self.transfers.depth = depth.max(1);
    }

    /// Adds a transfer. Transfers of one direction are pipelined in order. It fails immediately if
    /// the session is over.
    pub fn transfer(&mut self, now: Duration, job: TransferJob) {
        self.moved = self.moved.max(now);
        if let Some(error) = &self.ended {
            self.transfers.add(job);
            let outputs = self.transfers.fail_all(&error.to_string());
            return self.outputs.extend(outputs);
        }
        self.transfers.add(job);
        self.pump();
    }

    /// Fails a transfer whose bytes are unavailable, such as a file that was truncated during the
    /// transfer. The copy at the server is not renamed.
    pub fn abandon(&mut self, now: Duration, transfer: u64, reason: &str) {
        self.moved = self.moved.max(now);
        self.transfers.abandon(transfer, reason);
        self.pump();
    }

    /// Sends another command; its reply carries the number. Do not use it for commands of transfers
    /// and data connections, unless the session has no other use.
    pub fn request(&mut self, now: Duration, request: u64, command: FtpCommand) {
        self.moved = self.moved.max(now);
        self.requests.push_back((request, command));
        self.pump();
    }

    /// Sends QUIT. Send nothing after it.
    pub fn quit(&mut self) {
        self.control.submit(vec![(Tag::Ignored, FtpCommand::Quit)]);
    }

    /// Returns the number of transfers that are neither done nor failed.
    #[must_use]
    pub fn open_transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Handles bytes of the control connection.
    ///
    /// # Errors
    /// If the session ends. Open transfers fail, and `poll_output` reports them.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) -> Result<(), FtpError> {
        self.check_open()?;
        self.control.handle_input(bytes);
        let result = self.process_replies(now);
        self.close_on_error(result)
    }

    /// Handles the end of the control connection.
    ///
    /// # Errors
    /// Always, unless the session had already ended.
    pub fn handle_closed(&mut self) -> Result<(), FtpError> {
        self.check_open()?;
        self.close_on_error(Err(FtpError::Closed {
            detail: String::new(),
        }))
    }

    /// Handles the passage of time. After a silence of [`ClientSettings::stall_timeout`], the
    /// client drops the data connections and retries running transfers. After a second silence the
    /// session ends.
    ///
    /// # Errors
    /// If the server is silent and no data connection can be the cause.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), FtpError> {
        self.check_open()?;
        if self.poll_timeout().is_none_or(|due| now < due) {
            return Ok(());
        }
        let seconds = self.settings.stall_timeout.as_secs();
        let stall = format!("no progress for {seconds} s");
        if self.transfers.abandon_data(&stall) {
            self.moved = now;
            self.pump();
            return Ok(());
        }
        let expected = "reply and no bytes of a transfer";
        self.close_on_error(Err(FtpError::Timeout { expected, seconds }))
    }

    /// Returns the deadline for [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let waiting = self.control.is_busy() || self.transfers.len() > 0;
        (waiting && self.ended.is_none()).then(|| self.moved + self.settings.stall_timeout)
    }

    /// Returns the next output for the driver.
    pub fn poll_output(&mut self) -> Option<ClientOutput> {
        if self.ended.is_none() {
            match self.control.output() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => self.outputs.push_back(ClientOutput::Send(bytes)),
                Err(error) => drop(self.close_on_error(Err(error))),
            }
        }
        self.outputs.pop_front()
    }

    fn check_open(&self) -> Result<(), FtpError> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn close_on_error(&mut self, result: Result<(), FtpError>) -> Result<(), FtpError> {
        if let Err(error) = &result {
            self.ended = Some(error.clone());
            let outputs = self.transfers.fail_all(&error.to_string());
            self.outputs
                .push_back(ClientOutput::DropData { faulty: true });
            self.outputs.extend(outputs);
        }
        result
    }

    fn process_replies(&mut self, now: Duration) -> Result<(), FtpError> {
        while let Some(matched) = self.control.poll()? {
            let moves = match &matched {
                MatchedReply::Preliminary(_, reply) => self.progress.is_new(reply),
                MatchedReply::Line(..) => true,
                MatchedReply::Final(..) => {
                    self.progress = ReplyProgress::default();
                    true
                }
            };
            if moves {
                self.moved = self.moved.max(now);
            }
            if let MatchedReply::Final(tag, reply) = &matched {
                reply_check::check(*tag, reply, &self.transfers)?;
            }
            match matched {
                MatchedReply::Final(Tag::Login(step), reply) => self.login(step, &reply)?,
                MatchedReply::Final(Tag::Channel(number), reply) => {
                    self.transfers.channel_replied(number, &reply);
                }
                MatchedReply::Final(Tag::Transfer(key, part), reply) => {
                    self.transfers.replied(key, part, reply);
                }
                MatchedReply::Preliminary(Tag::Transfer(key, part), reply) => {
                    self.transfers.preliminary_reply(key, part, &reply);
                }
                MatchedReply::Final(Tag::Request(request), reply) => {
                    self.outputs
                        .push_back(ClientOutput::Reply { request, reply });
                }
                MatchedReply::Preliminary(Tag::Request(request), reply) => {
                    self.outputs
                        .push_back(ClientOutput::Preliminary { request, reply });
                }
                MatchedReply::Line(Tag::Request(request), text) => {
                    self.outputs.push_back(ClientOutput::Line { request, text });
                }
                MatchedReply::Final(Tag::Stat(request, fact), reply) => {
                    self.stat_replied(request, fact, reply);
                }
                MatchedReply::Final(Tag::Ignored, _)
                | MatchedReply::Line(..)
                | MatchedReply::Preliminary(..) => {}
            }
            self.pump();
        }
        Ok(())
    }

    /// Advances transfers and forwards their commands and outputs.
    fn pump(&mut self) {
        if self.ended.is_some() {
            return;
        }
        // A server that reads a login in one flight also reads later commands with it.
        if self.ready || self.ahead {
            for (request, command) in std::mem::take(&mut self.requests) {
                match command {
                    FtpCommand::Mlst(Some(path)) if self.lacks_mlst() => {
                        self.stat_request(request, path)
                    }
                    command => self.control.submit(vec![(Tag::Request(request), command)]),
                }
            }
            self.transfers.prepare();
        }
        if self.ready {
            self.transfers.pump();
        }
        for group in self.transfers.take_commands() {
            self.control.submit(group);
        }
        if let Some(voided) = self.transfers.take_voided() {
            let is_void = |tag: &Tag| matches!(tag, Tag::Transfer(key, part) if voided.contains(key) && part.is_before_bytes());
            for tag in self.control.retract(is_void) {
                if let Tag::Transfer(key, TransferCommand::Transfer) = tag {
                    self.transfers.retracted(key);
                }
            }
            // The last awaited transfer may have been retracted.
            self.transfers.pump();
            for group in self.transfers.take_commands() {
                self.control.submit(group);
            }
        }
        self.outputs.extend(self.transfers.take_outputs());
    }

    fn lacks_mlst(&self) -> bool {
        self.ready && !self.features.has("MLST")
    }

    fn rejected(step: &'static str, reply: &FtpReply) -> FtpError {
        FtpError::Rejected {
            step,
            reply: reply.to_string(),
        }
    }
}
