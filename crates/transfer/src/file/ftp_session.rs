//! Session with an FTP or GridFTP server for single operations, one after the other. The protocol logic is in [`Client`].
//!
//! In contrast to the sessions of a copy, nothing is pipelined, and each file has its own data connection (MODE S).

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, timeout};
use venturi_gridftp::client::{
    Client, ClientOutput, ClientSettings, ConnectionPurpose, TransferJob,
};
use venturi_gridftp::{
    ConnectionRole, DataOut, DataSecurity, FtpCommand, FtpError, FtpReply, Mode, Security,
};

use super::content::BLOCK_BYTES;
use super::error::{ErrorKind, FileError};
use crate::ftp::control_connection::ControlConnection;
use crate::ftp::session_config::DataProtectionRequest;
use crate::ftp::session_pool::login;
use crate::net::grid::{Grid, now_s};
use crate::net::sockets::Tcp;
use crate::net::url::Url;

/// Interval of checks for timeouts.
const TICK: Duration = Duration::from_millis(100);
/// Maximum bytes of replies that are read at a time.
const REPLIES_BYTES: usize = 16 << 10;

/// Bytes of a transfer.
pub(super) trait TransferBytes {
    /// Add the bytes from this position to a block. Positions are consecutive.
    fn send(&mut self, offset: u64, bytes: u64, into: &mut Vec<u8>);

    /// Take received bytes from this position. Positions are consecutive.
    fn receive(&mut self, offset: u64, bytes: &[u8]);
}

/// No transfer.
struct NoBytes;

impl TransferBytes for NoBytes {
    fn send(&mut self, _: u64, _: u64, _: &mut Vec<u8>) {}
    fn receive(&mut self, _: u64, _: &[u8]) {}
}

/// Session with a server.
pub(super) struct SingleFtpSession {
    pub(super) client: Client,
    control: ControlConnection,
    unsent: Vec<u8>,
    data: Option<DataConnection>,
    started: Instant,
    tick: Interval,
    timeout: Duration,
    /// Number of the next request, transfer or data connection.
    next: u64,
    /// Reason of the last failed data connection.
    connection_error: Option<String>,
}

/// Data connection of one transfer.
struct DataConnection {
    number: u64,
    socket: TcpStream,
    layer: Option<Box<dyn DataSecurity>>,
    /// Received bytes that the client has not accepted yet.
    unread: Vec<u8>,
    /// Bytes to send.
    unsent: Vec<u8>,
    /// The file is complete: the connection closes after the last byte.
    is_complete: bool,
    is_shut: bool,
}

impl SingleFtpSession {
    /// Open a session and log in.
    ///
    /// # Errors
    /// No connection, or a failed login.
    pub(super) async fn open(
        server: &Url,
        grid: Option<&Grid>,
        limit: Duration,
    ) -> Result<Self, FileError> {
        let control = connect(server, limit).await?;
        let data = grid.and_then(|grid| DataProtectionRequest::Usual.data(grid));
        // Without need, no proxy is delegated.
        let delegates = data.is_some();
        let security: Option<Box<dyn Security>> = grid
            .map(|grid| grid.client(&server.host, delegates))
            .transpose()
            .map_err(|error| FileError::new(ErrorKind::Permission, error.to_string()))?;
        let settings = ClientSettings {
            login: login(server),
            server: control.peer(),
            mode: Mode::Stream,
            connections: 1,
            depth: 1,
            block_bytes: BLOCK_BYTES as u64,
            buffer_bytes: None,
            data,
            upload: None,
            attempts: 1,
            striped: false,
            stall_timeout: limit,
        };
        let mut client = Client::new(settings, security, Duration::ZERO)
            .map_err(|error| FileError::new(ErrorKind::Invalid, error.to_string()))?;
        client.allow_open_data();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut session = Self {
            client,
            control,
            unsent: Vec::new(),
            data: None,
            started: Instant::now(),
            tick,
            timeout: limit,
            next: 0,
            connection_error: None,
        };
        let ready = |output| matches!(output, ClientOutput::Ready).then_some(());
        session.until(&mut NoBytes, ready).await?;
        Ok(session)
    }

    /// Send a command and return its reply.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn request(&mut self, command: FtpCommand) -> Result<FtpReply, FileError> {
        let number = self.number();
        self.client.request(self.now(), number, command);
        self.until(&mut NoBytes, |output| match output {
            ClientOutput::Reply { request, reply } if request == number => Some(reply),
            _ => None,
        })
        .await
    }

    /// Execute a transfer. If it failed, return the reason, and whether the server had started it.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn transfer(
        &mut self,
        job: impl FnOnce(u64) -> TransferJob,
        bytes: &mut dyn TransferBytes,
    ) -> Result<Result<(), (String, bool)>, FileError> {
        let number = self.number();
        self.connection_error = None;
        self.client.transfer(self.now(), job(number));
        let mut started = false;
        let result = self
            .until(bytes, |output| match output {
                ClientOutput::Started { transfer } if transfer == number => {
                    started = true;
                    None
                }
                ClientOutput::Done { transfer, .. } if transfer == number => Some(Ok(())),
                ClientOutput::Failed { transfer, failure } if transfer == number => {
                    Some(Err(failure.reason))
                }
                _ => None,
            })
            .await?;
        self.data = None;
        Ok(result.map_err(|reason| match self.connection_error.take() {
            Some(error) => (format!("{reason}: {error}"), started),
            None => (reason, started),
        }))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Run the session until an output has a result.
    async fn until<T>(
        &mut self,
        bytes: &mut dyn TransferBytes,
        mut result: impl FnMut(ClientOutput) -> Option<T>,
    ) -> Result<T, FileError> {
        let mut ended = Ok(());
        loop {
            while let Some(output) = self.client.poll_output() {
                match output {
                    ClientOutput::Send(bytes) => self.unsent.extend(bytes),
                    ClientOutput::Connect {
                        address, purpose, ..
                    } => self.connect_data(address, purpose).await,
                    ClientOutput::CloseData { .. } | ClientOutput::DropData { .. } => {
                        self.data = None;
                    }
                    output => {
                        if let Some(result) = result(output) {
                            return Ok(result);
                        }
                    }
                }
            }
            if let Err(error) = ended {
                let lost = self.control.explain(FtpError::to_string(&error));
                return Err(match error {
                    FtpError::Rejected { .. } | FtpError::Security(_) => {
                        FileError::rejection(&lost, ErrorKind::Permission)
                    }
                    _ => FileError::text(lost),
                });
            }
            ended = poll_fn(|cx| self.poll(cx, bytes)).await;
        }
    }

    async fn connect_data(&mut self, address: SocketAddr, purpose: ConnectionPurpose) {
        let opened = match timeout(self.timeout, Tcp::default().connect(address)).await {
            Ok(opened) => opened,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        let secured = opened
            .map_err(|error| {
                let reason = crate::error::describe(&error);
                format!("cannot open a data connection to {address}: {reason}")
            })
            .and_then(|socket| {
                let layer = self.client.data_layer(ConnectionRole::Connects, now_s());
                let layer = layer.map_err(|error| error.to_string())?;
                let mut unsent = Vec::new();
                let mut layer = layer;
                if let Some(layer) = &mut layer {
                    layer
                        .output(&mut unsent)
                        .map_err(|error| error.to_string())?;
                }
                Ok((socket, layer, unsent))
            });
        let now = self.now();
        match secured {
            Err(reason) => self.client.connect_failed(now, purpose, &reason),
            Ok((socket, layer, unsent)) => {
                let number = self.number();
                if self.client.data_opened(now, number, purpose) {
                    self.data = Some(DataConnection {
                        number,
                        socket,
                        layer,
                        unread: Vec::new(),
                        unsent,
                        is_complete: false,
                        is_shut: false,
                    });
                }
            }
        }
    }

    /// Move bytes. Ready if the client can have outputs, or if the session has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut dyn TransferBytes,
    ) -> Poll<Result<(), FtpError>> {
        let sent = self.poll_send(cx);
        let replied = match self.poll_replies(cx) {
            Ok(moved) => moved,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let moved = self.poll_data_out(cx, bytes) | self.poll_data_in(cx, bytes);
        let ticked = self.tick.poll_tick(cx).is_ready();
        if ticked && let Err(error) = self.client.handle_timeout(self.now()) {
            return Poll::Ready(Err(error));
        }
        if sent | replied | moved | ticked {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Send commands. After an error, the end of the connection follows among the replies.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.unsent.is_empty() && self.control.poll_write_ready(cx).is_ready() {
            match self.control.try_write(&self.unsent) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.unsent.clear(),
            }
        }
        moved
    }

    fn poll_replies(&mut self, cx: &mut Context<'_>) -> Result<bool, FtpError> {
        let (mut block, mut moved) = ([0; REPLIES_BYTES], false);
        while self.control.poll_read_ready(cx).is_ready() {
            let now = self.now();
            match self.control.try_read(&mut block) {
                Ok(count) if count > 0 => self.client.handle_input(now, &block[..count])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                _ => self.client.handle_closed()?,
            }
            moved = true;
        }
        Ok(moved)
    }

    fn poll_data_out(&mut self, cx: &mut Context<'_>, bytes: &mut dyn TransferBytes) -> bool {
        let now = self.started.elapsed();
        let Some(data) = &mut self.data else {
            return false;
        };
        let mut moved = false;
        loop {
            while data.unsent.is_empty()
                && !data.is_complete
                && data.layer.as_ref().is_none_or(|layer| layer.is_ready())
                && let Some(out) = self.client.poll_data(now, data.number)
            {
                let mut plain = Vec::new();
                match out {
                    DataOut::Bytes(bytes) => plain = bytes,
                    DataOut::Payload {
                        header,
                        offset,
                        bytes: count,
                        ..
                    } => {
                        plain.extend(header.iter().flatten());
                        bytes.send(offset, count, &mut plain);
                    }
                    DataOut::Close => data.is_complete = true,
                }
                moved = true;
                match &mut data.layer {
                    None => data.unsent = plain,
                    Some(layer) => {
                        if let Err(error) = layer.protect(&plain, &mut data.unsent) {
                            self.connection_error = Some(error.to_string());
                            return self.close_data(false);
                        }
                    }
                }
            }
            if data.unsent.is_empty() {
                break;
            }
            if data.socket.poll_write_ready(cx).is_pending() {
                return moved;
            }
            match data.socket.try_write(&data.unsent) {
                Ok(count) => {
                    data.unsent.drain(..count);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.connection_error = Some(crate::error::describe(&error));
                    return self.close_data(false);
                }
            }
        }
        if data.is_complete && !data.is_shut {
            data.is_shut = true;
            moved = true;
            if rustix::net::shutdown(&data.socket, rustix::net::Shutdown::Write).is_err() {
                return self.close_data(false);
            }
        }
        moved
    }

    fn poll_data_in(&mut self, cx: &mut Context<'_>, bytes: &mut dyn TransferBytes) -> bool {
        let mut moved = false;
        loop {
            let now = self.started.elapsed();
            let Some(data) = &mut self.data else {
                return moved;
            };
            while !data.unread.is_empty() {
                let delivered = self.client.handle_data(now, data.number, &data.unread);
                if delivered.consumed == 0 {
                    // The client accepts it after the next reply.
                    return moved;
                }
                moved = true;
                if let Some(payload) = delivered.payload {
                    let start = delivered.consumed - payload.bytes;
                    bytes.receive(payload.offset, &data.unread[start..delivered.consumed]);
                }
                data.unread.drain(..delivered.consumed);
            }
            if data.socket.poll_read_ready(cx).is_pending() {
                return moved;
            }
            let mut block = vec![0; BLOCK_BYTES];
            match data.socket.try_read(&mut block) {
                Ok(0) => return self.close_data(true),
                Ok(count) => {
                    moved = true;
                    if let Err(error) = data.take(&block[..count]) {
                        self.connection_error = Some(error.to_string());
                        return self.close_data(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.connection_error = Some(crate::error::describe(&error));
                    return self.close_data(false);
                }
            }
        }
    }

    fn close_data(&mut self, cleanly: bool) -> bool {
        if let Some(data) = self.data.take() {
            self.client.data_closed(self.now(), data.number, cleanly);
        }
        true
    }
}

impl DataConnection {
    /// Take received bytes, through the security layer.
    fn take(&mut self, bytes: &[u8]) -> Result<(), FtpError> {
        let Some(layer) = &mut self.layer else {
            self.unread.extend_from_slice(bytes);
            return Ok(());
        };
        let taken = layer.handle_input(bytes, &mut self.unread);
        let output = layer.output(&mut self.unsent);
        taken.and(output)?;
        if layer.is_ready() && layer.is_clear() && self.unsent.is_empty() {
            self.layer = None;
        }
        Ok(())
    }
}

/// Open the control connection to the first address that accepts it.
async fn connect(server: &Url, limit: Duration) -> Result<ControlConnection, FileError> {
    let timed_out = |what: &str| {
        let seconds = limit.as_secs();
        FileError::new(
            ErrorKind::Timeout,
            format!("timed out: {what} within {seconds} s"),
        )
    };
    let name = (server.host.as_str(), server.port);
    let found = timeout(limit, tokio::net::lookup_host(name)).await;
    let found = found.map_err(|_| timed_out("no address"))?;
    let addresses: Vec<SocketAddr> = found
        .map_err(|error| {
            FileError::new(
                ErrorKind::Unresolved,
                format!("no address for {}: {error}", server.host),
            )
        })?
        .collect();
    let mut last = FileError::new(
        ErrorKind::Unresolved,
        format!("no address for {}", server.host),
    );
    for address in addresses {
        let url = Url {
            host: address.ip().to_string(),
            ..server.clone()
        };
        match timeout(limit, ControlConnection::open(&url, false)).await {
            Ok(Ok((control, _))) => return Ok(control),
            Ok(Err(reason)) => last = FileError::text(reason),
            Err(_) => last = timed_out("no connection"),
        }
    }
    Err(last)
}
