//! Its data connections: files go out in blocks, and what comes in goes to the file that is stored.

use super::{Doing, Fake, Misdeed, checksum};

const HEADER_BYTES: usize = 17;

impl Fake {
    fn end(&mut self, text: &str) -> bool {
        let doing = std::mem::replace(&mut self.doing, Doing::Nothing);
        let check = self.check.take();
        if let (Doing::Stores { path, .. }, Some(expected)) = (doing, check)
            && checksum(&self.files[&path]) != expected
        {
            self.drop_data();
            self.say("end", "550 Another checksum.");
            return true;
        }
        if !self.extended {
            self.drop_data();
        }
        self.say("end", text);
        true
    }

    fn fail(&mut self) -> bool {
        self.drop_data();
        self.doing = Doing::Nothing;
        self.say("end", "426 Closed.");
        true
    }

    pub(super) fn send(&mut self) -> bool {
        let mine = self.mine();
        let gone = mine.iter().any(|number| self.wires[number].client_ended);
        if gone {
            return self.fail();
        }
        let wanted = if self.extended { self.connections } else { 1 };
        let Doing::Sends { blocks, ends } = &mut self.doing else {
            return false;
        };
        let Some(ends) = ends else {
            if mine.len() < wanted {
                return false;
            }
            match blocks.pop_front() {
                Some((offset, bytes)) => {
                    let number = mine[blocks.len() % mine.len()];
                    self.send_block(number, offset, bytes);
                }
                None => *ends = Some(mine.into()),
            }
            return true;
        };
        let Some(number) = ends.pop_front() else {
            return self.end("226 Done.");
        };
        let first = ends.len() + 1 == wanted;
        self.send_end(number, if first { 0x48 } else { 0x08 }, wanted as u64);
        true
    }

    fn send_block(&mut self, number: u64, offset: u64, bytes: Vec<u8>) {
        let misdeed = self.step(&format!("send {} bytes from {offset}", bytes.len()));
        let extended = self.extended;
        let header = |offset: u64| match extended {
            true => header(0, bytes.len() as u64, offset),
            false => Vec::new(),
        };
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        let mut block = [header(offset), bytes.clone()].concat();
        match misdeed {
            Some(Misdeed::Stall | Misdeed::HangUp | Misdeed::Skip) => return,
            Some(Misdeed::Repeat) => block = block.repeat(2),
            Some(Misdeed::Misplace) => block = [header(offset + 7), bytes.clone()].concat(),
            Some(Misdeed::Truncate) => block.truncate(block.len() / 2),
            Some(Misdeed::Noise) => block
                .splice(0..0, std::iter::repeat_n(0xff, HEADER_BYTES))
                .for_each(drop),
            Some(Misdeed::StallData) => wire.stalled = true,
            Some(Misdeed::CloseData) => wire.server_ended = true,
            _ => {}
        }
        wire.to_client.extend(block);
    }

    fn send_end(&mut self, number: u64, descriptor: u8, count: u64) {
        let misdeed = self.step(&format!("send the end on {number}"));
        let extended = self.extended;
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        let value = if descriptor & 0x40 > 0 { count } else { 0 };
        let mut end = if extended {
            header(descriptor, 0, value)
        } else {
            Vec::new()
        };
        match misdeed {
            Some(Misdeed::Stall | Misdeed::HangUp | Misdeed::Skip) => return,
            Some(Misdeed::Repeat) => end = end.repeat(2),
            Some(Misdeed::Misplace) if extended => end = header(descriptor | 0x40, 0, count + 1),
            Some(Misdeed::Truncate) => end.truncate(end.len() / 2),
            Some(Misdeed::Noise) => end.extend(std::iter::repeat_n(0xff, HEADER_BYTES)),
            Some(Misdeed::StallData) => wire.stalled = true,
            Some(Misdeed::CloseData) => wire.server_ended = true,
            _ => {}
        }
        wire.to_client.extend(end);
        wire.server_ended |= !extended;
    }

    pub(super) fn store(&mut self) -> bool {
        let mut moved = false;
        for number in self.mine() {
            moved |= if self.extended {
                self.store_block(number)
            } else {
                self.store_piece(number)
            };
            if matches!(self.doing, Doing::Nothing) || self.stalled || self.hung_up {
                return true;
            }
        }
        moved
    }

    fn store_piece(&mut self, number: u64) -> bool {
        let Some(wire) = self.wires.get(&number).filter(|wire| !wire.stalled) else {
            return false;
        };
        if wire.to_server.is_empty() {
            return wire.client_ended && self.end("226 Done.");
        }
        let misdeed = self.step("take a piece");
        self.harm_wire(number, misdeed);
        let Some(wire) = self.wires.get_mut(&number) else {
            return true;
        };
        let bytes: Vec<u8> = wire.to_server.drain(..).collect();
        if let Doing::Stores { path, .. } = &self.doing
            && misdeed != Some(Misdeed::Skip)
        {
            self.files.entry(path.clone()).or_default().extend(bytes);
        }
        true
    }

    fn harm_wire(&mut self, number: u64, misdeed: Option<Misdeed>) {
        let Some(wire) = self.wires.get_mut(&number) else {
            return;
        };
        match misdeed {
            Some(Misdeed::StallData) => wire.stalled = true,
            Some(Misdeed::CloseData) => drop(self.fail()),
            _ => {}
        }
    }

    /// One header, or what there is of a block.
    fn store_block(&mut self, number: u64) -> bool {
        let Doing::Stores {
            path,
            ends,
            expected,
        } = &mut self.doing
        else {
            return false;
        };
        let ended = ends.contains(&number);
        let Some(wire) = self
            .wires
            .get_mut(&number)
            .filter(|wire| !wire.stalled && !ended)
        else {
            return false;
        };
        let Some((descriptor, count, offset)) = wire.header else {
            if wire.to_server.len() < HEADER_BYTES {
                return wire.client_ended && self.fail();
            }
            let raw: Vec<u8> = wire.to_server.drain(..HEADER_BYTES).collect();
            let word = |bytes: &[u8]| {
                bytes
                    .iter()
                    .fold(0, |word, &byte| word << 8 | u64::from(byte))
            };
            wire.header = Some((raw[0], word(&raw[1..9]), word(&raw[9..])));
            return true;
        };
        if (wire.to_server.len() as u64) < count {
            return wire.client_ended && self.fail();
        }
        let bytes: Vec<u8> = wire.to_server.drain(..count as usize).collect();
        wire.header = None;
        let file = self.files.entry(path.clone()).or_default();
        let begin = offset as usize;
        if descriptor & 0x40 > 0 {
            *expected = Some(offset);
        } else if !bytes.is_empty() {
            file.resize(file.len().max(begin + bytes.len()), 0);
            file[begin..begin + bytes.len()].copy_from_slice(&bytes);
        }
        if descriptor & 0x08 > 0 {
            ends.push(number);
        }
        let whole = *expected == Some(ends.len() as u64);
        let misdeed = self.step(&format!(
            "take {count} bytes from {offset}, {descriptor:#x}"
        ));
        self.harm_wire(number, misdeed);
        if whole && matches!(self.doing, Doing::Stores { .. }) {
            return self.end("226 Done.");
        }
        true
    }
}

fn header(descriptor: u8, count: u64, offset: u64) -> Vec<u8> {
    [
        &[descriptor][..],
        &count.to_be_bytes(),
        &offset.to_be_bytes(),
    ]
    .concat()
}
