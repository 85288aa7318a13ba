//! One command: what is answered at once, what the driver is asked, and what its answer becomes.

use std::time::Duration;

use super::{Login, Refusal, Request, Server};
use crate::command::Site;
use crate::{
    Command, Family, Marker, Mode, Options, Path, Reply, Restart, RetrieveOptions, write_timestamp,
};

/// What a request of the driver is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Let somebody in.
    Login,
    /// Answer with this if it is done.
    Then(Reply),
    /// Go there if it is a directory.
    Enter(Path),
    /// Tell its size.
    Size,
    /// Tell its time.
    Modified,
    /// Tell its facts (MLST), or the like of `ls` (STAT).
    Facts(Path),
    /// Remember it if it is there.
    RenameFrom(Path),
    /// Tell it.
    Checksum,
    /// Tell where, in this notation.
    Listening(Notation),
    /// List on the control connection: with the reply's first line where nothing is sent yet.
    Contents { path: Path, begun: bool },
    /// Begin a transfer.
    Open(super::transfer::Kind),
    /// Compare what was written with what was expected, then finish it.
    Verify(String),
    /// End one.
    Finish,
    /// End one whose file was read.
    Sent,
    /// What it was for has ended.
    Nothing,
}

/// How an address is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    /// 227.
    Passive,
    /// 229, port only.
    Extended,
    /// 229, a line each: in the older notation where it may be.
    Striped { extended: bool },
}

pub(super) const OK: &str = "OK.";

impl Server {
    pub(super) fn execute(&mut self, now: Duration, command: Command) {
        match command {
            Command::Quit => {
                self.reply(&Reply::new(221, "Goodbye."));
                self.close();
            }
            Command::User(user) => {
                let text = format!("Password required for {}.", crate::excerpt(&user));
                self.login = Login::User(user);
                self.reply(&Reply::new(331, text));
            }
            Command::Pass(password) => match std::mem::replace(&mut self.login, Login::None) {
                Login::User(user) => self.ask(Purpose::Login, Request::Login { user, password }),
                login => {
                    self.login = login;
                    self.reply(&Reply::new(503, "Send USER first."));
                }
            },
            Command::Feat => {
                let reply = self.features();
                self.reply(&reply);
            }
            Command::Help(_) | Command::Site(Site::Help) => self.help(),
            Command::Noop => self.ok(200, OK),
            _ if self.login != Login::Done => self.ok(530, "Please login with USER and PASS."),
            command => self.execute_for_user(now, command),
        }
    }

    pub(super) fn ok(&mut self, code: u16, text: &str) {
        self.reply(&Reply::new(code, text));
    }

    fn execute_for_user(&mut self, now: Duration, command: Command) {
        let rename_from = self.chosen.rename_from.take();
        match command {
            Command::Rnto(path) => match rename_from {
                Some(from) => {
                    self.change(path, |to| Request::Rename { from, to }, Reply::new(250, OK));
                }
                None => self.ok(503, "Send RNFR first."),
            },
            Command::Syst => self.ok(215, "UNIX Type: L8"),
            Command::Abor => self.ok(226, "Abort successful"),
            Command::Pwd => {
                let text = [
                    &quoted(&self.chosen.directory)[..],
                    b" is current directory.",
                ];
                self.reply(&Reply::new(257, text.concat()));
            }
            Command::Lang(_) => self.ok(200, "lang set to EN."),
            Command::Auth(_) | Command::Adat(_) | Command::Enc(_) | Command::Mic(_) => {
                self.ok(503, "Security is settled before USER.");
            }
            command => self.execute_settings(now, command),
        }
    }

    fn execute_settings(&mut self, now: Duration, command: Command) {
        match command {
            Command::Type(letter @ (b'A' | b'I')) => {
                self.ok(200, &format!("Type set to {}.", char::from(letter)))
            }
            Command::Stru(b'F') => self.ok(200, "STRU F ok."),
            Command::Type(_) | Command::Stru(_) => self.ok(504, "Not for this parameter."),
            Command::Mode(mode) => {
                if mode != self.chosen.mode {
                    self.drop_data();
                }
                self.chosen.mode = mode;
                self.ok(
                    200,
                    if mode == Mode::Stream {
                        "Mode set to S."
                    } else {
                        "Mode set to E."
                    },
                );
            }
            Command::Pbsz(bytes) if u32::try_from(bytes).is_ok() => {
                self.ok(200, &format!("PBSZ={bytes}"))
            }
            Command::Pbsz(_) => self.ok(501, "PBSZ is below 2^32."),
            Command::Prot(_) | Command::Dcau(_) | Command::Dcsc(_) => {
                self.secure_data(now, command);
            }
            Command::Sbuf(bytes) => {
                self.chosen.buffer_bytes = Some(bytes).filter(|&bytes| bytes > 0);
                self.ok(200, "SBUF Command Successful.");
            }
            Command::Allo(_) => self.ok(200, "ALLO command successful."),
            Command::Trev {
                marker: Marker::Performance | Marker::Restart,
                interval_s,
            } => {
                self.set_markers(interval_s);
                self.ok(200, "Command Successful.");
            }
            Command::Opts(options) => self.options(options),
            Command::Site(site) => self.site(site),
            Command::Rest(Restart::Ranges(_)) if self.chosen.mode == Mode::Stream => {
                self.ok(501, "MODE S goes on at one offset.");
            }
            Command::Rest(restart) => {
                self.chosen.restart = Some(restart);
                self.ok(
                    350,
                    "Restart Marker OK. Send STORE or RETR to initiate transfer.",
                );
            }
            Command::Scks { algorithm, value } => {
                let algorithm = algorithm.to_ascii_uppercase();
                if self.policy.checksums.contains(&algorithm) {
                    self.chosen.check = Some((algorithm, value));
                    self.ok(200, OK);
                } else {
                    self.ok(504, "Unknown checksum algorithm requested.");
                }
            }
            command => self.execute_on_files(now, command),
        }
    }

    fn execute_on_files(&mut self, now: Duration, command: Command) {
        match command {
            Command::Cwd(path) => self.on(path, |path| {
                (Purpose::Enter(path.clone()), Request::Stat(path))
            }),
            Command::Cdup => {
                let path = self.chosen.directory.split().0;
                self.ask(Purpose::Enter(path.clone()), Request::Stat(path));
            }
            Command::Size(path) => self.on(path, |path| (Purpose::Size, Request::Stat(path))),
            Command::Mdtm(path) => self.on(path, |path| (Purpose::Modified, Request::Stat(path))),
            Command::Mlst(path) | Command::Stat(path) => {
                let path = path.unwrap_or_else(|| self.chosen.directory.clone());
                self.on(path, |path| {
                    (Purpose::Facts(path.clone()), Request::Stat(path))
                });
            }
            Command::Mlsc(path) => {
                let path = path.unwrap_or_else(|| self.chosen.directory.clone());
                self.on(path, |path| {
                    let purpose = Purpose::Contents {
                        path: path.clone(),
                        begun: false,
                    };
                    (
                        purpose,
                        Request::List {
                            path,
                            recursive: false,
                        },
                    )
                });
            }
            Command::Cksm {
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
                        Purpose::Checksum,
                        Request::Checksum {
                            algorithm,
                            offset,
                            length,
                            path,
                        },
                    )
                });
            }
            Command::Mkd(path) => {
                let text = [&quoted(&path)[..], b" created successfully."].concat();
                self.change(path, Request::MakeDirectory, Reply::new(257, text));
            }
            Command::Rmd(path) => self.change(path, Request::RemoveDirectory, Reply::new(250, OK)),
            Command::Dele(path) => self.change(path, Request::Delete, Reply::new(250, OK)),
            Command::Mfmt { time_s, path } => self.set_modified(time_s, path),
            Command::Rnfr(path) if self.policy.writes => {
                self.on(path, |path| {
                    (Purpose::RenameFrom(path.clone()), Request::Stat(path))
                });
            }
            Command::Rnfr(_) => self.reply(&Refusal::Denied.reply()),
            command => self.execute_on_data(now, command),
        }
    }

    fn set_modified(&mut self, time_s: i64, path: Path) {
        let text = format!("Modify={}; {path}", write_timestamp(time_s));
        self.change(
            path,
            |path| Request::SetModified { path, time_s },
            Reply::new(213, text),
        );
    }

    fn execute_on_data(&mut self, now: Duration, command: Command) {
        match command {
            _ if self.chosen.only_extended_passive
                && matches!(command, Command::Pasv | Command::Port(_) | Command::Eprt(_)) =>
            {
                self.ok(501, "EPSV ALL was sent.");
            }
            Command::Pasv => self.listen(Notation::Passive),
            Command::Epsv(Some(Family::All)) => {
                self.chosen.only_extended_passive = true;
                self.ok(200, "EPSV ALL Successful.");
            }
            Command::Epsv(_) => self.listen(Notation::Extended),
            Command::Spas(family) => self.listen(Notation::Striped {
                extended: family.is_some(),
            }),
            Command::Port(address) => self.connect_later(vec![address.into()]),
            Command::Eprt(address) => self.connect_later(vec![address]),
            Command::Spor(addresses) => self.connect_later(addresses),
            command => self.begin_transfer(now, command),
        }
    }

    /// Asks for something on a path.
    pub(super) fn on(&mut self, path: Path, what: impl FnOnce(Path) -> (Purpose, Request)) {
        match path.normalised(&self.chosen.directory) {
            Ok(path) => {
                let (purpose, request) = what(path);
                self.ask(purpose, request);
            }
            Err(error) => self.ok(553, &error.to_string()),
        }
    }

    /// Asks for a change.
    fn change(&mut self, path: Path, what: impl FnOnce(Path) -> Request, then: Reply) {
        if self.policy.writes {
            self.on(path, |path| (Purpose::Then(then), what(path)));
        } else {
            self.reply(&Refusal::Denied.reply());
        }
    }

    fn set_markers(&mut self, interval_s: u64) {
        // Never so often that markers outweigh bytes.
        self.chosen.marker_interval = Duration::from_secs(interval_s.clamp(1, 86_400));
    }

    fn options(&mut self, options: Options) {
        match options {
            Options::Retrieve(RetrieveOptions {
                parallelism,
                markers_s,
                ..
            }) => {
                if let Some(count) = parallelism {
                    self.chosen.parallelism = count.clamp(1, self.policy.connections.max(1));
                }
                if let Some(interval) = markers_s {
                    self.set_markers(interval);
                }
            }
            Options::Facts(facts) => self.chosen.facts = Some(facts),
            Options::Utf8 | Options::ChecksumMarkers { .. } => {}
            Options::DelayedPassive(true) | Options::Other(_) => {
                return self.ok(501, "OPTS failed.");
            }
            Options::DelayedPassive(false) => {}
        }
        self.ok(200, "OPTS Command Successful.");
    }

    fn site(&mut self, site: Site) {
        match site {
            Site::ClientInfo(_) => self.ok(250, OK),
            Site::Buffer { bytes, .. } => {
                self.chosen.buffer_bytes = Some(bytes).filter(|&bytes| bytes > 0);
                self.ok(200, OK);
            }
            Site::Chmod { mode, path } => {
                self.change(
                    path,
                    |path| Request::SetMode { path, mode },
                    Reply::new(250, OK),
                );
            }
            Site::Truncate { length, path } => {
                self.change(
                    path,
                    |path| Request::Truncate { path, length },
                    Reply::new(250, OK),
                );
            }
            Site::Utime { time_s, path } => self.set_modified(time_s, path),
            _ => self.ok(500, "Invalid command."),
        }
    }
}

/// A path between quotes, of which those within are doubled (RFC 959 appendix II).
fn quoted(path: &Path) -> Vec<u8> {
    let mut bytes = vec![b'"'];
    for &byte in path.as_bytes() {
        bytes.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
    }
    bytes.push(b'"');
    bytes
}
