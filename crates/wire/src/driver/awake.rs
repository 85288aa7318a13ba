//! Keeps the processors from halting while packets flow and most of them are idle.
//!
//! A virtual processor that has halted takes tens of microseconds to come back, and up to a millisecond: more than
//! the network of a room, and every packet wakes two hosts. Kernels with an idle driver are held back by
//! `/dev/cpu_dma_latency` (`machine.rs`); many virtual machines have none. There a thread for each processor polls
//! instead. It must be in a control group with `cpu.idle`: only from there it gives way at once to whatever else wants
//! the processor (by policy `SCHED_IDLE` alone it does not, as the scheduler weighs sessions against each other
//! first; one in a hundred round trips was then 2 ms late).
//!
//! Measured with four virtual processors, round trips of 53 ms: 327 µs late at the median without, 100 with.

use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::{fs, io};

use super::clock::{Clock, thread_cpu_ns};
use super::machine;

/// Packets that are further apart do not keep the processors awake from one to the next.
const HOLD_NS: u64 = 1_000_000_000;
/// How much of it may be gone before it is prolonged: not at every packet.
const PROLONG_NS: u64 = HOLD_NS / 10;
/// Pollers that are about to fall asleep are woken too.
const NEARLY_NS: u64 = 1_000_000;
/// Pauses of a poller from look to look at the clock, a microsecond or two.
const PAUSES: u32 = 32;

/// The pollers; they end with it.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    shared: Arc<Shared>,
    pollers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    until_ns: AtomicU64,
    ended: AtomicBool,
}

impl Awake {
    /// A poller for each processor in the control group; none without a group.
    ///
    /// # Errors
    /// The group cannot be joined.
    pub(crate) fn start(clock: Clock, group: Option<&Path>) -> io::Result<Self> {
        let mut awake = Self::default();
        let Some(group) = group else {
            return Ok(awake);
        };
        for processor in machine::own_processors() {
            let (shared, tasks) = (Arc::clone(&awake.shared), group.join("tasks"));
            let (told, joined) = std::sync::mpsc::sync_channel(1);
            let poller = std::thread::Builder::new().name("awake".into());
            awake.pollers.push(poller.spawn(move || {
                // Of version 1: 0 is the thread that writes.
                let ready = fs::write(tasks, "0").and_then(|()| machine::be_last(processor));
                let is_ready = ready.is_ok();
                if told.send(ready).is_ok() && is_ready {
                    poll(&shared, clock);
                }
            })?);
            joined.recv().map_err(io::Error::other)??;
        }
        Ok(awake)
    }

    /// A packet came or was handed over.
    #[inline]
    pub(crate) fn happened(&self, now_ns: u64) {
        let until_ns = self.shared.until_ns.load(Ordering::Relaxed);
        if until_ns < now_ns + HOLD_NS - PROLONG_NS {
            self.prolong(now_ns, until_ns);
        }
    }

    #[cold]
    fn prolong(&self, now_ns: u64, until_ns: u64) {
        self.shared
            .until_ns
            .store(now_ns + HOLD_NS, Ordering::Release);
        if until_ns <= now_ns + NEARLY_NS {
            self.wake();
        }
    }

    /// Other work wants the processors. Where all of them look busy the scheduler does not search for one that only polls, and a
    /// thread that is woken waits for milliseconds behind another.
    pub(crate) fn rest(&self) {
        self.shared.until_ns.store(0, Ordering::Release);
    }

    fn wake(&self) {
        for poller in &self.pollers {
            poller.thread().unpark();
        }
    }

    /// How many there are.
    pub(crate) fn pollers(&self) -> u32 {
        u32::try_from(self.pollers.len()).unwrap_or(u32::MAX)
    }

    /// How many poll now.
    pub(crate) fn polling(&self, now_ns: u64) -> u32 {
        if now_ns < self.shared.until_ns.load(Ordering::Relaxed) {
            self.pollers()
        } else {
            0
        }
    }

    /// Processor time that they have used, in ns: only such as nobody else wanted.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let used = |poller: &JoinHandle<()>| thread_cpu_ns(poller.as_pthread_t());
        self.pollers.iter().map(used).sum()
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.wake();
        for poller in self.pollers.drain(..) {
            let _ = poller.join(); // a panic there was told on stderr
        }
    }
}

fn poll(shared: &Shared, clock: Clock) {
    while !shared.ended.load(Ordering::Acquire) {
        if clock.now_ns() < shared.until_ns.load(Ordering::Acquire) {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        } else {
            // Whoever prolongs wakes it, also if it does so between the look and the parking.
            std::thread::park();
        }
    }
}
