//! Login: from the greeting to a ready session.

use super::settings;
use super::{Client, ClientOutput, Tag};
use crate::command::{RetrieveOptions, SiteCommand};
use crate::{Dcau, FtpCommand, FtpError, FtpReply, Mode, Options, Protection, Secret, base64};

/// Login step of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginStep {
    Greeting,
    Token,
    User,
    Pass,
    Features,
    Commands,
    /// A required setting.
    Needed(&'static str),
    /// Authentication of data connections (DCAU).
    Authentication,
    /// An optional setting.
    Optional,
    Mode,
    Last,
}

/// Anonymous login; many servers require an address as password.
const ANONYMOUS: (&[u8], &[u8]) = (b"anonymous", b"venturi@");
/// User name that Globus servers map with the grid-mapfile.
const MAPPED: (&[u8], &[u8]) = (b":globus-mapping:", b"dummy");
/// Protection buffer size, as in globus-url-copy.
const PROTECTION_BLOCK_BYTES: u64 = 1_048_576;
/// Codes for unsupported commands or parameters (RFC 959 section 4.2); other rejections are
/// temporary.
const NOT_IMPLEMENTED: [u16; 4] = [202, 500, 502, 504];
/// Requested facts. Without others, such as owner names, a line is half as long and the server does
/// less work.
const FACTS: [&str; 6] = [
    "Type",
    "Size",
    "Modify",
    "UNIX.mode",
    "UNIX.slink",
    "Unique",
];

impl Client {
    pub(super) fn login(&mut self, step: LoginStep, reply: &FtpReply) -> Result<(), FtpError> {
        match step {
            LoginStep::Greeting if !reply.is_success() => Err(Self::rejected("a session", reply)),
            LoginStep::Greeting => {
                self.features.add_greeting(reply);
                self.start_login();
                Ok(())
            }
            LoginStep::Token => self.token(reply),
            // The later commands were already sent.
            LoginStep::User if self.ahead && reply.is_intermediate() => Ok(()),
            LoginStep::Pass if self.ahead && reply.is_success() => Ok(()),
            LoginStep::User if reply.is_intermediate() => {
                let password = self.user_and_password().1;
                self.step(LoginStep::Pass, FtpCommand::Pass(password));
                Ok(())
            }
            LoginStep::User | LoginStep::Pass if reply.is_success() => {
                self.request_features();
                Ok(())
            }
            LoginStep::User | LoginStep::Pass => Err(Self::rejected("the login", reply)),
            LoginStep::Features => {
                self.features.add_features(reply);
                Ok(())
            }
            LoginStep::Commands => {
                self.features.add_commands(reply);
                if !self.ahead {
                    self.set();
                }
                Ok(())
            }
            LoginStep::Needed(name) if !reply.is_success() => Err(Self::rejected(name, reply)),
            LoginStep::Authentication if !reply.is_success() || reply.code == 202 => {
                if !self.opens_data || !NOT_IMPLEMENTED.contains(&reply.code) {
                    return Err(Self::rejected("DCAU", reply));
                }
                self.settings.data = None;
                // The server can have another default and no support for A.
                self.step(LoginStep::Optional, FtpCommand::Dcau(Dcau::None));
                Ok(())
            }
            LoginStep::Mode if !reply.is_success() => {
                self.settings.mode = Mode::Stream;
                Ok(())
            }
            LoginStep::Needed(_)
            | LoginStep::Authentication
            | LoginStep::Optional
            | LoginStep::Mode => Ok(()),
            LoginStep::Last => {
                self.ready = true;
                if !self.features.pipelines() {
                    self.control.serialize_transfers();
                }
                self.transfers.ready(&self.settings, &self.features);
                self.outputs.push_back(ClientOutput::Ready);
                Ok(())
            }
        }
    }

    fn step(&mut self, step: LoginStep, command: FtpCommand) {
        self.control.submit(vec![(Tag::Login(step), command)]);
    }

    fn start_login(&mut self) {
        match self.control.mechanism() {
            Some(mechanism) => self.step(LoginStep::Token, FtpCommand::Auth(mechanism.into())),
            None => self.user(),
        }
    }

    fn user(&mut self) {
        if self.settings.login == settings::Login::Done {
            return self.request_features();
        }
        let (user, password) = self.user_and_password();
        self.step(LoginStep::User, FtpCommand::User(user));
        // Globus servers read commands in sequence, always request a password, and support all
        // these settings. One flight takes one round trip instead of four.
        if self.features.is_globus() {
            self.ahead = true;
            self.step(LoginStep::Pass, FtpCommand::Pass(password));
            self.request_features();
            self.set();
        }
    }

    fn user_and_password(&self) -> (Vec<u8>, Secret) {
        match &self.settings.login {
            settings::Login::Password { user, password } => (user.clone(), password.clone()),
            settings::Login::Mapped => (MAPPED.0.into(), Secret(MAPPED.1.into())),
            settings::Login::Anonymous | settings::Login::Done => {
                (ANONYMOUS.0.into(), Secret(ANONYMOUS.1.into()))
            }
        }
    }

    /// Handles a reply of the handshake. 334: start; 335: continue; 234 and 235: done, possibly
    /// with a last token.
    fn token(&mut self, reply: &FtpReply) -> Result<(), FtpError> {
        let token = reply.field(b"ADAT=").map(base64::decode).transpose()?;
        match (reply.code, token) {
            (334 | 335, token) => {
                let handshake = self.control.handshake(token.as_deref())?;
                let token = handshake.token.unwrap_or_default();
                self.step(LoginStep::Token, FtpCommand::Adat(token));
                return Ok(());
            }
            (234 | 235, Some(token)) => drop(self.control.handshake(Some(&token))?),
            (234 | 235, None) => {}
            _ => return Err(Self::rejected("the credential", reply)),
        }
        if !self.control.is_content() {
            return Err(FtpError::Security(
                "the server ended the handshake early".to_owned(),
            ));
        }
        self.control.protect();
        self.user();
        Ok(())
    }

    fn request_features(&mut self) {
        self.step(LoginStep::Features, FtpCommand::Feat);
        self.step(LoginStep::Commands, FtpCommand::Site(SiteCommand::Help));
    }

    /// Sends all session settings in one flight.
    fn set(&mut self) {
        let has = |name| self.ahead || self.features.has(name);
        let extended = self.settings.mode == Mode::Extended && has("PARALLEL");
        let authenticates = has("DCAU");
        self.step(LoginStep::Needed("TYPE I"), FtpCommand::Type(b'I'));
        self.settings.mode = if extended {
            Mode::Extended
        } else {
            Mode::Stream
        };
        if extended {
            self.step(LoginStep::Mode, FtpCommand::Mode(Mode::Extended));
            let parallelism = Some(self.settings.connections);
            let options = RetrieveOptions {
                parallelism,
                ..RetrieveOptions::default()
            };
            self.step(
                LoginStep::Optional,
                FtpCommand::Opts(Options::Retrieve(options)),
            );
        }
        if let Some(bytes) = self.settings.buffer_bytes {
            self.step(LoginStep::Optional, FtpCommand::Sbuf(bytes));
        }
        if self.ahead {
            let facts = FACTS.map(str::to_owned).to_vec();
            self.step(LoginStep::Optional, FtpCommand::Opts(Options::Facts(facts)));
        }
        if !self.control.is_protected() || (self.opens_data && !authenticates) {
            self.settings.data = None;
        }
        match self.settings.data.clone() {
            Some((dcau, protection)) => {
                self.step(LoginStep::Authentication, FtpCommand::Dcau(dcau));
                // The default is no protection (RFC 2228 section 3).
                if protection != Protection::Clear {
                    self.step(
                        LoginStep::Needed("PBSZ"),
                        FtpCommand::Pbsz(PROTECTION_BLOCK_BYTES),
                    );
                    self.step(LoginStep::Needed("PROT"), FtpCommand::Prot(protection));
                }
            }
            // Without a credential the default, DCAU A, makes SPAS and EPSV fail.
            None if authenticates => {
                self.step(LoginStep::Optional, FtpCommand::Dcau(Dcau::None));
            }
            None => {}
        }
        self.step(LoginStep::Last, FtpCommand::Noop);
    }
}
