//! A server with a disk in memory, and a client that does act by act what it is told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use venturi_gridftp::server::{Answer, Output, Policy, Refusal, Request, Server};
use venturi_gridftp::{Collected, DataOut, Entry, Kind, Line, LineBuffer, ReplyCollector};

use crate::memory::policy;

/// Turns of the world after one act.
const MAX_TURNS: usize = 2000;
/// Silences until a session is over: markers of a transfer that stands still, its end, that of the session.
const MAX_SILENCES: usize = 20;
/// What a client does.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    Say(String),
    Open,
    /// Bytes on the last connection that it opened.
    Send(Vec<u8>),
    Close {
        cleanly: bool,
    },
}

pub struct World {
    pub server: Server,
    policy: Policy,
    pub now: Duration,
    /// What the client has said and the server has not read.
    pub unread: VecDeque<u8>,
    pub commands: usize,
    pub finals: usize,
    replies: LineBuffer,
    collector: ReplyCollector,
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    open: Option<Vec<u8>>,
    /// Files that the server was content with.
    pub finished: BTreeSet<Vec<u8>>,
    links: BTreeMap<u64, VecDeque<u8>>,
    next_link: u64,
    last: u64,
    closed: bool,
    pub gone: bool,
}

impl World {
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
            Act::Say(line) => self.write(format!("{line}\r\n").as_bytes()),
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
                self.settle();
                if self.links.remove(&self.last).is_some() {
                    self.server.data_closed(self.now, self.last, *cleanly);
                }
            }
        }
        self.settle();
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

    /// Until nothing moves.
    pub fn settle(&mut self) {
        for _ in 0..MAX_TURNS {
            self.now += Duration::from_micros(10);
            if ![self.outputs(), self.read(), self.data()].contains(&true) {
                return;
            }
        }
        panic!("no rest");
    }

    fn read(&mut self) -> bool {
        let count = self.unread.len().min(self.server.room_bytes()).min(1000);
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
            let (begin, end) = (
                payload.offset as usize,
                payload.offset as usize + payload.bytes,
            );
            if end < 1_000_000 {
                file.resize(file.len().max(end), 0);
                file[begin..end].copy_from_slice(
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
            self.carry_out(output);
        }
        moved
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send(bytes) => self.note(&bytes),
            Output::Ask(request) => {
                let answer = self.answer(request);
                self.server.answer(self.now, answer);
            }
            Output::Connect {
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
            Output::DropData => self.links.clear(),
            Output::CloseFile => self.open = None,
            Output::Close => self.closed = true,
            _ => {}
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.replies.push(bytes);
        while let Some(line) = self.replies.next() {
            let Line::Whole(line) = line else {
                panic!("a line that is too long");
            };
            if let Ok(Collected::Reply(reply)) = self.collector.line(&line, true)
                && !reply.is_preliminary()
            {
                self.finals += 1;
            }
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Write { path, .. } if path.split().0.as_bytes() == b"/" => {
                self.open = Some(path.as_bytes().to_vec());
                self.finished.remove(path.as_bytes());
                self.files.insert(path.as_bytes().to_vec(), Vec::new());
                Answer::Done
            }
            Request::Verify { .. } => {
                let length = self.open.as_ref().map_or(0, |path| self.files[path].len());
                Answer::Checksum(length.to_string())
            }
            Request::Finish => {
                self.finished.extend(self.open.take());
                Answer::Done
            }
            Request::Sent => Answer::Done,
            Request::Read(path) => match self.files.get(path.as_bytes()) {
                Some(bytes) => Answer::Size(bytes.len() as u64),
                None => Answer::Refused(Refusal::NotFound),
            },
            Request::Stat(path) if self.files.contains_key(path.as_bytes()) => {
                let mut entry = Entry::named(path.as_bytes());
                entry.kind = Some(Kind::File);
                entry.size_bytes = Some(self.files[path.as_bytes()].len() as u64);
                Answer::Entry(entry)
            }
            Request::List { .. } | Request::More => Answer::Entries {
                entries: vec![Entry::named("x")],
                more: matches!(request, Request::List { .. }),
            },
            Request::Listen => Answer::Listening("192.0.2.2:6000".parse().expect("an address")),
            Request::Login { .. } | Request::Rename { .. } => Answer::Done,
            _ => Answer::Refused(Refusal::NotFound),
        }
    }

    /// From here on the client says nothing; the session closes.
    pub fn fall_silent(&mut self) -> bool {
        for _ in 0..MAX_SILENCES {
            self.settle();
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
