use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::RepeatLimit;

fn header() -> Header {
    let call = json!({"mover": "m", "options": {}, "argv": ["m"], "requires": [], "timeout_s": 1.0, "capture": false,
        "expect": "nothing"});
    let host = json!({"ssh": null, "memory_bytes": null});
    serde_json::from_value(json!({
        "format": "venturi-plan", "version": 2, "name": "n", "seed": 1, "scale": 1.0, "scenario": {},
        "hosts": {"h": host, "other": host}, "storages": {"p": {"host": "h", "path": "p"}},
        "datasets": {"d": {"storage": "p", "path": "d", "files": 3, "size_bytes": 1, "seed": 1}}, "calls": {"c": call},
        "draws": {"size": {"kind": "uniform", "low": 0, "high": 1e9}, "none": {"kind": "choice", "values": [0]}, "rare": {"kind": "exponential", "mean": 1e308},
            "names": {"kind": "choice", "values": ["p:a", "p:b"]}, "mixed": {"kind": "choice", "values": [1, "p:b"]},
            "negative": {"kind": "uniform", "low": -1, "high": 1}, "elsewhere": {"kind": "choice", "values": ["q:a"]}},
        "pools": {"slots": 2}, "measure": {"interval_s": null, "counters": []},
        "totals": {"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {}}}))
    .unwrap()
}

fn transfer(bytes: impl Into<Value>) -> Value {
    json!({"step": "transfer", "call": "c", "slot": 0, "source": "zero:", "destination": "p:x", "files": 1,
        "bytes": bytes.into()})
}

fn trial(number: u32, steps: &[Value]) -> Value {
    json!({"step": "trial", "id": TrialId::new(number), "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": steps})
}

fn line(actor: &str, steps: &[Value]) -> ActorLine {
    serde_json::from_value(json!({"actor": actor, "host": "h", "steps": steps})).unwrap()
}

fn started(lines: Vec<ActorLine>, skip: &[u32]) -> Interpreter {
    let skip = skip.iter().map(|&number| TrialId::new(number)).collect();
    let mut interpreter = Interpreter::new(&header(), "h", lines, skip).unwrap();
    interpreter.start(Seconds::ZERO);
    interpreter
}

fn outputs(interpreter: &mut Interpreter) -> Vec<InterpreterOutput> {
    std::iter::from_fn(|| interpreter.poll_output()).collect()
}

/// Run everything in no time except pauses; return the bytes of each transfer, by trial.
fn run_all(interpreter: &mut Interpreter) -> Vec<(Option<TrialId>, u64)> {
    let mut seen = Vec::new();
    let mut now = Seconds::ZERO;
    loop {
        while let Some(output) = interpreter.poll_output() {
            match output {
                InterpreterOutput::Arm {
                    task,
                    trial,
                    transfer,
                    ..
                } => {
                    seen.push((trial.map(|trial| trial.trial), transfer.bytes.get()));
                    interpreter.handle_input(now, InterpreterInput::Armed { task });
                }
                InterpreterOutput::Release { tasks } => {
                    tasks.into_iter().for_each(|task| {
                        interpreter.handle_input(now, InterpreterInput::Finished { task })
                    });
                }
                InterpreterOutput::Failed { error } => panic!("{error}"),
                _ => {}
            }
        }
        let Some(time) = interpreter.poll_timeout() else {
            break;
        };
        now = time;
        interpreter.handle_timeout(now);
    }
    assert!(interpreter.is_finished());
    seen
}

#[test]
fn skipped_trials_leave_no_trace_and_do_not_shift_draws() {
    let drawn = || transfer(json!({"draw": "size"}));
    let repeated = json!({"step": "repeat", "count": 3, "steps": [drawn()]});
    let lines = || {
        vec![line(
            "a",
            &[
                drawn(),
                trial(0, std::slice::from_ref(&repeated)),
                trial(1, &[drawn()]),
                drawn(),
            ],
        )]
    };
    let all = run_all(&mut started(lines(), &[]));
    let resumed = run_all(&mut started(lines(), &[0]));
    let kept: Vec<_> = all
        .iter()
        .copied()
        .filter(|&(trial, _)| trial != Some(TrialId::new(0)))
        .collect();
    assert_eq!(resumed, kept);
    let values: BTreeSet<_> = all.iter().map(|&(_, bytes)| bytes).collect();
    assert_eq!(values.len(), 6, "all drawn again: {all:?}");
    assert_eq!(
        outputs(&mut started(vec![line("a", &[trial(0, &[drawn()])])], &[0])).len(),
        0
    );
}

#[test]
fn signals_of_a_skipped_trial_count_so_that_no_actor_waits_forever() {
    let signal = json!({"step": "signal", "counter": "k", "add": 2});
    let twice = json!({"step": "repeat", "count": 2, "steps": [signal]});
    let waits = json!({"step": "wait", "counter": "k", "until": 4});
    let mut interpreter = started(
        vec![
            line("a", &[trial(0, &[twice, transfer(1)])]),
            line("b", &[waits]),
        ],
        &[0],
    );
    assert!(matches!(
        outputs(&mut interpreter)[..],
        [InterpreterOutput::Signal { add: 4, .. }]
    ));
    assert!(interpreter.is_finished());
}

#[test]
fn a_trial_starts_only_before_its_time_limit_and_does_not_shift_later_draws() {
    let drawn = transfer(json!({"draw": "size"}));
    let pause = json!({"step": "pause", "duration_s": 3});
    let limited = |number, until_s: f64| {
        let mut trial = trial(number, &[drawn.clone(), pause.clone()]);
        trial["until_s"] = json!(until_s);
        trial
    };
    let lines = |times: [f64; 2]| {
        let steps = [
            limited(0, times[0]),
            limited(1, times[1]),
            trial(2, std::slice::from_ref(&drawn)),
        ];
        vec![line("x", &steps)]
    };
    let all = run_all(&mut started(lines([1.0, 3.5]), &[]));
    assert_eq!(all.len(), 3);
    // The second trial is reached at 3 s, exactly at its `until_s`, which is too late.
    let without = run_all(&mut started(lines([1.0, 3.0]), &[]));
    assert_eq!(without, [all[0], all[2]]);
    let wrong = Interpreter::new(&header(), "h", lines([-1.0, 3.0]), BTreeSet::new());
    assert!(matches!(wrong, Err(Error::Step { step: "trial", .. })));
}

#[test]
fn an_at_step_before_a_skipped_trial_does_not_apply_to_the_next_transfer() {
    let lines = vec![line(
        "a",
        &[
            json!({"step": "at", "time_s": 0}),
            trial(0, &[transfer(1)]),
            transfer(2),
        ],
    )];
    assert!(matches!(
        outputs(&mut started(lines, &[0]))[..],
        [InterpreterOutput::Arm { intended: None, .. }]
    ));
}

#[test]
fn a_counter_from_another_host_releases_waits_and_never_decreases() {
    let waits = |until: u64| json!({"step": "wait", "counter": "k", "until": until});
    let mut interpreter = started(vec![line("a", &[waits(2), waits(3)])], &[]);
    let counter = |value| InterpreterInput::Counter {
        name: "k".into(),
        value,
    };
    assert!(interpreter.is_stalled());
    interpreter.handle_input(Seconds::ZERO, counter(2));
    assert_eq!(
        interpreter.waiting(),
        ["actor `a` waits for counter `k` to reach 3 (now 2)"]
    );
    interpreter.handle_input(Seconds::ZERO, counter(1));
    assert!(interpreter.waiting()[0].contains("now 2"));
    interpreter.handle_input(Seconds::ZERO, counter(3));
    assert!(interpreter.is_finished());
}

fn failure(interpreter: &mut Interpreter) -> String {
    match outputs(interpreter).pop() {
        Some(InterpreterOutput::Failed { error }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_trial_does_not_affect_the_next_one() {
    let prepare =
        json!({"step": "prepare", "dataset": "d", "first": 0, "files": 1, "cache": "as_is"});
    let at = json!({"step": "at", "time_s": 0});
    let signal = json!({"step": "signal", "counter": "k", "add": 1});
    // More rounds than an idle loop may have.
    let rounds =
        json!({"step": "repeat", "count": 2 * MAX_IDLE_ROUNDS, "steps": [transfer(1), signal]});
    let ever = json!({"step": "repeat", "until_s": 1e9, "steps": [prepare, signal, transfer(1)]});
    let steps = [trial(0, &[at, ever, rounds]), trial(1, &[transfer(2)])];
    let mut interpreter = started(vec![line("a", &steps)], &[]);
    let [.., InterpreterOutput::Prepare { task, .. }] = outputs(&mut interpreter)[..] else {
        panic!("the trial starts with its preparation")
    };
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::Failed { task });
    let records = outputs(&mut interpreter);
    let sent = records
        .iter()
        .filter(|output| matches!(output, InterpreterOutput::Signal { .. }));
    // The round that had started, and all rounds of a loop with a known number of rounds.
    assert_eq!(sent.count() as u64, 1 + 2 * MAX_IDLE_ROUNDS);
    let [
        ..,
        InterpreterOutput::TrialEnded { .. },
        InterpreterOutput::TrialStarted { .. },
        InterpreterOutput::Arm {
            transfer, intended, ..
        },
    ] = &records[..]
    else {
        panic!("{records:?}")
    };
    assert_eq!((transfer.bytes.get(), *intended), (2, None));
}

#[test]
fn loops_that_take_no_time_are_an_error_not_a_hang() {
    let check = |body: Value| {
        let forever = json!({"step": "repeat", "until_s": 5, "steps": [body.clone()]});
        let many = json!({"step": "repeat", "count": u64::MAX, "steps": [body]});
        let inner = json!({"step": "repeat", "count": 3, "steps": [many]});
        for step in [forever, inner, many] {
            let mut interpreter = started(vec![line("a", &[step])], &[]);
            assert!(failure(&mut interpreter).contains("rounds without one"));
            assert!(interpreter.is_finished());
        }
    };
    check(json!({"step": "pause", "duration_s": {"draw": "none"}}));
    check(json!({"step": "signal", "counter": "k", "add": 1}));
    check(json!({"step": "parallel", "children": [[], [{"step": "at", "time_s": 0}]]}));
    check(json!({"step": "repeat", "count": 0, "steps": []}));
}

#[test]
fn a_timed_loop_with_a_missing_tool_ends_even_though_time_passes() {
    let steps = [json!({"step": "repeat", "until_s": 1e9, "steps": [transfer(1)]})];
    let mut interpreter = started(vec![line("a", &steps)], &[]);
    let mut now = 0.0;
    let mut rounds = 0;
    while let Some(InterpreterOutput::Arm { task, .. }) = interpreter.poll_output() {
        now += 1e-3;
        rounds += 1;
        interpreter.handle_input(Seconds::new(now), InterpreterInput::NotArmed { task });
    }
    assert_eq!(rounds, MAX_IDLE_ROUNDS + 1);
    assert!(interpreter.is_finished());
}

#[test]
fn a_long_loop_of_transfers_is_not_an_endless_loop() {
    let rounds = 3 * MAX_IDLE_ROUNDS;
    let inner = json!({"step": "repeat", "count": 1, "steps": [transfer(1)]});
    let parallel = json!({"step": "parallel", "children": [[inner]]});
    let steps = [json!({"step": "repeat", "count": rounds, "steps": [parallel]})];
    assert_eq!(
        run_all(&mut started(vec![line("a", &steps)], &[])).len() as u64,
        rounds
    );
}

#[test]
fn releasing_slots_that_were_not_acquired_is_an_error() {
    let mut interpreter = started(
        vec![line(
            "a",
            &[json!({"step": "release", "pool": "slots", "count": 1})],
        )],
        &[],
    );
    assert!(failure(&mut interpreter).contains("found 0 acquired"));
}

#[test]
fn a_transfer_that_ends_at_the_barrier_does_not_delay_the_others() {
    let children = json!({"step": "parallel", "children": [[transfer(1)], [transfer(2)]]});
    let mut interpreter = started(vec![line("a", &[children])], &[]);
    let tasks: Vec<_> = outputs(&mut interpreter)
        .into_iter()
        .map(|output| match output {
            InterpreterOutput::Arm { task, .. } => task,
            other => panic!("{other:?}"),
        })
        .collect();
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::Armed { task: tasks[0] });
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::Finished { task: tasks[0] });
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::Armed { task: tasks[1] });
    match &outputs(&mut interpreter)[..] {
        [InterpreterOutput::Release { tasks: released }] => assert_eq!(released, &tasks[1..]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_that_do_not_match_the_header_are_rejected_before_the_start() {
    let check_lines = |lines: Vec<ActorLine>, expected: &str| {
        let error = Interpreter::new(&header(), "h", lines, BTreeSet::new())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    let check = |step: Value, expected: &str| check_lines(vec![line("a", &[step])], expected);
    let with = |key: &str, value: Value| {
        let mut step = transfer(1);
        step[key] = value;
        step
    };
    check(
        with("call", json!("x")),
        "name of a call of the plan's header, found `x`",
    );
    check(
        with("source", json!("q:a")),
        "name of a storage of the plan's header, found `q`",
    );
    check(
        with("source", json!({"draw": "elsewhere"})),
        "name of a storage of the plan's header, found `q`",
    );
    check(
        with("source", json!({"draw": "size"})),
        "draw `size`: expected texts",
    );
    check(
        with("bytes", json!({"draw": "names"})),
        "draw `names`: expected numbers",
    );
    check(
        with("bytes", json!({"draw": "mixed"})),
        "draw `mixed`: expected numbers",
    );
    check(
        with("bytes", json!({"draw": "negative"})),
        "expected numbers of at least 0 and below 2^63, found -1",
    );
    check(with("bytes", json!({"draw": "x"})), "name of a draw");
    check(
        json!({"step": "pause", "duration_s": -1}),
        "a number of at least 0 and at most 1e10, found -1",
    );
    check(
        json!({"step": "pause", "duration_s": 1e300}),
        "at most 1e10",
    );
    check(
        json!({"step": "pause", "duration_s": {"draw": "rare"}}),
        "draw `rare`",
    );
    check(with("bytes", json!({"draw": "rare"})), "draw `rare`");
    check(
        json!({"step": "acquire", "pool": "slots", "count": 3}),
        "3 of 2",
    );
    check(
        json!({"step": "release", "pool": "x", "count": 1}),
        "name of a pool",
    );
    let dataset = |name: &str, first: u64| json!({"step": "drop_caches", "dataset": name, "first": first, "files": 2});
    check(dataset("x", 0), "name of a dataset");
    check(dataset("d", 2), "2 files from number 2, of 3");
    check(dataset("d", u64::MAX), "of 3");
    check(
        json!({"step": "repeat", "count": 1, "steps": [trial(0, &[])]}),
        "inside another step",
    );
    check(
        trial(
            0,
            &[json!({"step": "acquire", "pool": "slots", "count": 1})],
        ),
        "1 of `slots` not released",
    );
    check_lines(
        vec![line("a", &[trial(0, &[])]), line("a", &[trial(0, &[])])],
        "twice",
    );
    let moved = ActorLine {
        host: "other".into(),
        ..line("a", &[])
    };
    check_lines(vec![line("a", &[]), moved], "found a line on `other`");
    check_lines(
        vec![ActorLine {
            host: "x".into(),
            ..line("a", &[])
        }],
        "name of a host",
    );
}

#[test]
fn actors_of_other_hosts_are_ignored() {
    let other = ActorLine {
        host: "other".into(),
        ..line("a", &[transfer(1)])
    };
    assert!(started(vec![other], &[]).is_finished());
}

fn steps() -> impl Strategy<Value = Vec<Value>> {
    let leaf = prop_oneof![
        4 => (0_u64..9).prop_map(transfer),
        1 => Just(json!({"step": "read", "call": "c", "slot": 0, "source": "p:x", "offset_bytes": 0, "bytes": {"draw": "size"}})),
        1 => (0..3).prop_map(|s| json!({"step": "pause", "duration_s": s})),
        1 => (0..6).prop_map(|s| json!({"step": "at", "time_s": s})),
        1 => Just(json!({"step": "compute", "core_s": 1})),
        1 => Just(json!({"step": "signal", "counter": "k", "add": 1})),
        1 => Just(json!({"step": "prepare", "dataset": "d", "first": 0, "files": 1, "cache": "warm"})),
    ];
    // The number of arrivals is unknown in a skipped trial, so it signals nothing.
    let quiet = prop_oneof![
        4 => (0_u64..9).prop_map(transfer),
        1 => (0..3).prop_map(|s| json!({"step": "pause", "duration_s": s})),
        1 => (0_u64..3).prop_map(|count| json!({"step": "repeat", "count": count, "steps": [transfer(count)]})),
        1 => Just(json!({"step": "parallel", "children": [[transfer(1)], [transfer(2)]]})),
        1 => Just(json!({"step": "prepare", "dataset": "d", "first": 0, "files": 1, "cache": "warm"})),
    ];
    let step = leaf.prop_recursive(3, 24, 4, move |inner| {
        let body = prop::collection::vec(inner, 0..4);
        let quiet = quiet.clone();
        prop_oneof![
            (0_u64..3, body.clone()).prop_map(
                |(count, steps)| json!({"step": "repeat", "count": count, "steps": steps})
            ),
            (1_u64..4, prop::collection::vec(quiet, 0..4)).prop_map(
                |(until, steps)| json!({"step": "arrivals", "rate_per_s": [[1, 0], [until, 3]], "gap": 0.7, "steps": steps})
            ),
            prop::collection::vec(body, 0..4)
                .prop_map(|children| json!({"step": "parallel", "children": children})),
        ]
    });
    let slot = |step: Value| {
        let pool = |kind: &str| json!({"step": kind, "pool": "slots", "count": 1});
        json!({"step": "parallel", "children": [[pool("acquire"), step, pool("release")]]})
    };
    prop::collection::vec(
        prop_oneof![4 => step.clone(), 1 => step.prop_map(slot)],
        0..5,
    )
}

/// Return the sums that these steps add to counters, with loops counted.
fn signals(steps: &[crate::Step]) -> u64 {
    let of_step = |step: &crate::Step| match step {
        crate::Step::Signal(signal) => signal.add,
        crate::Step::Trial(trial) => signals(&trial.steps),
        crate::Step::Parallel(parallel) => parallel.children.iter().map(|it| signals(it)).sum(),
        crate::Step::Repeat(repeat) => match repeat.limit {
            RepeatLimit::Count(count) => count * signals(&repeat.steps),
            RepeatLimit::Until(_) | RepeatLimit::For(_) => 0,
        },
        _ => 0,
    };
    steps.iter().map(of_step).sum()
}

/// Invariants that a driver can rely on, for any order of task ends.
#[derive(Default)]
struct Watch {
    armed: BTreeSet<TaskId>,
    released: BTreeSet<TaskId>,
    outstanding: Vec<InterpreterInput>,
    trial_of: BTreeMap<TaskId, TrialId>,
    trials: Vec<TrialId>,
    /// Trials with a failed preparation.
    failed: BTreeSet<TrialId>,
    signalled: u64,
}

impl Watch {
    fn output(&mut self, output: InterpreterOutput, well: bool) {
        match output {
            InterpreterOutput::Arm { task, trial, .. } => {
                assert!(
                    trial
                        .as_ref()
                        .is_none_or(|trial| !self.failed.contains(&trial.trial)),
                    "a failed trial starts nothing more"
                );
                self.trial_of.extend(trial.map(|trial| (task, trial.trial)));
                self.outstanding.push(if well {
                    InterpreterInput::Armed { task }
                } else {
                    InterpreterInput::NotArmed { task }
                });
            }
            InterpreterOutput::Release { tasks } => {
                assert!(!tasks.is_empty());
                for task in tasks {
                    assert!(self.armed.contains(&task) && self.released.insert(task));
                    self.outstanding.push(InterpreterInput::Finished { task });
                }
            }
            InterpreterOutput::Prepare { task, trial, .. } => {
                self.trial_of.extend(trial.map(|trial| (task, trial.trial)));
                self.outstanding.push(if well {
                    InterpreterInput::Finished { task }
                } else {
                    InterpreterInput::Failed { task }
                });
            }
            InterpreterOutput::Compute { task, trial, .. } => {
                self.trial_of.extend(trial.map(|trial| (task, trial.trial)));
                self.outstanding.push(InterpreterInput::Finished { task });
            }
            InterpreterOutput::TrialStarted { trial } => self.trials.push(trial.trial),
            InterpreterOutput::TrialEnded { trial } => {
                assert_eq!(self.trials.pop(), Some(trial.trial));
                assert!(
                    self.trial_of.values().all(|&other| other != trial.trial),
                    "a trial ends before its tasks"
                );
            }
            InterpreterOutput::Signal { add, .. } => self.signalled += add,
            other => panic!("{other:?}"),
        }
    }

    fn input(&mut self, input: &InterpreterInput) {
        match input {
            InterpreterInput::Armed { task } => {
                self.armed.insert(*task);
            }
            InterpreterInput::Finished { task } | InterpreterInput::NotArmed { task } => {
                self.trial_of.remove(task);
            }
            InterpreterInput::Failed { task } => self.failed.extend(self.trial_of.remove(task)),
            InterpreterInput::Counter { .. } | InterpreterInput::EndService { .. } => {}
        }
    }
}

proptest! {
    #[test]
    fn every_program_finishes_for_any_order_of_completions(
        body in steps(), more in steps(), order in prop::collection::vec(any::<u16>(), 64),
    ) {
        let program = || vec![line("a", &[trial(0, &body)]), line("b", &more)];
        let planned: u64 = program().iter().map(|line| signals(&line.steps)).sum();
        let mut interpreter = started(program(), &[]);
        let mut watch = Watch::default();
        let mut order = order.into_iter().cycle();
        let mut now = Seconds::ZERO;
        loop {
            let chance = order.next().expect("a cycle");
            outputs(&mut interpreter).into_iter().for_each(|output| watch.output(output, chance % 5 > 0));
            if !watch.outstanding.is_empty() && (chance % 3 > 0 || interpreter.poll_timeout().is_none()) {
                let input = watch.outstanding.swap_remove(usize::from(chance) % watch.outstanding.len());
                watch.input(&input);
                interpreter.handle_input(now, input);
            } else if let Some(time) = interpreter.poll_timeout() {
                prop_assert!(time > now, "a time-out that does not pass");
                now = time;
                interpreter.handle_timeout(now);
            } else {
                break;
            }
        }
        prop_assert!(interpreter.is_finished(), "{:?}", interpreter.waiting());
        prop_assert_eq!(&watch.armed, &watch.released);
        prop_assert_eq!(watch.signalled, planned);
    }
}

/// Return a header with the storage `p` exported by the service `web`, too.
fn served() -> Header {
    let mut value = serde_json::to_value(header()).unwrap();
    value["services"] = json!({"web": {"kind": "nginx", "host": "other", "storages": ["p"], "ports": [80],
        "service_ports": {"http": "http://{host}:{port}/{path}"}}});
    serde_json::from_value(value).unwrap()
}

#[test]
fn trials_at_an_ended_service_are_skipped_with_their_signals_and_others_run() {
    let fetch = |bytes: u64| {
        let mut step = transfer(bytes);
        step["source"] = "p:a".into();
        step["source_via"] = "web/http".into();
        step
    };
    let signal = json!({"step": "signal", "counter": "k", "add": 1});
    let steps = [
        trial(0, &[fetch(1), fetch(2), signal.clone()]),
        trial(1, &[transfer(3)]),
        trial(
            2,
            &[
                json!({"step": "parallel", "children": [[fetch(4)]]}),
                signal,
            ],
        ),
        trial(3, &[transfer(5)]),
    ];
    let mut interpreter =
        Interpreter::new(&served(), "h", vec![line("a", &steps)], BTreeSet::new()).unwrap();
    interpreter.start(Seconds::ZERO);
    let [.., InterpreterOutput::Arm { task, .. }] = outputs(&mut interpreter)[..] else {
        panic!("the first trial starts with a transfer")
    };
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::Armed { task });
    let service: Name = "web".into();
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::EndService { service });
    let [
        InterpreterOutput::Release { .. },
        InterpreterOutput::TrialCut { trial },
    ] = &outputs(&mut interpreter)[..]
    else {
        panic!("the trial that runs is cut")
    };
    assert_eq!(trial.trial, TrialId::new(0));
    interpreter.handle_input(Seconds::ZERO, InterpreterInput::Finished { task });
    let mut skipped = Vec::new();
    let mut signals = 0;
    let mut armed = Vec::new();
    while let Some(output) = interpreter.poll_output() {
        match output {
            InterpreterOutput::TrialSkipped { trial, service } => {
                assert_eq!(&*service, "web");
                skipped.push(trial.trial);
            }
            InterpreterOutput::Signal { add, .. } => signals += add,
            InterpreterOutput::Arm { task, transfer, .. } => {
                armed.push(transfer.bytes.get());
                interpreter.handle_input(Seconds::ZERO, InterpreterInput::NotArmed { task });
            }
            _ => {}
        }
    }
    assert_eq!(
        (skipped, signals, armed),
        (vec![TrialId::new(2)], 2, vec![3, 5])
    );
    assert!(interpreter.is_finished());
}

#[test]
fn only_a_storage_with_a_url_has_existing_servers() {
    let mut value = serde_json::to_value(served()).unwrap();
    value["storages"]["u"] = json!({"host": "h", "path": "", "url": "https://se.invalid/data"});
    let existing = |storage: &str| {
        json!({"kind": "url", "host": null, "storages": [storage], "ports": [],
            "service_ports": {"https": "https://se.invalid/data{relative}"}})
    };
    value["services"]["se"] = existing("u");
    value["services"]["mirror"] = existing("p");
    let header: Header = serde_json::from_value(value).unwrap();
    assert_eq!(header.servers_of("u").collect::<Vec<_>>(), ["se".into()]);
    assert_eq!(header.servers_of("p").count(), 0);
}
