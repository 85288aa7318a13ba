//! Sender thread of a data connection: gathers small files into large writes, and sends large files from the page cache with
//! `sendfile`, after a header that waits for them (`MSG_MORE`).

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::sync::mpsc::UnboundedSender;
use venturi_gridftp::DataSecurity;
use venturi_gridftp::mode_e::HEADER_BYTES;

use super::files::Source;
use super::messages::SessionEvent;
use super::size_estimate::FAR;
use crate::net::{rate_limit, tcp_info, unsent};
use crate::threads;

/// Maximum size of data that is copied into the buffer: a system call costs as much as copying it.
const GATHERED_BYTES: u64 = 64 << 10;
/// Size of a full buffer, which is sent.
const FULL_BYTES: usize = 256 << 10;
/// Maximum queued bytes of a sender.
const AHEAD_BYTES: usize = 4 << 20;
/// The same on long paths, where connections differ in speed for a long time after a loss: one
/// large block, and the data that the kernel needs in the meantime. Other connections cannot take
/// over data of a slow one. On short paths, 4 MiB was 15 % faster at 7 Gb/s.
const FAR_AHEAD_BYTES: usize = 1 << 20;
/// Maximum queued blocks of a sender.
const MAX_QUEUED_BLOCKS: usize = 1024;
/// Maximum wait for the network between two checks for the end.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Data to send.
#[derive(Debug)]
pub(crate) enum Out {
    Bytes(Vec<u8>),
    Part {
        header: Option<[u8; HEADER_BYTES]>,
        source: Arc<Source>,
        offset: u64,
        bytes: u64,
    },
    /// End of the data.
    ServerEnd,
}

/// Handle of a sender thread; the thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Outgoing {
    tasks: Sender<Out>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Maximum queued bytes.
    ahead_bytes: usize,
    waiting_bytes: AtomicUsize,
    queued_blocks: AtomicUsize,
    unwanted: AtomicBool,
}

impl Outgoing {
    /// Starts the thread for a non-blocking socket. With a layer, all data is encrypted.
    pub(crate) fn start(
        connection: u64,
        socket: OwnedFd,
        layer: Option<Box<dyn DataSecurity>>,
        events: UnboundedSender<SessionEvent>,
        moved: Arc<AtomicU64>,
    ) -> Self {
        let (tasks, received) = channel();
        let far = tcp_info::read(&socket).is_some_and(|snapshot| snapshot.round_trip >= FAR);
        if far {
            unsent::bound(&socket);
        }
        let state = Arc::new(State {
            ahead_bytes: if far { FAR_AHEAD_BYTES } else { AHEAD_BYTES },
            ..State::default()
        });
        let (theirs, rejected) = (Arc::clone(&state), events.clone());
        let run = move || {
            let mut lane = Lane {
                connection,
                socket,
                layer,
                events,
                state: theirs,
                buffer: Vec::with_capacity(2 * FULL_BYTES),
                sealed: Vec::new(),
                held_back: false,
                gathered: 0,
                moved,
            };
            let _ = lane.run(&received).inspect_err(|fault| lane.report(fault));
        };
        // Not a scoped thread: it ends soon after the connection is dropped, and no thread has to wait for it.
        if let Err(error) = std::thread::Builder::new().spawn(run) {
            let why = Some(threads::none(&error));
            let _ = rejected.send(SessionEvent::Broken { connection, why });
        }
        Self { tasks, state }
    }

    /// True if it accepts more data.
    pub(crate) fn has_capacity(&self) -> bool {
        self.state.waiting_bytes.load(Ordering::Relaxed) < self.state.ahead_bytes
            && self.state.queued_blocks.load(Ordering::Relaxed) < MAX_QUEUED_BLOCKS
    }

    pub(crate) fn enqueue(&self, out: Out) {
        self.state
            .waiting_bytes
            .fetch_add(out.bytes(), Ordering::Relaxed);
        self.state.queued_blocks.fetch_add(1, Ordering::Relaxed);
        // A failed sender has reported it.
        let _ = self.tasks.send(out);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.state.unwanted.store(true, Ordering::Relaxed);
    }
}

impl Out {
    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Part { bytes, .. } => usize::try_from(*bytes).unwrap_or(usize::MAX / 2),
            Self::ServerEnd => 0,
        }
    }
}

/// Reason why a connection has failed.
enum Fault {
    NetworkOptions,
    /// A file has changed, or cannot be read.
    Source {
        number: u64,
        found: String,
    },
    Unwanted,
}

struct Lane {
    connection: u64,
    socket: OwnedFd,
    /// Security layer; none: plain data.
    layer: Option<Box<dyn DataSecurity>>,
    events: UnboundedSender<SessionEvent>,
    state: Arc<State>,
    buffer: Vec<u8>,
    /// Encrypted buffer.
    sealed: Vec<u8>,
    /// True if the kernel may hold back sent data for the following data.
    held_back: bool,
    /// Bytes of files in the buffer.
    gathered: u64,
    /// Bytes of files that all connections have sent. They are counted before sending, because a server with the last bytes can end the copy.
    moved: Arc<AtomicU64>,
}

impl Lane {
    fn run(&mut self, tasks: &Receiver<Out>) -> Result<(), Fault> {
        // Until the session drops the handle.
        while let Ok(first) = tasks.recv() {
            let mut next = Some(first);
            let (mut bytes, mut blocks) = (0, 0);
            while let Some(out) = next {
                bytes += out.bytes();
                blocks += 1;
                let ended = matches!(out, Out::ServerEnd);
                self.execute(out)?;
                if ended {
                    self.flush(false)?;
                    let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
                }
                next = if blocks < MAX_QUEUED_BLOCKS / 4 && bytes < self.state.ahead_bytes / 4 {
                    tasks.try_recv().ok()
                } else {
                    None
                };
            }
            self.flush(false)?;
            self.state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.state
                .queued_blocks
                .fetch_sub(blocks, Ordering::Relaxed);
            // The session can have ended.
            let _ = self.events.send(SessionEvent::Capacity);
        }
        Ok(())
    }

    fn report(&self, fault: &Fault) {
        let connection = self.connection;
        let event = match fault {
            Fault::NetworkOptions => SessionEvent::Broken {
                connection,
                why: None,
            },
            Fault::Source { number, found } => SessionEvent::Spoiled {
                number: *number,
                found: found.clone(),
            },
            Fault::Unwanted => return,
        };
        let _ = self.events.send(event);
    }

    fn execute(&mut self, out: Out) -> Result<(), Fault> {
        match out {
            Out::Bytes(bytes) => self.buffer.extend(bytes),
            Out::ServerEnd => {}
            Out::Part {
                header,
                source,
                offset,
                bytes,
            } => {
                self.buffer.extend(header.iter().flatten());
                if let Some(content) = &source.content {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX);
                    let end = start.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
                    let part = content.get(start..end);
                    self.buffer
                        .extend_from_slice(part.ok_or_else(|| source.short())?);
                    self.gathered += bytes;
                } else if bytes <= GATHERED_BYTES {
                    self.gather(&source, offset, bytes)?;
                } else if self.layer.is_some() {
                    self.seal_file(&source, offset, bytes)?;
                } else {
                    self.flush(true)?;
                    self.send_file(&source, offset, bytes)?;
                }
                if offset + bytes == source.end {
                    source.check_unchanged()?;
                }
            }
        }
        if self.buffer.len() >= FULL_BYTES {
            self.flush(true)?;
        }
        Ok(())
    }

    fn gather(&mut self, source: &Source, offset: u64, bytes: u64) -> Result<(), Fault> {
        let start = self.buffer.len();
        let end = start + usize::try_from(bytes).unwrap_or(0);
        self.buffer.resize(end, 0);
        self.gathered += bytes;
        let read = source.file.read_exact_at(&mut self.buffer[start..], offset);
        read.map_err(|error| source.fault(crate::error::describe(&error)))
    }

    /// Reads a file for an encrypted connection, where `sendfile` is not possible.
    fn seal_file(&mut self, source: &Source, offset: u64, bytes: u64) -> Result<(), Fault> {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let part = (end - at).min(FULL_BYTES as u64);
            self.gather(source, at, part)?;
            self.flush(false)?;
            at += part;
        }
        Ok(())
    }

    fn flush(&mut self, more: bool) -> Result<(), Fault> {
        if self.buffer.is_empty() && !more && std::mem::take(&mut self.held_back) {
            // No data follows: setting the option again makes the kernel send the held data.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&self.socket, true);
        }
        self.held_back = more;
        let gathered = std::mem::take(&mut self.gathered);
        self.moved.fetch_add(gathered, Ordering::Relaxed);
        rate_limit::wait_after(gathered);
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if more {
            flags |= SendFlags::MORE;
        }
        if let Some(layer) = &mut self.layer {
            self.sealed.clear();
            let sealed = layer.protect(&self.buffer, &mut self.sealed);
            sealed.map_err(|_| Fault::NetworkOptions)?;
            std::mem::swap(&mut self.buffer, &mut self.sealed);
        }
        let mut sent = 0;
        while sent < self.buffer.len() {
            match rustix::net::send(&self.socket, &self.buffer[sent..], flags) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN | Errno::INTR) => self.wait()?,
                Err(_) => return Err(Fault::NetworkOptions),
            }
        }
        self.buffer.clear();
        Ok(())
    }

    fn send_file(&mut self, source: &Source, offset: u64, bytes: u64) -> Result<(), Fault> {
        let (mut at, end) = (offset, offset + bytes);
        let mut counted = offset;
        while at < end {
            let until = end.min(at + FULL_BYTES as u64);
            let moved = until - std::mem::replace(&mut counted, until);
            self.moved.fetch_add(moved, Ordering::Relaxed);
            rate_limit::wait_after(moved);
            let most = usize::try_from(until - at).unwrap_or(FULL_BYTES);
            match rustix::fs::sendfile(&self.socket, &source.file, Some(&mut at), most) {
                Ok(0) => return Err(source.short()),
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => self.wait()?,
                // The file system does not support `sendfile`.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    self.gather(source, at, until - at)?;
                    // These bytes are counted already.
                    self.gathered = 0;
                    self.flush(until < end)?;
                    at = until;
                }
                Err(errno @ Errno::IO) => {
                    return Err(source.fault(crate::error::reason(errno)));
                }
                Err(_) => return Err(Fault::NetworkOptions),
            }
        }
        Ok(())
    }

    /// Waits until the network accepts more data.
    fn wait(&self) -> Result<(), Fault> {
        let mut events = [PollFd::new(&self.socket, PollFlags::OUT)];
        match rustix::event::poll(&mut events, Some(&GLANCE)) {
            Ok(_) | Err(Errno::INTR) if self.state.unwanted.load(Ordering::Relaxed) => {
                Err(Fault::Unwanted)
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(Fault::NetworkOptions),
        }
    }
}

impl Source {
    /// Detects a file that is written during the upload; the server does not rename it.
    fn check_unchanged(&self) -> Result<(), Fault> {
        let now = rustix::fs::fstat(&self.file)
            .map_err(|errno| self.fault(crate::error::reason(errno)))?;
        if self.source_metadata.unchanged(&now.into()) {
            Ok(())
        } else {
            Err(self.short())
        }
    }

    fn short(&self) -> Fault {
        self.fault("a change during the copy".into())
    }

    fn fault(&self, found: String) -> Fault {
        Fault::Source {
            number: self.number,
            found,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::ops::RangeInclusive;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    /// Sends a file to a reader that does not read yet, and checks the counted bytes: minimum and maximum.
    #[track_caller]
    fn check_counted(in_memory: bool, size: u64, counted: RangeInclusive<u64>) {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("file");
        let content = vec![7; usize::try_from(size).expect("little")];
        std::fs::write(&path, &content).expect("a file");
        let file = File::open(path).expect("it");
        let source = Source {
            number: 0,
            size,
            end: size,
            source_metadata: rustix::fs::fstat(&file).expect("its facts").into(),
            checksum: None,
            content: in_memory.then(|| content.clone()),
            file,
        };
        let (mine, mut theirs) = UnixStream::pair().expect("two sockets");
        mine.set_nonblocking(true).expect("a socket");
        rustix::net::sockopt::set_socket_send_buffer_size(&mine, 4096).expect("a small buffer");
        let (events, mut incoming) = tokio::sync::mpsc::unbounded_channel();
        let moved = Arc::new(AtomicU64::new(0));
        let outgoing = Outgoing::start(0, mine.into(), None, events, Arc::clone(&moved));
        outgoing.enqueue(Out::Part {
            header: None,
            source: Arc::new(source),
            offset: 0,
            bytes: size,
        });
        outgoing.enqueue(Out::ServerEnd);
        let started = Instant::now();
        while moved.load(Ordering::Relaxed) < *counted.start()
            && started.elapsed() < Duration::from_secs(20)
        {
            std::thread::yield_now();
        }
        assert!(counted.contains(&moved.load(Ordering::Relaxed)));
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).expect("all of it");
        assert_eq!(moved.load(Ordering::Relaxed), size);
        assert!(received == content);
        assert!(matches!(
            incoming.blocking_recv(),
            Some(SessionEvent::Capacity)
        ));
    }

    #[test]
    fn only_bytes_that_the_server_may_have_are_counted() {
        check_counted(true, 200_000, 200_000..=200_000);
        check_counted(false, GATHERED_BYTES, GATHERED_BYTES..=GATHERED_BYTES);
        check_counted(false, 3_000_000, FULL_BYTES as u64..=1_000_000);
    }
}
