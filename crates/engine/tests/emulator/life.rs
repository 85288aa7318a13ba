//! Start, end and errors of an emulator.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::testkit::{EmulatorProcess, TIMEOUT, is_possible, pair};
use crate::traffic::{echo, round_trips};

#[test]
fn an_emulator_without_its_controller_ends_and_removes_its_devices() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    assert!(emulator.a.sh("ip link show").contains("eth0"));
    emulator.leave();
    assert_eq!(emulator.ended().code(), Some(1));
    assert!(!emulator.a.sh("ip link show").contains("eth0"));
}

#[test]
fn a_signal_ends_the_emulator_with_the_exit_code_of_the_signal() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    kill(emulator.pid(), Signal::SIGTERM).expect("our child");
    assert_eq!(emulator.ended().code(), Some(128 + 15));
}

#[test]
fn errors_are_reported_with_the_expected_value() {
    if !is_possible() {
        return;
    }
    let network = pair(&json!({}), &json!({}));
    let start = |network: &Value, namespaces: Value| {
        json!({
            "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": network, "namespaces": namespaces,
        })
    };
    let mut slow = network.clone();
    slow["links"]["there"]["rate_bit_per_s"] = json!(0);
    for (command, expected) in [
        (
            json!({"command": "go"}),
            "expected `start` as the first command",
        ),
        (json!({"command": "dance"}), "unknown variant `dance`"),
        (
            start(&network, json!({})),
            "expected a path for host `a` (interface `a`), found none",
        ),
        (
            start(&network, json!({"a": "/nowhere", "b": "/nowhere"})),
            "the namespace /nowhere: No such file",
        ),
        (
            start(&slow, json!({})),
            "network.links.there.rate_bit_per_s: expected 1000 to",
        ),
    ] {
        let mut emulator = EmulatorProcess::spawn();
        emulator.send(&command);
        let fatal = emulator.wait_for("fatal");
        let message = fatal["message"].as_str().expect("a text");
        assert!(message.contains(expected), "{message}");
        assert_eq!(emulator.ended().code(), Some(2));
    }
}

#[test]
fn commands_sent_directly_after_start_are_executed() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::spawn();
    emulator.send_all(&[
        json!({
            "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": pair(&json!({}), &json!({})),
            "namespaces": {"a": emulator.a.namespace, "b": emulator.b.namespace},
        }),
        json!({"command": "go"}),
        json!({"command": "stop"}),
    ]);
    emulator.wait_for("done");
    assert_eq!(emulator.ended().code(), Some(0));
}

#[test]
fn an_existing_device_is_rejected() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::spawn();
    emulator.a.sh("ip link add eth0 type veth peer name other");
    emulator.send(&json!({
        "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": pair(&json!({}), &json!({})),
        "namespaces": {"a": emulator.a.namespace, "b": emulator.b.namespace},
    }));
    let fatal = emulator.wait_for("fatal");
    let message = fatal["message"].as_str().expect("a text");
    assert!(
        message.contains("the TUN device `eth0` in the namespace of host `a`"),
        "{message}"
    );
}

#[test]
fn an_emulator_reports_that_it_was_suspended() {
    if !is_possible() {
        return;
    }
    let mut emulator = EmulatorProcess::new(&pair(&json!({}), &json!({})), &json!({}));
    echo(&emulator.b);
    kill(emulator.pid(), Signal::SIGSTOP).expect("our child");
    // Two datagrams enter the ring of the device while the emulator sleeps; they are read late, and
    // their delay starts at the read.
    assert_eq!(
        round_trips(&emulator.a, 2, Duration::from_millis(20)).len(),
        0
    );
    kill(emulator.pid(), Signal::SIGCONT).expect("our child");
    assert_eq!(round_trips(&emulator.a, 3, TIMEOUT).len(), 3);
    // Now it is stopped with one datagram in flight; all others have replies or were late.
    emulator.change(&json!({"delay_s": 1.0}));
    let stopped = emulator.sample()["emulator.packets_held"];
    let echoed = emulator.a.start({
        move || {
            let socket = std::net::UdpSocket::bind("10.77.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(TIMEOUT)).expect("a time");
            socket.send_to(b"?", "10.77.0.2:7").expect("it is sent");
            socket.recv(&mut [0; 10]).is_ok()
        }
    });
    emulator.wait_until(|record| {
        let now_buffered = record["counters"]["emulator.packets_held"].as_f64();
        now_buffered.is_some_and(|packets| packets > stopped)
    });
    kill(emulator.pid(), Signal::SIGSTOP).expect("our child");
    std::thread::sleep(Duration::from_millis(1200)); // tests that the time of delivery passes without a turn
    kill(emulator.pid(), Signal::SIGCONT).expect("our child");
    assert!(crate::testkit::wait(&echoed));
    emulator.stop();
    assert_eq!(emulator.findings("emulator-late"), 1, "{:?}", emulator.seen);
}
