use std::sync::mpsc;

use super::disk::{disks, parse_mounts};
use super::machine::{parse_cpu, parse_memory, parse_pressure};
use super::network::{parse_nics, parse_softnet, protocol};
use super::*;

fn parsed(parse: impl FnOnce(&str, &mut SampledCounters), text: &str) -> SampledCounters {
    let mut counters = SampledCounters::new();
    parse(text, &mut counters);
    counters
}

fn check(counters: &SampledCounters, expected: &[(&str, f64)]) {
    let expected = expected
        .iter()
        .map(|(name, value)| ((*name).into(), *value))
        .collect::<SampledCounters>();
    assert_eq!(*counters, expected);
}

#[test]
fn cpu_time_is_in_seconds_of_the_machine_and_of_each_core() {
    let text = "cpu  100 20 30 400 50 6 7 8 0 0\n\
                cpu0 10 20 30 40 50 60 70 80 0 0\n\
                cpu11 1 0 0 9 0 0 2 0 0 0\nintr 5 0\n";
    check(
        &parsed(parse_cpu, text),
        &[
            ("cpu.user_s", 1.2),
            ("cpu.system_s", 0.43),
            ("cpu.idle_s", 4.0),
            ("cpu.iowait_s", 0.5),
            ("cpu.steal_s", 0.08),
            ("cpu.irq_s", 0.06),
            ("cpu.softirq_s", 0.07),
            ("core.0.busy_s", 2.7),
            ("core.0.softirq_s", 0.7),
            ("core.11.busy_s", 0.03),
            ("core.11.softirq_s", 0.02),
        ],
    );
}

#[test]
fn pressure_is_in_seconds_and_may_be_without_full_pressure() {
    let parse = |text: &str, counters: &mut SampledCounters| {
        parse_pressure("pressure.io", text, counters);
    };
    let text = "some avg10=4.44 avg60=18.66 avg300=26.77 total=143623222\n\
                full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
    let expected = [
        ("pressure.io.some_s", 143.623_222),
        ("pressure.io.full_s", 5e-6),
    ];
    check(&parsed(parse, text), &expected);
    check(
        &parsed(parse, "some avg10=0.00 total=2000000\n"),
        &[("pressure.io.some_s", 2.0)],
    );
}

#[test]
fn protocol_counters_are_found_by_their_group_and_name() {
    let text = "Ip: OutSegs InErrs\nIp: 1 2\n\
                Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs\nTcp: 1 -1 30 40 5 6\n\
                TcpExt: SyncookiesSent ListenOverflows TCPRcvCollapsed New\nTcpExt: 7 8 9 10\nTcpExt: cut\n";
    check(
        &parsed(protocol(), text),
        &[
            ("tcp.received_segments", 30.0),
            ("tcp.sent_segments", 40.0),
            ("tcp.retransmitted_segments", 5.0),
            ("tcp.received_errors", 6.0),
            ("tcp.listen_overflows", 8.0),
            ("tcp.receive_collapsed", 9.0),
        ],
    );
}

#[test]
fn softnet_counters_are_hexadecimal_and_summed_over_all_cores() {
    let text = "0000ffff 00000010 00000001 00000000\n00000001 00000001 0000000a 00000000\n";
    check(
        &parsed(parse_softnet, text),
        &[("softnet.dropped", 17.0), ("softnet.squeezed", 11.0)],
    );
}

#[test]
fn a_device_reports_its_wait_times_and_its_queue() {
    let Some(device) = std::fs::read_dir("/sys/block")
        .ok()
        .and_then(|mut entries| entries.next()?.ok())
    else {
        eprintln!("skipped: this machine has no block device");
        return;
    };
    let name = device.file_name().to_string_lossy().into_owned();
    let text = format!(" 259 0 {name} 5 1 8 1500 6 2 16 2500 3 4000 5000 0 0 0 0 0 0\n");
    let counters = parsed(disks(), &text);
    for (key, expected) in [
        ("read_bytes", 4096.0),
        ("write_bytes", 8192.0),
        ("read_wait_s", 1.5),
        ("write_wait_s", 2.5),
        ("in_flight", 3.0),
        ("busy_s", 4.0),
        ("queue_s", 5.0),
    ] {
        assert_eq!(counters[&*format!("disk.{name}.{key}")], expected, "{key}");
    }
}

#[test]
fn an_nfs_mount_reports_counters_for_its_storages() {
    let mounts = BTreeMap::from([("/mnt/data".to_owned(), vec!["disk".to_owned()])]);
    let parse = |text: &str, counters: &mut SampledCounters| parse_mounts(&mounts, text, counters);
    // From the documentation of nfsiostat(8) and `net/sunrpc/stats.c`; the second mount has no
    // storage.
    let text = "device rootfs mounted on / with fstype rootfs\n\
        device server:/export mounted on /mnt/data with fstype nfs4 statvers=1.1\n\
        \topts:\trw,vers=4.2\n\
        \tbytes:\t1 2 3 4 1000 2000 7 8\n\
        \tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\
        \t        READ: 10 12 1 100 200 300 400 500 0\n\
        \t       WRITE: 20 20 0 100 200 300 400 1500 0\n\
        \t      COMMIT: 1 1 0 0 0 0 0 0 0\n\
        device other:/x mounted on /mnt/other with fstype nfs4 statvers=1.1\n\
        \tbytes:\t1 2 3 4 5 6 7 8\n";
    check(
        &parsed(parse, text),
        &[
            ("mount.disk.read_bytes", 1000.0),
            ("mount.disk.write_bytes", 2000.0),
            ("mount.disk.read_ops", 10.0),
            ("mount.disk.write_ops", 20.0),
            ("mount.disk.read_wait_s", 0.5),
            ("mount.disk.write_wait_s", 1.5),
            ("mount.disk.retransmits", 2.0),
            ("mount.disk.timeouts", 1.0),
        ],
    );
}

#[test]
fn network_counters_are_read_also_without_a_space_after_the_name() {
    let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n  eth0:1000 10 1 3 0 0 0 0 2000 20 2 4 0 0 0 0\n";
    check(
        &parsed(parse_nics, text),
        &[
            ("nic.eth0.rx_bytes", 1000.0),
            ("nic.eth0.rx_packets", 10.0),
            ("nic.eth0.rx_errors", 1.0),
            ("nic.eth0.rx_dropped", 3.0),
            ("nic.eth0.tx_bytes", 2000.0),
            ("nic.eth0.tx_packets", 20.0),
            ("nic.eth0.tx_errors", 2.0),
            ("nic.eth0.tx_dropped", 4.0),
        ],
    );
}

#[test]
fn memory_is_in_bytes() {
    let counters = parsed(
        parse_memory,
        "MemTotal: 9 kB\nMemAvailable:  2 kB\nCached: 3 kB\nSwapCached: 7 kB\nDirty: 1 kB\n",
    );
    assert_eq!(counters["memory.available_bytes"], 2048.0);
    assert_eq!(counters["memory.cached_bytes"], 3072.0);
    assert_eq!(counters.len(), 3);
}

#[test]
fn partitions_and_unknown_devices_have_no_counters() {
    let text = " 259 0 nosuchdisk0p1 5 0 8 0 5 0 8 0 0 10 0\n";
    assert_eq!(parsed(disks(), text), SampledCounters::new());
}

/// Returns the sources of these families, with the processes of this program.
fn sources(families: &[CounterFamily]) -> Sources {
    let mut sources = Sources::default();
    for family in families {
        sources.add_family(*family, &BTreeMap::new());
    }
    sources
}

#[test]
fn a_source_missing_in_the_kernel_is_absent_and_reported_once() {
    let (sender, receiver) = mpsc::channel();
    let mut sources = sources(&[CounterFamily::Memory]);
    sources.add(
        "pressure.cpu",
        CounterFile::open("/proc/pressure/no-such-file", |_, _| {}),
    );
    let sampler = Sampler::start(sources, 1_000_000, move |message| {
        sender.send(message).is_ok()
    });
    let sampler = sampler.expect("a thread");
    let messages: Vec<_> = receiver.iter().take(5).collect();
    drop(receiver);
    sampler.finish();
    let missing: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            SamplerMessage::Missing(_, missing) => Some(missing),
            SamplerMessage::Counters(_, counters) => {
                assert!(!counters.keys().any(|name| name.starts_with("pressure")));
                None
            }
        })
        .collect();
    assert_eq!(missing.len(), 1);
    assert!(missing[0]["pressure.cpu"].contains("no-such-file"));
}

#[test]
fn samples_keep_to_their_schedule_and_counters_never_go_back() {
    let (sender, receiver) = mpsc::channel();
    let families = [
        CounterFamily::Cpu,
        CounterFamily::Disk,
        CounterFamily::Memory,
        CounterFamily::Nic,
    ];
    let interval_ns = 5_000_000;
    let start_ns = monotonic_ns();
    let sampler = Sampler::start(
        sources(&families),
        interval_ns,
        move |message| match message {
            SamplerMessage::Counters(time_ns, counters) => sender.send((time_ns, counters)).is_ok(),
            SamplerMessage::Missing(..) => true,
        },
    );
    let sampler = sampler.expect("a thread");
    let samples: Vec<_> = receiver.iter().take(20).collect();
    drop(receiver);
    let timing = sampler.finish();
    // Never early, and without drift: each interval up to the last sample was sampled or is counted as missed.
    for (k, (time_ns, _)) in samples.iter().enumerate() {
        assert!(*time_ns >= start_ns + k as u64 * interval_ns);
    }
    let (started_ns, last_ns) = (samples[0].0, samples[samples.len() - 1].0);
    assert!(timing.taken + timing.missed >= (last_ns - started_ns) / interval_ns);
    for pair in samples.windows(2) {
        assert!(pair[0].1["cpu.idle_s"] <= pair[1].1["cpu.idle_s"]);
        assert!(pair[0].1["nic.lo.rx_bytes"] <= pair[1].1["nic.lo.rx_bytes"]);
    }
}
