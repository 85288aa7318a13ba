//! A second pair of hands: a thread that writes packets to hosts while the first one reads and decides.
//!
//! Writing is half of the work of the wire, as the kernel does the receiver's TCP in it. One thread is the better
//! choice as long as it is in time: no cache is crossed and nobody has to be woken. When it falls behind, what is due
//! goes to this thread, in order, until it has nothing left to do.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::{io, slice};

use super::clock::Clock;
use super::interface::Interface;
use crate::model::{Chunk, InterfaceId};

/// Bytes that may wait: what a core's cache holds. With more, the first thread reads on while what it has read goes cold
/// (without a bound a relay without delay was 25 ms late, and a third slower).
const WAITING_BYTES: u64 = 1 << 20;
/// Deliveries that may wait, if they are short.
const QUEUE: usize = 4096;
/// So long it looks for the next delivery before it falls asleep.
const LOOK_NS: u64 = 50_000;

#[derive(Debug)]
pub(crate) struct Writer {
    /// None: it is told to end.
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Written>,
    outstanding: usize,
    waiting_bytes: u64,
    thread: Option<JoinHandle<()>>,
}

/// A delivery.
#[derive(Debug)]
struct Job {
    bytes: Bytes,
    interface: InterfaceId,
    chunk: Chunk,
    due_ns: u64,
}

/// A delivery that was made.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) chunk: Chunk,
    pub(crate) late_ns: u64,
    /// Segments that the host did not take.
    pub(crate) refused: u64,
}

/// The bytes of a packet in the memory of the first thread, which keeps them until it is told that they are written.
#[derive(Debug)]
struct Bytes {
    start: *const u8,
    length: usize,
}

// SAFETY: memory of a mapping that outlives the thread (`Writer` is dropped before it), and that nobody writes to
// before the packet is released.
unsafe impl Send for Bytes {}

impl Writer {
    /// Starts the thread, asleep.
    pub(crate) fn start(clock: Clock, interfaces: Arc<[Interface]>) -> io::Result<Self> {
        let (jobs, theirs) = sync_channel(QUEUE);
        let (told, done) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || work(&theirs, &told, &interfaces, clock))?;
        Ok(Self {
            jobs: Some(jobs),
            done,
            outstanding: 0,
            waiting_bytes: 0,
            thread: Some(thread),
        })
    }

    /// Whether something that was given to it is not written, or not taken note of.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// Whether there is room for one more delivery.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding < QUEUE && self.waiting_bytes < WAITING_BYTES
    }

    /// Gives it a delivery.
    ///
    /// # Safety
    /// `bytes` stay where and as they are until [`Self::written`] has returned this delivery, or `self` is dropped.
    #[inline]
    pub(crate) unsafe fn write(
        &mut self,
        bytes: &[u8],
        interface: InterfaceId,
        chunk: Chunk,
        due_ns: u64,
    ) {
        let job = Job {
            bytes: Bytes {
                start: bytes.as_ptr(),
                length: bytes.len(),
            },
            interface,
            chunk,
            due_ns,
        };
        let jobs = self.jobs.as_ref().expect("it is there until it is dropped");
        jobs.send(job).expect("the thread lives as long as `jobs`");
        self.outstanding += 1;
        self.waiting_bytes += chunk.ip_bytes();
    }

    /// A delivery that has been made since the last call.
    #[inline]
    pub(crate) fn written(&mut self) -> Option<Written> {
        if self.outstanding == 0 {
            return None;
        }
        let written = self.done.try_recv().ok()?;
        Some(self.took(written))
    }

    /// As [`Self::written`], waiting for it.
    pub(crate) fn wait(&mut self) -> Option<Written> {
        if self.outstanding == 0 {
            return None;
        }
        let written = self.done.recv().ok()?;
        Some(self.took(written))
    }

    #[inline]
    fn took(&mut self, written: Written) -> Written {
        self.outstanding -= 1;
        self.waiting_bytes -= written.chunk.ip_bytes();
        written
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was told on stderr
        }
    }
}

fn work(jobs: &Receiver<Job>, done: &SyncSender<Written>, interfaces: &[Interface], clock: Clock) {
    while let Ok(job) = next(jobs, clock) {
        // SAFETY: `write` was promised that the bytes stay until this delivery is told below.
        let bytes = unsafe { slice::from_raw_parts(job.bytes.start, job.bytes.length) };
        let late_ns = clock.now_ns().saturating_sub(job.due_ns);
        let refused = interfaces[usize::from(job.interface.0)].hand_over(bytes, &job.chunk);
        let written = Written {
            chunk: job.chunk,
            late_ns,
            refused,
        };
        if done.send(written).is_err() {
            return;
        }
    }
}

fn next(jobs: &Receiver<Job>, clock: Clock) -> Result<Job, RecvError> {
    let until_ns = clock.now_ns() + LOOK_NS;
    loop {
        match jobs.try_recv() {
            Ok(job) => return Ok(job),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) if clock.now_ns() >= until_ns => return jobs.recv(),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
}
