//! One client: the protocol's session, its sockets, and what it has open.

mod data;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Sleep;
use venturi_gridftp::server::{Answer, Output, Policy, Refusal, Request, Server};

use super::control::{Came, Control};
use super::disk::Disk;
use super::entry::CHECKSUMS;
use super::link::Link;
use super::transfer::Transfer;
use crate::serve::host::Host;
use crate::serve::metrics;

/// Rounds of a session before others have their turn.
const MAX_ROUNDS: u32 = 8;
/// Bytes of commands that wait while one is carried out: some hundred of a pipeline.
const QUEUED_BYTES: usize = 64 * 1024;
/// Passwords that may be wrong.
const LOGINS: u32 = 3;
/// Time between markers where a client says nothing of it (as servers of the Globus toolkit have it).
const MARKERS: Duration = Duration::from_secs(5);
/// How often within the time that nothing may move it is seen what has come to the client.
const LOOKS: u32 = 8;
/// How long a client may leave what was said untaken.
const TAKING: Duration = Duration::from_secs(60);

/// One client.
pub(super) struct Session {
    host: Arc<Host>,
    number: u64,
    peer: SocketAddr,
    /// Our end of the control connection.
    own: IpAddr,
    server: Server,
    began: Instant,
    control: Control,
    listener: Option<TcpListener>,
    connecting: Vec<JoinHandle<io::Result<TcpStream>>>,
    links: Vec<Link>,
    next_link: u64,
    disk: Disk,
    transfer: Option<Transfer>,
    user: Vec<u8>,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    /// When it was seen last what has come to the client.
    looked: Instant,
    /// No more is read until what has come is written: a marker may tell only of what is.
    settling: bool,
    closing: bool,
    over: bool,
}

impl Session {
    /// A session on a control connection.
    ///
    /// # Errors
    /// If it is gone.
    pub(super) fn open(
        host: Arc<Host>,
        socket: std::net::TcpStream,
        peer: SocketAddr,
        number: u64,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let own = socket.local_addr()?.ip().to_canonical();
        let settings = &host.settings;
        let policy = Policy {
            greeting: format!(
                // Clients pipeline uploads where they read `GridFTP Server`.
                "{} Venturi GridFTP Server {}",
                host.name,
                env!("CARGO_PKG_VERSION")
            ),
            epoch: UNIX_EPOCH.elapsed().unwrap_or_default(),
            peer: peer.ip().to_canonical(),
            writes: settings.write,
            third_party: settings.third_party,
            checksums: CHECKSUMS.map(str::to_owned).to_vec(),
            connections: settings.streams,
            block_bytes: settings.block_bytes,
            queued_bytes: QUEUED_BYTES,
            logins: LOGINS,
            login_patience: settings.login_time,
            idle_patience: settings.idle_time,
            data_patience: settings.stall_time,
            marker_interval: MARKERS,
        };
        host.log
            .event(|| json!({"event": "session", "session": number, "peer": peer.to_string()}));
        Ok(Self {
            server: Server::new(
                policy,
                host.grid.as_ref().and_then(|grid| grid.security()),
                Duration::ZERO,
            ),
            control: Control::new(TcpStream::from_std(socket)?),
            disk: Disk::new(Arc::clone(&host)),
            host,
            number,
            peer,
            own,
            began: Instant::now(),
            listener: None,
            connecting: Vec::new(),
            links: Vec::new(),
            next_link: 0,
            transfer: None,
            user: Vec::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            looked: Instant::now(),
            settling: false,
            closing: false,
            over: false,
        })
    }

    /// The server goes down.
    pub(super) fn leave(&mut self) {
        self.server.leave(self.began.elapsed());
    }

    /// The server is gone now. What goes on is told as broken, and what came of a file stays for a client that goes on.
    pub(super) fn cut(&mut self) {
        self.lose();
    }

    /// Does what can be done now; ready when the client has left.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_ROUNDS {
            // Each of them, whatever moved before.
            let moved = self.outputs()
                | self.say(cx)
                | self.hear(cx)
                | self.open_links(cx)
                | self.ask_disk(cx)
                | self.move_data(cx)
                | self.time(cx);
            if self.over || (self.closing && self.control.is_said()) {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.server.poll_output() {
            moved = true;
            match output {
                Output::Send(bytes) => self.control.say(&bytes),
                Output::Ask(request) => self.ask(request),
                Output::Connect {
                    addresses,
                    connections,
                } => self.connect(addresses, connections),
                Output::DropData => {
                    self.links.clear();
                    self.listener = None;
                    self.connecting.drain(..).for_each(|it| it.abort());
                }
                Output::CloseFile => {
                    let any = self.transfer.as_ref().is_some_and(|it| it.bytes > 0);
                    let held = self.held();
                    self.disk.close(any, held);
                    self.links.iter_mut().for_each(Link::forget);
                }
                Output::Ended { command, code } => self.ended(command, code),
                Output::Close => self.closing = true,
                // What this driver does not know, nobody asked for.
                _ => self.over = true,
            }
        }
        moved
    }

    fn ask(&mut self, request: Request) {
        match &request {
            Request::Read(path) | Request::Write { path, .. } | Request::List { path, .. } => {
                let listing = matches!(request, Request::List { .. });
                self.transfer = Some(Transfer::new(path, listing));
            }
            _ => {}
        }
        let answer = match request {
            Request::Listen => Some(self.listen()),
            Request::Login { user, password } => {
                let mapped = match (&self.host.grid, self.server.peer()) {
                    (Some(grid), Some(peer)) => grid.user(peer, &user),
                    _ => None,
                };
                let known = mapped.is_some();
                self.user = mapped.map_or(user, String::into_bytes);
                self.disk.login(self.user.clone(), password.0, known)
            }
            Request::Finish | Request::Verify { .. } => {
                let held = self.held();
                self.disk.end(request, held);
                None
            }
            request => self.disk.ask(request),
        };
        if let Some(answer) = answer {
            self.answer(answer);
        }
    }

    fn answer(&mut self, answer: Answer) {
        match &answer {
            Answer::Admitted { .. } => self.logged_in(true),
            Answer::Refused(Refusal::LoginDenied) => self.logged_in(false),
            _ => {}
        }
        self.server.answer(self.now(), answer);
    }

    fn logged_in(&self, admitted: bool) {
        if !admitted {
            metrics::add(&self.host.metrics.logins_refused, 1);
        }
        self.host.log.event(|| {
            json!({
                "event": "login", "session": self.number, "peer": self.peer.to_string(),
                "user": String::from_utf8_lossy(&self.user), "admitted": admitted,
            })
        });
    }

    fn ended(&mut self, command: &'static str, code: u16) {
        if let Some(transfer) = self.transfer.take() {
            let (host, block_bytes) = (&self.host, self.server.block_bytes());
            transfer.tell(
                host,
                self.number,
                self.peer,
                &self.user,
                command,
                code,
                block_bytes,
            );
        }
    }

    fn say(&mut self, cx: &mut Context<'_>) -> bool {
        match self.control.send(cx) {
            Ok(moved) => moved,
            Err(_) => self.lose(),
        }
    }

    fn hear(&mut self, cx: &mut Context<'_>) -> bool {
        // Who only asks and takes no answer is not heard.
        if !self.control.is_said() || self.closing {
            return false;
        }
        let room = self.server.room_bytes();
        if room == 0 {
            return false;
        }
        let (server, now) = (&mut self.server, self.began.elapsed());
        match self
            .control
            .read(cx, room, |bytes| server.handle_input(now, bytes))
        {
            Ok(Came::Nothing) => false,
            Ok(Came::Bytes(_)) => true,
            Ok(Came::End) | Err(_) => self.lose(),
        }
    }

    /// The client is gone.
    fn lose(&mut self) -> bool {
        self.server.handle_closed();
        self.outputs();
        self.over = true;
        true
    }

    fn ask_disk(&mut self, cx: &mut Context<'_>) -> bool {
        if self.control.is_full() {
            // A long listing waits for its reader.
            return false;
        }
        let (answer, moved) = self.disk.poll(cx);
        if let Some(answer) = answer {
            self.answer(answer);
        }
        if let Some(errno) = self.disk.writing().and_then(|writing| writing.failed()) {
            // Not while it ends: then it is the answer.
            if self.server.is_transferring() {
                let now = self.now();
                self.server.file_failed(now, super::entry::refusal(errno));
                return true;
            }
        }
        moved
    }

    /// Lets time pass, and sees to it that it will.
    fn time(&mut self, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        if self
            .control
            .stuck()
            .is_some_and(|since| now >= since + TAKING)
        {
            return self.lose();
        }
        let look = self.look(now);
        let due = self.server.poll_timeout().map(|due| self.began + due);
        self.settling = due.is_some_and(|due| now >= due) && !self.is_settled();
        if due.is_some_and(|due| now >= due) {
            if !self.settling {
                self.server.handle_timeout(now.duration_since(self.began));
                return true;
            }
            // What was passed on just now has to be asked after.
            return self.settle();
        }
        let stuck = self.control.stuck().map(|since| since + TAKING);
        let next = [due, stuck, look].into_iter().flatten().min();
        self.arm(cx, next)
    }

    /// Sees what has come to a client who reads slowly; gives when to look again.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        if self.links.is_empty() || !self.server.is_transferring() {
            return None;
        }
        let pause = self.host.settings.stall_time / LOOKS;
        if now >= self.looked + pause {
            self.looked = now;
            let bytes = self.links.iter_mut().map(Link::acknowledged).sum();
            if bytes > 0 {
                self.server.data_sent(now.duration_since(self.began), bytes);
            }
        }
        Some(self.looked + pause)
    }

    /// Has the session woken then. A later time is seen to when the earlier one has come: most are put off before.
    fn arm(&mut self, cx: &mut Context<'_>, next: Option<Instant>) -> bool {
        let Some(next) = next else { return false };
        if self.armed.is_none_or(|armed| next < armed) {
            self.armed = Some(next);
            self.timer.as_mut().reset(next.into());
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            self.armed = None;
            return true;
        }
        false
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connecting.drain(..).for_each(|it| it.abort());
        let seconds = self.began.elapsed().as_secs_f64();
        let (number, peer, at) = (self.number, self.peer, SystemTime::now());
        self.host.log.event(|| {
            let at = at
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64();
            json!({
                "event": "session_end", "session": number, "peer": peer.to_string(),
                "end_unix_s": at, "duration_s": seconds,
            })
        });
    }
}
