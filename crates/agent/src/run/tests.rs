//! The conformance suite in real time, with real processes.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use venturi_plan::conformance::{CASES, Case, HOST, Trace};

use super::*;
use crate::barrier::Barrier;
use crate::output::Writer;

/// Far more than any case takes, on a busy host too.
const PATIENCE: Duration = Duration::from_secs(30);

fn tools(sender: Sender) -> Tools {
    let files = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    Tools {
        barrier: Barrier::new(files, 50_000).expect("a barrier"),
        guardian: Guardian::start().expect("a guardian"),
        sender,
        workers: Workers::new().expect("an event descriptor"),
        scratch: None,
    }
}

/// Carries a case out, as the agent does, but for signals: it looks after its children every millisecond.
fn carry_out(case: &Case, scratch: &Path) -> Trace {
    let plan = case.plan().expect("the cases are plans");
    let start = Start {
        host: HOST.into(),
        scratch: scratch.display().to_string(),
        epoch_unix_ns: crate::clock::unix_ns(),
        header: plan.header,
        skip: BTreeSet::new(),
        search: Vec::new(),
        sees: BTreeMap::new(),
        cgroups: None,
        stay: false,
    };
    let writer = Writer::start(std::io::sink(), || {}).expect("a thread");
    let run = Run::begin(
        tools(writer.sender()),
        start,
        Environment::new(&[]),
        plan.lines,
    );
    let mut run = run.expect("the cases are sound");
    let begun = Instant::now();
    loop {
        run.turn().expect("the cases can be carried out");
        if run.is_finished() {
            return std::mem::take(&mut run.trace);
        }
        assert!(
            begun.elapsed() < PATIENCE,
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
fn every_case_of_the_conformance_suite_gives_its_events_in_order() {
    let wrong: Vec<String> = CASES
        .iter()
        .filter_map(|case| {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            case.check(&carry_out(case, scratch.path())).err()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
