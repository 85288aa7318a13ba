//! From the command of a transfer to its open file: whether it may be, over which connections, and how it ends before
//! it begins.

use std::net::SocketAddr;
use std::time::Duration;

use super::commands::{Notation, Purpose};
use super::transfer::{Kind, Style, Transfer};
use super::{Answer, Begin, Output, Refusal, Request, Server};
use crate::{ByteRanges, Command, Mode, Partial, Reply, Restart};

impl Server {
    pub(super) fn listen(&mut self, notation: Notation) {
        self.drop_data();
        self.ask(Purpose::Listening(notation), Request::Listen);
    }

    pub(super) fn connect_later(&mut self, addresses: Vec<SocketAddr>) {
        self.drop_data();
        let most = self.policy.connections.max(1);
        if addresses.len() > usize::from(most) {
            let text = format!("At most {most} data connections.");
            self.reply(&Reply::new(504, text));
        } else if addresses.iter().all(|&address| self.may_connect(address)) {
            self.data.addresses = addresses;
            self.reply(&Reply::new(200, "PORT Command successful."));
        } else {
            self.reply(&Reply::new(
                504,
                "Data goes to the host of the control connection, from port 1024 on.",
            ));
        }
    }

    pub(super) fn begin_transfer(&mut self, now: Duration, command: Command) {
        self.command = command.name();
        let restart = self.chosen.restart.take();
        let check = self.chosen.check.take();
        let here = self.chosen.directory.clone();
        let recursive = matches!(command, Command::Mlsr(_));
        let begin = begins(&command, restart.as_ref());
        let (kind, path) = match command {
            Command::Retr(path) => (Kind::Send { region: None }, path),
            Command::Eret {
                part: Partial::Region { offset, length },
                path,
            } => (
                Kind::Send {
                    region: Some((offset, length)),
                },
                path,
            ),
            Command::Stor(path) | Command::Appe(path) => (
                Kind::Receive {
                    path: path.clone(),
                    base: 0,
                    check,
                },
                path,
            ),
            Command::Esto { offset, path } => (
                Kind::Receive {
                    path: path.clone(),
                    base: offset,
                    check,
                },
                path,
            ),
            Command::Mlsd(path) | Command::Mlsr(path) => {
                (Kind::List(Style::Facts), path.unwrap_or(here))
            }
            Command::List(path) => (Kind::List(Style::Long), path.unwrap_or(here)),
            Command::Nlst(path) => (Kind::List(Style::Names), path.unwrap_or(here)),
            _ => return self.reply(&Reply::new(502, "Command not implemented.")),
        };
        let receives = matches!(kind, Kind::Receive { .. });
        if let Err(reply) = self.may_transfer(receives) {
            return self.refuse_transfer(receives, &reply);
        }
        self.chosen.restart = restart;
        self.touch(now);
        match path.normalised(&self.chosen.directory) {
            Err(error) => self.refuse_transfer(receives, &Reply::new(553, error.to_string())),
            Ok(path) => match kind {
                Kind::Send { .. } => self.ask(Purpose::Open(kind), Request::Read(path)),
                Kind::List(_) => self.ask(Purpose::Open(kind), Request::List { path, recursive }),
                Kind::Receive { base, check, .. } => {
                    let checksum = check.as_ref().map(|(algorithm, _)| algorithm.clone());
                    let kind = Kind::Receive {
                        path: path.clone(),
                        base,
                        check,
                    };
                    let request = Request::Write {
                        path,
                        begin,
                        checksum,
                    };
                    self.ask(Purpose::Open(kind), request);
                }
            },
        }
    }
    /// Whether there is a data connection for it, or a way to one.
    fn may_transfer(&self, receives: bool) -> Result<(), Reply> {
        let data = &self.data;
        if receives && !self.policy.writes {
            return Err(Refusal::Denied.reply());
        }
        if self.lacks_data_credential() {
            return Err(Reply::new(
                425,
                "No credential for data connections; delegate one, send DCSC P, or DCAU N.",
            ));
        }
        if data.refused && data.early {
            return Err(Reply::new(
                425,
                "Bytes of a refused file are on the data connections; send PASV again.",
            ));
        }
        match self.chosen.mode {
            Mode::Extended
                if receives && data.listens || !receives && !data.addresses.is_empty() =>
            {
                Ok(())
            }
            Mode::Extended if data.listens || !data.addresses.is_empty() => Err(Reply::new(
                500,
                "In MODE E the sender of data connects; send PASV to store, PORT to retrieve.",
            )),
            Mode::Stream if data.listens || !data.addresses.is_empty() => Ok(()),
            _ => Err(Reply::new(425, "Send PASV or PORT first.")),
        }
    }

    /// An upload that is refused may have its bytes on the way already. Where the client did not wait, they would be taken
    /// for those of its next file: then the connections are dropped, and the next ones fail instead of lying.
    fn refuse_transfer(&mut self, receives: bool, reply: &Reply) {
        self.reply(reply);
        if receives && self.chosen.mode == Mode::Extended {
            self.data.refused = true;
            if self.data.early || self.lines.has_line() {
                self.drop_data();
            }
        }
    }

    /// The driver has opened what is transferred, or finished it.
    pub(super) fn transfer_answered(&mut self, now: Duration, purpose: Purpose, answer: Answer) {
        // It was for this one, whatever it is (RFC 959, section 4.1.3).
        let restart = match purpose {
            Purpose::Open(_) => self.chosen.restart.take(),
            _ => None,
        };
        match (purpose, answer) {
            (Purpose::Open(Kind::Send { region }), Answer::Size(size)) => {
                let mut transfer = Transfer::new(Kind::Send { region }, now);
                match ranges_to_send(region, size, restart, &mut transfer) {
                    Some(ranges) => {
                        transfer.pieces = ranges.iter().collect();
                        self.start(now, transfer);
                    }
                    None => {
                        self.outputs.push_back(Output::CloseFile);
                        self.reply(&Reply::new(554, "REST is beyond the end of the file."));
                    }
                }
            }
            (Purpose::Open(Kind::Receive { path, check, .. }), Answer::Size(base)) => {
                self.start(now, Transfer::new(Kind::Receive { path, base, check }, now));
            }
            (Purpose::Open(kind @ Kind::Receive { .. }), Answer::Done) => {
                let mut transfer = Transfer::new(kind, now);
                if let Some(Restart::Offset(offset)) = restart {
                    transfer.position = offset;
                }
                self.start(now, transfer);
            }
            (Purpose::Open(kind @ Kind::List(_)), Answer::Entries { entries, more }) => {
                let mut transfer = Transfer::new(kind, now);
                self.take_entries(now, &mut transfer, &entries, more);
                self.start(now, transfer);
            }
            (Purpose::Open(kind), answer) => {
                let refusal = match answer {
                    Answer::Refused(refusal) => refusal,
                    _ => Refusal::Internal,
                };
                self.refuse_transfer(matches!(kind, Kind::Receive { .. }), &refusal.reply());
            }
            (Purpose::Finish, Answer::Done) => {
                self.ended(226);
                self.reply(&Reply::new(226, "Transfer Complete."));
            }
            (Purpose::Sent, answer) => {
                // What was sent is whole on its connections, whatever it is.
                let reply = match answer {
                    Answer::Done => Reply::new(226, "Transfer Complete."),
                    Answer::Refused(refusal) => refusal.reply(),
                    _ => Refusal::Internal.reply(),
                };
                self.outputs.push_back(Output::CloseFile);
                self.ended(reply.code);
                self.reply(&reply);
            }
            (Purpose::Verify(expected), Answer::Checksum(found)) => {
                self.verified(&expected, &found)
            }
            (Purpose::Finish | Purpose::Verify(_), answer) => {
                let refusal = match answer {
                    Answer::Refused(refusal) => refusal,
                    _ => Refusal::Internal,
                };
                self.fail(&refusal.reply());
            }
            (_, answer) => self.refused(&answer),
        }
    }

    fn verified(&mut self, expected: &str, found: &str) {
        if expected.eq_ignore_ascii_case(found) {
            return self.ask(Purpose::Finish, Request::Finish);
        }
        let lines = [
            "GlobusError: v=1 c=INCORRECT_CHECKSUM".to_owned(),
            format!("GridFTP-Computed-Checksum: {found}"),
            format!("GridFTP-Expected-Checksum: {expected}"),
        ];
        // What follows on the data connections cannot be trusted to be the next file.
        self.fail(&Reply::block(550, lines.map(String::into_bytes).to_vec()));
    }
}

/// What of a file is to be sent; none if it ends before. Blocks of a region count from its start.
fn ranges_to_send(
    region: Option<(u64, u64)>,
    size: u64,
    restart: Option<Restart>,
    transfer: &mut Transfer,
) -> Option<ByteRanges> {
    let (start, length) = region.unwrap_or((0, size));
    let end = start.saturating_add(length).min(size);
    transfer.position = start;
    match restart {
        Some(Restart::Offset(offset)) if offset > 0 => {
            let start = start.saturating_add(offset);
            (start <= end).then(|| ByteRanges::of(start..end))
        }
        Some(Restart::Ranges(present)) if region.is_none() => Some(present.missing(size)),
        _ => Some(ByteRanges::of(start..end)),
    }
}

/// What becomes of what is there.
fn begins(command: &Command, restart: Option<&Restart>) -> Begin {
    match (command, restart) {
        (Command::Esto { .. }, _) => Begin::Region,
        (Command::Appe(_), _) => Begin::Append,
        (_, Some(&Restart::Offset(bytes))) if bytes > 0 => Begin::Restart { bytes },
        (_, Some(Restart::Ranges(present))) if !present.is_empty() => Begin::Marked {
            bytes: present.iter().map(|range| range.end).max().unwrap_or(0),
        },
        _ => Begin::New,
    }
}
