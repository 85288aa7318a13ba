//! Many files in one call: their list, their directory, and the checks at the receiver.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use venturi_plan::{Bytes, Outcome};

use crate::testkit::{TestScene, transfer_many, trial, with};

/// Copies each file of the list; both endpoints are `file://` URLs.
const COPY: &str = r#"test -z "$1" && exit 9
while read -r from to; do cp "${from#file://*/}" "/${to#file://*/}" || exit 1; done < "$1"; echo "$@""#;

/// Copies by the list, with `script` for the tool.
fn copying(script: &str) -> TestScene {
    // Braces of the shell are not placeholders.
    let script = script.replace('{', "{{").replace('}', "}}");
    let argv = [
        "sh",
        "-c",
        &script,
        "sh",
        "{list}",
        "{source}",
        "{destination}",
    ];
    TestScene::new()
        .seeing()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with(
            "copy",
            &argv,
            json!({"expect": "destination", "local": "file://here/{path}"}),
        )
        .dataset("set", 8, 1000)
}

fn prepare(files: u64) -> Value {
    json!({"step": "prepare", "dataset": "set", "first": 0, "files": files, "cache": "as_is"})
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_list_names_each_file_at_both_endpoints_and_is_removed_after_the_trial() {
    let step = transfer_many("copy", "disk:set/000003", "far:in/x", (4, 4000));
    let step = with(step, json!({"destination_via": "files/file"}));
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(8), step.clone()])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes, record.files),
        (Outcome::Ok, Some(Bytes::new(4000)), 4),
        "{record:?}"
    );
    let scratch = scene.scratch.path().display();
    let printed = record.stdout.as_deref().expect("captured").to_owned();
    assert!(
        printed.ends_with(&format!(
            " file://here/{scratch}/data/set/ file://localhost{scratch}/other/data/in/x/\n"
        )),
        "{printed}"
    );
    let list = printed.split(' ').next().expect("the list");
    assert!(list.starts_with(&scratch.to_string()) && !Path::new(list).exists());
    assert!(!scene.far().join("in/x").exists());
    assert_eq!(
        names(scene.scratch.path()),
        [".venturi-bin", ".venturi-lock", "data", "other"]
    );

    let kept = with(step, json!({"keep": true}));
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(8), kept])]);
    assert_eq!(scene.run().outcomes(), [Outcome::Ok]);
    assert_eq!(
        names(&scene.far().join("in/x")),
        ["000003", "000004", "000005", "000006"]
    );
}

#[test]
fn a_list_with_one_short_file_is_short_even_if_the_sum_is_right() {
    let script = r#"while read -r from to; do last="/${to#file://*/}"; cp "${from#file://*/}" "$last"; done < "$1"
head -c 999 /dev/zero > "$last"; head -c 1001 /dev/zero > "${last%/*}/000000""#;
    let step = transfer_many("copy", "disk:set/000000", "disk:out", (3, 3000));
    let scene = copying(script).actor("one", vec![trial(0, vec![prepare(3), step])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes),
        (Outcome::Short, Some(Bytes::new(3000)))
    );
    assert_eq!(
        record.error.as_deref(),
        Some(
            "expected 3 files and 3000 bytes at the receiver, found 2 complete files and 3000 bytes; the \
             first incomplete file, `000002`, has 999 bytes"
        )
    );
    assert_eq!(output.findings(), ["receiver-has-more"]);
    assert!(!scene.disk().join("out").exists());
}

#[test]
fn a_missing_file_of_a_list_is_reported_by_name() {
    let script =
        r#"head -n 1 "$1" | { read -r from to; cp "${from#file://*/}" "/${to#file://*/}"; }"#;
    let step = transfer_many("copy", "disk:set/000000", "disk:out", (2, 2000));
    let scene = copying(script).actor("one", vec![trial(0, vec![prepare(2), step])]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Short]);
    let error = output.transfer().error.as_deref().expect("a reason");
    assert!(error.contains("`000001`, is not there"), "{error}");
}

#[test]
fn missing_sources_fail_before_the_tool_is_started() {
    let step = transfer_many("copy", "disk:set/000002", "disk:out", (4, 4000));
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(3), step])]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!((record.outcome, record.start_s), (Outcome::Failed, None));
    let directory = scene.disk().join("set");
    assert_eq!(
        record.error.as_deref(),
        Some(&*format!(
            "source: expected 4 files from `{}`, found 3 of them missing, the first at `{}`; create them \
             with a `prepare` step",
            directory.join("000002").display(),
            directory.join("000003").display()
        ))
    );
    assert!(!scene.disk().join("out").exists());
}

#[test]
fn list_lines_to_a_sink_end_with_its_device_and_zero_has_one_line_for_each_file() {
    let run = |source: &str, destination: &str| {
        let step = transfer_many("copy", source, destination, (2, 2000));
        let step = with(step, json!({"destination_via": "files/file"}));
        let scene = copying(r#"cat "$1"; echo "$3""#);
        let mut scene = scene.actor("one", vec![trial(0, vec![prepare(2), step])]);
        scene.header["calls"]["copy"]["expect"] = json!("nothing");
        let output = scene.run();
        assert_eq!(output.outcomes(), [Outcome::Ok]);
        let text = output
            .transfer()
            .stdout
            .as_deref()
            .expect("captured")
            .to_owned();
        text.replace(&scene.scratch.path().display().to_string(), "SCRATCH")
    };
    let null = "file://localhost/dev/null";
    assert_eq!(
        run("disk:set/000000", "null:"),
        format!(
            "file://here/SCRATCH/data/set/000000 {null}\nfile://here/SCRATCH/data/set/000001 {null}\n{null}\n"
        )
    );
    let out = "file://localhostSCRATCH/other/data/out";
    assert_eq!(
        run("zero:", "far:out"),
        format!("file://here//dev/zero {out}/000000\nfile://here//dev/zero {out}/000001\n{out}/\n")
    );
}

#[test]
fn parallel_transfers_of_many_files_have_separate_lists() {
    let child = |slot: u64| {
        let source = format!("disk:set/{:06}", 2 * slot);
        let step = transfer_many("copy", &source, &format!("disk:out/{slot}"), (2, 2000));
        vec![with(step, json!({"slot": slot}))]
    };
    let parallel = json!({"step": "parallel", "children": (0..4).map(child).collect::<Vec<_>>()});
    let again = json!({"step": "repeat", "count": 5, "steps": [parallel]});
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(8), again])]);
    let output = scene.run();
    assert_eq!(
        output.outcomes(),
        [Outcome::Ok; 20],
        "{:#?}",
        output.findings()
    );
    assert_eq!(
        names(&scene.disk()),
        ["set", "out"]
            .map(str::to_owned)
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    assert_eq!(names(&scene.disk().join("out")), Vec::<String>::new());
}

#[test]
fn a_path_with_a_space_is_rejected_if_it_would_split_a_list_line() {
    let mut scene = copying(COPY);
    scene.header["storages"]["disk"]["path"] = json!("my data");
    let step = transfer_many("copy", "disk:set/000000", "disk:out", (2, 2000));
    let scene = scene.actor("one", vec![trial(0, vec![prepare(2), step])]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Failed]);
    let error = output.transfer().error.as_deref().expect("a reason");
    assert!(
        error.contains("without whitespace") && error.contains("my data"),
        "{error}"
    );
}

#[test]
fn files_and_directories_of_the_agent_follow_its_umask() {
    let mut scene = copying(COPY);
    scene.umask = Some("0");
    let kept = |destination: &str| {
        let step = transfer_many("copy", "disk:set/000000", destination, (2, 2000));
        with(step, json!({"keep": true}))
    };
    let scene = scene.actor("one", vec![trial(0, vec![prepare(2), kept("disk:a/b")])]);
    assert_eq!(scene.run().outcomes(), [Outcome::Ok]);
    let mode = |path: &str| {
        let found = scene.disk().join(path).metadata().expect("made");
        found.permissions().mode() & 0o7777
    };
    assert_eq!(["", "set", "a", "a/b"].map(mode), [0o777; 4]);
    assert_eq!(["set/000000", "a/b/000001"].map(mode), [0o666; 2]);
}

#[test]
fn an_existing_directory_keeps_its_other_files_after_two_transfers_of_a_trial() {
    let mut scene = copying(COPY);
    let directory = scene.scratch.path().join("outside");
    scene.header["storages"]["outside"] = json!({"host": "me", "path": directory});
    std::fs::create_dir_all(directory.join("out")).expect("created");
    std::fs::write(directory.join("out/other"), "precious").expect("written");
    let copy = transfer_many("copy", "disk:set/000000", "outside:out", (2, 2000));
    let scene = scene.actor("one", vec![trial(0, vec![prepare(2), copy.clone(), copy])]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Ok; 2], "{:#?}", output.values);
    assert_eq!(names(&directory.join("out")), ["other"]);
}
