//! Counters of the kernel at a fixed interval, on the clock of the trials.
//!
//! Values are cumulative, as the kernel counts: rates are for the analysis to make, from two samples and their times.

mod cgroup;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use venturi_plan::{CounterFamily, Name};

use crate::clock::{NS_PER_S, monotonic_ns};

/// Cumulative counters by name, such as `nic.lo.rx_bytes`.
pub(crate) type Counters = BTreeMap<Name, f64>;

/// The sampling thread.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Punctuality>,
}

/// Control groups whose counters are sampled.
#[derive(Debug, Default)]
pub(crate) struct ControlGroups(Vec<Source>);

impl ControlGroups {
    /// Opens the counters of a controller's folder. Returns whether there are any.
    pub(crate) fn add(&mut self, controller: &str, folder: &Path) -> bool {
        let sources = cgroup::open(controller, folder);
        let any = !sources.is_empty();
        self.0.extend(sources);
        any
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How well the schedule was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Punctuality {
    /// Samples taken.
    pub(crate) taken: u64,
    /// Taken more than half an interval after their time.
    pub(crate) late: u64,
    /// Points of the schedule that passed without a sample, or whose sample nobody could take.
    pub(crate) missed: u64,
    /// The largest lateness, in nanoseconds.
    pub(crate) worst_ns: u64,
}

/// The longest sleep at once, so that the end of a run with a long interval is not waited for.
const LONGEST_SLEEP_NS: u64 = NS_PER_S / 10;

impl Sampler {
    /// Samples these families and control groups every `interval_ns`, and calls `emit` with the reading of the monotonic clock and the
    /// counters; `emit` says whether the sample was taken.
    pub(crate) fn start(
        families: &[CounterFamily],
        groups: ControlGroups,
        interval_ns: u64,
        mut emit: impl FnMut(u64, Counters) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut sources: Vec<Source> = families
            .iter()
            .filter_map(|family| Source::open(*family))
            .collect();
        sources.extend(groups.0);
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || keep_sampling(sources, interval_ns.max(1), &theirs, &mut emit))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread and tells how punctual it was.
    pub(crate) fn finish(self) -> Punctuality {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// The schedule is `start + k·interval`: a late sample does not push the next one.
fn keep_sampling(
    mut sources: Vec<Source>,
    interval_ns: u64,
    stop: &AtomicBool,
    emit: &mut impl FnMut(u64, Counters) -> bool,
) -> Punctuality {
    let mut told = Punctuality::default();
    let mut due_ns = monotonic_ns();
    loop {
        while monotonic_ns() < due_ns {
            if stop.load(Ordering::Relaxed) {
                return told;
            }
            sleep_until(due_ns.min(monotonic_ns() + LONGEST_SLEEP_NS));
        }
        if stop.load(Ordering::Relaxed) {
            return told;
        }
        let now_ns = monotonic_ns();
        let mut counters = Counters::new();
        for source in &mut sources {
            source.read_into(&mut counters);
        }
        told.taken += 1;
        told.late += u64::from(now_ns - due_ns > interval_ns / 2);
        told.worst_ns = told.worst_ns.max(now_ns - due_ns);
        told.missed += u64::from(!emit(now_ns, counters));
        due_ns += interval_ns;
        let passed = monotonic_ns().saturating_sub(due_ns) / interval_ns;
        told.missed += passed;
        due_ns += passed * interval_ns;
    }
}

fn sleep_until(monotonic_ns: u64) {
    let until = libc::timespec {
        tv_sec: libc::time_t::try_from(monotonic_ns / NS_PER_S).unwrap_or(libc::time_t::MAX),
        tv_nsec: (monotonic_ns % NS_PER_S).cast_signed(),
    };
    // SAFETY: `until` is a valid timespec; the remaining time is not asked for with an absolute clock.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

/// One file of the kernel, kept open: it is read from its start each time.
#[derive(Debug)]
struct Source {
    file: File,
    buffer: Vec<u8>,
    parse: fn(&str, &mut Counters),
}

impl Source {
    /// A family that this kernel does not offer is absent from the samples, as all that was not measured.
    fn open(family: CounterFamily) -> Option<Self> {
        let (path, parse): (_, fn(&str, &mut Counters)) = match family {
            CounterFamily::Cpu => ("/proc/stat", parse_cpu),
            CounterFamily::Nic => ("/proc/net/dev", parse_nics),
            CounterFamily::Disk => ("/proc/diskstats", parse_disks),
            CounterFamily::Memory => ("/proc/meminfo", parse_memory),
            // Sockets are records of their own.
            CounterFamily::Tcp => return None,
        };
        Self::at(Path::new(path), parse)
    }

    fn at(path: &Path, parse: fn(&str, &mut Counters)) -> Option<Self> {
        Some(Self {
            file: File::open(path).ok()?,
            buffer: vec![0; 16 * 1024],
            parse,
        })
    }

    fn read_into(&mut self, counters: &mut Counters) {
        let mut held = 0;
        loop {
            if held == self.buffer.len() {
                self.buffer.resize(held * 2, 0);
            }
            match self.file.read_at(&mut self.buffer[held..], held as u64) {
                Ok(0) => break,
                Ok(count) => held += count,
                Err(_) => return,
            }
        }
        if let Ok(text) = std::str::from_utf8(&self.buffer[..held]) {
            (self.parse)(text, counters);
        }
    }
}

/// proc_stat(5): the first line holds the sums of all processors, in clock ticks.
fn parse_cpu(text: &str, counters: &mut Counters) {
    let ticks: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or("")
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|t| t.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
        return;
    };
    let per_s = ticks_per_s();
    let values = [
        ("user_s", user + nice),
        ("system_s", system + irq + softirq),
        ("idle_s", idle),
        ("iowait_s", iowait),
        ("steal_s", steal),
    ];
    counters.extend(values.map(|(name, ticks)| (format!("cpu.{name}").into(), ticks / per_s)));
}

#[expect(clippy::cast_precision_loss, reason = "it is 100")]
fn ticks_per_s() -> f64 {
    // SAFETY: a query without arguments in memory.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as f64
}

/// proc_pid_net(5): received bytes, packets, errors, drops and four more, then the same of what was sent.
fn parse_nics(text: &str, counters: &mut Counters) {
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let values: Vec<f64> = rest
            .split_ascii_whitespace()
            .filter_map(|value| value.parse().ok())
            .collect();
        let [
            rx_bytes,
            rx_packets,
            _,
            rx_dropped,
            _,
            _,
            _,
            _,
            tx_bytes,
            tx_packets,
            _,
            tx_dropped,
            ..,
        ] = values[..]
        else {
            continue;
        };
        let values = [
            ("rx_bytes", rx_bytes),
            ("tx_bytes", tx_bytes),
            ("rx_packets", rx_packets),
            ("tx_packets", tx_packets),
            ("rx_dropped", rx_dropped),
            ("tx_dropped", tx_dropped),
        ];
        counters.extend(
            values.map(|(key, value)| (format!("nic.{}.{key}", name.trim()).into(), value)),
        );
    }
}

/// Documentation/admin-guide/iostats.rst; sectors have 512 bytes there whatever the device says of itself.
fn parse_disks(text: &str, counters: &mut Counters) {
    const SECTOR_BYTES: f64 = 512.0;
    const MS_PER_S: f64 = 1000.0;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let Some(name) = words.next().filter(|name| is_whole_device(name)) else {
            continue;
        };
        let values: Vec<f64> = words.filter_map(|value| value.parse().ok()).collect();
        let [
            read_ios,
            _,
            read_sectors,
            _,
            write_ios,
            _,
            write_sectors,
            _,
            _,
            busy_ms,
            ..,
        ] = values[..]
        else {
            continue;
        };
        if read_ios == 0.0 && write_ios == 0.0 {
            continue; // dozens of loop and ram devices that were never used
        }
        let values = [
            ("read_bytes", read_sectors * SECTOR_BYTES),
            ("write_bytes", write_sectors * SECTOR_BYTES),
            ("read_ios", read_ios),
            ("write_ios", write_ios),
            ("busy_s", busy_ms / MS_PER_S),
        ];
        counters.extend(values.map(|(key, value)| (format!("disk.{name}.{key}").into(), value)));
    }
}

/// Partitions have no folder of their own there; `/` in a device name (`cciss/c0d0`) is a `!`.
fn is_whole_device(name: &str) -> bool {
    Path::new("/sys/block")
        .join(name.replace('/', "!"))
        .exists()
}

fn parse_memory(text: &str, counters: &mut Counters) {
    const BYTES_PER_KIB: f64 = 1024.0;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let key = match name {
            "MemAvailable" => "available_bytes",
            "Cached" => "cached_bytes",
            "Dirty" => "dirty_bytes",
            _ => continue,
        };
        let kib = rest.trim().trim_end_matches(" kB").parse::<f64>();
        counters.extend(kib.map(|kib| (format!("memory.{key}").into(), kib * BYTES_PER_KIB)));
    }
}

#[cfg(test)]
mod tests;
