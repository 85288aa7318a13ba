use std::path::PathBuf;

use super::*;
use crate::capture::Capture;
use crate::reap;

fn barrier() -> Barrier {
    // The test runner may have open descriptors.
    crate::agent::keep_descriptors_to_ourselves();
    Barrier::new(
        libc::rlimit {
            rlim_cur: 1024,
            rlim_max: 1024,
        },
        50_000,
    )
    .expect("a barrier")
}

fn program(path: impl Into<PathBuf>) -> Executable {
    Executable {
        path: path.into(),
        privileged: false,
    }
}

/// Arms `argv` by this method; the first argument is a name for `PATH`.
fn arm(method: BarrierMethod, argv: &[&str], capture: &Capture) -> Result<Armed, Errno> {
    let environment = Environment::new(&[]);
    let program = environment
        .find(argv[0])
        .unwrap_or_else(|_| program(argv[0]));
    let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
    let (stdout, stderr) = capture.streams();
    let launch = Launch {
        program: &program,
        argv: &argv,
        environment: &environment,
        directory: Path::new("/"),
        stdout,
        stderr,
    };
    let mut barrier = barrier();
    barrier.method = method;
    let armed = barrier.arm(&launch)?;
    armed.stand().map(|()| armed)
}

fn run(method: BarrierMethod, argv: &[&str]) -> (reap::Exit, String) {
    let capture = Capture::new().expect("memory files");
    let released = arm(method, argv, &capture).expect("armed").release();
    (
        reap::reap(released.pid).expect("our child"),
        capture.stdout(),
    )
}

#[test]
fn no_child_runs_before_it_is_released() {
    for method in [BarrierMethod::ExecStop, BarrierMethod::Pipe] {
        let directory = tempfile::tempdir().expect("a folder");
        let mark = directory.path().join("mark");
        let capture = Capture::new().expect("memory files");
        let armed = arm(
            method,
            &["touch", mark.to_str().expect("a plain path")],
            &capture,
        )
        .expect("armed");
        if method == BarrierMethod::ExecStop {
            // The kernel reports the stop: `t` is "stopped by a tracer", and the program is already loaded.
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", armed.pid)).expect("a child");
            assert!(stat.contains("(touch) t "), "{stat}");
        }
        assert!(!mark.exists(), "{method:?}");
        let released = armed.release();
        assert_eq!(reap::reap(released.pid).expect("our child").code, Some(0));
        assert!(mark.exists(), "{method:?}");
    }
}

#[test]
fn a_cancelled_child_never_runs() {
    for method in [BarrierMethod::ExecStop, BarrierMethod::Pipe] {
        let directory = tempfile::tempdir().expect("a folder");
        let mark = directory.path().join("mark");
        let capture = Capture::new().expect("memory files");
        let armed = arm(
            method,
            &["touch", mark.to_str().expect("a plain path")],
            &capture,
        )
        .expect("armed");
        armed.cancel();
        assert!(!mark.exists(), "{method:?}");
    }
}

#[test]
fn a_child_that_is_killed_before_the_barrier_is_reported() {
    let environment = Environment::new(&[]);
    let program = environment.find("true").expect("a standard tool");
    let capture = Capture::new().expect("memory files");
    let (stdout, stderr) = capture.streams();
    let launch = Launch {
        program: &program,
        argv: &["true".into()],
        environment: &environment,
        directory: Path::new("/"),
        stdout,
        stderr,
    };
    let armed = barrier().arm(&launch).expect("forked");
    nix::sys::signal::kill(armed.pid, nix::sys::signal::Signal::SIGKILL).expect("our child");
    assert_eq!(armed.stand(), Err(Errno::ECHILD));
}

#[test]
fn a_child_starts_with_the_process_state_that_a_shell_provides() {
    for method in [BarrierMethod::ExecStop, BarrierMethod::Pipe] {
        let (_, descriptors) = run(method, &["ls", "/proc/self/fd"]);
        assert_eq!(
            descriptors, "0\n1\n2\n3\n",
            "3 is the directory that ls reads"
        );
        let (_, status) = run(method, &["cat", "/proc/self/status"]);
        assert!(
            status.contains("SigBlk:\t0000000000000000") && status.contains("TracerPid:\t0"),
            "{status}"
        );
        let ignored = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:\t"))
            .expect("a field of every kernel");
        let ignored = u64::from_str_radix(ignored, 16).expect("hexadecimal");
        assert_eq!(ignored & 0x7fff_ffff, 0, "the 31 signals that have names");
        let (_, output) = run(
            method,
            &[
                "sh",
                "-c",
                "echo $LC_ALL; pwd; ulimit -n; cat /proc/self/timerslack_ns",
            ],
        );
        assert_eq!(output, "C\n/\n1024\n50000\n");
        let (_, group) = run(
            method,
            &[
                "sh",
                "-c",
                "test $$ = $(cut -d ' ' -f 5 /proc/$$/stat) && echo leader",
            ],
        );
        assert_eq!(group, "leader\n");
    }
}

#[test]
fn exec_failures_are_reported_with_their_error_number() {
    let directory = tempfile::tempdir().expect("a folder");
    let script = directory.path().join("script");
    // In a separate process: a child that another test forks must not keep it open for writing.
    let written = std::process::Command::new("sh")
        .args([
            "-c",
            "echo '#!/no/such/interpreter' > \"$0\" && chmod 755 \"$0\"",
        ])
        .arg(&script)
        .status();
    assert!(written.expect("a shell").success());
    let script = script.to_str().expect("a plain path");
    let capture = Capture::new().expect("memory files");
    assert_eq!(
        arm(BarrierMethod::ExecStop, &[script], &capture).err(),
        Some(Errno::ENOENT)
    );
    let released = arm(BarrierMethod::Pipe, &[script], &capture)
        .expect("behind a pipe it shows after the release")
        .release();
    assert_eq!(
        reap::reap(released.pid).expect("our child").code,
        Some(NOT_STARTED)
    );
    assert_eq!(released.exec_failure(), Some(Errno::ENOENT));
}

#[test]
fn a_child_that_starts_successfully_reports_no_exec_failure() {
    let capture = Capture::new().expect("memory files");
    let released = arm(BarrierMethod::Pipe, &["true"], &capture)
        .expect("armed")
        .release();
    assert_eq!(reap::reap(released.pid).expect("our child").code, Some(0));
    assert_eq!(released.exec_failure(), None);
}

#[test]
fn a_privileged_program_is_never_traced() {
    let privileged = Executable {
        path: "/bin/true".into(),
        privileged: true,
    };
    assert_eq!(barrier().method_for(&privileged), BarrierMethod::Pipe);
}

#[test]
fn resource_usage_and_bytes_of_a_child_are_measured() {
    let (exit, _) = run(
        BarrierMethod::ExecStop,
        &[
            "dd",
            "if=/dev/zero",
            "of=/dev/null",
            "bs=100000",
            "count=7",
            "status=none",
        ],
    );
    let io = exit.io.expect("our own child's account is readable");
    assert_eq!(io.write_call_bytes, 700_000);
    assert!(io.read_call_bytes >= 700_000, "and the reads of the loader");
    assert!(exit.usage.max_rss_bytes > 100_000);
    assert_eq!((exit.code, exit.signal), (Some(0), None));
}
