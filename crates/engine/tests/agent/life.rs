//! Lifetime of an agent: its reports of the host, its execution of the plan, and the end of all its processes.

use crate::testkit::{
    AgentOutput, AgentProcess, TestScene, bare, group_members, transfer, trial, wait_for_number,
    wait_until,
};
use serde_json::json;
use std::time::{Duration, Instant};
use venturi_plan::{Outcome, Record, ReleaseMethod, TrialOutcome};

#[test]
fn hello_reports_the_build_and_the_host_before_any_request() {
    let mut agent = AgentProcess::spawn();
    agent.leave();
    let output = agent.finish();
    assert_eq!(output.code, Some(1), "the controller went away");
    let hello = output.hello();
    assert!(
        hello.engine.starts_with(env!("CARGO_PKG_VERSION")),
        "{}",
        hello.engine
    );
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("/proc");
    assert_eq!(hello.properties["hostname"], hostname.trim());
    assert!(hello.clock.unix_ns > 1_700_000_000_000_000_000);
}

#[test]
fn ready_reports_free_space_tools_and_storages() {
    let output = TestScene::new().call("cp", &["cp"]).run();
    let ready = output.ready();
    assert_eq!(
        ready.release,
        ReleaseMethod::ExecStop,
        "this host lets us trace our own children"
    );
    assert!(ready.free_bytes["disk"].get() > 0);
    assert!(
        !ready.free_bytes.contains_key("far"),
        "not a storage of this host"
    );
    assert!(
        ready
            .memory_bytes
            .is_some_and(|bytes| bytes.get() > 1 << 20)
    );
    assert!(ready.tools["cp"].starts_with("cp ("), "{:?}", ready.tools);
    assert!(
        ready.storages["disk"].contains_key("type"),
        "{:?}",
        ready.storages
    );
}

#[test]
fn finished_trials_are_skipped() {
    let mut scene = TestScene::new().call("true", &["true"]);
    scene.skip = vec!["t0000000", "t0000002"];
    let output = scene
        .actor(
            "one",
            (0..4)
                .map(|number| trial(number, vec![bare("true")]))
                .collect(),
        )
        .run();
    let done: Vec<u32> = output
        .trials()
        .iter()
        .map(|trial| trial.trial.number())
        .collect();
    assert_eq!(done, [1, 3]);
}

#[test]
fn an_actor_waits_for_the_value_of_a_shared_counter() {
    let steps = vec![
        json!({"step": "wait", "counter": "bytes", "until": 7}),
        bare("true"),
        json!({"step": "signal", "counter": "ours", "add": 2}),
    ];
    let scene = TestScene::new().call("true", &["true"]).actor("one", steps);
    let mut agent = scene.start();
    agent.next("ready");
    agent.command(json!({"command": "counter", "counter": "bytes", "value": 7}));
    let output = agent.finish();
    assert_eq!(output.outcomes(), [Outcome::Ok]);
    assert!(output.values.iter().any(|value| value["record"] == "signal"
        && value["counter"] == "ours"
        && value["add"] == 2));
}

#[test]
fn a_counter_sent_before_the_start_is_kept() {
    let wait = |counter| json!({"step": "wait", "counter": counter, "until": 7});
    let scene = TestScene::new()
        .call("true", &["true"])
        .actor("one", vec![wait("before"), wait("with"), bare("true")]);
    let mut agent = scene.introduce();
    let counter = |name, value| json!({"command": "counter", "counter": name, "value": value});
    agent.command(counter("before", 7));
    agent.command(counter("before", 3)); // counters never decrease
    // One write, so that the agent reads both commands before it starts.
    agent.line(&format!("{{\"command\": \"go\"}}\n{}", counter("with", 7)));
    assert_eq!(agent.finish().outcomes(), [Outcome::Ok]);
}

#[test]
fn a_counter_before_the_start_is_rejected() {
    let mut agent = AgentProcess::spawn();
    agent.command(json!({"command": "counter", "counter": "bytes", "value": 7}));
    let output = agent.finish();
    assert_eq!(output.code, Some(2));
    assert!(matches!(output.last(), Record::Fatal(fatal) if fatal.message.contains("`start`")));
}

#[test]
fn a_tool_that_does_not_report_its_version_does_not_hold_up_the_start() {
    let scene = TestScene::new();
    let mark = scene.scratch.path().join("mark");
    let script = format!("touch {}", mark.display());
    let scene = scene
        .tool("hangs", "sleep 1000")
        .tool("deaf", "trap '' TERM; while :; do sleep 1; done")
        .tool("answers", "echo 1.2.3")
        .call("hangs", &["hangs"])
        .call("deaf", &["deaf"])
        .call("answers", &["answers"])
        .call("shell", &["sh", "-c", &script]);
    let started = std::time::Instant::now();
    let mut agent = scene.introduce();
    let ready = agent.next("ready");
    let took = started.elapsed();
    assert!(took.as_secs_f64() < 1.5, "{took:?}");
    assert_eq!(ready["tools"]["answers"], "1.2.3");
    assert!(ready["tools"].get("hangs").is_none() && ready["tools"].get("deaf").is_none());
    assert!(!mark.exists(), "the agent runs nothing in a shell");
    agent.leave();
    agent.finish();
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    let steps = [0.0, 0.05, 0.1]
        .map(|time| vec![json!({"step": "at", "time_s": time}), bare("true")])
        .concat();
    let output = TestScene::new()
        .call("true", &["true"])
        .actor("one", steps)
        .run();
    let intended: Vec<f64> = output
        .transfers()
        .iter()
        .map(|record| record.intended_s.expect("an open loop").get())
        .collect();
    assert_eq!(intended, [0.0, 0.05, 0.1]);
    assert!(
        output
            .transfers()
            .iter()
            .all(|record| record.start_s >= record.intended_s)
    );
}

#[test]
fn computing_uses_the_cpu_for_the_requested_time() {
    let steps = vec![trial(0, vec![json!({"step": "compute", "core_s": 0.1})])];
    let output = TestScene::new().actor("one", steps).run();
    let trial = output.trials()[0];
    assert!(trial.end_s.get() - trial.start_s.get() >= 0.1);
}

#[test]
fn a_dataset_that_cannot_be_created_fails_its_trial_and_the_next_one_runs() {
    let scene = TestScene::new()
        .call("true", &["true"])
        .dataset("huge", 1, 1 << 60)
        .dataset("small", 3, 1000);
    let prepare = |dataset: &str| json!({"step": "prepare", "dataset": dataset, "first": 0, "files": 1, "cache": "warm"});
    let signal = json!({"step": "signal", "counter": "done", "add": 1});
    let trials = vec![
        trial(0, vec![prepare("huge"), bare("true"), signal]),
        trial(1, vec![prepare("small"), bare("true")]),
    ];
    let output = scene.actor("one", trials).run();
    let outcomes: Vec<TrialOutcome> = output.trials().iter().map(|trial| trial.outcome).collect();
    assert_eq!(outcomes, [TrialOutcome::Failed, TrialOutcome::Ok]);
    assert_eq!(output.findings(), ["prepare-failed"]);
    let transfers: Vec<usize> = output
        .trials()
        .iter()
        .map(|trial| trial.transfers.len())
        .collect();
    assert_eq!(
        transfers,
        [0, 1],
        "without a storage there are no measurements"
    );
    assert!(
        output
            .records
            .iter()
            .any(|record| matches!(record, Record::Signal(signal) if &*signal.counter == "done"))
    );
    let cache = output.trials()[1].cache.clone().expect("asked for");
    assert_eq!(
        (cache.state.as_str(), cache.resident_ratio),
        ("warm", Some(1.0))
    );
}

#[test]
fn a_blocked_file_system_fails_the_trial_after_the_timeout_of_a_transfer() {
    let quick = json!({"timeout_s": 1.0});
    let scene = TestScene::new()
        .call_with("true", &["true"], quick)
        .dataset("set", 1, 1000);
    // A pipe that is opened for writing blocks without a reader, like a file of a server that has
    // disappeared.
    let directory = scene.disk().join("set");
    std::fs::create_dir_all(&directory).expect("a folder");
    nix::unistd::mkfifo(
        &directory.join(".000000.partial"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("a FIFO");
    let prepare =
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"});
    let trials = vec![
        trial(0, vec![prepare, bare("true")]),
        trial(1, vec![bare("true")]),
    ];
    let output = scene.actor("one", trials).run();
    let outcomes: Vec<TrialOutcome> = output.trials().iter().map(|trial| trial.outcome).collect();
    assert_eq!(outcomes, [TrialOutcome::Failed, TrialOutcome::Ok]);
    let finding = &output.trials()[0].findings[0];
    assert_eq!(finding.code, "prepare-failed");
    assert!(
        finding.evidence.contains("no progress for 1 s"),
        "{}",
        finding.evidence
    );
    let first = output.trials()[0];
    assert!(first.end_s.get() - first.start_s.get() >= 1.0);
}

#[test]
fn dropped_caches_are_measured_not_assumed() {
    let scene = TestScene::new()
        .call("true", &["true"])
        .dataset("set", 2, 2_000_000);
    let steps = vec![
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 2, "cache": "warm"}),
        json!({"step": "drop_caches", "dataset": "set", "first": 0, "files": 2}),
        bare("true"),
    ];
    let output = scene.actor("one", vec![trial(0, steps)]).run();
    let cache = output.trials()[0].cache.clone().expect("asked for");
    let cold = cache.resident_ratio.expect("the kernel tells") < 0.01;
    assert_eq!(cache.state == "cold", cold, "{cache:?}");
    assert_eq!(output.findings() == ["cache-not-dropped"], !cold);
}

#[test]
fn samples_hold_the_counters_that_were_requested() {
    let mut scene = TestScene::new().call("sleep", &["sleep", "0.3"]);
    scene.header["measure"] = json!({"interval_s": 0.02, "counters": ["cpu", "memory"]});
    let output = scene
        .actor("one", vec![trial(0, vec![bare("sleep")])])
        .run();
    let samples: Vec<_> = output
        .records
        .iter()
        .filter_map(|record| {
            if let Record::Sample(it) = record {
                Some(it)
            } else {
                None
            }
        })
        .collect();
    assert!(samples.len() >= 5, "{} in 0.3 s", samples.len());
    assert!(
        samples
            .windows(2)
            .all(|pair| pair[0].time_s < pair[1].time_s)
    );
    let names: Vec<&str> = samples[0]
        .counters
        .keys()
        .map(|name| name.split('.').next().unwrap_or(""))
        .collect();
    assert!(
        names.contains(&"cpu") && names.contains(&"memory") && !names.contains(&"nic"),
        "{names:?}"
    );
}

/// Starts an endless transfer with two children, and waits until all three run.
fn endless(scene: &TestScene) -> (AgentProcess, i32) {
    let agent = scene.start();
    let group = wait_for_number(&scene.scratch.path().join("group"));
    wait_until("three processes", || group_members(group).len() == 3);
    (agent, group)
}

fn endless_scene() -> TestScene {
    let scene = TestScene::new();
    let script = format!(
        "sleep 1000 & echo $$ > {}; sleep 1000 & wait",
        scene.scratch.path().join("group").display()
    );
    scene
        .call("endless", &["sh", "-c", &script])
        .actor("one", vec![bare("endless")])
}

fn signal(agent: &AgentProcess, name: &str) {
    let status = std::process::Command::new("kill")
        .args([name, &agent.child.id().to_string()])
        .status();
    assert!(status.expect("a shell utility").success());
}

fn assert_no_remains(agent: AgentProcess, group: i32) -> AgentOutput {
    let output = agent.finish();
    wait_until("the end of all children", || {
        group_members(group).is_empty()
    });
    output
}

#[test]
fn a_killed_agent_leaves_no_remains() {
    let scene = endless_scene();
    let (agent, group) = endless(&scene);
    signal(&agent, "-KILL");
    assert_eq!(assert_no_remains(agent, group).code, None);
}

#[test]
fn an_agent_leaves_no_remains_when_the_controller_disconnects() {
    let scene = endless_scene();
    let (mut agent, group) = endless(&scene);
    agent.leave();
    assert_eq!(assert_no_remains(agent, group).code, Some(1));
}

#[test]
fn an_agent_leaves_no_remains_when_the_heartbeats_of_the_controller_stop() {
    let mut scene = endless_scene();
    scene.silence_s = Some(2.0);
    let (mut agent, group) = endless(&scene);
    let started = Instant::now();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(600));
        agent.command(json!({"command": "heartbeat"}));
    }
    assert!(agent.child.try_wait().expect("our child").is_none());
    let output = assert_no_remains(agent, group);
    assert_eq!(output.code, Some(1));
    assert!(
        started.elapsed() > Duration::from_secs(5),
        "2 s after the last heartbeat"
    );
}

#[test]
fn a_silence_timeout_of_zero_is_rejected() {
    let mut scene = TestScene::new();
    scene.silence_s = Some(0.0);
    let output = scene.introduce().finish();
    assert_eq!(output.code, Some(2));
    let message = output.values.last().expect("a record")["message"].to_string();
    assert!(message.contains("`silence_s`"), "{message}");
}

#[test]
fn an_agent_leaves_no_remains_after_sigterm_or_sigint() {
    for (name, code) in [("-TERM", 143), ("-INT", 130)] {
        let scene = endless_scene();
        let (agent, group) = endless(&scene);
        signal(&agent, name);
        assert_eq!(assert_no_remains(agent, group).code, Some(code));
    }
}

#[test]
fn a_stopped_run_is_recorded_and_reports_done() {
    let scene = endless_scene();
    let (mut agent, group) = endless(&scene);
    agent.command(json!({"command": "stop"}));
    let output = assert_no_remains(agent, group);
    assert_eq!(
        (output.outcomes(), output.code),
        (vec![Outcome::Stopped], Some(0))
    );
    assert!(matches!(output.last(), Record::Done(done) if done.trials == 0));
}

#[test]
fn an_agent_with_the_stay_option_samples_until_it_is_stopped() {
    let mut scene = TestScene::new();
    scene.header["measure"] = json!({"interval_s": 0.01, "counters": ["cpu"]});
    scene.stay = true;
    let mut agent = scene.start();
    let idle_s = agent.next("idle")["time_s"].as_f64().expect("a time");
    let later = (0..5)
        .map(|_| agent.next("sample")["time_s"].as_f64().expect("a time"))
        .filter(|time_s| *time_s > idle_s);
    assert!(later.count() >= 4);
    agent.command(json!({"command": "stop"}));
    let output = agent.finish();
    assert!(matches!(output.last(), Record::Done(done) if done.trials == 0));
    assert_eq!(output.code, Some(0));
}

#[test]
fn a_stopped_trial_is_not_reported_as_done() {
    let mut scene = endless_scene();
    scene.actors =
        vec![json!({"actor": "one", "host": "me", "steps": [trial(0, vec![bare("endless")])]})];
    let (mut agent, group) = endless(&scene);
    agent.command(json!({"command": "stop"}));
    let output = assert_no_remains(agent, group);
    assert_eq!((output.trials().len(), output.transfers().len()), (0, 0));
}

#[test]
fn an_unknown_command_is_rejected_with_its_name() {
    let mut agent = AgentProcess::spawn();
    agent.line(r#"{"command": "dance"}"#);
    let output = agent.finish();
    assert_eq!(output.code, Some(2));
    let Record::Fatal(fatal) = output.last() else {
        panic!("{:?}", output.last())
    };
    assert!(fatal.message.contains("dance"), "{}", fatal.message);
}

#[test]
fn a_plan_with_an_undefined_name_is_rejected() {
    let output = TestScene::new()
        .actor("one", vec![transfer("nobody", "zero:", "null:", 0)])
        .run();
    let Record::Fatal(fatal) = output.last() else {
        panic!("{:?}", output.last())
    };
    assert!(fatal.message.contains("nobody"), "{}", fatal.message);
    assert_eq!(output.code, Some(2));
}
