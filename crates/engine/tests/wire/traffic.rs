//! What gets through: datagrams, streams, offloaded datagrams, and how long it takes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::testkit::{Host, PATIENCE, Wire, is_possible, pair, wait};

/// Answers datagrams in `b` until the socket of the asker is silent for long.
pub fn echo(host: &Host) {
    let (ready, is_ready) = std::sync::mpsc::channel();
    host.run(move || {
        let socket = UdpSocket::bind("10.77.0.2:7").expect("a socket");
        std::thread::spawn(move || {
            ready.send(()).expect("somebody waits for it");
            let mut datagram = [0; 2000];
            while let Ok((length, from)) = socket.recv_from(&mut datagram) {
                let _ = socket.send_to(&datagram[..length], from); // the asker may have gone
            }
        });
    });
    wait(&is_ready);
}

/// Round trips of so many datagrams, sorted; those that did not come back within a bound are left out.
pub fn round_trips(host: &Host, count: usize, bound: Duration) -> Vec<Duration> {
    host.run(move || {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
        socket.connect("10.77.0.2:7").expect("an address");
        socket.set_read_timeout(Some(bound)).expect("a time");
        let mut times = Vec::new();
        for number in 0..count {
            let sent = Instant::now();
            let number = [u8::try_from(number).expect("few")];
            socket.send(&number).expect("it is sent");
            let mut answer = [0; 2];
            while let Ok(length) = socket.recv(&mut answer) {
                if answer[..length] == number {
                    times.push(sent.elapsed());
                    break;
                }
            }
        }
        times.sort_unstable();
        times
    })
}

/// Sends so many bytes of a known pattern from `a` to `b`; how long it took until the last was there.
pub fn transfer(wire: &Wire, bytes: usize) -> Duration {
    let listener = wire
        .b
        .run(|| TcpListener::bind("10.77.0.2:5000").expect("a socket"));
    let received = wire.b.begin(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut data = Vec::new();
        stream.read_to_end(&mut data).expect("data");
        data
    });
    let sent = Arc::new(pattern(bytes));
    let theirs = Arc::clone(&sent);
    let started = Instant::now();
    wire.a.run(move || {
        let mut stream = TcpStream::connect("10.77.0.2:5000").expect("a connection");
        stream.write_all(&theirs).expect("it is taken");
    });
    let data = wait(&received);
    let took = started.elapsed();
    assert_eq!(data.len(), bytes);
    assert!(data == *sent, "the bytes are those that were sent");
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
fn a_datagram_comes_back_after_the_delay_of_both_links() {
    if !is_possible() {
        return;
    }
    let wire = Wire::new(&pair(&json!({"delay_s": 0.015}), &json!({})), &json!({}));
    echo(&wire.b);
    let times = round_trips(&wire.a, 30, PATIENCE);
    assert_eq!(times.len(), 30, "none is lost");
    assert!(times[0] >= Duration::from_millis(20), "{times:?}");
    // The rest is waking up, of two hosts on a machine that may be busy.
    assert!(times[15] < Duration::from_millis(25), "{times:?}");
}

#[test]
fn a_stream_gets_the_rate_of_its_link_and_its_bytes_are_whole() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    let took = transfer(&wire, 10_000_000).as_secs_f64();
    // 100 Mb/s carry 1448 of 1500 bytes: 0.83 s, and slow start over 10 ms some round trips more.
    assert!(
        took > 10e6 * 8.0 / 1e8 * 1500.0 / 1448.0,
        "{took} s is faster than the link"
    );
    // A machine that is busy with other tests may take some times as long; a link of another rate would take ten times.
    assert!(took < 4.0, "{took} s");
    let done = wire.stop();
    assert!(done["links"]["there"]["busy_s"].as_f64().expect("a number") < took + 0.1);
    assert!(done["lateness"]["p50_s"].as_f64().expect("a number") < 0.005);
}

#[test]
fn a_stream_survives_loss_inside_super_packets_with_its_bytes_whole() {
    if !is_possible() {
        return;
    }
    // 1 Gb/s and 1 ms: super-packets of tens of segments, of which single ones go missing.
    let lossy = json!({"rate_bit_per_s": 1e9, "delay_s": 0.0005, "loss": {"kind": "independent", "probability": 0.01}});
    let mut wire = Wire::new(&pair(&lossy, &json!({})), &json!({}));
    wire.say(&json!({"command": "change", "link": "back", "set": {"rate_bit_per_s": 1e9, "delay_s": 0.0005}}));
    wire.wait_for("event");
    transfer(&wire, 20_000_000);
    let (segments, counters) = wire.settled();
    let count = |name: &str| counters[&format!("link.there.{name}")] as u64;
    assert_eq!(
        count("packets") + count("loss_drops") + count("queue_drops"),
        segments,
        "{counters:?}"
    );
    let share = count("loss_drops") as f64 / segments as f64;
    // About 14 000 segments: five standard errors of 0.01 are 0.0042.
    assert!((share - 0.01).abs() < 0.0045, "{counters:?}");
}

#[test]
fn offloaded_datagrams_arrive_one_by_one_also_where_a_run_of_them_is_cut() {
    if !is_possible() {
        return;
    }
    for rate in [1e7, 1e10] {
        let mut wire = Wire::new(
            &pair(&json!({"rate_bit_per_s": rate}), &json!({})),
            &json!({}),
        );
        let socket = wire
            .b
            .run(|| UdpSocket::bind("10.77.0.2:9").expect("a socket"));
        wire.a.run(|| {
            let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
            segment_by(&socket, 1000);
            let data: Vec<u8> = (0..9500).map(|index: usize| (index / 1000) as u8).collect();
            socket.send_to(&data, "10.77.0.2:9").expect("it is sent");
        });
        let lengths = wire.b.run(move || {
            socket.set_read_timeout(Some(PATIENCE)).expect("a time");
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
        let done = wire.stop();
        assert_eq!(done["links"]["there"]["packets"], 10);
        assert_eq!(done["links"]["there"]["bytes"], 10 * 28 + 9500);
    }
}

/// Has the kernel cut what is written into datagrams of this size.
fn segment_by(socket: &UdpSocket, bytes: libc::c_int) {
    // SAFETY: an option of an open socket; its value is alive for the call.
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
fn a_packet_too_long_for_its_way_is_answered_so_that_its_sender_learns_the_size() {
    if !is_possible() {
        return;
    }
    let mut network = pair(&json!({}), &json!({}));
    network["interfaces"]["b"]["mtu"] = json!(1400);
    let mut wire = Wire::new(&network, &json!({}));
    // The socket stays open: the kernel takes the answer only for one that it knows.
    let _socket = wire.a.run(|| {
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
        let sent = socket.send_to(&[0; 1472], "10.77.0.2:9");
        assert_eq!(sent.expect("it fits the device"), 1472);
        socket
    });
    let deadline = Instant::now() + PATIENCE;
    while !wire.a.sh("ip route get 10.77.0.2").contains("mtu 1400") {
        assert!(Instant::now() < deadline, "the sender learns the size");
    }
    assert_eq!(wire.sample()["wire.too_big"], 1.0);
}
