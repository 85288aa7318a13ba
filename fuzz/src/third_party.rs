//! Copies between two servers whose replies are the fuzzer's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use venturi_gridftp::client::{Pair, Side, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{Command, Mode, Path, Reply};

use crate::Draws;

/// Most outputs, and refusals, until all is told.
const MAX_STEPS: usize = 10_000;

struct World {
    copies: ThirdParty,
    /// What each side was asked, oldest first.
    asked: [VecDeque<(u64, Command)>; 2],
    /// Paths that were stored, and answered well, since the sessions were opened.
    stored: BTreeSet<Path>,
    named: BTreeMap<u64, Path>,
    told: BTreeSet<u64>,
    pairs: u64,
    reopens: bool,
}

/// Drives copies as the bytes say.
pub fn run(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let pairs = draws.below(8) as u64;
    let path = |text: String| Path::new(text).expect("a path");
    let all = (0..pairs).map(|transfer| Pair {
        transfer,
        from: path(format!("/from/{transfer}")),
        to: path(format!("/to/{transfer}")),
        temporary: path(format!("/to/{transfer}.part")),
        size_bytes: draws.coin().then_some(7),
    });
    let all = all.collect();
    let mode = draws.one_of(&[Mode::Extended, Mode::Stream]);
    let destination = "192.0.2.2".parse().expect("an address");
    let (depth, attempts) = (1 + draws.below(6), 1 + draws.below(3) as u32);
    let striped = draws.below(4) == 3;
    let mut world = World {
        copies: ThirdParty::new(all, mode, depth, attempts, destination, striped),
        asked: Default::default(),
        stored: BTreeSet::new(),
        named: BTreeMap::new(),
        told: BTreeSet::new(),
        pairs,
        reopens: false,
    };
    world.outputs();
    while !draws.is_over() {
        world.turn(&mut draws);
        world.outputs();
    }
    world.refuse_all();
}

impl World {
    fn turn(&mut self, draws: &mut Draws) {
        if self.reopens && draws.below(4) > 0 {
            self.reopens = false;
            return self.copies.reopened();
        }
        let side = draws.below(2);
        let Some((request, command)) = self.asked[side].front().cloned() else {
            return;
        };
        let reply = match draws.below(8) {
            0 => Reply::new(100 + u16::from(draws.byte()) * 2, "x"),
            1 => Reply::new(150, "Begin."),
            2 => return self.copies.lost("gone"),
            _ => honest(&command),
        };
        if !reply.is_preliminary() {
            self.asked[side].pop_front();
            if let (Command::Stor(path), true) = (&command, reply.is_success()) {
                self.stored.insert(path.clone());
            }
            if let (Command::Rnto(path), true) = (&command, reply.is_success()) {
                self.named.insert(request, path.clone());
            }
        }
        self.copies.handle_reply(request, &reply);
    }

    fn outputs(&mut self) {
        for _ in 0..MAX_STEPS {
            match self.copies.poll_output() {
                None => return,
                Some(ThirdPartyOutput::Request {
                    side,
                    request,
                    command,
                }) => {
                    if let Command::Rnfr(path) = &command {
                        assert!(
                            self.stored.contains(path),
                            "{path} is named and was not stored"
                        );
                    }
                    self.asked[usize::from(side == Side::Source)].push_back((request, command));
                }
                Some(ThirdPartyOutput::Reopen) => {
                    self.reopens = true;
                    self.asked = Default::default();
                    self.stored.clear();
                }
                Some(ThirdPartyOutput::Done { transfer }) => {
                    let path = Path::new(format!("/to/{transfer}")).expect("a path");
                    assert!(
                        self.named.values().any(|named| *named == path),
                        "{path} has no name"
                    );
                    self.tell(transfer);
                }
                Some(ThirdPartyOutput::Failed {
                    transfer, reason, ..
                }) => {
                    assert!(!reason.is_empty());
                    self.tell(transfer);
                }
            }
        }
        panic!("no end of outputs");
    }

    fn tell(&mut self, transfer: u64) {
        assert!(
            transfer < self.pairs && self.told.insert(transfer),
            "each copy is told of once"
        );
    }

    /// From here on both servers refuse everything: each copy fails.
    fn refuse_all(&mut self) {
        for _ in 0..MAX_STEPS {
            if self.copies.is_done() {
                break;
            }
            if std::mem::take(&mut self.reopens) {
                self.copies.reopened();
            } else if let Some((request, _)) = self.asked.iter_mut().find_map(VecDeque::pop_front) {
                self.copies.handle_reply(request, &Reply::new(500, "No."));
            } else {
                panic!("it waits for nothing that was asked");
            }
            self.outputs();
        }
        assert_eq!(self.told.len() as u64, self.pairs, "all are told of");
    }
}

fn honest(command: &Command) -> Reply {
    match command {
        Command::Spas(_) => {
            let addresses = ["Striped", " 192,0,2,2,200,1", " 192,0,2,3,200,1", "End"];
            let lines = addresses.iter().map(|line| line.as_bytes().to_vec());
            Reply {
                code: 229,
                lines: lines.collect(),
            }
        }
        Command::Pasv => Reply::new(227, "Entering Passive Mode (192,0,2,2,200,1)"),
        Command::Size(_) => Reply::new(213, "7"),
        Command::Rnfr(_) => Reply::new(350, "Go on."),
        _ => Reply::new(226, "Done."),
    }
}
