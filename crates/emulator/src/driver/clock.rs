//! Clock of the emulator: `CLOCK_MONOTONIC` in nanoseconds, and its relation to the epoch of the
//! run.

use std::time::{SystemTime, UNIX_EPOCH};

use venturi_plan::Seconds;

const NS_PER_S: u64 = 1_000_000_000;

/// Read a clock of the kernel. This takes about 23 ns, which matters because it is read for every
/// packet.
#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill; the ids are constants that every
    // Linux supports.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.unsigned_abs() * NS_PER_S + time.tv_nsec.unsigned_abs()
}

/// Time of the model. Its origin is the start of this process, so that picoseconds fit 64 bits for
/// months.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelClock {
    origin_ns: u64,
    /// Wall-clock time at the origin.
    origin_unix_ns: u64,
    /// Wall-clock time of time zero of the run.
    epoch_unix_ns: u64,
}

impl ModelClock {
    pub(crate) fn new(epoch_unix_ns: u64) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            origin_ns: read(libc::CLOCK_MONOTONIC),
            origin_unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            epoch_unix_ns,
        }
    }

    /// Return the current time of the model, in ns.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        read(libc::CLOCK_MONOTONIC) - self.origin_ns
    }

    /// Convert a time of the model to wall-clock time.
    pub(crate) fn unix_ns(&self, now_ns: u64) -> u64 {
        self.origin_unix_ns + now_ns
    }

    /// Convert a time of the model to seconds since time zero of the run.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a run of 100 days still resolves 2 ns in an f64"
    )]
    pub(crate) fn run_s(&self, now_ns: u64) -> Seconds {
        let ns = i128::from(self.unix_ns(now_ns)) - i128::from(self.epoch_unix_ns);
        Seconds::new(ns as f64 / NS_PER_S as f64)
    }
}

/// Return the CPU time of this process, in ns.
pub(crate) fn cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Return the CPU time of a thread of this process, in ns; the thread must not have been joined.
pub(crate) fn thread_cpu_ns(thread: libc::pthread_t) -> u64 {
    let mut clock = 0;
    // SAFETY: the callers hold the handle of the thread, so its id is valid even if the thread has
    // ended.
    match unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } {
        0 => read(clock),
        _ => 0, // it has ended
    }
}
