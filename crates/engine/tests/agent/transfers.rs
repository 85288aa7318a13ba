//! Real tools, called by a real agent: outcomes of transfers, and their records.

use std::path::Path;

use crate::testkit::{
    ENGINE, TestScene, bare, group_members, install, transfer, trial, wait_for_number, write_script,
};
use serde_json::json;
use venturi_plan::{Bytes, Outcome, Record, Seconds, TrialOutcome};

fn seconds(time: Option<Seconds>) -> f64 {
    time.expect("measured").get()
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("/proc")) == 0
}

/// `cp`, verified by the received bytes.
fn copying() -> TestScene {
    TestScene::new()
        .call_with(
            "cp",
            &["cp", "{source}", "{destination}"],
            json!({"expect": "destination", "capture": false}),
        )
        .dataset("set", 2, 3_000_000)
}

fn prepare(files: u64) -> serde_json::Value {
    json!({"step": "prepare", "dataset": "set", "first": 0, "files": files, "cache": "as_is"})
}

#[test]
fn a_copy_is_verified_at_the_receiver_timed_and_removed() {
    let scene = copying().actor(
        "one",
        vec![trial(
            0,
            vec![
                prepare(1),
                transfer("cp", "disk:set/000000", "disk:out/x", 3_000_000),
            ],
        )],
    );
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(
        (record.outcome, record.exit_code, record.received_bytes),
        (Outcome::Ok, Some(0), Some(Bytes::new(3_000_000)))
    );
    let (start, end) = (seconds(record.start_s), seconds(record.end_s));
    assert!((end - start - seconds(record.duration_s)).abs() < 1e-6);
    assert!(output.trials()[0].start_s.get() <= start && end <= output.trials()[0].end_s.get());
    // Recent kernels allow only root to read the counters of an exited process.
    let counted = record.read_call_bytes.map(Bytes::get);
    assert!(
        counted.map_or(!is_root(), |bytes| bytes >= 3_000_000),
        "{counted:?}"
    );
    assert!(record.max_rss_bytes.expect("counted").get() > 0);
    assert_eq!(
        (&record.stdout, &record.stderr),
        (&None, &None),
        "kept only on request or if needed"
    );
    assert_eq!(output.trials()[0].outcome, TrialOutcome::Ok);
    assert!(!scene.disk().join("out/x").exists());
    assert!(scene.disk().join("set/000000").exists());
    assert_eq!(output.code, Some(0));
    assert!(matches!(output.last(), Record::Done(done) if done.trials == 1));
    assert_eq!(output.findings(), Vec::<String>::new());
}

#[test]
fn a_kept_destination_is_not_removed() {
    let mut step = transfer("cp", "disk:set/000000", "disk:out/x", 3_000_000);
    step["keep"] = json!(true);
    let scene = copying().actor("one", vec![trial(0, vec![prepare(1), step])]);
    assert_eq!(scene.run().outcomes(), [Outcome::Ok]);
    assert_eq!(
        scene.disk().join("out/x").metadata().expect("kept").len(),
        3_000_000
    );
}

#[test]
fn the_size_of_a_directory_is_the_sum_of_its_files() {
    let scene = TestScene::new()
        .call_with(
            "cp",
            &["cp", "-r", "{source}", "{destination}"],
            json!({"expect": "destination"}),
        )
        .call("mk", &["mkdir", "-p", "{destination}"])
        .dataset("set", 2, 1_000);
    let mut make = transfer("mk", "zero:", "disk:from/inner", 0);
    make["keep"] = json!(true);
    let copy = |slot: u32| {
        let mut step = transfer(
            "cp",
            &format!("disk:set/00000{slot}"),
            &format!("disk:from/inner/{slot}"),
            1_000,
        );
        step["keep"] = json!(true);
        step
    };
    let steps = vec![
        prepare(2),
        make,
        copy(0),
        copy(1),
        trial(0, vec![transfer("cp", "disk:from", "disk:to", 2_000)]),
    ];
    let scene = scene.actor("one", steps);
    let output = scene.run();
    let last = output.trials()[0].transfers[0].clone();
    assert_eq!(
        (last.outcome, last.received_bytes),
        (Outcome::Ok, Some(Bytes::new(2_000)))
    );
    assert!(!scene.disk().join("to").exists());
}

#[test]
fn a_transfer_that_succeeds_without_delivering_all_bytes_is_short() {
    let scene = TestScene::new()
        .call_with(
            "cut",
            &[
                "sh",
                "-c",
                "head -c 10 /dev/zero > \"$1\"",
                "sh",
                "{destination}",
            ],
            json!({"expect": "destination"}),
        )
        .actor(
            "one",
            vec![trial(0, vec![transfer("cut", "zero:", "disk:x", 1_000)])],
        );
    let output = scene.run();
    assert_eq!(
        (output.transfer().outcome, output.transfer().received_bytes),
        (Outcome::Short, Some(Bytes::new(10)))
    );
    assert_eq!(output.trials()[0].outcome, TrialOutcome::Failed);
    assert!(
        output
            .transfer()
            .error
            .as_ref()
            .is_some_and(|text| text.contains("1000") && text.contains("10"))
    );
}

#[test]
fn received_bytes_above_the_requested_bytes_are_a_finding() {
    let scene = TestScene::new()
        .call_with(
            "fill",
            &[
                "sh",
                "-c",
                "head -c 20 /dev/zero > \"$1\"",
                "sh",
                "{destination}",
            ],
            json!({"expect": "destination"}),
        )
        .actor(
            "one",
            vec![trial(0, vec![transfer("fill", "zero:", "disk:x", 10)])],
        );
    let output = scene.run();
    assert_eq!(
        (output.transfer().outcome, output.findings()),
        (Outcome::Ok, vec!["receiver-has-more".to_owned()])
    );
}

#[test]
fn a_shell_of_a_call_finds_the_engine_under_any_name_of_its_copy() {
    let scene = TestScene::new().shell("version", "exec venturi-engine version");
    let copy = scene.scratch.path().join("engine-0123456789abcdef");
    install(Path::new(ENGINE), &copy, "755");
    let scene = scene.actor("one", vec![trial(0, vec![bare("version")])]);
    let output = scene.start_by(&copy).finish();
    let record = output.transfer();
    assert_eq!(record.outcome, Outcome::Ok, "{record:?}");
    let printed = record.stdout.as_deref().expect("captured");
    assert!(printed.contains(env!("CARGO_PKG_VERSION")), "{printed}");
}

#[test]
fn each_kind_of_failure_has_its_outcome_and_the_run_continues() {
    let scene = TestScene::new()
        .call_with(
            "fails",
            &["sh", "-c", "echo text; echo the disk is full >&2; exit 3"],
            json!({"capture": false}),
        )
        .shell("killed", "kill -9 $$")
        .call("missing", &["venturi-no-such-tool", "x"])
        .call("fine", &["true"]);
    let trials = ["fails", "killed", "missing", "fine"]
        .iter()
        .zip(0..)
        .map(|(call, number)| trial(number, vec![bare(call)]));
    let output = scene.actor("one", trials.collect()).run();
    assert_eq!(
        output.outcomes(),
        [
            Outcome::Failed,
            Outcome::Killed,
            Outcome::Missing,
            Outcome::Ok
        ]
    );
    let [fails, killed, missing, _] = output.transfers()[..] else {
        panic!("four")
    };
    assert_eq!(
        (fails.exit_code, fails.stdout.as_deref()),
        (Some(3), Some("text\n"))
    );
    assert_eq!(
        fails.stderr.as_deref(),
        Some("the disk is full\n"),
        "the output of a failed transfer is kept"
    );
    assert_eq!(
        fails.error.as_deref(),
        Some("exit code 3: the disk is full")
    );
    assert_eq!((killed.exit_code, killed.signal), (None, Some(9)));
    let error = missing.error.as_deref().expect("a reason");
    assert!(
        error.contains("venturi-no-such-tool") && error.contains("PATH=/"),
        "{error}"
    );
    assert_eq!(
        (missing.start_s, missing.user_s),
        (None, None),
        "no measurement without a run"
    );
    assert!(
        output
            .ready()
            .missing
            .get("missing")
            .is_some_and(|tools| tools == &["venturi-no-such-tool"])
    );
    assert!(matches!(output.last(), Record::Done(done) if done.trials == 4));
}

#[test]
fn a_missing_tool_required_by_a_shell_call_is_reported_as_missing() {
    let script = ["sh", "-c", "exec venturi-no-such-tool"];
    let output = TestScene::new()
        .call_with(
            "called",
            &script,
            json!({"requires": ["sh", "venturi-no-such-tool"]}),
        )
        .actor("one", vec![trial(0, vec![bare("called")])])
        .run();
    assert_eq!(output.outcomes(), [Outcome::Missing]);
    let error = output.transfer().error.as_deref().expect("a reason");
    assert!(error.contains("`venturi-no-such-tool`"), "{error}");
    assert_eq!(
        output.transfer().start_s,
        None,
        "no measurement without a run"
    );
}

#[test]
fn a_tool_without_its_interpreter_is_reported_as_missing() {
    let scene = TestScene::new();
    let script = scene.scratch.path().join("tool");
    write_script(&script, "#!/no/such/interpreter\n");
    let path = script.display().to_string();
    let output = scene
        .call("tool", &[&path])
        .actor("one", vec![trial(0, vec![bare("tool")])])
        .run();
    assert_eq!(output.outcomes(), [Outcome::Missing]);
    assert!(
        output
            .transfer()
            .error
            .as_ref()
            .is_some_and(|text| text.contains("interpreter"))
    );
}

#[test]
fn search_directories_are_searched_for_tools_first() {
    let scene = TestScene::new()
        .tool("venturi-test-tool", "echo 1.2.3-mine")
        .call("mine", &["venturi-test-tool"]);
    let output = scene.actor("one", vec![trial(0, vec![bare("mine")])]).run();
    assert_eq!(output.transfer().stdout.as_deref(), Some("1.2.3-mine\n"));
    assert_eq!(
        output.ready().tools["venturi-test-tool"],
        "1.2.3-mine",
        "the agent ran it for its version"
    );
}

#[test]
fn a_transfer_that_exceeds_its_timeout_is_ended_by_sigterm() {
    let scene = TestScene::new()
        .call_with("slow", &["sleep", "1000"], json!({"timeout_s": 0.1}))
        .actor("one", vec![trial(0, vec![bare("slow")])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(
        (record.outcome, record.signal),
        (Outcome::Timeout, Some(15))
    );
    assert!(
        (0.1..1.9).contains(&seconds(record.duration_s)),
        "by SIGTERM already: {record:?}"
    );
}

#[test]
fn a_transfer_that_ignores_sigterm_is_killed_with_all_its_children() {
    let scene = TestScene::new();
    let script = format!(
        "trap '' TERM; echo $$ > {}; sleep 1000 & sleep 1000; wait",
        scene.scratch.path().join("group").display()
    );
    let scene = scene
        .call_with("deaf", &["sh", "-c", &script], json!({"timeout_s": 0.1}))
        .actor("one", vec![trial(0, vec![bare("deaf")])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!((record.outcome, record.signal), (Outcome::Timeout, Some(9)));
    assert!(
        (2.1..4.0).contains(&seconds(record.duration_s)),
        "2 s after SIGTERM: {record:?}"
    );
    assert_eq!(
        group_members(wait_for_number(&scene.scratch.path().join("group"))),
        Vec::<i32>::new()
    );
}

#[test]
fn children_left_behind_are_reported_and_ended_after_the_trial() {
    let scene = TestScene::new();
    let script = format!(
        "sleep 1000 & echo $$ > {}",
        scene.scratch.path().join("group").display()
    );
    let scene = scene
        .call("forks", &["sh", "-c", &script])
        .actor("one", vec![trial(0, vec![bare("forks")])]);
    let output = scene.run();
    assert_eq!(
        (output.outcomes(), output.findings()),
        (vec![Outcome::Ok], vec!["orphan-processes".to_owned()])
    );
    assert_eq!(
        group_members(wait_for_number(&scene.scratch.path().join("group"))),
        Vec::<i32>::new()
    );
}

#[test]
fn the_agent_cleans_up_processes_of_a_tool_regardless_of_its_own_parent() {
    // This process adopts orphans, which then stay forever. SAFETY: sets an attribute of this
    // process, by numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let trials = |call: &str| vec![trial(0, vec![bare(call)])];
    let scene = TestScene::new()
        .shell("forks", "sleep 1000 & sleep 1000 & exit 0")
        .shell("has forked", "true & sleep 0.2; exec true")
        .call_with(
            "hangs",
            &["sh", "-c", "sleep 1000 & sleep 1000; true"],
            json!({"timeout_s": 0.1}),
        )
        .actor("one", trials("forks"))
        .actor("two", trials("hangs"))
        .actor("three", trials("has forked"));
    let output = scene.run();
    let Record::Done(done) = output.last() else {
        panic!("{:?}", output.last())
    };
    let end = output
        .trials()
        .iter()
        .map(|trial| trial.end_s.get())
        .fold(0.0, f64::max);
    let waited = done.time_s.get() - end;
    assert!(waited < 0.5, "{waited} s for what was killed to vanish");
    assert_eq!(
        output.findings(),
        ["orphan-processes"],
        "no ended child process remains: {:#?}",
        output.values
    );
}

#[test]
fn a_process_that_left_its_group_is_adopted_and_no_zombie_remains() {
    let scene = TestScene::new();
    let seen = scene.scratch.path().join("seen");
    // The agent is the parent of the tool; its children are counted by their state.
    let look = format!(
        "for n in $(cat /proc/$PPID/task/*/children); do cat /proc/$n/stat; done > {}",
        seen.display()
    );
    let scene = scene
        .shell("leaves", "setsid sleep 0.01 & exit 0")
        .shell("waits", "sleep 0.2")
        .call("look", &["sh", "-c", &look])
        .actor(
            "one",
            vec![
                trial(0, vec![bare("leaves"), bare("waits")]),
                trial(1, vec![bare("look")]),
            ],
        );
    assert_eq!(scene.run().outcomes(), [Outcome::Ok; 3]);
    let seen = std::fs::read_to_string(seen).expect("written by the tool");
    assert!(seen.contains("(sh) "), "the tool itself at least: {seen}");
    assert!(!seen.contains(") Z "), "{seen}");
}

#[test]
fn a_privileged_program_is_released_by_pipe_and_reported() {
    let scene = TestScene::new();
    let tool = scene.scratch.path().join("true");
    install(Path::new("/bin/true"), &tool, "4755");
    let tool = tool.display().to_string();
    let output = scene
        .call("mighty", &[&tool])
        .actor("one", vec![trial(0, vec![bare("mighty")])])
        .run();
    assert_eq!(
        (output.outcomes(), output.findings()),
        (vec![Outcome::Ok], vec!["released-by-pipe".to_owned()])
    );
}

#[test]
fn the_measured_time_is_the_time_of_the_process() {
    let output = TestScene::new()
        .call("sleep", &["sleep", "0.25"])
        .actor("one", vec![trial(0, vec![bare("sleep")])])
        .run();
    let duration = seconds(output.transfer().duration_s);
    // A busy host can wake a sleeping process late, but never early.
    assert!((0.25..0.75).contains(&duration), "{duration}");
    assert!(seconds(output.transfer().user_s) + seconds(output.transfer().system_s) < 0.1);
}

#[test]
fn children_of_a_parallel_step_are_released_together() {
    let children: Vec<_> = (0..45).map(|_| vec![bare("sleep")]).collect();
    let scene = TestScene::new().call("sleep", &["sleep", "0.2"]).actor(
        "one",
        vec![trial(
            0,
            vec![json!({"step": "parallel", "children": children})],
        )],
    );
    let output = scene.run();
    let starts: Vec<f64> = output
        .transfers()
        .iter()
        .map(|record| seconds(record.start_s))
        .collect();
    let ends = output
        .transfers()
        .iter()
        .map(|record| seconds(record.end_s))
        .fold(f64::MAX, f64::min);
    assert_eq!(starts.len(), 45);
    // At any load of the host, all have started before the first ends; only a barrier can guarantee
    // this.
    assert!(starts.iter().all(|start| *start < ends));
}

#[test]
fn the_next_trial_starts_when_the_last_one_is_cleared_away() {
    let scene = TestScene::new()
        .call_with(
            "make",
            &["sh", "-c", "echo made > \"$1\"", "sh", "{destination}"],
            json!({"expect": "destination"}),
        )
        .shell("look", "test ! -e \"$(dirname \"$2\")/first\"");
    let trials = (0..20).flat_map(|n| {
        let first = trial(2 * n, vec![transfer("make", "zero:", "disk:first", 5)]);
        [
            first,
            trial(2 * n + 1, vec![transfer("look", "zero:", "disk:second", 0)]),
        ]
    });
    let output = scene.actor("one", trials.collect()).run();
    assert_eq!(output.outcomes(), [Outcome::Ok; 40]);
}

#[test]
fn transfers_outside_trials_may_reuse_one_destination() {
    let scene = TestScene::new()
        .call_with("make", &["sh", "-c", "echo made > \"$1\"", "sh", "{destination}"], json!({"expect": "destination"}))
        .actor("one", vec![json!({"step": "repeat", "count": 30, "steps": [transfer("make", "zero:", "disk:x", 5)]})]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Ok; 30]);
    assert!(!scene.disk().join("x").exists());
}

#[test]
fn a_full_disk_fails_the_transfer_with_the_message_of_the_tool() {
    let scene = TestScene::new()
        .call(
            "full",
            &["dd", "if=/dev/zero", "of=/dev/full", "bs=1000", "count=1"],
        )
        .actor("one", vec![trial(0, vec![bare("full")])]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Failed]);
    assert!(
        output
            .transfer()
            .stderr
            .as_ref()
            .is_some_and(|text| text.contains("No space left on device"))
    );
}
