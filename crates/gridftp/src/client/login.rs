//! From the greeting to a session that is ready.

use super::settings;
use super::{Client, Output, Tag};
use crate::command::{RetrieveOptions, Site};
use crate::{Command, Dcau, Error, Mode, Options, Protection, Reply, Secret, base64};

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
    /// How data connections are authenticated (DCAU).
    Authentication,
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
/// What a server says that does not have a command, or not with this parameter (RFC 959 section 4.2); any other refusal is one of the moment.
const NOT_IMPLEMENTED: [u16; 4] = [202, 500, 502, 504];
/// What is wanted of listings. Without the others, such as names of owners, a line is half as long, and the server need not look for them.
const FACTS: [&str; 6] = [
    "Type",
    "Size",
    "Modify",
    "UNIX.mode",
    "UNIX.slink",
    "Unique",
];

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
            // What follows was said already.
            Login::User if self.ahead && reply.is_intermediate() => Ok(()),
            Login::Pass if self.ahead && reply.is_success() => Ok(()),
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
                if !self.ahead {
                    self.set();
                }
                Ok(())
            }
            Login::Needed(name) if !reply.is_success() => Err(Self::refused(name, reply)),
            Login::Authentication if !reply.is_success() || reply.code == 202 => {
                if !self.opens_data || !NOT_IMPLEMENTED.contains(&reply.code) {
                    return Err(Self::refused("DCAU", reply));
                }
                self.settings.data = None;
                // It may have another default, and no way to A.
                self.step(Login::Optional, Command::Dcau(Dcau::None));
                Ok(())
            }
            Login::Mode if !reply.is_success() => {
                self.settings.mode = Mode::Stream;
                Ok(())
            }
            Login::Needed(_) | Login::Authentication | Login::Optional | Login::Mode => Ok(()),
            Login::Last => {
                self.ready = true;
                if !self.features.pipelines() {
                    self.control.keep_step();
                }
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
        if self.settings.login == settings::Login::Done {
            return self.ask_for_features();
        }
        let (user, password) = self.user_and_password();
        self.step(Login::User, Command::User(user));
        // Servers of the Globus toolkit read one command after the other, ask everybody for a password, and have all that is set here:
        // said in one flight it costs one round trip, not four.
        if self.features.is_globus() {
            self.ahead = true;
            self.step(Login::Pass, Command::Pass(password));
            self.ask_for_features();
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
        let has = |name| self.ahead || self.features.has(name);
        let extended = self.settings.mode == Mode::Extended && has("PARALLEL");
        let authenticates = has("DCAU");
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
        if self.ahead {
            let facts = FACTS.map(str::to_owned).to_vec();
            self.step(Login::Optional, Command::Opts(Options::Facts(facts)));
        }
        if !self.control.is_protected() || (self.opens_data && !authenticates) {
            self.settings.data = None;
        }
        match self.settings.data.clone() {
            Some((dcau, protection)) => {
                self.step(Login::Authentication, Command::Dcau(dcau));
                // Without a word the protection is none (RFC 2228 section 3).
                if protection != Protection::Clear {
                    self.step(Login::Needed("PBSZ"), Command::Pbsz(PROTECTION_BLOCK_BYTES));
                    self.step(Login::Needed("PROT"), Command::Prot(protection));
                }
            }
            // Without a name the default, DCAU A, makes SPAS and EPSV fail.
            None if authenticates => {
                self.step(Login::Optional, Command::Dcau(Dcau::None));
            }
            None => {}
        }
        self.step(Login::Last, Command::Noop);
    }
}
