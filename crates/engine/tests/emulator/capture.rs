//! Captures contain every counted segment, as on a physical link.

use std::collections::BTreeMap;

use serde_json::json;

use crate::testkit::{EmulatorProcess, is_possible, pair};
use crate::traffic::transfer;

struct Packet {
    time_ns: u64,
    length: usize,
    bytes: Vec<u8>,
}

/// Reads a pcap file with nanoseconds in the byte order of this machine.
fn read(path: &std::path::Path) -> Vec<Packet> {
    let file = std::fs::read(path).expect("the file");
    let field = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!(
        (field(0), field(20)),
        (0xa1b2_3c4d, 101),
        "nanoseconds, link type RAW"
    );
    let mut packets = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let kept = field(at + 8) as usize;
        packets.push(Packet {
            time_ns: u64::from(field(at)) * 1_000_000_000 + u64::from(field(at + 4)),
            length: field(at + 12) as usize,
            bytes: file[at + 16..at + 16 + kept].to_vec(),
        });
        at += 16 + kept;
    }
    packets
}

/// Returns the sum of RFC 1071: all ones if a checksum is correct.
fn sum(parts: &[&[u8]]) -> u32 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let total: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
        .sum();
    let once = (total >> 16) + (total & 0xffff);
    (once >> 16) + (once & 0xffff)
}

fn assert_checksums(ip: &[u8]) {
    assert_eq!(sum(&[&ip[..20]]), 0xffff, "IP");
    let length = u16::try_from(ip.len() - 20)
        .expect("a packet")
        .to_be_bytes();
    assert_eq!(
        sum(&[&ip[12..20], &[0, ip[9]], &length, &ip[20..]]),
        0xffff,
        "TCP"
    );
}

#[test]
fn a_capture_matches_the_counters_by_segment_with_valid_checksums() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().expect("a folder");
    let (there, back) = (
        directory.path().join("there.pcap"),
        directory.path().join("back.pcap"),
    );
    let lossy =
        json!({"rate_bit_per_s": 1e9, "loss": {"kind": "independent", "probability": 0.002}});
    let mut emulator = EmulatorProcess::new(&pair(&lossy, &json!({})), &json!({}));
    emulator.send(&json!({"command": "capture", "link": "there", "path": there}));
    emulator.send(&json!({"command": "capture", "link": "back", "path": back, "snap_bytes": 40}));
    for _ in 0..2 {
        let started = emulator.wait_for("event");
        assert_eq!(
            (&started["kind"], &started["detail"]["state"]),
            (&json!("capture"), &json!("begun"))
        );
    }
    transfer(&emulator, 5_000_000);
    emulator.sample(); // the last acknowledgement has passed before this sample
    emulator.send(&json!({"command": "capture_stop", "link": "there"}));
    let ended = emulator.wait_for("event");
    assert_eq!(
        (&ended["detail"]["state"], &ended["detail"]["missed"]),
        (&json!("ended"), &json!(0))
    );
    let done = emulator.stop();
    let count = |link: &str, name: &str| done["links"][link][name].as_u64().expect("a count");

    let packets = read(&there);
    assert_eq!(packets.len() as u64, count("there", "packets"));
    assert_eq!(
        packets
            .iter()
            .map(|packet| packet.length as u64)
            .sum::<u64>(),
        count("there", "bytes")
    );
    assert!(
        packets
            .iter()
            .all(|packet| packet.bytes.len() == packet.length && packet.length <= 1500)
    );
    packets
        .iter()
        .for_each(|packet| assert_checksums(&packet.bytes));
    assert!(packets.is_sorted_by_key(|packet| packet.time_ns));
    // At least 12 µs each: the times are those of a link, not of a burst.
    let span_ns = packets.last().expect("some").time_ns - packets[0].time_ns;
    assert!(span_ns >= (packets.len() as u64 - 1000) * 12_000);
    assert_eq!(payload_bytes(&packets), 5_000_000);

    let acknowledgements = read(&back);
    assert_eq!(acknowledgements.len() as u64, count("back", "packets"));
    assert!(
        acknowledgements
            .iter()
            .all(|packet| packet.bytes.len() == packet.length.min(40))
    );
}

/// Returns the number of distinct payload bytes by sequence numbers, so retransmissions count once.
fn payload_bytes(packets: &[Packet]) -> u64 {
    let mut payloads = BTreeMap::new();
    for packet in packets {
        let ip = &packet.bytes;
        let headers = 20 + usize::from(ip[32] >> 4) * 4;
        let sequence = u32::from_be_bytes(ip[24..28].try_into().expect("4 bytes"));
        let payload = (ip.len() - headers) as u64;
        if payload > 0 {
            payloads.insert(sequence, payload);
        }
    }
    payloads.values().sum()
}
