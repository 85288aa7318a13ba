//! CPU time, waiting time and bytes of the movers and of each server of this host.
//!
//! Values are sums over the readings and include exited processes. When a parent waits for a child,
//! the kernel adds the child's CPU time and bytes to the counts of the parent. So the sums are
//! complete if all parents in a group wait. Otherwise, the time between the last reading of a
//! process and its end is missing.

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
    /// Children that ended during the latest reading, by ancestor: the ancestor's next growth can include them.
    late: BTreeMap<u32, Vec<Counts>>,
    processes: usize,
    threads: usize,
    sums: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    counts: Counts,
    disk_wait_ticks: u64,
    blocked_ns: u64,
    schedule: Option<Schedule>,
    busiest_thread_ns: u64,
}

/// CPU time and time in the run queue (Documentation/scheduler/sched-stats.rst).
#[derive(Debug, Default, Clone, Copy)]
struct Schedule {
    cpu_ns: u64,
    wait_ns: u64,
}

/// Counts of a process and of the children that it has waited for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    user_ticks: u64,
    system_ticks: u64,
    /// None: unavailable for this kernel or user.
    io: Option<[u64; 4]>,
}

/// The latest reading of a process.
#[derive(Debug, Default)]
struct Process {
    stat: Stat,
    counts: Counts,
    threads: BTreeMap<u32, Schedule>,
}

/// Fields of proc_pid_stat(5).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: u32,
    /// CPU time in user mode, including ended children.
    user_ticks: u64,
    /// CPU time in kernel mode, including ended children.
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
        if now_ns >= self.due_ns {
            self.read_all(now_ns, counters);
        }
    }

    /// Add the counters of all groups.
    pub(super) fn read_all(&mut self, now_ns: u64, counters: &mut SampledCounters) {
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
        let readings: BTreeMap<u32, (Stat, Counts)> = pids
            .iter()
            .filter_map(|pid| {
                let stat = stat_of(&format!("/proc/{pid}/stat"))?;
                Some((*pid, (stat, Counts::new(&stat, io_of(*pid)))))
            })
            .collect();
        let mut ended = self.take_ended(&readings);
        let mut late = std::mem::take(&mut self.late);
        (self.processes, self.threads) = (0, 0);
        let (mut busiest_ns, mut blocked) = (0, false);
        for (pid, (stat, now)) in &readings {
            let is_older = !self.known.contains_key(pid) && stat.start_ticks < start_ticks;
            let process = self.known.entry(*pid).or_default();
            // A process that ends during the reading has no bytes any more; its latest ones remain valid.
            let now = Counts {
                io: now.io.or(process.counts.io),
                ..*now
            };
            if is_older {
                // Counts from before the first sample do not belong to the run.
                process.stat = *stat;
                process.counts = now;
            }
            let mut growth = now.since(&process.counts);
            // The sums have the counts of children already. A process that ignores SIGCHLD does not get them.
            for child in late.remove(pid).unwrap_or_default() {
                growth = growth.without(&child).unwrap_or(growth);
            }
            for child in ended.remove(pid).unwrap_or_default() {
                match growth.without(&child) {
                    Some(own) => growth = own,
                    None => self.late.entry(*pid).or_default().push(child),
                }
            }
            self.sums.counts.add(&growth);
            let waited_ticks = stat
                .disk_wait_ticks
                .saturating_sub(process.stat.disk_wait_ticks);
            self.sums.disk_wait_ticks += waited_ticks;
            process.stat = *stat;
            process.counts = now;
            let threads = threads_of(*pid, stat);
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
            if stat.is_alive() {
                self.processes += 1;
                self.threads += stat.threads;
            }
        }
        self.sums.busiest_thread_ns += busiest_ns;
        self.sums.blocked_ns += if blocked { interval_ns } else { 0 };
    }

    /// Remove the processes that have ended. Return their counts under the nearest ancestor that still runs.
    fn take_ended(
        &mut self,
        readings: &BTreeMap<u32, (Stat, Counts)>,
    ) -> BTreeMap<u32, Vec<Counts>> {
        let runs = |pid: &u32, process: &Process| {
            let now = readings.get(pid);
            now.is_some_and(|(now, _)| now.start_ticks == process.stat.start_ticks)
        };
        let (running, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.known)
            .into_iter()
            .partition(|(pid, process)| runs(pid, process));
        self.known = running;
        let mut by_ancestor = BTreeMap::<u32, Vec<Counts>>::new();
        for process in ended.values() {
            let mut ancestor = process.stat.parent;
            // A reused PID can make a circle, so the number of steps is limited.
            for _ in 0..ended.len() {
                let Some(next) = ended.get(&ancestor) else {
                    break;
                };
                ancestor = next.stat.parent;
            }
            if self.known.contains_key(&ancestor) {
                by_ancestor
                    .entry(ancestor)
                    .or_default()
                    .push(process.counts);
            }
        }
        by_ancestor
    }

    fn write_into(&self, prefix: &str, counts_waits: bool, counters: &mut SampledCounters) {
        let per_s = ticks_per_s();
        let seconds = |ticks: u64| ticks as f64 / per_s;
        let ns = |ns: u64| ns as f64 / NS_PER_S as f64;
        let sums = &self.sums;
        let mut put = |key: &str, value: f64| {
            counters.insert(format!("{prefix}.{key}").into(), value);
        };
        put("processes", self.processes as f64);
        put("threads", self.threads as f64);
        put("user_s", seconds(sums.counts.user_ticks));
        put("system_s", seconds(sums.counts.system_ticks));
        put("blocked_s", ns(sums.blocked_ns));
        if counts_waits {
            put("disk_wait_s", seconds(sums.disk_wait_ticks));
        }
        if let Some(schedule) = sums.schedule {
            put("run_wait_s", ns(schedule.wait_ns));
            put("busiest_thread_s", ns(sums.busiest_thread_ns));
        }
        for ((_, key), value) in IO.iter().zip(sums.counts.io.iter().flatten()) {
            put(key, *value as f64);
        }
    }
}

impl Counts {
    fn new(stat: &Stat, io: Option<[u64; 4]>) -> Self {
        Self {
            user_ticks: stat.user_ticks,
            system_ticks: stat.system_ticks,
            io,
        }
    }

    fn since(&self, before: &Self) -> Self {
        let io = self.io.map(|now| {
            let before = before.io.unwrap_or_default();
            std::array::from_fn(|index| now[index].saturating_sub(before[index]))
        });
        Self {
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
            io,
        }
    }

    fn add(&mut self, growth: &Self) {
        self.user_ticks += growth.user_ticks;
        self.system_ticks += growth.system_ticks;
        if let Some(growth) = growth.io {
            let sums = self.io.get_or_insert_default();
            sums.iter_mut()
                .zip(growth)
                .for_each(|(sum, now)| *sum += now);
        }
    }

    /// Subtract the counts of a child. None: they are not included.
    fn without(&self, child: &Self) -> Option<Self> {
        let mut io = self.io;
        for (now, child) in io.iter_mut().flatten().zip(child.io.iter().flatten()) {
            *now = now.checked_sub(*child)?;
        }
        Some(Self {
            user_ticks: self.user_ticks.checked_sub(child.user_ticks)?,
            system_ticks: self.system_ticks.checked_sub(child.system_ticks)?,
            io,
        })
    }
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name can contain anything, so the fields are counted from its end: the third field is the first one there.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            parent: u32::try_from(number(4)?).ok()?,
            user_ticks: number(14)? + number(16)?,
            system_ticks: number(15)? + number(17)?,
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
