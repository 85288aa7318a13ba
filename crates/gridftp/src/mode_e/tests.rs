//! Blocks in memory: any cut of the bytes, any order of the connections.

use proptest::prelude::*;

use super::*;
use crate::{ByteRanges, Error};

/// Wires from a sender's connections to a receiver's, and the files that arrive.
struct Wires {
    wires: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
    whole: Vec<u64>,
}

fn content(file: u64, offset: u64) -> u8 {
    (offset.wrapping_mul(31) ^ file.wrapping_mul(97)) as u8
}

/// Lets every connection send all it has.
fn send(sender: &mut Sender, order: &[usize]) -> Wires {
    let mut wires = vec![Vec::new(); sender.connections()];
    let mut turn = 0;
    let mut idle = 0;
    while idle < wires.len() {
        let connection = order.get(turn).copied().unwrap_or(turn) % wires.len();
        turn += 1;
        idle += 1;
        match sender.poll(connection as u64) {
            None => idle = if turn > order.len() { idle } else { 0 },
            Some(Chunk::End { header, .. }) => {
                wires[connection].extend(header);
                idle = 0;
            }
            Some(Chunk::Block {
                header,
                file,
                offset,
                bytes,
            }) => {
                wires[connection].extend(header);
                wires[connection].extend((offset..offset + bytes).map(|at| content(file, at)));
                idle = 0;
            }
        }
    }
    Wires {
        wires,
        files: Vec::new(),
        whole: Vec::new(),
    }
}

impl Wires {
    /// Delivers everything in the given cuts, then what is left; payload without showing it where `straight`.
    fn deliver(
        &mut self,
        receiver: &mut Receiver,
        cuts: &[(usize, usize)],
        straight: bool,
    ) -> Result<(), Error> {
        let all = self.wires.len();
        let rest = (0..all).map(|connection| (connection, usize::MAX));
        let cuts: Vec<_> = cuts
            .iter()
            .copied()
            .chain(rest.clone())
            .chain(rest)
            .collect();
        for (connection, bytes) in cuts {
            let connection = connection % all;
            let mut given = bytes.min(self.wires[connection].len());
            loop {
                let coming = receiver.coming(connection as u64);
                let payload = given.min(coming.map_or(0, |(_, bytes)| bytes as usize));
                let taken = if straight && payload > 0 {
                    receiver.handle_payload(connection as u64, payload)?
                } else {
                    receiver.handle_input(connection as u64, &self.wires[connection][..given])?
                };
                let used: Vec<u8> = self.wires[connection].drain(..taken.consumed).collect();
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
    fn files_arrive_whole_over_any_connections_and_cuts(
        sizes in prop::collection::vec(0_u64..600, 1..8),
        count in 1_usize..5, block in 1_u64..300, pipelined: bool, straight: bool,
        order in prop::collection::vec(0_usize..5, 0..40),
        cuts in prop::collection::vec((0_usize..5, 1_usize..80), 0..80),
    ) {
        let mut sender = Sender::new(0..count as u64, block);
        let mut receiver = Receiver::new(pipelined, 1);
        for connection in 0..count as u64 {
            receiver.connect(connection).unwrap();
        }
        for &size in &sizes {
            sender.admit(&ByteRanges::of(0..size), 0);
            receiver.begin();
        }
        let mut wires = send(&mut sender, &order);
        wires.deliver(&mut receiver, &cuts, straight).unwrap();
        wires.files.resize(sizes.len(), Vec::new());
        prop_assert_eq!(wires.files, expected(&sizes));
        prop_assert_eq!(wires.whole, (0..sizes.len() as u64).collect::<Vec<_>>());
        for connection in 0..count as u64 {
            receiver.disconnect(connection).unwrap();
        }
    }

    #[test]
    fn no_bytes_make_the_receiver_panic_or_loop(
        pieces in prop::collection::vec((0_u64..3, prop::collection::vec(any::<u8>(), 0..60)), 0..20),
        small in prop::collection::vec((any::<u8>(), 0_u8..4, 0_u8..4), 0..30), pipelined: bool,
    ) {
        let mut receiver = Receiver::new(pipelined, 1);
        (0..3).for_each(|connection| receiver.connect(connection).unwrap());
        for _ in 0..4 {
            receiver.begin();
        }
        // Headers that are nearly right reach further than noise does.
        let headers = small.into_iter().map(|(descriptor, count, offset)| {
            let mut bytes = vec![0; HEADER_BYTES];
            (bytes[0], bytes[8], bytes[16]) = (descriptor & 0x4c, count, offset);
            (u64::from(offset), bytes)
        });
        for (connection, bytes) in headers.chain(pieces) {
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
        let data = Header { count: count.into(), offset: offset.into(), end_of_data: close, end_of_file: None, close };
        let end = Header { end_of_data: true, end_of_file: Some(ends), close, ..Header::default() };
        for header in [data, end] {
            prop_assert_eq!(Header::parse(&header.write()).unwrap(), header);
        }
    }
}

fn receiver(connections: u64, pipelined: bool) -> Receiver {
    let mut receiver = Receiver::new(pipelined, 1);
    (0..connections).for_each(|connection| receiver.connect(connection).unwrap());
    receiver
}

fn header(count: u64, offset: u64, end_of_data: bool, end_of_file: Option<u64>) -> Vec<u8> {
    Header {
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
fn a_file_of_nothing_is_the_block_that_globus_servers_send() {
    let mut sender = Sender::new([7], 1024);
    sender.admit(&ByteRanges::default(), 0);
    let Some(Chunk::End { header, file: 0 }) = sender.poll(7) else {
        panic!("an end");
    };
    assert_eq!(
        header,
        [0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    );
    assert_eq!(sender.poll(7), None);
}

#[test]
fn bytes_of_a_transfer_that_has_not_begun_wait() {
    let mut receiver = receiver(1, true);
    let bytes = [
        header(1, 0, true, None),
        b"x".to_vec(),
        header(0, 0, false, Some(1)),
    ]
    .concat();
    assert_eq!(receiver.handle_input(0, &bytes).unwrap(), Taken::default());
    receiver.begin();
    let taken = receiver.handle_input(0, &bytes).unwrap();
    let payload = Payload {
        bytes: 1,
        transfer: 0,
        offset: 0,
    };
    assert_eq!(
        taken,
        Taken {
            consumed: HEADER_BYTES + 1,
            payload: Some(payload)
        }
    );
}

#[test]
fn in_a_pipeline_a_connection_that_sits_a_file_out_is_an_error_and_no_guess() {
    // The bytes on the second connection may be of the first file or of the second; nothing tells.
    let mut receiver = receiver(2, true);
    receiver.begin();
    receiver.begin();
    receiver
        .handle_input(0, &header(0, 0, true, Some(1)))
        .unwrap_err();
}

#[test]
fn without_a_pipeline_connections_may_sit_out_but_not_stop_within_a_file() {
    let mut receiver = receiver(2, false);
    receiver.begin();
    let mut bytes = header(0, 0, true, Some(1));
    while !bytes.is_empty() {
        let taken = receiver.handle_input(0, &bytes).unwrap();
        if taken.consumed == 0 {
            break;
        }
        bytes.drain(..taken.consumed);
    }
    assert_eq!(receiver.poll_received().map(|file| file.transfer), Some(0));
    receiver.begin();
    receiver
        .handle_input(1, &[header(2, 0, true, None), b"x".to_vec()].concat())
        .unwrap();
    receiver.disconnect(1).unwrap_err();
}

#[test]
fn an_end_behind_payload_is_seen_without_another_byte() {
    for straight in [false, true] {
        let mut receiver = receiver(1, false);
        receiver.begin();
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
        assert_eq!(whole.ranges, ByteRanges::of(0..1));
        receiver.disconnect(0).unwrap();
    }
}

#[test]
fn payload_that_no_header_told_of_is_refused() {
    let mut receiver = receiver(1, false);
    receiver.begin();
    receiver.handle_payload(0, 1).unwrap_err();
    receiver
        .handle_input(0, &header(1, 0, false, None))
        .unwrap();
    assert_eq!(receiver.coming(0), Some((0, 1)));
    receiver.handle_payload(0, 2).unwrap_err();
    receiver.handle_payload(1, 1).unwrap_err();
}

#[test]
fn headers_that_cannot_be_are_refused() {
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
        Header::parse(&bytes).unwrap_err();
    }
}
