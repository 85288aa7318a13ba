use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::{ActorLine, Header, InterpreterInput, InterpreterOutput, TaskId, TrialId};

fn header() -> Header {
    serde_json::from_value(json!({
        "format": "venturi-plan", "version": 2, "name": "n", "seed": 5, "scale": 1.0, "scenario": {},
        "hosts": {"h": {"ssh": null, "memory_bytes": null}}, "storages": {"p": {"host": "h", "path": "p"}}, "datasets": {},
        "calls": {"c": {"mover": "m", "options": {}, "argv": ["m"], "requires": [], "timeout_s": 1.0, "capture": false,
            "expect": "nothing"}},
        "draws": {"gap": {"kind": "exponential", "mean": 1}, "none": {"kind": "choice", "values": [0]},
            "below": {"kind": "uniform", "low": -1, "high": 1}, "size": {"kind": "uniform", "low": 0, "high": 1e9}},
        "pools": {}, "measure": {"interval_s": null, "counters": []},
        "totals": {"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {}}}))
    .unwrap()
}

fn transfer(bytes: impl Into<Value>) -> Value {
    json!({"step": "transfer", "call": "c", "slot": 0, "source": "zero:", "destination": "p:x", "files": 1, "bytes": bytes.into()})
}

fn arrivals(rates: Value, gap: Value, bytes: Value) -> Value {
    json!({"step": "arrivals", "rate_per_s": rates, "gap": gap, "steps": [transfer(bytes)]})
}

fn loaded(steps: &[Value], skip: &[u32]) -> Result<Interpreter, Error> {
    let line: ActorLine =
        serde_json::from_value(json!({"actor": "a", "host": "h", "steps": steps})).unwrap();
    let skip: BTreeSet<_> = skip.iter().map(|&number| TrialId::new(number)).collect();
    Interpreter::new(&header(), "h", vec![line], skip)
}

/// Return start, intended start and bytes of at most `max` transfers; each takes `lasts_s`.
fn started(interpreter: &mut Interpreter, lasts_s: f64, max: usize) -> Vec<(f64, f64, u64)> {
    let mut seen = Vec::new();
    let mut ends: BTreeSet<(Seconds, TaskId)> = BTreeSet::new();
    let mut now = Seconds::ZERO;
    interpreter.start(now);
    loop {
        while let Some(output) = interpreter.poll_output() {
            match output {
                InterpreterOutput::Arm {
                    task,
                    transfer,
                    intended,
                    ..
                } => {
                    let intended = intended.map_or(-1.0, Seconds::get);
                    seen.push((now.get(), intended, transfer.bytes.get()));
                    interpreter.handle_input(now, InterpreterInput::Armed { task });
                    ends.insert((now + Seconds::new(lasts_s), task));
                }
                InterpreterOutput::Failed { error } => panic!("{error}"),
                _ => {}
            }
        }
        let timer = interpreter.poll_timeout();
        let end = ends.first().copied();
        match (timer, end) {
            _ if seen.len() >= max => return seen,
            (Some(timer), end) if end.is_none_or(|(at, _)| timer <= at) => {
                now = timer;
                interpreter.handle_timeout(now);
            }
            (_, Some((at, task))) => {
                ends.pop_first();
                now = at;
                interpreter.handle_input(now, InterpreterInput::Finished { task });
            }
            (_, None) => {
                assert!(interpreter.is_finished(), "{:?}", interpreter.waiting());
                return seen;
            }
        }
    }
}

fn times(step: Value) -> Vec<f64> {
    let seen = started(&mut loaded(&[step], &[]).unwrap(), 0.0, usize::MAX);
    seen.iter().map(|(time, ..)| *time).collect()
}

#[test]
fn with_even_gaps_the_integral_of_the_rate_is_an_integer_at_each_arrival() {
    // Rate 2 t from 0 to 10 s: t² = 1, 2, … 99; arrival 100 would be at the end.
    let found = times(arrivals(json!([[0, 0], [10, 20]]), json!(1), json!(1)));
    assert_eq!(found.len(), 99);
    for (index, time) in found.iter().enumerate() {
        let expected = (index as f64 + 1.0).sqrt();
        assert!((time - expected).abs() < 1e-12, "{time} {expected}");
    }
    // Increase, constant rate, decrease and a step: 5 + 20 + 5 + 0 + 10.
    let shape = json!([[0, 0], [1, 10], [3, 10], [4, 0], [6, 0], [6, 10], [7, 10]]);
    let found = times(arrivals(shape, json!(0.5), json!(1)));
    assert_eq!(found.len(), 79);
    assert!(found.iter().all(|time| !(4.0..6.0).contains(time)));
    assert_eq!(found[9], 1.0);
}

#[test]
fn exponential_gaps_give_a_poisson_process_of_the_rate() {
    let found = times(arrivals(
        json!([[0, 0], [100, 2000]]),
        json!({"draw": "gap"}),
        json!(1),
    ));
    // 100,000 ± 316 in total; each is in the first half of the ramp with probability 1/4, so its
    // deviation is 137. Tolerances are four deviations.
    let early = found.iter().filter(|time| **time < 50.0).count() as f64;
    assert!(
        (found.len() as f64 - 1e5).abs() < 4.0 * 316.3,
        "{}",
        found.len()
    );
    assert!(
        (early - found.len() as f64 / 4.0).abs() < 4.0 * 137.0,
        "{early}"
    );
    // In transformed time, the gaps are exponential, with mean 1 and standard deviation 1.
    let stretched: Vec<f64> = found.iter().map(|time| time * time * 10.0).collect();
    let gaps: Vec<f64> = stretched.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
    assert!((mean - 1.0).abs() < 4.0 / 316.0, "{mean}");
    assert!(
        (square - 2.0).abs() < 4.0 * 20.0_f64.sqrt() / 316.0,
        "{square}"
    );
}

#[test]
fn arrivals_do_not_wait_for_earlier_ones_and_the_next_step_waits_for_all() {
    let open = arrivals(json!([[0, 1], [3.5, 1]]), json!(1), json!(1));
    let seen = started(
        &mut loaded(&[open, transfer(2)], &[]).unwrap(),
        10.0,
        usize::MAX,
    );
    let expected = [(1.0, 1.0, 1), (2.0, 2.0, 1), (3.0, 3.0, 1), (13.0, -1.0, 2)];
    assert_eq!(seen, expected);
}

#[test]
fn arrivals_due_before_the_step_start_immediately_and_are_late() {
    let pause = json!({"step": "pause", "duration_s": 5});
    let open = arrivals(json!([[0, 1], [6.5, 1]]), json!(2), json!(1));
    let seen = started(&mut loaded(&[pause, open], &[]).unwrap(), 0.0, usize::MAX);
    assert_eq!(seen, [(5.0, 2.0, 1), (5.0, 4.0, 1), (6.0, 6.0, 1)]);
}

#[test]
fn a_skipped_trial_does_not_shift_draws_of_later_arrivals() {
    let open = || arrivals(json!([[0, 1], [9, 1]]), json!(1), json!({"draw": "size"}));
    let trial = |number: u32| json!({"step": "trial", "id": TrialId::new(number), "point": 0, "repetition": 0, "block": 0, "factors": {}, "steps": [open(), open()]});
    let steps = [open(), trial(0), trial(1), open()];
    let sizes = |skip: &[u32]| -> Vec<u64> {
        let seen = started(&mut loaded(&steps, skip).unwrap(), 0.0, usize::MAX);
        seen.iter().map(|(.., bytes)| *bytes).collect()
    };
    let all = sizes(&[]);
    assert_eq!(all.len(), 6 * 8);
    let mut without = all.clone();
    without.drain(8..24);
    assert_eq!(sizes(&[0]), without);
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "each arrival has separate draws");
}

#[test]
fn ten_thousand_arrivals_with_draws_do_not_accumulate_state() {
    let open = arrivals(
        json!([[0, 1000], [10.001, 1000]]),
        json!(1),
        json!({"draw": "size"}),
    );
    let mut interpreter = loaded(
        &[
            open,
            json!({"step": "wait", "counter": "never", "until": 1}),
        ],
        &[],
    )
    .unwrap();
    interpreter.start(Seconds::ZERO);
    let mut started = 0;
    while let Some(now) = interpreter.poll_timeout() {
        interpreter.handle_timeout(now);
        while let Some(output) = interpreter.poll_output() {
            if let InterpreterOutput::Arm { task, .. } = output {
                started += 1;
                interpreter.handle_input(now, InterpreterInput::Armed { task });
                interpreter.handle_input(now, InterpreterInput::Finished { task });
            }
        }
    }
    assert_eq!(started, 10_000);
    assert!(
        interpreter.actors[0].streams.kept() <= 1,
        "{}",
        interpreter.actors[0].streams.kept()
    );
    assert!(interpreter.fibers.capacity() <= 2);
}

#[test]
fn each_arrival_writes_to_a_separate_file() {
    let inner = json!({"step": "parallel", "children": [[transfer(1)], [arrivals(json!([[0, 1], [1.5, 1]]), json!(1), json!(1))]]});
    let outer =
        json!({"step": "arrivals", "rate_per_s": [[0, 1], [2.5, 1]], "gap": 1, "steps": [inner]});
    let mut interpreter = loaded(&[outer], &[]).unwrap();
    interpreter.start(Seconds::ZERO);
    let mut seen = Vec::new();
    while let Some(now) = interpreter.poll_timeout() {
        interpreter.handle_timeout(now);
        while let Some(output) = interpreter.poll_output() {
            if let InterpreterOutput::Arm { task, transfer, .. } = output {
                seen.push(transfer.destination.to_string());
                interpreter.handle_input(now, InterpreterInput::NotArmed { task });
            }
        }
    }
    assert_eq!(seen, ["p:x.0", "p:x.0.0", "p:x.1", "p:x.1.0"]);
}

#[test]
fn gaps_of_zero_are_an_error_not_a_hang() {
    let step = arrivals(json!([[0, 1], [9, 1]]), json!({"draw": "none"}), json!(1));
    let mut interpreter = loaded(&[step], &[]).unwrap();
    interpreter.start(Seconds::ZERO);
    let failed = std::iter::from_fn(|| interpreter.poll_output()).any(|output| {
        matches!(
            output,
            InterpreterOutput::Failed {
                error: Error::EndlessLoop { .. }
            }
        )
    });
    assert!(failed && interpreter.is_finished());
}

#[test]
fn an_invalid_rate_is_rejected() {
    let check = |rates: Value, gap: Value, expected: &str| {
        let error = loaded(&[arrivals(rates, gap, json!(1))], &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        json!([[0, 1]]),
        json!(1),
        "two points of `rate_per_s` or more, found 1",
    );
    check(
        json!([[1, 1], [0, 1]]),
        json!(1),
        "times that rise, found 0 after 1",
    );
    check(json!([[0, 1], [1, -1]]), json!(1), "found -1 at 1");
    check(
        json!([[0, 1e12], [1e10, 1e12]]),
        json!(1),
        "at most 1e12 arrivals in all",
    );
    check(json!([[0, 1], [1, 1]]), json!(0), "a gap above 0, found 0");
    check(
        json!([[0, 1], [1, 1]]),
        json!({"draw": "below"}),
        "numbers of at least 0",
    );
}

/// Return arrival times and intended times of compact transfers; each takes `lasts_s`.
fn arrives_compactly(step: Value, lasts_s: f64) -> Vec<(f64, f64)> {
    let mut interpreter = loaded(&[step, json!({"step": "pause", "duration_s": 1})], &[])
        .unwrap()
        .brief(|_| true);
    let (mut seen, mut ends) = (Vec::new(), std::collections::VecDeque::new());
    let mut now = Seconds::ZERO;
    interpreter.start(now);
    while !interpreter.is_finished() {
        assert!(
            interpreter.poll_output().is_none(),
            "all arrivals are compact"
        );
        while let Some(arrival) = interpreter.poll_arrival() {
            let (step, trial, actor) = interpreter.arriving(arrival.of).unwrap();
            assert_eq!((step.files, trial, &**actor), (1, None, "a"));
            seen.push((now.get(), arrival.due.get()));
            ends.push_back((now + Seconds::new(lasts_s), arrival.of));
        }
        let timer = interpreter.poll_timeout();
        let end = ends.front().map(|(at, _)| *at);
        now = timer.into_iter().chain(end).min().expect("it goes on");
        match ends.front().copied() {
            Some((at, of)) if at == now => {
                ends.pop_front();
                interpreter.depart(now, of);
            }
            _ => interpreter.handle_timeout(now),
        }
    }
    // The next step waits for all to end, and then a second passes.
    let last_s = seen.last().map_or(0.0, |(time_s, _)| time_s + lasts_s);
    assert!((now.get() - last_s - 1.0).abs() < 1e-9, "{now} {last_s}");
    seen
}

#[test]
fn compact_arrivals_have_the_same_times() {
    let step = || {
        arrivals(
            json!([[0, 1], [50, 5]]),
            json!({"draw": "gap"}),
            json!(1000),
        )
    };
    let each = started(&mut loaded(&[step()], &[]).unwrap(), 3.0, usize::MAX);
    let each: Vec<_> = each.iter().map(|(at, due, _)| (*at, *due)).collect();
    assert!(each.len() > 100);
    assert_eq!(arrives_compactly(step(), 3.0), each);
}

#[test]
fn arrivals_with_individual_draws_are_not_compact() {
    let step = arrivals(json!([[0, 1], [3, 1]]), json!(1), json!({"draw": "size"}));
    let mut interpreter = loaded(&[step], &[]).unwrap().brief(|_| true);
    let seen = started(&mut interpreter, 0.0, usize::MAX);
    assert_eq!((seen.len(), interpreter.poll_arrival()), (2, None));
}
