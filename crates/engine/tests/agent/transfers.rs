//! Real tools, called by a real agent: what becomes of a transfer, and what is written down of it.

use std::path::Path;

use crate::testkit::{
    Scene, bare, group_members, install, transfer, trial, wait_for_number, write_script,
};
use serde_json::json;
use venturi_plan::{Bytes, Outcome, Record, Seconds, TrialOutcome};

fn seconds(time: Option<Seconds>) -> f64 {
    time.expect("measured").get()
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("/proc")) == 0
}

/// `cp`, proved by what the receiver holds.
fn copying() -> Scene {
    Scene::new()
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
fn a_copy_is_proved_by_the_receiver_timed_and_removed() {
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
    let told = scene.run();
    let record = told.transfer();
    assert_eq!(
        (record.outcome, record.exit_code, record.received_bytes),
        (Outcome::Ok, Some(0), Some(Bytes::new(3_000_000)))
    );
    let (start, end) = (seconds(record.start_s), seconds(record.end_s));
    assert!((end - start - seconds(record.duration_s)).abs() < 1e-6);
    assert!(told.trials()[0].start_s.get() <= start && end <= told.trials()[0].end_s.get());
    // Recent kernels let only root read the account of a process that has ended.
    let counted = record.read_call_bytes.map(Bytes::get);
    assert!(
        counted.map_or(!is_root(), |bytes| bytes >= 3_000_000),
        "{counted:?}"
    );
    assert!(record.max_rss_bytes.expect("counted").get() > 0);
    assert_eq!(
        (&record.stdout, &record.stderr),
        (&None, &None),
        "not kept unless asked for or needed"
    );
    assert_eq!(told.trials()[0].outcome, TrialOutcome::Ok);
    assert!(!scene.disk().join("out/x").exists());
    assert!(scene.disk().join("set/000000").exists());
    assert_eq!(told.code, Some(0));
    assert!(matches!(told.last(), Record::Done(done) if done.trials == 1));
    assert_eq!(told.findings(), Vec::<String>::new());
}

#[test]
fn a_kept_destination_stays() {
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
fn a_directory_counts_as_the_sum_of_its_files() {
    let scene = Scene::new()
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
    let told = scene.run();
    let last = told.trials()[0].transfers[0].clone();
    assert_eq!(
        (last.outcome, last.received_bytes),
        (Outcome::Ok, Some(Bytes::new(2_000)))
    );
    assert!(!scene.disk().join("to").exists());
}

#[test]
fn a_transfer_that_says_ok_but_does_not_deliver_is_short() {
    let scene = Scene::new()
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
    let told = scene.run();
    assert_eq!(
        (told.transfer().outcome, told.transfer().received_bytes),
        (Outcome::Short, Some(Bytes::new(10)))
    );
    assert_eq!(told.trials()[0].outcome, TrialOutcome::Failed);
    assert!(
        told.transfer()
            .error
            .as_ref()
            .is_some_and(|text| text.contains("1000") && text.contains("10"))
    );
}

#[test]
fn more_than_was_asked_for_is_a_doubt() {
    let scene = Scene::new()
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
    let told = scene.run();
    assert_eq!(
        (told.transfer().outcome, told.findings()),
        (Outcome::Ok, vec!["receiver-holds-more".to_owned()])
    );
}

#[test]
fn each_way_of_failing_has_its_name_and_the_campaign_goes_on() {
    let scene = Scene::new()
        .call_with(
            "fails",
            &["sh", "-c", "echo talk; echo the disk is full >&2; exit 3"],
            json!({"capture": false}),
        )
        .shell("killed", "kill -9 $$")
        .call("missing", &["venturi-no-such-tool", "x"])
        .call("fine", &["true"]);
    let trials = ["fails", "killed", "missing", "fine"]
        .iter()
        .zip(0..)
        .map(|(call, number)| trial(number, vec![bare(call)]));
    let told = scene.actor("one", trials.collect()).run();
    assert_eq!(
        told.outcomes(),
        [
            Outcome::Failed,
            Outcome::Killed,
            Outcome::Missing,
            Outcome::Ok
        ]
    );
    let [fails, killed, missing, _] = told.transfers()[..] else {
        panic!("four")
    };
    assert_eq!(
        (fails.exit_code, fails.stdout.as_deref()),
        (Some(3), Some("talk\n"))
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
        "what never ran was not measured"
    );
    assert!(
        told.ready()
            .missing
            .get("missing")
            .is_some_and(|tools| tools == &["venturi-no-such-tool"])
    );
    assert!(matches!(told.last(), Record::Done(done) if done.trials == 4));
}

#[test]
fn a_tool_that_a_shell_is_to_call_is_missing_too() {
    let script = ["sh", "-c", "exec venturi-no-such-tool"];
    let told = Scene::new()
        .call_with(
            "called",
            &script,
            json!({"requires": ["sh", "venturi-no-such-tool"]}),
        )
        .actor("one", vec![trial(0, vec![bare("called")])])
        .run();
    assert_eq!(told.outcomes(), [Outcome::Missing]);
    let error = told.transfer().error.as_deref().expect("a reason");
    assert!(error.contains("`venturi-no-such-tool`"), "{error}");
    assert_eq!(
        told.transfer().start_s,
        None,
        "what never ran was not measured"
    );
}

#[test]
fn a_tool_without_its_interpreter_is_missing_too() {
    let scene = Scene::new();
    let script = scene.scratch.path().join("tool");
    write_script(&script, "#!/no/such/interpreter\n");
    let path = script.display().to_string();
    let told = scene
        .call("tool", &[&path])
        .actor("one", vec![trial(0, vec![bare("tool")])])
        .run();
    assert_eq!(told.outcomes(), [Outcome::Missing]);
    assert!(
        told.transfer()
            .error
            .as_ref()
            .is_some_and(|text| text.contains("interpreter"))
    );
}

#[test]
fn tools_are_looked_for_in_the_search_folders_first() {
    let scene = Scene::new()
        .tool("venturi-test-tool", "echo 1.2.3-mine")
        .call("mine", &["venturi-test-tool"]);
    let told = scene.actor("one", vec![trial(0, vec![bare("mine")])]).run();
    assert_eq!(told.transfer().stdout.as_deref(), Some("1.2.3-mine\n"));
    assert_eq!(
        told.ready().tools["venturi-test-tool"],
        "1.2.3-mine",
        "its version was asked for"
    );
}

#[test]
fn a_transfer_that_does_not_end_in_time_is_ended_politely() {
    let scene = Scene::new()
        .call_with("slow", &["sleep", "1000"], json!({"timeout_s": 0.1}))
        .actor("one", vec![trial(0, vec![bare("slow")])]);
    let told = scene.run();
    let record = told.transfer();
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
fn a_transfer_that_does_not_listen_is_ended_for_good_with_all_its_children() {
    let scene = Scene::new();
    let script = format!(
        "trap '' TERM; echo $$ > {}; sleep 1000 & sleep 1000; wait",
        scene.scratch.path().join("group").display()
    );
    let scene = scene
        .call_with("deaf", &["sh", "-c", &script], json!({"timeout_s": 0.1}))
        .actor("one", vec![trial(0, vec![bare("deaf")])]);
    let told = scene.run();
    let record = told.transfer();
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
fn children_left_behind_are_told_and_ended_after_the_trial() {
    let scene = Scene::new();
    let script = format!(
        "sleep 1000 & echo $$ > {}",
        scene.scratch.path().join("group").display()
    );
    let scene = scene
        .call("forks", &["sh", "-c", &script])
        .actor("one", vec![trial(0, vec![bare("forks")])]);
    let told = scene.run();
    assert_eq!(
        (told.outcomes(), told.findings()),
        (vec![Outcome::Ok], vec!["children-left-behind".to_owned()])
    );
    assert_eq!(
        group_members(wait_for_number(&scene.scratch.path().join("group"))),
        Vec::<i32>::new()
    );
}

#[test]
fn the_agent_itself_sees_to_what_a_tool_leaves_behind_whatever_its_parent_does() {
    // What becomes of orphans that nobody else adopts is up to us: they stay for ever.
    // SAFETY: sets an attribute of this process, by numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let trials = |call: &str| vec![trial(0, vec![bare(call)])];
    let scene = Scene::new()
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
    let told = scene.run();
    let Record::Done(done) = told.last() else {
        panic!("{:?}", told.last())
    };
    let end = told
        .trials()
        .iter()
        .map(|trial| trial.end_s.get())
        .fold(0.0, f64::max);
    let waited = done.time_s.get() - end;
    assert!(waited < 0.5, "{waited} s for what was killed to vanish");
    assert_eq!(
        told.findings(),
        ["children-left-behind"],
        "a child that has ended is not left behind: {:#?}",
        told.values
    );
}

#[test]
fn what_left_its_group_is_adopted_and_no_zombie_stays() {
    let scene = Scene::new();
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
fn a_program_with_privileges_is_released_by_pipe_and_that_is_told() {
    let scene = Scene::new();
    let tool = scene.scratch.path().join("true");
    install(Path::new("/bin/true"), &tool, "4755");
    let tool = tool.display().to_string();
    let told = scene
        .call("mighty", &[&tool])
        .actor("one", vec![trial(0, vec![bare("mighty")])])
        .run();
    assert_eq!(
        (told.outcomes(), told.findings()),
        (vec![Outcome::Ok], vec!["released-by-pipe".to_owned()])
    );
}

#[test]
fn the_measured_time_is_the_time_of_the_process() {
    let told = Scene::new()
        .call("sleep", &["sleep", "0.25"])
        .actor("one", vec![trial(0, vec![bare("sleep")])])
        .run();
    let duration = seconds(told.transfer().duration_s);
    // A busy host may wake a sleeper late, never early.
    assert!((0.25..0.75).contains(&duration), "{duration}");
    assert!(seconds(told.transfer().user_s) + seconds(told.transfer().system_s) < 0.1);
}

#[test]
fn children_of_a_parallel_step_are_released_together() {
    let children: Vec<_> = (0..45).map(|_| vec![bare("sleep")]).collect();
    let scene = Scene::new().call("sleep", &["sleep", "0.2"]).actor(
        "one",
        vec![trial(
            0,
            vec![json!({"step": "parallel", "children": children})],
        )],
    );
    let told = scene.run();
    let starts: Vec<f64> = told
        .transfers()
        .iter()
        .map(|record| seconds(record.start_s))
        .collect();
    let ends = told
        .transfers()
        .iter()
        .map(|record| seconds(record.end_s))
        .fold(f64::MAX, f64::min);
    assert_eq!(starts.len(), 45);
    // Whatever the load of the host: all had been started before the first ended, which only a barrier can promise.
    assert!(starts.iter().all(|start| *start < ends));
}

#[test]
fn the_next_trial_begins_when_the_last_one_is_cleared_away() {
    let scene = Scene::new()
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
    let told = scene.actor("one", trials.collect()).run();
    assert_eq!(told.outcomes(), [Outcome::Ok; 40]);
}

#[test]
fn transfers_outside_trials_may_use_one_destination_again_and_again() {
    let scene = Scene::new()
        .call_with("make", &["sh", "-c", "echo made > \"$1\"", "sh", "{destination}"], json!({"expect": "destination"}))
        .actor("one", vec![json!({"step": "repeat", "count": 30, "steps": [transfer("make", "zero:", "disk:x", 5)]})]);
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Ok; 30]);
    assert!(!scene.disk().join("x").exists());
}

#[test]
fn a_full_disk_is_a_failed_transfer_with_the_words_of_the_tool() {
    let scene = Scene::new()
        .call(
            "full",
            &["dd", "if=/dev/zero", "of=/dev/full", "bs=1000", "count=1"],
        )
        .actor("one", vec![trial(0, vec![bare("full")])]);
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Failed]);
    assert!(
        told.transfer()
            .stderr
            .as_ref()
            .is_some_and(|text| text.contains("No space left on device"))
    );
}
