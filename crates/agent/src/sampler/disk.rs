//! Block devices, and mounts of NFS that hold a storage.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::SampledCounters;

const MS_PER_S: f64 = 1000.0;

/// Return a parser of `/proc/diskstats` (Documentation/admin-guide/iostats.rst).
pub(super) fn disks() -> impl FnMut(&str, &mut SampledCounters) {
    let mut whole = HashMap::new();
    move |text, counters| parse_disks(&mut whole, text, counters)
}

/// `whole`: for each device, true if it is no partition. Sectors have 512 bytes there, independent of the device.
fn parse_disks(whole: &mut HashMap<String, bool>, text: &str, counters: &mut SampledCounters) {
    const SECTOR_BYTES: f64 = 512.0;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let Some(name) = fields.next() else {
            continue;
        };
        let values: Vec<f64> = fields.filter_map(|value| value.parse().ok()).collect();
        let [
            read_ios,
            _,
            read_sectors,
            read_ms,
            write_ios,
            _,
            write_sectors,
            write_ms,
            in_flight,
            busy_ms,
            queue_ms,
            ..,
        ] = values[..]
        else {
            continue;
        };
        if read_ios == 0.0 && write_ios == 0.0 {
            continue; // dozens of loop and ram devices that were never used
        }
        if !whole.contains_key(name) {
            whole.insert(name.to_owned(), is_whole_device(name));
        }
        if !whole[name] {
            continue;
        }
        let values = [
            ("read_bytes", read_sectors * SECTOR_BYTES),
            ("write_bytes", write_sectors * SECTOR_BYTES),
            ("read_ios", read_ios),
            ("write_ios", write_ios),
            ("read_wait_s", read_ms / MS_PER_S),
            ("write_wait_s", write_ms / MS_PER_S),
            ("busy_s", busy_ms / MS_PER_S),
            ("queue_s", queue_ms / MS_PER_S),
            ("in_flight", in_flight),
        ];
        counters.extend(values.map(|(key, value)| (format!("disk.{name}.{key}").into(), value)));
    }
}

/// Returns whether a device is not a partition: partitions have no directory there. `/` in a device
/// name (`cciss/c0d0`) is a `!`.
fn is_whole_device(name: &str) -> bool {
    Path::new("/sys/block")
        .join(name.replace('/', "!"))
        .exists()
}

/// `/proc/self/mountstats`, format 1.1 (`net/sunrpc/stats.c`, `fs/nfs/super.c`): for each mount, bytes and operations.
/// `storages`: mount point → storages on it.
pub(super) fn parse_mounts(
    storages: &BTreeMap<String, Vec<String>>,
    text: &str,
    counters: &mut SampledCounters,
) {
    /// Fields of `bytes:`: bytes read from and written to the server.
    const SERVER_READ: usize = 4;
    const SERVER_WRITE: usize = 5;
    let mut here: &[String] = &[];
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("device ") {
            let mount = rest
                .split_once(" mounted on ")
                .and_then(|(_, rest)| rest.split_once(" with fstype "));
            here = mount
                .and_then(|(point, _)| storages.get(point))
                .map_or(&[], Vec::as_slice);
            continue;
        }
        let Some((name, values)) = line
            .trim_start()
            .split_once(':')
            .filter(|_| !here.is_empty())
        else {
            continue;
        };
        let values: Vec<f64> = values
            .split_ascii_whitespace()
            .filter_map(|value| value.parse().ok())
            .collect();
        let direction = match name {
            "READ" => "read",
            "WRITE" => "write",
            "bytes" => "bytes",
            _ => continue,
        };
        let mut add = |key: String, value: f64| {
            for storage in here {
                let name = format!("mount.{storage}.{key}").into();
                *counters.entry(name).or_default() += value;
            }
        };
        match (direction, &values[..]) {
            ("bytes", values) => {
                for (key, index) in [("read_bytes", SERVER_READ), ("write_bytes", SERVER_WRITE)] {
                    if let Some(value) = values.get(index) {
                        add(key.into(), *value);
                    }
                }
            }
            // Operations, transmissions, timeouts, bytes sent and received, milliseconds queued, of the reply, in total.
            (_, [ops, sent, timeouts, _, _, _, _, total_ms, ..]) => {
                add(format!("{direction}_ops"), *ops);
                add(format!("{direction}_wait_s"), total_ms / MS_PER_S);
                add("retransmits".into(), (sent - ops).max(0.0));
                add("timeouts".into(), *timeouts);
            }
            _ => {}
        }
    }
}
