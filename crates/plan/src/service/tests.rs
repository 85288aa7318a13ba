use super::*;
use crate::ActorLine;
use crate::{Interpreter, Plan};

/// Return a header with two hosts, a storage on each, and a service with the additional keys `more`
/// on the first host.
fn header(more: &str) -> Result<Header, serde_json::Error> {
    let host = if more.contains(r#""host":"#) {
        ""
    } else {
        r#""host": "a","#
    };
    serde_json::from_str(&format!(
        r#"{{"format": "venturi-plan", "version": 2, "name": "test", "seed": 1, "scale": 1.0, "scenario": {{}},
        "hosts": {{"a": {{"ssh": null, "memory_bytes": null}}, "b": {{"ssh": null, "memory_bytes": null}}}},
        "storages": {{"disk": {{"host": "a", "path": "data"}}, "other": {{"host": "b", "path": "data"}}}},
        "network": {{"interfaces": {{"a.eth0": {{"host": "a", "device": "eth0", "address": "10.77.0.1"}},
            "a.eth1": {{"host": "a", "device": "eth1", "address": "10.77.1.1"}}}}, "links": {{}}}},
        "services": {{"web": {{"kind": "http", {host} "storages": ["disk"] {more}}}}},
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

const SERVICE_PORTS: &str = r#", "interface": "a.eth0", "ports": [80, 81],
    "service_ports": {"http": "http://a.lab.test:{port}/{relative}", "root": "root://a.lab.test/{path}"}"#;

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
fn slots_use_the_ports_in_turn() {
    let header = header(SERVICE_PORTS).expect("a header");
    let via: Via = "web/http".parse().expect("a way");
    for (slot, port) in [(0, 80), (1, 81), (2, 80)] {
        let url = header
            .service_port(&via, slot, None)
            .expect("there")
            .url(None, Some("x"));
        assert_eq!(url.expect("a URL"), format!("http://a.lab.test:{port}/x"));
    }
}

#[test]
fn host_and_ports_of_the_session_override_those_of_the_plan() {
    let check = |more: &str, started: Option<&ServiceAddress>, expected: &str| {
        let keys =
            format!(r#", "service_ports": {{"http": "http://{{host}}:{{port}}{{path}}"}} {more}"#);
        let header = header(&keys).expect("a header");
        let via: Via = "web/http".parse().expect("a via");
        let service_port = header.service_port(&via, 1, started).expect("it exists");
        assert_eq!(service_port.url(Some("/x"), None).expect("a URL"), expected);
        assert!(header.check_services().is_ok());
    };
    let ports = r#", "ports": [80, 81]"#;
    let eth0 = r#", "ports": [80, 81], "interface": "a.eth0""#;
    let eth1 = r#", "ports": [80, 81], "interface": "a.eth1""#;
    check(ports, None, "http://localhost:81/x");
    check(eth0, None, "http://a.lab.test:81/x");
    check(eth1, None, "http://a-eth1.lab.test:81/x");
    let other = r#", "ports": [80, 81], "host": "b""#;
    check(other, None, "http://b.lab.test:81/x");
    let started = ServiceAddress {
        address: "[fd00::2]".into(),
        ports: vec![50_000],
    };
    check(eth1, Some(&started), "http://[fd00::2]:50000/x");
}

#[test]
fn an_existing_server_has_fixed_urls_and_no_host() {
    let fixed = r#", "host": null, "service_ports": {"http": "http://eos.example.org/eos{path}"}"#;
    assert_eq!(compile(fixed, ""), Ok(()));
    let error = compile(
        r#", "host": null, "service_ports": {"http": "http://{host}{path}"}"#,
        "",
    );
    let error = error.expect_err("no host to name");
    assert!(error.contains("expected a host for `{host}`"), "{error}");
    let error = compile(r#", "host": "c""#, "").expect_err("no such host");
    assert!(
        error.contains("expected a host of the plan, found `c`"),
        "{error}"
    );
}

#[test]
fn an_option_with_the_url_of_a_service_port_uses_the_session_address() {
    let keys = r#", "ports": [80, 81], "service_ports": {"http": "http://{host}:{port}", "files": "http://{host}{path}"}"#;
    let mut header = header(keys).expect("a header");
    let via = |text: &str| text.parse::<Via>().expect("a via");
    let call = header.calls.get_mut("get").expect("it exists");
    call.argv = vec![
        crate::Argument::One("get".into()),
        crate::Argument::Group(vec!["-x".into(), "{proxy}".into()]),
    ];
    call.urls = [("proxy".into(), via("web/http"))].into();
    let call = call.clone();
    let argv = |started: Option<&ServiceAddress>| {
        let urls = header.call_urls(&call, |_| started).expect("it exists");
        call.argv(&crate::Values {
            urls: Some(&urls),
            ..crate::Values::default()
        })
    };
    let argv_without = argv(None).expect("it has a value");
    assert_eq!(argv_without, ["get", "-x", "http://localhost:80"]);
    let started = ServiceAddress {
        address: "b.example.org".into(),
        ports: vec![3128],
    };
    let argv_started = argv(Some(&started)).expect("it has a value");
    assert_eq!(argv_started[2], "http://b.example.org:3128");
    for wrong in ["web/files", "web/ftp", "ftp/http"] {
        let call = crate::Call {
            urls: [("proxy".into(), via(wrong))].into(),
            ..call.clone()
        };
        assert!(header.call_urls(&call, |_| None).is_err(), "{wrong}");
    }
}

#[test]
fn a_path_that_requires_url_encoding_is_rejected() {
    let header = header(SERVICE_PORTS).expect("a header");
    let service_port = header
        .service_port(&"web/root".parse().expect("a way"), 0, None)
        .expect("there");
    assert!(service_port.url(Some("/a-b/c_d.e~f/000001"), None).is_ok());
    for path in ["/a b", "/a%20b", "/ä", "/a?b", "/a#b", "/a\nb", "/{path}"] {
        let error = service_port
            .url(Some(path), None)
            .expect_err(path)
            .to_string();
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
fn a_service_that_does_not_match_the_header_is_rejected_with_the_reason() {
    let check = |more: &str, expected: &str| {
        let error = compile(more, "").expect_err(more);
        assert!(error.contains(expected), "{error}");
    };
    assert_eq!(compile(SERVICE_PORTS, ""), Ok(()));
    check(
        r#", "after": ["kdc"]"#,
        "service `web`: expected a service of the plan, found `kdc`",
    );
    check(
        r#", "interface": "b.eth0""#,
        "expected a network interface of its host of the plan, found `b.eth0`",
    );
    check(
        r#", "service_ports": {"http": "http://a:{port}{path}"}"#,
        "expected ports for `{port}`, found none",
    );
    check(
        r#", "service_ports": {"http": "http://a{paths}"}"#,
        "service port `web/http`: argument `http://a{paths}`: expected one of path, relative, host, port",
    );
    check(
        r#", "service_ports": {"http": "{path}"}"#,
        "expected a URL `protocol://host:port…`",
    );
    check(
        r#", "service_ports": {"a/b": "x://y"}"#,
        "expected `service/service_port`, found `web/a/b`",
    );
    check(r#", "ports": [70000]"#, "expected u16");
}

#[test]
fn an_endpoint_that_its_service_does_not_serve_is_rejected_with_the_actor() {
    let check = |keys: &str, expected: &str| {
        let error = compile(SERVICE_PORTS, &transfer(keys)).expect_err(keys);
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
        assert_eq!(compile(SERVICE_PORTS, &transfer(keys)), Ok(()), "{keys}");
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
        "service `web`: expected one of its service ports (http, root), found `web/ftp`",
    );
    check(
        &to("\"other:x\"", "web/http"),
        "expected one of the storages that it serves (disk), found `other`",
    );
    check(
        &to(r#"{"draw": "where"}"#, "web/http"),
        "`other:y` via `web/http`",
    );
    check(
        &to("\"zero:\"", "web/http"),
        "expected an endpoint with a `{relative}`",
    );
    check(
        &to("\"disk:a b\"", "web/http"),
        "expected a path of letters",
    );
    check(
        &to("\"disk:x\"", "web"),
        "expected `service/service_port`, found `web`",
    );
}

#[test]
fn many_files_must_be_numbered_and_of_equal_size() {
    let check = |source: &str, files: u64, bytes: u64, expected: &str| {
        let keys = format!(
            r#""source": {source}, "destination": "disk:y", "files": {files}, "bytes": {bytes}"#
        );
        let error = compile(SERVICE_PORTS, &transfer(&keys)).expect_err(source);
        assert!(error.contains(expected), "{error}");
    };
    let numbered = "expected the first of several files of a dataset";
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
fn a_placeholder_without_a_value_for_this_method_is_found_before_anything_runs() {
    let step = |via: &str| {
        format!(
            r#"{{"step": "transfer", "call": "ping", "slot": 0, "source": "disk:x", "destination": "null:", "files": 1, "bytes": 1 {via}}}"#
        )
    };
    assert_eq!(
        compile(SERVICE_PORTS, &step(r#", "source_via": "web/http""#)),
        Ok(())
    );
    let error = compile(SERVICE_PORTS, &step("")).expect_err("local");
    assert!(
        error.contains("`{source_host}` has no value here"),
        "{error}"
    );
}

#[test]
fn a_plan_without_the_lab_keys_is_read_without_a_lab() {
    let old = r#"{"format":"venturi-plan","version":2,"name":"n","seed":1,"scale":1.0,"scenario":{},
        "hosts":{"a":{"ssh":null,"memory_bytes":null}},"storages":{"p":{"host":"a","path":"x"}},"datasets":{},"calls":{},"draws":{},
        "pools":{},"measure":{"interval_s":null,"counters":[]},"totals":{"trials":0,"transfers":0,"bytes":0,"disk_bytes":{}}}"#;
    let plan = Plan::read(old.replace('\n', "").as_bytes()).expect("a plan");
    assert!(plan.header.services.is_empty() && plan.header.network.is_none());
    assert!(plan.header.hosts["a"].lab.is_none() && plan.header.storages["p"].spec.is_none());
    let mut written = Vec::new();
    plan.emit(&mut written).expect("memory takes all bytes");
    let text = String::from_utf8(written).expect("JSON");
    assert!(
        text.contains(r#""services":{},"network":null"#) && text.contains(r#""lab":null"#),
        "{text}"
    );
}
