//! Packets are cut in the same way as by the kernel and network cards.

use proptest::prelude::*;

use super::checksum::{add, sum};
use super::*;

const HEADERS: usize = 20 + 32;

/// Return a TCP super-packet like those of the kernel: with timestamps in the options, with PSH,
/// FIN and CWR, and with a checksum of the pseudo-header only.
fn super_packet(payload: usize, gso: u16) -> Vec<u8> {
    let vnet = Vnet {
        flags: NEEDS_CHECKSUM,
        gso_type: GSO_TCP4 | GSO_ECN,
        header_bytes: 500,
        gso_bytes: gso,
        checksum_start: 20,
        checksum_offset: 16,
    };
    let mut bytes = vnet.emit().to_vec();
    let mut ip = vec![0; HEADERS + payload];
    ip[0] = 0x45;
    let total = u16::try_from(ip.len()).expect("a packet");
    set_word(&mut ip, 2, total);
    set_word(&mut ip, 4, 0xfffe);
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 6;
    ip[12..16].copy_from_slice(&[10, 77, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 77, 0, 2]);
    let checksum = !sum(&ip[..20]);
    set_word(&mut ip, 10, checksum);
    ip[20..24].copy_from_slice(&[0x12, 0x34, 0x14, 0x51]);
    ip[24..28].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
    ip[32] = 8 << 4;
    ip[33] = 0x80 | 0x10 | 0x08 | 0x01;
    let partial = add(add(sum(&ip[12..20]), 6), total - 20);
    set_word(&mut ip, 36, partial);
    for (number, byte) in (0_u32..).zip(&mut ip[HEADERS..]) {
        *byte = (number.wrapping_mul(2_654_435_761) >> 24) as u8;
    }
    bytes.extend(ip);
    bytes
}

/// Return the IP packet as sent on a physical link: headers with complete checksums, and payload.
fn sent_bytes(bytes: &[u8], first: u16, count: u16) -> Vec<u8> {
    let mut part = cut(bytes, first, count);
    let payload = bytes[part.payload.clone()].to_vec();
    finish_checksum(part.headers_mut(), &payload);
    [&part.headers()[VNET_BYTES..], &payload].concat()
}

/// Check the checksums like a receiver: the sums over the header, and over pseudo-header and
/// segment, are all ones.
fn assert_checksums(ip: &[u8]) {
    assert_eq!(sum(&ip[..20]), 0xffff, "IP checksum");
    let length = word(ip, 2) - 20;
    let pseudo = add(add(sum(&ip[12..20]), u16::from(ip[9])), length);
    assert_eq!(add(pseudo, sum(&ip[20..])), 0xffff, "TCP or UDP checksum");
}

#[test]
fn a_super_packet_is_split_into_its_segments() {
    let bytes = super_packet(4000, 1448);
    let inspected = inspect(&bytes).expect("good");
    assert_eq!(
        inspected.shape,
        crate::model::PacketShape {
            segments: 3,
            segment_bytes: 1500,
            last_bytes: 1104 + 52,
        }
    );
    let mut payload = Vec::new();
    for segment in 0..3_u16 {
        let ip = sent_bytes(&bytes, segment, 1);
        assert_checksums(&ip);
        assert_eq!(usize::from(word(&ip, 2)), ip.len());
        assert_eq!(
            word(&ip, 4),
            0xfffe_u16.wrapping_add(segment),
            "identification"
        );
        let sequence = u32::from_be_bytes(ip[24..28].try_into().expect("4 bytes"));
        assert_eq!(
            sequence,
            0xffff_fff0_u32.wrapping_add(u32::from(segment) * 1448)
        );
        let flags = if segment == 2 {
            0x10 | 0x08 | 0x01
        } else {
            0x10
        };
        let flags = if segment == 0 { flags | 0x80 } else { flags };
        assert_eq!(
            ip[33], flags,
            "FIN and PSH with the last, CWR with the first"
        );
        payload.extend_from_slice(&ip[HEADERS..]);
    }
    assert_eq!(payload, bytes[VNET_BYTES + HEADERS..]);
}

#[test]
fn a_udp_super_packet_is_split_into_datagrams_with_their_own_lengths() {
    let mut bytes = super_packet(2500, 1000);
    let ip = &mut bytes[VNET_BYTES..];
    ip[9] = 17;
    let total = word(ip, 2);
    let checksum = add(!word(ip, 10), 17 - 6);
    set_word(ip, 10, !add(checksum, 0));
    set_word(ip, 24, total - 20); // UDP length
    let vnet = Vnet {
        flags: NEEDS_CHECKSUM,
        gso_type: GSO_UDP,
        header_bytes: 28,
        gso_bytes: 1000,
        checksum_start: 20,
        checksum_offset: 6,
    };
    bytes[..VNET_BYTES].copy_from_slice(&vnet.emit());
    // 32 bytes of the former TCP header are payload now, except the 8 bytes of the UDP header.
    let inspected = inspect(&bytes).expect("good");
    assert_eq!(
        (inspected.shape.segments, inspected.shape.last_bytes),
        (3, 28 + 524)
    );
    for (segment, length) in [(0, 1008), (1, 1008), (2, 532)] {
        let ip = sent_bytes(&bytes, segment, 1);
        assert_checksums(&ip);
        assert_eq!(word(&ip, 24), length);
    }
}

#[test]
fn an_oversized_packet_gets_a_reply_with_the_maximum_size() {
    let bytes = super_packet(1448, 1448);
    let reply_packet = too_big(&bytes, 1400);
    let ip = &reply_packet[VNET_BYTES..];
    assert_eq!(sum(&ip[..20]), 0xffff);
    assert_eq!(sum(&ip[20..]), 0xffff);
    assert_eq!((ip[9], ip[20], ip[21], word(ip, 26)), (1, 3, 4, 1400));
    assert_eq!(ip[16..20], [10, 77, 0, 1]);
    assert_eq!(ip[28..], bytes[VNET_BYTES..VNET_BYTES + 28]);
}

#[test]
fn unsupported_packets_are_rejected_with_the_reason() {
    let good = super_packet(100, 1448);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        inspect(&bytes)
    };
    assert!(inspect(&good).is_ok());
    assert_eq!(with(VNET_BYTES, 0x60), Err(PacketRejection::Protocol));
    assert_eq!(with(VNET_BYTES + 16, 224), Err(PacketRejection::Multicast));
    assert_eq!(with(VNET_BYTES + 3, 1), Err(PacketRejection::Malformed));
    assert_eq!(
        with(1, 4),
        Err(PacketRejection::Malformed),
        "TCP over IPv6 in an IPv4 packet"
    );
    assert_eq!(inspect(&[]), Err(PacketRejection::Malformed));
}

proptest! {
    #[test]
    fn arbitrary_packets_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), gso in 0_u8..6, length: bool) {
        if bytes.len() > VNET_BYTES + 20 {
            bytes[1] = gso;
            bytes[VNET_BYTES] = 0x40 | (bytes[VNET_BYTES] & 0xf);
            if length {
                let total = u16::try_from(bytes.len() - VNET_BYTES).expect("short");
                set_word(&mut bytes[VNET_BYTES..], 2, total);
            }
        }
        if let Ok(inspected) = inspect(&bytes) {
            let shape = inspected.shape;
            prop_assert!(shape.segments >= 1 && shape.last_bytes >= 1);
            if shape.segments > 1 {
                for segment in 0..shape.segments {
                    let part = cut(&bytes, segment, 1);
                    let length = part.headers().len() - VNET_BYTES + part.payload.len();
                    let expected = if segment + 1 == shape.segments { shape.last_bytes } else { shape.segment_bytes };
                    prop_assert_eq!(length, usize::from(expected));
                }
            }
            prop_assert!(too_big(&bytes, 576).len() > VNET_BYTES);
        }
        let middle = bytes.len() / 2;
        let (headers, payload) = bytes.split_at_mut(middle);
        finish_checksum(headers, payload);
    }

    #[test]
    fn splitting_a_part_again_gives_the_same_segments(
        payload in 1_usize..20_000, gso in 500_u16..1448, cuts in prop::collection::vec(1_u16..12, 1..8)
    ) {
        let bytes = super_packet(payload, gso);
        let segments = inspect(&bytes).expect("good").shape.segments;
        prop_assume!(segments > 1);
        let mut first = 0;
        for count in cuts.into_iter().cycle() {
            let count = count.min(segments - first);
            let part = cut(&bytes, first, count);
            let again = [part.headers(), &bytes[part.payload.clone()]].concat();
            let shape = inspect(&again).expect("a part is a good packet").shape;
            prop_assert_eq!(shape.segments, count);
            for segment in 0..count {
                let direct = sent_bytes(&bytes, first + segment, 1);
                assert_checksums(&direct);
                if count > 1 {
                    prop_assert_eq!(sent_bytes(&again, segment, 1), direct);
                }
            }
            first += count;
            if first == segments {
                break;
            }
        }
    }
}
