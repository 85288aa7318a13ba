//! Counters of the control group of a lab host, which contains all its movers and servers.
//!
//! Version 1: Documentation/admin-guide/cgroup-v1 (`cpuacct.rst`, `blkio-controller.rst`, `memory.rst`) and
//! Documentation/scheduler/sched-bwc.rst. Version 2: Documentation/admin-guide/cgroup-v2.rst.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::machine::parse_pressure;
use super::source::{CounterFile, put};
use super::{PRESSURES, SampledCounters};

const NS_PER_S: f64 = 1e9;
const US_PER_S: f64 = 1e6;

/// Return the sources of a controller's directory; none if it has no supported counters.
pub(super) fn open(controller: &str, directory: &Path) -> Vec<CounterFile> {
    let sources = match controller {
        "cpu" | "cpuacct" => vec![
            // Nanoseconds, while cpuacct.stat has hundredths of a second.
            number(directory.join("cpuacct.usage_user"), "cpu.user_s", NS_PER_S),
            number(
                directory.join("cpuacct.usage_sys"),
                "cpu.system_s",
                NS_PER_S,
            ),
            cpu_stat(directory),
        ],
        "blkio" => ["io_service_bytes", "io_serviced"]
            .map(|file| io_of_version_1(directory, file))
            .into(),
        "io" => vec![io_stat(directory)],
        "memory" => vec![
            number(
                directory.join("memory.usage_in_bytes"),
                "memory.used_bytes",
                1.0,
            ),
            number(directory.join("memory.failcnt"), "memory.limit_hits", 1.0),
            number(directory.join("memory.current"), "memory.used_bytes", 1.0),
            CounterFile::open(directory.join("memory.events"), |text, counters| {
                put_line(text, "max", "memory.limit_hits", 1.0, counters);
            }),
        ],
        "pressure" => PRESSURES
            .map(|resource| {
                let prefix = format!("cgroup.pressure.{resource}");
                let file = directory.join(format!("{resource}.pressure"));
                CounterFile::open(file, move |text, counters| {
                    parse_pressure(&prefix, text, counters);
                })
            })
            .into(),
        _ => Vec::new(),
    };
    sources.into_iter().flatten().collect()
}

fn number(path: impl AsRef<Path>, key: &'static str, per_unit: f64) -> Result<CounterFile, String> {
    CounterFile::open(path, move |text, counters| {
        put(format!("cgroup.{key}"), text, per_unit, counters);
    })
}

/// `cpu.stat` of both versions: periods of a limit, and in version 2 the CPU time.
fn cpu_stat(directory: &Path) -> Result<CounterFile, String> {
    let path = directory.join("cpu.stat");
    let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let limited = is_limited(directory);
    if !limited && !text.contains("user_usec") {
        return Err(format!("{}: no CPU time, and no limit", path.display()));
    }
    CounterFile::open(path, move |text, counters| {
        put_line(text, "user_usec", "cpu.user_s", US_PER_S, counters);
        put_line(text, "system_usec", "cpu.system_s", US_PER_S, counters);
        if !limited {
            return; // the numbers of periods would be 0 instead of not measured
        }
        for (line, key, per_unit) in [
            ("nr_periods", "periods", 1.0),
            ("nr_throttled", "throttled_periods", 1.0),
            ("throttled_time", "throttled_s", NS_PER_S),
            ("throttled_usec", "throttled_s", US_PER_S),
        ] {
            put_line(
                text,
                line,
                &format!("cpu_throttle.{key}"),
                per_unit,
                counters,
            );
        }
    })
}

fn is_limited(directory: &Path) -> bool {
    let read = |file: &str| fs::read_to_string(directory.join(file));
    let quota = read("cpu.cfs_quota_us").is_ok_and(|quota| !quota.starts_with('-'));
    quota || read("cpu.max").is_ok_and(|quota| !quota.starts_with("max"))
}

fn put_line(text: &str, line: &str, key: &str, per_unit: f64, counters: &mut SampledCounters) {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    if let Some((_, value)) = lines.find(|(name, _)| *name == line) {
        put(format!("cgroup.{key}"), value, per_unit, counters);
    }
}

/// `7:0 Read 4096` for each device and kind of operation.
fn io_of_version_1(directory: &Path, file: &'static str) -> Result<CounterFile, String> {
    let unit = if file == "io_serviced" {
        "ios"
    } else {
        "bytes"
    };
    let mut names = DeviceNames::default();
    let path = directory.join(format!("blkio.throttle.{file}"));
    CounterFile::open(path, move |text, counters| {
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [number, kind @ ("Read" | "Write"), value] = fields[..] else {
                continue;
            };
            let name = names.of(number);
            let kind = kind.to_ascii_lowercase();
            put(
                format!("cgroup.io.{name}.{kind}_{unit}"),
                value,
                1.0,
                counters,
            );
        }
    })
}

/// `7:0 rbytes=4096 wbytes=0 rios=1 wios=0 …` for each device.
fn io_stat(directory: &Path) -> Result<CounterFile, String> {
    let mut names = DeviceNames::default();
    CounterFile::open(directory.join("io.stat"), move |text, counters| {
        for line in text.lines() {
            let Some((number, values)) = line.split_once(' ') else {
                continue;
            };
            let name = names.of(number).to_owned();
            for (key, value) in values.split(' ').filter_map(|field| field.split_once('=')) {
                let key = match key {
                    "rbytes" => "read_bytes",
                    "wbytes" => "write_bytes",
                    "rios" => "read_ios",
                    "wios" => "write_ios",
                    _ => continue,
                };
                put(format!("cgroup.io.{name}.{key}"), value, 1.0, counters);
            }
        }
    })
}

/// Names of block devices by number; an unknown device keeps its number.
#[derive(Debug, Default)]
struct DeviceNames(BTreeMap<String, String>);

impl DeviceNames {
    fn of(&mut self, number: &str) -> &str {
        if !self.0.contains_key(number) {
            let device = fs::read_link(format!("/sys/dev/block/{number}")).ok();
            let name = device
                .as_deref()
                .and_then(Path::file_name)
                .map_or_else(|| number.into(), |name| name.to_string_lossy().into_owned());
            self.0.insert(number.to_owned(), name);
        }
        &self.0[number]
    }
}

#[cfg(test)]
mod tests;
