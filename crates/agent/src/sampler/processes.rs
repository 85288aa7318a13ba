//! CPU time, waiting time and bytes of the movers and of each server of this host.
//!
//! Values are sums over the readings and include exited processes. The time between the last
//! reading of a process and its end is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::unistd::Pid;

use super::SampledCounters;
use crate::clock::{NS_PER_S, boot_ns, thread_cpu_ns};
use crate::processes::{self, read_short, ticks_per_s};
use crate::servers::PlanServers;

/// Prefix of the processes that the agent has started.
const MOVER: &str = "process.mover";

/// Pause after a reading, as a multiple of its CPU time: at most 0.25 % of a core.
const PAUSE_FACTOR: u64 = 400;

/// Keys of `/proc/PID/io` (proc_pid_io(5)) and their names in a sample.
const IO: [(&str, &str); 4] = [
    ("read_bytes", "read_bytes"),
    ("write_bytes", "write_bytes"),
    ("rchar", "read_call_bytes"),
    ("wchar", "write_call_bytes"),
];

/// Movers and servers.
pub(super) struct ProcessGroups {
    servers: PlanServers,
    /// A child of the agent that is not a mover.
    watchdog: u32,
    groups: BTreeMap<String, Group>,
    /// Start of the sampling, in ticks since boot; later processes have no earlier counts.
    start_ticks: u64,
    latest_ns: u64,
    due_ns: u64,
    /// Whether the kernel counts waits for disks (`kernel.task_delayacct`).
    counts_waits: bool,
}

/// Processes under one prefix.
#[derive(Debug, Default)]
struct Group {
    known: BTreeMap<u32, Process>,
    threads: usize,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    user_ticks: u64,
    system_ticks: u64,
    disk_wait_ticks: u64,
    blocked_ns: u64,
    /// None: unavailable for this kernel or user.
    io: Option<[u64; 4]>,
    schedule: Option<Schedule>,
    busiest_thread_ns: u64,
}

/// CPU time and time in the run queue (Documentation/scheduler/sched-stats.rst).
#[derive(Debug, Default, Clone, Copy)]
struct Schedule {
    cpu_ns: u64,
    wait_ns: u64,
}

/// The latest reading of a process.
#[derive(Debug, Default)]
struct Process {
    start_ticks: u64,
    stat: Stat,
    io: Option<[u64; 4]>,
    threads: BTreeMap<u32, Schedule>,
}

/// Fields of proc_pid_stat(5).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    user_ticks: u64,
    system_ticks: u64,
    threads: usize,
    start_ticks: u64,
    disk_wait_ticks: u64,
}

impl ProcessGroups {
    pub(super) fn new(servers: PlanServers, watchdog: Pid) -> Self {
        let waits = fs::read_to_string("/proc/sys/kernel/task_delayacct");
        Self {
            servers,
            watchdog: watchdog.as_raw().unsigned_abs(),
            groups: BTreeMap::new(),
            start_ticks: ticks(boot_ns()),
            latest_ns: 0,
            due_ns: 0,
            counts_waits: waits.is_ok_and(|text| text.trim() == "1"),
        }
    }

    /// Add the counters of all groups, unless the latest reading was too expensive.
    pub(super) fn read_into(&mut self, now_ns: u64, counters: &mut SampledCounters) {
        if now_ns < self.due_ns {
            return;
        }
        let before_ns = thread_cpu_ns();
        let mut movers = processes::descendants([std::process::id()]).unwrap_or_default();
        movers.remove(&self.watchdog);
        let servers = self.servers.processes().into_iter();
        let servers =
            servers.map(|server| (format!("process.server.{}", server.service), server.pids));
        let interval_ns = match self.latest_ns {
            0 => 0,
            latest_ns => now_ns - latest_ns,
        };
        self.latest_ns = now_ns;
        for (prefix, pids) in servers.chain([(MOVER.to_owned(), movers)]) {
            if pids.is_empty() && !self.groups.contains_key(&prefix) {
                continue; // no process seen yet, so the value is unknown and not 0
            }
            let group = self.groups.entry(prefix.clone()).or_default();
            group.read(&pids, self.start_ticks, interval_ns);
            group.write_into(&prefix, self.counts_waits, counters);
        }
        let cost_ns = thread_cpu_ns().saturating_sub(before_ns);
        self.due_ns = now_ns + cost_ns * PAUSE_FACTOR;
    }

    /// Return the reason for each counter that this host does not offer.
    pub(super) fn missing(&self) -> BTreeMap<String, String> {
        let mut missing = BTreeMap::new();
        for server in self.servers.processes() {
            if let Some(reason) = server.missing {
                missing.insert(format!("process.server.{}", server.service), reason);
            }
        }
        if schedule_of(std::process::id(), std::process::id()).is_none() {
            let reason = "the kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO)";
            missing.insert("process.busiest_thread_s".into(), reason.into());
        }
        if processes::descendants([std::process::id()]).is_none() {
            let reason = "the kernel has no /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)";
            missing.insert(MOVER.into(), reason.into());
        }
        missing
    }
}

impl Group {
    /// Read all processes and add their progress to the sums.
    fn read(&mut self, pids: &BTreeSet<u32>, start_ticks: u64, interval_ns: u64) {
        self.known.retain(|pid, _| pids.contains(pid));
        self.threads = 0;
        let (mut busiest_ns, mut blocked) = (0, false);
        for pid in pids {
            let Some(stat) = stat_of(&format!("/proc/{pid}/stat")).filter(|stat| stat.is_alive())
            else {
                self.known.remove(pid);
                continue;
            };
            self.threads += stat.threads;
            let known = self.known.remove(pid);
            let known = known.filter(|known| known.start_ticks == stat.start_ticks);
            let is_older = known.is_none() && stat.start_ticks < start_ticks;
            let mut process = known.unwrap_or_else(|| Process {
                start_ticks: stat.start_ticks,
                // Counts from before the first sample do not belong to the run.
                stat: if is_older { stat } else { Stat::default() },
                ..Process::default()
            });
            self.sums.add_stat(&process.stat, &stat);
            process.stat = stat;
            let io = io_of(*pid);
            if let Some(now) = io {
                let before = process.io.unwrap_or(if is_older { now } else { [0; 4] });
                self.sums.add_io(&before, &now);
            }
            process.io = io;
            let threads = threads_of(*pid, &stat);
            for (thread, is_blocked, now) in &threads {
                blocked |= is_blocked;
                let Some(now) = now else { continue };
                let new = if is_older { *now } else { Schedule::default() };
                let before = process.threads.get(thread).copied().unwrap_or(new);
                let cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
                busiest_ns = busiest_ns.max(cpu_ns);
                let schedule = self.sums.schedule.get_or_insert_default();
                schedule.cpu_ns += cpu_ns;
                schedule.wait_ns += now.wait_ns.saturating_sub(before.wait_ns);
            }
            process.threads = threads
                .into_iter()
                .filter_map(|(thread, _, now)| Some((thread, now?)))
                .collect();
            self.known.insert(*pid, process);
        }
        self.sums.busiest_thread_ns += busiest_ns;
        self.sums.blocked_ns += if blocked { interval_ns } else { 0 };
    }

    fn write_into(&self, prefix: &str, counts_waits: bool, counters: &mut SampledCounters) {
        let per_s = ticks_per_s();
        let seconds = |ticks: u64| ticks as f64 / per_s;
        let ns = |ns: u64| ns as f64 / NS_PER_S as f64;
        let sums = &self.sums;
        let mut put = |key: &str, value: f64| {
            counters.insert(format!("{prefix}.{key}").into(), value);
        };
        put("processes", self.known.len() as f64);
        put("threads", self.threads as f64);
        put("user_s", seconds(sums.user_ticks));
        put("system_s", seconds(sums.system_ticks));
        put("blocked_s", ns(sums.blocked_ns));
        if counts_waits {
            put("disk_wait_s", seconds(sums.disk_wait_ticks));
        }
        if let Some(schedule) = sums.schedule {
            put("run_wait_s", ns(schedule.wait_ns));
            put("busiest_thread_s", ns(sums.busiest_thread_ns));
        }
        for ((_, key), value) in IO.iter().zip(sums.io.iter().flatten()) {
            put(key, *value as f64);
        }
    }
}

impl Sums {
    fn add_stat(&mut self, before: &Stat, now: &Stat) {
        self.user_ticks += now.user_ticks.saturating_sub(before.user_ticks);
        self.system_ticks += now.system_ticks.saturating_sub(before.system_ticks);
        self.disk_wait_ticks += now.disk_wait_ticks.saturating_sub(before.disk_wait_ticks);
    }

    fn add_io(&mut self, before: &[u64; 4], now: &[u64; 4]) {
        let sums = self.io.get_or_insert_default();
        for ((sum, before), now) in sums.iter_mut().zip(before).zip(now) {
            *sum += now.saturating_sub(*before);
        }
    }
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name can contain anything, so the fields are counted from its end: the third field is the first one there.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            threads: usize::try_from(number(20)?).ok()?,
            start_ticks: number(22)?,
            disk_wait_ticks: number(42)?,
        })
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }

    /// Returns whether the process is in uninterruptible sleep: it waits for a disk or for a
    /// network file system.
    fn is_blocked(&self) -> bool {
        self.state == b'D'
    }
}

fn stat_of(path: &str) -> Option<Stat> {
    Stat::parse(&read_short(path)?)
}

/// Return each thread, whether it is blocked, and its times.
fn threads_of(pid: u32, stat: &Stat) -> Vec<(u32, bool, Option<Schedule>)> {
    if stat.threads == 1 {
        return vec![(pid, stat.is_blocked(), schedule_of(pid, pid))];
    }
    let thread = |thread: u32| {
        let stat = stat_of(&format!("/proc/{pid}/task/{thread}/stat"))?;
        Some((thread, stat.is_blocked(), schedule_of(pid, thread)))
    };
    let threads = processes::threads_of(pid).unwrap_or_default();
    threads.into_iter().filter_map(thread).collect()
}

fn schedule_of(pid: u32, thread: u32) -> Option<Schedule> {
    let text = read_short(&format!("/proc/{pid}/task/{thread}/schedstat"))?;
    let mut numbers = text
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok());
    Some(Schedule {
        cpu_ns: numbers.next()?,
        wait_ns: numbers.next()?,
    })
}

fn io_of(pid: u32) -> Option<[u64; 4]> {
    let text = read_short(&format!("/proc/{pid}/io"))?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(name, _)| *name == key)?.1.parse().ok()
    };
    let [read, write, read_calls, write_calls] = IO.map(|(key, _)| value(key));
    Some([read?, write?, read_calls?, write_calls?])
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "years fit"
)]
fn ticks(ns: u64) -> u64 {
    (ns as f64 / NS_PER_S as f64 * ticks_per_s()) as u64
}

#[cfg(test)]
mod tests;
