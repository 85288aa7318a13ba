//! The conformance suite in real time, with real processes.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use venturi_plan::conformance::{CASES, Case, HOST, Trace};

use super::*;
use crate::barrier::Barrier;
use crate::output::Writer;

/// Far more than any case takes, even on a busy host.
const TIMEOUT: Duration = Duration::from_secs(30);

fn tools(sender: Sender) -> Tools {
    let files = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    Tools {
        requests: Requests::new(sender.clone()),
        barrier: Barrier::new(files, 50_000).expect("a barrier"),
        watchdog: Watchdog::start().expect("a guardian"),
        sender,
        workers: WorkerThreads::new().expect("an event descriptor"),
        scratch: None,
    }
}

/// Run a case like the agent, but without signals: it checks its children every millisecond.
fn execute(case: &Case, scratch: &Path) -> Trace {
    let plan = case.plan().expect("the cases are plans");
    let start = Start {
        host: HOST.into(),
        scratch: scratch.display().to_string(),
        epoch_unix_ns: crate::clock::unix_ns(),
        header: plan.header,
        skip: BTreeSet::new(),
        search: Vec::new(),
        hosts: BTreeMap::new(),
        services: BTreeMap::new(),
        silence_s: None,
        cgroups: None,
        work_groups: Vec::new(),
        stay: false,
        server_failures: None,
        ended_services: BTreeSet::new(),
        run_directory: None,
    };
    let writer = Writer::start(std::io::sink(), || {}).expect("a thread");
    let run = Run::start(
        tools(writer.sender()),
        start,
        Environment::new(&[]),
        plan.lines,
    );
    let mut run = run.expect("the cases are sound");
    let started = Instant::now();
    loop {
        run.turn().expect("the cases run");
        if run.is_finished() {
            return std::mem::take(&mut run.trace);
        }
        assert!(
            started.elapsed() < TIMEOUT,
            "{}: waiting for {:?}",
            case.name,
            run.interpreter.waiting()
        );
        let woken = run.tools.workers.waker().fd();
        nix::poll::poll(&mut [PollFd::new(woken, PollFlags::POLLIN)], 1_u8)
            .expect("a descriptor to wait for");
    }
}

#[test]
fn every_conformance_case_produces_its_events_in_order() {
    let wrong: Vec<String> = CASES
        .iter()
        .filter_map(|case| {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            case.check(&execute(case, scratch.path())).err()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
