//! Copies between two servers that keep the worst habit of real ones: bytes go to whichever file is next.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use venturi_gridftp::client::{Pair, Side, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{Command, Mode, Path, Reply};

/// Two servers and what is between them.
#[derive(Default)]
struct Servers {
    /// Files of the source.
    source: BTreeMap<Vec<u8>, u64>,
    /// Paths that the destination refuses.
    refused: Vec<Vec<u8>>,
    /// Files of the destination: whose bytes they hold.
    stored: BTreeMap<Vec<u8>, u64>,
    /// Bytes on data connections: of which file.
    wire: VecDeque<u64>,
    queues: [VecDeque<(u64, Command)>; 2],
    rename: Option<Vec<u8>>,
}

impl Servers {
    /// Carries out the next command of a side; gives replies, or nothing while it waits for bytes.
    fn turn(&mut self, side: usize) -> Option<(u64, Vec<Reply>)> {
        let (request, command) = self.queues[side].front()?.clone();
        let codes: &[u16] = match &command {
            Command::Pasv => {
                let reply = Reply::new(227, "Entering Passive Mode (192,0,2,2,200,1)");
                self.queues[side].pop_front();
                return Some((request, vec![reply]));
            }
            Command::Retr(path) => match self.source.get(path.as_bytes()) {
                Some(&file) => {
                    self.wire.push_back(file);
                    &[150, 226]
                }
                None => &[550],
            },
            Command::Stor(path)
                if self
                    .refused
                    .iter()
                    .any(|refused| refused == path.as_bytes()) =>
            {
                &[553]
            }
            Command::Stor(path) => {
                let file = self.wire.pop_front()?;
                self.stored.insert(path.as_bytes().to_vec(), file);
                &[150, 226]
            }
            Command::Size(_) => &[500],
            Command::Rnfr(path) => {
                self.rename = Some(path.as_bytes().to_vec());
                &[350]
            }
            Command::Rnto(path) => {
                let file = self
                    .rename
                    .take()
                    .and_then(|from| self.stored.remove(&from));
                match file {
                    Some(file) => {
                        self.stored.insert(path.as_bytes().to_vec(), file);
                        &[250]
                    }
                    None => &[550],
                }
            }
            _ => &[200],
        };
        self.queues[side].pop_front();
        Some((
            request,
            codes.iter().map(|&code| Reply::new(code, "said")).collect(),
        ))
    }

    fn reopen(&mut self) {
        self.wire.clear();
        self.queues = Default::default();
        self.rename = None;
    }
}

fn path(text: String) -> Path {
    Path::new(text).expect("a path")
}

proptest! {
    #[test]
    fn a_refused_file_never_gives_its_name_or_bytes_to_another(
        fates in prop::collection::vec(0_u8..8, 1..30), depth in 1_usize..12, turns: Vec<bool>, extended: bool,
    ) {
        let mut servers = Servers::default();
        let pairs = (0_u64..).zip(&fates).map(|(number, &fate)| {
            let from = format!("/from/{number}");
            let temporary = format!("/to/{number}.part");
            match fate {
                0 => {}
                1 => {
                    servers.refused.push(temporary.clone().into_bytes());
                    servers.source.insert(from.clone().into_bytes(), number);
                }
                _ => drop(servers.source.insert(from.clone().into_bytes(), number)),
            }
            Pair { transfer: number, from: path(from), to: path(format!("/to/{number}")), temporary: path(temporary), size_bytes: None }
        }).collect();
        let mode = if extended { Mode::Extended } else { Mode::Stream };
        let mut copies = ThirdParty::new(pairs, mode, depth, 3, "192.0.2.2".parse().expect("an address"), false);
        let mut turns = turns.into_iter().chain(std::iter::repeat([true, false]).flatten());
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for step in 0.. {
            prop_assert!(step < 20_000, "no end");
            match copies.poll_output() {
                Some(ThirdPartyOutput::Request { side, request, command }) => {
                    servers.queues[usize::from(side == Side::Source)].push_back((request, command));
                    continue;
                }
                Some(ThirdPartyOutput::Reopen) => {
                    servers.reopen();
                    copies.reopened();
                    continue;
                }
                Some(ThirdPartyOutput::Done { transfer }) => done.push(transfer),
                Some(ThirdPartyOutput::Failed { transfer, .. }) => failed.push(transfer),
                None if copies.is_done() => break,
                None => {}
            }
            if let Some((request, replies)) = servers.turn(usize::from(turns.next() == Some(true))) {
                replies.iter().for_each(|reply| copies.handle_reply(request, reply));
            }
        }
        for (number, fate) in (0_u64..).zip(fates) {
            let stored = servers.stored.get(format!("/to/{number}").as_bytes());
            let expected = (fate > 1).then_some(&number);
            prop_assert_eq!(stored, expected);
            prop_assert_eq!(done.contains(&number), fate > 1);
            prop_assert_eq!(failed.contains(&number), fate <= 1);
        }
    }
}
