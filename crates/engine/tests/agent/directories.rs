//! Tools that copy whole directories, which contain only the files of the transfer and are removed
//! afterwards. Datasets with several sizes.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};
use venturi_plan::{Bytes, Outcome, Record};

use crate::testkit::{TestScene, transfer_many, trial, with};

/// Copies all files of the directory, and prints the arguments.
const COPY: &str = r#"cp -P "$1"* "$2"; echo "$1" "$3"; stat -c '%n %h %s' "$1"*"#;

fn moving(script: &str, keys: Value) -> TestScene {
    let script = script.replace('{', "{{").replace('}', "}}");
    let argv = [
        "sh",
        "-c",
        &script,
        "sh",
        "{source}",
        "{destination}",
        "{directory}",
    ];
    let scene = TestScene::new()
        .seeing()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("move", &argv, keys);
    scene.dataset("set", 8, 1000)
}

fn prepare(dataset: &str, files: u64) -> Value {
    json!({"step": "prepare", "dataset": dataset, "first": 0, "files": files, "cache": "as_is"})
}

#[test]
fn a_directory_contains_hard_links_to_only_the_files_of_the_transfer() {
    let step = transfer_many("move", "disk:set/000003", "disk:out", (3, 3000));
    let kept = with(step, json!({"keep": true}));
    let scene = moving(COPY, json!({"expect": "destination"}))
        .actor("one", vec![trial(0, vec![prepare("set", 8), kept])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes),
        (Outcome::Ok, Some(Bytes::new(3000))),
        "{record:?}"
    );
    let directory = format!("{}/.venturi-folders/", scene.disk().display());
    let printed = record.stdout.as_deref().expect("captured");
    let seen: Vec<&str> = printed.lines().collect();
    let (source, again) = seen[0].split_once(' ').expect("two folders");
    assert!(
        source.starts_with(&directory) && source == again,
        "{printed}"
    );
    assert_eq!(
        seen[1..],
        ["000003", "000004", "000005"].map(|name| format!("{source}{name} 2 1000"))
    );
    assert!(!scene.disk().join(".venturi-folders").exists());
    let left = scene.disk().join("set/000003").metadata().expect("stays");
    assert_eq!((left.nlink(), left.len()), (1, 1000));
    assert!(scene.disk().join("out/000005").exists());
}

#[test]
fn a_directory_for_a_sink_contains_links_to_its_device_visible_to_the_server() {
    let script = r#"to="${2#file://localhost}"; for file in "$1"*; do cat "$file" > "$to${file##*/}"; done; echo "$to"; readlink "$to"*"#;
    let step = transfer_many("move", "disk:set/000000", "null:", (2, 2000));
    let step = with(step, json!({"destination_via": "files/file"}));
    let scene =
        moving(script, json!({})).actor("one", vec![trial(0, vec![prepare("set", 2), step])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(record.outcome, Outcome::Ok, "{record:?}");
    let printed: Vec<&str> = record
        .stdout
        .as_deref()
        .expect("captured")
        .lines()
        .collect();
    assert_eq!(printed[1..], ["/dev/null", "/dev/null"]);
    assert!(printed[0].ends_with('/') && !std::path::Path::new(printed[0]).exists());
}

#[test]
fn a_sink_of_a_server_on_another_host_is_rejected_with_a_reason() {
    let step = transfer_many("move", "disk:set/000000", "null:", (2, 2000));
    let step = with(step, json!({"destination_via": "files/file"}));
    let mut scene =
        moving(COPY, json!({})).actor("one", vec![trial(0, vec![prepare("set", 2), step])]);
    scene.hosts.clear();
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Failed]);
    let error = output.transfer().error.as_deref().expect("a reason");
    assert!(
        error.contains("expected a server with a storage on a host of the plan")
            && error.contains("`other`"),
        "{error}"
    );
}

#[test]
fn directories_of_a_killed_run_are_removed_at_the_next_start() {
    let scene = moving(COPY, json!({})).actor("one", vec![trial(0, vec![prepare("set", 1)])]);
    let left = scene.disk().join(".venturi-folders/7-0");
    std::fs::create_dir_all(&left).expect("made");
    std::fs::write(left.join("000000"), "x").expect("written");
    scene.run();
    assert!(!scene.disk().join(".venturi-folders").exists());
}

#[test]
fn a_dataset_of_several_sizes_is_created_transferred_and_checked_by_file() {
    let run = |script: &str| {
        let step = transfer_many("move", "disk:mixed/000002", "disk:out", (5, 130));
        let mut scene = moving(script, json!({"expect": "destination"}))
            .actor("one", vec![trial(0, vec![prepare("mixed", 7), step])]);
        scene.header["datasets"]["mixed"] = json!({"storage": "disk", "path": "mixed", "files": 7, "size_bytes": 50, "seed": 1,
            "mix": [{"files": 3, "size_bytes": 10}, {"files": 2, "size_bytes": 50}]});
        let output = scene.run();
        let record = output.transfer().clone();
        (record.outcome, record.error, record.received_bytes)
    };
    // 10, 50, 50, 10, 10.
    assert_eq!(run(COPY), (Outcome::Ok, None, Some(Bytes::new(130))));
    let (outcome, error, bytes) =
        run(r#"cp "$1"* "$2"; truncate -s 49 "${2}000004"; truncate -s 11 "${2}000005""#);
    assert_eq!((outcome, bytes), (Outcome::Short, Some(Bytes::new(130))));
    let error = error.expect("a reason");
    assert!(error.ends_with("`000004`, has 49 bytes"), "{error}");
}

#[test]
fn bytes_that_differ_from_the_sum_of_the_mix_are_rejected_before_the_run() {
    let step = transfer_many("move", "disk:mixed/000000", "disk:out", (2, 30));
    let mut scene =
        moving(COPY, json!({})).actor("one", vec![trial(0, vec![prepare("mixed", 2), step])]);
    scene.header["datasets"]["mixed"] = json!({"storage": "disk", "path": "mixed", "files": 2, "size_bytes": 50, "seed": 1,
        "mix": [{"files": 1, "size_bytes": 10}, {"files": 1, "size_bytes": 50}]});
    let output = scene.run();
    let Record::Fatal(fatal) = output.last() else {
        panic!("expected a refusal, found {:?}", output.last());
    };
    let expected = "the sum of the sizes in the mix of the dataset";
    assert!(fatal.message.contains(expected), "{}", fatal.message);
}
