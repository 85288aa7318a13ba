//! The server of a fuzzed client: what an honest one would answer next, and what has been answered.

use std::collections::{BTreeMap, VecDeque};

use venturi_gridftp::client::TransferJob;
use venturi_gridftp::{
    FtpCommand, FtpLine, FtpReply, LineBuffer, Options, Path, ReplyCollector, ReplyEvent, Security,
    SiteCommand,
};

use crate::{Draws, toy::ToySecurity};

/// What was asked, and is not answered.
#[derive(Debug, Clone)]
pub(super) enum Awaited {
    Greeting,
    /// Whether it was said to have begun, if it is a transfer.
    Command(FtpCommand, bool),
}

/// An upload that was asked for.
#[derive(Debug)]
pub(super) struct PeerStore {
    path: Path,
    /// Whether it is written in place, as a whole.
    in_place: bool,
    /// Data connections are of this number of their kind.
    epoch: u64,
    /// Whether it was said to have begun.
    started: bool,
    /// The final reply.
    code: Option<u16>,
}

pub(super) struct FuzzPeer {
    security: Option<Box<dyn Security>>,
    protects: bool,
    awaited: VecDeque<Awaited>,
    lines: LineBuffer,
    collector: ReplyCollector,
    logged_in: bool,
    /// Every STOR and ESTO, in order. Nothing is known of them in a protected session, whose replies are not read here.
    stores: Vec<PeerStore>,
    /// What was answered to the last SIZE of each path.
    sizes: BTreeMap<Path, FtpReply>,
    epoch: u64,
    blind: bool,
}

impl FuzzPeer {
    pub fn new(secure: bool) -> Self {
        Self {
            security: secure.then(|| ToySecurity::side(false)),
            protects: false,
            awaited: VecDeque::from([Awaited::Greeting]),
            lines: LineBuffer::default(),
            collector: ReplyCollector::default(),
            logged_in: false,
            stores: Vec::new(),
            sizes: BTreeMap::new(),
            epoch: 0,
            blind: secure,
        }
    }

    pub fn is_logged_in(&self) -> bool {
        self.logged_in
    }

    pub fn data_dropped(&mut self) {
        self.epoch += 1;
    }

    /// Reads what the client sends: whole lines, each a command that can be read.
    pub fn commands(&mut self, bytes: &[u8]) -> Vec<FtpCommand> {
        let mut commands = Vec::new();
        assert!(bytes.ends_with(b"\r\n"), "whole lines");
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            assert!(line.len() <= venturi_gridftp::MAX_LINE_BYTES);
            let line = line.strip_suffix(b"\r\n").expect("CR LF at each end");
            let mut command = FtpCommand::parse(line).expect("a command");
            if let (FtpCommand::Enc(token), Some(security)) = (&command, &mut self.security) {
                let plain = security.unwrap(token).expect("in order");
                command = FtpCommand::parse(plain.trim_ascii_end()).expect("a command");
                self.protects = true;
            }
            if let FtpCommand::Stor(path) | FtpCommand::Esto { path, .. } = &command {
                self.stores.push(PeerStore {
                    path: path.clone(),
                    in_place: matches!(command, FtpCommand::Stor(_))
                        && !path.as_bytes().ends_with(b".part"),
                    epoch: self.epoch,
                    started: false,
                    code: None,
                });
            }
            self.awaited
                .push_back(Awaited::Command(command.clone(), false));
            commands.push(command);
        }
        commands
    }

    /// What an honest server says next; nothing if nothing is asked.
    pub fn correct_reply(&mut self, jobs: &BTreeMap<u64, TransferJob>) -> Vec<u8> {
        let response = match self.awaited.front_mut() {
            None => return Vec::new(),
            Some(Awaited::Greeting) => {
                "220 GridFTP Server 13.24 [Globus Toolkit 6.0] ready.".to_owned()
            }
            Some(Awaited::Command(command, started)) => {
                if is_transfer(command) && !*started {
                    *started = true;
                    "150 Begin.".to_owned()
                } else {
                    self.logged_in |= matches!(command, FtpCommand::Noop);
                    honest(command, jobs)
                }
            }
        };
        if self.blind {
            // Nobody else counts what is answered.
            let preliminary = response.starts_with('1');
            if !preliminary {
                self.awaited.pop_front();
            }
        }
        format!("{response}\r\n").into_bytes()
    }

    /// Lines as they go over the wire.
    pub fn protected(&mut self, plain: &[u8]) -> Vec<u8> {
        let Some(security) = self.security.as_mut().filter(|_| self.protects) else {
            return plain.to_vec();
        };
        let mut bytes = Vec::new();
        for line in plain.split_inclusive(|&byte| byte == b'\n') {
            let token = security.wrap(line).expect("it always can");
            bytes.extend(b"632");
            bytes.extend(&FtpCommand::Enc(token).text()[3..]);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    /// Notes what is answered, as anybody reads it who knows the order of replies.
    pub fn note(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
        while let Some(line) = self.lines.next() {
            let (FtpLine::Complete(line), false) = (line, self.blind) else {
                self.blind = true;
                return;
            };
            let streamed = matches!(
                self.awaited.front(),
                Some(Awaited::Command(
                    FtpCommand::Mlsc(_) | FtpCommand::Stat(_),
                    _
                ))
            );
            let Ok(collected) = self.collector.line(&line, streamed) else {
                self.blind = true;
                return;
            };
            if let ReplyEvent::Reply(reply) = collected {
                let is_store = matches!(
                    self.awaited.front(),
                    Some(Awaited::Command(
                        FtpCommand::Stor(_) | FtpCommand::Esto { .. },
                        _
                    ))
                );
                let store = self
                    .stores
                    .iter_mut()
                    .find(|store| is_store && store.code.is_none());
                match store {
                    Some(store) if reply.is_preliminary() => {
                        store.started |= matches!(reply.code, 125 | 150)
                    }
                    Some(store) => store.code = Some(reply.code),
                    None => {}
                }
                if reply.is_preliminary() {
                    continue;
                }
                if let Some(Awaited::Command(FtpCommand::Size(path), _)) = self.awaited.pop_front()
                {
                    self.sizes.insert(path, reply);
                }
            }
        }
    }

    /// A file gets its name only when it is answered well, and all before it on the same data connections whose bytes may be on
    /// their way are. Nothing is sent ahead of the reply where the client is not `eager`, or for a file that is written in place.
    pub fn check_name(&self, path: &Path, is_shared_file: bool, eager: bool) {
        if self.blind {
            return;
        }
        let is_well = |store: &PeerStore| store.code.is_some_and(|code| code / 100 == 2);
        let offset = self
            .stores
            .iter()
            .rposition(|store| store.path == *path && is_well(store));
        let offset = offset
            .unwrap_or_else(|| panic!("{path} is named and was not stored: {:?}", self.stores));
        let epoch = self.stores[offset].epoch;
        let before = self.stores[..offset]
            .iter()
            .filter(|store| store.epoch == epoch);
        let ahead = |store: &PeerStore| store.started || eager && !store.in_place;
        let clean = before.clone().all(|store| is_well(store) || !ahead(store));
        assert!(
            !is_shared_file || clean,
            "{path} is named behind a failure: {:?}",
            self.stores
        );
    }
}

impl FuzzPeer {
    /// What nothing was sent of gets its name only if the server said that it has all of it, or cannot be asked.
    pub fn check_exists(&self, path: &Path, size_bytes: u64) {
        if self.blind {
            return;
        }
        let reply = &self.sizes[path];
        let text = String::from_utf8_lossy(reply.lines.last().expect("a line"));
        let found = text.trim_ascii().parse::<u64>();
        assert!(
            !reply.is_success() || found.is_err() || found == Ok(size_bytes),
            "{path} is named and holds {text} instead of {size_bytes}"
        );
    }
}

fn is_transfer(command: &FtpCommand) -> bool {
    use FtpCommand as C;
    matches!(
        command,
        C::Stor(_) | C::Esto { .. } | C::Retr(_) | C::Eret { .. } | C::Mlsd(_) | C::Mlsr(_)
    )
}

fn honest(command: &FtpCommand, jobs: &BTreeMap<u64, TransferJob>) -> String {
    use FtpCommand as C;
    match command {
        C::User(_) => "331 Password.".to_owned(),
        C::Pass(_) => "230 In.".to_owned(),
        C::Auth(_) => "334 Go on.".to_owned(),
        C::Adat(token) if token == b"hello" => {
            let world = C::Adat(b"world".to_vec()).text();
            format!("335 ADAT={}", String::from_utf8_lossy(&world[5..]))
        }
        C::Adat(_) => "235 Done.".to_owned(),
        C::Feat => {
            "211-Extensions\r\n PARALLEL\r\n DCAU\r\n SPAS\r\n SPOR\r\n SCKS\r\n MLST Type*;\r\n211 End."
                .to_owned()
        }
        C::Site(SiteCommand::Help) => "214-Known\r\n SCKS SBUF\r\n214 End.".to_owned(),
        C::Opts(Options::Other(_)) => "500 No.".to_owned(),
        C::Pasv => "227 Entering Passive Mode (192,0,2,2,23,112)".to_owned(),
        C::Epsv(_) => "229 Entering Extended Passive Mode (|||6000|)".to_owned(),
        C::Spas(_) => {
            "229-Striped\r\n 192,0,2,2,23,112\r\n |2|2001:db8::2|6000|\r\n229 End.".to_owned()
        }
        C::Rest(_) | C::Rnfr(_) => "350 Go on.".to_owned(),
        C::Size(path) => format!("213 {}", size_of(path, jobs)),
        C::Mlsc(_) => "250-Contents\r\n Type=file; x\r\n250 End.".to_owned(),
        C::Quit => "221 Goodbye.".to_owned(),
        command if is_transfer(command) => "226 Done.".to_owned(),
        C::Rnto(_) | C::Dele(_) | C::Mkd(_) => "250 Done.".to_owned(),
        _ => "200 OK.".to_owned(),
    }
}

fn size_of(path: &Path, jobs: &BTreeMap<u64, TransferJob>) -> u64 {
    let size = jobs.values().find_map(|job| match job {
        TransferJob::Put(put) if put.path == *path || put.temporary.as_ref() == Some(path) => {
            Some(put.size_bytes)
        }
        _ => None,
    });
    size.unwrap_or(0)
}

/// What another server might say.
pub(super) fn other_reply(draws: &mut Draws) -> Vec<u8> {
    let number = draws.number();
    let text = match draws.below(12) {
        0 => format!("{} OK.", 100 + draws.number() % 600),
        1 => "500 Command failed".to_owned(),
        2 => "550 No such file.".to_owned(),
        3 => "426 Closed.".to_owned(),
        4 => "125 Again.".to_owned(),
        5 => format!("213 {number}"),
        6 => format!("111 Range Marker {}-{number}", draws.number()),
        7 => format!(
            "112-Perf Marker\r\n Timestamp: 1\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: {number}\r\n Total Stripe Count: 1\r\n112 End."
        ),
        8 => format!(
            "227 Entering Passive Mode (192,0,2,{},{},1)",
            number % 300,
            draws.number() % 300
        ),
        9 => format!("229 Entering (|||{number}|)"),
        10 => "421 Going.".to_owned(),
        _ => "250-Several\r\n lines\r\n250 End.".to_owned(),
    };
    format!("{text}\r\n").into_bytes()
}
