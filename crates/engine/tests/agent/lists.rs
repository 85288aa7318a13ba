//! Many files in one call: their list, their directory, and what the receiver must hold.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use venturi_plan::{Bytes, Outcome};

use crate::testkit::{Scene, transfer_many, trial, with};

/// Copies each file of the list; URLs of both ends are those of files.
const COPY: &str = r#"test -z "$1" && exit 9
while read -r from to; do cp "${from#file://*/}" "/${to#file://*/}" || exit 1; done < "$1"; echo "$@""#;

/// Copies by the list, with `script` for the tool.
fn copying(script: &str) -> Scene {
    // Braces of the shell are no placeholders.
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
    Scene::new()
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

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
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
fn a_list_names_each_file_at_both_ends_and_all_of_it_is_gone_after_the_trial() {
    let step = transfer_many("copy", "disk:set/000003", "far:in/x", (4, 4000));
    let step = with(step, json!({"destination_via": "files/file"}));
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(8), step.clone()])]);
    let told = scene.run();
    let record = told.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes, record.files),
        (Outcome::Ok, Some(Bytes::new(4000)), 4),
        "{record:?}"
    );
    let scratch = scene.scratch.path().display();
    let said = record.stdout.as_deref().expect("captured").to_owned();
    assert!(
        said.ends_with(&format!(
            " file://here/{scratch}/data/set/ file://localhost{scratch}/other/data/in/x/\n"
        )),
        "{said}"
    );
    let list = said.split(' ').next().expect("the list");
    assert!(list.starts_with(&scratch.to_string()) && !Path::new(list).exists());
    assert!(!scene.far().join("in/x").exists());
    assert_eq!(
        names(scene.scratch.path()),
        [".venturi-lock", "data", "other"]
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
fn a_list_with_one_short_file_is_short_though_the_sum_is_right() {
    let script = r#"while read -r from to; do last="/${to#file://*/}"; cp "${from#file://*/}" "$last"; done < "$1"
head -c 999 /dev/zero > "$last"; head -c 1001 /dev/zero > "${last%/*}/000000""#;
    let step = transfer_many("copy", "disk:set/000000", "disk:out", (3, 3000));
    let scene = copying(script).actor("one", vec![trial(0, vec![prepare(3), step])]);
    let told = scene.run();
    let record = told.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes),
        (Outcome::Short, Some(Bytes::new(3000)))
    );
    assert_eq!(
        record.error.as_deref(),
        Some(
            "3 files and 3000 bytes were asked for, the receiver holds 2 whole files and 3000 bytes; the first that is not \
             whole, `000002`, has 999 bytes"
        )
    );
    assert_eq!(told.findings(), ["receiver-holds-more"]);
    assert!(!scene.disk().join("out").exists());
}

#[test]
fn a_file_that_does_not_come_is_missed_by_name() {
    let script =
        r#"head -n 1 "$1" | { read -r from to; cp "${from#file://*/}" "/${to#file://*/}"; }"#;
    let step = transfer_many("copy", "disk:set/000000", "disk:out", (2, 2000));
    let scene = copying(script).actor("one", vec![trial(0, vec![prepare(2), step])]);
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Short]);
    let error = told.transfer().error.as_deref().expect("a reason");
    assert!(error.contains("`000001`, is not there"), "{error}");
}

#[test]
fn sources_that_are_not_there_fail_before_the_tool_is_started() {
    let step = transfer_many("copy", "disk:set/000002", "disk:out", (4, 4000));
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(3), step])]);
    let told = scene.run();
    let record = told.transfer();
    assert_eq!((record.outcome, record.start_s), (Outcome::Failed, None));
    let folder = scene.disk().join("set");
    assert_eq!(
        record.error.as_deref(),
        Some(&*format!(
            "source: expected 4 files from `{}` on, found 3 of them missing, the first at `{}`; let a `prepare` step make them",
            folder.join("000002").display(),
            folder.join("000003").display()
        ))
    );
    assert!(!scene.disk().join("out").exists());
}

#[test]
fn to_a_sink_each_line_ends_with_its_device_and_zero_has_as_many_lines_as_files() {
    let run = |source: &str, destination: &str| {
        let step = transfer_many("copy", source, destination, (2, 2000));
        let step = with(step, json!({"destination_via": "files/file"}));
        let scene = copying(r#"cat "$1"; echo "$3""#);
        let mut scene = scene.actor("one", vec![trial(0, vec![prepare(2), step])]);
        scene.header["calls"]["copy"]["expect"] = json!("nothing");
        let told = scene.run();
        assert_eq!(told.outcomes(), [Outcome::Ok]);
        let text = told
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
fn transfers_of_many_files_side_by_side_have_a_list_each() {
    let child = |slot: u64| {
        let source = format!("disk:set/{:06}", 2 * slot);
        let step = transfer_many("copy", &source, &format!("disk:out/{slot}"), (2, 2000));
        vec![with(step, json!({"slot": slot}))]
    };
    let parallel = json!({"step": "parallel", "children": (0..4).map(child).collect::<Vec<_>>()});
    let again = json!({"step": "repeat", "count": 5, "steps": [parallel]});
    let scene = copying(COPY).actor("one", vec![trial(0, vec![prepare(8), again])]);
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Ok; 20], "{:#?}", told.findings());
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
fn a_path_with_a_space_is_refused_where_it_would_split_a_line() {
    let mut scene = copying(COPY);
    scene.header["places"]["disk"]["path"] = json!("my data");
    let step = transfer_many("copy", "disk:set/000000", "disk:out", (2, 2000));
    let scene = scene.actor("one", vec![trial(0, vec![prepare(2), step])]);
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Failed]);
    let error = told.transfer().error.as_deref().expect("a reason");
    assert!(
        error.contains("without white space") && error.contains("my data"),
        "{error}"
    );
}

#[test]
fn what_the_agent_makes_has_the_mode_that_its_umask_leaves() {
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
