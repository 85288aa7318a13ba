//! MODE E: any bytes on connections, and files over connections that take turns as the fuzzer likes.

use std::collections::{BTreeMap, BTreeSet};

use venturi_gridftp::ByteRanges;
use venturi_gridftp::mode_e::{BlockReceiver, BlockSender, DecodedItem, Decoder, OutgoingBlock};

use crate::Draws;

/// Most bytes of the files of one input.
const MAX_FILE_BYTES: u64 = 5000;

/// One connection's bytes: what they say does not depend on how they are cut.
pub fn decoder(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let cut = 1 + draws.below(40);
    let input = draws.rest();
    assert_eq!(read(input, input.len().max(1)), read(input, cut));
}

/// What a connection said: items, payload as ranges; and whether it was refused.
fn read(input: &[u8], cut: usize) -> (Vec<(u64, u64)>, Vec<DecodedItem>, bool) {
    let mut decoder = Decoder::default();
    let (mut payload, mut items): (Vec<(u64, u64)>, _) = (Vec::new(), Vec::new());
    for chunk in input.chunks(cut) {
        let mut rest = chunk;
        loop {
            let before = decoder.remaining_bytes();
            let Ok(step) = decoder.step(rest) else {
                return (payload, items, true);
            };
            rest = &rest[step.consumed..];
            match step.item {
                None if step.consumed == 0 => break,
                None => {}
                Some(DecodedItem::Payload { offset }) => {
                    assert_eq!(decoder.remaining_bytes(), before - step.consumed as u64);
                    match payload.last_mut() {
                        Some((_, end)) if *end == offset => *end += step.consumed as u64,
                        _ => payload.push((offset, offset + step.consumed as u64)),
                    }
                }
                Some(item) => items.push(item),
            }
        }
    }
    (payload, items, false)
}

fn content(file: u64, offset: u64) -> u8 {
    (offset.wrapping_mul(31) ^ file.wrapping_mul(97) ^ (offset >> 8)) as u8
}

/// Files from a sender to a receiver, with connections that come late, break or are harmed: no byte counts for another
/// file than its own, unless the wire was harmed.
pub fn blocks(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let count = 1 + draws.below(4) as u64;
    let stripes = 1 + draws.below(count as usize) as u64;
    let connections = (0..count).map(|number| (number, (number % stripes) as u16));
    let mut links = Links {
        sender: BlockSender::striped(connections, 1 + u64::from(draws.byte())),
        receiver: BlockReceiver::new(draws.coin(), stripes as u16),
        links: vec![Vec::new(); count as usize],
        files: Vec::new(),
        present: Vec::new(),
        got: BTreeMap::new(),
        open: BTreeSet::new(),
        closed: BTreeSet::new(),
        started: 0,
        harmed: false,
    };
    for connection in 0..count {
        // The others come late.
        if draws.coin() {
            links.receiver.connect(connection).expect("the first ones");
            links.open.insert(connection);
        }
    }
    while !draws.is_over() {
        if !links.turn(&mut draws, count) {
            return;
        }
    }
}

struct Links {
    sender: BlockSender,
    receiver: BlockReceiver,
    links: Vec<Vec<u8>>,
    /// Sizes.
    files: Vec<u64>,
    present: Vec<ByteRanges>,
    /// File → what came of it.
    got: BTreeMap<u64, ByteRanges>,
    open: BTreeSet<u64>,
    closed: BTreeSet<u64>,
    started: u64,
    harmed: bool,
}

impl Links {
    /// One choice; false ends it.
    fn turn(&mut self, draws: &mut Draws, count: u64) -> bool {
        let choice = draws.below(10);
        let connection = draws.below(count as usize) as u64;
        match choice {
            0 => {
                let size = draws.number() % MAX_FILE_BYTES;
                let start = u64::from(draws.byte());
                let present = ByteRanges::from_range(start..start + u64::from(draws.byte()));
                self.sender.admit(&present.missing(size), 0);
                self.files.push(size);
                self.present.push(present);
            }
            1 if self.started < self.files.len() as u64 => {
                assert_eq!(self.receiver.start_transfer(), self.started);
                self.started += 1;
            }
            2 if !self.open.contains(&connection) && !self.closed.contains(&connection) => {
                self.open.insert(connection);
                return self.receiver.connect(connection).is_ok();
            }
            3 if draws.byte() == 7 => {
                self.harmed = true;
                let link = &mut self.links[connection as usize];
                if let Some(byte) = link.first_mut() {
                    *byte ^= draws.byte();
                }
            }
            4 if draws.byte() == 7 => {
                self.harmed = true;
                let bytes = draws.bytes();
                self.links[connection as usize].extend(bytes);
            }
            5 if draws.byte() == 7 && self.open.remove(&connection) => {
                self.closed.insert(connection);
                return self.receiver.disconnect(connection).is_ok();
            }
            6 | 7 => self.send(connection),
            _ if self.open.contains(&connection) => {
                return self.deliver(connection, usize::from(draws.byte()));
            }
            _ => {}
        }
        true
    }

    fn send(&mut self, connection: u64) {
        let link = &mut self.links[connection as usize];
        match self.sender.poll(connection) {
            None => {}
            Some(OutgoingBlock::End { header, .. }) => link.extend(header),
            Some(OutgoingBlock::Block {
                header,
                file,
                offset,
                bytes,
            }) => {
                assert!(offset + bytes <= self.files[file as usize]);
                link.extend(header);
                link.extend((offset..offset + bytes).map(|at| content(file, at)));
            }
        }
    }

    /// Whether the receiver goes on.
    fn deliver(&mut self, connection: u64, max_bytes: usize) -> bool {
        let link = &mut self.links[connection as usize];
        let given = max_bytes.min(link.len());
        let Ok(taken) = self.receiver.handle_input(connection, &link[..given]) else {
            return false;
        };
        assert!(taken.consumed <= given);
        let used: Vec<u8> = link.drain(..taken.consumed).collect();
        if let Some(payload) = taken.payload {
            assert!(
                payload.transfer < self.started && 0 < payload.bytes && payload.bytes <= used.len()
            );
            let bytes = &used[used.len() - payload.bytes..];
            let range = payload.offset..payload.offset + payload.bytes as u64;
            if !self.harmed {
                let own = range.clone().map(|at| content(payload.transfer, at));
                assert!(own.eq(bytes.iter().copied()), "bytes of another file");
            }
            if self
                .got
                .entry(payload.transfer)
                .or_default()
                .insert(range)
                .is_err()
            {
                return false;
            }
        }
        while let Some(received) = self.receiver.poll_received() {
            let got = self.got.remove(&received.transfer).unwrap_or_default();
            assert_eq!(got, received.ranges, "each file is whole once");
            if !self.harmed {
                let file = received.transfer as usize;
                assert_eq!(
                    got,
                    self.present[file].missing(self.files[file]),
                    "a whole file"
                );
            }
        }
        true
    }
}
