//! Runs the examples of `venturi-engine sim flows --help` as printed.

use std::io::Write;
use std::process::{Command, Stdio};

const ENGINE: &str = env!("CARGO_BIN_EXE_venturi-engine");

/// Relative error of an end time against the promised value; times in the help are rounded.
const TOLERANCE: f64 = 1e-6;

/// Run `sim flows` with `workload` on stdin. Return the end times that it writes, in seconds.
fn ends(workload: &str) -> Vec<f64> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("ends");
    let mut child = Command::new(ENGINE)
        .args(["sim", "flows", "-", "--ends"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the engine starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(workload.as_bytes()).expect("it reads");
    drop(stdin);
    assert!(child.wait().expect("it exits").success());
    let written = std::fs::read_to_string(&path).expect("end times");
    let seconds = written.lines().map(|line| line.parse().expect("seconds"));
    seconds.collect()
}

#[test]
fn example_of_the_help_ends_at_the_promised_times() {
    let help = Command::new(ENGINE)
        .args(["sim", "flows", "--help"])
        .output()
        .expect("the engine starts");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let (promise, rest) = help
        .split_once("venturi-engine sim flows - --ends /dev/stderr <<'END'\n")
        .expect("the command of the example");
    let (example, _) = rest.split_once("\n  END").expect("the end of the example");
    let promise = promise.lines().rfind(|line| !line.trim().is_empty());
    let promised: Vec<f64> = promise
        .and_then(|line| line.rsplit_once(" end at "))
        .map(|(_, times)| times)
        .expect("a promise such as `They end at 2 s and at 3 s`")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(promised.len(), 2, "{promise:?}");
    let found = ends(example);
    assert_eq!(found.len(), promised.len());
    for (found, promised) in found.iter().zip(&promised) {
        assert!(
            (found - promised).abs() <= TOLERANCE * promised,
            "expected {promised} s, found {found} s"
        );
    }
}
