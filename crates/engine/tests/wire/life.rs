//! How a wire begins, ends, and complains.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::testkit::{PATIENCE, Wire, is_possible, pair};
use crate::traffic::{echo, round_trips};

#[test]
fn without_its_controller_a_wire_ends_and_its_devices_go() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    assert!(wire.a.sh("ip link show").contains("eth0"));
    wire.leave();
    assert_eq!(wire.ended().code(), Some(1));
    assert!(!wire.a.sh("ip link show").contains("eth0"));
}

#[test]
fn a_signal_ends_it_with_the_code_of_the_signal() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    kill(wire.pid(), Signal::SIGTERM).expect("our child");
    assert_eq!(wire.ended().code(), Some(128 + 15));
}

#[test]
fn what_is_wrong_is_told_with_what_was_expected() {
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
            "to enter the namespace /nowhere, found: No such file",
        ),
        (
            start(&slow, json!({})),
            "network.links.there.rate_bit_per_s: expected 1000 to",
        ),
    ] {
        let mut wire = Wire::spawn();
        wire.say(&command);
        let fatal = wire.wait_for("fatal");
        let message = fatal["message"].as_str().expect("a text");
        assert!(message.contains(expected), "{message}");
        assert_eq!(wire.ended().code(), Some(2));
    }
}

#[test]
fn commands_that_come_right_behind_start_are_obeyed() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::spawn();
    wire.say_all(&[
        json!({
            "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": pair(&json!({}), &json!({})),
            "namespaces": {"a": wire.a.namespace, "b": wire.b.namespace},
        }),
        json!({"command": "go"}),
        json!({"command": "stop"}),
    ]);
    wire.wait_for("done");
    assert_eq!(wire.ended().code(), Some(0));
}

#[test]
fn a_device_that_is_there_already_is_refused() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::spawn();
    wire.a.sh("ip link add eth0 type veth peer name other");
    wire.say(&json!({
        "command": "start", "epoch_unix_ns": 0, "seed": 1, "network": pair(&json!({}), &json!({})),
        "namespaces": {"a": wire.a.namespace, "b": wire.b.namespace},
    }));
    let fatal = wire.wait_for("fatal");
    let message = fatal["message"].as_str().expect("a text");
    assert!(
        message.contains("to make the TUN device `eth0` in the namespace of host `a`"),
        "{message}"
    );
}

#[test]
fn a_wire_that_was_held_up_says_so() {
    if !is_possible() {
        return;
    }
    let mut wire = Wire::new(&pair(&json!({}), &json!({})), &json!({}));
    echo(&wire.b);
    kill(wire.pid(), Signal::SIGSTOP).expect("our child");
    // Two datagrams go into the ring of the device while the wire sleeps; they are read late, but due from then on.
    assert_eq!(round_trips(&wire.a, 2, Duration::from_millis(20)).len(), 0);
    kill(wire.pid(), Signal::SIGCONT).expect("our child");
    assert_eq!(round_trips(&wire.a, 3, PATIENCE).len(), 3);
    // Now it is stopped with a datagram on its way: the only one, as all others have been answered or came late.
    wire.change(&json!({"delay_s": 1.0}));
    let held = wire.sample()["wire.packets_held"];
    let answered = wire.a.begin({
        move || {
            let socket = std::net::UdpSocket::bind("10.77.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(PATIENCE)).expect("a time");
            socket.send_to(b"?", "10.77.0.2:7").expect("it is sent");
            socket.recv(&mut [0; 10]).is_ok()
        }
    });
    wire.wait_until(|record| {
        let now_held = record["counters"]["wire.packets_held"].as_f64();
        now_held.is_some_and(|packets| packets > held)
    });
    kill(wire.pid(), Signal::SIGSTOP).expect("our child");
    std::thread::sleep(Duration::from_millis(1200)); // what is tested: past the time of the delivery without a turn
    kill(wire.pid(), Signal::SIGCONT).expect("our child");
    assert!(crate::testkit::wait(&answered));
    wire.stop();
    assert_eq!(wire.findings("wire-late"), 1, "{:?}", wire.seen);
}
