//! Tools that take whole folders: these hold the files of the transfer and no others, and are gone afterwards. Data sets of several sizes.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};
use venturi_plan::{Bytes, Outcome, Record};

use crate::testkit::{Scene, transfer_many, trial, with};

/// Copies what is in the folder, whatever that is, and tells of it.
const COPY: &str = r#"cp -P "$1"* "$2"; echo "$1" "$3"; stat -c '%n %h %s' "$1"*"#;

fn moving(script: &str, keys: Value) -> Scene {
    let script = script.replace('{', "{{").replace('}', "}}");
    let argv = [
        "sh",
        "-c",
        &script,
        "sh",
        "{source}",
        "{destination}",
        "{folder}",
    ];
    let scene = Scene::new()
        .seeing()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("move", &argv, keys);
    scene.dataset("set", 8, 1000)
}

fn prepare(dataset: &str, files: u64) -> Value {
    json!({"step": "prepare", "dataset": dataset, "first": 0, "files": files, "cache": "as_is"})
}

#[test]
fn a_folder_holds_hard_links_to_the_files_of_the_transfer_alone() {
    let step = transfer_many("move", "disk:set/000003", "disk:out", (3, 3000));
    let kept = with(step, json!({"keep": true}));
    let scene = moving(COPY, json!({"expect": "destination"}))
        .actor("one", vec![trial(0, vec![prepare("set", 8), kept])]);
    let told = scene.run();
    let record = told.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes),
        (Outcome::Ok, Some(Bytes::new(3000))),
        "{record:?}"
    );
    let folder = format!("{}/.venturi-folders/", scene.disk().display());
    let said = record.stdout.as_deref().expect("captured");
    let seen: Vec<&str> = said.lines().collect();
    let (source, again) = seen[0].split_once(' ').expect("two folders");
    assert!(source.starts_with(&folder) && source == again, "{said}");
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
fn to_a_sink_a_folder_holds_links_to_its_device_that_the_server_sees() {
    let script = r#"to="${2#file://localhost}"; for file in "$1"*; do cat "$file" > "$to${file##*/}"; done; echo "$to"; readlink "$to"*"#;
    let step = transfer_many("move", "disk:set/000000", "null:", (2, 2000));
    let step = with(step, json!({"destination_via": "files/file"}));
    let scene =
        moving(script, json!({})).actor("one", vec![trial(0, vec![prepare("set", 2), step])]);
    let told = scene.run();
    let record = told.transfer();
    assert_eq!(record.outcome, Outcome::Ok, "{record:?}");
    let said: Vec<&str> = record
        .stdout
        .as_deref()
        .expect("captured")
        .lines()
        .collect();
    assert_eq!(said[1..], ["/dev/null", "/dev/null"]);
    assert!(said[0].ends_with('/') && !std::path::Path::new(said[0]).exists());
}

#[test]
fn a_sink_of_a_server_on_another_machine_is_refused_in_words() {
    let step = transfer_many("move", "disk:set/000000", "null:", (2, 2000));
    let step = with(step, json!({"destination_via": "files/file"}));
    let mut scene =
        moving(COPY, json!({})).actor("one", vec![trial(0, vec![prepare("set", 2), step])]);
    scene.sees.clear();
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Failed]);
    let error = told.transfer().error.as_deref().expect("a reason");
    assert!(
        error.contains("expected a server whose files this agent sees")
            && error.contains("`other`"),
        "{error}"
    );
}

#[test]
fn what_a_killed_run_left_is_gone_at_the_next_begin() {
    let scene = moving(COPY, json!({})).actor("one", vec![trial(0, vec![prepare("set", 1)])]);
    let left = scene.disk().join(".venturi-folders/7-0");
    std::fs::create_dir_all(&left).expect("made");
    std::fs::write(left.join("000000"), "x").expect("written");
    scene.run();
    assert!(!scene.disk().join(".venturi-folders").exists());
}

#[test]
fn a_data_set_of_several_sizes_is_made_moved_and_checked_file_by_file() {
    let run = |script: &str| {
        let step = transfer_many("move", "disk:mixed/000002", "disk:out", (5, 130));
        let mut scene = moving(script, json!({"expect": "destination"}))
            .actor("one", vec![trial(0, vec![prepare("mixed", 7), step])]);
        scene.header["datasets"]["mixed"] = json!({"place": "disk", "path": "mixed", "files": 7, "size_bytes": 50, "seed": 1,
            "mix": [{"files": 3, "size_bytes": 10}, {"files": 2, "size_bytes": 50}]});
        let told = scene.run();
        let record = told.transfer().clone();
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
fn bytes_that_are_not_the_sum_of_the_mix_are_refused_before_the_run() {
    let step = transfer_many("move", "disk:mixed/000000", "disk:out", (2, 30));
    let mut scene =
        moving(COPY, json!({})).actor("one", vec![trial(0, vec![prepare("mixed", 2), step])]);
    scene.header["datasets"]["mixed"] = json!({"place": "disk", "path": "mixed", "files": 2, "size_bytes": 50, "seed": 1,
        "mix": [{"files": 1, "size_bytes": 10}, {"files": 1, "size_bytes": 50}]});
    let told = scene.run();
    let Record::Fatal(fatal) = told.last() else {
        panic!("expected a refusal, found {:?}", told.last());
    };
    let expected = "the sum of the sizes in the data set's mix";
    assert!(fatal.message.contains(expected), "{}", fatal.message);
}
