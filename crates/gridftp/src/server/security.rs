//! RFC 2228 on the server's side: the handshake, protected commands and protected replies.

use std::time::Duration;

use super::{Login, Server};
use crate::{
    Command, DataSecurity, DataWish, Dcau, End, Error, Peer, Protection, Reply, Security, base64,
};

impl Server {
    /// Who the client is, once the session is secured.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.security.as_deref().and_then(Security::peer)
    }

    /// What secures a data connection of which this is the `end`, to be put between its socket and the session;
    /// [`gsi`](crate::gsi) says how. Nothing: its bytes go as they are.
    ///
    /// # Errors
    /// If the credential has ended.
    pub fn data_layer(
        &self,
        now: Duration,
        end: End,
    ) -> Result<Option<Box<dyn DataSecurity>>, Error> {
        let Some(security) = &self.security else {
            return Ok(None);
        };
        security.data_layer(DataWish {
            end,
            who: &self.chosen.dcau,
            protection: self.chosen.protection,
            now_s: self.unix_s(now),
        })
    }

    pub(super) fn unix_s(&self, now: Duration) -> u64 {
        (self.policy.epoch + now).as_secs()
    }

    /// Whether data connections are to be secured, and cannot be.
    pub(super) fn lacks_data_credential(&self) -> bool {
        let can = self.security.as_deref().is_some_and(Security::secures_data);
        self.chosen.dcau != Dcau::None && !can
    }

    /// DCAU, PROT and DCSC. Data connections that are open have been secured otherwise: they go.
    pub(super) fn secure_data(&mut self, now: Duration, command: Command) {
        if self.protected != Some(true) {
            return match command {
                Command::Dcau(Dcau::None) => self.ok(200, "DCAU N."),
                Command::Prot(Protection::Clear) => self.ok(200, "Protection level set to C."),
                Command::Prot(_) => self.ok(536, "Protection level is not supported."),
                _ => self.ok(504, "Data channels are not authenticated."),
            };
        }
        match command {
            Command::Dcau(who) => {
                let name = match who {
                    Dcau::None => "N",
                    Dcau::User => "A",
                    Dcau::Subject(_) => "S",
                };
                if who == Dcau::None {
                    self.chosen.protection = Protection::Clear;
                }
                self.chosen.dcau = who;
                self.drop_data();
                self.ok(200, &format!("DCAU {name}."));
            }
            Command::Prot(Protection::Confidential) => {
                self.ok(536, "Protection level is not supported.");
            }
            Command::Prot(protection)
                if self.chosen.dcau == Dcau::None && protection != Protection::Clear =>
            {
                self.ok(503, "Protection needs authentication; send DCAU A first.");
            }
            Command::Prot(protection) => {
                let name = match protection {
                    Protection::Safe => "S",
                    Protection::Private => "P",
                    _ => "C",
                };
                self.chosen.protection = protection;
                self.drop_data();
                self.ok(200, &format!("Protection level set to {name}."));
            }
            Command::Dcsc(credential) => {
                let now_s = self.unix_s(now);
                let set = self.security.as_mut().map_or(Ok(()), |security| {
                    security.set_data_credential(credential.as_ref(), now_s)
                });
                self.drop_data();
                match set {
                    Ok(()) => self.ok(250, "DCSC command successful."),
                    Err(error) => self.ok(501, &error.to_string()),
                }
            }
            _ => {}
        }
    }

    /// Sends a reply.
    pub(super) fn reply(&mut self, reply: &Reply) {
        self.send_lines(reply.write(), true);
    }

    /// Sends lines of a reply, each protected where the session is. The last line of a whole one is marked.
    pub(super) fn send_lines(&mut self, plain: Vec<u8>, whole: bool) {
        let bytes = match (&mut self.security, self.protected) {
            (Some(security), Some(true)) => {
                let lines = plain.split_inclusive(|&byte| byte == b'\n');
                let last = lines.clone().count().saturating_sub(1);
                let mut bytes = Vec::new();
                for (index, line) in lines.enumerate() {
                    let Ok(token) = security.wrap(line) else {
                        return self.close();
                    };
                    let mark = if whole && index == last { ' ' } else { '-' };
                    bytes.extend(format!("632{mark}{}\r\n", base64::encode(&token)).bytes());
                }
                bytes
            }
            _ => plain,
        };
        self.outputs.push_back(super::Output::Send(bytes));
    }

    /// The command in a line. Nothing: the line was of the handshake, and has been answered.
    pub(super) fn unprotected(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some(over) = self.protected else {
            return match Command::parse(line) {
                Ok(Command::Auth(mechanism)) => {
                    self.begin_handshake(&mechanism);
                    Ok(None)
                }
                _ => Ok(Some(line.to_vec())),
            };
        };
        let security = self
            .security
            .as_mut()
            .ok_or_else(|| Error::Security("none".to_owned()))?;
        match Command::parse(line)? {
            Command::Adat(token) if !over => {
                let said = security.step(Some(&token))?;
                let token = said
                    .token
                    .map(|token| format!("ADAT={}", base64::encode(&token)));
                let text = token.unwrap_or_else(|| "Authentication successful.".to_owned());
                self.reply(&Reply::new(if said.done { 235 } else { 335 }, text));
                self.protected = Some(said.done);
                if said.done && self.peer().is_some() {
                    // The default of GFD.20 once both sides know each other.
                    self.chosen.dcau = Dcau::User;
                }
                Ok(None)
            }
            Command::Enc(token) | Command::Mic(token) if over => {
                let mut plain = security.unwrap(&token)?;
                while matches!(plain.last(), Some(b'\r' | b'\n' | 0)) {
                    plain.pop();
                }
                Ok(Some(plain))
            }
            // What is not protected may be anybody's.
            _ => Err(Error::Security("expected a protected command".to_owned())),
        }
    }

    fn begin_handshake(&mut self, mechanism: &[u8]) {
        let known = self.security.as_ref().is_some_and(|security| {
            security
                .mechanism()
                .as_bytes()
                .eq_ignore_ascii_case(mechanism)
        });
        if known && self.login == Login::None {
            self.protected = Some(false);
            self.reply(&Reply::new(
                334,
                "Using authentication type; ADAT must follow.",
            ));
        } else {
            self.reply(&Reply::new(504, "Security mechanism not supported."));
        }
    }
}
