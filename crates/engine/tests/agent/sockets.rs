//! What the agent tells of TCP sockets and control groups, beside a transfer over a real connection.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use venturi_plan::{Bytes, Outcome, Record, Socket};

use crate::testkit::{Agent, Scene, Told, bare, trial};

const BYTES: usize = 2_000_000;

/// Lets an agent carry out a call that reads from a server of ours, which keeps half of the bytes back until the connection was
/// in a sample. Returns what the agent told afterwards, and the server's address.
fn download() -> (Told, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = listener.local_addr().expect("bound");
    let (go_on, seen) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the call connects");
        stream.write_all(&vec![7; BYTES / 2]).expect("it reads");
        seen.recv().expect("it is seen");
        stream.write_all(&vec![7; BYTES / 2]).expect("it reads");
    });
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; cat <&3", address.port());
    let mut scene = Scene::new()
        .call("get", &["bash", "-c", &script])
        .actor("one", vec![trial(0, vec![bare("get")])]);
    scene.header["calls"]["get"]["capture"] = json!(false);
    scene.header["measure"] = json!({"interval_s": 0.01, "counters": ["tcp"]});
    let agent = scene.start();
    agent.next("sockets");
    go_on.send(()).expect("the server waits");
    let told = agent.finish();
    server.join().expect("it has sent all");
    assert_eq!(told.outcomes(), [Outcome::Ok]);
    assert_eq!(told.code, Some(0));
    (told, address)
}

/// All sockets that were told, each as often as it was.
fn sockets(told: &Told) -> Vec<&Socket> {
    let sockets = told.records.iter().filter_map(|record| match record {
        Record::Sockets(sockets) => Some(&sockets.sockets),
        _ => None,
    });
    sockets.flatten().collect()
}

/// SYN and FIN have a place in the sequence of bytes.
fn is_all(count: Option<Bytes>) -> bool {
    let bytes = BYTES as u64;
    count.is_some_and(|count| (bytes..=bytes + 2).contains(&count.get()))
}

#[test]
fn in_a_network_of_its_own_both_ends_of_a_connection_leave_their_final_counts() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a network namespace");
        return;
    }
    // Of this thread, and of what it starts.
    let told = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may");
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.expect("iproute2 is there").success());
        download()
    });
    let (told, server) = told.join().expect("no panic");
    let server = server.to_string();
    let sockets = sockets(&told);
    let closed = |fits: &dyn Fn(&Socket) -> bool| {
        let mut ends = sockets
            .iter()
            .filter(|socket| socket.closed && fits(socket));
        let end = ends
            .next()
            .unwrap_or_else(|| panic!("no end: {sockets:#?}"));
        assert!(ends.next().is_none(), "each is told once: {sockets:#?}");
        *end
    };
    let sender = closed(&|socket| socket.local == server);
    let receiver = closed(&|socket| socket.remote == server);
    assert!(is_all(sender.acked_bytes), "{sender:?}");
    assert!(is_all(receiver.received_bytes), "{receiver:?}");
    assert!(told.findings().is_empty(), "{:?}", told.findings());
}

#[test]
fn on_a_machine_only_the_ends_of_what_was_started_are_told() {
    let (told, server) = download();
    let server = server.to_string();
    let sockets = sockets(&told);
    let others = sockets.iter().filter(|socket| socket.remote != server);
    assert_eq!(
        others.count(),
        0,
        "the server is no child of the agent: {sockets:#?}"
    );
    let last = sockets.last().expect("told");
    assert!(last.closed && is_all(last.received_bytes), "{last:?}");
}

/// A folder of the machine's control groups that counts processor time, if they are mounted.
fn cpu_folder() -> Option<&'static str> {
    let folders = [
        "/sys/fs/cgroup/cpuacct",
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup",
    ];
    let counts = |folder: &&str| {
        Path::new(folder).join("cpuacct.usage_user").exists()
            || std::fs::read_to_string(Path::new(folder).join("cpu.stat"))
                .is_ok_and(|text| text.contains("user_usec"))
    };
    folders.into_iter().find(counts)
}

#[test]
fn counters_of_a_control_group_are_sampled_and_a_wrong_folder_is_told() {
    let Some(folder) = cpu_folder() else {
        eprintln!("skipped: no control groups are mounted");
        return;
    };
    let mut scene = Scene::new();
    scene.header["measure"] = json!({"interval_s": 0.01, "counters": []});
    let told = |folder: &str| {
        let mut agent = Agent::spawn();
        agent.command(json!({"command": "start", "host": "me", "scratch": scene.scratch.path(), "header": scene.header,
            "epoch_unix_ns": 1, "skip": [], "search": [], "cgroups": {"cpu": folder}}));
        agent.command(
            json!({"command": "actor", "line": {"actor": "a", "host": "me", "steps": [
            {"step": "pause", "duration_s": 0.1}]}}),
        );
        agent.command(json!({"command": "go"}));
        agent.finish()
    };
    let right = told(folder);
    let sampled = |told: &Told, key: &str| {
        told.values.iter().any(|value| {
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
    assert!(!right.findings().contains(&"cgroup-not-read".to_owned()));
    let wrong = told("/proc");
    assert!(
        wrong.findings().contains(&"cgroup-not-read".to_owned()),
        "{:#?}",
        wrong.values
    );
    assert!(!sampled(&wrong, "cgroup.cpu.user_s"));
}
