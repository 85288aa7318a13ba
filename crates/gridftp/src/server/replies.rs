//! Replies about the session and files: features, facts, addresses, listings.

use std::net::SocketAddr;
use std::time::Duration;

use super::commands::{Notation, RequestPurpose};
use super::{DriverRequest, DriverResponse, GlobusError, LoginState, Server};
use crate::address::{write_extended, write_host_port};
use crate::{FtpReply, ListEntry, Path, write_timestamp};

impl Server {
    pub(super) fn features(&self) -> FtpReply {
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
        FtpReply::block(211, lines.into_iter().map(String::into_bytes).collect())
    }

    pub(super) fn help(&mut self) {
        let text = [
            "The following commands are recognized:",
            "   ABOR ALLO APPE CDUP CKSM CWD DCAU DELE EPRT EPSV ERET ESTO FEAT HELP LANG LIST MDTM",
            "   MFMT MKD MLSC MLSD MLSR MLST MODE NLST NOOP OPTS PASS PASV PBSZ PORT PROT PWD",
            "   QUIT REST RETR RMD RNFR RNTO SBUF SCKS SITE SIZE SPAS SPOR STAT STOR STRU SYST",
            "   TREV TYPE USER",
        ];
        self.reply(&FtpReply::block(
            214,
            text.map(|line| line.as_bytes().to_vec()).to_vec(),
        ));
    }

    /// Handles a response of the driver.
    pub(super) fn driver_responded(
        &mut self,
        now: Duration,
        purpose: RequestPurpose,
        response: DriverResponse,
    ) {
        match (purpose, response) {
            (RequestPurpose::Nothing, _) => {}
            (RequestPurpose::Login, DriverResponse::Done) => {
                self.login = LoginState::Done;
                self.ok(230, "User logged in.");
            }
            (
                RequestPurpose::Login,
                DriverResponse::Admitted {
                    writes,
                    third_party,
                },
            ) => {
                // Another user may have logged in before.
                (self.policy.writes, self.policy.third_party) =
                    (self.granted.0 && writes, self.granted.1 && third_party);
                self.login = LoginState::Done;
                self.ok(230, "User logged in.");
            }
            (RequestPurpose::Login, _) => self.reject_login(),
            (RequestPurpose::Then(reply), DriverResponse::Done) => self.reply(&reply),
            (
                RequestPurpose::ChangeDirectory(path),
                DriverResponse::Entry(ListEntry {
                    kind: Some(crate::EntryKind::Directory),
                    ..
                }),
            ) => {
                self.settings.directory = path;
                self.ok(250, "CWD command successful.");
            }
            (RequestPurpose::ChangeDirectory(_), DriverResponse::Entry(_)) => {
                self.reply(&GlobusError::NotDirectory.reply())
            }
            (
                RequestPurpose::Size,
                DriverResponse::Entry(ListEntry {
                    size_bytes: Some(size),
                    ..
                }),
            ) => self.ok(213, &size.to_string()),
            (
                RequestPurpose::Size,
                DriverResponse::Entry(ListEntry {
                    kind: Some(crate::EntryKind::Directory),
                    ..
                }),
            ) => self.reply(&GlobusError::IsDirectory.reply()),
            (
                RequestPurpose::Modified,
                DriverResponse::Entry(ListEntry {
                    modify_s: Some(time),
                    ..
                }),
            ) => {
                self.ok(213, &write_timestamp(time));
            }
            (RequestPurpose::Facts(path), DriverResponse::Entry(mut entry)) => {
                let selected = self.selected_facts();
                entry.name = path.as_bytes().to_vec();
                let line = entry.line(|fact| selected.contains(&fact.to_ascii_lowercase()));
                let title = format!("status of {path}").into_bytes();
                self.reply(&FtpReply::block(250, vec![title, line]));
            }
            (RequestPurpose::RenameFrom(path), DriverResponse::Entry(_)) => {
                self.settings.rename_from = Some(path);
                self.ok(350, "OK. Send RNTO with destination name.");
            }
            (RequestPurpose::Checksum, DriverResponse::Checksum(value)) => self.ok(213, &value),
            (RequestPurpose::Listening(notation), DriverResponse::Listening(address)) => {
                self.listens(notation, address)
            }
            (
                RequestPurpose::Contents { path, started },
                DriverResponse::Entries { entries, more },
            ) => {
                self.contents(path, started, &entries, more);
            }
            // Entries were already sent; only the last line can report that the listing is
            // incomplete.
            (RequestPurpose::Contents { started: true, .. }, _) => {
                self.ok(250, "End of an incomplete listing.")
            }
            (purpose, response) => self.transfer_responded(now, purpose, response),
        }
    }

    pub(super) fn reply_error(&mut self, response: &DriverResponse) {
        let error = match response {
            DriverResponse::Failed(error) => *error,
            _ => GlobusError::Internal,
        };
        self.reply(&error.reply());
    }

    fn reject_login(&mut self) {
        self.failed_logins += 1;
        self.reply(&GlobusError::LoginDenied.reply());
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
            (Notation::Passive, SocketAddr::V4(address)) => FtpReply::new(
                227,
                format!("Entering Passive Mode ({})", write_host_port(address)),
            ),
            (Notation::Passive, SocketAddr::V6(_)) => {
                self.drop_data();
                return self.ok(425, "PASV has no notation for IPv6; send EPSV.");
            }
            (Notation::Extended, address) => FtpReply::new(
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
                FtpReply {
                    code: 229,
                    lines: lines.map(String::into_bytes).to_vec(),
                }
            }
        };
        self.data.listens();
        self.reply(&reply);
    }

    /// Sends lines of a directory. The reply ends after the last entry.
    fn contents(&mut self, path: Path, started: bool, entries: &[ListEntry], more: bool) {
        let selected = self.selected_facts();
        let mut lines = Vec::new();
        if !started {
            lines.push(format!("Contents of {path}").into_bytes());
        }
        lines.extend(
            entries
                .iter()
                .filter(|entry| entry.fits_one_line())
                .map(|entry| entry.line(|fact| selected.contains(&fact.to_ascii_lowercase()))),
        );
        self.send_lines(FtpReply { code: 250, lines }.inner_lines(!started), false);
        if more {
            self.request_from_driver(
                RequestPurpose::Contents {
                    path,
                    started: true,
                },
                DriverRequest::More,
            );
        } else {
            self.ok(250, "End.");
        }
    }
}
