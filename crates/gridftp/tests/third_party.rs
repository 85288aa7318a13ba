//! Copies between two servers that, like the worst real servers, assign bytes to the next file.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use venturi_gridftp::client::{CopyPair, SessionSide, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::{FtpCommand, FtpReply, Mode, Path};

/// Two servers and the connections between them.
#[derive(Default)]
struct Servers {
    /// Files of the source.
    source: BTreeMap<Vec<u8>, u64>,
    /// Paths that the destination rejects.
    rejected: Vec<Vec<u8>>,
    /// Files of the destination → number of the file whose bytes they contain.
    stored: BTreeMap<Vec<u8>, u64>,
    /// Bytes on data connections, by the number of their file.
    connection: VecDeque<u64>,
    queues: [VecDeque<(u64, FtpCommand)>; 2],
    rename: Option<Vec<u8>>,
}

impl Servers {
    /// Executes the next command of a side. Returns its replies, or `None` while it waits for
    /// bytes.
    fn turn(&mut self, side: usize) -> Option<(u64, Vec<FtpReply>)> {
        let (request, command) = self.queues[side].front()?.clone();
        let codes: &[u16] = match &command {
            FtpCommand::Pasv => {
                let reply = FtpReply::new(227, "Entering Passive Mode (192,0,2,2,200,1)");
                self.queues[side].pop_front();
                return Some((request, vec![reply]));
            }
            FtpCommand::Retr(path) => match self.source.get(path.as_bytes()) {
                Some(&file) => {
                    self.connection.push_back(file);
                    &[150, 226]
                }
                None => &[550],
            },
            FtpCommand::Stor(path)
                if self
                    .rejected
                    .iter()
                    .any(|rejected| rejected == path.as_bytes()) =>
            {
                &[553]
            }
            FtpCommand::Stor(path) => {
                let file = self.connection.pop_front()?;
                self.stored.insert(path.as_bytes().to_vec(), file);
                &[150, 226]
            }
            FtpCommand::Size(_) => &[500],
            FtpCommand::Rnfr(path) => {
                self.rename = Some(path.as_bytes().to_vec());
                &[350]
            }
            FtpCommand::Rnto(path) => {
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
            codes
                .iter()
                .map(|&code| FtpReply::new(code, "said"))
                .collect(),
        ))
    }

    fn reopen(&mut self) {
        self.connection.clear();
        self.queues = Default::default();
        self.rename = None;
    }
}

fn path(text: String) -> Path {
    Path::new(text).expect("a path")
}

proptest! {
    #[test]
    fn a_rejected_file_never_passes_its_name_or_bytes_to_another(
        outcomes in prop::collection::vec(0_u8..8, 1..30), depth in 1_usize..12, turns: Vec<bool>, extended: bool,
    ) {
        let mut servers = Servers::default();
        let pairs = (0_u64..).zip(&outcomes).map(|(number, &outcome)| {
            let from = format!("/from/{number}");
            let temporary = format!("/to/{number}.part");
            match outcome {
                0 => {}
                1 => {
                    servers.rejected.push(temporary.clone().into_bytes());
                    servers.source.insert(from.clone().into_bytes(), number);
                }
                _ => drop(servers.source.insert(from.clone().into_bytes(), number)),
            }
            CopyPair { transfer: number, from: path(from), to: path(format!("/to/{number}")), temporary: path(temporary), size_bytes: None }
        }).collect();
        let mode = if extended { Mode::Extended } else { Mode::Stream };
        let mut copies = ThirdParty::new(pairs, mode, depth, 3, "192.0.2.2".parse().expect("an address"), false);
        let mut turns = turns.into_iter().chain(std::iter::repeat([true, false]).flatten());
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for step in 0.. {
            prop_assert!(step < 20_000, "no end");
            match copies.poll_output() {
                Some(ThirdPartyOutput::Request { side, request, command }) => {
                    servers.queues[usize::from(side == SessionSide::Source)].push_back((request, command));
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
        for (number, outcome) in (0_u64..).zip(outcomes) {
            let stored = servers.stored.get(format!("/to/{number}").as_bytes());
            let expected = (outcome > 1).then_some(&number);
            prop_assert_eq!(stored, expected);
            prop_assert_eq!(done.contains(&number), outcome > 1);
            prop_assert_eq!(failed.contains(&number), outcome <= 1);
        }
    }
}
