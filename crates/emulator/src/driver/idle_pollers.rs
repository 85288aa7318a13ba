//! Keep the CPUs from halting while packets flow and most CPUs are idle.
//!
//! A halted virtual CPU needs tens of microseconds, and up to a millisecond, to wake up. This is
//! more than the delay of a local network, and every packet wakes two hosts. `/dev/cpu_dma_latency`
//! (`machine.rs`) prevents this in kernels with an idle driver, but many virtual machines have
//! none. There, one thread per CPU polls instead. It must be in a control group with `cpu.idle`,
//! because only then other threads preempt it immediately. The policy `SCHED_IDLE` alone is not
//! enough, because the scheduler first divides time between sessions: one in a hundred round trips
//! was then 2 ms late.
//!
//! Measured with four virtual CPUs and round trips of 53 ms: median lateness 327 µs without
//! pollers, 100 µs with them.

use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::{fs, io};

use super::clock::{ModelClock, thread_cpu_ns};
use super::machine;

/// Packets at longer intervals do not keep the CPUs awake in between.
const KEEP_AWAKE_NS: u64 = 1_000_000_000;
/// The time is prolonged when this much of it remains, and not at every packet.
const PROLONG_NS: u64 = KEEP_AWAKE_NS / 10;
/// Pollers that will sleep within this time are woken, too.
const NEARLY_NS: u64 = 1_000_000;
/// Pause instructions of a poller between two reads of the clock, one or two microseconds.
const PAUSES: u32 = 32;

/// The pollers; dropping this value ends them.
#[derive(Debug, Default)]
pub(crate) struct IdlePollers {
    shared: Arc<Shared>,
    pollers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    until_ns: AtomicU64,
    ended: AtomicBool,
}

impl IdlePollers {
    /// Start a poller for each CPU in the control group; none without a group.
    ///
    /// # Errors
    /// The group cannot be joined.
    pub(crate) fn start(clock: ModelClock, group: Option<&Path>) -> io::Result<Self> {
        let mut awake = Self::default();
        let Some(group) = group else {
            return Ok(awake);
        };
        for cpu in machine::allowed_cpus() {
            let (shared, tasks) = (Arc::clone(&awake.shared), group.join("tasks"));
            let (reported, joined) = std::sync::mpsc::sync_channel(1);
            let poller = std::thread::Builder::new().name("awake".into());
            awake.pollers.push(poller.spawn(move || {
                // Version 1: 0 is the writing thread.
                let ready = fs::write(tasks, "0").and_then(|()| machine::be_last(cpu));
                let is_ready = ready.is_ok();
                if reported.send(ready).is_ok() && is_ready {
                    poll(&shared, clock);
                }
            })?);
            joined.recv().map_err(io::Error::other)??;
        }
        Ok(awake)
    }

    /// Record that a packet arrived or was delivered.
    #[inline]
    pub(crate) fn happened(&self, now_ns: u64) {
        let until_ns = self.shared.until_ns.load(Ordering::Relaxed);
        if until_ns < now_ns + KEEP_AWAKE_NS - PROLONG_NS {
            self.prolong(now_ns, until_ns);
        }
    }

    #[cold]
    fn prolong(&self, now_ns: u64, until_ns: u64) {
        self.shared
            .until_ns
            .store(now_ns + KEEP_AWAKE_NS, Ordering::Release);
        if until_ns <= now_ns + NEARLY_NS {
            self.wake();
        }
    }

    /// Stop polling, because other work needs the CPUs. If all CPUs look busy, the scheduler does
    /// not search for a polling CPU, and a woken thread waits milliseconds behind another thread.
    pub(crate) fn rest(&self) {
        self.shared.until_ns.store(0, Ordering::Release);
    }

    fn wake(&self) {
        for poller in &self.pollers {
            poller.thread().unpark();
        }
    }

    /// Return the number of pollers.
    pub(crate) fn pollers(&self) -> u32 {
        u32::try_from(self.pollers.len()).unwrap_or(u32::MAX)
    }

    /// Return the number of active pollers.
    pub(crate) fn polling(&self, now_ns: u64) -> u32 {
        if now_ns < self.shared.until_ns.load(Ordering::Relaxed) {
            self.pollers()
        } else {
            0
        }
    }

    /// Return their CPU time in ns, which no other thread needed.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let used = |poller: &JoinHandle<()>| thread_cpu_ns(poller.as_pthread_t());
        self.pollers.iter().map(used).sum()
    }
}

impl Drop for IdlePollers {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.wake();
        for poller in self.pollers.drain(..) {
            let _ = poller.join(); // a panic there was printed on stderr
        }
    }
}

fn poll(shared: &Shared, clock: ModelClock) {
    while !shared.ended.load(Ordering::Acquire) {
        if clock.now_ns() < shared.until_ns.load(Ordering::Acquire) {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        } else {
            // A prolongation wakes the thread, even between the check and `park`.
            std::thread::park();
        }
    }
}
