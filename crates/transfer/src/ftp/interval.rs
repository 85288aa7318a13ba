//! Throughput between two moments, as input of decisions about sessions.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use super::shared::Shared;

/// Below this mean size, throughput is measured in files, otherwise in bytes: a file costs a server as much as 20 kB, and large files finish rarely.
const SMALL_BYTES: u64 = 100_000;

/// Counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    at: Instant,
    files: u64,
    bytes: u64,
    cpu: Duration,
    host: Ticks,
}

/// CPU times of this host in ticks of the kernel; zeros if unknown.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    busy: u64,
    all: u64,
}

/// Throughput per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rate {
    Files(f64),
    Bytes(f64),
}

impl Mark {
    pub(super) fn now(shared: &Shared<'_>) -> Self {
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
            let time = |value: nix::sys::time::TimeVal| {
                Duration::from_micros(
                    u64::try_from(nix::sys::time::TimeValLike::num_microseconds(&value))
                        .unwrap_or(0),
                )
            };
            time(usage.user_time()) + time(usage.system_time())
        });
        Self {
            at: Instant::now(),
            files: read(&shared.totals.files),
            bytes: read(&shared.totals.moved_bytes),
            cpu,
            host: Ticks::now(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Returns the throughput since `before`, for items of this mean size. None if no small file was completed, or
    /// no data of large files was transferred.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 15 digits"
    )]
    pub(super) fn rate(self, before: Self, mean_bytes: u64) -> Option<Rate> {
        let seconds = self.seconds(before);
        let files = self.files.saturating_sub(before.files);
        let bytes = self.bytes.saturating_sub(before.bytes);
        let mean = bytes.checked_div(files).unwrap_or(mean_bytes);
        let (done, rate) = if mean < SMALL_BYTES {
            (files, Rate::Files(files as f64 / seconds))
        } else {
            (bytes, Rate::Bytes(bytes as f64 / seconds))
        };
        (done > 0).then_some(rate)
    }

    /// Returns the CPU load: the larger of the load of this host by all processes, and that of the
    /// permitted CPUs by this process.
    pub(super) fn busy(self, before: Self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cpu = self.cpu.saturating_sub(before.cpu);
        let cores = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
        let own = cpu.as_secs_f64() / self.seconds(before) / cores;
        own.max(self.host.part_busy(before.host))
    }

    fn seconds(self, before: Self) -> f64 {
        (self.at - before.at).as_secs_f64().max(1e-9)
    }
}

impl Ticks {
    /// Parses `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal. Processes with nice values yield to sessions.
    fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let all = text.split_ascii_whitespace().skip(1).take(8);
        let all: Vec<u64> = all.map_while(|count| count.parse().ok()).collect();
        let free: u64 = [1, 3, 4].iter().filter_map(|&at| all.get(at)).sum();
        let all = all.iter().sum();
        Self {
            busy: all - free,
            all,
        }
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a part needs no more than 15 digits"
    )]
    fn part_busy(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.busy.saturating_sub(before.busy) as f64 / all as f64
    }
}

impl Rate {
    /// Returns the ratio of two rates; none if their units differ.
    pub(super) fn over(self, other: Self) -> Option<f64> {
        match (self, other) {
            (Self::Files(own), Self::Files(other)) | (Self::Bytes(own), Self::Bytes(other)) => {
                Some(own / other)
            }
            _ => None,
        }
    }

    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Files(_))
    }

    /// Returns the time for these files or bytes, in seconds.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a time needs no more than 15 digits"
    )]
    pub(super) fn time_s(self, files: usize, bytes: u64) -> f64 {
        match self {
            Self::Files(rate) => files as f64 / rate,
            Self::Bytes(rate) => bytes as f64 / rate,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(rate) => write!(out, "{rate:.0} files/s"),
            Self::Bytes(rate) => write!(out, "{:.1} MB/s", rate / 1e6),
        }
    }
}

/// Formats the gain of more sessions.
pub(super) fn compare(
    gain: f64,
    (rate, many): (Rate, usize),
    (before, few): (Rate, usize),
) -> String {
    let percent = (gain - 1.0) * 100.0;
    let (percent, what) = if percent < 0.0 {
        (-percent, "less")
    } else {
        (percent, "more")
    };
    format!("{percent:.0} % {what}: {rate} with {many} sessions, {before} with {few}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_known_after_finished_files_or_moved_bytes_of_large_files() {
        let before = Mark {
            at: Instant::now(),
            files: 10,
            bytes: 1_000,
            cpu: Duration::ZERO,
            host: Ticks::default(),
        };
        let check = |files, bytes, mean_bytes, expected: Option<Rate>| {
            let now = Mark {
                at: before.at + Duration::from_secs(2),
                files: before.files + files,
                bytes: before.bytes + bytes,
                ..before
            };
            assert_eq!(now.rate(before, mean_bytes), expected);
        };
        check(100, 1_000_000, 10_000, Some(Rate::Files(50.0)));
        check(0, 500_000, 10_000, None);
        check(0, 0, 10_000, None);
        check(0, 0, 100_000_000, None);
        check(0, 500_000, 100_000_000, Some(Rate::Bytes(250_000.0)));
        // The completed files are more representative than the mean of all.
        check(2, 40_000_000, 10_000, Some(Rate::Bytes(20_000_000.0)));
    }

    #[test]
    fn cores_are_busy_when_not_idle_or_nice_or_waiting_for_a_disk() {
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n");
        let after = Ticks::parse("cpu  150 10 60 820 60 5 5 0 7 0\n");
        let part = after.part_busy(before);
        assert!((part - 70.0 / 110.0).abs() < 1e-9, "{part}");
        let known = Ticks::now().all > 0;
        assert_eq!(known, std::path::Path::new("/proc/stat").exists());
        assert!(Ticks::parse("").part_busy(Ticks::parse("")) < 1e-9);
    }

    #[test]
    fn rates_are_compared_in_the_same_unit_and_both_are_reported() {
        let (few, many) = (Rate::Bytes(40e6), Rate::Bytes(41.2e6));
        assert_eq!(many.over(Rate::Files(3.0)), None);
        let gain = many.over(few).expect("both weigh");
        let text = compare(gain, (many, 8), (few, 4));
        assert_eq!(
            text,
            "3 % more: 41.2 MB/s with 8 sessions, 40.0 MB/s with 4"
        );
        let (few, many) = (Rate::Files(400.0), Rate::Files(300.0));
        let text = compare(many.over(few).expect("both count"), (many, 8), (few, 4));
        assert_eq!(
            text,
            "25 % less: 300 files/s with 8 sessions, 400 files/s with 4"
        );
    }
}
