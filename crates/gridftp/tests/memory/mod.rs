//! A client and a server joined in memory, and what may go wrong between them. Every choice of the order, and of how bytes
//! are cut, comes from a seed.

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

use std::collections::BTreeMap;
use std::time::Duration;

use venturi_gridftp::client::{self, Client, Job, Settings};
use venturi_gridftp::server::{self, Answer, Policy, Refusal, Request, Server};
use venturi_gridftp::{DataOut, Entry, Kind, Path};

/// Steps within which everything has to be over.
const MAX_STEPS: usize = 400_000;
/// Most bytes under way in one direction of one connection.
const WIRE_BYTES: usize = 3000;

/// What goes wrong, at the n-th occasion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// A data connection breaks.
    BreakData(usize),
    /// A data connection ends cleanly, and too early.
    EndData(usize),
    /// A data connection stands still for ever.
    StallData(usize),
    /// The server's file cannot be written, read or closed.
    File(usize),
    /// The control connection breaks.
    BreakControl(usize),
    /// A reply is another one.
    Lie(usize, &'static str),
    /// A reply never comes.
    Swallow(usize),
    /// A byte of data is another one.
    Flip(usize),
}

#[derive(Default)]
struct Wire {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    client_ended: bool,
    server_ended: bool,
    stalled: bool,
}

pub struct World {
    pub client: Client,
    pub server: Server,
    /// Files of the server.
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub sources: BTreeMap<u64, Vec<u8>>,
    pub sinks: BTreeMap<u64, Vec<u8>>,
    pub heard: Vec<client::Output>,
    open: Option<Vec<u8>>,
    request: Option<Request>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    replies: Vec<u8>,
    control_ended: bool,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    now: Duration,
    random: u64,
    fault: Fault,
    occasions: usize,
    /// After so many steps the driver gives this transfer up.
    pub gives_up: Option<(usize, u64)>,
}

pub fn policy() -> Policy {
    Policy {
        greeting: "venturi GridFTP Server".to_owned(),
        epoch: Duration::from_secs(1_700_000_000),
        peer: "192.0.2.1".parse().expect("an address"),
        writes: true,
        third_party: false,
        checksums: vec!["LENGTH".to_owned()],
        connections: 8,
        block_bytes: 700,
        queued_bytes: 2000,
        logins: 3,
        login_patience: Duration::from_secs(60),
        idle_patience: Duration::from_secs(600),
        data_patience: Duration::from_secs(30),
        marker_interval: Duration::from_secs(5),
    }
}

impl World {
    pub fn new(settings: Settings, seed: u64, fault: Fault) -> Self {
        let client = Client::new(settings, None, Duration::ZERO).expect("settings of a test");
        Self::of(
            client,
            Server::new(policy(), None, Duration::ZERO),
            seed,
            fault,
        )
    }

    pub fn of(client: Client, server: Server, seed: u64, fault: Fault) -> Self {
        Self {
            client,
            server,
            files: BTreeMap::new(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            heard: Vec::new(),
            open: None,
            request: None,
            to_server: Vec::new(),
            to_client: Vec::new(),
            replies: Vec::new(),
            control_ended: false,
            wires: BTreeMap::new(),
            next_wire: 0,
            now: Duration::ZERO,
            random: seed | 1,
            fault,
            occasions: 0,
            gives_up: None,
        }
    }

    /// Until every job is done or failed, or the session is over.
    pub fn carry_out(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            self.client.transfer(self.now, job);
        }
        for step in 0..MAX_STEPS {
            if let Some((_, transfer)) = self.gives_up.filter(|&(at, _)| at == step) {
                self.client.abandon(self.now, transfer, "cut meanwhile");
            }
            let moved = self.step();
            if self.client.open_transfers() == 0 && !moved {
                return;
            }
            if !moved {
                self.pass_time();
            }
        }
        panic!(
            "no end; last: {:?}",
            self.heard.iter().rev().take(5).collect::<Vec<_>>()
        );
    }

    fn pass_time(&mut self) {
        let due = [self.client.poll_timeout(), self.server.poll_timeout()];
        let Some(due) = due.into_iter().flatten().min() else {
            return;
        };
        self.now = self.now.max(due);
        let _ = self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    /// xorshift64*: a test has to be the same everywhere.
    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below.max(1)
    }

    fn occasion(&mut self, of: impl Fn(usize) -> Fault) -> bool {
        let hit = self.fault == of(self.occasions);
        self.occasions += 1;
        hit
    }

    fn step(&mut self) -> bool {
        self.now += Duration::from_micros(100);
        let mut order = [0, 1, 2, 3, 4, 5, 6];
        for place in (1..order.len()).rev() {
            let other = self.draw(place + 1);
            order.swap(place, other);
        }
        let mut moved = false;
        for action in order {
            moved |= match action {
                0 => self.client_outputs(),
                1 => self.server_outputs(),
                2 => self.control_to_server(),
                3 => self.control_to_client(),
                4 => self.serve(),
                5 => self.data_to_client(),
                _ => self.data_to_server(),
            };
        }
        moved
    }

    fn client_outputs(&mut self) -> bool {
        let Some(output) = self.client.poll_output() else {
            return false;
        };
        match output {
            client::Output::Send(bytes) => self.to_server.extend(bytes),
            client::Output::Listen => {
                self.client
                    .listening(self.now, "192.0.2.1:5000".parse().expect("an address"));
            }
            client::Output::Connect {
                connections,
                purpose,
                ..
            } => {
                for _ in 0..connections {
                    self.wires.insert(self.next_wire, Wire::default());
                    self.client.data_opened(self.now, self.next_wire, purpose);
                    let peer = "192.0.2.1".parse().expect("an address");
                    if !self.server.data_opened(self.now, self.next_wire, peer) {
                        self.end_wire(self.next_wire, true);
                    }
                    self.next_wire += 1;
                }
            }
            client::Output::CloseData { connection } => {
                self.wires.remove(&connection);
                self.server.data_closed(self.now, connection, false);
            }
            client::Output::DropData { .. } => {
                for (number, _) in std::mem::take(&mut self.wires) {
                    self.server.data_closed(self.now, number, false);
                }
            }
            other => self.heard.push(other),
        }
        true
    }

    fn server_outputs(&mut self) -> bool {
        let Some(output) = self.server.poll_output() else {
            return false;
        };
        match output {
            server::Output::Send(bytes) => self.reply(&bytes),
            server::Output::Ask(request) => {
                assert_eq!(self.request.replace(request), None, "one request at a time");
            }
            server::Output::Connect {
                addresses,
                connections,
            } => {
                for _ in 0..usize::from(connections) * addresses.len() {
                    self.wires.insert(self.next_wire, Wire::default());
                    let peer = "192.0.2.1".parse().expect("an address");
                    if self.server.data_opened(self.now, self.next_wire, peer) {
                        let purpose = client::Purpose::Stripe(0);
                        self.client.data_opened(self.now, self.next_wire, purpose);
                    }
                    self.next_wire += 1;
                }
            }
            server::Output::DropData => {
                for wire in self.wires.values_mut() {
                    wire.server_ended = true;
                    wire.to_server.clear();
                }
            }
            server::Output::CloseFile => self.open = None,
            server::Output::Close => self.control_ended = true,
            _ => {}
        }
        true
    }

    /// Replies pass whole, so that one can be another.
    fn reply(&mut self, bytes: &[u8]) {
        self.replies.extend(bytes);
        let ends = |line: &[u8]| {
            line.len() > 3 && line[..3].iter().all(u8::is_ascii_digit) && line[3] == b' '
        };
        if !self.replies.split(|&byte| byte == b'\n').any(ends) {
            return;
        }
        let reply = std::mem::take(&mut self.replies);
        let number = self.occasions;
        match self.fault {
            Fault::Lie(at, text) if at == number => self.to_client.extend(text.bytes()),
            Fault::Swallow(at) if at == number => {}
            _ => self.to_client.extend(reply),
        }
        if matches!(self.fault, Fault::Lie(..) | Fault::Swallow(_)) {
            self.occasions += 1;
        }
    }

    fn control_to_server(&mut self) -> bool {
        let count = self.to_server.len().min(self.server.room_bytes());
        if count == 0 {
            return false;
        }
        let count = 1 + self.draw(count);
        let bytes: Vec<u8> = self.to_server.drain(..count).collect();
        self.server.handle_input(self.now, &bytes);
        true
    }

    fn control_to_client(&mut self) -> bool {
        let is_control = matches!(self.fault, Fault::BreakControl(_));
        if is_control && self.occasion(Fault::BreakControl) {
            self.to_client.clear();
            self.control_ended = true;
        }
        if self.to_client.is_empty() {
            return std::mem::take(&mut self.control_ended) && self.client.handle_closed().is_err();
        }
        let count = 1 + self.draw(self.to_client.len());
        let bytes: Vec<u8> = self.to_client.drain(..count).collect();
        // A session that ends tells its transfers.
        let _ = self.client.handle_input(self.now, &bytes);
        true
    }

    fn data_to_client(&mut self) -> bool {
        let mut moved = false;
        for number in self.wires.keys().copied().collect::<Vec<_>>() {
            let room = |wire: &Wire| wire.to_client.len() < WIRE_BYTES && !wire.server_ended;
            while self.wires.get(&number).is_some_and(room)
                && let Some(out) = self.server.poll_data(self.now, number)
            {
                moved = true;
                let bytes = match out {
                    DataOut::Bytes(bytes) => bytes,
                    DataOut::Close => {
                        self.wires
                            .get_mut(&number)
                            .expect("it is there")
                            .server_ended = true;
                        self.server.data_closed(self.now, number, true);
                        break;
                    }
                    DataOut::Payload {
                        header,
                        offset,
                        bytes,
                        ..
                    } => {
                        let file = self.open.as_ref().map_or(&[][..], |path| &self.files[path]);
                        let (begin, bytes) = (offset as usize, bytes as usize);
                        let mut out: Vec<u8> = header.iter().flatten().copied().collect();
                        out.extend(&file[begin..begin + bytes]);
                        out
                    }
                };
                self.wires
                    .get_mut(&number)
                    .expect("it is there")
                    .to_client
                    .extend(bytes);
            }
            moved |= self.wire_to_client(number);
        }
        moved
    }

    fn wire_to_client(&mut self, number: u64) -> bool {
        self.harm(number);
        let Some(wire) = self.wires.get(&number).filter(|wire| !wire.stalled) else {
            return false;
        };
        if wire.to_client.is_empty() {
            if wire.server_ended {
                self.wires.remove(&number);
                self.client.data_closed(self.now, number, true);
            }
            return !self.wires.contains_key(&number);
        }
        let count = 1 + self.draw(wire.to_client.len());
        let bytes = self.wires[&number].to_client[..count].to_vec();
        let delivered = self.client.handle_data(self.now, number, &bytes);
        if let Some(payload) = delivered.payload {
            let sink = self.sinks.entry(payload.transfer).or_default();
            write(
                sink,
                payload.offset,
                &bytes[delivered.consumed - payload.bytes..delivered.consumed],
            );
        }
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.to_client.drain(..delivered.consumed);
        }
        delivered.consumed > 0
    }

    fn data_to_server(&mut self) -> bool {
        let mut moved = false;
        for number in self.wires.keys().copied().collect::<Vec<_>>() {
            let room = |wire: &Wire| {
                wire.to_server.len() < WIRE_BYTES && !wire.server_ended && !wire.client_ended
            };
            while self.wires.get(&number).is_some_and(room)
                && let Some(out) = self.client.poll_data(self.now, number)
            {
                moved = true;
                let wire = self.wires.get_mut(&number).expect("it is there");
                match out {
                    DataOut::Bytes(bytes) => wire.to_server.extend(bytes),
                    DataOut::Close => wire.client_ended = true,
                    DataOut::Payload {
                        header,
                        transfer,
                        offset,
                        bytes,
                    } => {
                        wire.to_server.extend(header.iter().flatten());
                        let (begin, bytes) = (offset as usize, bytes as usize);
                        wire.to_server
                            .extend(&self.sources[&transfer][begin..begin + bytes]);
                    }
                }
            }
            moved |= self.wire_to_server(number);
        }
        moved
    }

    fn wire_to_server(&mut self, number: u64) -> bool {
        self.harm(number);
        let Some(wire) = self
            .wires
            .get(&number)
            .filter(|wire| !wire.stalled && !wire.server_ended)
        else {
            return false;
        };
        if wire.to_server.is_empty() {
            if wire.client_ended {
                self.end_wire(number, true);
            }
            return !self.wires.contains_key(&number);
        }
        let count = 1 + self.draw(wire.to_server.len());
        let bytes = self.wires[&number].to_server[..count].to_vec();
        let delivered = self.server.handle_data(self.now, number, &bytes);
        if let (Some(payload), Some(path)) = (delivered.payload, &self.open) {
            let file = self.files.entry(path.clone()).or_default();
            write(
                file,
                payload.offset,
                &bytes[delivered.consumed - payload.bytes..delivered.consumed],
            );
        }
        if let Some(wire) = self.wires.get_mut(&number) {
            let used = delivered.consumed.min(wire.to_server.len());
            wire.to_server.drain(..used);
        }
        delivered.consumed > 0
    }

    /// Lets a data connection suffer.
    fn harm(&mut self, number: u64) {
        let busy = self
            .wires
            .get(&number)
            .is_some_and(|wire| !wire.to_client.is_empty() || !wire.to_server.is_empty());
        if !busy {
            return;
        }
        let fault = self.fault;
        match fault {
            Fault::BreakData(_) if self.occasion(Fault::BreakData) => self.end_wire(number, false),
            Fault::EndData(_) if self.occasion(Fault::EndData) => self.end_wire(number, true),
            Fault::StallData(_) if self.occasion(Fault::StallData) => {
                self.wires.get_mut(&number).expect("it is busy").stalled = true;
            }
            Fault::Flip(_) if self.occasion(Fault::Flip) => {
                let wire = self.wires.get_mut(&number).expect("it is busy");
                let bytes = if wire.to_client.is_empty() {
                    &mut wire.to_server
                } else {
                    &mut wire.to_client
                };
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
            }
            _ => {}
        }
    }

    fn end_wire(&mut self, number: u64, cleanly: bool) {
        self.wires.remove(&number);
        self.client.data_closed(self.now, number, cleanly);
        self.server.data_closed(self.now, number, cleanly);
    }

    /// The server's driver: a disk of names and bytes, with one directory.
    fn serve(&mut self) -> bool {
        let Some(request) = self.request.take() else {
            return false;
        };
        let disk = matches!(
            request,
            Request::Finish
                | Request::Sent
                | Request::Verify { .. }
                | Request::Write { .. }
                | Request::Read(_)
        );
        let broken = disk && matches!(self.fault, Fault::File(_)) && self.occasion(Fault::File);
        let answer = if broken {
            Answer::Refused(Refusal::Internal)
        } else {
            self.answer(request)
        };
        self.server.answer(self.now, answer);
        true
    }

    fn answer(&mut self, request: Request) -> Answer {
        let in_root = |path: &Path| path.split().0 == Path::root();
        match request {
            Request::Login { .. }
            | Request::SetModified { .. }
            | Request::Finish
            | Request::Sent => Answer::Done,
            Request::Listen => Answer::Listening("192.0.2.2:6000".parse().expect("an address")),
            Request::Read(path) => match self.files.get(path.as_bytes()) {
                Some(bytes) => {
                    self.open = Some(path.as_bytes().to_vec());
                    Answer::Size(bytes.len() as u64)
                }
                None => Answer::Refused(Refusal::NotFound),
            },
            Request::Write { path, begin, .. } if in_root(&path) => {
                self.open = Some(path.as_bytes().to_vec());
                let file = self.files.entry(path.as_bytes().to_vec()).or_default();
                if begin == server::Begin::New {
                    file.clear();
                }
                Answer::Done
            }
            Request::Rename { from, to } => match self.files.remove(from.as_bytes()) {
                Some(bytes) => {
                    self.files.insert(to.as_bytes().to_vec(), bytes);
                    Answer::Done
                }
                None => Answer::Refused(Refusal::NotFound),
            },
            Request::Delete(path) => match self.files.remove(path.as_bytes()) {
                Some(_) => Answer::Done,
                None => Answer::Refused(Refusal::NotFound),
            },
            Request::Stat(path) => match self.files.get(path.as_bytes()) {
                Some(bytes) => {
                    let mut entry = Entry::named(path.as_bytes());
                    entry.kind = Some(Kind::File);
                    entry.size_bytes = Some(bytes.len() as u64);
                    Answer::Entry(entry)
                }
                None => Answer::Refused(Refusal::NotFound),
            },
            Request::Verify { .. } => {
                match self.open.as_ref().and_then(|name| self.files.get(name)) {
                    Some(bytes) => Answer::Checksum(bytes.len().to_string()),
                    None => Answer::Refused(Refusal::NotFound),
                }
            }
            // Not much of a checksum; all that the session needs is one that can differ.
            Request::Checksum { path, .. } => match self.files.get(path.as_bytes()) {
                Some(bytes) => Answer::Checksum(bytes.len().to_string()),
                None => Answer::Refused(Refusal::NotFound),
            },
            Request::List { .. } => Answer::Entries {
                entries: Vec::new(),
                more: true,
            },
            Request::More => {
                let entries = self
                    .files
                    .keys()
                    .map(|name| Entry::named(&name[1..]))
                    .collect();
                Answer::Entries {
                    entries,
                    more: false,
                }
            }
            _ => Answer::Refused(Refusal::NotFound),
        }
    }
}

/// A disk on which nothing lies beyond a million: a header with a wrong bit may name any place.
fn write(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let begin = offset as usize;
    if begin > 1_000_000 {
        return;
    }
    let length = file.len().max(begin + bytes.len());
    file.resize(length, 0);
    file[begin..begin + bytes.len()].copy_from_slice(bytes);
}
