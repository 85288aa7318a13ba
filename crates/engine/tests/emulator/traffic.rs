//! Traffic through the network: datagrams, streams, offloaded datagrams, and their times.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::testkit::{EmulatorProcess, TIMEOUT, TestHost, is_possible, pair, wait};

/// Replies to datagrams on a host until no more arrive for a while.
pub fn echo(host: &TestHost) {
    let (ready, is_ready) = std::sync::mpsc::channel();
    host.run(move || {
        let socket = UdpSocket::bind("10.77.0.2:7").expect("a socket");
        std::thread::spawn(move || {
            ready.send(()).expect("somebody waits for it");
            let mut datagram = [0; 2000];
            while let Ok((length, from)) = socket.recv_from(&mut datagram) {
                let _ = socket.send_to(&datagram[..length], from); // the sender may have exited
            }
        });
    });
    wait(&is_ready);
}

/// Returns the sorted round-trip times of `count` datagrams, without datagrams that did not return
/// within `bound`.
pub fn round_trips(host: &TestHost, count: usize, bound: Duration) -> Vec<Duration> {
    host.run(move || {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
        socket.connect("10.77.0.2:7").expect("an address");
        socket.set_read_timeout(Some(bound)).expect("a time");
        let mut times = Vec::new();
        for number in 0..count {
            let sent = Instant::now();
            let number = [u8::try_from(number).expect("few")];
            socket.send(&number).expect("it is sent");
            let mut reply = [0; 2];
            while let Ok(length) = socket.recv(&mut reply) {
                if reply[..length] == number {
                    times.push(sent.elapsed());
                    break;
                }
            }
        }
        times.sort_unstable();
        times
    })
}

/// Sends `bytes` bytes of a known pattern from `a` to `b`; returns the time until the last byte
/// arrived.
pub fn transfer(emulator: &EmulatorProcess, bytes: usize) -> Duration {
    let listener = emulator
        .b
        .run(|| TcpListener::bind("10.77.0.2:5000").expect("a socket"));
    let received = emulator.b.start(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
        let mut data = Vec::new();
        stream.read_to_end(&mut data).expect("data");
        data
    });
    let sent = Arc::new(pattern(bytes));
    let theirs = Arc::clone(&sent);
    let started = Instant::now();
    emulator.a.run(move || {
        let mut stream = TcpStream::connect("10.77.0.2:5000").expect("a connection");
        stream.write_all(&theirs).expect("it is taken");
    });
    let data = wait(&received);
    let took = started.elapsed();
    assert_eq!(data.len(), bytes);
    assert!(data == *sent, "the received bytes equal the sent bytes");
    took
}

fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn a_datagram_returns_after_the_delay_of_both_links() {
    if !is_possible() {
        return;
    }
    let emulator = EmulatorProcess::new(&pair(&json!({"delay_s": 0.015}), &json!({})), &json!({}));
    echo(&emulator.b);
    let times = round_trips(&emulator.a, 30, TIMEOUT);
    assert_eq!(times.len(), 30, "none is lost");
    assert!(times[0] >= Duration::from_millis(20), "{times:?}");
    // The rest is the wake-up time of two hosts on a possibly busy machine.
    assert!(times[15] < Duration::from_millis(25), "{times:?}");
}

#[test]
fn a_stream_runs_at_the_rate_of_its_link_with_intact_bytes() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    let took = transfer(&emulator, 10_000_000).as_secs_f64();
    // 100 Mb/s with 1448 of 1500 bytes as payload: 0.83 s, and some round trips of 10 ms for slow
    // start.
    assert!(
        took > 10e6 * 8.0 / 1e8 * 1500.0 / 1448.0,
        "{took} s is faster than the link"
    );
    // A machine with other tests can take several times as long; a link with another rate would
    // take ten times as long.
    assert!(took < 4.0, "{took} s");
    let done = emulator.stop();
    assert!(done["links"]["there"]["busy_s"].as_f64().expect("a number") < took + 0.1);
    assert!(done["lateness"]["p50_s"].as_f64().expect("a number") < 0.005);
}

#[test]
fn a_stream_survives_loss_inside_super_packets_with_intact_bytes() {
    if !is_possible() {
        return;
    }
    // 1 Gb/s and 1 ms: super-packets of tens of segments, with the loss of single segments.
    let lossy = json!({"rate_bit_per_s": 1e9, "delay_s": 0.0005, "loss": {"kind": "independent", "probability": 0.01}});
    let mut emulator = EmulatorProcess::new(&pair(&lossy, &json!({})), &json!({}));
    emulator.send(&json!({"command": "change", "link": "back", "set": {"rate_bit_per_s": 1e9, "delay_s": 0.0005}}));
    emulator.wait_for("event");
    transfer(&emulator, 20_000_000);
    let (segments, counters) = emulator.final_counters();
    let count = |name: &str| counters[&format!("link.there.{name}")] as u64;
    assert_eq!(
        count("packets") + count("loss_drops") + count("queue_drops"),
        segments,
        "{counters:?}"
    );
    let fraction = count("loss_drops") as f64 / segments as f64;
    // About 14 000 segments: five standard errors of 0.01 are 0.0042.
    assert!((fraction - 0.01).abs() < 0.0045, "{counters:?}");
}

#[test]
fn offloaded_datagrams_arrive_one_by_one_even_if_a_run_of_them_is_split() {
    if !is_possible() {
        return;
    }
    for rate in [1e7, 1e10] {
        let mut emulator = EmulatorProcess::new(
            &pair(&json!({"rate_bit_per_s": rate}), &json!({})),
            &json!({}),
        );
        let socket = emulator
            .b
            .run(|| UdpSocket::bind("10.77.0.2:9").expect("a socket"));
        emulator.a.run(|| {
            let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
            segment_by(&socket, 1000);
            let data: Vec<u8> = (0..9500).map(|index: usize| (index / 1000) as u8).collect();
            socket.send_to(&data, "10.77.0.2:9").expect("it is sent");
        });
        let lengths = emulator.b.run(move || {
            socket.set_read_timeout(Some(TIMEOUT)).expect("a time");
            let mut datagram = [0; 20_000];
            (0..10_u8)
                .map(|number| {
                    let length = socket.recv(&mut datagram).expect("a datagram");
                    assert!(datagram[..length].iter().all(|byte| *byte == number));
                    length
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(lengths, [[1000; 9].as_slice(), &[500]].concat());
        let done = emulator.stop();
        assert_eq!(done["links"]["there"]["packets"], 10);
        assert_eq!(done["links"]["there"]["bytes"], 10 * 28 + 9500);
    }
}

/// Makes the kernel split written data into datagrams of this size.
fn segment_by(socket: &UdpSocket, bytes: libc::c_int) {
    // SAFETY: an option of an open socket; its value is valid during the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const bytes).cast(),
            libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("4"),
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_packet_too_long_for_its_route_gets_a_reply_with_the_maximum_size() {
    if !is_possible() {
        return;
    }
    let mut network = pair(&json!({}), &json!({}));
    network["interfaces"]["b"]["mtu"] = json!(1400);
    let mut emulator = EmulatorProcess::new(&network, &json!({}));
    // The socket stays open, because the kernel accepts the response only for an existing socket.
    let _socket = emulator.a.run(|| {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
        let sent = socket.send_to(&[0; 1472], "10.77.0.2:9");
        assert_eq!(sent.expect("it fits the device"), 1472);
        socket
    });
    let deadline = Instant::now() + TIMEOUT;
    while !emulator.a.sh("ip route get 10.77.0.2").contains("mtu 1400") {
        assert!(Instant::now() < deadline, "the sender learns the size");
    }
    assert_eq!(emulator.sample()["emulator.too_big"], 1.0);
}
