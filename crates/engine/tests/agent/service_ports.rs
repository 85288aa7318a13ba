//! Endpoints of transfers at service ports: real clients and servers, files of other hosts on this
//! machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use venturi_plan::{Bytes, Outcome};

use crate::testkit::{AgentOutput, TestScene, transfer, trial, with};

/// A web server on this machine, which ends when the value is dropped.
struct WebServer {
    child: Child,
    port: u16,
}

impl WebServer {
    /// Serves the files of a directory; none without Python.
    fn start(directory: &Path) -> Option<Self> {
        std::fs::create_dir_all(directory).expect("a folder");
        let mut child = Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"])
            .arg("--directory")
            .arg(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // "Serving HTTP on 127.0.0.1 port 41234 (http://127.0.0.1:41234/) ...", once it listens.
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("text");
        let port = line
            .split(" port ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse().ok());
        Some(Self {
            child,
            port: port.unwrap_or_else(|| panic!("no port in `{line}`")),
        })
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn there(tool: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {tool}")])
        .stdout(Stdio::null())
        .status();
    let there = found.is_ok_and(|status| status.success());
    if !there {
        eprintln!("skipped: {tool} is not there");
    }
    there
}

/// A call that prints its arguments.
fn reporting() -> TestScene {
    let argv = ["echo", "{source}", "{destination}"];
    TestScene::new().call_with("tell", &argv, json!({"local": "file://{path}"}))
}

fn words(output: &AgentOutput) -> Vec<String> {
    let text = output.transfer().stdout.as_ref().expect("captured");
    text.split_whitespace().map(str::to_owned).collect()
}

fn rejection(output: &AgentOutput) -> &str {
    let record = output.transfer();
    assert_eq!((record.outcome, record.start_s), (Outcome::Failed, None));
    record.error.as_deref().expect("a reason")
}

#[test]
fn a_download_through_a_real_server_is_prepared_checked_and_cleaned_by_the_agent() {
    let scene = TestScene::new().seeing();
    if !there("curl") {
        return;
    }
    let Some(server) = WebServer::start(&scene.far()) else {
        eprintln!("skipped: python3 is not there");
        return;
    };
    let argv = ["curl", "-sSf", "-o", "{destination}", "{source}"];
    let mut scene = scene
        .service(
            "web",
            "http",
            "http://127.0.0.1:{port}/{relative}",
            &[server.port],
        )
        .call_with("curl", &argv, json!({"expect": "destination"}))
        .dataset("set", 2, 2_000_000);
    scene.header["datasets"]["set"]["storage"] = json!("far");
    let steps = vec![
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 2, "cache": "as_is"}),
        json!({"step": "drop_caches", "dataset": "set", "first": 0, "files": 2}),
        with(
            transfer("curl", "far:set/000001", "disk:out/x", 2_000_000),
            json!({"source_via": "web/http"}),
        ),
    ];
    let scene = scene.actor("one", vec![trial(0, steps)]);
    let output = scene.run();
    let record = output.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes),
        (Outcome::Ok, Some(Bytes::new(2_000_000))),
        "{record:?}"
    );
    let via = record.source_via.as_ref().map(|via| via.as_str());
    assert_eq!((via, &record.destination_via), (Some("web/http"), &None));
    assert!(scene.far().join("set/000001").exists() && !scene.disk().join("out/x").exists());
    assert!(output.trials()[0].cache.is_some());
    let ready = output.ready();
    assert!(ready.free_bytes.contains_key("far") && ready.storages.contains_key("far"));
}

#[test]
fn an_upload_through_a_server_is_verified_and_removed_at_its_storage() {
    let scene = TestScene::new().seeing();
    if !there("curl") {
        return;
    }
    let left = scene.far().join("in/deep/x");
    std::fs::create_dir_all(left.parent().expect("a folder")).expect("made");
    std::fs::write(&left, "of a run that was killed").expect("written");
    let script = "test ! -e \"${{2#file://localhost}}\" && exec curl -sSf -T \"$1\" \"$2\"";
    let argv = ["sh", "-c", script, "sh", "{source}", "{destination}"];
    let scene = scene
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("curl", &argv, json!({"expect": "destination"}))
        .dataset("set", 1, 500_000);
    let upload = |name: &str, keep: bool| {
        let step = transfer("curl", "disk:set/000000", name, 500_000);
        with(step, json!({"destination_via": "files/file", "keep": keep}))
    };
    let steps = vec![
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"}),
        upload("far:in/deep/x", false),
        upload("far:kept", true),
    ];
    let scene = scene.actor("one", vec![trial(0, steps)]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Ok; 2], "{:#?}", output.values);
    assert_eq!(output.findings(), Vec::<String>::new());
    let received: Vec<_> = output
        .transfers()
        .iter()
        .map(|it| it.received_bytes)
        .collect();
    assert_eq!(received, [Some(Bytes::new(500_000)); 2]);
    assert!(!left.exists());
    let kept = scene.far().join("kept").metadata().expect("kept");
    assert_eq!(kept.len(), 500_000);
}

#[test]
fn late_writes_of_a_server_are_waited_for_and_reported() {
    // The writer leaves the process group of the tool before the tool ends, because a server is not
    // in this group either.
    let writer = "touch \"$0.left\"; sleep 0.2; head -c 1000 /dev/zero > \"$0\"";
    let script = format!(
        "to=\"${{{{1#file://localhost}}}}\"; setsid sh -c '{writer}' \"$to\" > /dev/null 2>&1 &
        until test -e \"$to.left\"; do sleep 0.01; done"
    );
    let scene = TestScene::new()
        .seeing()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with(
            "late",
            &["sh", "-c", &script, "sh", "{destination}"],
            json!({"expect": "destination"}),
        )
        .actor(
            "one",
            vec![trial(
                0,
                vec![with(
                    transfer("late", "zero:", "far:x", 1000),
                    json!({"destination_via": "files/file"}),
                )],
            )],
        );
    let output = scene.run();
    assert_eq!(
        (output.outcomes(), output.findings()),
        (vec![Outcome::Ok], vec!["receiver-late".to_owned()])
    );
    assert_eq!(output.transfer().received_bytes, Some(Bytes::new(1000)));
    assert!(!scene.far().join("x").exists());
}

#[test]
fn missing_files_are_short_and_all_of_a_trial_are_waited_for_together() {
    let transfers = (0..4).map(|number| {
        with(
            transfer("lie", "zero:", &format!("far:{number}"), 10),
            json!({"destination_via": "files/file"}),
        )
    });
    let scene = TestScene::new()
        .seeing()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("lie", &["true"], json!({"expect": "destination"}))
        .actor("one", vec![trial(0, transfers.collect())]);
    let output = scene.run();
    assert_eq!(output.outcomes(), [Outcome::Short; 4]);
    let venturi_plan::Record::Done(done) = output.last() else {
        panic!("{:?}", output.last())
    };
    let waited = done.time_s.get() - output.trials()[0].end_s.get();
    assert!((0.9..3.0).contains(&waited), "{waited} s");
}

#[test]
fn a_started_service_has_the_address_and_ports_of_the_session() {
    let check = |started: Option<serde_json::Value>, expected: &str| {
        let mut scene = reporting().service("s", "d", "http://{host}:{port}{path}", &[80]);
        scene.hosts.insert(
            "other".into(),
            json!({"scratch": "/scratch", "seen": false}),
        );
        if let Some(started) = started {
            scene.services.insert("s".into(), started);
        }
        let step = with(
            transfer("tell", "far:a/b", "null:", 0),
            json!({"source_via": "s/d", "slot": 1}),
        );
        let output = scene.actor("one", vec![trial(0, vec![step])]).run();
        assert_eq!(words(&output)[0], expected);
    };
    check(None, "http://other.lab.test:80/scratch/data/a/b");
    let started = json!({"address": "[fd00::2]", "ports": [50000, 50001]});
    check(Some(started), "http://[fd00::2]:50001/scratch/data/a/b");
}

#[test]
fn an_option_with_the_url_of_a_service_port_uses_the_session_address() {
    let argv = json!(["echo", ["-x", "{proxy}"], "{source}"]);
    let mut scene = TestScene::new().call("tell", &["echo"]).service(
        "squid",
        "http-proxy",
        "http://{host}:{port}",
        &[3128],
    );
    scene.header["calls"]["tell"]["argv"] = argv;
    scene.header["calls"]["tell"]["urls"] = json!({"proxy": "squid/http-proxy"});
    scene.services.insert(
        "squid".into(),
        json!({"address": "b.example.org", "ports": [50000]}),
    );
    let step = transfer("tell", "zero:", "null:", 0);
    let output = scene.actor("one", vec![trial(0, vec![step])]).run();
    assert_eq!(
        words(&output),
        ["-x", "http://b.example.org:50000", "/dev/zero"]
    );
}

#[test]
fn local_endpoints_have_the_format_of_the_call_and_devices_have_urls() {
    let check = |keys: serde_json::Value, destination: &str, expected: [&str; 2]| {
        let step = with(transfer("tell", "zero:", destination, 0), keys);
        let template = "gsiftp://a.lab.test:{port}{path}";
        let scene = reporting().seeing();
        let scene = scene.service("ftp", "gsiftp", template, &[2811, 2812]);
        let scene = scene.actor("one", vec![trial(0, vec![step])]);
        let scratch = scene.scratch.path().display().to_string();
        assert_eq!(
            words(&scene.run()),
            expected.map(|text| text.replace("SCRATCH", &scratch))
        );
    };
    let (zero, null) = ("file:///dev/zero", "file:///dev/null");
    check(json!({}), "disk:x", [zero, "file://SCRATCH/data/x"]);
    check(json!({}), "far:x", [zero, "file://SCRATCH/other/data/x"]);
    let (source, destination) = (
        json!({"source_via": "ftp/gsiftp", "slot": 3}),
        json!({"destination_via": "ftp/gsiftp"}),
    );
    let server = "gsiftp://a.lab.test:2812/dev/zero";
    check(source, "null:", [server, null]);
    let server = "gsiftp://a.lab.test:2811/dev/null";
    check(destination, "null:", [zero, server]);
}

#[test]
fn hosts_and_ports_of_urls_have_values_and_groups_without_values_are_omitted() {
    let argv = json!([
        "echo",
        "{source_host}",
        "{source_port}",
        ["to", "{destination_host}"]
    ]);
    let mut scene = TestScene::new()
        .seeing()
        .service(
            "iperf3",
            "iperf3",
            "iperf3://a.lab.test:{port}/",
            &[5201, 5202],
        )
        .call("ping", &["echo"]);
    scene.header["calls"]["ping"]["argv"] = argv;
    let step = with(
        transfer("ping", "far:x", "null:", 0),
        json!({"source_via": "iperf3/iperf3", "slot": 1}),
    );
    let output = scene.actor("one", vec![trial(0, vec![step])]).run();
    assert_eq!(words(&output), ["a.lab.test", "5202"]);
}

#[test]
fn a_receiver_on_an_unseen_host_is_not_checked() {
    let mut scene = TestScene::new()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("put", &["true"], json!({"expect": "destination"}));
    scene.header["storages"]["far"]["path"] = json!("/gpfs");
    let step = with(
        transfer("put", "zero:", "far:x", 10),
        json!({"destination_via": "files/file"}),
    );
    let output = scene.actor("one", vec![trial(0, vec![step])]).run();
    assert_eq!(
        (output.transfer().outcome, output.transfer().received_bytes),
        (Outcome::Ok, None)
    );
    assert_eq!(output.findings(), ["receiver-not-checked"]);
}

#[test]
fn a_local_endpoint_on_an_unseen_host_fails_with_the_remedy() {
    let fail = |source: &str, destination: &str| {
        let step = transfer("tell", source, destination, 10);
        let output = reporting().actor("one", vec![trial(0, vec![step])]).run();
        rejection(&output).to_owned()
    };
    assert_eq!(
        fail("zero:", "far:x"),
        "destination `far:x`: expected a storage of host `me`, where the tool runs, found a storage of \
         host `other`; set `destination_via` to a service that serves it"
    );
    let error = fail("far:x", "null:");
    assert!(
        error.starts_with("source `far:x`") && error.contains("`source_via`"),
        "{error}"
    );
}

#[test]
fn an_unknown_scratch_directory_fails_only_service_ports_with_absolute_paths() {
    let run = |template: &str| {
        let step = with(
            transfer("tell", "far:a/b", "null:", 0),
            json!({"source_via": "s/d"}),
        );
        let scene = reporting().service("s", "d", template, &[]);
        scene.actor("one", vec![trial(0, vec![step])]).run()
    };
    let error = rejection(&run("http://h{path}")).to_owned();
    assert!(
        error.contains("a scratch directory for host `other`") && error.contains("{relative}"),
        "{error}"
    );
    assert_eq!(words(&run("http://h/{relative}"))[0], "http://h/a/b");
}

#[test]
fn a_dataset_on_an_unseen_host_cannot_be_prepared() {
    let mut scene = TestScene::new().dataset("set", 1, 10);
    scene.header["datasets"]["set"]["storage"] = json!("far");
    let prepare =
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"});
    let output = scene.actor("one", vec![trial(0, vec![prepare])]).run();
    assert_eq!(output.findings(), ["prepare-failed"]);
    let evidence = &output.trials()[0].findings[0].evidence;
    assert!(
        evidence.contains("`other`") && evidence.contains("`me`"),
        "{evidence}"
    );
}
