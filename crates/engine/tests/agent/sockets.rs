//! Records of TCP sockets and control groups during a transfer over a real connection.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use venturi_plan::{Bytes, Outcome, Record, Socket};

use crate::testkit::{AgentOutput, AgentProcess, TestScene, bare, trial};

const BYTES: usize = 2_000_000;

/// Runs an agent with a call that reads from a test server, which retains half of the bytes until
/// the connection is in a sample. Returns the records of the agent and the address of the server.
fn download() -> (AgentOutput, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = listener.local_addr().expect("bound");
    let (keep_open, seen) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the call connects");
        stream.write_all(&vec![7; BYTES / 2]).expect("it reads");
        seen.recv().expect("it is seen");
        stream.write_all(&vec![7; BYTES / 2]).expect("it reads");
    });
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; cat <&3", address.port());
    let mut scene = TestScene::new()
        .call("get", &["bash", "-c", &script])
        .actor("one", vec![trial(0, vec![bare("get")])]);
    scene.header["calls"]["get"]["capture"] = json!(false);
    scene.header["measure"] = json!({"interval_s": 0.01, "counters": ["tcp"]});
    let agent = scene.start();
    agent.next("sockets");
    keep_open.send(()).expect("the server waits");
    let output = agent.finish();
    server.join().expect("it has sent all");
    assert_eq!(output.outcomes(), [Outcome::Ok]);
    assert_eq!(output.code, Some(0));
    (output, address)
}

/// Return all records of sockets, with repetitions.
fn sockets(output: &AgentOutput) -> Vec<&Socket> {
    let sockets = output.records.iter().filter_map(|record| match record {
        Record::Sockets(sockets) => Some(&sockets.sockets),
        _ => None,
    });
    sockets.flatten().collect()
}

/// Returns whether a count includes all bytes; SYN and FIN have sequence numbers, too.
fn is_all(count: Option<Bytes>) -> bool {
    let bytes = BYTES as u64;
    count.is_some_and(|count| (bytes..=bytes + 2).contains(&count.get()))
}

#[test]
fn both_ends_of_a_connection_report_final_counters_in_a_network_namespace() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a network namespace");
        return;
    }
    // Limit this thread and its children.
    let output = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may");
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.expect("iproute2 is there").success());
        download()
    });
    let (output, server) = output.join().expect("no panic");
    let server = server.to_string();
    let sockets = sockets(&output);
    let closed = |fits: &dyn Fn(&Socket) -> bool| {
        let mut ends = sockets
            .iter()
            .filter(|socket| socket.closed && fits(socket));
        let end = ends
            .next()
            .unwrap_or_else(|| panic!("no end: {sockets:#?}"));
        assert!(ends.next().is_none(), "each is recorded once: {sockets:#?}");
        *end
    };
    let sender = closed(&|socket| socket.local == server);
    let receiver = closed(&|socket| socket.remote == server);
    assert!(is_all(sender.acked_bytes), "{sender:?}");
    assert!(is_all(receiver.received_bytes), "{receiver:?}");
    // A busy machine can be late with the samples of the counters (`samples-late`).
    let findings = output.findings();
    let of_sockets = |code: &&String| code.starts_with("sockets");
    assert_eq!(findings.iter().find(of_sockets), None, "{findings:?}");
}

#[test]
fn only_sockets_of_started_processes_are_reported_without_a_namespace() {
    let (output, server) = download();
    let server = server.to_string();
    let sockets = sockets(&output);
    let others = sockets.iter().filter(|socket| socket.remote != server);
    assert_eq!(
        others.count(),
        0,
        "the server is no child of the agent: {sockets:#?}"
    );
    let last = sockets.last().expect("told");
    assert!(last.closed && is_all(last.received_bytes), "{last:?}");
}

/// Returns a directory of the control groups that counts CPU time, if they are mounted.
fn cpu_directory() -> Option<&'static str> {
    let directories = [
        "/sys/fs/cgroup/cpuacct",
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup",
    ];
    let counts = |directory: &&str| {
        Path::new(directory).join("cpuacct.usage_user").exists()
            || std::fs::read_to_string(Path::new(directory).join("cpu.stat"))
                .is_ok_and(|text| text.contains("user_usec"))
    };
    directories.into_iter().find(counts)
}

#[test]
fn counters_of_a_control_group_are_sampled_and_a_wrong_directory_is_reported() {
    let Some(directory) = cpu_directory() else {
        eprintln!("skipped: no control groups are mounted");
        return;
    };
    let mut scene = TestScene::new();
    scene.header["measure"] = json!({"interval_s": 0.01, "counters": []});
    let output = |directory: &str| {
        let mut agent = AgentProcess::spawn();
        agent.command(json!({"command": "start", "host": "me", "scratch": scene.scratch.path(), "header": scene.header,
            "epoch_unix_ns": 1, "skip": [], "search": [], "cgroups": {"cpu": directory}}));
        agent.command(
            json!({"command": "actor", "line": {"actor": "a", "host": "me", "steps": [
            {"step": "pause", "duration_s": 0.1}]}}),
        );
        agent.command(json!({"command": "go"}));
        agent.finish()
    };
    let right = output(directory);
    let sampled = |output: &AgentOutput, key: &str| {
        output.values.iter().any(|value| {
            value["counters"][key]
                .as_f64()
                .is_some_and(|value| value > 0.0)
        })
    };
    assert!(
        sampled(&right, "cgroup.cpu.user_s") && sampled(&right, "cgroup.cpu.system_s"),
        "{:#?}",
        right.values
    );
    assert!(!right.findings().contains(&"cgroup-unreadable".to_owned()));
    let wrong = output("/proc");
    assert!(
        wrong.findings().contains(&"cgroup-unreadable".to_owned()),
        "{:#?}",
        wrong.values
    );
    assert!(!sampled(&wrong, "cgroup.cpu.user_s"));
}
