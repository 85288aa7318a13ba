//! Load of this host: CPU, CPU quota, pressure, and the disks of some paths. Two readings give the load between them.

use std::collections::BTreeMap;
use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;

use crate::disk::FileSystem;
use crate::error::MeasureError;

/// Options of `counters`.
#[derive(Debug, Args)]
pub struct CountersArgs {
    /// Files or directories whose disks to describe
    paths: Vec<PathBuf>,
}

/// One reading. Absent values are unknown.
#[derive(Debug, Serialize)]
struct Counters {
    unix_s: f64,
    cores: usize,
    /// CPU time of all cores since boot.
    cpu: Option<Cpu>,
    /// Quotas of the control groups of this process.
    quota: Option<Quota>,
    /// Time with stalled processes since boot.
    pressure: BTreeMap<&'static str, f64>,
    memory_available_bytes: Option<u64>,
    machine_id: Option<String>,
    disks: BTreeMap<String, Disk>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Cpu {
    busy_s: f64,
    iowait_s: f64,
    steal_s: f64,
}

/// CPU quota: the smallest of this process's control groups, and how often they stopped its processes.
#[derive(Debug, PartialEq, Serialize)]
struct Quota {
    cores: f64,
    periods: u64,
    throttled_periods: u64,
    throttled_s: f64,
}

#[derive(Debug, Serialize)]
struct Disk {
    #[serde(flatten)]
    file_system: FileSystem,
    #[serde(flatten)]
    counters: Option<DiskCounters>,
}

#[derive(Debug, PartialEq, Serialize)]
struct DiskCounters {
    read_bytes: u64,
    written_bytes: u64,
    busy_s: f64,
}

/// Prints one reading.
pub(crate) fn execute(arguments: &CountersArgs) -> Result<(), MeasureError> {
    let mut disks = BTreeMap::new();
    for path in &arguments.paths {
        let failed = |operation| move |error| MeasureError::io(operation, path.display(), error);
        let file = File::open(path).map_err(failed("open"))?;
        let file_system = FileSystem::of(&file).map_err(failed("read the file system of"))?;
        let stat = read_to_string(format!("/sys/dev/block/{}/stat", file_system.device)).ok();
        let counters = stat.and_then(|text| parse_disk(&text));
        let disk = Disk {
            file_system,
            counters,
        };
        disks.insert(path.display().to_string(), disk);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    crate::print(&Counters {
        unix_s: since.map_or(0.0, |time| time.as_secs_f64()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        cpu: read_to_string("/proc/stat")
            .ok()
            .and_then(|text| parse_cpu(&text)),
        quota: own_quota(),
        pressure: pressure(),
        memory_available_bytes: available_memory(),
        machine_id: machine_id(),
        disks,
    })
}

/// Seconds of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_cpu(text: &str) -> Option<Cpu> {
    // SAFETY: a query without arguments in memory.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<f64> = line
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().map(|count: f64| count / ticks))
        .collect::<Result<_, _>>()
        .ok()?;
    let &[user, nice, system, _idle, iowait, irq, softirq, steal] = times.as_slice() else {
        return None;
    };
    Some(Cpu {
        busy_s: user + nice + system + irq + softirq,
        iowait_s: iowait,
        steal_s: steal,
    })
}

fn pressure() -> BTreeMap<&'static str, f64> {
    let read = |resource| {
        let text = read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        let total = text.lines().next()?.rsplit_once("total=")?.1;
        Some((resource, total.parse::<f64>().ok()? / 1e6))
    };
    ["cpu", "io", "memory"]
        .into_iter()
        .filter_map(read)
        .collect()
}

fn available_memory() -> Option<u64> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Identity of the running kernel: two hosts with the same one share CPUs and disks.
fn machine_id() -> Option<String> {
    let text = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Fields 3, 7 and 10 of a block device's `stat` (Documentation/block/stat.rst).
fn parse_disk(text: &str) -> Option<DiskCounters> {
    const SECTOR_BYTES: u64 = 512;
    let fields: Vec<u64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    Some(DiskCounters {
        read_bytes: fields.get(2)? * SECTOR_BYTES,
        written_bytes: fields.get(6)? * SECTOR_BYTES,
        busy_s: *fields.get(9)? as f64 / 1e3,
    })
}

/// Quota of this process: of its control group and all groups above it.
fn own_quota() -> Option<Quota> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    quota_of(&groups, &mounts)
}

fn quota_of(groups: &str, mounts: &str) -> Option<Quota> {
    let found: Vec<Quota> = group_directories(groups, mounts)
        .iter()
        .filter_map(|directory| group_quota(directory))
        .collect();
    found.into_iter().reduce(|one, other| Quota {
        cores: one.cores.min(other.cores),
        periods: one.periods.max(other.periods),
        throttled_periods: one.throttled_periods.max(other.throttled_periods),
        throttled_s: one.throttled_s.max(other.throttled_s),
    })
}

/// Directories of the control groups that can have a CPU quota, of both versions.
fn group_directories(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let is_cpu = controllers.split(',').any(|name| name == "cpu");
        if !is_cpu && !controllers.is_empty() {
            continue;
        }
        let Some((root, mount)) = find_mount(mounts, is_cpu) else {
            continue;
        };
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        directories.extend(below.ancestors().map(|directory| mount.join(directory)));
    }
    directories
}

/// Root and mount point of the hierarchy of the CPU controller (version 1), or of the only hierarchy (version 2).
fn find_mount(mounts: &str, version_1: bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut after = right.split(' ');
        let kind = after.next()?;
        let options = after.nth(1).unwrap_or_default();
        let matches = if version_1 {
            kind == "cgroup" && options.split(',').any(|option| option == "cpu")
        } else {
            kind == "cgroup2"
        };
        let mut fields = left.split(' ').skip(3);
        matches.then(|| Some((fields.next()?.into(), fields.next()?.into())))?
    })
}

/// Quota of one group, if it has one.
fn group_quota(directory: &Path) -> Option<Quota> {
    let number = |file: &str| -> Option<f64> {
        read_to_string(directory.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let cores = match read_to_string(directory.join("cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?
        }
        Err(_) => {
            let quota = number("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
            quota / number("cpu.cfs_period_us")?
        }
    };
    let stat = read_to_string(directory.join("cpu.stat")).ok()?;
    let field = |name: &str| -> Option<u64> {
        stat.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?
            .parse()
            .ok()
    };
    let throttled_s = match field("throttled_usec") {
        Some(us) => us as f64 / 1e6,
        None => field("throttled_time")? as f64 / 1e9,
    };
    Some(Quota {
        cores,
        periods: field("nr_periods")?,
        throttled_periods: field("nr_throttled")?,
        throttled_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_excludes_idle_iowait_and_steal() {
        let cpu =
            parse_cpu("cpu  100 200 300 5000 600 10 20 700 0 0\ncpu0 1 2\n").expect("CPU times");
        let second = |ticks: f64| ticks / 100.0;
        assert_eq!(
            cpu,
            Cpu {
                busy_s: second(630.0),
                iowait_s: second(600.0),
                steal_s: second(700.0)
            }
        );
        assert_eq!(parse_cpu("intr 1"), None);
    }

    #[test]
    fn disk_counters_are_sectors_and_milliseconds() {
        let text = "  8 0 16 4 5 0 32 8 0 1500 9 0 0 0 0 0 0\n";
        let found = parse_disk(text).expect("counters");
        assert_eq!(
            found,
            DiskCounters {
                read_bytes: 8192,
                written_bytes: 16384,
                busy_s: 1.5
            }
        );
    }

    #[test]
    fn quotas_of_both_versions_are_found_in_all_parent_groups() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        for group in ["one/a/b", "two/c"] {
            std::fs::create_dir_all(root.join(group)).expect("a group");
        }
        let write = |file: &str, text: &str| std::fs::write(root.join(file), text).expect("a file");
        write("one/a/cpu.cfs_quota_us", "150000\n");
        write("one/a/cpu.cfs_period_us", "100000\n");
        write(
            "one/a/cpu.stat",
            "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n",
        );
        write("one/a/b/cpu.cfs_quota_us", "-1\n");
        write("two/c/cpu.max", "50000 100000\n");
        write(
            "two/c/cpu.stat",
            "usage_usec 1\nnr_periods 8\nnr_throttled 2\nthrottled_usec 500000\n",
        );
        let point = root.display();
        let mounts = format!(
            "30 1 0:2 / {point}/one rw - cgroup cgroup rw,cpu,cpuacct\n31 1 0:3 / {point}/two rw - cgroup2 none rw\n"
        );
        let quota = |groups| quota_of(groups, &mounts);
        assert_eq!(
            quota("4:memory:/x\n2:cpu,cpuacct:/a/b\n"),
            Some(Quota {
                cores: 1.5,
                periods: 10,
                throttled_periods: 4,
                throttled_s: 2.5
            })
        );
        assert_eq!(
            quota("0::/c\n"),
            Some(Quota {
                cores: 0.5,
                periods: 8,
                throttled_periods: 2,
                throttled_s: 0.5
            })
        );
        assert_eq!(quota("0::/\n"), None);
    }
}
