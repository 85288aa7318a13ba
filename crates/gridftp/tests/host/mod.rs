//! A minimal test driver for server sessions over sockets and files, with one client at a time on
//! loopback. It joins paths to a directory and confines nothing.

#![allow(dead_code, reason = "each test takes what it needs")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a driver has the sockets, files and clocks that the crate has not"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use venturi_gridftp::gsi::GridMap;
use venturi_gridftp::server::{
    DriverRequest, DriverResponse, GlobusError, Server, ServerOutput, ServerPolicy, WriteMode,
};
use venturi_gridftp::{
    ConnectionRole, DataOut, DataSecurity, EntryKind, ListEntry, Path, Security,
};

const REST: Duration = Duration::from_micros(200);
const CHUNK_BYTES: usize = 70_001;

/// A server on a free port of loopback. Dropping the value ends it.
pub struct Host {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Creates the security of a session, and maps its users.
pub struct Guard {
    pub security: Box<dyn Fn() -> Box<dyn Security> + Send>,
    pub map: GridMap,
}

impl Host {
    pub fn start(root: PathBuf) -> Self {
        Self::start_guarded(root, None)
    }

    /// Starts a server that accepts the users of a grid-mapfile.
    pub fn start_guarded(root: PathBuf, guard: Option<Guard>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut sessions = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((socket, _)) = listener.accept() {
                    sessions.push(Session::new(socket, root.clone(), guard.as_ref()));
                }
                let moved = sessions
                    .iter_mut()
                    .fold(false, |moved, session| session.turn() | moved);
                sessions.retain(|session| !session.over);
                if !moved {
                    std::thread::sleep(REST);
                }
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Link {
    socket: TcpStream,
    layer: Option<Box<dyn DataSecurity>>,
    unread: Vec<u8>,
    unwritten: Vec<u8>,
    closing: bool,
}

struct Session {
    server: Server,
    control: TcpStream,
    root: PathBuf,
    started_at: Instant,
    listener: Option<TcpListener>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    file: Option<File>,
    map: Option<GridMap>,
    over: bool,
}

impl Session {
    fn new(control: TcpStream, root: PathBuf, guard: Option<&Guard>) -> Self {
        control.set_nonblocking(true).expect("a socket");
        let policy = ServerPolicy {
            greeting: "venturi".to_owned(),
            epoch: UNIX_EPOCH.elapsed().expect("after 1970"),
            peer: control.peer_addr().expect("connected").ip(),
            writes: true,
            third_party: false,
            checksums: Vec::new(),
            connections: 16,
            block_bytes: 100_000,
            queued_bytes: 10_000,
            logins: 3,
            login_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_secs(20),
            marker_interval: Duration::from_secs(5),
        };
        Self {
            server: Server::new(
                policy,
                guard.map(|guard| (guard.security)()),
                Duration::ZERO,
            ),
            map: guard.map(|guard| guard.map.clone()),
            control,
            root,
            started_at: Instant::now(),
            listener: None,
            links: BTreeMap::new(),
            next_link: 0,
            file: None,
            over: false,
        }
    }

    fn turn(&mut self) -> bool {
        self.server.handle_timeout(self.started_at.elapsed());
        self.outputs() | self.read_control() | self.accept() | self.move_data()
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.server.poll_output() {
            moved = true;
            let now = self.started_at.elapsed();
            match output {
                ServerOutput::Send(bytes) => {
                    self.control.set_nonblocking(false).expect("a socket");
                    let _ = self.control.write_all(&bytes);
                    self.control.set_nonblocking(true).expect("a socket");
                }
                ServerOutput::Request(request) => {
                    let response = self.run(request).unwrap_or_else(|error| {
                        DriverResponse::Failed(match error.kind() {
                            ErrorKind::NotFound => GlobusError::NotFound,
                            ErrorKind::AlreadyExists => GlobusError::Exists,
                            _ => GlobusError::Denied,
                        })
                    });
                    self.server.respond(now, response);
                }
                ServerOutput::Connect {
                    addresses,
                    connections,
                } => {
                    for address in addresses
                        .into_iter()
                        .flat_map(|address| vec![address; connections.into()])
                    {
                        match TcpStream::connect(address) {
                            Ok(socket) => self.open(socket, ConnectionRole::Connects),
                            Err(_) => self.server.connect_failed(now),
                        }
                    }
                }
                ServerOutput::DropData => {
                    self.links.clear();
                    self.listener = None;
                }
                ServerOutput::CloseFile => self.file = None,
                ServerOutput::Ended { .. } => {}
                ServerOutput::Close => self.over = true,
                other => panic!("{other:?}"),
            }
        }
        moved
    }

    fn run(&mut self, request: DriverRequest) -> std::io::Result<DriverResponse> {
        let at = |path: &Path| {
            let text = String::from_utf8(path.as_bytes().to_vec()).expect("text in a test");
            self.root.join(text.trim_start_matches('/'))
        };
        match request {
            DriverRequest::Stat(path) => {
                return entry(&at(&path), path.split().1.to_vec()).map(DriverResponse::Entry);
            }
            DriverRequest::List { path, .. } => {
                let entries = fs::read_dir(at(&path))?
                    .map(|item| {
                        item.and_then(|item| {
                            entry(&item.path(), item.file_name().into_encoded_bytes())
                        })
                    })
                    .collect::<Result<_, _>>()?;
                return Ok(DriverResponse::Entries {
                    entries,
                    more: false,
                });
            }
            DriverRequest::MakeDirectory(path) => fs::create_dir(at(&path))?,
            DriverRequest::Delete(path) => fs::remove_file(at(&path))?,
            DriverRequest::Rename { from, to } => fs::rename(at(&from), at(&to))?,
            DriverRequest::Listen => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                self.listener = Some(listener);
                return Ok(DriverResponse::Listening(address));
            }
            DriverRequest::Read(path) => {
                let file = File::open(at(&path))?;
                let size = file.metadata()?.len();
                self.file = Some(file);
                return Ok(DriverResponse::Size(size));
            }
            DriverRequest::Write { path, mode, .. } => {
                let file = File::options()
                    .write(true)
                    .create(true)
                    .truncate(mode == WriteMode::New)
                    .open(at(&path))?;
                self.file = Some(file);
            }
            DriverRequest::Finish | DriverRequest::Sent => self.file = None,
            DriverRequest::Login { .. } if !self.admits() => {
                return Ok(DriverResponse::Failed(GlobusError::LoginDenied));
            }
            DriverRequest::Login { .. }
            | DriverRequest::SetModified { .. }
            | DriverRequest::SetMode { .. } => {}
            _ => return Err(ErrorKind::Unsupported.into()),
        }
        Ok(DriverResponse::Done)
    }

    fn admits(&self) -> bool {
        let Some(map) = &self.map else {
            return true;
        };
        let peer = self.server.peer();
        peer.is_some_and(|peer| map.user(&peer.identity).is_some())
    }

    fn open(&mut self, socket: TcpStream, end: ConnectionRole) {
        let from = socket.peer_addr().expect("connected").ip();
        socket.set_nonblocking(true).expect("a socket");
        let layer = self.server.data_layer(self.started_at.elapsed(), end);
        let Ok(mut layer) = layer else {
            return self.server.connect_failed(self.started_at.elapsed());
        };
        let mut unwritten = Vec::new();
        if let Some(layer) = &mut layer {
            layer.output(&mut unwritten).expect("a layer");
        }
        let number = self.next_link;
        self.next_link += 1;
        if self
            .server
            .data_opened(self.started_at.elapsed(), number, from)
        {
            let link = Link {
                socket,
                layer,
                unread: Vec::new(),
                unwritten,
                closing: false,
            };
            self.links.insert(number, link);
        }
    }

    fn read_control(&mut self) -> bool {
        let mut buffer = [0; 1000];
        let capacity = self.server.input_capacity().min(buffer.len());
        if capacity == 0 {
            return false;
        }
        match self.control.read(&mut buffer[..capacity]) {
            Ok(0) => {
                self.server.handle_closed();
                true
            }
            Ok(count) => {
                self.server
                    .handle_input(self.started_at.elapsed(), &buffer[..count]);
                true
            }
            Err(_) => false,
        }
    }

    fn accept(&mut self) -> bool {
        let accepted = self
            .listener
            .as_ref()
            .and_then(|listener| listener.accept().ok());
        accepted
            .map(|(socket, _)| self.open(socket, ConnectionRole::Accepts))
            .is_some()
    }

    fn move_data(&mut self) -> bool {
        let mut moved = false;
        for number in self.links.keys().copied().collect::<Vec<_>>() {
            moved |= self.write_data(number) | self.read_data(number);
        }
        moved
    }

    fn write_data(&mut self, number: u64) -> bool {
        let now = self.started_at.elapsed();
        let Some(link) = self.links.get_mut(&number) else {
            return false;
        };
        let secured = link.layer.as_ref().is_none_or(|layer| layer.is_ready());
        if link.unwritten.is_empty() && !link.closing && secured {
            let mut plain = Vec::new();
            match self.server.poll_data(now, number) {
                None => return false,
                Some(DataOut::Close) => link.closing = true,
                Some(DataOut::Bytes(bytes)) => plain = bytes,
                Some(DataOut::Payload {
                    header,
                    offset,
                    bytes,
                    ..
                }) => {
                    let mut payload = vec![0; bytes as usize];
                    let file = self.file.as_ref().expect("it is open");
                    file.read_exact_at(&mut payload, offset)
                        .expect("the file is as long as it was");
                    plain.extend(header.iter().flatten());
                    plain.extend(payload);
                }
            }
            match &mut link.layer {
                Some(layer) => layer.protect(&plain, &mut link.unwritten).expect("ready"),
                None => link.unwritten = plain,
            }
        }
        if link.closing && link.unwritten.is_empty() {
            self.links.remove(&number);
            self.server.data_closed(now, number, true);
            return true;
        }
        if link.unwritten.is_empty() {
            return false;
        }
        match link.socket.write(&link.unwritten) {
            Ok(count) => {
                link.unwritten.drain(..count);
                true
            }
            Err(_) => false,
        }
    }

    fn read_data(&mut self, number: u64) -> bool {
        let now = self.started_at.elapsed();
        let Some(link) = self.links.get_mut(&number) else {
            return false;
        };
        let mut ended = None;
        let mut moved = false;
        if link.unread.len() < CHUNK_BYTES {
            let mut buffer = vec![0; CHUNK_BYTES];
            match link.socket.read(&mut buffer) {
                Ok(0) => ended = Some(true),
                Ok(count) => match &mut link.layer {
                    None => link.unread.extend_from_slice(&buffer[..count]),
                    Some(layer) => {
                        let taken = layer.handle_input(&buffer[..count], &mut link.unread);
                        layer.output(&mut link.unwritten).expect("a layer");
                        if taken.is_err() {
                            let _ = link.socket.write(&link.unwritten);
                            ended = Some(false);
                        }
                    }
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => ended = Some(false),
            }
        }
        while let Some(link) = self
            .links
            .get_mut(&number)
            .filter(|link| !link.unread.is_empty())
        {
            let delivered = self.server.handle_data(now, number, &link.unread);
            if delivered.consumed == 0 {
                break;
            }
            moved = true;
            let used: Vec<u8> = link.unread.drain(..delivered.consumed).collect();
            if let (Some(payload), Some(file)) = (delivered.payload, &self.file) {
                file.write_all_at(&used[used.len() - payload.bytes..], payload.offset)
                    .expect("a disk");
            }
        }
        let empty = self
            .links
            .get(&number)
            .is_none_or(|link| link.unread.is_empty());
        if let Some(cleanly) = ended.filter(|_| empty) {
            self.links.remove(&number);
            self.server.data_closed(now, number, cleanly);
            moved = true;
        }
        moved
    }
}

fn entry(path: &std::path::Path, name: Vec<u8>) -> std::io::Result<ListEntry> {
    let found = fs::metadata(path)?;
    let mut entry = ListEntry::named(name);
    entry.kind = Some(if found.is_dir() {
        EntryKind::Directory
    } else {
        EntryKind::File
    });
    entry.size_bytes = Some(found.len());
    entry.modify_s = Some(found.mtime());
    entry.mode = Some(found.mode() & 0o7777);
    Ok(entry)
}
