//! A CPU phase: a thread that works until it has used a given CPU time.
//!
//! The phase uses CPU time instead of elapsed time, so that it takes as long as a job on a busy
//! host.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rounds between two reads of the clock: about 20 µs of work.
const ROUNDS: u32 = 10_000;

/// Uses `core_s` seconds of CPU time of the calling thread, or less if `stop` becomes true.
pub(crate) fn burn(core_s: f64, stop: &AtomicBool) {
    let end = used() + Duration::try_from_secs_f64(core_s.max(0.0)).unwrap_or(Duration::MAX);
    let mut state = 1_u64;
    while used() < end && !stop.load(Ordering::Relaxed) {
        for _ in 0..ROUNDS {
            state = black_box(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

/// Returns the CPU time of the calling thread.
fn used() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill; every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_uses_the_requested_cpu_time() {
        let before = used();
        burn(0.05, &AtomicBool::new(false));
        let spent = (used() - before).as_secs_f64();
        // The upper bound allows for one read of the clock on a slow core.
        assert!((0.05..0.06).contains(&spent), "{spent}");
    }

    #[test]
    fn a_phase_ends_early_when_the_run_is_stopped() {
        burn(1e9, &AtomicBool::new(true));
    }
}
