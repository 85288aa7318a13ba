//! Environment of a run: properties of the host that are needed to repeat or assess the run.
//! Feature F94.
//!
//! A flat table of texts in the form of the kernel, because properties are compared between runs
//! and not used in computations. Properties that a host does not report are absent.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Properties by name, such as `cpu.model`.
pub(crate) type Properties = BTreeMap<String, Value>;

/// Kernel settings that affect the speed of a transfer.
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

/// Returns all properties of this host, collected in a few milliseconds from files of the kernel.
pub(crate) fn host() -> Properties {
    let mut properties = Properties::new();
    add_system(&mut properties);
    add_cpu(&mut properties);
    add_memory(&mut properties);
    add_interfaces(&mut properties);
    add_block_devices(&mut properties);
    for name in SYSCTLS {
        add_file(
            &mut properties,
            &format!("sysctl.{name}"),
            format!("/proc/sys/{}", name.replace('.', "/")),
        );
    }
    properties
}

/// Returns properties of a directory: its file system, device, disk, mount options, free bytes.
pub(crate) fn storage(directory: &Path) -> BTreeMap<String, String> {
    // A directory that does not exist yet will be on the file system of its nearest ancestor.
    let existing = directory
        .ancestors()
        .find_map(|ancestor| ancestor.canonicalize().ok())
        .unwrap_or_else(|| "/".into());
    let mut properties = BTreeMap::from([("path".into(), directory.display().to_string())]);
    let mounts = Mounts::read();
    if let Some(mount) = mounts.of(&existing) {
        for (key, value) in [
            ("mount", mount.point),
            ("type", mount.kind),
            ("device", mount.device),
            ("options", mount.options),
        ] {
            properties.insert(key.to_owned(), value.to_owned());
        }
        properties.extend(mount.disk().map(|disk| ("disk".to_owned(), disk)));
    }
    if let Ok(free) = crate::dataset::free_bytes(&existing) {
        properties.insert("free_bytes".into(), free.to_string());
    }
    properties
}

/// Returns the memory of the host in bytes, if the host reports it.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory_line("MemTotal")
}

/// Mounts of this mount namespace, from `/proc/self/mountinfo`.
pub(crate) struct Mounts(String);

/// One mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// Mount point, with spaces as `\040`.
    pub(crate) point: &'a str,
    /// Type of the file system.
    pub(crate) kind: &'a str,
    device: &'a str,
    options: &'a str,
    /// Number of the device, `8:1`.
    number: &'a str,
}

impl Mounts {
    /// Reads the mounts.
    pub(crate) fn read() -> Self {
        Self(fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Returns the mount of a path (proc_pid_mountinfo(5)): the longest mount point above the path,
    /// and the last one of equal mount points.
    pub(crate) fn of(&self, path: &Path) -> Option<Mount<'_>> {
        let mounts = self.0.lines().filter_map(Mount::parse);
        mounts
            .filter(|mount| path.starts_with(unescape(mount.point)))
            .max_by_key(|mount| mount.point.len())
    }
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        Some(Self {
            point: before.get(4)?,
            kind: after.next()?,
            device: after.next()?,
            options: before.get(5)?,
            number: before.get(2)?,
        })
    }

    /// Return the whole device behind the mount, as `/proc/diskstats` names it; none: no block device of this host.
    fn disk(&self) -> Option<String> {
        // Each subvolume of Btrfs has its own number; the source of the mount is a device.
        let by_number = fs::canonicalize(format!("/sys/dev/block/{}", self.number));
        let directory = by_number.or_else(|_| {
            let device = fs::canonicalize(self.device)?;
            let name = device.file_name().unwrap_or_default();
            fs::canonicalize(Path::new("/sys/class/block").join(name))
        });
        let mut directory = directory.ok()?;
        if directory.join("partition").exists() {
            directory.pop();
        }
        // `/` in a device name is a `!` there.
        Some(directory.file_name()?.to_str()?.replace('!', "/"))
    }
}

fn unescape(point: &str) -> String {
    point.replace("\\040", " ")
}

fn add_system(properties: &mut Properties) {
    if let Ok(name) = nix::sys::utsname::uname() {
        add(
            properties,
            "kernel.release",
            name.release().to_string_lossy(),
        );
        add(
            properties,
            "kernel.version",
            name.version().to_string_lossy(),
        );
        add(properties, "machine", name.machine().to_string_lossy());
        add(properties, "hostname", name.nodename().to_string_lossy());
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    add_some(properties, "os", pretty.map(|name| name.trim_matches('"')));
    add_file(properties, "load", "/proc/loadavg");
    let uptime = read("/proc/uptime");
    add_some(
        properties,
        "uptime_s",
        uptime.as_deref().and_then(|text| text.split(' ').next()),
    );
    add_file(
        properties,
        "clock_source",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    );
    add_file(
        properties,
        "virtual.product",
        "/sys/class/dmi/id/product_name",
    );
    add_file(properties, "virtual.vendor", "/sys/class/dmi/id/sys_vendor");
    add_file(
        properties,
        "transparent_hugepages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    );
    add(properties, "user.id", nix::unistd::geteuid().to_string());
}

fn add_cpu(properties: &mut Properties) {
    let Ok(text) = fs::read_to_string("/proc/cpuinfo") else {
        return; // a property that cannot be read is absent
    };
    let field = |name: &str| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(name)?.split_once(':')?.1.trim()))
    };
    add_some(properties, "cpu.model", field("model name"));
    add_some(properties, "cpu.microcode", field("microcode"));
    let virtual_bit =
        field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    add(properties, "virtual.hypervisor", virtual_bit.to_string());
    let sum = text
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    add(properties, "cpu.count", sum.to_string());
    add_file(properties, "cpu.online", "/sys/devices/system/cpu/online");
    add_file(properties, "cpu.smt", "/sys/devices/system/cpu/smt/active");
    add_file(
        properties,
        "cpu.governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    );
    add_file(
        properties,
        "cpu.frequency_driver",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
    );
    add_file(
        properties,
        "cpu.max_khz",
        "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    );
    add_file(properties, "numa.nodes", "/sys/devices/system/node/online");
    let usable = std::thread::available_parallelism().map(|count| count.to_string());
    add_some(properties, "cpu.usable", usable.ok());
}

fn add_memory(properties: &mut Properties) {
    for (key, name) in [
        ("memory.total_bytes", "MemTotal"),
        ("memory.available_bytes", "MemAvailable"),
        ("memory.swap_bytes", "SwapTotal"),
    ] {
        add_some(
            properties,
            key,
            memory_line(name).map(|bytes| bytes.to_string()),
        );
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

fn add_interfaces(properties: &mut Properties) {
    for name in entries("/sys/class/net") {
        let directory = format!("/sys/class/net/{name}");
        for (key, file) in [
            ("state", "operstate"),
            ("mtu", "mtu"),
            ("queue_length", "tx_queue_len"),
        ] {
            add_file(
                properties,
                &format!("nic.{name}.{key}"),
                format!("{directory}/{file}"),
            );
        }
        // The kernel reports -1 for an unknown speed, of a link that is down or virtual.
        let speed = read(format!("{directory}/speed")).filter(|speed| !speed.starts_with('-'));
        add_some(properties, &format!("nic.{name}.speed_mbit_per_s"), speed);
        let driver = fs::read_link(format!("{directory}/device/driver")).ok();
        let driver = driver
            .as_deref()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy());
        add_some(properties, &format!("nic.{name}.driver"), driver);
    }
}

fn add_block_devices(properties: &mut Properties) {
    const SECTOR_BYTES: u64 = 512; // the unit of this file, independent of the device
    for name in entries("/sys/block") {
        let directory = format!("/sys/block/{name}");
        let sectors = read(format!("{directory}/size"))
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0);
        if sectors == 0 {
            continue; // a loop or ram device without content
        }
        add(
            properties,
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
                properties,
                &format!("block.{name}.{key}"),
                format!("{directory}/{file}"),
            );
        }
    }
}

fn entries(directory: &str) -> Vec<String> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
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

fn add_file(properties: &mut Properties, key: &str, path: impl AsRef<Path>) {
    add_some(properties, key, read(path));
}

fn add_some(properties: &mut Properties, key: &str, value: Option<impl Into<String>>) {
    if let Some(value) = value {
        add(properties, key, value);
    }
}

fn add(properties: &mut Properties, key: &str, value: impl Into<String>) {
    properties.insert(key.to_owned(), Value::String(value.into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_its_longest_mount_point() {
        let mounts = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt/my\\040data rw,noatime - xfs /dev/sdb rw
31 22 0:27 / /mnt rw - tmpfs tmpfs rw,size=1g
";
        let mounts = Mounts(mounts.to_owned());
        let mount = |path: &str| {
            let mount = mounts.of(Path::new(path));
            mount.map(|mount| (mount.kind, mount.device, mount.options))
        };
        assert_eq!(mount("/home"), Some(("ext4", "/dev/vda", "rw,relatime")));
        assert_eq!(mount("/mnt/x"), Some(("tmpfs", "tmpfs", "rw")));
        assert_eq!(
            mount("/mnt/my data/x"),
            Some(("xfs", "/dev/sdb", "rw,noatime"))
        );
    }

    #[test]
    fn every_linux_host_reports_the_basic_properties() {
        let properties = host();
        for key in [
            "kernel.release",
            "hostname",
            "cpu.count",
            "memory.total_bytes",
            "load",
            "uptime_s",
        ] {
            assert!(properties.contains_key(key), "{key}");
        }
        assert!(properties.values().all(Value::is_string));
    }

    #[test]
    fn a_missing_storage_has_the_properties_of_its_parent() {
        let properties = storage(Path::new("/proc/no/such/folder"));
        assert_eq!(properties.get("type").map(String::as_str), Some("proc"));
    }
}
