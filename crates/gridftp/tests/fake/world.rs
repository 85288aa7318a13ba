//! A client with the server, joined in memory, and the files that go both ways.

use std::collections::BTreeMap;
use std::time::Duration;

use venturi_gridftp::client::{
    Client, Get, Job, Login, Output, Purpose, Put, Settings, Source, Upload,
};
use venturi_gridftp::{ByteRanges, DataOut, Mode, Path};

use super::{Fake, Misdeed, Wire, checksum};
use crate::content::content;

const PATIENCE: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 2;
/// Turns, and silences, within which a session is over.
const MAX_TURNS: usize = 3000;
const MAX_SILENCES: u32 = 4;
/// Most bytes under way to the server.
const WIRE_BYTES: usize = 1000;

fn path(text: String) -> Path {
    Path::new(text).expect("a path")
}

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub mode: Mode,
    pub connections: u16,
    pub depth: usize,
    pub upload: Upload,
    /// Of what is uploaded, and of what is downloaded.
    pub sizes: [usize; 3],
    /// Whether the server is told checksums of what is uploaded.
    pub checked: bool,
    /// Whether sizes of downloads are known, as they are after a listing.
    pub known: bool,
}

pub struct World {
    pub case: Case,
    client: Client,
    pub fake: Fake,
    now: Duration,
    pub sinks: BTreeMap<u64, Vec<u8>>,
    pub heard: Vec<Output>,
    next_wire: u64,
}

impl World {
    pub fn of(case: Case, misdeeds: Vec<(usize, Misdeed)>) -> Self {
        let settings = Settings {
            login: Login::Anonymous,
            server: "192.0.2.2".parse().expect("an address"),
            mode: case.mode,
            connections: case.connections,
            depth: case.depth,
            block_bytes: 400,
            buffer_bytes: None,
            data: None,
            upload: Some(case.upload),
            attempts: ATTEMPTS,
            striped: false,
            patience: PATIENCE,
        };
        let mut world = Self {
            case,
            client: Client::new(settings, None, Duration::ZERO).expect("settings"),
            fake: Fake::new(misdeeds),
            now: Duration::ZERO,
            sinks: BTreeMap::new(),
            heard: Vec::new(),
            next_wire: 0,
        };
        for job in world.jobs(case) {
            world.client.transfer(world.now, job);
        }
        world
    }

    /// Uploads 0 to 2, downloads 3 to 5.
    fn jobs(&mut self, case: Case) -> Vec<Job> {
        let Case {
            sizes,
            checked,
            known,
            ..
        } = case;
        let puts = (0_u64..).zip(sizes).map(|(transfer, size)| {
            Job::Put(Put {
                transfer,
                path: path(format!("/{transfer}")),
                temporary: Some(path(format!("/{transfer}.part"))),
                size_bytes: size as u64,
                checksum: checked.then(|| ("SUM".to_owned(), checksum(&content(transfer, size)))),
                modify_s: None,
                present: ByteRanges::default(),
                part: None,
                goes_on: false,
            })
        });
        let gets = (3_u64..).zip(sizes).map(|(transfer, size)| {
            Job::Get(Get {
                transfer,
                source: Source::File,
                path: path(format!("/{transfer}")),
                size_bytes: known.then_some(size as u64),
                present: ByteRanges::default(),
                see: false,
            })
        });
        let jobs = puts.chain(gets).collect();
        for (transfer, size) in (3..).zip(sizes) {
            self.fake
                .files
                .insert(format!("/{transfer}").into_bytes(), content(transfer, size));
        }
        jobs
    }

    /// Until nothing is open; false if that takes too long.
    pub fn run(&mut self) -> bool {
        let mut silences = 0;
        for _ in 0..MAX_TURNS {
            self.now += Duration::from_millis(1);
            let moved = [
                self.outputs(),
                self.fake.turn(),
                self.connect(),
                self.data(),
                self.replies(),
            ];
            if moved.contains(&true) {
                continue;
            }
            let Some(due) = self.client.poll_timeout() else {
                return true;
            };
            silences += 1;
            if silences > MAX_SILENCES * ATTEMPTS {
                return false;
            }
            self.now = self.now.max(due);
            let _ = self.client.handle_timeout(self.now);
        }
        false
    }

    fn outputs(&mut self) -> bool {
        let Some(output) = self.client.poll_output() else {
            return false;
        };
        match output {
            Output::Send(bytes) => self.fake.hear(&bytes),
            Output::Listen => {
                self.client
                    .listening(self.now, "192.0.2.1:5000".parse().expect("an address"));
            }
            Output::Connect {
                address,
                connections,
                purpose,
            } => {
                for _ in 0..connections {
                    if address.ip() != "192.0.2.2".parse::<std::net::IpAddr>().expect("an address")
                    {
                        self.client.connect_failed(self.now, purpose, "no route");
                        continue;
                    }
                    let port = address.port();
                    self.open(
                        purpose,
                        Wire {
                            port,
                            ..Wire::default()
                        },
                    );
                }
            }
            Output::CloseData { connection } => self.end_of(connection),
            Output::DropData { .. } => {
                let all: Vec<u64> = self.fake.wires.keys().copied().collect();
                all.into_iter().for_each(|number| self.end_of(number));
            }
            other => self.heard.push(other),
        }
        true
    }

    fn open(&mut self, purpose: Purpose, wire: Wire) {
        let number = self.next_wire;
        self.next_wire += 1;
        self.fake.wires.insert(number, wire);
        if !self.client.data_opened(self.now, number, purpose) {
            self.end_of(number);
        }
    }

    /// The client has closed it.
    fn end_of(&mut self, number: u64) {
        if let Some(wire) = self.fake.wires.get_mut(&number) {
            wire.client_ended = true;
            wire.to_client.clear();
        }
    }

    fn connect(&mut self) -> bool {
        let count = std::mem::take(&mut self.fake.connects);
        (0..count).for_each(|_| self.open(Purpose::Stripe(0), Wire::default()));
        count > 0
    }

    fn replies(&mut self) -> bool {
        let count = self.fake.replies.len().min(4096);
        if count == 0 {
            return std::mem::take(&mut self.fake.hung_up) && self.client.handle_closed().is_err();
        }
        let bytes: Vec<u8> = self.fake.replies.drain(..count).collect();
        let _ = self.client.handle_input(self.now, &bytes);
        true
    }

    fn data(&mut self) -> bool {
        let mut moved = false;
        for number in self.fake.wires.keys().copied().collect::<Vec<_>>() {
            moved |= self.give(number) | self.take(number);
        }
        moved
    }

    fn give(&mut self, number: u64) -> bool {
        let mut moved = false;
        while let Some(wire) = self.fake.wires.get_mut(&number)
            && !wire.client_ended
            && !wire.server_ended
            && wire.to_server.len() < WIRE_BYTES
            && let Some(out) = self.client.poll_data(self.now, number)
        {
            moved = true;
            match out {
                DataOut::Bytes(bytes) => wire.to_server.extend(bytes),
                DataOut::Close => wire.client_ended = true,
                DataOut::Payload {
                    header,
                    transfer,
                    offset,
                    bytes,
                } => {
                    let source = content(transfer, self.case.sizes[transfer as usize]);
                    let begin = offset as usize;
                    wire.to_server.extend(header.iter().flatten());
                    wire.to_server
                        .extend(&source[begin..begin + bytes as usize]);
                }
            }
        }
        moved
    }

    fn take(&mut self, number: u64) -> bool {
        let Some(wire) = self
            .fake
            .wires
            .get_mut(&number)
            .filter(|wire| !wire.stalled && !wire.client_ended)
        else {
            return false;
        };
        if wire.to_client.is_empty() {
            if wire.server_ended {
                wire.client_ended = true;
                self.client.data_closed(self.now, number, true);
                return true;
            }
            return false;
        }
        let bytes = wire.to_client.make_contiguous().to_vec();
        let delivered = self.client.handle_data(self.now, number, &bytes);
        if let Some(payload) = delivered.payload {
            let sink = self.sinks.entry(payload.transfer).or_default();
            let (begin, end) = (
                payload.offset as usize,
                payload.offset as usize + payload.bytes,
            );
            assert!(end < 1_000_000, "beyond what the file can have");
            sink.resize(sink.len().max(end), 0);
            sink[begin..end]
                .copy_from_slice(&bytes[delivered.consumed - payload.bytes..delivered.consumed]);
        }
        if let Some(wire) = self.fake.wires.get_mut(&number) {
            let used = delivered.consumed.min(wire.to_client.len());
            wire.to_client.drain(..used);
        }
        delivered.consumed > 0
    }

    pub fn is_done(&self, transfer: u64) -> bool {
        self.heard.iter().any(
            |output| matches!(output, Output::Done { transfer: done, .. } if *done == transfer),
        )
    }
}
