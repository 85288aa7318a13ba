//! Ends of transfers behind the doors of services: real clients and servers, files of other hosts on this machine.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use venturi_plan::{Bytes, Outcome};

use crate::testkit::{Scene, Told, transfer, trial, with};

/// A web server on this machine, gone with the value.
struct WebServer {
    child: Child,
    port: u16,
}

impl WebServer {
    /// Serves the files of a directory; none where there is no Python.
    fn start(folder: &Path) -> Option<Self> {
        std::fs::create_dir_all(folder).expect("a folder");
        let mut child = Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"])
            .arg("--directory")
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // "Serving HTTP on 127.0.0.1 port 41234 (http://127.0.0.1:41234/) ...", once it listens.
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("a pipe"));
        told.read_line(&mut line).expect("text");
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

/// A call that tells what it was given.
fn telling() -> Scene {
    let argv = ["echo", "{source}", "{destination}"];
    Scene::new().call_with("tell", &argv, json!({"local": "file://{path}"}))
}

fn words(told: &Told) -> Vec<String> {
    let text = told.transfer().stdout.as_ref().expect("captured");
    text.split_whitespace().map(str::to_owned).collect()
}

fn refusal(told: &Told) -> &str {
    let record = told.transfer();
    assert_eq!((record.outcome, record.start_s), (Outcome::Failed, None));
    record.error.as_deref().expect("a reason")
}

#[test]
fn a_download_through_a_real_server_is_prepared_checked_and_cleaned_from_here() {
    let scene = Scene::new().seeing();
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
    scene.header["datasets"]["set"]["place"] = json!("far");
    let steps = vec![
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 2, "cache": "as_is"}),
        json!({"step": "drop_caches", "dataset": "set", "first": 0, "files": 2}),
        with(
            transfer("curl", "far:set/000001", "disk:out/x", 2_000_000),
            json!({"source_via": "web/http"}),
        ),
    ];
    let scene = scene.actor("one", vec![trial(0, steps)]);
    let told = scene.run();
    let record = told.transfer();
    assert_eq!(
        (record.outcome, record.received_bytes),
        (Outcome::Ok, Some(Bytes::new(2_000_000))),
        "{record:?}"
    );
    let via = record.source_via.as_ref().map(|via| via.as_str());
    assert_eq!((via, &record.destination_via), (Some("web/http"), &None));
    assert!(scene.far().join("set/000001").exists() && !scene.disk().join("out/x").exists());
    assert!(told.trials()[0].cache.is_some());
    let ready = told.ready();
    assert!(ready.free_bytes.contains_key("far") && ready.places.contains_key("far"));
}

#[test]
fn an_upload_through_a_server_is_proved_and_removed_where_the_server_has_put_it() {
    let scene = Scene::new().seeing();
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
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Ok; 2], "{:#?}", told.values);
    assert_eq!(told.findings(), Vec::<String>::new());
    let received: Vec<_> = told
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
fn what_a_server_writes_late_is_waited_for_and_told() {
    // The writer leaves the tool's process group before the tool ends: a server is not in it either.
    let writer = "touch \"$0.left\"; sleep 0.2; head -c 1000 /dev/zero > \"$0\"";
    let script = format!(
        "to=\"${{{{1#file://localhost}}}}\"; setsid sh -c '{writer}' \"$to\" > /dev/null 2>&1 &
        until test -e \"$to.left\"; do sleep 0.01; done"
    );
    let scene = Scene::new()
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
    let told = scene.run();
    assert_eq!(
        (told.outcomes(), told.findings()),
        (vec![Outcome::Ok], vec!["receiver-late".to_owned()])
    );
    assert_eq!(told.transfer().received_bytes, Some(Bytes::new(1000)));
    assert!(!scene.far().join("x").exists());
}

#[test]
fn what_no_server_writes_is_short_and_all_of_a_trial_wait_for_one_second_together() {
    let transfers = (0..4).map(|number| {
        with(
            transfer("lie", "zero:", &format!("far:{number}"), 10),
            json!({"destination_via": "files/file"}),
        )
    });
    let scene = Scene::new()
        .seeing()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("lie", &["true"], json!({"expect": "destination"}))
        .actor("one", vec![trial(0, transfers.collect())]);
    let told = scene.run();
    assert_eq!(told.outcomes(), [Outcome::Short; 4]);
    let venturi_plan::Record::Done(done) = told.last() else {
        panic!("{:?}", told.last())
    };
    let waited = done.time_s.get() - told.trials()[0].end_s.get();
    assert!((0.9..3.0).contains(&waited), "{waited} s");
}

#[test]
fn a_local_end_is_written_as_the_call_wants_it_and_a_device_has_a_url_too() {
    let check = |keys: serde_json::Value, destination: &str, expected: [&str; 2]| {
        let step = with(transfer("tell", "zero:", destination, 0), keys);
        let template = "gsiftp://a.lab.test:{port}{path}";
        let scene = telling().seeing();
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
fn host_and_port_of_a_url_have_values_and_a_group_without_them_is_left_out() {
    let argv = json!([
        "echo",
        "{source_host}",
        "{source_port}",
        ["to", "{destination_host}"]
    ]);
    let mut scene = Scene::new()
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
    let told = scene.actor("one", vec![trial(0, vec![step])]).run();
    assert_eq!(words(&told), ["a.lab.test", "5202"]);
}

#[test]
fn a_receiver_on_a_host_that_is_not_seen_is_not_judged_from_here() {
    let mut scene = Scene::new()
        .service("files", "file", "file://localhost{path}", &[])
        .call_with("put", &["true"], json!({"expect": "destination"}));
    scene.header["places"]["far"]["path"] = json!("/gpfs");
    let step = with(
        transfer("put", "zero:", "far:x", 10),
        json!({"destination_via": "files/file"}),
    );
    let told = scene.actor("one", vec![trial(0, vec![step])]).run();
    assert_eq!(
        (told.transfer().outcome, told.transfer().received_bytes),
        (Outcome::Ok, None)
    );
    assert_eq!(told.findings(), ["receiver-not-checked"]);
}

#[test]
fn a_local_end_on_a_host_that_is_not_seen_is_a_failure_that_names_the_remedy() {
    let fail = |source: &str, destination: &str| {
        let step = transfer("tell", source, destination, 10);
        let told = telling().actor("one", vec![trial(0, vec![step])]).run();
        refusal(&told).to_owned()
    };
    assert_eq!(
        fail("zero:", "far:x"),
        "destination `far:x`: expected a place of host `me`, where the tool runs, found one of `other`; give the transfer a \
         `destination_via`, a service that serves it"
    );
    let error = fail("far:x", "null:");
    assert!(
        error.starts_with("source `far:x`") && error.contains("`source_via`"),
        "{error}"
    );
}

#[test]
fn a_door_that_needs_an_unknown_scratch_directory_is_a_failure_and_one_by_relative_path_is_not() {
    let run = |template: &str| {
        let step = with(
            transfer("tell", "far:a/b", "null:", 0),
            json!({"source_via": "s/d"}),
        );
        let scene = telling().service("s", "d", template, &[]);
        scene.actor("one", vec![trial(0, vec![step])]).run()
    };
    let error = refusal(&run("http://h{path}")).to_owned();
    assert!(
        error.contains("the scratch directory of host `other`") && error.contains("{relative}"),
        "{error}"
    );
    assert_eq!(words(&run("http://h/{relative}"))[0], "http://h/a/b");
}

#[test]
fn a_data_set_on_a_host_that_is_not_seen_cannot_be_prepared_from_here() {
    let mut scene = Scene::new().dataset("set", 1, 10);
    scene.header["datasets"]["set"]["place"] = json!("far");
    let prepare =
        json!({"step": "prepare", "dataset": "set", "first": 0, "files": 1, "cache": "as_is"});
    let told = scene.actor("one", vec![trial(0, vec![prepare])]).run();
    assert_eq!(told.findings(), ["prepare-failed"]);
    let evidence = &told.trials()[0].findings[0].evidence;
    assert!(
        evidence.contains("`other`") && evidence.contains("`me`"),
        "{evidence}"
    );
}
