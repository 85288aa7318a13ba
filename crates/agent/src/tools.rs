//! The tools that a plan calls: which are not here, and in which version the others are.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use venturi_plan::{Argument, Header, Name};

use crate::capture::Capture;
use crate::program::Environment;

/// A tool that has not told its version after this time is not asked further. `--version` takes milliseconds where it is known,
/// and the start of the run waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// How often a running `--version` is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Enough for any version line; what is longer is no version.
const LINE_CHARS: usize = 200;

/// What each call needs and this host has not: call → tools.
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

/// The first line that `TOOL --version` prints, for each tool of all calls that tells one; all are asked at once, and within
/// [`PATIENCE`] in all. What else a call hands to its tool is not passed on: to a shell it would be a script.
pub(crate) fn versions(header: &Header, environment: &Environment) -> BTreeMap<String, String> {
    let tools = header.calls.values().flat_map(|call| {
        // A first argument with a placeholder is a path of some transfer, no tool.
        let called = match call.argv.first() {
            Some(Argument::One(tool)) if !tool.contains(['{', '}']) => Some(tool),
            _ => None,
        };
        call.requires.iter().chain(called)
    });
    let tools: BTreeSet<&String> = tools.collect();
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        let asked: Vec<_> = tools
            .into_iter()
            .map(|tool| {
                (
                    tool,
                    scope.spawn(move || version(tool, environment, deadline)),
                )
            })
            .collect();
        let told = asked
            .into_iter()
            .filter_map(|(tool, thread)| Some((tool.clone(), thread.join().ok()??)));
        told.collect()
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
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_INTERVAL),
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    // A tool without `--version` may have started something else instead.
    let _ = killpg(group, Signal::SIGKILL);
    // Not waited for: one that hangs in a dead file system may never go. The run reaps it with the orphans of its tools.
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
