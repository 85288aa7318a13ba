use std::sync::mpsc;

use super::*;

fn parsed(parse: fn(&str, &mut Counters), text: &str) -> Counters {
    let mut counters = Counters::new();
    parse(text, &mut counters);
    counters
}

#[test]
fn processor_time_is_told_in_seconds_with_niced_and_interrupt_time_in_place() {
    let counters = parsed(
        parse_cpu,
        "cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n",
    );
    let expected = [
        ("idle_s", 4.0),
        ("iowait_s", 0.5),
        ("steal_s", 0.08),
        ("system_s", 0.43),
        ("user_s", 1.2),
    ];
    assert_eq!(
        counters,
        expected
            .map(|(name, value)| (format!("cpu.{name}").into(), value))
            .into()
    );
}

#[test]
fn network_counters_are_read_also_without_a_space_after_the_name() {
    let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n  eth0:1000 10 0 3 0 0 0 0 2000 20 0 4 0 0 0 0\n";
    let counters = parsed(parse_nics, text);
    assert_eq!(counters["nic.eth0.rx_bytes"], 1000.0);
    assert_eq!(counters["nic.eth0.tx_packets"], 20.0);
    assert_eq!(counters["nic.eth0.rx_dropped"], 3.0);
    assert_eq!(counters["nic.eth0.tx_dropped"], 4.0);
    assert_eq!(counters.len(), 6);
}

#[test]
fn memory_is_told_in_bytes() {
    let counters = parsed(
        parse_memory,
        "MemTotal: 9 kB\nMemAvailable:  2 kB\nCached: 3 kB\nSwapCached: 7 kB\nDirty: 1 kB\n",
    );
    assert_eq!(counters["memory.available_bytes"], 2048.0);
    assert_eq!(counters["memory.cached_bytes"], 3072.0);
    assert_eq!(counters.len(), 3);
}

#[test]
fn a_partition_or_unknown_device_is_no_whole_device() {
    let text = " 259 0 nosuchdisk0p1 5 0 8 0 5 0 8 0 0 10 0\n";
    assert_eq!(parsed(parse_disks, text), Counters::new());
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
    let begin_ns = monotonic_ns();
    let sampler = Sampler::start(
        &families,
        ControlGroups::default(),
        interval_ns,
        move |time_ns, counters| sender.send((time_ns, counters)).is_ok(),
    );
    let sampler = sampler.expect("a thread");
    let samples: Vec<_> = receiver.iter().take(20).collect();
    let seen_ns = monotonic_ns();
    drop(receiver);
    let told = sampler.finish();
    // Never early, and without drift: each interval that has passed was sampled or is counted as missed.
    for (k, (time_ns, _)) in samples.iter().enumerate() {
        assert!(*time_ns >= begin_ns + k as u64 * interval_ns);
    }
    let begun_ns = samples[0].0;
    assert!(told.taken + told.missed >= (seen_ns - begun_ns) / interval_ns);
    for pair in samples.windows(2) {
        assert!(pair[0].1["cpu.idle_s"] <= pair[1].1["cpu.idle_s"]);
        assert!(pair[0].1["nic.lo.rx_bytes"] <= pair[1].1["nic.lo.rx_bytes"]);
    }
}
