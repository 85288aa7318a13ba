//! The conformance suite in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use venturi_plan::conformance::{CASES, Case, HOST, IMPOSSIBLE_BYTES, MISSING_TOOL, Trace};
use venturi_plan::{Interpreter, InterpreterInput, InterpreterOutput, Plan, Seconds, TaskId};

const BYTES_PER_S: f64 = 1e6;
const PREPARATION_S: f64 = 0.01;
/// Above the needs of all cases, so that an endless driver fails.
const MAX_EVENTS: usize = 10_000;

/// A driver with a fixed time for every task.
struct VirtualTime {
    plan: Plan,
    interpreter: Interpreter,
    now: Seconds,
    durations: BTreeMap<TaskId, Seconds>,
    agenda: BTreeMap<(Seconds, usize), InterpreterInput>,
    scheduled: usize,
    trace: Trace,
}

impl VirtualTime {
    fn new(case: &Case) -> Self {
        let plan = case.plan().expect("the cases are plans");
        let interpreter = Interpreter::new(&plan.header, HOST, plan.lines.clone(), BTreeSet::new());
        Self {
            plan,
            interpreter: interpreter.expect("the cases are sound"),
            now: Seconds::ZERO,
            durations: BTreeMap::new(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            trace: Trace::default(),
        }
    }

    fn run(mut self) -> Trace {
        self.interpreter.start(self.now);
        self.poll();
        for _ in 0..MAX_EVENTS {
            let happens = self.agenda.first_key_value().map(|(&(time, _), _)| time);
            let Some(next) = happens
                .into_iter()
                .chain(self.interpreter.poll_timeout())
                .min()
            else {
                break;
            };
            self.now = next;
            if happens == Some(next) {
                let (_, input) = self.agenda.pop_first().expect("just seen");
                self.trace.input(&input);
                self.interpreter.handle_input(self.now, input);
            } else {
                self.interpreter.handle_timeout(self.now);
            }
            self.poll();
        }
        assert!(
            self.interpreter.is_finished(),
            "{:?}",
            self.interpreter.waiting()
        );
        self.trace
    }

    fn poll(&mut self) {
        while let Some(output) = self.interpreter.poll_output() {
            self.trace.output(&output);
            match output {
                InterpreterOutput::Arm { task, transfer, .. } => {
                    let missing = self.plan.header.calls[&transfer.call]
                        .requires
                        .iter()
                        .any(|it| it == MISSING_TOOL);
                    let input = if missing {
                        InterpreterInput::NotArmed { task }
                    } else {
                        InterpreterInput::Armed { task }
                    };
                    self.after(Seconds::ZERO, input);
                    let bytes =
                        f64::from(u32::try_from(transfer.bytes.get()).expect("small in all cases"));
                    self.durations
                        .insert(task, Seconds::new(bytes / BYTES_PER_S));
                }
                InterpreterOutput::Release { tasks } => {
                    for task in tasks {
                        self.after(self.durations[&task], InterpreterInput::Finished { task });
                    }
                }
                InterpreterOutput::Prepare { task, prepare, .. } => {
                    let size = self.plan.header.datasets[&prepare.dataset].size_bytes.get();
                    let input = if size >= IMPOSSIBLE_BYTES {
                        InterpreterInput::Failed { task }
                    } else {
                        InterpreterInput::Finished { task }
                    };
                    self.after(Seconds::new(PREPARATION_S), input);
                }
                InterpreterOutput::DropCaches { task, .. } => {
                    self.after(
                        Seconds::new(PREPARATION_S),
                        InterpreterInput::Finished { task },
                    );
                }
                InterpreterOutput::Compute { task, core_s, .. } => {
                    self.after(core_s, InterpreterInput::Finished { task })
                }
                InterpreterOutput::TrialStarted { .. }
                | InterpreterOutput::TrialEnded { .. }
                | InterpreterOutput::TrialSkipped { .. }
                | InterpreterOutput::TrialCut { .. }
                | InterpreterOutput::Signal { .. }
                | InterpreterOutput::Failed { .. } => {}
            }
        }
    }

    fn after(&mut self, delay: Seconds, input: InterpreterInput) {
        self.agenda
            .insert((self.now + delay, self.scheduled), input);
        self.scheduled += 1;
    }
}

#[test]
fn every_case_produces_its_events_in_order() {
    let wrong: Vec<_> = CASES
        .iter()
        .filter_map(|case| case.check(&VirtualTime::new(case).run()).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_file_of_the_suite_is_a_case() {
    let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/conformance"))
        .expect("part of the crate");
    let mut files: Vec<_> = directory
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    files.sort();
    let mut expected: Vec<std::ffi::OsString> = CASES
        .iter()
        .flat_map(|case| ["expected", "jsonl"].map(|kind| format!("{}.{kind}", case.name).into()))
        .collect();
    expected.sort();
    assert_eq!(files, expected);
}
