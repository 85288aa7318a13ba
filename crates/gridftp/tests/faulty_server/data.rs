//! Data connections of the faulty server: files are sent in blocks, and received bytes go to the
//! stored file.

use super::{Activity, FaultyServer, ServerFault, checksum};

const HEADER_BYTES: usize = 17;

impl FaultyServer {
    fn end(&mut self, text: &str) -> bool {
        let doing = std::mem::replace(&mut self.doing, Activity::Nothing);
        let check = self.check.take();
        if let (Activity::Stores { path, .. }, Some(expected)) = (doing, check)
            && checksum(&self.files[&path]) != expected
        {
            self.drop_data();
            self.send_reply("end", "550 Another checksum.");
            return true;
        }
        if !self.extended {
            self.drop_data();
        }
        self.send_reply("end", text);
        true
    }

    fn fail(&mut self) -> bool {
        self.drop_data();
        self.doing = Activity::Nothing;
        self.send_reply("end", "426 Closed.");
        true
    }

    pub(super) fn send(&mut self) -> bool {
        let own_connections = self.own_connections();
        let gone = own_connections
            .iter()
            .any(|number| self.data_connections[number].client_ended);
        if gone {
            return self.fail();
        }
        let expected = if self.extended { self.connections } else { 1 };
        let Activity::Sends { blocks, ends } = &mut self.doing else {
            return false;
        };
        let Some(ends) = ends else {
            if own_connections.len() < expected {
                return false;
            }
            match blocks.pop_front() {
                Some((offset, bytes)) => {
                    let number = own_connections[blocks.len() % own_connections.len()];
                    self.send_block(number, offset, bytes);
                }
                None => *ends = Some(own_connections.into()),
            }
            return true;
        };
        let Some(number) = ends.pop_front() else {
            return self.end("226 Done.");
        };
        let first = ends.len() + 1 == expected;
        self.send_end(number, if first { 0x48 } else { 0x08 }, expected as u64);
        true
    }

    fn send_block(&mut self, number: u64, offset: u64, bytes: Vec<u8>) {
        let fault = self.step(&format!("send {} bytes from {offset}", bytes.len()));
        let extended = self.extended;
        let header = |offset: u64| match extended {
            true => header(0, bytes.len() as u64, offset),
            false => Vec::new(),
        };
        let Some(connection) = self.data_connections.get_mut(&number) else {
            return;
        };
        let mut block = [header(offset), bytes.clone()].concat();
        match fault {
            Some(ServerFault::Stall | ServerFault::HangUp | ServerFault::Skip) => return,
            Some(ServerFault::Repeat) => block = block.repeat(2),
            Some(ServerFault::Misplace) => block = [header(offset + 7), bytes.clone()].concat(),
            Some(ServerFault::Truncate) => block.truncate(block.len() / 2),
            Some(ServerFault::Noise) => block
                .splice(0..0, std::iter::repeat_n(0xff, HEADER_BYTES))
                .for_each(drop),
            Some(ServerFault::StallData) => connection.stalled = true,
            Some(ServerFault::CloseData) => connection.server_ended = true,
            _ => {}
        }
        connection.to_client.extend(block);
    }

    fn send_end(&mut self, number: u64, descriptor: u8, count: u64) {
        let fault = self.step(&format!("send the end on {number}"));
        let extended = self.extended;
        let Some(connection) = self.data_connections.get_mut(&number) else {
            return;
        };
        let value = if descriptor & 0x40 > 0 { count } else { 0 };
        let mut end = if extended {
            header(descriptor, 0, value)
        } else {
            Vec::new()
        };
        match fault {
            Some(ServerFault::Stall | ServerFault::HangUp | ServerFault::Skip) => return,
            Some(ServerFault::Repeat) => end = end.repeat(2),
            Some(ServerFault::Misplace) if extended => {
                end = header(descriptor | 0x40, 0, count + 1)
            }
            Some(ServerFault::Truncate) => end.truncate(end.len() / 2),
            Some(ServerFault::Noise) => end.extend(std::iter::repeat_n(0xff, HEADER_BYTES)),
            Some(ServerFault::StallData) => connection.stalled = true,
            Some(ServerFault::CloseData) => connection.server_ended = true,
            _ => {}
        }
        connection.to_client.extend(end);
        connection.server_ended |= !extended;
    }

    pub(super) fn store(&mut self) -> bool {
        let mut moved = false;
        for number in self.own_connections() {
            moved |= if self.extended {
                self.store_block(number)
            } else {
                self.store_chunk(number)
            };
            if matches!(self.doing, Activity::Nothing) || self.stalled || self.hung_up {
                return true;
            }
        }
        moved
    }

    fn store_chunk(&mut self, number: u64) -> bool {
        let Some(connection) = self
            .data_connections
            .get(&number)
            .filter(|connection| !connection.stalled)
        else {
            return false;
        };
        if connection.to_server.is_empty() {
            return connection.client_ended && self.end("226 Done.");
        }
        let fault = self.step("take a piece");
        self.corrupt_data(number, fault);
        let Some(connection) = self.data_connections.get_mut(&number) else {
            return true;
        };
        let bytes: Vec<u8> = connection.to_server.drain(..).collect();
        if let Activity::Stores { path, .. } = &self.doing
            && fault != Some(ServerFault::Skip)
        {
            self.files.entry(path.clone()).or_default().extend(bytes);
        }
        true
    }

    fn corrupt_data(&mut self, number: u64, fault: Option<ServerFault>) {
        let Some(connection) = self.data_connections.get_mut(&number) else {
            return;
        };
        match fault {
            Some(ServerFault::StallData) => connection.stalled = true,
            Some(ServerFault::CloseData) => drop(self.fail()),
            _ => {}
        }
    }

    /// Stores one header, or the available part of a block.
    fn store_block(&mut self, number: u64) -> bool {
        let Activity::Stores {
            path,
            ends,
            expected,
        } = &mut self.doing
        else {
            return false;
        };
        let ended = ends.contains(&number);
        let Some(connection) = self
            .data_connections
            .get_mut(&number)
            .filter(|connection| !connection.stalled && !ended)
        else {
            return false;
        };
        let Some((descriptor, count, offset)) = connection.header else {
            if connection.to_server.len() < HEADER_BYTES {
                return connection.client_ended && self.fail();
            }
            let raw: Vec<u8> = connection.to_server.drain(..HEADER_BYTES).collect();
            let word = |bytes: &[u8]| {
                bytes
                    .iter()
                    .fold(0, |word, &byte| word << 8 | u64::from(byte))
            };
            connection.header = Some((raw[0], word(&raw[1..9]), word(&raw[9..])));
            return true;
        };
        if (connection.to_server.len() as u64) < count {
            return connection.client_ended && self.fail();
        }
        let bytes: Vec<u8> = connection.to_server.drain(..count as usize).collect();
        connection.header = None;
        let file = self.files.entry(path.clone()).or_default();
        let start = offset as usize;
        if descriptor & 0x40 > 0 {
            *expected = Some(offset);
        } else if !bytes.is_empty() {
            file.resize(file.len().max(start + bytes.len()), 0);
            file[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        if descriptor & 0x08 > 0 {
            ends.push(number);
        }
        let whole = *expected == Some(ends.len() as u64);
        let fault = self.step(&format!(
            "take {count} bytes from {offset}, {descriptor:#x}"
        ));
        self.corrupt_data(number, fault);
        if whole && matches!(self.doing, Activity::Stores { .. }) {
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
