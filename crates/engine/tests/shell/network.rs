//! Ports, listeners, connections and conversations.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;

use serde_json::{Value, json};

use crate::testkit::{ENGINE, ShellProcess, scene, wait_until};

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("bound").port()
}

fn ports(result: &Value) -> Vec<u16> {
    serde_json::from_value(result["ports"].clone()).expect("ports")
}

#[test]
fn free_ports_can_be_used() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    for address in [Value::Null, json!("127.0.0.1")] {
        let result = shell.call(json!({"command": "free_ports", "count": 20, "address": address}));
        let mut found = ports(&result);
        let open: Vec<_> = found
            .iter()
            .map(|port| TcpListener::bind(("127.0.0.1", *port)).expect("it is free"))
            .collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), open.len());
    }
    let used = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let low = port(&used);
    let narrow = json!({"command": "free_ports", "count": 1, "low": low, "high": low, "address": "127.0.0.1"});
    assert_eq!(shell.kind(narrow), "other");
    for command in [
        json!({"command": "free_ports", "count": 0}),
        json!({"command": "free_ports", "count": 1, "low": 2000}),
        json!({"command": "free_ports", "count": 1, "low": 2000, "high": 1000}),
        json!({"command": "free_ports", "count": 1, "address": "localhost"}),
    ] {
        assert_eq!(shell.kind(command.clone()), "invalid", "{command}");
    }
}

#[test]
fn a_connection_to_a_listener_is_measured() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let listener =
        shell.call(json!({"command": "listen", "address": "127.0.0.1", "send_bytes": 8192}));
    let connect = json!({"command": "connect", "host": "localhost", "port": listener["port"], "count": 5,
        "send_bytes": 8192, "receive_bytes": 8192, "timeout_s": 30});
    let result = shell.call(connect.clone());
    let times: Vec<f64> = serde_json::from_value(result["times_s"].clone()).expect("times");
    assert!(
        times.len() == 5 && times.iter().all(|time_s| *time_s > 0.0),
        "{result}"
    );
    let rtt_s = result["rtt_s"].as_f64().expect("a time");
    assert!(rtt_s > 0.0 && rtt_s < 1.0);
    for (key, value) in [
        ("local_address", json!("127.0.0.1")),
        ("remote_address", json!("127.0.0.1")),
        ("interface", json!("lo")),
        ("interface_bit_per_s", Value::Null),
        ("family", json!("ipv4")),
    ] {
        assert_eq!(result[key], value, "{key}");
    }
    let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").expect("lo");
    let mtu: u64 = mtu.trim().parse().expect("a number");
    assert_eq!(result["path_mtu_bytes"], mtu.min(65_535));
    assert!(result["mss_bytes"].as_u64() < Some(mtu));
    assert_eq!(
        shell.call(json!({"command": "close", "listener": listener["listener"]})),
        json!({})
    );
    assert_eq!(
        shell.kind(json!({"command": "close", "listener": listener["listener"]})),
        "not_found"
    );
    let mut kind = String::new();
    wait_until("the end of the listener", || {
        let number = shell.send(connect.clone());
        let reply = shell.reply(number);
        kind = reply["error"]["kind"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        reply.get("error").is_some()
    });
    assert_eq!(kind, "refused");
}

#[test]
fn a_listener_uses_the_requested_ports() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let free = ports(&shell.call(json!({"command": "free_ports", "count": 1})))[0];
    let listener = shell.call(json!({"command": "listen", "low": free, "high": free}));
    assert_eq!(listener["port"], free);
    TcpStream::connect(("127.0.0.1", free)).expect("it listens on all addresses");
    assert_eq!(
        shell.kind(json!({"command": "listen", "port": free})),
        "exists"
    );
    assert_eq!(
        shell.kind(json!({"command": "listen", "port": free, "low": 1, "high": 2})),
        "invalid"
    );
}

#[test]
fn failed_connections_have_different_failure_kinds() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let closed = TcpListener::bind(("127.0.0.1", 0))
        .map(|listener| port(&listener))
        .expect("a port");
    let connect = |host: &str, port: u16| json!({"command": "connect", "host": host, "port": port, "timeout_s": 0.5});
    assert_eq!(shell.kind(connect("127.0.0.1", closed)), "refused");
    assert_eq!(
        shell.kind(connect("no-such-host.invalid", closed)),
        "unresolved"
    );
    assert_eq!(
        shell.kind(json!({"command": "connect", "host": "127.0.0.1", "port": closed, "count": 0})),
        "invalid"
    );

    // A server with a full queue does not reply.
    let full = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    // SAFETY: a system call on a descriptor that is open.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let _queued = TcpStream::connect(full.local_addr().expect("bound")).expect("one fits");
    assert_eq!(shell.kind(connect("127.0.0.1", port(&full))), "timeout");
}

#[test]
fn a_host_without_a_network_is_unreachable() {
    let scene = scene();
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--net",
        ENGINE,
        "shell",
        "--session",
        "test",
        "--sessions",
    ]);
    unshare.arg(scene.path().join("sessions"));
    let mut shell = ShellProcess::start_by(unshare);
    for host in ["127.0.0.1", "192.0.2.1"] {
        let connect = json!({"command": "connect", "host": host, "port": 1, "timeout_s": 5});
        assert_eq!(shell.kind(connect), "unreachable");
        let converse =
            json!({"command": "converse", "address": host, "port": 1, "lines": [], "timeout_s": 5});
        assert_eq!(shell.kind(converse), "unreachable");
    }
}

#[test]
fn a_peer_that_does_not_send_or_read_stalls_the_exchange() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    // Only the kernel accepts its connections.
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let connect = json!({"command": "connect", "host": "127.0.0.1", "port": port(&silent), "receive_bytes": 10,
        "timeout_s": 0.5});
    assert_eq!(shell.kind(connect), "stalled");
    let too_many = json!({"command": "connect", "host": "127.0.0.1", "port": port(&silent), "send_bytes": 1_000_000});
    assert_eq!(shell.kind(too_many), "invalid");
}

#[test]
fn a_conversation_has_one_reply_for_each_line() {
    let scene = scene();
    let mut shell = ShellProcess::start(&scene);
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let server_port = port(&server);
    let serving = std::thread::spawn(move || {
        let (client, _) = server.accept().expect("a client");
        let mut reader = BufReader::new(client);
        reader
            .get_mut()
            .write_all(b"220-welcome\r\n220 ready\r\n")
            .expect("a client");
        let mut line = String::new();
        reader.read_line(&mut line).expect("text");
        reader
            .get_mut()
            .write_all(b"331 password\r\n")
            .expect("a client");
        line
    });
    let converse = json!({"command": "converse", "address": "127.0.0.1", "port": server_port,
        "lines": [{"send": null}, {"send": "USER a"}, {"send": "PASS b"}], "timeout_s": 20});
    let result = shell.call(converse);
    assert_eq!(
        result,
        json!({"replies": ["220 ready", "331 password", ""]})
    );
    assert_eq!(serving.join().expect("no panic"), "USER a\r\n");

    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let converse = |port: u16, lines: Value| {
        json!({"command": "converse", "address": "127.0.0.1", "port": port,
        "lines": lines, "timeout_s": 0.3})
    };
    assert_eq!(
        shell.kind(converse(port(&silent), json!([{"send": null}]))),
        "timeout"
    );
    assert_eq!(
        shell.call(converse(port(&silent), json!([]))),
        json!({"replies": []})
    );
    let closed = TcpListener::bind(("127.0.0.1", 0))
        .map(|listener| port(&listener))
        .expect("a port");
    assert_eq!(shell.kind(converse(closed, json!([]))), "refused");
}
