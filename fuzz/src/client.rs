//! A client whose server, network and clock are the fuzzer's. It is held to what [`ClientOutput`] and the methods of [`Client`]
//! promise their driver; what a file holds in the end is the business of the fake servers in the tests of the crate.

mod invariants;
mod peer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use venturi_gridftp::client::{
    Client, ClientOutput, ClientSettings, ConnectionPurpose, Get, GetSource, Login, Put,
    TransferJob, UploadMode,
};
use venturi_gridftp::mode_e::BlockHeader;
use venturi_gridftp::{ByteRanges, Dcau, FtpCommand, Mode, Path, Protection, Secret};

use crate::{Draws, toy::ToySecurity};
use peer::FuzzPeer;

/// Most transfers of one input.
const MAX_TRANSFERS: u64 = 12;
/// Most outputs between two events, and silences until a session is over.
const MAX_OUTPUTS: usize = 10_000;
const MAX_SILENCES: usize = 4;
/// Largest file.
const MAX_FILE_BYTES: u64 = 3000;

/// A session, and what its driver knows.
struct FuzzSession {
    client: Client,
    settings: ClientSettings,
    peer: FuzzPeer,
    now: Duration,
    jobs: BTreeMap<u64, TransferJob>,
    reported: BTreeSet<u64>,
    started: BTreeSet<u64>,
    /// What came of downloads, and was given of uploads.
    moved: BTreeMap<u64, ByteRanges>,
    /// Data connections that are open and wanted.
    links: BTreeMap<u64, ConnectionPurpose>,
    next_link: u64,
    /// Connections that are still to be opened.
    connects: VecDeque<ConnectionPurpose>,
    listens: bool,
    requests: BTreeSet<u64>,
    next_request: u64,
    ended: bool,
}

/// Drives a client as the bytes say.
pub fn run(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let Some(mut session) = FuzzSession::new(&mut draws) else {
        return;
    };
    while !draws.is_over() {
        session.turn(&mut draws);
        session.outputs();
    }
    session.fall_silent();
}

fn settings(draws: &mut Draws, secure: bool) -> ClientSettings {
    ClientSettings {
        login: match draws.below(4) {
            0 => Login::Done,
            1 => Login::Mapped,
            2 => Login::Password {
                user: draws.bytes().to_vec(),
                password: Secret(draws.bytes().to_vec()),
            },
            _ => Login::Anonymous,
        },
        server: if draws.coin() {
            "192.0.2.2"
        } else {
            "2001:db8::2"
        }
        .parse()
        .expect("an address"),
        mode: draws.one_of(&[Mode::Stream, Mode::Extended]),
        connections: draws.one_of(&[1, 2, 3]),
        depth: draws.one_of(&[1, 2, 8]),
        block_bytes: draws.one_of(&[1, 100, 1000]),
        buffer_bytes: draws.coin().then_some(65_536),
        data: secure.then_some((Dcau::None, Protection::Clear)),
        upload: draws.one_of(&[None, Some(UploadMode::Eager), Some(UploadMode::Gated)]),
        attempts: draws.one_of(&[1, 2, 3]),
        striped: draws.below(4) == 3,
        stall_timeout: Duration::from_secs(60),
    }
}

impl FuzzSession {
    fn new(draws: &mut Draws) -> Option<Self> {
        let secure = draws.below(4) == 3;
        let settings = settings(draws, secure);
        let security = secure.then(|| ToySecurity::side(true));
        let mut session = Self {
            client: Client::new(settings.clone(), security, Duration::ZERO).ok()?,
            settings,
            peer: FuzzPeer::new(secure),
            now: Duration::ZERO,
            jobs: BTreeMap::new(),
            reported: BTreeSet::new(),
            started: BTreeSet::new(),
            moved: BTreeMap::new(),
            links: BTreeMap::new(),
            next_link: 0,
            connects: VecDeque::new(),
            listens: false,
            requests: BTreeSet::new(),
            next_request: 0,
            ended: false,
        };
        for _ in 0..draws.below(6) {
            session.add_job(draws);
        }
        session.outputs();
        if draws.below(4) > 0 {
            session.log_in();
        }
        Some(session)
    }

    /// Fuzzers would be long in finding what every server says first.
    fn log_in(&mut self) {
        for _ in 0..30 {
            let response = self.peer.correct_reply(&self.jobs);
            if self.peer.is_logged_in() || response.is_empty() {
                return;
            }
            self.send(&response);
            self.outputs();
        }
    }

    fn add_job(&mut self, draws: &mut Draws) {
        let transfer = self.jobs.len() as u64;
        if transfer >= MAX_TRANSFERS {
            return;
        }
        let path = |text: String| Path::new(text).expect("a path");
        let size = draws.number() % MAX_FILE_BYTES;
        let start = draws.number() % MAX_FILE_BYTES;
        let present = match draws.below(3) {
            0 => ByteRanges::from_range(start.min(size)..size.min(start + u64::from(draws.byte()))),
            1 => ByteRanges::from_range(0..start.min(size)),
            _ => ByteRanges::default(),
        };
        let job = if draws.coin() {
            TransferJob::Get(Get {
                transfer,
                stat_after: transfer % 2 == 1,
                source: match draws.below(8) {
                    0 => GetSource::Directory,
                    1 => GetSource::Tree,
                    2 => GetSource::Region {
                        offset: start,
                        length: size,
                    },
                    _ => GetSource::File,
                },
                path: path(format!("/{transfer}")),
                size_bytes: (draws.below(4) > 0).then_some(size),
                present,
            })
        } else {
            let kind = draws.below(5);
            TransferJob::Put(Put {
                transfer,
                path: path(format!("/{transfer}")),
                temporary: matches!(kind, 1..=3).then(|| path(format!("/{transfer}.part"))),
                size_bytes: size,
                checksum: draws
                    .coin()
                    .then(|| ("ADLER32".to_owned(), "00000001".to_owned())),
                modify_s: draws.coin().then_some(1_700_000_000),
                present,
                part: (kind == 4).then_some(start),
                resumable: draws.coin(),
            })
        };
        self.jobs.insert(transfer, job.clone());
        self.client.transfer(self.now, job);
    }

    fn turn(&mut self, draws: &mut Draws) {
        self.now += Duration::from_millis(1);
        match draws.below(16) {
            0 | 1 => {
                let response = self.peer.correct_reply(&self.jobs);
                self.send(&response);
            }
            2 => {
                for _ in 0..draws.below(12) {
                    let response = self.peer.correct_reply(&self.jobs);
                    self.send(&response);
                    self.outputs();
                }
            }
            3 => {
                let response = peer::other_reply(draws);
                self.send(&response);
            }
            4 => {
                let bytes = draws.bytes();
                self.send_raw(bytes);
            }
            5 => self.open_data(draws),
            6 | 7 => self.receive_data(draws),
            8 | 9 => self.send_data(draws),
            10 => self.close_data(draws),
            11 if self.listens => {
                let address = draws.one_of(&["192.0.2.1:5000", "[2001:db8::1]:5000"]);
                self.client
                    .listening(self.now, address.parse().expect("an address"));
            }
            12 => {
                self.now += Duration::from_secs(u64::from(draws.byte()));
                self.ended |= self.client.handle_timeout(self.now).is_err();
            }
            13 => self.add_job(draws),
            14 => self.request(draws),
            15 if draws.byte() == 7 => {
                assert!(self.client.handle_closed().is_err());
                self.ended = true;
            }
            _ => {}
        }
    }

    fn send(&mut self, plain: &[u8]) {
        let bytes = self.peer.protected(plain);
        self.send_raw(&bytes);
    }

    fn send_raw(&mut self, bytes: &[u8]) {
        self.peer.note(bytes);
        let over = self.ended;
        self.ended |= self.client.handle_input(self.now, bytes).is_err();
        assert!(!over || self.ended, "an ended session stays ended");
    }

    fn open_data(&mut self, draws: &mut Draws) {
        let purpose = match self.connects.pop_front() {
            Some(purpose) => purpose,
            None if self.listens => ConnectionPurpose::Stripe(0),
            None => return,
        };
        if draws.below(8) == 0 {
            return self.client.connect_failed(self.now, purpose, "refused");
        }
        let number = self.next_link;
        self.next_link += 1;
        // It may be dropped at once, by an output that is not read yet.
        self.links.insert(number, purpose);
        if !self.client.data_opened(self.now, number, purpose) {
            self.links.remove(&number);
        }
    }

    fn link(&self, draws: &mut Draws) -> Option<u64> {
        let count = self.links.len();
        (count > 0).then(|| self.links.keys().nth(draws.below(count)).copied())?
    }

    fn receive_data(&mut self, draws: &mut Draws) {
        let Some(number) = self.link(draws) else {
            return;
        };
        let mut bytes = Vec::new();
        if self.client.mode() == Mode::Extended && draws.below(8) > 0 {
            let end_of_file = draws.coin().then(|| u64::from(draws.byte() & 3).max(1));
            let count = if end_of_file.is_some() {
                0
            } else {
                u64::from(draws.byte())
            };
            let offset = draws.number() % MAX_FILE_BYTES;
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
        while self.links.contains_key(&number) && !rest.is_empty() {
            let delivered = self.client.handle_data(self.now, number, rest);
            assert!(delivered.consumed <= rest.len());
            if let Some(payload) = delivered.payload {
                assert!(payload.bytes <= delivered.consumed && payload.bytes > 0);
                self.check_delivery(payload);
            }
            if delivered.consumed == 0 {
                break;
            }
            rest = &rest[delivered.consumed..];
            self.outputs();
        }
    }

    fn send_data(&mut self, draws: &mut Draws) {
        let Some(number) = self.link(draws) else {
            return;
        };
        for _ in 0..draws.below(64) {
            let Some(out) = self
                .links
                .get(&number)
                .and_then(|_| self.client.poll_data(self.now, number))
            else {
                return;
            };
            self.check_data(number, &out);
            self.outputs();
        }
    }

    fn close_data(&mut self, draws: &mut Draws) {
        if let Some(number) = self.link(draws) {
            self.links.remove(&number);
            self.client.data_closed(self.now, number, draws.coin());
        }
    }

    fn request(&mut self, draws: &mut Draws) {
        let path = Some(Path::root());
        let command = match draws.below(4) {
            0 => FtpCommand::Mlsc(path),
            1 => FtpCommand::Stat(path),
            2 => FtpCommand::Mkd(Path::root()),
            _ => FtpCommand::Noop,
        };
        self.requests.insert(self.next_request);
        self.client.request(self.now, self.next_request, command);
        self.next_request += 1;
    }

    /// Does what it says, as far as a fuzzer does anything, and holds it to its promises.
    fn outputs(&mut self) {
        for _ in 0..MAX_OUTPUTS {
            let Some(output) = self.client.poll_output() else {
                return;
            };
            self.check_output(output);
        }
        panic!("no end of outputs");
    }

    /// From here on nothing comes: the session ends, and every transfer is told of.
    fn fall_silent(&mut self) {
        for _ in 0..MAX_SILENCES {
            let Some(due) = self.client.poll_timeout() else {
                break;
            };
            assert!(
                due <= self.now + self.settings.stall_timeout,
                "no later than its patience"
            );
            self.now = self.now.max(due);
            self.ended |= self.client.handle_timeout(self.now).is_err();
            self.outputs();
        }
        assert_eq!(
            self.client.poll_timeout(),
            None,
            "it waits for nothing more"
        );
        let open: Vec<_> = self
            .jobs
            .keys()
            .filter(|&transfer| !self.reported.contains(transfer))
            .collect();
        assert!(open.is_empty(), "never told of {open:?}");
    }

    fn requested(&self, output: &ClientOutput) -> Option<u64> {
        match output {
            ClientOutput::Line { request, .. }
            | ClientOutput::Preliminary { request, .. }
            | ClientOutput::Reply { request, .. } => Some(*request),
            _ => None,
        }
    }
}
