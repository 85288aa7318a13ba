//! Counters of the kernel at a fixed interval, on the clock of the trials.
//!
//! Values are cumulative, as in the kernel; the analysis computes rates from two samples and their
//! times.

mod cgroup;
mod disk;
mod machine;
mod network;
mod processes;
mod source;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::unistd::Pid;
use venturi_plan::{CounterFamily, Name};

use crate::clock::{NS_PER_S, monotonic_ns};
use crate::servers::PlanServers;
use processes::ProcessGroups;
use source::CounterFile;

/// Cumulative counters by name, such as `nic.lo.rx_bytes`.
pub(crate) type SampledCounters = BTreeMap<Name, f64>;

/// Handle of the sampling thread.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Punctuality>,
}

/// Resources with pressure information.
const PRESSURES: [&str; 3] = ["cpu", "io", "memory"];

/// Files and processes of a sample.
#[derive(Default)]
pub(crate) struct Sources {
    files: Vec<CounterFile>,
    processes: Option<ProcessGroups>,
    /// The reason for each source that this host does not offer.
    missing: BTreeMap<String, String>,
}

impl Sources {
    /// Add the files of a family of counters. `mounts`: mount point → storages on NFS.
    pub(crate) fn add_family(
        &mut self,
        family: CounterFamily,
        mounts: &BTreeMap<String, Vec<String>>,
    ) {
        match family {
            CounterFamily::Cpu => {
                self.add("cpu", CounterFile::open("/proc/stat", machine::parse_cpu))
            }
            CounterFamily::Memory => {
                self.add(
                    "memory",
                    CounterFile::open("/proc/meminfo", machine::parse_memory),
                );
            }
            CounterFamily::Nic => {
                self.add(
                    "nic",
                    CounterFile::open("/proc/net/dev", network::parse_nics),
                );
                let softnet = CounterFile::open("/proc/net/softnet_stat", network::parse_softnet);
                self.add("softnet", softnet);
            }
            CounterFamily::Disk => {
                self.add("disk", CounterFile::open("/proc/diskstats", disk::disks()));
                if !mounts.is_empty() {
                    let mounts = mounts.clone();
                    let parse = move |text: &str, counters: &mut SampledCounters| {
                        disk::parse_mounts(&mounts, text, counters);
                    };
                    self.add("mount", CounterFile::open("/proc/self/mountstats", parse));
                }
            }
            CounterFamily::Pressure => {
                for resource in PRESSURES {
                    let prefix = format!("pressure.{resource}");
                    let name = prefix.clone();
                    let parse = move |text: &str, counters: &mut SampledCounters| {
                        machine::parse_pressure(&prefix, text, counters);
                    };
                    self.add(
                        &name,
                        CounterFile::open(format!("/proc/pressure/{resource}"), parse),
                    );
                }
            }
            // Sockets have separate records.
            CounterFamily::Tcp => {
                for file in ["snmp", "netstat"] {
                    let path = format!("/proc/net/{file}");
                    self.add("tcp", CounterFile::open(path, network::protocol()));
                }
            }
            // Processes need more than the name of the family.
            CounterFamily::Process => {}
        }
    }

    /// Add the processes that this agent starts, except the watchdog, and the servers of the plan.
    pub(crate) fn add_processes(&mut self, servers: PlanServers, watchdog: Pid) {
        self.processes = Some(ProcessGroups::new(servers, watchdog));
    }

    /// Add the counters of a controller's directory. Return whether there are any.
    pub(crate) fn add_cgroup(&mut self, controller: &str, directory: &Path) -> bool {
        let sources = cgroup::open(controller, directory);
        let any = !sources.is_empty();
        self.files.extend(sources);
        any
    }

    /// Return whether there is nothing to sample.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.processes.is_none()
    }

    fn add(&mut self, name: &str, source: Result<CounterFile, String>) {
        match source {
            Ok(source) => self.files.push(source),
            Err(reason) => {
                self.missing.insert(name.to_owned(), reason);
            }
        }
    }

    fn read(&mut self, now_ns: u64) -> SampledCounters {
        let mut counters = SampledCounters::new();
        for source in &mut self.files {
            source.read_into(&mut counters);
        }
        if let Some(processes) = &mut self.processes {
            processes.read_into(now_ns, &mut counters);
        }
        counters
    }

    /// Read the processes again, so that their sums reach to the end of the run.
    fn read_last(&mut self, now_ns: u64) -> SampledCounters {
        let mut counters = SampledCounters::new();
        if let Some(processes) = &mut self.processes {
            processes.read_all(now_ns, &mut counters);
        }
        counters
    }

    /// Return the reason for each counter that this host does not offer.
    fn missing(&self) -> BTreeMap<String, String> {
        let processes = self.processes.as_ref().map(ProcessGroups::missing);
        let mut missing = self.missing.clone();
        missing.extend(processes.unwrap_or_default());
        missing
    }
}

/// Messages of the sampling thread.
#[derive(Debug)]
pub(crate) enum SamplerMessage {
    /// Counters at a time of the monotonic clock.
    Counters(u64, SampledCounters),
    /// The reason for each counter that this host does not offer; after the first sample, if there are any.
    Missing(u64, BTreeMap<String, String>),
}

/// Punctuality of the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Punctuality {
    /// Samples taken.
    pub(crate) taken: u64,
    /// Samples taken more than half an interval late.
    pub(crate) late: u64,
    /// Scheduled times without a sample, or with a sample that was dropped.
    pub(crate) missed: u64,
    /// The largest lateness, in nanoseconds.
    pub(crate) worst_ns: u64,
}

/// Maximum duration of one sleep, so that the end of a run does not wait for a long interval.
const MAX_SLEEP_NS: u64 = NS_PER_S / 10;

impl Sampler {
    /// Sample these sources every `interval_ns`. `emit` returns whether a message was accepted.
    pub(crate) fn start(
        sources: Sources,
        interval_ns: u64,
        mut emit: impl FnMut(SamplerMessage) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || keep_sampling(sources, interval_ns.max(1), &theirs, &mut emit))?;
        Ok(Self { stop, thread })
    }

    /// End the thread and return its punctuality.
    pub(crate) fn finish(self) -> Punctuality {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Samples on the schedule `start + k·interval`; a late sample does not delay the next one.
fn keep_sampling(
    mut sources: Sources,
    interval_ns: u64,
    stop: &AtomicBool,
    emit: &mut impl FnMut(SamplerMessage) -> bool,
) -> Punctuality {
    let mut timing = Punctuality::default();
    let mut due_ns = monotonic_ns();
    loop {
        while monotonic_ns() < due_ns && !stop.load(Ordering::Relaxed) {
            sleep_until(due_ns.min(monotonic_ns() + MAX_SLEEP_NS));
        }
        let now_ns = monotonic_ns();
        if stop.load(Ordering::Relaxed) {
            let counters = sources.read_last(now_ns);
            if !counters.is_empty() {
                emit(SamplerMessage::Counters(now_ns, counters));
            }
            return timing;
        }
        let counters = sources.read(now_ns);
        timing.taken += 1;
        timing.late += u64::from(now_ns - due_ns > interval_ns / 2);
        timing.worst_ns = timing.worst_ns.max(now_ns - due_ns);
        timing.missed += u64::from(!emit(SamplerMessage::Counters(now_ns, counters)));
        if timing.taken == 1 {
            let missing = sources.missing();
            if !missing.is_empty() {
                emit(SamplerMessage::Missing(now_ns, missing));
            }
        }
        due_ns += interval_ns;
        let passed = monotonic_ns().saturating_sub(due_ns) / interval_ns;
        timing.missed += passed;
        due_ns += passed * interval_ns;
    }
}

fn sleep_until(monotonic_ns: u64) {
    let until = libc::timespec {
        tv_sec: libc::time_t::try_from(monotonic_ns / NS_PER_S).unwrap_or(libc::time_t::MAX),
        tv_nsec: (monotonic_ns % NS_PER_S).cast_signed(),
    };
    // SAFETY: `until` is a valid timespec; an absolute clock returns no remaining time.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

#[cfg(test)]
mod tests;
