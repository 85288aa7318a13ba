//! Execution of commands: immediate replies and requests to the driver.

use std::time::Duration;

use super::{DriverRequest, GlobusError, LoginState, Server};
use crate::command::SiteCommand;
use crate::{
    Family, FtpCommand, FtpReply, Marker, Mode, Options, Path, Restart, RetrieveOptions,
    write_timestamp,
};

/// Purpose of a driver request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestPurpose {
    /// Log a user in.
    Login,
    /// Send this reply on success.
    Then(FtpReply),
    /// Change to this directory.
    ChangeDirectory(Path),
    /// Report the size.
    Size,
    /// Report the modification time.
    Modified,
    /// Send its facts (MLST, STAT).
    Facts(Path),
    /// Remember the source of a rename.
    RenameFrom(Path),
    /// Report the checksum.
    Checksum,
    /// Send the listener's address in this notation.
    Listening(Notation),
    /// List on the control connection, with the first line of the reply unless `started`.
    Contents { path: Path, started: bool },
    /// Start a transfer.
    Open(super::transfer::TransferKind),
    /// Compare the checksum of the written file with the expected one, then finish the file.
    Verify(String),
    /// Finish an upload.
    Finish,
    /// Finish a download.
    Sent,
    /// Ignore the response.
    Nothing,
}

/// Notation of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    /// Reply 227.
    Passive,
    /// Reply 229 with only a port.
    Extended,
    /// Reply 229 with one address per line; the older notation for IPv4 unless `extended`.
    Striped { extended: bool },
}

pub(super) const OK: &str = "OK.";

impl Server {
    pub(super) fn execute(&mut self, now: Duration, command: FtpCommand) {
        match command {
            FtpCommand::Quit => {
                self.reply(&FtpReply::new(221, "Goodbye."));
                self.close();
            }
            FtpCommand::User(user) => {
                let text = format!("Password required for {}.", crate::excerpt(&user));
                self.login = LoginState::User(user);
                self.reply(&FtpReply::new(331, text));
            }
            FtpCommand::Pass(password) => {
                match std::mem::replace(&mut self.login, LoginState::None) {
                    LoginState::User(user) => self.request_from_driver(
                        RequestPurpose::Login,
                        DriverRequest::Login { user, password },
                    ),
                    login => {
                        self.login = login;
                        self.reply(&FtpReply::new(503, "Send USER first."));
                    }
                }
            }
            FtpCommand::Feat => {
                let reply = self.features();
                self.reply(&reply);
            }
            FtpCommand::Help(_) | FtpCommand::Site(SiteCommand::Help) => self.help(),
            FtpCommand::Noop => self.ok(200, OK),
            _ if self.login != LoginState::Done => self.ok(530, "Please login with USER and PASS."),
            command => self.execute_for_user(now, command),
        }
    }

    pub(super) fn ok(&mut self, code: u16, text: &str) {
        self.reply(&FtpReply::new(code, text));
    }

    fn execute_for_user(&mut self, now: Duration, command: FtpCommand) {
        let rename_from = self.settings.rename_from.take();
        match command {
            FtpCommand::Rnto(path) => match rename_from {
                Some(from) => {
                    self.change(
                        path,
                        |to| DriverRequest::Rename { from, to },
                        FtpReply::new(250, OK),
                    );
                }
                None => self.ok(503, "Send RNFR first."),
            },
            FtpCommand::Syst => self.ok(215, "UNIX Type: L8"),
            FtpCommand::Abor => self.ok(226, "Abort successful"),
            FtpCommand::Pwd => {
                let text = [
                    &quoted(&self.settings.directory)[..],
                    b" is current directory.",
                ];
                self.reply(&FtpReply::new(257, text.concat()));
            }
            FtpCommand::Lang(_) => self.ok(200, "lang set to EN."),
            FtpCommand::Auth(_) | FtpCommand::Adat(_) | FtpCommand::Enc(_) | FtpCommand::Mic(_) => {
                self.ok(503, "Send AUTH and ADAT before USER.");
            }
            command => self.execute_settings(now, command),
        }
    }

    fn execute_settings(&mut self, now: Duration, command: FtpCommand) {
        match command {
            FtpCommand::Type(letter @ (b'A' | b'I')) => {
                self.ok(200, &format!("Type set to {}.", char::from(letter)))
            }
            FtpCommand::Stru(b'F') => self.ok(200, "STRU F ok."),
            FtpCommand::Type(_) | FtpCommand::Stru(_) => self.ok(504, "Parameter not supported."),
            FtpCommand::Mode(mode) => {
                if mode != self.settings.mode {
                    self.drop_data();
                }
                self.settings.mode = mode;
                self.ok(
                    200,
                    if mode == Mode::Stream {
                        "Mode set to S."
                    } else {
                        "Mode set to E."
                    },
                );
            }
            FtpCommand::Pbsz(bytes) if u32::try_from(bytes).is_ok() => {
                self.ok(200, &format!("PBSZ={bytes}"))
            }
            FtpCommand::Pbsz(_) => self.ok(501, "PBSZ is below 2^32."),
            FtpCommand::Prot(_) | FtpCommand::Dcau(_) | FtpCommand::Dcsc(_) => {
                self.secure_data(now, command);
            }
            FtpCommand::Sbuf(bytes) => {
                self.settings.buffer_bytes = Some(bytes).filter(|&bytes| bytes > 0);
                self.ok(200, "SBUF Command Successful.");
            }
            FtpCommand::Allo(_) => self.ok(200, "ALLO command successful."),
            FtpCommand::Trev {
                marker: Marker::Performance | Marker::Restart,
                interval_s,
            } => {
                self.set_markers(interval_s);
                self.ok(200, "Command Successful.");
            }
            FtpCommand::Opts(options) => self.options(options),
            FtpCommand::Site(site) => self.site(site),
            FtpCommand::Rest(Restart::Ranges(_)) if self.settings.mode == Mode::Stream => {
                self.ok(501, "MODE S restarts at one offset.");
            }
            FtpCommand::Rest(restart) => {
                self.settings.restart = Some(restart);
                self.ok(
                    350,
                    "Restart Marker OK. Send STORE or RETR to initiate transfer.",
                );
            }
            FtpCommand::Scks { algorithm, value } => {
                let algorithm = algorithm.to_ascii_uppercase();
                if self.policy.checksums.contains(&algorithm) {
                    self.settings.check = Some((algorithm, value));
                    self.ok(200, OK);
                } else {
                    self.ok(504, "Unknown checksum algorithm requested.");
                }
            }
            command => self.execute_on_files(now, command),
        }
    }

    fn execute_on_files(&mut self, now: Duration, command: FtpCommand) {
        match command {
            FtpCommand::Cwd(path) => self.on(path, |path| {
                (
                    RequestPurpose::ChangeDirectory(path.clone()),
                    DriverRequest::Stat(path),
                )
            }),
            FtpCommand::Cdup => {
                let path = self.settings.directory.split().0;
                self.request_from_driver(
                    RequestPurpose::ChangeDirectory(path.clone()),
                    DriverRequest::Stat(path),
                );
            }
            FtpCommand::Size(path) => self.on(path, |path| {
                (RequestPurpose::Size, DriverRequest::Stat(path))
            }),
            FtpCommand::Mdtm(path) => self.on(path, |path| {
                (RequestPurpose::Modified, DriverRequest::Stat(path))
            }),
            FtpCommand::Mlst(path) | FtpCommand::Stat(path) => {
                let path = path.unwrap_or_else(|| self.settings.directory.clone());
                self.on(path, |path| {
                    (
                        RequestPurpose::Facts(path.clone()),
                        DriverRequest::Stat(path),
                    )
                });
            }
            FtpCommand::Mlsc(path) => {
                let path = path.unwrap_or_else(|| self.settings.directory.clone());
                self.on(path, |path| {
                    let purpose = RequestPurpose::Contents {
                        path: path.clone(),
                        started: false,
                    };
                    (
                        purpose,
                        DriverRequest::List {
                            path,
                            recursive: false,
                        },
                    )
                });
            }
            FtpCommand::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => {
                let algorithm = algorithm.to_ascii_uppercase();
                if !self.policy.checksums.contains(&algorithm) {
                    return self.ok(504, "Unknown checksum algorithm requested.");
                }
                self.on(path, |path| {
                    (
                        RequestPurpose::Checksum,
                        DriverRequest::Checksum {
                            algorithm,
                            offset,
                            length,
                            path,
                        },
                    )
                });
            }
            FtpCommand::Mkd(path) => {
                let text = [&quoted(&path)[..], b" created successfully."].concat();
                self.change(path, DriverRequest::MakeDirectory, FtpReply::new(257, text));
            }
            FtpCommand::Rmd(path) => {
                self.change(path, DriverRequest::RemoveDirectory, FtpReply::new(250, OK))
            }
            FtpCommand::Dele(path) => {
                self.change(path, DriverRequest::Delete, FtpReply::new(250, OK))
            }
            FtpCommand::Mfmt { time_s, path } => self.set_modified(time_s, path),
            FtpCommand::Rnfr(path) if self.policy.writes => {
                self.on(path, |path| {
                    (
                        RequestPurpose::RenameFrom(path.clone()),
                        DriverRequest::Stat(path),
                    )
                });
            }
            FtpCommand::Rnfr(_) => self.reply(&GlobusError::Denied.reply()),
            command => self.execute_on_data(now, command),
        }
    }

    fn set_modified(&mut self, time_s: i64, path: Path) {
        let text = format!("Modify={}; {path}", write_timestamp(time_s));
        self.change(
            path,
            |path| DriverRequest::SetModified { path, time_s },
            FtpReply::new(213, text),
        );
    }

    fn execute_on_data(&mut self, now: Duration, command: FtpCommand) {
        match command {
            _ if self.settings.only_extended_passive
                && matches!(
                    command,
                    FtpCommand::Pasv | FtpCommand::Port(_) | FtpCommand::Eprt(_)
                ) =>
            {
                self.ok(501, "EPSV ALL was sent.");
            }
            FtpCommand::Pasv => self.listen(Notation::Passive),
            FtpCommand::Epsv(Some(Family::All)) => {
                self.settings.only_extended_passive = true;
                self.ok(200, "EPSV ALL Successful.");
            }
            FtpCommand::Epsv(_) => self.listen(Notation::Extended),
            FtpCommand::Spas(family) => self.listen(Notation::Striped {
                extended: family.is_some(),
            }),
            FtpCommand::Port(address) => self.connect_later(vec![address.into()]),
            FtpCommand::Eprt(address) => self.connect_later(vec![address]),
            FtpCommand::Spor(addresses) => self.connect_later(addresses),
            command => self.prepare_transfer(now, command),
        }
    }

    /// Sends a driver request for a path.
    pub(super) fn on(
        &mut self,
        path: Path,
        make_request: impl FnOnce(Path) -> (RequestPurpose, DriverRequest),
    ) {
        match path.normalised(&self.settings.directory) {
            Ok(path) => {
                let (purpose, request) = make_request(path);
                self.request_from_driver(purpose, request);
            }
            Err(error) => self.ok(553, &error.to_string()),
        }
    }

    /// Sends a driver request that modifies files.
    fn change(
        &mut self,
        path: Path,
        make_request: impl FnOnce(Path) -> DriverRequest,
        then: FtpReply,
    ) {
        if self.policy.writes {
            self.on(path, |path| {
                (RequestPurpose::Then(then), make_request(path))
            });
        } else {
            self.reply(&GlobusError::Denied.reply());
        }
    }

    fn set_markers(&mut self, interval_s: u64) {
        // Limit the rate of markers.
        self.settings.marker_interval = Duration::from_secs(interval_s.clamp(1, 86_400));
    }

    fn options(&mut self, options: Options) {
        match options {
            Options::Retrieve(RetrieveOptions {
                parallelism,
                markers_s,
                ..
            }) => {
                if let Some(count) = parallelism {
                    self.settings.parallelism = count.clamp(1, self.policy.connections.max(1));
                }
                if let Some(interval) = markers_s {
                    self.set_markers(interval);
                }
            }
            Options::Facts(facts) => self.settings.facts = Some(facts),
            Options::Utf8 | Options::ChecksumMarkers { .. } => {}
            Options::DelayedPassive(true) | Options::Other(_) => {
                return self.ok(501, "OPTS failed.");
            }
            Options::DelayedPassive(false) => {}
        }
        self.ok(200, "OPTS Command Successful.");
    }

    fn site(&mut self, site: SiteCommand) {
        match site {
            SiteCommand::ClientInfo(_) => self.ok(250, OK),
            SiteCommand::Buffer { bytes, .. } => {
                self.settings.buffer_bytes = Some(bytes).filter(|&bytes| bytes > 0);
                self.ok(200, OK);
            }
            SiteCommand::Chmod { mode, path } => {
                self.change(
                    path,
                    |path| DriverRequest::SetMode { path, mode },
                    FtpReply::new(250, OK),
                );
            }
            SiteCommand::Truncate { length, path } => {
                self.change(
                    path,
                    |path| DriverRequest::Truncate { path, length },
                    FtpReply::new(250, OK),
                );
            }
            SiteCommand::Utime { time_s, path } => self.set_modified(time_s, path),
            _ => self.ok(500, "Invalid command."),
        }
    }
}

/// Returns a path in quotes, with doubled inner quotes (RFC 959 appendix II).
fn quoted(path: &Path) -> Vec<u8> {
    let mut bytes = vec![b'"'];
    for &byte in path.as_bytes() {
        bytes.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
    }
    bytes.push(b'"');
    bytes
}
