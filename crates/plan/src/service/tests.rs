use super::*;
use crate::ActorLine;
use crate::{Interpreter, Plan};

/// A header with a place of each of two hosts, a service on the first, and `more` keys of the service.
fn header(more: &str) -> Result<Header, serde_json::Error> {
    serde_json::from_str(&format!(
        r#"{{"format": "venturi-plan", "version": 1, "name": "test", "seed": 1, "scale": 1.0, "scenario": {{}},
        "hosts": {{"a": {{"ssh": null, "memory_bytes": null}}, "b": {{"ssh": null, "memory_bytes": null}}}},
        "places": {{"disk": {{"host": "a", "path": "data"}}, "other": {{"host": "b", "path": "data"}}}},
        "network": {{"interfaces": {{"a.eth0": {{"host": "a", "device": "eth0", "address": "10.77.0.1"}}}}, "links": {{}}}},
        "services": {{"web": {{"kind": "http", "host": "a", "places": ["disk"] {more}}}}},
        "datasets": {{}},
        "calls": {{"get": {{"mover": "get", "options": {{}}, "argv": ["get", ["-l", "{{list}}"], ["-p", "{{source_port}}"], "{{source}}"],
            "requires": [], "timeout_s": 1.0, "capture": false, "expect": "nothing", "local": "file://{{path}}"}},
            "ping": {{"mover": "ping", "options": {{}}, "argv": ["ping", "{{source_host}}"],
            "requires": [], "timeout_s": 1.0, "capture": false, "expect": "nothing"}}}},
        "draws": {{"where": {{"kind": "choice", "values": ["disk:x", "other:y"]}}}}, "pools": {{}},
        "measure": {{"interval_s": null, "counters": ["tcp"]}},
        "totals": {{"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {{}}}}}}"#
    ))
}

const DOORS: &str = r#", "interface": "a.eth0", "ports": [80, 81],
    "doors": {"http": "http://a.lab.test:{port}/{relative}", "root": "root://a.lab.test/{path}"}"#;

fn compile(more: &str, step: &str) -> Result<(), String> {
    let header = header(more).map_err(|error| error.to_string())?;
    let line: ActorLine = serde_json::from_str(&format!(
        r#"{{"actor": "one", "host": "a", "steps": [{step}]}}"#
    ))
    .map_err(|error| error.to_string())?;
    Interpreter::new(&header, "a", vec![line], std::collections::BTreeSet::new())
        .map(drop)
        .map_err(|error| error.to_string())
}

fn transfer(keys: &str) -> String {
    format!(r#"{{"step": "transfer", "call": "get", "slot": 0, {keys}}}"#)
}

#[test]
fn a_slot_takes_its_port_in_turn() {
    let header = header(DOORS).expect("a header");
    let via: Via = "web/http".parse().expect("a way");
    for (slot, port) in [(0, 80), (1, 81), (2, 80)] {
        let url = header.door(&via, slot).expect("there").url(None, Some("x"));
        assert_eq!(url.expect("a URL"), format!("http://a.lab.test:{port}/x"));
    }
}

#[test]
fn a_path_that_a_url_would_have_to_encode_is_refused() {
    let header = header(DOORS).expect("a header");
    let door = header
        .door(&"web/root".parse().expect("a way"), 0)
        .expect("there");
    assert!(door.url(Some("/a-b/c_d.e~f/000001"), None).is_ok());
    for path in ["/a b", "/a%20b", "/ä", "/a?b", "/a#b", "/a\nb", "/{path}"] {
        let error = door.url(Some(path), None).expect_err(path).to_string();
        assert!(
            error.contains("expected a path of letters, digits") && error.contains(path),
            "{error}"
        );
    }
}

#[test]
fn an_authority_is_found_in_any_url() {
    for (url, found) in [
        (
            "gsiftp://a.lab.test:2811/x",
            Some(("a.lab.test", Some(2811))),
        ),
        ("root://a//dev/zero", Some(("a", None))),
        ("http://u:p@a:1?x", Some(("a", Some(1)))),
        ("https://[fe80::1]:443/", Some(("fe80::1", Some(443)))),
        ("http://a:99999/", None),
        ("http://a:b/", None),
        ("http:///x", None),
        ("/x", None),
    ] {
        assert_eq!(authority(url), found, "{url}");
    }
}

#[test]
fn a_service_that_does_not_fit_the_header_is_refused_with_what_is_wrong() {
    let check = |more: &str, expected: &str| {
        let error = compile(more, "").expect_err(more);
        assert!(error.contains(expected), "{error}");
    };
    assert_eq!(compile(DOORS, ""), Ok(()));
    check(
        r#", "after": ["kdc"]"#,
        "service `web`: expected a service of the plan, found `kdc`",
    );
    check(
        r#", "interface": "b.eth0""#,
        "expected a network interface of its host of the plan, found `b.eth0`",
    );
    check(
        r#", "doors": {"http": "http://a:{port}{path}"}"#,
        "expected ports for `{port}`, found none",
    );
    check(
        r#", "doors": {"http": "http://a{paths}"}"#,
        "door `web/http`: argument `http://a{paths}`: expected one of path, relative, port",
    );
    check(
        r#", "doors": {"http": "{path}"}"#,
        "expected a URL `protocol://host:port…`",
    );
    check(
        r#", "doors": {"a/b": "x://y"}"#,
        "expected `service/door`, found `web/a/b`",
    );
    check(r#", "ports": [70000]"#, "expected u16");
}

#[test]
fn an_end_that_its_way_does_not_reach_is_refused_with_the_actor() {
    let check = |keys: &str, expected: &str| {
        let error = compile(DOORS, &transfer(keys)).expect_err(keys);
        assert!(error.contains(expected), "{error}");
    };
    let good = [
        r#""source": "disk:x", "source_via": "web/http", "destination": "disk:y", "files": 1, "bytes": 1"#,
        r#""source": "zero:", "source_via": "web/root", "destination": "null:", "files": 1, "bytes": 1"#,
        r#""source": "disk:x", "destination": "disk:y", "destination_via": "web/root", "files": 1, "bytes": 1"#,
        r#""source": "disk:s/000003", "source_via": "web/http", "destination": "disk:y", "files": 5, "bytes": 10"#,
        r#""source": "zero:", "destination": "disk:y", "files": 2, "bytes": 10"#,
    ];
    for keys in good {
        assert_eq!(compile(DOORS, &transfer(keys)), Ok(()), "{keys}");
    }
    let to = |source: &str, via: &str| {
        format!(
            r#""source": {source}, "source_via": "{via}", "destination": "null:", "files": 1, "bytes": 1"#
        )
    };
    check(
        &to("\"disk:x\"", "ftp/http"),
        "actor `one`, `disk:x` via `ftp/http`: service `ftp`: expected one of the services of the plan (web)",
    );
    check(
        &to("\"disk:x\"", "web/ftp"),
        "service `web`: expected one of its doors (http, root), found `web/ftp`",
    );
    check(
        &to("\"other:x\"", "web/http"),
        "expected one of the places that it serves (disk), found `other`",
    );
    check(
        &to(r#"{"draw": "where"}"#, "web/http"),
        "`other:y` via `web/http`",
    );
    check(
        &to("\"zero:\"", "web/http"),
        "expected an end with a `{relative}`",
    );
    check(
        &to("\"disk:a b\"", "web/http"),
        "expected a path of letters",
    );
    check(
        &to("\"disk:x\"", "web"),
        "expected `service/door`, found `web`",
    );
}

#[test]
fn many_files_have_numbers_and_equal_sizes() {
    let check = |source: &str, files: u64, bytes: u64, expected: &str| {
        let keys = format!(
            r#""source": {source}, "destination": "disk:y", "files": {files}, "bytes": {bytes}"#
        );
        let error = compile(DOORS, &transfer(&keys)).expect_err(source);
        assert!(error.contains(expected), "{error}");
    };
    let numbered = "expected the first of several files of a data set";
    check("\"disk:x\"", 2, 2, numbered);
    check("\"disk:s/3\"", 2, 2, numbered);
    check("\"disk:s/0000003\"", 2, 2, numbered);
    check("\"disk:s/18446744073709551615\"", 2, 2, numbered);
    check(r#"{"draw": "where"}"#, 2, 2, numbered);
    check(
        "\"disk:s/000003\"",
        3,
        10,
        "expected files of equal size, found 10 bytes in 3 files",
    );
    check(
        "\"disk:s/000003\"",
        2_000_000,
        2_000_000,
        "expected at most a million files",
    );
}

#[test]
fn a_placeholder_without_a_value_by_this_way_is_found_before_anything_runs() {
    let step = |via: &str| {
        format!(
            r#"{{"step": "transfer", "call": "ping", "slot": 0, "source": "disk:x", "destination": "null:", "files": 1, "bytes": 1 {via}}}"#
        )
    };
    assert_eq!(
        compile(DOORS, &step(r#", "source_via": "web/http""#)),
        Ok(())
    );
    let error = compile(DOORS, &step("")).expect_err("local");
    assert!(
        error.contains("`{source_host}` has no value here"),
        "{error}"
    );
}

#[test]
fn a_plan_without_the_keys_of_the_lab_is_read_as_one_that_has_none() {
    let old = r#"{"format":"venturi-plan","version":1,"name":"n","seed":1,"scale":1.0,"scenario":{},
        "hosts":{"a":{"ssh":null,"memory_bytes":null}},"places":{"p":{"host":"a","path":"x"}},"datasets":{},"calls":{},"draws":{},
        "pools":{},"measure":{"interval_s":null,"counters":[]},"totals":{"trials":0,"transfers":0,"bytes":0,"disk_bytes":{}}}"#;
    let plan = Plan::read(old.replace('\n', "").as_bytes()).expect("a plan");
    assert!(plan.header.services.is_empty() && plan.header.network.is_none());
    assert!(plan.header.hosts["a"].lab.is_none() && plan.header.places["p"].storage.is_none());
    let mut written = Vec::new();
    plan.emit(&mut written).expect("memory takes all bytes");
    let text = String::from_utf8(written).expect("JSON");
    assert!(
        text.contains(r#""services":{},"network":null"#) && text.contains(r#""lab":null"#),
        "{text}"
    );
}
