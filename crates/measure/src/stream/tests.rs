use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Starts a server on loopback for some seconds and returns its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let deadline = Instant::now() + Duration::from_secs(20);
    std::thread::spawn(move || server::accept_until(&listener, TOKEN, deadline));
    port
}

fn arguments(port: u16) -> StreamRunArgs {
    StreamRunArgs {
        host: "127.0.0.1".to_owned(),
        port,
        direction: StreamDirection::Send,
        connections: 2,
        time_s: 0.4,
        omit_s: Some(0.1),
        bytes: None,
        max_rate: None,
    }
}

fn result_of(arguments: &StreamRunArgs, token: &str) -> serde_json::Value {
    let result = client::run(arguments, token).expect("a result");
    serde_json::to_value(result).expect("JSON")
}

#[test]
fn both_directions_count_the_bytes_of_the_receiver_in_the_requested_time() {
    let port = server();
    for direction in [StreamDirection::Send, StreamDirection::Receive] {
        let result = result_of(
            &StreamRunArgs {
                direction,
                ..arguments(port)
            },
            TOKEN,
        );
        let number = |path: &str| result.pointer(path).and_then(serde_json::Value::as_f64);
        let [duration_s, omitted_s] =
            ["/duration_s", "/omitted_s"].map(|path| number(path).expect("a number"));
        // Both moments can be late on a busy machine, but not early.
        assert!(
            omitted_s >= 0.1 && duration_s + omitted_s >= 0.4,
            "{result}"
        );
        assert!(number("/bytes") <= number("/total_bytes"), "{result}");
        assert!(
            number("/total_bytes") <= number("/sender/bytes"),
            "{result}"
        );
        assert_eq!(number("/receiver/bytes"), number("/total_bytes"));
        assert_eq!(
            result["sender"]["connections"].as_array().map(Vec::len),
            Some(2)
        );
        assert!(
            number("/sender/connections/0/min_rtt_s") < Some(1.0),
            "{result}"
        );
        assert!(
            number("/sender/connections/0/sent_bytes") > Some(0.0),
            "{result}"
        );
    }
}

#[test]
fn a_limit_of_bytes_ends_the_test_early_and_all_bytes_arrive() {
    let port = server();
    let result = result_of(
        &StreamRunArgs {
            bytes: Some(1_000_001),
            time_s: 15.0,
            omit_s: Some(5.0),
            ..arguments(port)
        },
        TOKEN,
    );
    assert_eq!(result["total_bytes"], 1_000_001);
    assert_eq!(
        result["bytes"], 1_000_001,
        "nothing is left out of so short a test"
    );
    assert!(result["duration_s"].as_f64() < Some(5.0), "{result}");
}

#[test]
fn a_client_without_the_token_gets_no_test() {
    let port = server();
    let error =
        client::run(&arguments(port), "ffffffffffffffffffffffffffffffff").expect_err("none");
    assert!(error.to_string().contains("token"), "{error}");
}

#[test]
fn a_host_without_an_address_is_an_error_with_a_next_step() {
    let arguments = StreamRunArgs {
        host: "host.invalid".to_owned(),
        ..arguments(1)
    };
    let error = client::run(&arguments, TOKEN).expect_err("no address");
    let text = error.to_string();
    assert!(
        text.starts_with("host.invalid: ") && text.contains("Check"),
        "{text}"
    );
}

#[test]
fn a_server_closes_connections_with_other_first_lines() {
    let port = server();
    for line in [
        "GET / HTTP/1.1\r\n\r\n",
        "{\"data\": {\"key\": \"\"}}\n",
        &"x".repeat(5000),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.write_all(line.as_bytes()).expect("written");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set");
        let mut reply = Vec::new();
        // A reset is an end too: the server did not read all.
        let _ = stream.read_to_end(&mut reply);
        assert!(reply.is_empty(), "{line}: {reply:?}");
    }
    assert!(result_of(&arguments(port), TOKEN)["bytes"].as_u64() > Some(0));
}

#[test]
fn a_second_test_at_the_same_time_is_rejected() {
    let port = server();
    let first = std::thread::spawn(move || {
        let long = StreamRunArgs {
            time_s: 1.5,
            ..arguments(port)
        };
        while client::run(&long, TOKEN).is_err() {}
    });
    // The first test has started when a second one is rejected; before that, it succeeds.
    let deadline = Instant::now() + Duration::from_secs(10);
    let rejected = loop {
        assert!(Instant::now() < deadline, "no test was rejected");
        let short = StreamRunArgs {
            time_s: 0.1,
            omit_s: Some(0.0),
            ..arguments(port)
        };
        if let Err(error) = client::run(&short, TOKEN) {
            break error.to_string();
        }
    };
    assert!(rejected.contains("another test is running"), "{rejected}");
    first.join().expect("the first test had a result");
}

#[test]
fn a_server_without_an_address_takes_a_port_of_its_range() {
    let taken = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    let taken = taken.expect("a port");
    let first = taken.local_addr().expect("bound").port();
    assert_eq!(
        parse_ports("50000-50100"),
        Ok(PortRange {
            first: 50000,
            last: 50100
        })
    );
    assert_eq!(
        parse_ports("80"),
        Ok(PortRange {
            first: 80,
            last: 80
        })
    );
    for wrong in ["", "a-b", "10-5", "0-5", "70000"] {
        assert!(parse_ports(wrong).is_err(), "{wrong}");
    }
    let arguments = StreamServeArgs {
        address: None,
        ports: Some(PortRange { first, last: first }),
        limit_s: 1,
    };
    let error = server::serve(&arguments, TOKEN).expect_err("the port is taken");
    assert!(error.to_string().contains(&first.to_string()), "{error}");
}

#[test]
fn a_rate_limit_holds_for_all_connections_together_in_both_directions() {
    let port = server();
    for direction in [StreamDirection::Send, StreamDirection::Receive] {
        let limited = StreamRunArgs {
            direction,
            time_s: 1.0,
            omit_s: Some(0.3),
            max_rate: Some(4_000_000),
            ..arguments(port)
        };
        let result = result_of(&limited, TOKEN);
        let rate = result["rate_bytes_per_s"].as_f64().expect("a rate");
        // Segments of 64 KiB arrive whole: some at each end of the time.
        assert!(rate > 0.0 && rate < 5_000_000.0, "{result}");
    }
}
