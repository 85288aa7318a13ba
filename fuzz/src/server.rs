//! A server whose client, disk, network and clock are the fuzzer's. It is held to what `Output` and `ServerPolicy` promise its
//! driver, and to what nobody may make it do.

mod invariants;
mod lines;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use venturi_gridftp::mode_e::BlockHeader;
use venturi_gridftp::server::{DriverRequest, DriverResponse, GlobusError, Server, ServerPolicy};
use venturi_gridftp::{
    DataOut, DeliveryResult, EntryKind, FtpCommand, LineBuffer, ListEntry, ReplyCollector, Security,
};

use crate::{Draws, toy::ToySecurity};
use lines::LINES;

/// Most outputs between two events; most answers and silences until a session is over: of each command that waits, and some.
const MAX_OUTPUTS: usize = 10_000;
const MAX_ENDINGS: usize = 1000;

/// The file that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Read(u64),
    Write,
    List,
}

struct FuzzSession {
    server: Server,
    policy: ServerPolicy,
    security: Option<Box<dyn Security>>,
    protects: bool,
    now: Duration,
    requested: Option<DriverRequest>,
    open: Open,
    logged_in: bool,
    links: BTreeSet<u64>,
    next_link: u64,
    connects: usize,
    replies: LineBuffer,
    collector: ReplyCollector,
    commands: usize,
    finals: usize,
    closed: bool,
}

/// Drives a server as the bytes say.
pub fn run(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let mut session = FuzzSession::new(&mut draws);
    session.outputs();
    if draws.below(4) > 0 {
        session.log_in();
    }
    while !draws.is_over() {
        session.turn(&mut draws);
        session.outputs();
    }
    session.fall_silent();
}

fn policy(draws: &mut Draws) -> ServerPolicy {
    ServerPolicy {
        greeting: "venturi".to_owned(),
        epoch: Duration::from_secs(1_700_000_000),
        peer: if draws.coin() {
            "192.0.2.1"
        } else {
            "2001:db8::1"
        }
        .parse()
        .expect("an address"),
        writes: draws.below(4) > 0,
        third_party: draws.below(4) == 0,
        checksums: vec!["ADLER32".to_owned()],
        connections: draws.one_of(&[4, 1, 2]),
        block_bytes: draws.one_of(&[100, 1, 1000]),
        queued_bytes: 2000,
        logins: 3,
        login_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(600),
        stall_timeout: Duration::from_secs(30),
        marker_interval: Duration::from_secs(5),
    }
}

impl FuzzSession {
    fn new(draws: &mut Draws) -> Self {
        let secure = draws.below(4) == 3;
        let policy = policy(draws);
        Self {
            server: Server::new(
                policy.clone(),
                secure.then(|| ToySecurity::side(false)),
                Duration::ZERO,
            ),
            policy,
            security: secure.then(|| ToySecurity::side(true)),
            protects: false,
            now: Duration::ZERO,
            requested: None,
            open: Open::Nothing,
            logged_in: false,
            links: BTreeSet::new(),
            next_link: 0,
            connects: 0,
            replies: LineBuffer::default(),
            collector: ReplyCollector::default(),
            commands: 0,
            finals: 0,
            closed: false,
        }
    }

    fn log_in(&mut self) {
        if self.security.is_some() {
            self.send(b"AUTH TOY\r\nADAT aGVsbG8=\r\n");
            self.outputs();
            let bye = FtpCommand::Adat(b"bye".to_vec()).text();
            self.send(&[&bye[..], b"\r\n"].concat());
            self.outputs();
            self.protects = true;
        }
        self.send(b"USER anonymous\r\n");
        self.send(b"PASS x\r\n");
        self.outputs();
        if self.requested.take().is_some() {
            self.logged_in = true;
            self.server.respond(self.now, DriverResponse::Done);
        }
        self.outputs();
    }

    fn turn(&mut self, draws: &mut Draws) {
        self.now += Duration::from_millis(1);
        match draws.below(14) {
            0..=3 => {
                for _ in 0..=draws.below(3) {
                    let line = draws
                        .one_of(LINES)
                        .replace('?', &draws.number().to_string());
                    self.send(format!("{line}\r\n").as_bytes());
                }
            }
            4 => {
                let bytes = draws.bytes();
                self.send_raw(bytes);
            }
            5 | 6 => self.response(draws),
            7 => self.open_data(draws),
            8 | 9 => self.receive_data(draws),
            10 => self.send_data(draws),
            11 => self.close_data(draws),
            12 => {
                self.now += Duration::from_secs(u64::from(draws.byte()));
                self.server.handle_timeout(self.now);
            }
            _ => match draws.byte() {
                1 => self.server.handle_closed(),
                2 if self.open != Open::Nothing => {
                    self.server.file_failed(self.now, GlobusError::NoSpace)
                }
                _ => {}
            },
        }
    }

    fn send(&mut self, plain: &[u8]) {
        for line in plain.split_inclusive(|&byte| byte == b'\n') {
            match self.security.as_mut().filter(|_| self.protects) {
                None => self.send_raw(line),
                Some(security) => {
                    let token = security.wrap(line).expect("it always can");
                    let line = [&FtpCommand::Enc(token).text()[..], b"\r\n"].concat();
                    self.send_raw(&line);
                }
            }
        }
    }

    /// As a driver does: no more than there is room for. The rest is lost, which is what a fuzzer may do.
    fn send_raw(&mut self, bytes: &[u8]) {
        let taken = &bytes[..bytes.len().min(self.server.input_capacity())];
        self.commands += taken.iter().filter(|&&byte| byte == b'\n').count();
        self.server.handle_input(self.now, taken);
    }

    fn response(&mut self, draws: &mut Draws) {
        let Some(request) = self.requested.take() else {
            return;
        };
        let rejected = draws.below(5) == 0;
        let response = match draws.below(12) {
            // Of another kind than what was asked.
            11 => draws.number(),
            _ => u64::MAX,
        };
        let response = match response {
            u64::MAX if rejected => DriverResponse::Failed(GlobusError::NotFound),
            u64::MAX => self.successful_response(&request, draws),
            other if other % 2 == 0 => DriverResponse::Size(other),
            _ => DriverResponse::Done,
        };
        match (&request, &response) {
            (DriverRequest::Login { .. }, DriverResponse::Done) => self.logged_in = true,
            (DriverRequest::Read(_), DriverResponse::Size(size)) => self.open = Open::Read(*size),
            (DriverRequest::Write { .. }, DriverResponse::Done | DriverResponse::Size(_)) => {
                self.open = Open::Write
            }
            (DriverRequest::List { .. }, DriverResponse::Entries { .. })
                if self.open == Open::Nothing =>
            {
                self.open = Open::List
            }
            _ => {}
        }
        self.server.respond(self.now, response);
    }

    fn successful_response(
        &mut self,
        request: &DriverRequest,
        draws: &mut Draws,
    ) -> DriverResponse {
        match request {
            DriverRequest::Stat(path) => {
                let mut entry = ListEntry::named(path.as_bytes());
                entry.kind = Some(if draws.coin() {
                    EntryKind::File
                } else {
                    EntryKind::Directory
                });
                entry.size_bytes = Some(draws.number());
                entry.modify_s = Some(draws.number() as i64);
                DriverResponse::Entry(entry)
            }
            DriverRequest::List { .. } | DriverRequest::More => {
                let names = draws.bytes().split(|&byte| byte == b'/');
                let entries = names.map(ListEntry::named).collect();
                DriverResponse::Entries {
                    entries,
                    more: draws.coin(),
                }
            }
            DriverRequest::Checksum { .. } => DriverResponse::Checksum("00000001".to_owned()),
            DriverRequest::Listen => {
                let address = draws.one_of(&["192.0.2.2:6000", "[2001:db8::2]:6000"]);
                DriverResponse::Listening(address.parse().expect("an address"))
            }
            DriverRequest::Read(_) => DriverResponse::Size(draws.number()),
            _ => DriverResponse::Done,
        }
    }

    fn open_data(&mut self, draws: &mut Draws) {
        if self.connects > 0 && draws.below(8) == 0 {
            self.connects = 0;
            return self.server.connect_failed(self.now);
        }
        let from: IpAddr = match draws.below(4) {
            0 => "192.0.2.9".parse().expect("an address"),
            _ => self.policy.peer,
        };
        let called = self.connects > 0;
        self.connects = self.connects.saturating_sub(1);
        let number = self.next_link;
        self.next_link += 1;
        if self.server.data_opened(self.now, number, from) {
            assert!(
                called || self.policy.third_party || from == self.policy.peer,
                "somebody else's connection"
            );
            self.links.insert(number);
            assert!(self.links.len() <= usize::from(self.policy.connections));
        }
    }

    fn link(&self, draws: &mut Draws) -> Option<u64> {
        let count = self.links.len();
        (count > 0).then(|| self.links.iter().nth(draws.below(count)).copied())?
    }

    fn receive_data(&mut self, draws: &mut Draws) {
        let Some(number) = self.link(draws) else {
            return;
        };
        let mut bytes = Vec::new();
        if draws.below(4) > 0 {
            let end_of_file = draws.coin().then(|| u64::from(draws.byte() & 3).max(1));
            let count = if end_of_file.is_some() {
                0
            } else {
                u64::from(draws.byte())
            };
            let offset = draws.number().min(u64::MAX - count);
            let (end_of_data, close) = (draws.coin(), draws.below(16) == 0);
            bytes.extend(
                BlockHeader {
                    count,
                    offset,
                    end_of_data,
                    end_of_file,
                    close,
                }
                .write(),
            );
            bytes.extend(std::iter::repeat_n(b'x', count as usize));
        } else {
            bytes.extend(draws.bytes());
        }
        let mut rest = &bytes[..];
        while self.links.contains(&number) && !rest.is_empty() {
            let DeliveryResult { consumed, payload } =
                self.server.handle_data(self.now, number, rest);
            assert!(consumed <= rest.len());
            if let Some(payload) = payload {
                assert!(0 < payload.bytes && payload.bytes <= consumed);
                assert_eq!(self.open, Open::Write, "bytes for a file that is not open");
                assert!(payload.offset.checked_add(payload.bytes as u64).is_some());
            }
            if consumed == 0 {
                break;
            }
            rest = &rest[consumed..];
            self.outputs();
        }
    }

    fn send_data(&mut self, draws: &mut Draws) {
        let Some(number) = self.link(draws) else {
            return;
        };
        for _ in 0..draws.below(64) {
            if !self.links.contains(&number) {
                return;
            }
            match self.server.poll_data(self.now, number) {
                None => return,
                Some(DataOut::Payload {
                    header,
                    offset,
                    bytes,
                    ..
                }) => {
                    let Open::Read(size) = self.open else {
                        panic!("bytes of a file that is not open");
                    };
                    assert!(0 < bytes && bytes <= self.policy.block_bytes);
                    assert!(
                        offset.checked_add(bytes).is_some_and(|end| end <= size),
                        "beyond the end"
                    );
                    if let Some(header) = header {
                        let header = BlockHeader::parse(&header).expect("a header");
                        assert!(header.count == bytes && header.offset <= offset);
                    }
                }
                Some(DataOut::Bytes(_)) => assert_ne!(self.open, Open::Write),
                Some(_) => {}
            }
            self.outputs();
        }
    }

    fn close_data(&mut self, draws: &mut Draws) {
        if let Some(number) = self.link(draws) {
            self.links.remove(&number);
            self.server.data_closed(self.now, number, draws.coin());
        }
    }

    fn outputs(&mut self) {
        for _ in 0..MAX_OUTPUTS {
            let Some(output) = self.server.poll_output() else {
                return;
            };
            self.check_output(output);
        }
        panic!("no end of outputs");
    }

    /// From here on nothing comes but refusals of what is asked: the session closes.
    fn fall_silent(&mut self) {
        for _ in 0..MAX_ENDINGS {
            if self.requested.take().is_some() {
                self.server
                    .respond(self.now, DriverResponse::Failed(GlobusError::Internal));
            } else if let Some(due) = self.server.poll_timeout() {
                self.now = self.now.max(due);
                self.server.handle_timeout(self.now);
            }
            self.outputs();
            if self.closed {
                break;
            }
        }
        assert!(self.closed, "it waits for ever");
        assert_eq!(
            (self.server.poll_timeout(), self.server.input_capacity()),
            (None, 0)
        );
    }
}
