use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Returns a plan with one service on the host `me` and one on another host, with these ports.
fn servers(mine: u16, other: u16) -> PlanServers {
    let mut start = crate::testing::start("{}");
    for (name, host, port) in [("dtn", "me", mine), ("far", "you", other)] {
        let service = venturi_plan::Service {
            kind: "gridftp".into(),
            host: Some(host.into()),
            ports: vec![port],
            ..venturi_plan::Service::default()
        };
        start.header.services.insert(name.into(), service);
    }
    PlanServers::new(&start)
}

#[test]
fn processes_of_a_service_are_found_by_its_port_with_their_children() {
    let Ok(mut server) = Command::new("python3")
        .args([
            "-c",
            "import socket,subprocess\n\
             s=socket.create_server(('127.0.0.1',0))\n\
             child=subprocess.Popen(['sleep','600'])\n\
             print(s.getsockname()[1],child.pid,flush=True)\n\
             child.wait()",
        ])
        .stdout(Stdio::piped())
        .spawn()
    else {
        eprintln!("skipped: there is no python3 here");
        return;
    };
    let mut line = String::new();
    let output = server.stdout.take().expect("piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it prints");
    let numbers: Vec<u32> = line
        .split_ascii_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    let port = u16::try_from(numbers[0]).expect("a port");
    let servers = servers(port, port);
    assert!(servers.has_port(port));
    let found = servers.processes();
    let pids: Vec<_> = found.iter().map(|one| (&*one.service, &one.pids)).collect();
    assert_eq!(pids, [("dtn", &BTreeSet::from([server.id(), numbers[1]]))]);
    assert_eq!(found[0].missing, None);
    let kill = |pid: u32| {
        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)
    };
    kill(numbers[1]).expect("our child's child");
    server.wait().expect("our child");
}

#[test]
fn a_port_without_a_listener_is_reported_as_missing() {
    let reserved = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = reserved.local_addr().expect("bound").port();
    drop(reserved);
    let found = servers(port, 1).processes();
    assert!(found[0].pids.is_empty());
    let missing = found[0].missing.as_deref().expect("a reason");
    assert!(missing.contains(&port.to_string()), "{missing}");
}

#[test]
fn a_plan_without_services_here_is_empty() {
    let servers = PlanServers::new(&crate::testing::start("{}"));
    assert!(servers.is_empty() && servers.processes().is_empty());
}
