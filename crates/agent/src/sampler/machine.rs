//! CPU time, pressure and memory of the machine.

use super::SampledCounters;
use super::source::put;
use crate::processes::ticks_per_s;

/// proc_stat(5): the first line has the sums of all cores, the next ones have the cores, in clock ticks.
pub(super) fn parse_cpu(text: &str, counters: &mut SampledCounters) {
    let per_s = ticks_per_s();
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let (name, values) = line.split_once(' ').unwrap_or((line, ""));
        let ticks: Vec<f64> = values
            .split_ascii_whitespace()
            .filter_map(|value| value.parse().ok())
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            continue;
        };
        let mut add = |name: String, ticks: f64| counters.insert(name.into(), ticks / per_s);
        match name.trim_start_matches("cpu") {
            "" => {
                for (key, ticks) in [
                    ("user_s", user + nice),
                    ("system_s", system + irq + softirq),
                    ("idle_s", idle),
                    ("iowait_s", iowait),
                    ("steal_s", steal),
                    ("irq_s", irq),
                    ("softirq_s", softirq),
                ] {
                    add(format!("cpu.{key}"), ticks);
                }
            }
            core => {
                let busy = user + nice + system + irq + softirq + steal;
                add(format!("core.{core}.busy_s"), busy);
                add(format!("core.{core}.softirq_s"), softirq);
            }
        }
    }
}

/// Documentation/accounting/psi.rst: `some` and `full` with averages and a sum in microseconds.
pub(super) fn parse_pressure(prefix: &str, text: &str, counters: &mut SampledCounters) {
    const US_PER_S: f64 = 1e6;
    for line in text.lines() {
        let total = line.rsplit_once("total=").map_or("", |(_, total)| total);
        if let Some(kind @ ("some" | "full")) = line.split(' ').next() {
            put(format!("{prefix}.{kind}_s"), total, US_PER_S, counters);
        }
    }
}

/// proc_meminfo(5).
pub(super) fn parse_memory(text: &str, counters: &mut SampledCounters) {
    const KIB_PER_BYTE: f64 = 1.0 / 1024.0;
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
        let kib = rest.trim().trim_end_matches(" kB");
        put(format!("memory.{key}"), kib, KIB_PER_BYTE, counters);
    }
}
