//! Tests of reading and writing plans, records and commands: written values are read back, and
//! invalid plans are rejected with the number of the line.

mod strategies;

use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use venturi_plan::*;

use strategies::{actor_line, command, header, record};

const MINIMAL: &str = concat!(
    r#"{"format":"venturi-plan","version":2,"name":"n","seed":1,"scale":1.0,"scenario":{},"hosts":{},"storages":{},"#,
    r#""datasets":{},"calls":{},"draws":{},"pools":{},"measure":{"interval_s":null,"counters":[]},"#,
    r#""totals":{"trials":0,"transfers":0,"bytes":null,"disk_bytes":{}}}"#,
);

fn rejection(text: &str) -> String {
    Plan::read(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_newer_plan_is_rejected_for_its_version_regardless_of_its_content() {
    let error = rejection(r#"{"new":true,"version":7,"format":"venturi-plan"}"#);
    assert_eq!(
        error,
        "line 1: expected a plan of version 2, found version 7; create the plan again with this Venturi, \
         or use the Venturi that created it"
    );
    let header = MINIMAL.replace("\"version\":2", "\"version\":1");
    let start = format!(
        r#"{{"command":"start","host":"h","scratch":"/s","epoch_unix_ns":1,"header":{header},"skip":[],"search":[]}}"#
    );
    let error = Command::parse(start.as_bytes()).unwrap_err().to_string();
    assert!(
        error.contains("expected a plan of version 2, found version 1"),
        "{error}"
    );
}

#[test]
fn an_invalid_plan_is_rejected_with_the_line_and_the_value() {
    let check = |text: &str, expected: &str| {
        let error = rejection(text);
        assert!(error.contains(expected), "{error}");
    };
    let second = |line: &str| format!("{MINIMAL}\n\n{line}\n");
    check("", "found the end of the file");
    check(
        "{}",
        "line 1: expected \"format\": \"venturi-plan\", found no `format`",
    );
    check(
        r#"{"format":"venturi-run","version":1}"#,
        "found \"venturi-run\"",
    );
    check("not json", "line 1: ");
    check(
        &MINIMAL.replace("\"version\":2", "\"version\":0"),
        "line 1: ",
    );
    check(
        &MINIMAL.replace("\"scale\"", "\"scales\""),
        "line 1: unknown field `scales`",
    );
    check(
        &MINIMAL.replace(",\"seed\":1", ""),
        "line 1: missing field `seed`",
    );
    check(&second("{"), "line 3: EOF");
    check(
        &second(r#"{"actor":"a","host":"h","steps":[{"step":"fly"}]}"#),
        "line 3: unknown variant `fly`",
    );
    check(
        &second(r#"{"actor":"a","host":"h","steps":[{"step":"pause","duration_s":"5 s"}]}"#),
        "line 3: invalid type: string",
    );
    check(
        &second(
            r#"{"actor":"a","host":"h","steps":[{"step":"pause","duration_s":{"draws":"x"}}]}"#,
        ),
        "unknown field `draws`",
    );
    check(
        &second(r#"{"actor":"a","host":"h","steps":[{"step":"pause","duration_s":1,"x":1}]}"#),
        "line 3: unknown field `x`",
    );
    check(
        &second(r#"{"actor":"a","host":"h","steps":[{"step":"repeat","steps":[]}]}"#),
        "expected `count`, `until_s` or `for_s`, found none",
    );
    check(
        &second(
            r#"{"actor":"a","host":"h","steps":[{"step":"repeat","count":1,"until_s":1,"steps":[]}]}"#,
        ),
        "expected one of `count`, `until_s` and `for_s`, found more",
    );
}

#[test]
fn endpoints_that_leave_their_storage_or_name_no_file_are_rejected() {
    for text in [
        "", "p", ":x", "p:", "p:/x", "p:..", "p:a/../b", "p:a/..", "p:.", "p:./", "p:./a",
        "p:a/./b", "p:a/.", "a/b:x", "null:x", "zero:x", "p:a\0",
    ] {
        assert!(text.parse::<Endpoint>().is_err(), "{text}");
    }
    for text in [
        "null:",
        "zero:",
        "p:x",
        "p:a/b/000003",
        "p:a:b",
        "p:...",
        "p:..a",
        "p:.a",
        "p:a.",
    ] {
        assert_eq!(
            text.parse::<Endpoint>().map(String::from).ok().as_deref(),
            Some(text)
        );
    }
}

#[test]
fn a_trial_id_has_exactly_one_spelling() {
    for text in [
        "t12",
        "t00000012",
        "0000012",
        "t-000001",
        "t+000001",
        "t99999999999",
        "t000001x",
    ] {
        assert!(text.parse::<TrialId>().is_err(), "{text}");
    }
    for number in [0, 12, 9_999_999, 10_000_000, u32::MAX] {
        assert_eq!(
            TrialId::new(number).to_string().parse::<TrialId>().ok(),
            Some(TrialId::new(number))
        );
    }
}

fn files(directory: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/plans"
    ))
    .join(directory);
    let entries = directory
        .read_dir()
        .expect("part of the project")
        .map(|entry| entry.expect("readable").path());
    let plans = entries.filter(|path| path.extension().is_some_and(|it| it == "jsonl"));
    #[allow(clippy::disallowed_methods)]
    // the crate reads no files, but its tests read files shared with Python
    plans
        .map(|path| (path.clone(), std::fs::read(path).expect("readable")))
        .collect()
}

#[test]
fn the_shared_examples_are_read_written_and_run() {
    let files = files("");
    assert!(files.len() >= 2);
    for (path, bytes) in files {
        let plan =
            Plan::read(&bytes[..]).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut written = Vec::new();
        plan.emit(&mut written).expect("memory takes all bytes");
        assert_eq!(Plan::read(&written[..]).expect("just written"), plan);
        for host in plan.header.hosts.keys() {
            let made = Interpreter::new(&plan.header, host, plan.lines.clone(), BTreeSet::new());
            made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

#[test]
fn the_shared_rejected_examples_are_rejected() {
    let files = files("refused");
    assert!(files.len() >= 5);
    for (path, bytes) in files {
        assert!(Plan::read(&bytes[..]).is_err(), "{}", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_plan_round_trips(header in header(), lines in prop::collection::vec(actor_line(), 0..4)) {
        let plan = Plan { header, lines };
        let mut written = Vec::new();
        plan.emit(&mut written).unwrap();
        prop_assert_eq!(written.iter().filter(|&&byte| byte == b'\n').count(), plan.lines.len() + 1);
        prop_assert_eq!(Plan::read(&written[..]).unwrap(), plan);
    }

    #[test]
    fn a_record_round_trips(record in record()) {
        let mut written = Vec::new();
        record.emit(&mut written).unwrap();
        prop_assert_eq!(Record::parse(&written).unwrap(), record);
    }

    #[test]
    fn a_command_round_trips(command in command()) {
        let mut written = Vec::new();
        command.emit(&mut written).unwrap();
        prop_assert_eq!(Command::parse(&written).unwrap(), command);
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(Plan::read(&bytes[..]).is_err());
        let _: (Result<_, _>, Result<_, _>) = (Record::parse(&bytes), Command::parse(&bytes));
        let lines = [MINIMAL.as_bytes(), b"\n", &bytes].concat();
        let _: Result<_, _> = Plan::read(&lines[..]);
    }

    #[test]
    fn no_change_of_a_plan_makes_reading_or_running_panic(
        header in header(), line in actor_line(), at: prop::sample::Index, byte: u8,
    ) {
        let mut written = Vec::new();
        Plan { header, lines: vec![line] }.emit(&mut written).unwrap();
        let at = at.index(written.len());
        written[at] = byte;
        if let Ok(plan) = Plan::read(&written[..]) {
            let host = plan.lines.first().map_or("".into(), |line| line.host.clone());
            let _: Result<_, _> = Interpreter::new(&plan.header, &host, plan.lines, BTreeSet::new());
        }
    }
}

#[test]
fn unbounded_nesting_is_rejected_without_a_crash() {
    let deep = format!(
        "{MINIMAL}\n{{\"actor\":\"a\",\"host\":\"h\",\"steps\":{}",
        "[{\"step\":\"repeat\",\"count\":1,\"steps\":".repeat(100_000)
    );
    assert!(rejection(&deep).contains("line 2: recursion limit"));
}
