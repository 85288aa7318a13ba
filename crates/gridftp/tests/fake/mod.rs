//! A server that was written without the crate's own, with the worst habit of real ones: bytes on a data connection go to
//! whichever file is next. At some steps of a session, counted from its greeting, it does something else than it should.

mod data;
mod misdeed;
pub mod world;

use std::collections::{BTreeMap, VecDeque};

pub use misdeed::Misdeed;

/// Bytes of a block.
const BLOCK_BYTES: usize = 300;

/// A data connection.
#[derive(Debug, Default)]
pub struct Wire {
    pub port: u16,
    pub to_server: VecDeque<u8>,
    pub to_client: VecDeque<u8>,
    pub client_ended: bool,
    pub server_ended: bool,
    pub stalled: bool,
    pub header: Option<(u8, u64, u64)>,
}

#[derive(Debug)]
enum Doing {
    Nothing,
    /// Blocks that are still to be sent, then ends, once it is known on which connections.
    Sends {
        blocks: VecDeque<(u64, Vec<u8>)>,
        ends: Option<VecDeque<u64>>,
    },
    /// A file, and the connections that have ended it.
    Stores {
        path: Vec<u8>,
        ends: Vec<u64>,
        expected: Option<u64>,
    },
}

/// The server.
pub struct Fake {
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub wires: BTreeMap<u64, Wire>,
    /// What it says.
    pub replies: Vec<u8>,
    pub hung_up: bool,
    /// Connections that it opens: the next `wires`.
    pub connects: usize,
    /// What each step was.
    pub steps: Vec<String>,
    /// The file that the step was about.
    pub victim: Option<Vec<u8>>,
    misdeeds: Vec<(usize, Misdeed)>,
    commands: VecDeque<String>,
    unread: Vec<u8>,
    late: Option<String>,
    stalled: bool,
    extended: bool,
    ports: u16,
    active: bool,
    used: bool,
    connections: usize,
    rest: u64,
    rename: Option<Vec<u8>>,
    check: Option<String>,
    doing: Doing,
}

impl Fake {
    pub fn new(misdeeds: Vec<(usize, Misdeed)>) -> Self {
        let mut fake = Self {
            files: BTreeMap::new(),
            wires: BTreeMap::new(),
            replies: Vec::new(),
            hung_up: false,
            connects: 0,
            steps: Vec::new(),
            victim: None,
            misdeeds,
            commands: VecDeque::new(),
            unread: Vec::new(),
            late: None,
            stalled: false,
            extended: false,
            ports: 6000,
            active: false,
            used: false,
            connections: 1,
            rest: 0,
            rename: None,
            check: None,
            doing: Doing::Nothing,
        };
        fake.say(
            "greeting",
            "220 Fake GridFTP Server [Globus Toolkit 6.0] ready.",
        );
        fake
    }

    /// Takes bytes of the control connection.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.unread.extend(bytes);
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let text = String::from_utf8(line).expect("ASCII in these tests");
            self.commands.push_back(text.trim_end().to_owned());
        }
    }

    /// Does one thing; whether there was one.
    pub fn turn(&mut self) -> bool {
        if self.stalled || self.hung_up {
            return false;
        }
        match &self.doing {
            Doing::Sends { .. } => self.send(),
            Doing::Stores { .. } => self.store(),
            Doing::Nothing => match self.commands.pop_front() {
                Some(command) => {
                    self.carry_out(&command);
                    true
                }
                None => false,
            },
        }
    }

    /// What is to be done wrong at this step.
    fn step(&mut self, what: &str) -> Option<Misdeed> {
        let number = self.steps.len();
        self.steps.push(what.to_owned());
        let misdeed = self.misdeeds.iter().find(|(at, _)| *at == number)?.1;
        match misdeed {
            Misdeed::Stall => self.stalled = true,
            Misdeed::HangUp => self.hung_up = true,
            _ => {}
        }
        Some(misdeed)
    }

    fn say(&mut self, what: &str, text: &str) {
        use Misdeed as M;
        let whole = format!("{text}\r\n");
        let said = match self.step(&format!("say {what}: {text}")) {
            None => whole,
            Some(M::Say(other)) => format!("{other}\r\n"),
            Some(M::Swallow) => String::new(),
            Some(M::Twice) => whole.repeat(2),
            Some(M::Cut) => {
                self.hung_up = true;
                whole[..whole.len() / 2].to_owned()
            }
            Some(M::Late) => {
                self.late = Some(whole);
                return;
            }
            Some(M::Number) => {
                let (code, rest) = whole.split_at(3);
                let other = |digit: char| {
                    if digit.is_ascii_digit() {
                        char::from(b'0' + (digit as u8 - b'0' + 1) % 10)
                    } else {
                        digit
                    }
                };
                code.to_owned() + &rest.chars().map(other).collect::<String>()
            }
            Some(M::Flood(count)) => "what is this\r\n".repeat(count) + &whole,
            Some(M::Endless(begin)) => {
                self.stalled = true;
                begin.to_owned()
                    + &" x\r\n".repeat(if begin.contains('-') { 10_000 } else { 0 })
                    + &"x".repeat(100_000)
            }
            Some(M::Stall | M::HangUp) => String::new(),
            Some(_) => whole,
        };
        self.replies.extend(said.bytes());
        if let Some(late) = self.late.take() {
            self.replies.extend(late.bytes());
        }
    }

    fn carry_out(&mut self, command: &str) {
        let (name, argument) = command.split_once(' ').unwrap_or((command, ""));
        let path = argument.as_bytes().to_vec();
        // RNTO is to follow RNFR at once: whatever comes between, and whatever becomes of it, voids what is to be renamed (RFC 959, 4.1.3).
        let renamed = self.rename.take();
        let pretends = match self.step(&format!("do {command}")) {
            Some(Misdeed::Fail(text)) => {
                self.victim = Some(path);
                self.check = None;
                return self.replies.extend(format!("{text}\r\n").bytes());
            }
            Some(Misdeed::Stall | Misdeed::HangUp) => return,
            Some(Misdeed::Pretend) => {
                self.victim = Some(path.clone());
                true
            }
            _ => false,
        };
        match name {
            "USER" => self.say(name, "331 Password."),
            "PASS" => self.say(name, "230 In."),
            "FEAT" => self.say(
                name,
                "211-Extensions\r\n PARALLEL\r\n SIZE\r\n SCKS\r\n211 End.",
            ),
            "SITE" => self.say(name, "214 Help."),
            "MODE" => {
                self.extended = argument == "E";
                self.say(name, "200 OK.");
            }
            "OPTS" => {
                let count = argument
                    .split(['=', ','])
                    .nth(1)
                    .and_then(|count| count.parse().ok());
                self.connections = count.unwrap_or(1);
                self.say(name, "200 OK.");
            }
            "PASV" => {
                self.drop_data();
                self.ports += 1;
                let [high, low] = self.ports.to_be_bytes();
                self.say(
                    name,
                    &format!("227 Entering Passive Mode (192,0,2,2,{high},{low})"),
                );
            }
            "PORT" => {
                self.drop_data();
                self.active = true;
                self.say(name, "200 OK.");
            }
            "REST" => {
                let end = argument
                    .rsplit(['-', ','])
                    .next()
                    .and_then(|end| end.parse().ok());
                self.rest = end.unwrap_or(0);
                self.say(name, "350 Go on.");
            }
            "RETR" | "STOR" if pretends => self.say(name, "150 Begin.\r\n226 Done."),
            "RETR" => self.retrieve(&path),
            "STOR" => self.begin_store(path),
            "SCKS" => {
                self.check = argument.split(' ').nth(1).map(str::to_owned);
                self.say(name, "200 OK.");
            }
            "SIZE" => match self.files.get(&path).map(Vec::len) {
                Some(size) => self.say(name, &format!("213 {size}")),
                None => self.say(name, "550 No such file."),
            },
            "RNFR" => {
                self.rename = Some(path);
                self.say(name, "350 Go on.");
            }
            "RNTO" => {
                if let Some(from) = renamed.filter(|_| !pretends)
                    && let Some(bytes) = self.files.remove(&from)
                {
                    self.files.insert(path, bytes);
                }
                self.say(name, "250 Done.");
            }
            "DELE" => {
                let found = self.files.remove(&path).is_some();
                self.say(
                    name,
                    if found {
                        "250 Done."
                    } else {
                        "550 No such file."
                    },
                );
            }
            _ => self.say(name, "200 OK."),
        }
    }

    fn drop_data(&mut self) {
        for wire in self.wires.values_mut() {
            wire.server_ended = true;
        }
        self.active = false;
        self.used = false;
    }

    /// Its open data connections: in MODE S that of the last port.
    fn mine(&self) -> Vec<u64> {
        let own = |wire: &Wire| !wire.server_ended && (self.active || wire.port == self.ports);
        self.wires
            .iter()
            .filter(|(_, wire)| own(wire))
            .map(|(&number, _)| number)
            .collect()
    }

    fn retrieve(&mut self, path: &[u8]) {
        let Some(bytes) = self.files.get(path).cloned() else {
            return self.say("RETR", "550 No such file.");
        };
        let rest = std::mem::take(&mut self.rest) as usize;
        let begin = rest.min(bytes.len());
        let blocks = bytes[begin..].chunks(BLOCK_BYTES).enumerate();
        let blocks =
            blocks.map(|(number, block)| ((begin + number * BLOCK_BYTES) as u64, block.to_vec()));
        let blocks = blocks.collect();
        if self.active && self.mine().is_empty() {
            self.connects = self.connections;
        }
        self.say(
            "RETR",
            if self.used {
                "125 Begin."
            } else {
                "150 Begin."
            },
        );
        self.used = true;
        self.doing = Doing::Sends { blocks, ends: None };
        self.victim_if_harmed(path);
    }

    fn begin_store(&mut self, path: Vec<u8>) {
        if std::mem::take(&mut self.rest) == 0 {
            self.files.insert(path.clone(), Vec::new());
        }
        self.say(
            "STOR",
            if self.used {
                "125 Begin."
            } else {
                "150 Begin."
            },
        );
        self.used = true;
        self.victim_if_harmed(&path);
        self.doing = Doing::Stores {
            path,
            ends: Vec::new(),
            expected: None,
        };
    }

    /// What is harmed from here to the next transfer is this file's.
    fn victim_if_harmed(&mut self, path: &[u8]) {
        if self.misdeeds.iter().any(|(at, _)| *at >= self.steps.len()) {
            self.victim = Some(path.to_vec());
        }
    }
}

/// Enough to tell the files of a test from each other.
pub fn checksum(bytes: &[u8]) -> String {
    let sum = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
    bytes.iter().fold(0, sum).to_string()
}
