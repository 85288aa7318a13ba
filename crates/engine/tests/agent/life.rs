//! The life of an agent: what it says of its host, how it follows its plan, and that nothing outlives it.

use crate::testkit::{
    Agent, Scene, Told, bare, group_members, transfer, trial, wait_for_number, wait_until,
};
use serde_json::json;
use venturi_plan::{Outcome, Record, ReleaseMethod, TrialOutcome};

#[test]
fn hello_tells_the_build_and_the_host_before_anything_is_asked() {
    let mut agent = Agent::spawn();
    agent.leave();
    let told = agent.finish();
    assert_eq!(told.code, Some(1), "the controller went away");
    let hello = told.hello();
    assert!(
        hello.engine.starts_with(env!("CARGO_PKG_VERSION")),
        "{}",
        hello.engine
    );
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("/proc");
    assert_eq!(hello.facts["hostname"], hostname.trim());
    assert!(hello.clock.unix_ns > 1_700_000_000_000_000_000);
}

#[test]
fn ready_tells_free_space_tools_and_places() {
    let told = Scene::new().call("cp", &["cp"]).run();
    let ready = told.ready();
    assert_eq!(
        ready.release,
        ReleaseMethod::ExecStop,
        "this host lets us trace our own children"
    );
    assert!(ready.free_bytes["disk"].get() > 0);
    assert!(
        !ready.free_bytes.contains_key("far"),
        "not a place of this host"
    );
    assert!(
        ready
            .memory_bytes
            .is_some_and(|bytes| bytes.get() > 1 << 20)
    );
    assert!(ready.tools["cp"].starts_with("cp ("), "{:?}", ready.tools);
    assert!(
        ready.places["disk"].contains_key("type"),
        "{:?}",
        ready.places
    );
}

#[test]
fn finished_trials_are_skipped() {
    let mut scene = Scene::new().call("true", &["true"]);
    scene.skip = vec!["t0000000", "t0000002"];
    let told = scene
        .actor(
            "one",
            (0..4)
                .map(|number| trial(number, vec![bare("true")]))
                .collect(),
        )
        .run();
    let done: Vec<u32> = told
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
    let scene = Scene::new().call("true", &["true"]).actor("one", steps);
    let mut agent = scene.start();
    agent.next("ready");
    agent.command(json!({"command": "counter", "counter": "bytes", "value": 7}));
    let told = agent.finish();
    assert_eq!(told.outcomes(), [Outcome::Ok]);
    assert!(told.values.iter().any(|value| value["record"] == "signal"
        && value["counter"] == "ours"
        && value["add"] == 2));
}

#[test]
fn a_counter_that_comes_before_the_beginning_is_kept() {
    let wait = |counter| json!({"step": "wait", "counter": counter, "until": 7});
    let scene = Scene::new()
        .call("true", &["true"])
        .actor("one", vec![wait("before"), wait("with"), bare("true")]);
    let mut agent = scene.introduce();
    let counter = |name, value| json!({"command": "counter", "counter": name, "value": value});
    agent.command(counter("before", 7));
    agent.command(counter("before", 3)); // counters never fall
    // In one write, so that the agent reads both before it begins.
    agent.line(&format!("{{\"command\": \"go\"}}\n{}", counter("with", 7)));
    assert_eq!(agent.finish().outcomes(), [Outcome::Ok]);
}

#[test]
fn a_counter_before_the_start_is_refused() {
    let mut agent = Agent::spawn();
    agent.command(json!({"command": "counter", "counter": "bytes", "value": 7}));
    let told = agent.finish();
    assert_eq!(told.code, Some(2));
    assert!(matches!(told.last(), Record::Fatal(fatal) if fatal.message.contains("`start`")));
}

#[test]
fn a_tool_that_does_not_tell_its_version_does_not_hold_up_the_start() {
    let scene = Scene::new();
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
    let begun = std::time::Instant::now();
    let mut agent = scene.introduce();
    let ready = agent.next("ready");
    let took = begun.elapsed();
    assert!(took.as_secs_f64() < 1.5, "{took:?}");
    assert_eq!(ready["tools"]["answers"], "1.2.3");
    assert!(ready["tools"].get("hangs").is_none() && ready["tools"].get("deaf").is_none());
    assert!(!mark.exists(), "a shell is not asked to carry anything out");
    agent.leave();
    agent.finish();
}

#[test]
fn an_open_loop_counts_from_the_intended_start() {
    let steps = [0.0, 0.05, 0.1]
        .map(|time| vec![json!({"step": "at", "time_s": time}), bare("true")])
        .concat();
    let told = Scene::new()
        .call("true", &["true"])
        .actor("one", steps)
        .run();
    let intended: Vec<f64> = told
        .transfers()
        .iter()
        .map(|record| record.intended_s.expect("an open loop").get())
        .collect();
    assert_eq!(intended, [0.0, 0.05, 0.1]);
    assert!(
        told.transfers()
            .iter()
            .all(|record| record.start_s >= record.intended_s)
    );
}

#[test]
fn computing_uses_the_processor_for_the_time_that_was_asked() {
    let steps = vec![trial(0, vec![json!({"step": "compute", "core_s": 0.1})])];
    let told = Scene::new().actor("one", steps).run();
    let trial = told.trials()[0];
    assert!(trial.end_s.get() - trial.start_s.get() >= 0.1);
}

#[test]
fn a_data_set_that_cannot_be_made_fails_its_trial_and_the_next_goes_on() {
    let scene = Scene::new()
        .call("true", &["true"])
        .dataset("huge", 1, 1 << 60)
        .dataset("small", 3, 1000);
    let prepare = |dataset: &str| json!({"step": "prepare", "dataset": dataset, "first": 0, "files": 1, "cache": "warm"});
    let signal = json!({"step": "signal", "counter": "done", "add": 1});
    let trials = vec![
        trial(0, vec![prepare("huge"), bare("true"), signal]),
        trial(1, vec![prepare("small"), bare("true")]),
    ];
    let told = scene.actor("one", trials).run();
    let outcomes: Vec<TrialOutcome> = told.trials().iter().map(|trial| trial.outcome).collect();
    assert_eq!(outcomes, [TrialOutcome::Failed, TrialOutcome::Ok]);
    assert_eq!(told.findings(), ["prepare-failed"]);
    let transfers: Vec<usize> = told
        .trials()
        .iter()
        .map(|trial| trial.transfers.len())
        .collect();
    assert_eq!(
        transfers,
        [0, 1],
        "nothing is measured on what is not there"
    );
    assert!(
        told.records
            .iter()
            .any(|record| matches!(record, Record::Signal(signal) if &*signal.counter == "done"))
    );
    let cache = told.trials()[1].cache.clone().expect("asked for");
    assert_eq!(
        (cache.state.as_str(), cache.resident_ratio),
        ("warm", Some(1.0))
    );
}

#[test]
fn a_file_system_that_never_answers_fails_the_trial_when_a_transfer_would_have_had_its_time() {
    let quick = json!({"timeout_s": 1.0});
    let scene = Scene::new()
        .call_with("true", &["true"], quick)
        .dataset("set", 1, 1000);
    // Opened for writing it blocks until somebody reads, as a file behind a server that is gone does.
    let folder = scene.disk().join("set");
    std::fs::create_dir_all(&folder).expect("a folder");
    nix::unistd::mkfifo(
        &folder.join(".000000.partial"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("a FIFO");
    let prepare =
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"});
    let trials = vec![
        trial(0, vec![prepare, bare("true")]),
        trial(1, vec![bare("true")]),
    ];
    let told = scene.actor("one", trials).run();
    let outcomes: Vec<TrialOutcome> = told.trials().iter().map(|trial| trial.outcome).collect();
    assert_eq!(outcomes, [TrialOutcome::Failed, TrialOutcome::Ok]);
    let finding = &told.trials()[0].findings[0];
    assert_eq!(finding.code, "prepare-failed");
    assert!(
        finding.evidence.contains("found it still for 1 s"),
        "{}",
        finding.evidence
    );
    let first = told.trials()[0];
    assert!(first.end_s.get() - first.start_s.get() >= 1.0);
}

#[test]
fn dropped_caches_are_measured_not_believed() {
    let scene = Scene::new()
        .call("true", &["true"])
        .dataset("set", 2, 2_000_000);
    let steps = vec![
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 2, "cache": "warm"}),
        json!({"step": "drop_caches", "dataset": "set", "first": 0, "files": 2}),
        bare("true"),
    ];
    let told = scene.actor("one", vec![trial(0, steps)]).run();
    let cache = told.trials()[0].cache.clone().expect("asked for");
    let cold = cache.resident_ratio.expect("the kernel tells") < 0.01;
    assert_eq!(cache.state == "cold", cold, "{cache:?}");
    assert_eq!(told.findings() == ["cache-not-dropped"], !cold);
}

#[test]
fn samples_hold_the_counters_that_were_asked_for() {
    let mut scene = Scene::new().call("sleep", &["sleep", "0.3"]);
    scene.header["measure"] = json!({"interval_s": 0.02, "counters": ["cpu", "memory"]});
    let told = scene
        .actor("one", vec![trial(0, vec![bare("sleep")])])
        .run();
    let samples: Vec<_> = told
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

/// Starts a transfer that would run for ever with two children, and waits until all three run.
fn endless(scene: &Scene) -> (Agent, i32) {
    let agent = scene.start();
    let group = wait_for_number(&scene.scratch.path().join("group"));
    wait_until("three processes", || group_members(group).len() == 3);
    (agent, group)
}

fn endless_scene() -> Scene {
    let scene = Scene::new();
    let script = format!(
        "sleep 1000 & echo $$ > {}; sleep 1000 & wait",
        scene.scratch.path().join("group").display()
    );
    scene
        .call("endless", &["sh", "-c", &script])
        .actor("one", vec![bare("endless")])
}

fn signal(agent: &Agent, name: &str) {
    let status = std::process::Command::new("kill")
        .args([name, &agent.child.id().to_string()])
        .status();
    assert!(status.expect("a shell utility").success());
}

fn ends_with_nothing_left(agent: Agent, group: i32) -> Told {
    let told = agent.finish();
    wait_until("the end of all children", || {
        group_members(group).is_empty()
    });
    told
}

#[test]
fn nothing_is_left_of_an_agent_that_was_killed() {
    let scene = endless_scene();
    let (agent, group) = endless(&scene);
    signal(&agent, "-KILL");
    assert_eq!(ends_with_nothing_left(agent, group).code, None);
}

#[test]
fn nothing_is_left_when_the_controller_goes_away() {
    let scene = endless_scene();
    let (mut agent, group) = endless(&scene);
    agent.leave();
    assert_eq!(ends_with_nothing_left(agent, group).code, Some(1));
}

#[test]
fn nothing_is_left_after_a_signal_to_end() {
    for (name, code) in [("-TERM", 143), ("-INT", 130)] {
        let scene = endless_scene();
        let (agent, group) = endless(&scene);
        signal(&agent, name);
        assert_eq!(ends_with_nothing_left(agent, group).code, Some(code));
    }
}

#[test]
fn a_stopped_run_is_written_down_and_says_done() {
    let scene = endless_scene();
    let (mut agent, group) = endless(&scene);
    agent.command(json!({"command": "stop"}));
    let told = ends_with_nothing_left(agent, group);
    assert_eq!(
        (told.outcomes(), told.code),
        (vec![Outcome::Stopped], Some(0))
    );
    assert!(matches!(told.last(), Record::Done(done) if done.trials == 0));
}

#[test]
fn an_agent_that_is_to_stay_samples_on_until_it_is_stopped() {
    let mut scene = Scene::new();
    scene.header["measure"] = json!({"interval_s": 0.01, "counters": ["cpu"]});
    scene.stay = true;
    let mut agent = scene.start();
    let idle_s = agent.next("idle")["time_s"].as_f64().expect("a time");
    let later = (0..5)
        .map(|_| agent.next("sample")["time_s"].as_f64().expect("a time"))
        .filter(|time_s| *time_s > idle_s);
    assert!(later.count() >= 4);
    agent.command(json!({"command": "stop"}));
    let told = agent.finish();
    assert!(matches!(told.last(), Record::Done(done) if done.trials == 0));
    assert_eq!(told.code, Some(0));
}

#[test]
fn a_trial_that_was_stopped_is_not_told_as_done() {
    let mut scene = endless_scene();
    scene.actors =
        vec![json!({"actor": "one", "host": "me", "steps": [trial(0, vec![bare("endless")])]})];
    let (mut agent, group) = endless(&scene);
    agent.command(json!({"command": "stop"}));
    let told = ends_with_nothing_left(agent, group);
    assert_eq!((told.trials().len(), told.transfers().len()), (0, 0));
}

#[test]
fn what_is_no_command_is_refused_in_words() {
    let mut agent = Agent::spawn();
    agent.line(r#"{"command": "dance"}"#);
    let told = agent.finish();
    assert_eq!(told.code, Some(2));
    let Record::Fatal(fatal) = told.last() else {
        panic!("{:?}", told.last())
    };
    assert!(fatal.message.contains("dance"), "{}", fatal.message);
}

#[test]
fn a_plan_that_names_what_it_does_not_have_is_refused() {
    let told = Scene::new()
        .actor("one", vec![transfer("nobody", "zero:", "null:", 0)])
        .run();
    let Record::Fatal(fatal) = told.last() else {
        panic!("{:?}", told.last())
    };
    assert!(fatal.message.contains("nobody"), "{}", fatal.message);
    assert_eq!(told.code, Some(2));
}
