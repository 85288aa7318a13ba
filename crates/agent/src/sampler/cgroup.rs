//! Counters of a control group: of a host of a lab, whose processes are all in one.

use std::path::Path;

use super::{Counters, Source};

/// The files of a controller's folder that hold what is sampled; none if it is no such folder.
pub(super) fn open(controller: &str, folder: &Path) -> Vec<Source> {
    if controller != "cpu" {
        return Vec::new();
    }
    // Version 1 (Documentation/admin-guide/cgroup-v1/cpuacct.rst); nanoseconds, where cpuacct.stat has hundredths of a second.
    let user = Source::at(&folder.join("cpuacct.usage_user"), parse_user_ns);
    let system = Source::at(&folder.join("cpuacct.usage_sys"), parse_system_ns);
    if let (Some(user), Some(system)) = (user, system) {
        return vec![user, system];
    }
    // Version 2 (cgroup-v2.rst). In a folder of version 1 a file of this name says other things.
    let path = folder.join("cpu.stat");
    let knows = std::fs::read_to_string(&path).is_ok_and(|text| text.contains("user_usec"));
    let both = knows.then(|| Source::at(&path, parse_both_us));
    both.flatten().into_iter().collect()
}

fn parse_user_ns(text: &str, counters: &mut Counters) {
    put("user_s", text, 1e9, counters);
}

fn parse_system_ns(text: &str, counters: &mut Counters) {
    put("system_s", text, 1e9, counters);
}

fn parse_both_us(text: &str, counters: &mut Counters) {
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        match name {
            "user_usec" => put("user_s", value, 1e6, counters),
            "system_usec" => put("system_s", value, 1e6, counters),
            _ => {}
        }
    }
}

fn put(key: &str, text: &str, per_s: f64, counters: &mut Counters) {
    if let Ok(value) = text.trim().parse::<f64>() {
        counters.insert(format!("cgroup.cpu.{key}").into(), value / per_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(files: &[(&str, &str)]) -> Counters {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let mut counters = Counters::new();
        for mut source in open("cpu", folder.path()) {
            source.read_into(&mut counters);
        }
        counters
    }

    #[test]
    fn both_versions_of_control_groups_are_read_in_seconds() {
        let expected: Counters = [("cgroup.cpu.user_s", 1.5), ("cgroup.cpu.system_s", 0.25)]
            .map(|(name, value)| (name.into(), value))
            .into();
        let of_1 = sampled(&[
            (
                "cpu.stat",
                "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
            ),
            ("cpuacct.usage_user", "1500000000\n"),
            ("cpuacct.usage_sys", "250000000\n"),
        ]);
        let of_2 = sampled(&[(
            "cpu.stat",
            "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\nnr_periods 0\n",
        )]);
        assert_eq!((of_1, of_2), (expected.clone(), expected));
    }

    #[test]
    fn what_is_no_folder_of_the_controller_has_no_counters() {
        assert_eq!(sampled(&[]), Counters::new());
        assert_eq!(sampled(&[("cpu.stat", "nr_periods 0\n")]), Counters::new());
        assert!(open("memory", Path::new("/")).is_empty());
    }

    #[test]
    fn the_kernel_counts_what_this_machine_has_used() {
        let roots = [
            "/sys/fs/cgroup/cpuacct",
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup",
        ];
        let Some(mut sources) = roots
            .map(|root| open("cpu", Path::new(root)))
            .into_iter()
            .find(|sources| !sources.is_empty())
        else {
            eprintln!("skipped: no control groups are mounted");
            return;
        };
        let mut counters = Counters::new();
        sources
            .iter_mut()
            .for_each(|source| source.read_into(&mut counters));
        assert!(counters["cgroup.cpu.user_s"] > 0.0 && counters["cgroup.cpu.system_s"] > 0.0);
    }
}
