//! Tests with real connections over the loopback device, compared with `ss`.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);
const INTERVAL_NS: u64 = NS_PER_S / 200;

/// A socket monitor whose records arrive through a channel.
struct Scene {
    sockets: SocketWatcher,
    records: Receiver<(u64, Vec<Socket>)>,
    seen: Vec<(u64, Socket)>,
}

impl Scene {
    fn start(filter: SocketFilter, interval_ns: u64) -> Self {
        let (sender, records) = mpsc::channel();
        let emit = move |time_ns, sockets| sender.send((time_ns, sockets)).is_ok();
        Self {
            sockets: SocketWatcher::start(filter, interval_ns, emit).expect("a thread"),
            records,
            seen: Vec::new(),
        }
    }

    /// Returns the first matching socket among reported and future sockets.
    fn find(&mut self, what: &str, fits: impl Fn(&Socket) -> bool) -> Socket {
        self.find_since(0, what, fits)
    }

    /// Like `find`, for sockets that were checked after this time.
    fn find_since(&mut self, ns: u64, what: &str, fits: impl Fn(&Socket) -> bool) -> Socket {
        let started = Instant::now();
        loop {
            let found = self
                .seen
                .iter()
                .find(|(time_ns, socket)| *time_ns >= ns && fits(socket));
            if let Some((_, socket)) = found {
                return socket.clone();
            }
            assert!(
                started.elapsed() < TIMEOUT,
                "{what} did not come: {:#?}",
                self.seen
            );
            let (time_ns, sockets) = self.records.recv_timeout(TIMEOUT).expect(what);
            self.seen
                .extend(sockets.into_iter().map(|socket| (time_ns, socket)));
        }
    }

    /// Returns all reported sockets, and the codes of the findings.
    fn finish(mut self) -> (Vec<Socket>, Vec<String>) {
        let findings = self.sockets.finish();
        for (time_ns, sockets) in self.records.iter() {
            self.seen
                .extend(sockets.into_iter().map(|socket| (time_ns, socket)));
        }
        let sockets = self.seen.into_iter().map(|(_, socket)| socket).collect();
        (
            sockets,
            findings.into_iter().map(|finding| finding.code).collect(),
        )
    }
}

/// Returns both ends of a connection, client first.
fn connection(ip: IpAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((ip, 0)).expect("a socket");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
    let (server, _) = listener.accept().expect("connected");
    (client, server)
}

/// Returns the addresses of the socket and its peer, in the form of a record.
fn ends(stream: &TcpStream) -> (String, String) {
    let local = stream.local_addr().expect("connected").to_string();
    (local, stream.peer_addr().expect("connected").to_string())
}

fn is(socket: &Socket, (local, remote): &(String, String)) -> bool {
    socket.local == *local && socket.remote == *remote
}

/// Send this many bytes to the other endpoint, which reads them all.
fn transfer(mut from: &TcpStream, mut to: &TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&vec![7; bytes]).expect("it is read"));
        to.read_exact(&mut vec![0; bytes]).expect("it is sent");
    });
}

/// Returns whether events of destroyed sockets are available. The kernel provides them to all
/// users, but a sandbox may block them.
fn may_have_changed() -> bool {
    let may = Netlink::open().is_ok_and(|changes| changes.join(DESTROYED).is_ok());
    if !may {
        eprintln!("skipped: no news of destroyed sockets can be had here");
    }
    may
}

fn check_final_counts(ip: IpAddr) {
    const BYTES: u64 = 3_000_000;
    // SYN and FIN have sequence numbers, and the kernel counts them if they are acknowledged.
    let is_all = |count: Option<Bytes>| (BYTES..=BYTES + 2).contains(&count.expect("told").get());
    // The interval is so long that only the events of their ends can report them.
    let mut scene = Scene::start(SocketFilter::All, 3600 * NS_PER_S);
    let (client, server) = connection(ip);
    transfer(&client, &server, BYTES as usize);
    let (of_client, of_server) = (ends(&client), ends(&server));
    drop((client, server));
    let sender = scene.find("the client's end", |socket| {
        socket.closed && is(socket, &of_client)
    });
    assert_eq!(sender.state, "closed");
    assert!(is_all(sender.acked_bytes), "{sender:?}");
    let repeated = sender.retransmitted_bytes.expect("told").get();
    assert_eq!(sender.sent_bytes, Some(Bytes::new(BYTES + repeated)));
    let receiver = scene.find("the server's end", |socket| {
        socket.closed && is(socket, &of_server)
    });
    assert!(is_all(receiver.received_bytes), "{receiver:?}");
    assert_eq!(receiver.sent_bytes, Some(Bytes::new(0)));
    let (all, findings) = scene.finish();
    let of_ours =
        |socket: &&Socket| socket.closed && (is(socket, &of_client) || is(socket, &of_server));
    assert_eq!(all.iter().filter(of_ours).count(), 2, "each is told once");
    assert_eq!(findings, Vec::<String>::new());
}

#[test]
fn a_closed_socket_reports_its_final_counters() {
    if may_have_changed() {
        check_final_counts(Ipv4Addr::LOCALHOST.into());
    }
}

#[test]
fn a_closed_ipv6_socket_reports_its_final_counters() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: this machine has no IPv6");
    } else if may_have_changed() {
        check_final_counts(Ipv6Addr::LOCALHOST.into());
    }
}

#[test]
fn counters_grow_between_samples_and_the_congestion_control_is_named() {
    let (client, server) = connection(Ipv4Addr::LOCALHOST.into());
    choose_congestion_control(&client, "reno");
    let own = ends(&client);
    let mut scene = Scene::start(SocketFilter::All, INTERVAL_NS);
    let mut before = scene.find("the connection", |socket| is(socket, &own));
    assert_eq!(before.state, "established");
    assert!(!before.closed);
    assert_eq!(before.congestion_control.as_deref(), Some("reno"));
    for _ in 0..3 {
        transfer(&client, &server, 100_000);
        let acked = before
            .acked_bytes
            .map(|acked| Bytes::new(acked.get() + 100_000));
        let after = scene.find_since(monotonic_ns(), "a later sample", |socket| {
            is(socket, &own) && socket.acked_bytes >= acked
        });
        assert_eq!(after.acked_bytes, acked);
        assert!(after.busy_s >= before.busy_s);
        before = after;
    }
    let rtt = before.rtt_s.expect("there were round trips");
    assert!(before.min_rtt_s.expect("likewise") <= rtt);
    assert!(before.cwnd_bytes >= before.mss_bytes);
    drop((client, server));
    if may_have_changed() {
        let last = scene.find("its end", |socket| socket.closed && is(socket, &own));
        assert_eq!(
            last.congestion_control.as_deref(),
            Some("reno"),
            "known from the samples"
        );
        assert_eq!(last.send_buffer_bytes, before.send_buffer_bytes);
    }
}

#[test]
fn open_ipv6_sockets_are_sampled_also_with_ipv4_addresses() {
    let Ok(listener) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else {
        eprintln!("skipped: this machine has no IPv6");
        return;
    };
    let port = listener.local_addr().expect("bound").port();
    for address in [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        let client = TcpStream::connect((address, port)).expect("listening");
        let (server, _) = listener.accept().expect("connected");
        transfer(&client, &server, 100_000);
        let (own, peer) = ends(&client);
        let mut scene = Scene::start(SocketFilter::All, INTERVAL_NS);
        let received = scene.find("the server's end", |socket| {
            is(socket, &(peer.clone(), own.clone()))
        });
        assert!(!received.closed);
        assert_eq!(received.received_bytes, Some(Bytes::new(100_000)));
        scene.finish();
    }
}

fn choose_congestion_control(stream: &TcpStream, name: &str) {
    let length = libc::socklen_t::try_from(name.len()).expect("short");
    // SAFETY: the kernel reads `name`, which is valid for its length.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            length,
        )
    };
    assert_eq!(set, 0, "reno is in every kernel, and for everybody");
}

/// Output of `ss` for the socket with this local address, by key: `cwnd`, `rtt` …
fn ss_output(local: &str) -> Option<String> {
    let output = Command::new("ss")
        .args(["-tinmOH", "src", local])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines()
        .find(|line| line.contains(local))
        .map(str::to_owned)
}

#[test]
fn ss_reports_the_same_counters() {
    let (client, server) = connection(Ipv4Addr::LOCALHOST.into());
    transfer(&client, &server, 1_000_000);
    transfer(&server, &client, 10_000);
    let own = ends(&client);
    // Values do not change after the last acknowledgement: two outputs of `ss` then agree, and the
    // sample is taken between them.
    let started = Instant::now();
    let (ours, theirs) = loop {
        let Some(before) = ss_output(&own.0) else {
            eprintln!("skipped: there is no `ss` of iproute2 here");
            return;
        };
        let mut scene = Scene::start(SocketFilter::All, 3600 * NS_PER_S);
        let ours = scene.find("the connection", |socket| is(socket, &own));
        scene.finish();
        let counts = |text: &str| text.split(" lastsnd").next().map(str::to_owned);
        if ss_output(&own.0).as_deref().and_then(counts) == counts(&before) {
            break (ours, before);
        }
        assert!(
            started.elapsed() < TIMEOUT,
            "the connection does not come to rest"
        );
    };
    let value = |key: &str| {
        let value = theirs
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(key));
        value
            .unwrap_or_else(|| panic!("no {key} in {theirs}"))
            .to_owned()
    };
    let number = |key: &str| value(key).parse::<u64>().expect("a number");
    let reported = |bytes: Option<Bytes>| bytes.expect("told").get();
    assert_eq!(reported(ours.mss_bytes), number("mss:"));
    assert_eq!(reported(ours.cwnd_bytes), number("cwnd:") * number("mss:"));
    assert_eq!(reported(ours.sent_bytes), number("bytes_sent:"));
    assert_eq!(reported(ours.acked_bytes), number("bytes_acked:"));
    assert_eq!(reported(ours.received_bytes), number("bytes_received:"));
    // ss 6.1 prints `rtt:0.053/0.026` and `minrtt:0.017`, in milliseconds.
    let us = |seconds: Option<venturi_plan::Seconds>| (seconds.expect("told").get() * 1e6).round();
    let rtt = value("rtt:");
    let rtt: Vec<f64> = rtt
        .split('/')
        .map(|ms| ms.parse::<f64>().expect("a number") * 1e3)
        .collect();
    assert_eq!(
        [us(ours.rtt_s), us(ours.rtt_var_s)],
        [rtt[0].round(), rtt[1].round()]
    );
    let min_rtt = value("minrtt:").parse::<f64>().expect("a number") * 1e3;
    assert_eq!(us(ours.min_rtt_s), min_rtt.round());
    let memory = value("skmem:(");
    let buffer = |key: &str| {
        let value = memory.split(',').find_map(|word| word.strip_prefix(key));
        value
            .expect("ss tells it")
            .parse::<u64>()
            .expect("a number")
    };
    assert_eq!(reported(ours.receive_buffer_bytes), buffer("rb"));
    assert_eq!(reported(ours.send_buffer_bytes), buffer("tb"));
    let congestion_control = ours.congestion_control.expect("told");
    assert!(
        theirs
            .split_ascii_whitespace()
            .any(|word| word == congestion_control)
    );
}

#[test]
fn only_sockets_of_processes_of_the_run_are_recorded() {
    const ALONE: &str = "VENTURI_TEST_ALONE";
    // In a separate process: a child that another test forks has this test's sockets, too, until its exec.
    if std::env::var_os(ALONE).is_none() {
        let name = "sockets::tests::only_sockets_of_processes_of_the_run_are_recorded";
        let this = std::env::current_exe().expect("it runs");
        let alone = Command::new(this)
            .args(["--exact", name])
            .env(ALONE, "1")
            .output();
        let alone = alone.expect("it runs");
        let reported = String::from_utf8_lossy(&alone.stdout);
        assert!(
            alone.status.success() && reported.contains("1 passed"),
            "{reported}"
        );
        return;
    }
    let no_servers = PlanServers::new(&crate::testing::start("{}"));
    let mut scene = Scene::start(SocketFilter::Run(no_servers), INTERVAL_NS);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = listener.local_addr().expect("bound").port();
    // A grandchild has the socket, and keeps it until it reads the end.
    let script =
        format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 >/dev/null; true'; true");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .expect("sh is there");
    let (mut server, _) = listener.accept().expect("it connects");
    let (ours, theirs) = (
        ends(&server),
        server.peer_addr().expect("connected").to_string(),
    );
    let started = scene.find("the client's end", |socket| socket.local == theirs);
    assert_eq!(started.state, "established");
    server.write_all(&[7; 1000]).expect("it reads");
    drop(server);
    assert!(child.wait().expect("our child").success());
    if may_have_changed() {
        let ended = scene.find("its final counts", |socket| {
            socket.closed && socket.local == theirs
        });
        assert!(
            (1000..=1001).contains(&ended.received_bytes.expect("told").get()),
            "{ended:?}"
        );
    }
    let (all, _) = scene.finish();
    assert!(
        !all.iter().any(|socket| is(socket, &ours)),
        "the test's own socket"
    );
}

/// Returns a plan with a server on a port of this host.
fn server_on(port: u16) -> PlanServers {
    let mut start = crate::testing::start("{}");
    let service = venturi_plan::Service {
        kind: "gridftp".into(),
        host: Some("me".into()),
        ports: vec![port],
        ..venturi_plan::Service::default()
    };
    start.header.services.insert("dtn".into(), service);
    PlanServers::new(&start)
}

#[test]
fn sockets_of_servers_of_the_plan_are_recorded_by_their_port() {
    // The server is not a child of this process, but this process.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = listener.local_addr().expect("bound").port();
    let mut scene = Scene::start(SocketFilter::Run(server_on(port)), INTERVAL_NS);
    let client = TcpStream::connect(("127.0.0.1", port)).expect("listening");
    let (server, _) = listener.accept().expect("connected");
    let (of_client, of_server) = (ends(&client), ends(&server));
    scene.find("the server's end", |socket| is(socket, &of_server));
    drop((client, server));
    if may_have_changed() {
        scene.find("its final counts", |socket| {
            socket.closed && is(socket, &of_server)
        });
    }
    let (all, _) = scene.finish();
    assert!(!all.iter().any(|socket| is(socket, &of_client)));
}

#[test]
fn unread_bytes_are_in_the_queues() {
    let (mut client, server) = connection(Ipv4Addr::LOCALHOST.into());
    client.set_nonblocking(true).expect("a flag");
    let block = vec![7; 1 << 16];
    let mut written = 0_u64;
    let full = Instant::now();
    // Wait until both buffers are full, because the kernel moves bytes between them for a short
    // time.
    while full.elapsed() < Duration::from_millis(300) {
        match client.write(&block) {
            Ok(count) => written += count as u64,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let (of_client, of_server) = (ends(&client), ends(&server));
    let readable = || {
        let mut count: libc::c_int = 0;
        // SAFETY: the kernel writes one number to `count`.
        unsafe { libc::ioctl(server.as_raw_fd(), libc::FIONREAD, &raw mut count) };
        u64::from(count.unsigned_abs())
    };
    let before = readable();
    let mut scene = Scene::start(SocketFilter::All, 3600 * NS_PER_S);
    let sender = scene.find("the client's end", |socket| is(socket, &of_client));
    let receiver = scene.find("the server's end", |socket| is(socket, &of_server));
    let after = readable();
    scene.finish();
    let value = |bytes: Option<Bytes>| bytes.expect("reported").get();
    let received = value(receiver.receive_queue_bytes);
    assert!(
        (before..=after).contains(&received),
        "{before} {received} {after}"
    );
    let queued = value(sender.send_queue_bytes);
    let unsent = value(sender.unsent_bytes);
    assert!(
        unsent <= queued && queued + received <= written,
        "{sender:?}"
    );
    assert!(queued > 0 && received > 0, "{sender:?} {receiver:?}");
    assert!(queued <= value(sender.send_buffer_bytes));
    // The sender is busy, mostly limited by the window of a peer that does not read.
    assert!(sender.receive_window_limited_s > Some(venturi_plan::Seconds::new(0.0)));
}

#[test]
fn sockets_closed_just_before_the_end_are_recorded() {
    if !may_have_changed() {
        return;
    }
    let scene = Scene::start(SocketFilter::All, 3600 * NS_PER_S);
    let ended: Vec<_> = (0..20)
        .map(|_| {
            let (client, server) = connection(Ipv4Addr::LOCALHOST.into());
            transfer(&client, &server, 1000);
            ends(&client)
        })
        .collect();
    let (all, _) = scene.finish();
    for own in ended {
        assert!(
            all.iter().any(|socket| socket.closed && is(socket, &own)),
            "{own:?}"
        );
    }
}

#[test]
fn rejected_records_are_reported_as_incomplete() {
    let (client, server) = connection(Ipv4Addr::LOCALHOST.into());
    let sockets =
        SocketWatcher::start(SocketFilter::All, INTERVAL_NS, |_, _| false).expect("a thread");
    let findings = sockets.finish();
    let codes: Vec<&str> = findings
        .iter()
        .map(|finding| finding.code.as_str())
        .collect();
    assert!(codes.contains(&"sockets-incomplete"), "{codes:?}");
    drop((client, server));
}
