use super::*;

fn sampled(controller: &str, files: &[(&str, &str)]) -> SampledCounters {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("a file");
    }
    let mut counters = SampledCounters::new();
    for mut source in open(controller, directory.path()) {
        source.read_into(&mut counters);
    }
    counters
}

fn check(controller: &str, files: &[(&str, &str)], expected: &[(&str, f64)]) {
    let expected = expected
        .iter()
        .map(|(name, value)| ((*name).into(), *value))
        .collect::<SampledCounters>();
    assert_eq!(sampled(controller, files), expected);
}

#[test]
fn cpu_time_of_both_versions_is_in_seconds() {
    let expected = [("cgroup.cpu.user_s", 1.5), ("cgroup.cpu.system_s", 0.25)];
    let of_1 = [
        (
            "cpu.stat",
            "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        ),
        ("cpuacct.usage_user", "1500000000\n"),
        ("cpuacct.usage_sys", "250000000\n"),
    ];
    check("cpuacct", &of_1, &expected);
    let of_2 = [(
        "cpu.stat",
        "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    )];
    check("cpu", &of_2, &expected);
}

#[test]
fn a_cpu_limit_of_both_versions_reports_its_throttled_time() {
    let expected = [
        ("cgroup.cpu_throttle.periods", 50.0),
        ("cgroup.cpu_throttle.throttled_periods", 40.0),
        ("cgroup.cpu_throttle.throttled_s", 0.75),
    ];
    let of_1 = [
        ("cpu.cfs_quota_us", "2000\n"),
        (
            "cpu.stat",
            "nr_periods 50\nnr_throttled 40\nthrottled_time 750000000\nnr_bursts 0\n",
        ),
    ];
    check("cpu", &of_1, &expected);
    let of_2 = [
        ("cpu.max", "2000 20000\n"),
        (
            "cpu.stat",
            "nr_periods 50\nnr_throttled 40\nthrottled_usec 750000\n",
        ),
    ];
    check("cpu", &of_2, &expected);
}

#[test]
fn bytes_and_operations_of_a_device_are_equal_in_both_versions() {
    let expected = [
        ("cgroup.io.999:7.read_bytes", 4096.0),
        ("cgroup.io.999:7.write_bytes", 8192.0),
        ("cgroup.io.999:7.read_ios", 1.0),
        ("cgroup.io.999:7.write_ios", 2.0),
    ];
    let of_1 = [
        (
            "blkio.throttle.io_service_bytes",
            "999:7 Read 4096\n999:7 Write 8192\n999:7 Sync 12288\nTotal 12288\n",
        ),
        (
            "blkio.throttle.io_serviced",
            "999:7 Read 1\n999:7 Write 2\nTotal 3\n",
        ),
    ];
    check("blkio", &of_1, &expected);
    let of_2 = [(
        "io.stat",
        "999:7 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n",
    )];
    check("io", &of_2, &expected);
}

#[test]
fn memory_is_in_bytes_and_pressure_in_seconds() {
    let expected = [
        ("cgroup.memory.used_bytes", 5000.0),
        ("cgroup.memory.limit_hits", 3.0),
    ];
    let of_1 = [
        ("memory.usage_in_bytes", "5000\n"),
        ("memory.failcnt", "3\n"),
    ];
    check("memory", &of_1, &expected);
    let of_2 = [
        ("memory.current", "5000\n"),
        ("memory.events", "low 0\nhigh 0\nmax 3\noom 0\n"),
    ];
    check("memory", &of_2, &expected);
    let pressure = [(
        "io.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n",
    )];
    let expected = [
        ("cgroup.pressure.io.some_s", 1.5),
        ("cgroup.pressure.io.full_s", 0.5),
    ];
    check("pressure", &pressure, &expected);
}

#[test]
fn a_controller_without_counter_files_has_no_source() {
    for controller in ["cpu", "cpuacct", "blkio", "io", "memory", "pressure", "x"] {
        check(controller, &[], &[]);
    }
    check("cpu", &[("cpu.stat", "nr_periods 0\n")], &[]);
}

#[test]
fn the_kernel_counts_the_cpu_time_of_this_machine() {
    let roots = [
        "/sys/fs/cgroup/cpuacct",
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup",
    ];
    let Some(mut sources) = roots
        .map(|root| open("cpuacct", Path::new(root)))
        .into_iter()
        .find(|sources| !sources.is_empty())
    else {
        eprintln!("skipped: no control groups are mounted");
        return;
    };
    let mut counters = SampledCounters::new();
    sources
        .iter_mut()
        .for_each(|source| source.read_into(&mut counters));
    assert!(counters["cgroup.cpu.user_s"] > 0.0 && counters["cgroup.cpu.system_s"] > 0.0);
}
