//! A server with an in-memory disk, and a client that executes given acts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use venturi_gridftp::server::{
    DriverRequest, DriverResponse, GlobusError, Server, ServerOutput, ServerPolicy,
};
use venturi_gridftp::{
    DataOut, EntryKind, FtpLine, LineBuffer, ListEntry, ReplyCollector, ReplyEvent,
};

use crate::memory::policy;

/// Maximum turns of the simulation after one act.
const MAX_TURNS: usize = 2000;
/// Maximum silences before a session ends: markers of a stalled transfer, its end, and the end of
/// the session.
const MAX_SILENCES: usize = 20;
/// Act of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    Reply(String),
    Open,
    /// Bytes on the last connection that the client opened.
    Send(Vec<u8>),
    Close {
        cleanly: bool,
    },
}

pub struct ClientFaultRun {
    pub server: Server,
    policy: ServerPolicy,
    pub now: Duration,
    /// Commands that the server has not read.
    pub unread: VecDeque<u8>,
    pub commands: usize,
    pub finals: usize,
    replies: LineBuffer,
    collector: ReplyCollector,
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    open: Option<Vec<u8>>,
    /// Files that the server accepted.
    pub finished: BTreeSet<Vec<u8>>,
    links: BTreeMap<u64, VecDeque<u8>>,
    next_link: u64,
    last: u64,
    closed: bool,
    pub gone: bool,
}

impl ClientFaultRun {
    pub fn new() -> Self {
        Self {
            server: Server::new(policy(), None, Duration::ZERO),
            policy: policy(),
            now: Duration::ZERO,
            unread: VecDeque::new(),
            commands: 0,
            finals: 0,
            replies: LineBuffer::default(),
            collector: ReplyCollector::default(),
            files: BTreeMap::from([(b"/c".to_vec(), vec![b'c'; 1500])]),
            open: None,
            finished: BTreeSet::new(),
            links: BTreeMap::new(),
            next_link: 0,
            last: 0,
            closed: false,
            gone: false,
        }
    }

    pub fn act(&mut self, act: &Act) {
        match act {
            Act::Reply(line) => self.write(format!("{line}\r\n").as_bytes()),
            Act::Open => {
                self.last = self.next_link;
                self.open_link();
            }
            Act::Send(bytes) => {
                if let Some(link) = self.links.get_mut(&self.last) {
                    link.extend(bytes);
                }
            }
            Act::Close { cleanly } => {
                self.finish();
                if self.links.remove(&self.last).is_some() {
                    self.server.data_closed(self.now, self.last, *cleanly);
                }
            }
        }
        self.finish();
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if !self.gone {
            self.unread.extend(bytes);
        }
    }

    pub fn open_link(&mut self) {
        let number = self.next_link;
        self.next_link += 1;
        if self.server.data_opened(self.now, number, self.policy.peer) {
            self.links.insert(number, VecDeque::new());
        }
    }

    /// Runs until nothing moves.
    pub fn finish(&mut self) {
        for _ in 0..MAX_TURNS {
            self.now += Duration::from_micros(10);
            if ![self.outputs(), self.read(), self.data()].contains(&true) {
                return;
            }
        }
        panic!("no rest");
    }

    fn read(&mut self) -> bool {
        let count = self
            .unread
            .len()
            .min(self.server.input_capacity())
            .min(1000);
        let bytes: Vec<u8> = self.unread.drain(..count).collect();
        self.commands += bytes.iter().filter(|&&byte| byte == b'\n').count();
        if count > 0 {
            self.server.handle_input(self.now, &bytes);
        }
        count > 0
    }

    fn data(&mut self) -> bool {
        let mut moved = false;
        for number in self.links.keys().copied().collect::<Vec<_>>() {
            while self.links.contains_key(&number)
                && let Some(out) = self.server.poll_data(self.now, number)
            {
                moved = true;
                if out == DataOut::Close {
                    self.links.remove(&number);
                    self.server.data_closed(self.now, number, true);
                }
                self.outputs();
            }
            moved |= self.take(number);
        }
        moved
    }

    fn take(&mut self, number: u64) -> bool {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.is_empty()) else {
            return false;
        };
        let bytes = link.make_contiguous().to_vec();
        let delivered = self.server.handle_data(self.now, number, &bytes);
        if let Some(payload) = delivered.payload {
            let path = self.open.clone().expect("bytes of an open file");
            let file = self.files.entry(path).or_default();
            let (start, end) = (
                payload.offset as usize,
                payload.offset as usize + payload.bytes,
            );
            if end < 1_000_000 {
                file.resize(file.len().max(end), 0);
                file[start..end].copy_from_slice(
                    &bytes[delivered.consumed - payload.bytes..delivered.consumed],
                );
            }
        }
        if let Some(link) = self.links.get_mut(&number) {
            link.drain(..delivered.consumed);
        }
        delivered.consumed > 0
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.server.poll_output() {
            moved = true;
            self.run(output);
        }
        moved
    }

    fn run(&mut self, output: ServerOutput) {
        match output {
            ServerOutput::Send(bytes) => self.note(&bytes),
            ServerOutput::Request(request) => {
                let response = self.respond(request);
                self.server.respond(self.now, response);
            }
            ServerOutput::Connect {
                addresses,
                connections,
            } => {
                assert!(
                    addresses
                        .iter()
                        .all(|address| address.ip() == self.policy.peer),
                    "bounce"
                );
                (0..usize::from(connections) * addresses.len()).for_each(|_| self.open_link());
            }
            ServerOutput::DropData => self.links.clear(),
            ServerOutput::CloseFile => self.open = None,
            ServerOutput::Close => self.closed = true,
            _ => {}
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.replies.push(bytes);
        while let Some(line) = self.replies.next() {
            let FtpLine::Complete(line) = line else {
                panic!("a line that is too long");
            };
            if let Ok(ReplyEvent::Reply(reply)) = self.collector.line(&line, true)
                && !reply.is_preliminary()
            {
                self.finals += 1;
            }
        }
    }

    fn respond(&mut self, request: DriverRequest) -> DriverResponse {
        match request {
            DriverRequest::Write { path, .. } if path.split().0.as_bytes() == b"/" => {
                self.open = Some(path.as_bytes().to_vec());
                self.finished.remove(path.as_bytes());
                self.files.insert(path.as_bytes().to_vec(), Vec::new());
                DriverResponse::Done
            }
            DriverRequest::Verify { .. } => {
                let length = self.open.as_ref().map_or(0, |path| self.files[path].len());
                DriverResponse::Checksum(length.to_string())
            }
            DriverRequest::Finish => {
                self.finished.extend(self.open.take());
                DriverResponse::Done
            }
            DriverRequest::Sent => DriverResponse::Done,
            DriverRequest::Read(path) => match self.files.get(path.as_bytes()) {
                Some(bytes) => DriverResponse::Size(bytes.len() as u64),
                None => DriverResponse::Failed(GlobusError::NotFound),
            },
            DriverRequest::Stat(path) if self.files.contains_key(path.as_bytes()) => {
                let mut entry = ListEntry::named(path.as_bytes());
                entry.kind = Some(EntryKind::File);
                entry.size_bytes = Some(self.files[path.as_bytes()].len() as u64);
                DriverResponse::Entry(entry)
            }
            DriverRequest::List { .. } | DriverRequest::More => DriverResponse::Entries {
                entries: vec![ListEntry::named("x")],
                more: matches!(request, DriverRequest::List { .. }),
            },
            DriverRequest::Listen => {
                DriverResponse::Listening("192.0.2.2:6000".parse().expect("an address"))
            }
            DriverRequest::Login { .. } | DriverRequest::Rename { .. } => DriverResponse::Done,
            _ => DriverResponse::Failed(GlobusError::NotFound),
        }
    }

    /// Stops the client and waits for the session to end.
    pub fn fall_silent(&mut self) -> bool {
        for _ in 0..MAX_SILENCES {
            self.finish();
            if self.closed {
                return true;
            }
            if let Some(due) = self.server.poll_timeout() {
                self.now = self.now.max(due);
                self.server.handle_timeout(self.now);
            }
        }
        false
    }
}
