//! Tests of blocks in memory, with any division of the bytes and any order of the connections.

use proptest::prelude::*;

use super::*;
use crate::{ByteRanges, FtpError};

/// Bytes in flight from a sender's connections to a receiver's, and the files that arrive.
struct Links {
    links: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
    whole: Vec<u64>,
}

fn content(file: u64, offset: u64) -> u8 {
    (offset.wrapping_mul(31) ^ file.wrapping_mul(97)) as u8
}

/// Sends all blocks of all connections, in the given order.
fn send(sender: &mut BlockSender, order: &[usize]) -> Links {
    let mut links = vec![Vec::new(); sender.connections()];
    let mut turn = 0;
    let mut idle = 0;
    while idle < links.len() {
        let connection = order.get(turn).copied().unwrap_or(turn) % links.len();
        turn += 1;
        idle += 1;
        match sender.poll(connection as u64) {
            None => idle = if turn > order.len() { idle } else { 0 },
            Some(OutgoingBlock::End { header, .. }) => {
                links[connection].extend(header);
                idle = 0;
            }
            Some(OutgoingBlock::Block {
                header,
                file,
                offset,
                bytes,
            }) => {
                links[connection].extend(header);
                links[connection].extend((offset..offset + bytes).map(|at| content(file, at)));
                idle = 0;
            }
        }
    }
    Links {
        links,
        files: Vec::new(),
        whole: Vec::new(),
    }
}

impl Links {
    /// Delivers the given pieces, then the rest. With `straight`, payload is reported without its
    /// bytes.
    fn deliver(
        &mut self,
        receiver: &mut BlockReceiver,
        cuts: &[(usize, usize)],
        straight: bool,
    ) -> Result<(), FtpError> {
        let all = self.links.len();
        let rest = (0..all).map(|connection| (connection, usize::MAX));
        let cuts: Vec<_> = cuts
            .iter()
            .copied()
            .chain(rest.clone())
            .chain(rest)
            .collect();
        for (connection, bytes) in cuts {
            let connection = connection % all;
            let mut given = bytes.min(self.links[connection].len());
            loop {
                let next_payload = receiver.next_payload(connection as u64);
                let payload = given.min(next_payload.map_or(0, |(_, bytes)| bytes as usize));
                let taken = if straight && payload > 0 {
                    receiver.handle_payload(connection as u64, payload)?
                } else {
                    receiver.handle_input(connection as u64, &self.links[connection][..given])?
                };
                let used: Vec<u8> = self.links[connection].drain(..taken.consumed).collect();
                given -= taken.consumed;
                if let Some(payload) = taken.payload {
                    self.store(payload, &used[used.len() - payload.bytes..]);
                }
                if taken.consumed == 0 {
                    break;
                }
            }
            self.whole
                .extend(std::iter::from_fn(|| receiver.poll_received()).map(|file| file.transfer));
        }
        Ok(())
    }

    fn store(&mut self, payload: Payload, bytes: &[u8]) {
        let file = payload.transfer as usize;
        let offset = payload.offset as usize;
        self.files
            .resize(self.files.len().max(file + 1), Vec::new());
        let end = offset + bytes.len();
        let length = self.files[file].len().max(end);
        self.files[file].resize(length, 0);
        self.files[file][offset..end].copy_from_slice(bytes);
    }
}

fn expected(sizes: &[u64]) -> Vec<Vec<u8>> {
    let file = |(number, &size): (u64, &u64)| (0..size).map(|at| content(number, at)).collect();
    (0..).zip(sizes).map(file).collect()
}

proptest! {
    #[test]
    fn files_arrive_complete_over_any_connections_and_fragments(
        sizes in prop::collection::vec(0_u64..600, 1..8),
        count in 1_usize..5, block in 1_u64..300, pipelined: bool, straight: bool,
        order in prop::collection::vec(0_usize..5, 0..40),
        cuts in prop::collection::vec((0_usize..5, 1_usize..80), 0..80),
    ) {
        let mut sender = BlockSender::new(0..count as u64, block);
        let mut receiver = BlockReceiver::new(pipelined, 1);
        for connection in 0..count as u64 {
            receiver.connect(connection).unwrap();
        }
        for &size in &sizes {
            sender.admit(&ByteRanges::from_range(0..size), 0);
            receiver.start_transfer();
        }
        let mut links = send(&mut sender, &order);
        links.deliver(&mut receiver, &cuts, straight).unwrap();
        links.files.resize(sizes.len(), Vec::new());
        prop_assert_eq!(links.files, expected(&sizes));
        prop_assert_eq!(links.whole, (0..sizes.len() as u64).collect::<Vec<_>>());
        for connection in 0..count as u64 {
            receiver.disconnect(connection).unwrap();
        }
    }

    #[test]
    fn no_bytes_make_the_receiver_panic_or_loop(
        ranges in prop::collection::vec((0_u64..3, prop::collection::vec(any::<u8>(), 0..60)), 0..20),
        small in prop::collection::vec((any::<u8>(), 0_u8..4, 0_u8..4), 0..30), pipelined: bool,
    ) {
        let mut receiver = BlockReceiver::new(pipelined, 1);
        (0..3).for_each(|connection| receiver.connect(connection).unwrap());
        for _ in 0..4 {
            receiver.start_transfer();
        }
        // Nearly valid headers reach more code than random bytes.
        let headers = small.into_iter().map(|(descriptor, count, offset)| {
            let mut bytes = vec![0; HEADER_BYTES];
            (bytes[0], bytes[8], bytes[16]) = (descriptor & 0x4c, count, offset);
            (u64::from(offset), bytes)
        });
        for (connection, bytes) in headers.chain(ranges) {
            let mut rest = &bytes[..];
            while let Ok(taken) = receiver.handle_input(connection, rest) {
                if taken.consumed == 0 {
                    break;
                }
                rest = &rest[taken.consumed..];
            }
        }
    }

    #[test]
    fn headers_survive_writing_and_reading(count: u32, offset: u32, ends in 1_u64..=MAX_CONNECTIONS, close: bool) {
        let data = BlockHeader { count: count.into(), offset: offset.into(), end_of_data: close, end_of_file: None, close };
        let end = BlockHeader { end_of_data: true, end_of_file: Some(ends), close, ..BlockHeader::default() };
        for header in [data, end] {
            prop_assert_eq!(BlockHeader::parse(&header.write()).unwrap(), header);
        }
    }
}

fn receiver(connections: u64, pipelined: bool) -> BlockReceiver {
    let mut receiver = BlockReceiver::new(pipelined, 1);
    (0..connections).for_each(|connection| receiver.connect(connection).unwrap());
    receiver
}

fn header(count: u64, offset: u64, end_of_data: bool, end_of_file: Option<u64>) -> Vec<u8> {
    BlockHeader {
        count,
        offset,
        end_of_data,
        end_of_file,
        close: false,
    }
    .write()
    .to_vec()
}

#[test]
fn an_empty_file_is_sent_as_the_end_block_of_globus_servers() {
    let mut sender = BlockSender::new([7], 1024);
    sender.admit(&ByteRanges::default(), 0);
    let Some(OutgoingBlock::End { header, file: 0 }) = sender.poll(7) else {
        panic!("an end");
    };
    assert_eq!(
        header,
        [0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    );
    assert_eq!(sender.poll(7), None);
}

#[test]
fn bytes_before_the_start_of_their_transfer_are_not_consumed() {
    let mut receiver = receiver(1, true);
    let bytes = [
        header(1, 0, true, None),
        b"x".to_vec(),
        header(0, 0, false, Some(1)),
    ]
    .concat();
    assert_eq!(
        receiver.handle_input(0, &bytes).unwrap(),
        ReceiveResult::default()
    );
    receiver.start_transfer();
    let taken = receiver.handle_input(0, &bytes).unwrap();
    let payload = Payload {
        bytes: 1,
        transfer: 0,
        offset: 0,
    };
    assert_eq!(
        taken,
        ReceiveResult {
            consumed: HEADER_BYTES + 1,
            payload: Some(payload)
        }
    );
}

#[test]
fn in_a_pipeline_a_connection_that_skips_a_file_is_an_error() {
    // The bytes on the second connection can belong to the first or the second file.
    let mut receiver = receiver(2, true);
    receiver.start_transfer();
    receiver.start_transfer();
    receiver
        .handle_input(0, &header(0, 0, true, Some(1)))
        .unwrap_err();
}

#[test]
fn without_a_pipeline_connections_may_skip_files_but_not_close_within_one() {
    let mut receiver = receiver(2, false);
    receiver.start_transfer();
    let mut bytes = header(0, 0, true, Some(1));
    while !bytes.is_empty() {
        let taken = receiver.handle_input(0, &bytes).unwrap();
        if taken.consumed == 0 {
            break;
        }
        bytes.drain(..taken.consumed);
    }
    assert_eq!(receiver.poll_received().map(|file| file.transfer), Some(0));
    receiver.start_transfer();
    receiver
        .handle_input(1, &[header(2, 0, true, None), b"x".to_vec()].concat())
        .unwrap();
    receiver.disconnect(1).unwrap_err();
}

#[test]
fn the_end_of_a_file_after_its_payload_is_detected_without_more_bytes() {
    for straight in [false, true] {
        let mut receiver = receiver(1, false);
        receiver.start_transfer();
        let last = header(1, 0, true, None);
        for bytes in [header(0, 0, false, Some(1)), last] {
            let taken = receiver.handle_input(0, &bytes).unwrap();
            assert_eq!(taken.consumed, HEADER_BYTES);
        }
        let taken = if straight {
            receiver.handle_payload(0, 1)
        } else {
            receiver.handle_input(0, b"x")
        };
        let payload = Payload {
            bytes: 1,
            transfer: 0,
            offset: 0,
        };
        assert_eq!(taken.unwrap().payload, Some(payload));
        let whole = receiver.poll_received().expect("all of it is there");
        assert_eq!(whole.ranges, ByteRanges::from_range(0..1));
        receiver.disconnect(0).unwrap();
    }
}

#[test]
fn payload_that_no_header_announced_is_rejected() {
    let mut receiver = receiver(1, false);
    receiver.start_transfer();
    receiver.handle_payload(0, 1).unwrap_err();
    receiver
        .handle_input(0, &header(1, 0, false, None))
        .unwrap();
    assert_eq!(receiver.next_payload(0), Some((0, 1)));
    receiver.handle_payload(0, 2).unwrap_err();
    receiver.handle_payload(1, 1).unwrap_err();
}

#[test]
fn invalid_headers_are_rejected() {
    for (descriptor, count, offset) in [
        (0x40, 1_u64, 1_u64),
        (0x40, 0, 0),
        (0x48, 0, MAX_CONNECTIONS + 1),
        (0x00, 2, u64::MAX - 1),
        (0x20, 1, 0),
        (0x10, 1, 0),
    ] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = descriptor;
        bytes[1..9].copy_from_slice(&count.to_be_bytes());
        bytes[9..].copy_from_slice(&offset.to_be_bytes());
        BlockHeader::parse(&bytes).unwrap_err();
    }
}
