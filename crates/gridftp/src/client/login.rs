//! From the greeting to a session that is ready.

use super::job;
use super::{Client, Output, Tag};
use crate::command::{RetrieveOptions, Site};
use crate::{Command, Dcau, Error, Mode, Options, Reply, Secret, base64};

/// What a reply on the way is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    Greeting,
    Token,
    User,
    Pass,
    Features,
    Commands,
    /// A setting without which transfers would be wrong.
    Needed(&'static str),
    /// A setting that a server may not have.
    Optional,
    Mode,
    Last,
}

/// What servers ask for where they want no name; many want something like an address.
const ANONYMOUS: (&[u8], &[u8]) = (b"anonymous", b"venturi@");
/// The user whom servers of the Globus toolkit take for "the one whom the grid-mapfile says".
const MAPPED: (&[u8], &[u8]) = (b":globus-mapping:", b"dummy");
/// Block for protection: what globus-url-copy asks for.
const PROTECTION_BLOCK_BYTES: u64 = 1_048_576;

impl Client {
    pub(super) fn login(&mut self, step: Login, reply: &Reply) -> Result<(), Error> {
        match step {
            Login::Greeting if !reply.is_success() => Err(Self::refused("a session", reply)),
            Login::Greeting => {
                self.features.add_greeting(reply);
                self.begin_login();
                Ok(())
            }
            Login::Token => self.token(reply),
            Login::User if reply.is_intermediate() => {
                let password = self.user_and_password().1;
                self.step(Login::Pass, Command::Pass(password));
                Ok(())
            }
            Login::User | Login::Pass if reply.is_success() => {
                self.ask_for_features();
                Ok(())
            }
            Login::User | Login::Pass => Err(Self::refused("the login", reply)),
            Login::Features => {
                self.features.add_features(reply);
                Ok(())
            }
            Login::Commands => {
                self.features.add_commands(reply);
                self.set();
                Ok(())
            }
            Login::Needed(name) if !reply.is_success() => Err(Self::refused(name, reply)),
            Login::Mode if !reply.is_success() => {
                self.settings.mode = Mode::Stream;
                Ok(())
            }
            Login::Needed(_) | Login::Optional | Login::Mode => Ok(()),
            Login::Last => {
                self.ready = true;
                self.transfers.ready(&self.settings, &self.features);
                self.outputs.push_back(Output::Ready);
                Ok(())
            }
        }
    }

    fn step(&mut self, step: Login, command: Command) {
        self.control.submit(vec![(Tag::Login(step), command)]);
    }

    fn begin_login(&mut self) {
        match self.control.mechanism() {
            Some(mechanism) => self.step(Login::Token, Command::Auth(mechanism.into())),
            None => self.user(),
        }
    }

    fn user(&mut self) {
        if self.settings.login == job::Login::Done {
            return self.ask_for_features();
        }
        let user = self.user_and_password().0;
        self.step(Login::User, Command::User(user));
    }

    fn user_and_password(&self) -> (Vec<u8>, Secret) {
        match &self.settings.login {
            job::Login::Password { user, password } => (user.clone(), password.clone()),
            job::Login::Mapped => (MAPPED.0.into(), Secret(MAPPED.1.into())),
            job::Login::Anonymous | job::Login::Done => {
                (ANONYMOUS.0.into(), Secret(ANONYMOUS.1.into()))
            }
        }
    }

    /// 334: begin; 335: go on; 234 and 235: done, perhaps with a last token.
    fn token(&mut self, reply: &Reply) -> Result<(), Error> {
        let token = reply.field(b"ADAT=").map(base64::decode).transpose()?;
        match (reply.code, token) {
            (334 | 335, token) => {
                let said = self.control.handshake(token.as_deref())?;
                let token = said.token.unwrap_or_default();
                self.step(Login::Token, Command::Adat(token));
                return Ok(());
            }
            (234 | 235, Some(token)) => drop(self.control.handshake(Some(&token))?),
            (234 | 235, None) => {}
            _ => return Err(Self::refused("the credential", reply)),
        }
        if !self.control.is_content() {
            return Err(Error::Security(
                "the server ended the handshake too early".to_owned(),
            ));
        }
        self.control.protect();
        self.user();
        Ok(())
    }

    fn ask_for_features(&mut self) {
        self.step(Login::Features, Command::Feat);
        self.step(Login::Commands, Command::Site(Site::Help));
    }

    /// Everything that is set once, in one flight.
    fn set(&mut self) {
        let extended = self.settings.mode == Mode::Extended && self.features.has("PARALLEL");
        self.step(Login::Needed("TYPE I"), Command::Type(b'I'));
        self.settings.mode = if extended {
            Mode::Extended
        } else {
            Mode::Stream
        };
        if extended {
            self.step(Login::Mode, Command::Mode(Mode::Extended));
            let parallelism = Some(self.settings.connections);
            let options = RetrieveOptions {
                parallelism,
                ..RetrieveOptions::default()
            };
            self.step(Login::Optional, Command::Opts(Options::Retrieve(options)));
        }
        if let Some(bytes) = self.settings.buffer_bytes {
            self.step(Login::Optional, Command::Sbuf(bytes));
        }
        match self.settings.data.clone() {
            Some((dcau, protection)) if self.control.is_protected() => {
                self.step(Login::Needed("PBSZ"), Command::Pbsz(PROTECTION_BLOCK_BYTES));
                self.step(Login::Needed("DCAU"), Command::Dcau(dcau));
                self.step(Login::Needed("PROT"), Command::Prot(protection));
            }
            // Without a name the default, DCAU A, makes SPAS and EPSV fail.
            _ if self.features.has("DCAU") => {
                self.step(Login::Optional, Command::Dcau(Dcau::None));
            }
            _ => {}
        }
        self.step(Login::Last, Command::Noop);
    }
}
