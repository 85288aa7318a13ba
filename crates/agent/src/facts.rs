//! The environment of a run: what somebody needs to know to repeat it, or to doubt it. Feature F94.
//!
//! A flat table of texts, as the kernel spells them: facts are compared between runs, not computed with. What a host does
//! not tell is absent.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Facts by name, such as `cpu.model`.
pub(crate) type Facts = BTreeMap<String, Value>;

/// Kernel settings that decide the speed of a transfer.
const SYSCTLS: [&str; 17] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_ratio",
    "vm.dirty_writeback_centisecs",
    "vm.swappiness",
];

/// All facts of this host, collected in a few milliseconds from files of the kernel.
pub(crate) fn host() -> Facts {
    let mut facts = Facts::new();
    add_system(&mut facts);
    add_processor(&mut facts);
    add_memory(&mut facts);
    add_interfaces(&mut facts);
    add_block_devices(&mut facts);
    for name in SYSCTLS {
        add_file(
            &mut facts,
            &format!("sysctl.{name}"),
            format!("/proc/sys/{}", name.replace('.', "/")),
        );
    }
    facts
}

/// Facts of a directory: its file system, device, mount options, free bytes.
pub(crate) fn place(folder: &Path) -> BTreeMap<String, String> {
    // A place that is not made yet is on the file system of its nearest ancestor.
    let there = folder
        .ancestors()
        .find_map(|ancestor| ancestor.canonicalize().ok())
        .unwrap_or_else(|| "/".into());
    let mut facts = BTreeMap::from([("path".into(), folder.display().to_string())]);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = mount_of(&there, &mounts) {
        facts.extend(mount.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    if let Ok(free) = crate::dataset::free_bytes(&there) {
        facts.insert("free_bytes".into(), free.to_string());
    }
    facts
}

/// Memory of the host in bytes, if it tells.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory_line("MemTotal")
}

/// proc_pid_mountinfo(5): of all mount points above the path the longest holds it, and of equal ones the last.
fn mount_of<'a>(path: &Path, mounts: &'a str) -> Option<[(&'static str, &'a str); 4]> {
    let of_line = |line: &'a str| {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        let (point, options) = (*before.get(4)?, *before.get(5)?);
        let told = [
            ("mount", point),
            ("type", *after.first()?),
            ("device", *after.get(1)?),
            ("options", options),
        ];
        path.starts_with(unescape(point)).then_some(told)
    };
    mounts
        .lines()
        .filter_map(of_line)
        .max_by_key(|told| told[0].1.len())
}

/// Blanks in mount points stand as octal `\040`; others are too rare to matter for a fact.
fn unescape(point: &str) -> String {
    point.replace("\\040", " ")
}

fn add_system(facts: &mut Facts) {
    if let Ok(name) = nix::sys::utsname::uname() {
        add(facts, "kernel.release", name.release().to_string_lossy());
        add(facts, "kernel.version", name.version().to_string_lossy());
        add(facts, "machine", name.machine().to_string_lossy());
        add(facts, "hostname", name.nodename().to_string_lossy());
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    add_some(facts, "os", pretty.map(|name| name.trim_matches('"')));
    add_file(facts, "load", "/proc/loadavg");
    let uptime = read("/proc/uptime");
    add_some(
        facts,
        "uptime_s",
        uptime.as_deref().and_then(|text| text.split(' ').next()),
    );
    add_file(
        facts,
        "clock_source",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    );
    add_file(facts, "virtual.product", "/sys/class/dmi/id/product_name");
    add_file(facts, "virtual.vendor", "/sys/class/dmi/id/sys_vendor");
    add_file(
        facts,
        "transparent_hugepages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    );
    add(facts, "user.id", nix::unistd::geteuid().to_string());
}

fn add_processor(facts: &mut Facts) {
    let Ok(text) = fs::read_to_string("/proc/cpuinfo") else {
        return; // what cannot be looked at is absent
    };
    let field = |name: &str| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(name)?.split_once(':')?.1.trim()))
    };
    add_some(facts, "cpu.model", field("model name"));
    add_some(facts, "cpu.microcode", field("microcode"));
    let virtual_bit =
        field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    add(facts, "virtual.hypervisor", virtual_bit.to_string());
    let sum = text
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    add(facts, "cpu.count", sum.to_string());
    add_file(facts, "cpu.online", "/sys/devices/system/cpu/online");
    add_file(facts, "cpu.smt", "/sys/devices/system/cpu/smt/active");
    add_file(
        facts,
        "cpu.governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    );
    add_file(
        facts,
        "cpu.frequency_driver",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    );
    add_file(
        facts,
        "cpu.max_khz",
        "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    );
    add_file(facts, "numa.nodes", "/sys/devices/system/node/online");
    let usable = std::thread::available_parallelism().map(|count| count.to_string());
    add_some(facts, "cpu.usable", usable.ok());
}

fn add_memory(facts: &mut Facts) {
    for (key, name) in [
        ("memory.total_bytes", "MemTotal"),
        ("memory.available_bytes", "MemAvailable"),
        ("memory.swap_bytes", "SwapTotal"),
    ] {
        add_some(facts, key, memory_line(name).map(|bytes| bytes.to_string()));
    }
}

fn memory_line(name: &str) -> Option<u64> {
    const BYTES_PER_KIB: u64 = 1024;
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().trim_end_matches(" kB").parse::<u64>().ok()? * BYTES_PER_KIB)
}

fn add_interfaces(facts: &mut Facts) {
    for name in entries("/sys/class/net") {
        let folder = format!("/sys/class/net/{name}");
        for (key, file) in [
            ("state", "operstate"),
            ("mtu", "mtu"),
            ("queue_length", "tx_queue_len"),
        ] {
            add_file(
                facts,
                &format!("nic.{name}.{key}"),
                format!("{folder}/{file}"),
            );
        }
        // -1 is the kernel's "not known" for a link that is down or virtual.
        let speed = read(format!("{folder}/speed")).filter(|speed| !speed.starts_with('-'));
        add_some(facts, &format!("nic.{name}.speed_mbit_per_s"), speed);
        let driver = fs::read_link(format!("{folder}/device/driver")).ok();
        let driver = driver
            .as_deref()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy());
        add_some(facts, &format!("nic.{name}.driver"), driver);
    }
}

fn add_block_devices(facts: &mut Facts) {
    const SECTOR_BYTES: u64 = 512; // the unit of this file, whatever the device says of itself
    for name in entries("/sys/block") {
        let folder = format!("/sys/block/{name}");
        let sectors = read(format!("{folder}/size"))
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0);
        if sectors == 0 {
            continue; // a loop or ram device without content
        }
        add(
            facts,
            &format!("block.{name}.size_bytes"),
            (sectors * SECTOR_BYTES).to_string(),
        );
        for (key, file) in [
            ("model", "device/model"),
            ("rotational", "queue/rotational"),
            ("scheduler", "queue/scheduler"),
            ("read_ahead_kib", "queue/read_ahead_kb"),
            ("write_cache", "queue/write_cache"),
        ] {
            add_file(
                facts,
                &format!("block.{name}.{key}"),
                format!("{folder}/{file}"),
            );
        }
    }
}

fn entries(folder: &str) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim().replace('\t', " ");
    (!text.is_empty()).then_some(text)
}

fn add_file(facts: &mut Facts, key: &str, path: impl AsRef<Path>) {
    add_some(facts, key, read(path));
}

fn add_some(facts: &mut Facts, key: &str, value: Option<impl Into<String>>) {
    if let Some(value) = value {
        add(facts, key, value);
    }
}

fn add(facts: &mut Facts, key: &str, value: impl Into<String>) {
    facts.insert(key.to_owned(), Value::String(value.into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_above_a_path_holds_it() {
        let mounts = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt/my\\040data rw,noatime - xfs /dev/sdb rw
31 22 0:27 / /mnt rw - tmpfs tmpfs rw,size=1g
";
        let mount = |path: &str| {
            mount_of(Path::new(path), mounts).map(|told| (told[1].1, told[2].1, told[3].1))
        };
        assert_eq!(mount("/home"), Some(("ext4", "/dev/vda", "rw,relatime")));
        assert_eq!(mount("/mnt/x"), Some(("tmpfs", "tmpfs", "rw")));
        assert_eq!(
            mount("/mnt/my data/x"),
            Some(("xfs", "/dev/sdb", "rw,noatime"))
        );
    }

    #[test]
    fn every_linux_host_tells_at_least_these() {
        let facts = host();
        for key in [
            "kernel.release",
            "hostname",
            "cpu.count",
            "memory.total_bytes",
            "load",
            "uptime_s",
        ] {
            assert!(facts.contains_key(key), "{key}");
        }
        assert!(facts.values().all(Value::is_string));
    }

    #[test]
    fn a_place_that_is_not_made_yet_is_where_its_parent_is() {
        let facts = place(Path::new("/proc/no/such/folder"));
        assert_eq!(facts.get("type").map(String::as_str), Some("proc"));
    }
}
