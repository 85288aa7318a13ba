//! Storages of another host: an agent requests operations, and the real shell of that host runs them.

use serde_json::{Value, json};
use venturi_plan::{Bytes, Outcome};

use crate::testkit::{AgentOutput, ShellProcess, TestScene, transfer, transfer_many, trial, with};

/// A call that copies like a server, below `file://localhost`, and is verified by its destination.
fn storing(script: &str) -> TestScene {
    let script = format!(
        "from=\"${{{{1#file://localhost}}}}\" to=\"${{{{2#file://localhost}}}}\"; {script}"
    );
    let argv = ["sh", "-c", &script, "sh", "{source}", "{destination}"];
    TestScene::new()
        .requesting()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("store", &argv, json!({"expect": "destination"}))
        .dataset("set", 3, 50_000)
}

fn prepare(files: u64) -> Value {
    json!({"step": "prepare", "dataset": "set", "first": 0, "files": files, "cache": "as_is"})
}

fn store(destination: &str) -> Value {
    with(
        transfer("store", "disk:set/000000", destination, 50_000),
        json!({"destination_via": "files/file"}),
    )
}

/// The operations that the agent has requested, in order.
fn operations(output: &AgentOutput) -> Vec<&str> {
    let requests = output.values.iter().filter(|it| it["record"] == "request");
    requests
        .map(|it| it["operation"]["operation"].as_str().expect("a tag"))
        .collect()
}

#[test]
fn a_dataset_of_another_host_is_prepared_there_before_the_download() {
    let mut scene = storing("cp \"$from\" \"$to\"");
    scene.header["datasets"]["set"]["storage"] = json!("far");
    let steps = vec![
        prepare(2),
        json!({"step": "drop_caches", "dataset": "set", "first": 0, "files": 2}),
        with(
            transfer("store", "far:set/000001", "disk:out/x", 50_000),
            json!({"source_via": "files/file"}),
        ),
    ];
    let scene = scene.actor("one", vec![trial(0, steps)]);
    let output = scene.start().relay(&mut ShellProcess::start(&scene));
    assert_eq!(
        (output.transfer().outcome, output.transfer().received_bytes),
        (Outcome::Ok, Some(Bytes::new(50_000))),
        "{:#?}",
        output.values
    );
    assert_eq!(operations(&output), ["prepare", "drop_caches"]);
    assert!(output.trials()[0].cache.is_some());
    let event = output.values.iter().find(|it| it["kind"] == "dataset");
    assert_eq!(event.expect("files were created")["detail"]["made"], 2);
    assert!(scene.far().join("set/000001").exists() && !scene.far().join("set/000002").exists());
    assert!(!scene.disk().join("out/x").exists());
    assert!(
        !output.ready().free_bytes.contains_key("far"),
        "its own agent reports it"
    );
}

#[test]
fn a_destination_on_another_host_is_cleared_checked_and_removed_there() {
    // Without `clear` this would fail because of a missing directory or an existing file.
    let scene = storing("test ! -e \"$to\" && cp \"$from\" \"$to\"");
    let left = scene.far().join("in/deep/x");
    std::fs::create_dir_all(left.parent().expect("a directory")).expect("created");
    std::fs::write(&left, "of a run that was killed").expect("written");
    let kept = with(store("far:kept/y"), json!({"keep": true}));
    let scene = scene.actor(
        "one",
        vec![trial(
            0,
            vec![prepare(1), store("far:in/deep/x"), kept, store("far:z/z")],
        )],
    );
    let output = scene.start().relay(&mut ShellProcess::start(&scene));
    assert_eq!(output.outcomes(), [Outcome::Ok; 3], "{:#?}", output.values);
    assert_eq!(output.findings(), Vec::<String>::new());
    let received: Vec<_> = output
        .transfers()
        .iter()
        .map(|it| it.received_bytes)
        .collect();
    assert_eq!(received, [Some(Bytes::new(50_000)); 3]);
    // One check and one removal for all transfers of the trial.
    assert_eq!(
        operations(&output),
        ["clear", "clear", "clear", "check", "remove"]
    );
    assert!(!left.exists() && !scene.far().join("z/z").exists());
    let kept = scene.far().join("kept/y").metadata().expect("kept");
    assert_eq!(kept.len(), 50_000);
}

#[test]
fn in_a_known_directory_only_leftover_files_need_a_clear_request() {
    let scene = storing("cp \"$from\" \"$to\"");
    std::fs::create_dir_all(scene.far().join("out")).expect("created");
    std::fs::write(scene.far().join("out/c"), "of a run that was killed").expect("written");
    let repeat = json!({"step": "repeat", "count": 2, "steps": [store("far:out/a")]});
    let steps = vec![prepare(1), repeat, store("far:out/b"), store("far:out/c")];
    let again = vec![store("far:out/a"), store("far:out/d")];
    let scene = scene.actor("one", vec![trial(0, steps), trial(1, again)]);
    let output = scene.start().relay(&mut ShellProcess::start(&scene));
    assert_eq!(output.outcomes(), [Outcome::Ok; 6], "{:#?}", output.values);
    assert_eq!(output.findings(), Vec::<String>::new());
    let requests = output.values.iter().filter(|it| it["record"] == "request");
    let cleared: Vec<_> = requests
        .filter_map(|it| it["operation"]["path"].as_str()?.rsplit('/').next())
        .collect();
    assert_eq!(cleared, ["a", "c"]);
    let left = std::fs::read_dir(scene.far().join("out")).expect("it exists");
    assert_eq!(left.count(), 0);
}

#[test]
fn missing_bytes_on_another_host_are_waited_for_and_then_reported_as_short() {
    let late = "touch \"$to.left\"; sleep 0.2; cp \"$from\" \"$to\"";
    let scene = storing(&format!(
        "case \"$to\" in *late*) from=\"$from\" to=\"$to\" setsid sh -c '{late}' > /dev/null 2>&1 &
        until test -e \"$to.left\"; do sleep 0.01; done;; *) head -c 10 \"$from\" > \"$to\";; esac"
    ));
    let scene = scene.actor(
        "one",
        vec![
            trial(0, vec![prepare(1), store("far:late")]),
            trial(1, vec![store("far:cut")]),
        ],
    );
    let output = scene.start().relay(&mut ShellProcess::start(&scene));
    assert_eq!(
        output.outcomes(),
        [Outcome::Ok, Outcome::Short],
        "{:#?}",
        output.values
    );
    assert_eq!(output.findings(), ["receiver-late"]);
    assert_eq!(output.transfers()[1].received_bytes, Some(Bytes::new(10)));
    assert!(!scene.far().join("late").exists() && !scene.far().join("cut").exists());
}

#[test]
fn each_of_many_files_is_checked_on_the_other_host() {
    let scene = storing("cp \"$from\"0* \"$to\" && rm \"$to/000001\"");
    let many = with(
        transfer_many("store", "disk:set/000000", "far:out", (3, 150_000)),
        json!({"destination_via": "files/file"}),
    );
    let scene = scene.actor("one", vec![trial(0, vec![prepare(3), many])]);
    let output = scene.start().relay(&mut ShellProcess::start(&scene));
    assert_eq!(
        output.transfer().outcome,
        Outcome::Short,
        "{:#?}",
        output.values
    );
    let error = output.transfer().error.as_deref().expect("a reason");
    assert!(error.contains("`000001`, is not there"), "{error}");
    assert_eq!(operations(&output), ["clear", "check", "remove"]);
    assert!(!scene.far().join("out").exists());
}

#[test]
fn an_operation_that_fails_fails_its_transfer_and_names_the_host() {
    let scene = storing("true");
    std::fs::create_dir_all(scene.far()).expect("created");
    std::fs::write(scene.far().join("file"), "in the way").expect("written");
    let scene = scene.actor("one", vec![trial(0, vec![prepare(1), store("far:file/x")])]);
    let output = scene.start().relay(&mut ShellProcess::start(&scene));
    let record = output.transfer();
    assert_eq!((record.outcome, record.start_s), (Outcome::Failed, None));
    let error = record.error.as_deref().expect("a reason");
    assert!(
        error.contains("host `other`") && error.contains("file/x"),
        "{error}"
    );
}

#[test]
fn the_run_continues_if_the_controller_has_lost_the_shell() {
    let mut scene = storing("cp \"$from\" \"$to\"");
    scene.header["datasets"]["far-set"] =
        json!({"storage": "far", "path": "set", "files": 1, "size_bytes": 1, "seed": 1});
    let prepare_far =
        json!({"step": "prepare", "dataset": "far-set", "first": 0, "files": 1, "cache": "as_is"});
    let scene = scene.actor(
        "one",
        vec![
            trial(0, vec![prepare_far]),
            trial(1, vec![prepare(1), store("far:x")]),
        ],
    );
    let output = scene.start().relay_errors("the connection is lost");
    assert_eq!(output.code, Some(0), "{:#?}", output.values);
    assert_eq!(output.trials().len(), 2);
    assert_eq!(output.findings(), ["prepare-failed"]);
    assert_eq!(output.outcomes(), [Outcome::Failed]);
    let error = output.transfer().error.as_deref().expect("a reason");
    assert!(error.contains("the connection is lost"), "{error}");
}
