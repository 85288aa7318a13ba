//! A faulty server, independent of the crate's own server. Like the worst real servers, it assigns
//! bytes of a data connection to the next file. It injects faults at given steps of a session,
//! counted from its greeting.

mod data;
mod fault;
pub mod world;

use std::collections::{BTreeMap, VecDeque};

pub use fault::ServerFault;

/// Bytes of a block.
const BLOCK_BYTES: usize = 300;

/// A data connection.
#[derive(Debug, Default)]
pub struct FakeConnection {
    pub port: u16,
    pub to_server: VecDeque<u8>,
    pub to_client: VecDeque<u8>,
    pub client_ended: bool,
    pub server_ended: bool,
    pub stalled: bool,
    pub header: Option<(u8, u64, u64)>,
}

#[derive(Debug)]
enum Activity {
    Nothing,
    /// Unsent blocks, then ends, once their connections are known.
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
pub struct FaultyServer {
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub data_connections: BTreeMap<u64, FakeConnection>,
    /// Replies that the client has not read.
    pub replies: Vec<u8>,
    pub hung_up: bool,
    /// Connections that the server opens: the next `data_connections`.
    pub connects: usize,
    /// Names of the steps.
    pub steps: Vec<String>,
    /// File affected by the fault.
    pub victim: Option<Vec<u8>>,
    faults: Vec<(usize, ServerFault)>,
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
    doing: Activity,
}

impl FaultyServer {
    pub fn new(faults: Vec<(usize, ServerFault)>) -> Self {
        let mut server = Self {
            files: BTreeMap::new(),
            data_connections: BTreeMap::new(),
            replies: Vec::new(),
            hung_up: false,
            connects: 0,
            steps: Vec::new(),
            victim: None,
            faults,
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
            doing: Activity::Nothing,
        };
        server.send_reply(
            "greeting",
            "220 Fake GridFTP Server [Globus Toolkit 6.0] ready.",
        );
        server
    }

    /// Handles bytes of the control connection.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.unread.extend(bytes);
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let text = String::from_utf8(line).expect("ASCII in these tests");
            self.commands.push_back(text.trim_end().to_owned());
        }
    }

    /// Executes one step. Returns `false` if there was none.
    pub fn turn(&mut self) -> bool {
        if self.stalled || self.hung_up {
            return false;
        }
        match &self.doing {
            Activity::Sends { .. } => self.send(),
            Activity::Stores { .. } => self.store(),
            Activity::Nothing => match self.commands.pop_front() {
                Some(command) => {
                    self.run(&command);
                    true
                }
                None => false,
            },
        }
    }

    /// Records a step and returns its fault.
    fn step(&mut self, name: &str) -> Option<ServerFault> {
        let number = self.steps.len();
        self.steps.push(name.to_owned());
        let fault = self.faults.iter().find(|(at, _)| *at == number)?.1;
        match fault {
            ServerFault::Stall => self.stalled = true,
            ServerFault::HangUp => self.hung_up = true,
            _ => {}
        }
        Some(fault)
    }

    fn send_reply(&mut self, name: &str, text: &str) {
        use ServerFault as M;
        let whole = format!("{text}\r\n");
        let reply_text = match self.step(&format!("say {name}: {text}")) {
            None => whole,
            Some(M::Reply(other)) => format!("{other}\r\n"),
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
            Some(M::Endless(start)) => {
                self.stalled = true;
                start.to_owned()
                    + &" x\r\n".repeat(if start.contains('-') { 10_000 } else { 0 })
                    + &"x".repeat(100_000)
            }
            Some(M::Stall | M::HangUp) => String::new(),
            Some(_) => whole,
        };
        self.replies.extend(reply_text.bytes());
        if let Some(late) = self.late.take() {
            self.replies.extend(late.bytes());
        }
    }

    fn run(&mut self, command: &str) {
        let (name, argument) = command.split_once(' ').unwrap_or((command, ""));
        let path = argument.as_bytes().to_vec();
        // RNTO must directly follow RNFR: any other command, even a failed one, voids the rename
        // (RFC 959, 4.1.3).
        let renamed = self.rename.take();
        let pretends = match self.step(&format!("do {command}")) {
            Some(ServerFault::Fail(text)) => {
                self.victim = Some(path);
                self.check = None;
                return self.replies.extend(format!("{text}\r\n").bytes());
            }
            Some(ServerFault::Stall | ServerFault::HangUp) => return,
            Some(ServerFault::Pretend) => {
                self.victim = Some(path.clone());
                true
            }
            _ => false,
        };
        match name {
            "USER" => self.send_reply(name, "331 Password."),
            "PASS" => self.send_reply(name, "230 In."),
            "FEAT" => self.send_reply(
                name,
                "211-Extensions\r\n PARALLEL\r\n SIZE\r\n SCKS\r\n211 End.",
            ),
            "SITE" => self.send_reply(name, "214 Help."),
            "MODE" => {
                self.extended = argument == "E";
                self.send_reply(name, "200 OK.");
            }
            "OPTS" => {
                let count = argument
                    .split(['=', ','])
                    .nth(1)
                    .and_then(|count| count.parse().ok());
                self.connections = count.unwrap_or(1);
                self.send_reply(name, "200 OK.");
            }
            "PASV" => {
                self.drop_data();
                self.ports += 1;
                let [high, low] = self.ports.to_be_bytes();
                self.send_reply(
                    name,
                    &format!("227 Entering Passive Mode (192,0,2,2,{high},{low})"),
                );
            }
            "PORT" => {
                self.drop_data();
                self.active = true;
                self.send_reply(name, "200 OK.");
            }
            "REST" => {
                let end = argument
                    .rsplit(['-', ','])
                    .next()
                    .and_then(|end| end.parse().ok());
                self.rest = end.unwrap_or(0);
                self.send_reply(name, "350 Go on.");
            }
            "RETR" | "STOR" if pretends => self.send_reply(name, "150 Begin.\r\n226 Done."),
            "RETR" => self.retrieve(&path),
            "STOR" => self.start_store(path),
            "SCKS" => {
                self.check = argument.split(' ').nth(1).map(str::to_owned);
                self.send_reply(name, "200 OK.");
            }
            "SIZE" => match self.files.get(&path).map(Vec::len) {
                Some(size) => self.send_reply(name, &format!("213 {size}")),
                None => self.send_reply(name, "550 No such file."),
            },
            "RNFR" => {
                self.rename = Some(path);
                self.send_reply(name, "350 Go on.");
            }
            "RNTO" => {
                if let Some(from) = renamed.filter(|_| !pretends)
                    && let Some(bytes) = self.files.remove(&from)
                {
                    self.files.insert(path, bytes);
                }
                self.send_reply(name, "250 Done.");
            }
            "DELE" => {
                let found = self.files.remove(&path).is_some();
                self.send_reply(
                    name,
                    if found {
                        "250 Done."
                    } else {
                        "550 No such file."
                    },
                );
            }
            _ => self.send_reply(name, "200 OK."),
        }
    }

    fn drop_data(&mut self) {
        for connection in self.data_connections.values_mut() {
            connection.server_ended = true;
        }
        self.active = false;
        self.used = false;
    }

    /// Returns the open data connections; in MODE S, only connections of the last port.
    fn own_connections(&self) -> Vec<u64> {
        let own = |connection: &FakeConnection| {
            !connection.server_ended && (self.active || connection.port == self.ports)
        };
        self.data_connections
            .iter()
            .filter(|(_, connection)| own(connection))
            .map(|(&number, _)| number)
            .collect()
    }

    fn retrieve(&mut self, path: &[u8]) {
        let Some(bytes) = self.files.get(path).cloned() else {
            return self.send_reply("RETR", "550 No such file.");
        };
        let rest = std::mem::take(&mut self.rest) as usize;
        let start = rest.min(bytes.len());
        let blocks = bytes[start..].chunks(BLOCK_BYTES).enumerate();
        let blocks =
            blocks.map(|(number, block)| ((start + number * BLOCK_BYTES) as u64, block.to_vec()));
        let blocks = blocks.collect();
        if self.active && self.own_connections().is_empty() {
            self.connects = self.connections;
        }
        self.send_reply(
            "RETR",
            if self.used {
                "125 Begin."
            } else {
                "150 Begin."
            },
        );
        self.used = true;
        self.doing = Activity::Sends { blocks, ends: None };
        self.victim_if_harmed(path);
    }

    fn start_store(&mut self, path: Vec<u8>) {
        if std::mem::take(&mut self.rest) == 0 {
            self.files.insert(path.clone(), Vec::new());
        }
        self.send_reply(
            "STOR",
            if self.used {
                "125 Begin."
            } else {
                "150 Begin."
            },
        );
        self.used = true;
        self.victim_if_harmed(&path);
        self.doing = Activity::Stores {
            path,
            ends: Vec::new(),
            expected: None,
        };
    }

    /// Marks this file as the victim of a fault before the next transfer.
    fn victim_if_harmed(&mut self, path: &[u8]) {
        if self.faults.iter().any(|(at, _)| *at >= self.steps.len()) {
            self.victim = Some(path.to_vec());
        }
    }
}

/// Returns a checksum that distinguishes the files of a test.
pub fn checksum(bytes: &[u8]) -> String {
    let sum = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
    bytes.iter().fold(0, sum).to_string()
}
