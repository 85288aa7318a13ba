//! What is said of the session and of files: features, facts, addresses, directories.

use std::net::SocketAddr;
use std::time::Duration;

use super::commands::{Notation, Purpose};
use super::{Answer, Login, Refusal, Request, Server};
use crate::address::{write_extended, write_host_port};
use crate::{Entry, Path, Reply, write_timestamp};

impl Server {
    pub(super) fn features(&self) -> Reply {
        let checksums = self.policy.checksums.iter().zip(10..);
        let checksums: String = checksums
            .map(|(name, cost)| format!("{name}:{cost};"))
            .collect();
        let facts: String = crate::FACTS
            .iter()
            .map(|fact| format!("{fact}*;"))
            .collect();
        let mut lines = vec!["Extensions supported".to_owned()];
        if !checksums.is_empty() {
            lines.push(format!("CKSM {checksums}"));
            lines.push("SCKS".to_owned());
        }
        lines.push(format!("MLST {facts}"));
        let names = [
            "MFMT",
            "MLSC",
            "MLSR",
            "UTF8",
            "PARALLEL",
            "SIZE",
            "ERET",
            "ESTO",
            "SPAS",
            "SPOR",
            "REST STREAM",
            "MDTM",
            "EPSV",
            "EPRT",
            "SBUF",
            "TVFS",
        ];
        lines.extend(names.map(str::to_owned));
        if self.peer().is_some() {
            lines.extend(["DCAU", "DCSC P,D"].map(str::to_owned));
        }
        Reply::block(211, lines.into_iter().map(String::into_bytes).collect())
    }

    pub(super) fn help(&mut self) {
        let text = [
            "The following commands are recognized:",
            "   ABOR ALLO APPE CDUP CKSM CWD DCAU DELE EPRT EPSV ERET ESTO FEAT HELP LANG LIST MDTM",
            "   MFMT MKD MLSC MLSD MLSR MLST MODE NLST NOOP OPTS PASS PASV PBSZ PORT PROT PWD",
            "   QUIT REST RETR RMD RNFR RNTO SBUF SCKS SITE SIZE SPAS SPOR STAT STOR STRU SYST",
            "   TREV TYPE USER",
        ];
        self.reply(&Reply::block(
            214,
            text.map(|line| line.as_bytes().to_vec()).to_vec(),
        ));
    }

    /// The driver has answered.
    pub(super) fn answered(&mut self, now: Duration, purpose: Purpose, answer: Answer) {
        match (purpose, answer) {
            (Purpose::Nothing, _) => {}
            (Purpose::Login, Answer::Done) => {
                self.login = Login::Done;
                self.ok(230, "User logged in.");
            }
            (
                Purpose::Login,
                Answer::Admitted {
                    writes,
                    third_party,
                },
            ) => {
                // Somebody else may have logged in before.
                (self.policy.writes, self.policy.third_party) =
                    (self.granted.0 && writes, self.granted.1 && third_party);
                self.login = Login::Done;
                self.ok(230, "User logged in.");
            }
            (Purpose::Login, _) => self.refuse_login(),
            (Purpose::Then(reply), Answer::Done) => self.reply(&reply),
            (
                Purpose::Enter(path),
                Answer::Entry(Entry {
                    kind: Some(crate::Kind::Directory),
                    ..
                }),
            ) => {
                self.chosen.directory = path;
                self.ok(250, "CWD command successful.");
            }
            (Purpose::Enter(_), Answer::Entry(_)) => self.reply(&Refusal::NotDirectory.reply()),
            (
                Purpose::Size,
                Answer::Entry(Entry {
                    size_bytes: Some(size),
                    ..
                }),
            ) => self.ok(213, &size.to_string()),
            (
                Purpose::Size,
                Answer::Entry(Entry {
                    kind: Some(crate::Kind::Directory),
                    ..
                }),
            ) => self.reply(&Refusal::IsDirectory.reply()),
            (
                Purpose::Modified,
                Answer::Entry(Entry {
                    modify_s: Some(time),
                    ..
                }),
            ) => {
                self.ok(213, &write_timestamp(time));
            }
            (Purpose::Facts(path), Answer::Entry(mut entry)) => {
                let wanted = self.wanted_facts();
                entry.name = path.as_bytes().to_vec();
                let line = entry.line(|fact| wanted.contains(&fact.to_ascii_lowercase()));
                let title = format!("status of {path}").into_bytes();
                self.reply(&Reply::block(250, vec![title, line]));
            }
            (Purpose::RenameFrom(path), Answer::Entry(_)) => {
                self.chosen.rename_from = Some(path);
                self.ok(350, "OK. Send RNTO with destination name.");
            }
            (Purpose::Checksum, Answer::Checksum(value)) => self.ok(213, &value),
            (Purpose::Listening(notation), Answer::Listening(address)) => {
                self.listens(notation, address)
            }
            (Purpose::Contents { path, begun }, Answer::Entries { entries, more }) => {
                self.contents(path, begun, &entries, more);
            }
            // Entries have been sent; only the end of the reply can still say that there are not all.
            (Purpose::Contents { begun: true, .. }, _) => {
                self.ok(250, "End, before the end of the directory.")
            }
            (purpose, answer) => self.transfer_answered(now, purpose, answer),
        }
    }

    pub(super) fn refused(&mut self, answer: &Answer) {
        let refusal = match answer {
            Answer::Refused(refusal) => *refusal,
            _ => Refusal::Internal,
        };
        self.reply(&refusal.reply());
    }

    fn refuse_login(&mut self) {
        self.failed_logins += 1;
        self.reply(&Refusal::LoginDenied.reply());
        if self.failed_logins >= self.policy.logins {
            self.ok(
                421,
                "Too many failed logins, closing the control connection.",
            );
            self.close();
        }
    }

    fn listens(&mut self, notation: Notation, address: SocketAddr) {
        let reply = match (notation, address) {
            (Notation::Passive, SocketAddr::V4(address)) => Reply::new(
                227,
                format!("Entering Passive Mode ({})", write_host_port(address)),
            ),
            (Notation::Passive, SocketAddr::V6(_)) => {
                self.drop_data();
                return self.ok(425, "PASV has no notation for IPv6; send EPSV.");
            }
            (Notation::Extended, address) => Reply::new(
                229,
                format!("Entering Extended Passive Mode (|||{}|)", address.port()),
            ),
            (Notation::Striped { extended }, address) => {
                let text = match address {
                    SocketAddr::V4(address) if !extended => write_host_port(address),
                    address => write_extended(address),
                };
                let lines = [
                    "Entering Striped Passive Mode.".to_owned(),
                    text,
                    "End".to_owned(),
                ];
                Reply {
                    code: 229,
                    lines: lines.map(String::into_bytes).to_vec(),
                }
            }
        };
        self.data.listens();
        self.reply(&reply);
    }

    /// Lines of a directory; the reply ends when there are no more.
    fn contents(&mut self, path: Path, begun: bool, entries: &[Entry], more: bool) {
        let wanted = self.wanted_facts();
        let mut lines = Vec::new();
        if !begun {
            lines.push(format!("Contents of {path}").into_bytes());
        }
        lines.extend(
            entries
                .iter()
                .filter(|entry| entry.is_tellable())
                .map(|entry| entry.line(|fact| wanted.contains(&fact.to_ascii_lowercase()))),
        );
        self.send_lines(Reply { code: 250, lines }.inner_lines(!begun), false);
        if more {
            self.ask(Purpose::Contents { path, begun: true }, Request::More);
        } else {
            self.ok(250, "End.");
        }
    }
}
