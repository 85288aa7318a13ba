//! Helper thread that writes packets to hosts while the first thread reads packets and runs the
//! model.
//!
//! Writing is half of the work of the emulator, because the kernel processes the TCP of the
//! receiver in it. One thread is better while it keeps up, because it avoids transfers between
//! caches and wake-ups. When it falls behind, this thread gets the due deliveries, in order, until
//! it is idle again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::{io, slice};

use super::clock::ModelClock;
use super::interface::TunInterface;
use crate::model::{Chunk, InterfaceId};

/// Maximum of queued bytes: the size of the cache of a core. With more, earlier packets would leave
/// the cache while the first thread reads further ones. Without a bound, a relay without delay was
/// 25 ms late and a third slower.
const WAITING_BYTES: u64 = 1 << 20;
/// Maximum number of queued deliveries.
const QUEUE: usize = 4096;
/// Time of polling for the next delivery before the thread sleeps.
const POLL_NS: u64 = 50_000;

#[derive(Debug)]
pub(crate) struct PacketWriter {
    /// None: the thread must end.
    jobs: Option<SyncSender<Delivery>>,
    done: Receiver<WrittenDelivery>,
    outstanding: usize,
    waiting_bytes: u64,
    thread: Option<JoinHandle<()>>,
}

/// A delivery.
#[derive(Debug)]
struct Delivery {
    bytes: Bytes,
    interface: InterfaceId,
    chunk: Chunk,
    due_ns: u64,
}

/// A finished delivery.
#[derive(Debug)]
pub(crate) struct WrittenDelivery {
    pub(crate) chunk: Chunk,
    pub(crate) late_ns: u64,
    /// Segments that the host did not accept.
    pub(crate) rejected: u64,
}

/// The bytes of a packet in the memory of the first thread, which keeps them until the writer reports them as written.
#[derive(Debug)]
struct Bytes {
    start: *const u8,
    length: usize,
}

// SAFETY: memory of a mapping that outlives the thread (`PacketWriter` is dropped before it), without writes before
// the release of the packet.
unsafe impl Send for Bytes {}

impl PacketWriter {
    /// Start the thread; it sleeps at first.
    pub(crate) fn start(clock: ModelClock, interfaces: Arc<[TunInterface]>) -> io::Result<Self> {
        let (jobs, theirs) = sync_channel(QUEUE);
        let (reported, done) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || work(&theirs, &reported, &interfaces, clock))?;
        Ok(Self {
            jobs: Some(jobs),
            done,
            outstanding: 0,
            waiting_bytes: 0,
            thread: Some(thread),
        })
    }

    /// Return whether any delivery is not written, or its result is not processed.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// Return whether there is capacity for one more delivery.
    #[inline]
    pub(crate) fn has_capacity(&self) -> bool {
        self.outstanding < QUEUE && self.waiting_bytes < WAITING_BYTES
    }

    /// Queue a delivery.
    ///
    /// # Safety
    /// `bytes` must stay valid and unchanged until [`Self::written`] has returned this delivery, or
    /// `self` is dropped.
    #[inline]
    pub(crate) unsafe fn write(
        &mut self,
        bytes: &[u8],
        interface: InterfaceId,
        chunk: Chunk,
        due_ns: u64,
    ) {
        let job = Delivery {
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

    /// Return a delivery that has finished since the last call, if any.
    #[inline]
    pub(crate) fn written(&mut self) -> Option<WrittenDelivery> {
        if self.outstanding == 0 {
            return None;
        }
        let written = self.done.try_recv().ok()?;
        Some(self.took(written))
    }

    /// Like [`Self::written`], but wait for the delivery.
    pub(crate) fn wait(&mut self) -> Option<WrittenDelivery> {
        if self.outstanding == 0 {
            return None;
        }
        let written = self.done.recv().ok()?;
        Some(self.took(written))
    }

    #[inline]
    fn took(&mut self, written: WrittenDelivery) -> WrittenDelivery {
        self.outstanding -= 1;
        self.waiting_bytes -= written.chunk.ip_bytes();
        written
    }
}

impl Drop for PacketWriter {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was printed on stderr
        }
    }
}

fn work(
    jobs: &Receiver<Delivery>,
    done: &SyncSender<WrittenDelivery>,
    interfaces: &[TunInterface],
    clock: ModelClock,
) {
    while let Ok(job) = next(jobs, clock) {
        // SAFETY: `write` guarantees that the bytes stay until this delivery is reported below.
        let bytes = unsafe { slice::from_raw_parts(job.bytes.start, job.bytes.length) };
        let late_ns = clock.now_ns().saturating_sub(job.due_ns);
        let rejected = interfaces[usize::from(job.interface.0)].hand_over(bytes, &job.chunk);
        let written = WrittenDelivery {
            chunk: job.chunk,
            late_ns,
            rejected,
        };
        if done.send(written).is_err() {
            return;
        }
    }
}

fn next(jobs: &Receiver<Delivery>, clock: ModelClock) -> Result<Delivery, RecvError> {
    let until_ns = clock.now_ns() + POLL_NS;
    loop {
        match jobs.try_recv() {
            Ok(job) => return Ok(job),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) if clock.now_ns() >= until_ns => return jobs.recv(),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
}
