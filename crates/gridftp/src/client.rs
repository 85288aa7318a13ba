//! A session with a server: login, settings, then transfers and other commands, pipelined.
//!
//! **Uploads are transactions.** A server takes the bytes of a data connection for whichever file is next. If it refuses
//! one STOR of a pipeline after the bytes of all were sent, it stores the bytes of the refused file under the name of the next,
//! and says that all is well. So every file is sent under a temporary name, and renamed only when all transfers before
//! it on the same connections, and itself, are answered well. The first refusal voids everything behind it: the data
//! connections are closed, all answers are awaited, and those files are sent again over new connections.
//!
//! **Downloads are bound by their replies.** A refused RETR sends no bytes, so the n-th file on a connection is the n-th
//! that the server began, not the n-th that was asked for. Bytes are not taken before the reply that names them.
//!
//! **A port may be another transfer's.** In MODE S a server may open the port of a refused file again for the next one,
//! before the client has read of either. What such a transfer got, or was given, does not count; it is done again.
//!
//! Read [`Client`] first, then [`Output`]. A driver does what `poll_output` says, and tells what came of it; what it
//! does not tell within [`Settings::patience`] ends the session, and so does a server that is silent for as long, unless
//! it goes on when the data connections are given up.

mod active;
mod channel;
mod control;
mod failure;
mod flow;
mod job;
mod login;
mod look;
mod news;
mod outcome;
mod settings;
mod step;
mod strays;
mod third_party;
mod transfers;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use active::Part;
use control::{Control, Heard};
pub use job::{Direction, Failure, Get, Job, Output, Purpose, Put, Source};
use login::Login as LoginStep;
use look::{Fact, Look};
use news::News;
pub use settings::{Login, Settings, Upload};
pub use third_party::{Pair, Side, ThirdParty, ThirdPartyOutput};
use transfers::Transfers;

use crate::security::{DataSecurity, DataWish, End, Peer, Security};
use crate::{Command, Dcau, Error, Features, Mode, Options, Protection, Reply, RetrieveOptions};

/// What a command is for; its reply goes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Login(LoginStep),
    /// PORT or PASV of a pipeline, with the number of the channel.
    Channel(u64),
    /// Part of a transfer.
    Transfer(u64, Part),
    /// Of the driver.
    Request(u64),
    /// Part of a request for what a path is.
    Look(u64, Fact),
    /// Of which the reply does not matter.
    Unheard,
}

/// A client's side of a session.
pub struct Client {
    settings: Settings,
    control: Control<Tag>,
    features: Features,
    /// Whether all of the login was said in one flight.
    ahead: bool,
    /// Whether data connections may be open where the server does not authenticate them.
    opens_data: bool,
    ready: bool,
    /// What the driver asks before the session is ready.
    requests: VecDeque<(u64, Command)>,
    looks: BTreeMap<u64, Look>,
    transfers: Transfers,
    outputs: VecDeque<Output>,
    /// When something last moved.
    moved: Duration,
    /// What was told of the command whose reply is awaited.
    news: News,
    ended: Option<Error>,
}

impl Client {
    /// A session on a control connection that was opened at `now`, counted from any moment.
    ///
    /// # Errors
    /// A login that cannot be written on a line.
    pub fn new(
        settings: Settings,
        security: Option<Box<dyn Security>>,
        now: Duration,
    ) -> Result<Self, Error> {
        if let Login::Password { user, password } = &settings.login
            && [user, &password.0]
                .iter()
                .any(|text| text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)))
        {
            return Err(Error::malformed(
                "login",
                "a user and password without line end",
                b"a line end",
            ));
        }
        Ok(Self {
            control: Control::new(Tag::Login(LoginStep::Greeting), security),
            features: Features::default(),
            ahead: false,
            opens_data: false,
            ready: false,
            requests: VecDeque::new(),
            looks: BTreeMap::new(),
            transfers: Transfers::new(&settings),
            settings,
            outputs: VecDeque::new(),
            moved: now,
            news: News::default(),
            ended: None,
        })
    }

    /// What the server says that it can do; all of it is known when the session is ready.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The mode of transfers; it is settled when the session is ready.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// Who the server is, once the session is secured.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.control.security().and_then(Security::peer)
    }

    /// Has data connections open where the server does not authenticate them (DCAU); else such a server ends the session. To be said before
    /// the server's greeting.
    pub fn allow_open_data(&mut self) {
        self.opens_data = true;
    }

    /// How data connections are secured: whom they have to come from, and what becomes of their bytes. None: they are open. It is settled
    /// when the session is ready.
    #[must_use]
    pub fn data(&self) -> Option<&(Dcau, Protection)> {
        self.settings.data.as_ref()
    }

    /// What secures a data connection of which this is the `end`, to be put between its socket and the session;
    /// [`gsi`](crate::gsi) says how. Nothing: its bytes go as they are. `now_s` is in seconds since 1970.
    ///
    /// # Errors
    /// If the credential has ended.
    pub fn data_layer(&self, end: End, now_s: u64) -> Result<Option<Box<dyn DataSecurity>>, Error> {
        let security = self.control.security();
        let (Some(security), Some((who, protection))) = (security, &self.settings.data) else {
            return Ok(None);
        };
        security.data_layer(DataWish {
            end,
            who,
            protection: *protection,
            now_s,
        })
    }

    /// Has data connections opened for this direction as soon as that is possible: the first transfer needs not wait for them. In MODE S
    /// there is nothing to be opened ahead.
    pub fn prepare(&mut self, direction: Direction) {
        self.transfers.prepared = Some(direction);
    }

    /// Has the server use so many connections for what it sends from now on. Those that it was told of before (PORT) are as many as were said
    /// before that, so the next transfer gets others. Whether they are not as many already.
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
        let command = Command::Opts(Options::Retrieve(options));
        self.control.submit(vec![(Tag::Unheard, command)]);
        true
    }

    /// Asks for so many transfers ahead of their end from now on.
    pub fn deepen(&mut self, depth: usize) {
        self.transfers.depth = depth.max(1);
    }

    /// Adds a transfer. Those of one direction are pipelined, in order. It fails at once if the session is over.
    pub fn transfer(&mut self, now: Duration, job: Job) {
        self.moved = self.moved.max(now);
        if let Some(error) = &self.ended {
            self.transfers.add(job);
            let outputs = self.transfers.fail_all(&error.to_string());
            return self.outputs.extend(outputs);
        }
        self.transfers.add(job);
        self.pump();
    }

    /// Gives a transfer up whose bytes cannot be had, such as those of a file that was cut meanwhile: it fails, and a copy at the
    /// server gets no name.
    pub fn abandon(&mut self, now: Duration, transfer: u64, reason: &str) {
        self.moved = self.moved.max(now);
        self.transfers.abandon(transfer, reason);
        self.pump();
    }

    /// Sends another command; its answer carries the number. Not for commands of transfers and data channels, unless the
    /// session is used for nothing else.
    pub fn request(&mut self, now: Duration, request: u64, command: Command) {
        self.moved = self.moved.max(now);
        self.requests.push_back((request, command));
        self.pump();
    }

    /// Says goodbye. Nothing is to be asked for behind it.
    pub fn quit(&mut self) {
        self.control.submit(vec![(Tag::Unheard, Command::Quit)]);
    }

    /// Transfers that are neither done nor failed.
    #[must_use]
    pub fn open_transfers(&self) -> usize {
        self.transfers.len()
    }

    /// Takes bytes of the control connection.
    ///
    /// # Errors
    /// What ends the session. Transfers that were open have failed, and `poll_output` says so.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) -> Result<(), Error> {
        self.alive()?;
        self.control.handle_input(bytes);
        let result = self.hear(now);
        self.end_if(result)
    }

    /// The control connection has ended.
    ///
    /// # Errors
    /// Always, unless the session had ended before.
    pub fn handle_closed(&mut self) -> Result<(), Error> {
        self.alive()?;
        self.end_if(Err(Error::Closed {
            detail: String::new(),
        }))
    }

    /// Lets time pass. After a silence of [`Settings::patience`] the data connections are given up, and what ran is tried
    /// again; after one more the session is over.
    ///
    /// # Errors
    /// Silence, and no data connections that could be to blame.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), Error> {
        self.alive()?;
        if self.poll_timeout().is_none_or(|due| now < due) {
            return Ok(());
        }
        let seconds = self.settings.patience.as_secs();
        let stall = format!("nothing moved for {seconds} s");
        if self.transfers.give_up_data(&stall) {
            self.moved = now;
            self.pump();
            return Ok(());
        }
        let expected = "a reply, or bytes of a transfer,";
        self.end_if(Err(Error::Silence { expected, seconds }))
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let waiting = self.control.is_busy() || self.transfers.len() > 0;
        (waiting && self.ended.is_none()).then(|| self.moved + self.settings.patience)
    }

    /// What the driver is to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.ended.is_none() {
            match self.control.output() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => self.outputs.push_back(Output::Send(bytes)),
                Err(error) => drop(self.end_if(Err(error))),
            }
        }
        self.outputs.pop_front()
    }

    fn alive(&self) -> Result<(), Error> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn end_if(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &result {
            self.ended = Some(error.clone());
            let outputs = self.transfers.fail_all(&error.to_string());
            self.outputs.push_back(Output::DropData { faulty: true });
            self.outputs.extend(outputs);
        }
        result
    }

    fn hear(&mut self, now: Duration) -> Result<(), Error> {
        while let Some(heard) = self.control.poll()? {
            let moves = match &heard {
                Heard::Preliminary(_, reply) => self.news.is_new(reply),
                Heard::Line(..) => true,
                Heard::Final(..) => {
                    self.news = News::default();
                    true
                }
            };
            if moves {
                self.moved = self.moved.max(now);
            }
            if let Heard::Final(tag, reply) = &heard {
                step::check(*tag, reply, &self.transfers)?;
            }
            match heard {
                Heard::Final(Tag::Login(step), reply) => self.login(step, &reply)?,
                Heard::Final(Tag::Channel(number), reply) => {
                    self.transfers.channel_answered(number, &reply);
                }
                Heard::Final(Tag::Transfer(key, part), reply) => {
                    self.transfers.answered(key, part, reply);
                }
                Heard::Preliminary(Tag::Transfer(key, part), reply) => {
                    self.transfers.noticed(key, part, &reply);
                }
                Heard::Final(Tag::Request(request), reply) => {
                    self.outputs.push_back(Output::Answer { request, reply });
                }
                Heard::Preliminary(Tag::Request(request), reply) => {
                    self.outputs.push_back(Output::Notice { request, reply });
                }
                Heard::Line(Tag::Request(request), text) => {
                    self.outputs.push_back(Output::Line { request, text });
                }
                Heard::Final(Tag::Look(request, fact), reply) => {
                    self.looked(request, fact, reply);
                }
                Heard::Final(Tag::Unheard, _) | Heard::Line(..) | Heard::Preliminary(..) => {}
            }
            self.pump();
        }
        Ok(())
    }

    /// Lets transfers go on, and passes on what they say and send.
    fn pump(&mut self) {
        if self.ended.is_some() {
            return;
        }
        // A server that reads a login in one flight reads what follows with it.
        if self.ready || self.ahead {
            for (request, command) in std::mem::take(&mut self.requests) {
                match command {
                    Command::Mlst(Some(path)) if self.lacks_mlst() => self.look(request, path),
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
                if let Tag::Transfer(key, Part::Transfer) = tag {
                    self.transfers.retracted(key);
                }
            }
            // What was the last one that was waited for may have been taken back.
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

    fn refused(step: &'static str, reply: &Reply) -> Error {
        Error::Refused {
            step,
            reply: reply.to_string(),
        }
    }
}
