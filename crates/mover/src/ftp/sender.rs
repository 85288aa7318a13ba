//! A thread for each data connection that sends: small files are gathered into large writes, large ones go from the page cache by
//! `sendfile`, behind a header that waits for them (`MSG_MORE`).

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
use super::forecast::FAR;
use super::messages::Event;
use crate::net::{tcp_info, unsent};
use crate::threads;

/// What is shorter is copied into the buffer with what is before and behind it: a call of the kernel costs as much as copying so many bytes.
const GATHERED_BYTES: u64 = 64 << 10;
/// A buffer of so many bytes goes out.
const FULL_BYTES: usize = 256 << 10;
/// Bytes that a sender is given ahead.
const AHEAD_BYTES: usize = 4 << 20;
/// The same from afar, where connections are not equally fast for long after a loss: one large block, and what the kernel needs meanwhile. What a slow
/// one has more than that, no other can send. Near by 4 MiB were 15 % faster at 7 Gb/s.
const FAR_AHEAD_BYTES: usize = 1 << 20;
/// Pieces that a sender is given ahead.
const AHEAD_PIECES: usize = 1024;
/// How long a sender waits for the network before it sees whether it is still wanted.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// What a connection is to send.
#[derive(Debug)]
pub(crate) enum Out {
    Bytes(Vec<u8>),
    Part {
        header: Option<[u8; HEADER_BYTES]>,
        source: Arc<Source>,
        offset: u64,
        bytes: u64,
    },
    /// Nothing more.
    End,
}

/// The session's end of a sender; its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Outgoing {
    tasks: Sender<Out>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that it is given ahead.
    ahead_bytes: usize,
    waiting_bytes: AtomicUsize,
    waiting_pieces: AtomicUsize,
    unwanted: AtomicBool,
}

impl Outgoing {
    /// Starts the thread of a connection, whose socket does not block. With a layer all that is sent goes through it.
    pub(crate) fn start(
        connection: u64,
        socket: OwnedFd,
        layer: Option<Box<dyn DataSecurity>>,
        events: UnboundedSender<Event>,
        moved: Arc<AtomicU64>,
    ) -> Self {
        let (tasks, received) = channel();
        let far = tcp_info::see(&socket).is_some_and(|seen| seen.round_trip >= FAR);
        if far {
            unsent::bound(&socket);
        }
        let state = Arc::new(State {
            ahead_bytes: if far { FAR_AHEAD_BYTES } else { AHEAD_BYTES },
            ..State::default()
        });
        let (theirs, refused) = (Arc::clone(&state), events.clone());
        let run = move || {
            let mut lane = Lane {
                connection,
                socket,
                layer,
                events,
                state: theirs,
                buffer: Vec::with_capacity(2 * FULL_BYTES),
                sealed: Vec::new(),
                kept_back: false,
                gathered: 0,
                moved,
            };
            let _ = lane.run(&received).inspect_err(|fault| lane.tell(fault));
        };
        // Not in a scope: it ends soon after the connection is dropped, and nobody has to wait for it.
        if let Err(error) = std::thread::Builder::new().spawn(run) {
            let why = Some(threads::none(&error));
            let _ = refused.send(Event::Broken { connection, why });
        }
        Self { tasks, state }
    }

    /// Whether it may be given more.
    pub(crate) fn has_room(&self) -> bool {
        self.state.waiting_bytes.load(Ordering::Relaxed) < self.state.ahead_bytes
            && self.state.waiting_pieces.load(Ordering::Relaxed) < AHEAD_PIECES
    }

    pub(crate) fn give(&self, out: Out) {
        self.state
            .waiting_bytes
            .fetch_add(out.bytes(), Ordering::Relaxed);
        self.state.waiting_pieces.fetch_add(1, Ordering::Relaxed);
        // One that has failed has said so.
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
            Self::End => 0,
        }
    }
}

/// Why a connection is not of use any more.
enum Fault {
    Network,
    /// A file is not what it was, or cannot be read.
    Source {
        number: u64,
        found: String,
    },
    Unwanted,
}

struct Lane {
    connection: u64,
    socket: OwnedFd,
    /// What encrypts; none: bytes go as they are.
    layer: Option<Box<dyn DataSecurity>>,
    events: UnboundedSender<Event>,
    state: Arc<State>,
    buffer: Vec<u8>,
    /// The same, encrypted.
    sealed: Vec<u8>,
    /// Whether the kernel keeps some of what was sent back, for what follows.
    kept_back: bool,
    /// Bytes of files in the buffer.
    gathered: u64,
    /// Bytes of files that all connections have sent: counted just before they go, for a server that has the last of them may end the copy.
    moved: Arc<AtomicU64>,
}

impl Lane {
    fn run(&mut self, tasks: &Receiver<Out>) -> Result<(), Fault> {
        // As long as the session has the other end.
        while let Ok(first) = tasks.recv() {
            let mut next = Some(first);
            let (mut bytes, mut pieces) = (0, 0);
            while let Some(out) = next {
                bytes += out.bytes();
                pieces += 1;
                let ended = matches!(out, Out::End);
                self.carry_out(out)?;
                if ended {
                    self.flush(false)?;
                    let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
                }
                next = if pieces < AHEAD_PIECES / 4 && bytes < self.state.ahead_bytes / 4 {
                    tasks.try_recv().ok()
                } else {
                    None
                };
            }
            self.flush(false)?;
            self.state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.state
                .waiting_pieces
                .fetch_sub(pieces, Ordering::Relaxed);
            // A session that is gone has nothing more to give.
            let _ = self.events.send(Event::Room);
        }
        Ok(())
    }

    fn tell(&self, fault: &Fault) {
        let connection = self.connection;
        let event = match fault {
            Fault::Network => Event::Broken {
                connection,
                why: None,
            },
            Fault::Source { number, found } => Event::Spoiled {
                number: *number,
                found: found.clone(),
            },
            Fault::Unwanted => return,
        };
        let _ = self.events.send(event);
    }

    fn carry_out(&mut self, out: Out) -> Result<(), Fault> {
        match out {
            Out::Bytes(bytes) => self.buffer.extend(bytes),
            Out::End => {}
            Out::Part {
                header,
                source,
                offset,
                bytes,
            } => {
                self.buffer.extend(header.iter().flatten());
                if let Some(content) = &source.content {
                    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                    let end = begin.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
                    let part = content.get(begin..end);
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
                    source.see_unchanged()?;
                }
            }
        }
        if self.buffer.len() >= FULL_BYTES {
            self.flush(true)?;
        }
        Ok(())
    }

    fn gather(&mut self, source: &Source, offset: u64, bytes: u64) -> Result<(), Fault> {
        let begin = self.buffer.len();
        let end = begin + usize::try_from(bytes).unwrap_or(0);
        self.buffer.resize(end, 0);
        self.gathered += bytes;
        let read = source.file.read_exact_at(&mut self.buffer[begin..], offset);
        read.map_err(|error| source.fault(crate::error::said(&error)))
    }

    /// Reads a file for a connection that encrypts: there the kernel cannot send it.
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
        if self.buffer.is_empty() && !more && std::mem::take(&mut self.kept_back) {
            // Nothing follows: set again, this option has the kernel send what it keeps.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&self.socket, true);
        }
        self.kept_back = more;
        let gathered = std::mem::take(&mut self.gathered);
        self.moved.fetch_add(gathered, Ordering::Relaxed);
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if more {
            flags |= SendFlags::MORE;
        }
        if let Some(layer) = &mut self.layer {
            self.sealed.clear();
            let sealed = layer.protect(&self.buffer, &mut self.sealed);
            sealed.map_err(|_| Fault::Network)?;
            std::mem::swap(&mut self.buffer, &mut self.sealed);
        }
        let mut sent = 0;
        while sent < self.buffer.len() {
            match rustix::net::send(&self.socket, &self.buffer[sent..], flags) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN | Errno::INTR) => self.wait()?,
                Err(_) => return Err(Fault::Network),
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
            let most = usize::try_from(until - at).unwrap_or(FULL_BYTES);
            match rustix::fs::sendfile(&self.socket, &source.file, Some(&mut at), most) {
                Ok(0) => return Err(source.short()),
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => self.wait()?,
                // From its file system nothing goes without passing through us.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    self.gather(source, at, until - at)?;
                    // They are counted.
                    self.gathered = 0;
                    self.flush(until < end)?;
                    at = until;
                }
                Err(errno @ Errno::IO) => {
                    return Err(source.fault(crate::error::reason(errno)));
                }
                Err(_) => return Err(Fault::Network),
            }
        }
        Ok(())
    }

    /// Waits until the network takes more.
    fn wait(&self) -> Result<(), Fault> {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::OUT)];
        match rustix::event::poll(&mut wanted, Some(&GLANCE)) {
            Ok(_) | Err(Errno::INTR) if self.state.unwanted.load(Ordering::Relaxed) => {
                Err(Fault::Unwanted)
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(Fault::Network),
        }
    }
}

impl Source {
    /// A file that is written to while it is sent gets no name at the server.
    fn see_unchanged(&self) -> Result<(), Fault> {
        let now = rustix::fs::fstat(&self.file)
            .map_err(|errno| self.fault(crate::error::reason(errno)))?;
        if self.facts.unchanged(&now.into()) {
            Ok(())
        } else {
            Err(self.short())
        }
    }

    fn short(&self) -> Fault {
        self.fault("that it was written to while it was copied".into())
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

    /// Sends a file to one who reads nothing yet; at least so many bytes of it are counted, and at most as many as he may have and what goes next.
    #[track_caller]
    fn check_counted(in_memory: bool, size: u64, counted: RangeInclusive<u64>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let content = vec![7; usize::try_from(size).expect("little")];
        std::fs::write(&path, &content).expect("a file");
        let file = File::open(path).expect("it");
        let source = Source {
            number: 0,
            size,
            end: size,
            facts: rustix::fs::fstat(&file).expect("its facts").into(),
            checksum: None,
            content: in_memory.then(|| content.clone()),
            file,
        };
        let (mine, mut theirs) = UnixStream::pair().expect("two sockets");
        mine.set_nonblocking(true).expect("a socket");
        rustix::net::sockopt::set_socket_send_buffer_size(&mine, 4096).expect("a small buffer");
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let moved = Arc::new(AtomicU64::new(0));
        let outgoing = Outgoing::start(0, mine.into(), None, events, Arc::clone(&moved));
        outgoing.give(Out::Part {
            header: None,
            source: Arc::new(source),
            offset: 0,
            bytes: size,
        });
        outgoing.give(Out::End);
        let began = Instant::now();
        while moved.load(Ordering::Relaxed) < *counted.start()
            && began.elapsed() < Duration::from_secs(20)
        {
            std::thread::yield_now();
        }
        assert!(counted.contains(&moved.load(Ordering::Relaxed)));
        let mut came = Vec::new();
        theirs.read_to_end(&mut came).expect("all of it");
        assert_eq!(moved.load(Ordering::Relaxed), size);
        assert!(came == content);
        assert!(matches!(heard.blocking_recv(), Some(Event::Room)));
    }

    #[test]
    fn what_a_server_may_have_is_counted_and_no_more() {
        check_counted(true, 200_000, 200_000..=200_000);
        check_counted(false, GATHERED_BYTES, GATHERED_BYTES..=GATHERED_BYTES);
        check_counted(false, 3_000_000, FULL_BYTES as u64..=1_000_000);
    }
}
