//! The tools that a plan calls: missing tools, and versions of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{Argument, Header, Name};

use crate::capture::Capture;
use crate::program::Environment;

/// Timeout for the version of a tool. `--version` takes milliseconds if it is supported, and the
/// start of the run waits for it.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// Interval between checks of a running `--version`.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum length of a version line; a longer line is not a version.
const LINE_CHARS: usize = 200;

/// Returns the missing tools of each call on this host: call → tools.
pub(crate) fn missing(header: &Header, environment: &Environment) -> BTreeMap<Name, Vec<String>> {
    let absent = |call: &Name| {
        let tools: Vec<String> = header.calls[call]
            .requires
            .iter()
            .filter(|tool| environment.find(tool).is_err())
            .cloned()
            .collect();
        (!tools.is_empty()).then(|| (call.clone(), tools))
    };
    header.calls.keys().filter_map(absent).collect()
}

/// Returns the first line of the output of `TOOL --version`, for each tool that supports it. All
/// run at the same time, within [`TIMEOUT`] in total. Other arguments of a call are not passed on,
/// because for a shell they would be a script.
pub(crate) fn versions(header: &Header, environment: &Environment) -> BTreeMap<String, String> {
    let tools = header.calls.values().flat_map(|call| {
        // A first argument with a placeholder is a path of a transfer, not a tool.
        let called = match call.argv.first() {
            Some(Argument::One(tool)) if !tool.contains(['{', '}']) => Some(tool),
            _ => None,
        };
        call.requires.iter().chain(called)
    });
    let tools: BTreeSet<&String> = tools.collect();
    let deadline = Instant::now() + TIMEOUT;
    std::thread::scope(|scope| {
        let names: Vec<_> = tools
            .into_iter()
            .map(|tool| {
                (
                    tool,
                    scope.spawn(move || version(tool, environment, deadline)),
                )
            })
            .collect();
        let output = names
            .into_iter()
            .filter_map(|(tool, thread)| Some((tool.clone(), thread.join().ok()??)));
        output.collect()
    })
}

fn version(tool: &str, environment: &Environment, deadline: Instant) -> Option<String> {
    let program = environment.find(tool).ok()?;
    let capture = Capture::new().ok()?;
    let (stdout, stderr) = capture.streams();
    let mut child = Command::new(&program.path)
        .arg("--version")
        .env_clear()
        .envs(environment.pairs())
        .stdin(Stdio::null())
        .stdout(stdout.try_clone_to_owned().ok()?)
        .stderr(stderr.try_clone_to_owned().ok()?)
        .process_group(0)
        .spawn()
        .ok()?;
    let group = Pid::from_raw(i32::try_from(child.id()).ok()?);
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    // A tool without `--version` may have started another action.
    let _ = killpg(group, Signal::SIGKILL);
    // Do not wait for it, because a process that blocks in a dead file system may never exit. The
    // run reaps it with the orphans of its tools.
    let _ = child.try_wait();
    status.filter(std::process::ExitStatus::success)?;
    let (stdout, stderr) = (capture.stdout(), capture.stderr());
    let line = stdout
        .lines()
        .chain(stderr.lines())
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    Some(line.chars().take(LINE_CHARS).collect())
}
