//! A minimal test driver for a session over sockets, with one thread and all data in memory. It
//! polls, while the mover waits for events.

#![allow(dead_code, reason = "each test takes what it needs")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a driver has the sockets and clocks that the crate has not"
)]

pub mod relay;
mod trace;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use trace::Trace;
use venturi_gridftp::client::{
    Client, ClientOutput, ClientSettings, ConnectionPurpose, TransferJob,
};
use venturi_gridftp::{ConnectionRole, DataOut, DataSecurity, Security};

/// Maximum duration of one wait.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes per read. Odd, so that blocks are split at any position.
const CHUNK_BYTES: usize = 70_001;

struct Link {
    socket: TcpStream,
    purpose: ConnectionPurpose,
    layer: Option<Box<dyn DataSecurity>>,
    unread: Vec<u8>,
    unwritten: Vec<u8>,
    closing: bool,
}

/// A client with its sockets.
pub struct Driver {
    pub client: Client,
    control: TcpStream,
    listener: Option<TcpListener>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    buffer: Vec<u8>,
    /// Maximum bytes of replies per turn. With few bytes, the server is ahead of the client.
    pub replies_bytes: usize,
    started_at: Instant,
    /// Uploaded bytes, by transfer.
    pub sources: BTreeMap<u64, Vec<u8>>,
    /// Downloaded bytes, by transfer.
    pub sinks: BTreeMap<u64, Vec<u8>>,
    /// Outputs of the session, except bytes to send and connections.
    pub received_replies: Vec<ClientOutput>,
    /// Reasons for unsecured connections.
    pub rejected: Vec<String>,
    trace: Trace,
}

impl Driver {
    pub fn connect(address: SocketAddr, settings: ClientSettings) -> Self {
        Self::connect_secured(address, settings, None)
    }

    pub fn connect_secured(
        address: SocketAddr,
        settings: ClientSettings,
        security: Option<Box<dyn Security>>,
    ) -> Self {
        let control = TcpStream::connect(address).expect("a server listens");
        control.set_nonblocking(true).expect("a socket");
        control.set_nodelay(true).expect("a socket");
        Self {
            client: Client::new(settings, security, Duration::ZERO).expect("settings of a test"),
            control,
            listener: None,
            links: BTreeMap::new(),
            next_link: 0,
            buffer: vec![0; CHUNK_BYTES],
            replies_bytes: 4096,
            started_at: Instant::now(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            received_replies: Vec::new(),
            rejected: Vec::new(),
            trace: Trace::default(),
        }
    }

    /// Returns the number of open data connections.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    pub fn ready(&mut self) {
        self.until(|driver| driver.received_replies.contains(&ClientOutput::Ready));
    }

    /// Executes jobs until each is done or failed.
    pub fn run(&mut self, jobs: Vec<TransferJob>) {
        let now = self.now();
        for job in jobs {
            self.client.transfer(now, job);
        }
        self.until(|driver| driver.client.open_transfers() == 0);
        // The reply to a later command shows that the session has finished its cleanup.
        let now = self.now();
        self.received_replies.retain(|output| {
            !matches!(
                output,
                ClientOutput::Reply {
                    request: u64::MAX,
                    ..
                }
            )
        });
        self.client
            .request(now, u64::MAX, venturi_gridftp::FtpCommand::Noop);
        self.until(|driver| {
            matches!(
                driver.received_replies.last(),
                Some(ClientOutput::Reply {
                    request: u64::MAX,
                    ..
                })
            )
        });
    }

    pub fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < STALL_TIMEOUT, "nothing more after {self}");
            self.turn();
        }
    }

    /// Moves available bytes, or sleeps.
    pub fn turn(&mut self) {
        let _ = self.client.handle_timeout(self.now());
        let moved = [
            self.outputs(),
            self.read_control(),
            self.accept(),
            self.move_data(),
        ];
        if !moved.contains(&true) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.client.poll_output() {
            moved = true;
            match output {
                ClientOutput::Send(bytes) => {
                    self.trace.note_lines(self.now(), ">", &bytes);
                    self.control.set_nonblocking(false).expect("a socket");
                    self.control.write_all(&bytes).expect("the server reads");
                    self.control.set_nonblocking(true).expect("a socket");
                }
                ClientOutput::Listen => {
                    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
                    listener.set_nonblocking(true).expect("a socket");
                    let address = listener.local_addr().expect("bound");
                    self.listener = Some(listener);
                    self.client.listening(self.now(), address);
                }
                ClientOutput::Connect {
                    address,
                    connections,
                    purpose,
                } => {
                    for _ in 0..connections {
                        match TcpStream::connect(address) {
                            Ok(socket) => self.open(socket, purpose, ConnectionRole::Connects),
                            Err(error) => {
                                let now = self.now();
                                let event =
                                    format!("no connection to {address} for {purpose:?}: {error}");
                                self.trace.note(now, &event);
                                self.client.connect_failed(now, purpose, &error.to_string());
                            }
                        }
                    }
                }
                ClientOutput::CloseData { connection } => {
                    self.trace.note(self.now(), &format!("close {connection}"));
                    self.links.remove(&connection);
                }
                ClientOutput::DropData { .. } => {
                    self.trace.note(self.now(), "close all");
                    self.links.clear();
                    self.listener = None;
                }
                other => {
                    self.trace.note(self.now(), &format!("{other:?}"));
                    self.received_replies.push(other);
                }
            }
        }
        moved
    }

    fn open(&mut self, socket: TcpStream, purpose: ConnectionPurpose, end: ConnectionRole) {
        socket.set_nonblocking(true).expect("a socket");
        let layer = self.client.data_layer(end, unix_s()).expect("a credential");
        let mut link = Link {
            socket,
            purpose,
            layer,
            unread: Vec::new(),
            unwritten: Vec::new(),
            closing: false,
        };
        if let Some(layer) = &mut link.layer {
            layer.output(&mut link.unwritten).expect("a layer");
        }
        let (now, number) = (self.now(), self.next_link);
        self.next_link += 1;
        let ends = [link.socket.local_addr(), link.socket.peer_addr()];
        self.links.insert(number, link);
        let expected = self.client.data_opened(now, number, purpose);
        if !expected {
            // Close it: the server assigned it to another transfer and waits for its end.
            self.links.remove(&number);
        }
        let event = format!("open {number} {ends:?} for {purpose:?}, wanted: {expected}");
        self.trace.note(now, &event);
    }

    /// Passes received bytes to the layer of a connection.
    fn unwrap(&mut self, number: u64, count: usize) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let Some(layer) = &mut link.layer else {
            link.unread.extend_from_slice(&self.buffer[..count]);
            return;
        };
        let taken = layer.handle_input(&self.buffer[..count], &mut link.unread);
        layer.output(&mut link.unwritten).expect("a layer");
        if let Err(error) = taken {
            let now = self.now();
            self.trace.note(now, &format!("{number}: {error}"));
            self.rejected.push(error.to_string());
            self.links.remove(&number);
            self.client.data_closed(now, number, false);
        } else if layer.is_ready() && layer.is_clear() {
            link.layer = None;
        }
    }

    fn read_control(&mut self) -> bool {
        let mut buffer = vec![0; self.replies_bytes];
        match self.control.read(&mut buffer) {
            Ok(0) => {
                let _ = self.client.handle_closed();
                false
            }
            Ok(count) => {
                let now = self.now();
                self.trace.note_lines(now, "<", &buffer[..count]);
                self.client
                    .handle_input(now, &buffer[..count])
                    .expect("a session");
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => {
                let _ = self.client.handle_closed();
                false
            }
        }
    }

    fn accept(&mut self) -> bool {
        let accepted = self
            .listener
            .as_ref()
            .and_then(|listener| listener.accept().ok());
        let moved = accepted.is_some();
        if let Some((socket, _)) = accepted {
            self.open(
                socket,
                ConnectionPurpose::Stripe(0),
                ConnectionRole::Accepts,
            );
        }
        moved
    }

    fn move_data(&mut self) -> bool {
        let mut moved = false;
        for number in self.links.keys().copied().collect::<Vec<_>>() {
            moved |= self.write_data(number) | self.read_data(number);
        }
        moved
    }

    fn read_data(&mut self, number: u64) -> bool {
        let now = self.now();
        let Some(link) = self.links.get_mut(&number) else {
            return false;
        };
        let mut ended = None;
        if link.unread.len() < CHUNK_BYTES {
            match link.socket.read(&mut self.buffer) {
                Ok(0) => ended = Some(true),
                Ok(count) => self.unwrap(number, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => ended = Some(false),
            }
        }
        let mut moved = false;
        while let Some(link) = self
            .links
            .get_mut(&number)
            .filter(|link| !link.unread.is_empty())
        {
            let delivered = self.client.handle_data(now, number, &link.unread);
            if delivered.consumed == 0 {
                break;
            }
            moved = true;
            let used: Vec<u8> = link.unread.drain(..delivered.consumed).collect();
            if let Some(payload) = delivered.payload {
                let sink = self.sinks.entry(payload.transfer).or_default();
                let offset = payload.offset as usize;
                let end = offset + payload.bytes;
                let length = sink.len().max(end);
                sink.resize(length, 0);
                sink[offset..end].copy_from_slice(&used[used.len() - payload.bytes..]);
            }
        }
        let empty = self
            .links
            .get(&number)
            .is_none_or(|link| link.unread.is_empty());
        if let Some(cleanly) = ended.filter(|_| empty) {
            self.trace
                .note(now, &format!("{number} ended, cleanly: {cleanly}"));
            self.links.remove(&number);
            self.client.data_closed(now, number, cleanly);
            moved = true;
        }
        moved
    }

    fn write_data(&mut self, number: u64) -> bool {
        let now = self.now();
        let Some(link) = self.links.get_mut(&number) else {
            return false;
        };
        let mut moved = false;
        let secured = |link: &Link| link.layer.as_ref().is_none_or(|layer| layer.is_ready());
        while secured(link) && link.unwritten.len() < CHUNK_BYTES && !link.closing {
            let mut plain = Vec::new();
            match self.client.poll_data(now, number) {
                None => break,
                Some(DataOut::Close) => {
                    self.trace.note(now, &format!("{number}: end"));
                    link.closing = true;
                }
                Some(DataOut::Bytes(bytes)) => plain.extend(bytes),
                Some(DataOut::Payload {
                    header,
                    transfer,
                    offset,
                    bytes,
                }) => {
                    let event = format!("{number}: {bytes} of {transfer} from {offset}");
                    self.trace.note(now, &event);
                    plain.extend(header.iter().flatten());
                    let start = offset as usize;
                    plain.extend(&self.sources[&transfer][start..start + bytes as usize]);
                }
            }
            match &mut link.layer {
                Some(layer) => layer.protect(&plain, &mut link.unwritten).expect("a layer"),
                None => link.unwritten.append(&mut plain),
            }
            moved = true;
        }
        if !link.unwritten.is_empty() {
            match link.socket.write(&link.unwritten) {
                Ok(count) => {
                    link.unwritten.drain(..count);
                    moved |= count > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => link.unwritten.clear(),
            }
        }
        if link.closing
            && link.unwritten.is_empty()
            && matches!(link.purpose, ConnectionPurpose::Transfer(_))
        {
            let _ = link.socket.shutdown(std::net::Shutdown::Write);
        }
        moved
    }
}

/// Returns seconds since 1970.
pub fn unix_s() -> u64 {
    std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs()
}

/// The last replies and actions and the unsent bytes, to diagnose a stall.
impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self
            .received_replies
            .iter()
            .rev()
            .take(6)
            .collect::<Vec<_>>();
        writeln!(f, "{last:?}; {}", self.trace)?;
        for (number, link) in &self.links {
            let (socket, purpose) = (&link.socket, link.purpose);
            let [unread, unwritten] = [&link.unread, &link.unwritten].map(Vec::len);
            writeln!(
                f,
                "{number} {socket:?} for {purpose:?}: {unread} bytes not taken, {unwritten} not written"
            )?;
        }
        Ok(())
    }
}
