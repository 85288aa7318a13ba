//! FTP client session: protocol state, sockets and open files.

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
use venturi_gridftp::server::{
    DriverRequest, DriverResponse, GlobusError, Server, ServerOutput, ServerPolicy,
};

use super::control::{ControlRead, ControlSocket};
use super::data_connection::ServerDataConnection;
use super::disk::Disk;
use super::entry::CHECKSUMS;
use super::transfer::RunningTransfer;
use crate::serve::metrics;
use crate::serve::state::ServerState;

/// Maximum rounds of a session before others continue.
const MAX_ROUNDS: u32 = 8;
/// Maximum bytes of queued commands, some hundred commands of a pipeline.
const QUEUED_BYTES: usize = 64 * 1024;
/// Maximum number of wrong passwords.
const LOGINS: u32 = 3;
/// Default interval of markers, as in Globus servers.
const MARKERS: Duration = Duration::from_secs(5);
/// Checks of acknowledged bytes within the stall timeout.
const CHECKS: u32 = 8;
/// Timeout of a client that does not read replies.
const TAKING: Duration = Duration::from_secs(60);

/// Session of one client.
pub(super) struct FtpServerSession {
    host: Arc<ServerState>,
    number: u64,
    peer: SocketAddr,
    /// Local address of the control connection.
    own: IpAddr,
    server: Server,
    started_at: Instant,
    control: ControlSocket,
    listener: Option<TcpListener>,
    connecting: Vec<JoinHandle<io::Result<TcpStream>>>,
    connections: Vec<ServerDataConnection>,
    next_connection: u64,
    disk: Disk,
    transfer: Option<RunningTransfer>,
    user: Vec<u8>,
    timer: Pin<Box<Sleep>>,
    armed: Option<Instant>,
    /// Time of the last check of acknowledged bytes.
    checked_at: Instant,
    /// True if reading pauses until received data is written, because a marker may report only written data.
    is_draining: bool,
    closing: bool,
    over: bool,
}

impl FtpServerSession {
    /// Open a session on a control connection.
    ///
    /// # Errors
    /// The connection is closed.
    pub(super) fn open(
        host: Arc<ServerState>,
        socket: std::net::TcpStream,
        peer: SocketAddr,
        number: u64,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let own = socket.local_addr()?.ip().to_canonical();
        let settings = &host.settings;
        let policy = ServerPolicy {
            greeting: format!(
                // Clients pipeline uploads if the greeting contains `GridFTP Server`.
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
            login_timeout: settings.login_time,
            idle_timeout: settings.idle_time,
            stall_timeout: settings.stall_time,
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
            control: ControlSocket::new(TcpStream::from_std(socket)?),
            disk: Disk::new(Arc::clone(&host)),
            host,
            number,
            peer,
            own,
            started_at: Instant::now(),
            listener: None,
            connecting: Vec::new(),
            connections: Vec::new(),
            next_connection: 0,
            transfer: None,
            user: Vec::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            checked_at: Instant::now(),
            is_draining: false,
            closing: false,
            over: false,
        })
    }

    /// Start the shutdown of the session.
    pub(super) fn drain(&mut self) {
        self.server.leave(self.started_at.elapsed());
    }

    /// Abort on server exit. Running transfers are reported as broken, and partial files stay for clients that
    /// resume.
    pub(super) fn cut(&mut self) {
        self.disconnect();
    }

    /// Make progress; ready when the client has disconnected.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_ROUNDS {
            // All steps run, even if earlier ones made progress.
            let moved = self.outputs()
                | self.queue(cx)
                | self.read_control(cx)
                | self.open_connections(cx)
                | self.poll_disk(cx)
                | self.move_data(cx)
                | self.time(cx);
            if self.over || (self.closing && self.control.is_sent()) {
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
        self.started_at.elapsed()
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.server.poll_output() {
            moved = true;
            match output {
                ServerOutput::Send(bytes) => self.control.queue(&bytes),
                ServerOutput::Request(request) => self.handle(request),
                ServerOutput::Connect {
                    addresses,
                    connections,
                } => self.connect(addresses, connections),
                ServerOutput::DropData => {
                    self.connections.clear();
                    self.listener = None;
                    self.connecting.drain(..).for_each(|it| it.abort());
                }
                ServerOutput::CloseFile => {
                    let any = self.transfer.as_ref().is_some_and(|it| it.bytes > 0);
                    let pending = self.pending();
                    self.disk.close(any, pending);
                    self.connections
                        .iter_mut()
                        .for_each(ServerDataConnection::forget);
                }
                ServerOutput::Ended { command, code } => self.ended(command, code),
                ServerOutput::Close => self.closing = true,
                // The session never sends requests that this driver does not support.
                _ => self.over = true,
            }
        }
        moved
    }

    fn handle(&mut self, request: DriverRequest) {
        match &request {
            DriverRequest::Read(path)
            | DriverRequest::Write { path, .. }
            | DriverRequest::List { path, .. } => {
                let listing = matches!(request, DriverRequest::List { .. });
                self.transfer = Some(RunningTransfer::new(path, listing));
            }
            _ => {}
        }
        let response = match request {
            DriverRequest::Listen => Some(self.listen()),
            DriverRequest::Login { user, password } => {
                let mapped = match (&self.host.grid, self.server.peer()) {
                    (Some(grid), Some(peer)) => grid.user(peer, &user),
                    _ => None,
                };
                let known = mapped.is_some();
                self.user = mapped.map_or(user, String::into_bytes);
                self.disk.login(self.user.clone(), password.0, known)
            }
            DriverRequest::Finish | DriverRequest::Verify { .. } => {
                let pending = self.pending();
                self.disk.finish(request, pending);
                None
            }
            request => self.disk.handle(request),
        };
        if let Some(response) = response {
            self.respond(response);
        }
    }

    fn respond(&mut self, response: DriverResponse) {
        match &response {
            DriverResponse::Admitted { .. } => self.logged_in(true),
            DriverResponse::Failed(GlobusError::LoginDenied) => self.logged_in(false),
            _ => {}
        }
        self.server.respond(self.now(), response);
    }

    fn logged_in(&self, admitted: bool) {
        if !admitted {
            metrics::add(&self.host.metrics.logins_rejected, 1);
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
            transfer.report(
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

    fn queue(&mut self, cx: &mut Context<'_>) -> bool {
        match self.control.send(cx) {
            Ok(moved) => moved,
            Err(_) => self.disconnect(),
        }
    }

    fn read_control(&mut self, cx: &mut Context<'_>) -> bool {
        // Commands wait while the client does not read replies.
        if !self.control.is_sent() || self.closing {
            return false;
        }
        let space = self.server.input_capacity();
        if space == 0 {
            return false;
        }
        let (server, now) = (&mut self.server, self.started_at.elapsed());
        match self
            .control
            .read(cx, space, |bytes| server.handle_input(now, bytes))
        {
            Ok(ControlRead::Nothing) => false,
            Ok(ControlRead::Bytes(_)) => true,
            Ok(ControlRead::Closed) | Err(_) => self.disconnect(),
        }
    }

    /// Handle the disconnection of the client.
    fn disconnect(&mut self) -> bool {
        self.server.handle_closed();
        self.outputs();
        self.over = true;
        true
    }

    fn poll_disk(&mut self, cx: &mut Context<'_>) -> bool {
        if self.control.is_full() {
            // A long listing waits for its reader.
            return false;
        }
        let (response, moved) = self.disk.poll(cx);
        if let Some(response) = response {
            self.respond(response);
        }
        if let Some(errno) = self.disk.writer().and_then(|writer| writer.failed()) {
            // Not during completion, which sends the reply.
            if self.server.is_transferring() {
                let now = self.now();
                self.server.file_failed(now, super::entry::rejection(errno));
                return true;
            }
        }
        moved
    }

    /// Handle due timeouts and set the timer for the next one.
    fn time(&mut self, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        if self
            .control
            .stuck()
            .is_some_and(|since| now >= since + TAKING)
        {
            return self.disconnect();
        }
        let check_stall = self.check_stall(now);
        let due = self.server.poll_timeout().map(|due| self.started_at + due);
        self.is_draining = due.is_some_and(|due| now >= due) && !self.is_drained();
        if due.is_some_and(|due| now >= due) {
            if !self.is_draining {
                self.server
                    .handle_timeout(now.duration_since(self.started_at));
                return true;
            }
            // Data that was just written needs another check.
            return self.drain_links();
        }
        let stuck = self.control.stuck().map(|since| since + TAKING);
        let next = [due, stuck, check_stall].into_iter().flatten().min();
        self.arm(cx, next)
    }

    /// Check the bytes that reached a slow client; return the time of the next check.
    fn check_stall(&mut self, now: Instant) -> Option<Instant> {
        if self.connections.is_empty() || !self.server.is_transferring() {
            return None;
        }
        let pause = self.host.settings.stall_time / CHECKS;
        if now >= self.checked_at + pause {
            self.checked_at = now;
            let bytes = self
                .connections
                .iter_mut()
                .map(ServerDataConnection::acknowledged)
                .sum();
            if bytes > 0 {
                self.server
                    .data_sent(now.duration_since(self.started_at), bytes);
            }
        }
        Some(self.checked_at + pause)
    }

    /// Set the timer to wake the session at `next`. A later time is set only when the earlier timer
    /// expires, because most timeouts are postponed before.
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

impl Drop for FtpServerSession {
    fn drop(&mut self) {
        self.connecting.drain(..).for_each(|it| it.abort());
        let seconds = self.started_at.elapsed().as_secs_f64();
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
