//! Copies between two servers whose replies are the fuzzer's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use venturi_gridftp::client::{CopyPair, SessionSide, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{FtpCommand, FtpReply, Mode, Path};

use crate::Draws;

/// Most outputs, and refusals, until all is told.
const MAX_STEPS: usize = 10_000;

struct ThirdPartyWorld {
    copies: ThirdParty,
    /// What each side was asked, oldest first.
    requested: [VecDeque<(u64, FtpCommand)>; 2],
    /// Paths that were stored, and answered well, since the sessions were opened.
    stored: BTreeSet<Path>,
    named: BTreeMap<u64, Path>,
    reported: BTreeSet<u64>,
    pairs: u64,
    reopens: bool,
}

/// Drives copies as the bytes say.
pub fn run(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let pairs = draws.below(8) as u64;
    let path = |text: String| Path::new(text).expect("a path");
    let all = (0..pairs).map(|transfer| CopyPair {
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
    let mut world = ThirdPartyWorld {
        copies: ThirdParty::new(all, mode, depth, attempts, destination, striped),
        requested: Default::default(),
        stored: BTreeSet::new(),
        named: BTreeMap::new(),
        reported: BTreeSet::new(),
        pairs,
        reopens: false,
    };
    world.outputs();
    while !draws.is_over() {
        world.turn(&mut draws);
        world.outputs();
    }
    world.reject_all();
}

impl ThirdPartyWorld {
    fn turn(&mut self, draws: &mut Draws) {
        if self.reopens && draws.below(4) > 0 {
            self.reopens = false;
            return self.copies.reopened();
        }
        let side = draws.below(2);
        let Some((request, command)) = self.requested[side].front().cloned() else {
            return;
        };
        let reply = match draws.below(8) {
            0 => FtpReply::new(100 + u16::from(draws.byte()) * 2, "x"),
            1 => FtpReply::new(150, "Begin."),
            2 => return self.copies.lost("gone"),
            _ => honest(&command),
        };
        if !reply.is_preliminary() {
            self.requested[side].pop_front();
            if let (FtpCommand::Stor(path), true) = (&command, reply.is_success()) {
                self.stored.insert(path.clone());
            }
            if let (FtpCommand::Rnto(path), true) = (&command, reply.is_success()) {
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
                    if let FtpCommand::Rnfr(path) = &command {
                        assert!(
                            self.stored.contains(path),
                            "{path} is named and was not stored"
                        );
                    }
                    self.requested[usize::from(side == SessionSide::Source)]
                        .push_back((request, command));
                }
                Some(ThirdPartyOutput::Reopen) => {
                    self.reopens = true;
                    self.requested = Default::default();
                    self.stored.clear();
                }
                Some(ThirdPartyOutput::Done { transfer }) => {
                    let path = Path::new(format!("/to/{transfer}")).expect("a path");
                    assert!(
                        self.named.values().any(|named| *named == path),
                        "{path} has no name"
                    );
                    self.report(transfer);
                }
                Some(ThirdPartyOutput::Failed {
                    transfer, reason, ..
                }) => {
                    assert!(!reason.is_empty());
                    self.report(transfer);
                }
            }
        }
        panic!("no end of outputs");
    }

    fn report(&mut self, transfer: u64) {
        assert!(
            transfer < self.pairs && self.reported.insert(transfer),
            "each copy is reported once"
        );
    }

    /// From here on both servers refuse everything: each copy fails.
    fn reject_all(&mut self) {
        for _ in 0..MAX_STEPS {
            if self.copies.is_done() {
                break;
            }
            if std::mem::take(&mut self.reopens) {
                self.copies.reopened();
            } else if let Some((request, _)) =
                self.requested.iter_mut().find_map(VecDeque::pop_front)
            {
                self.copies
                    .handle_reply(request, &FtpReply::new(500, "No."));
            } else {
                panic!("it waits without a pending request");
            }
            self.outputs();
        }
        assert_eq!(self.reported.len() as u64, self.pairs, "all are told of");
    }
}

fn honest(command: &FtpCommand) -> FtpReply {
    match command {
        FtpCommand::Spas(_) => {
            let addresses = ["Striped", " 192,0,2,2,200,1", " 192,0,2,3,200,1", "End"];
            let lines = addresses.iter().map(|line| line.as_bytes().to_vec());
            FtpReply {
                code: 229,
                lines: lines.collect(),
            }
        }
        FtpCommand::Pasv => FtpReply::new(227, "Entering Passive Mode (192,0,2,2,200,1)"),
        FtpCommand::Size(_) => FtpReply::new(213, "7"),
        FtpCommand::Rnfr(_) => FtpReply::new(350, "Go on."),
        _ => FtpReply::new(226, "Done."),
    }
}
