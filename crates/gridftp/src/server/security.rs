//! RFC 2228 in the server: the handshake, protected commands and protected replies.

use std::time::Duration;

use super::{LoginState, Server};
use crate::{
    ConnectionRole, DataSecurity, DataSecurityRequest, Dcau, FtpCommand, FtpError, FtpReply, Peer,
    Protection, Security, base64,
};

impl Server {
    /// Returns the identity of the client, once the session is secured.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.security.as_deref().and_then(Security::peer)
    }

    /// Returns the security layer of a data connection, to be placed between its socket and the
    /// session; see [`gsi`](crate::gsi). `None`: the bytes are not protected.
    ///
    /// # Errors
    /// If the credential has expired.
    pub fn data_layer(
        &self,
        now: Duration,
        role: ConnectionRole,
    ) -> Result<Option<Box<dyn DataSecurity>>, FtpError> {
        let Some(security) = &self.security else {
            return Ok(None);
        };
        security.data_layer(DataSecurityRequest {
            role,
            dcau: &self.settings.dcau,
            protection: self.settings.protection,
            now_s: self.unix_s(now),
        })
    }

    pub(super) fn unix_s(&self, now: Duration) -> u64 {
        (self.policy.epoch + now).as_secs()
    }

    /// Returns `true` if data connections must be secured but there is no credential.
    pub(super) fn lacks_data_credential(&self) -> bool {
        let available = self.security.as_deref().is_some_and(Security::secures_data);
        self.settings.dcau != Dcau::None && !available
    }

    /// Handles DCAU, PROT and DCSC. Drops open data connections, since they have other security
    /// settings.
    pub(super) fn secure_data(&mut self, now: Duration, command: FtpCommand) {
        if self.protected != Some(true) {
            return match command {
                FtpCommand::Dcau(Dcau::None) => self.ok(200, "DCAU N."),
                FtpCommand::Prot(Protection::Clear) => self.ok(200, "Protection level set to C."),
                FtpCommand::Prot(_) => self.ok(536, "Protection level is not supported."),
                _ => self.ok(504, "Data connections are not authenticated."),
            };
        }
        match command {
            FtpCommand::Dcau(dcau) => {
                let name = match dcau {
                    Dcau::None => "N",
                    Dcau::User => "A",
                    Dcau::Subject(_) => "S",
                };
                if dcau == Dcau::None {
                    self.settings.protection = Protection::Clear;
                }
                self.settings.dcau = dcau;
                self.drop_data();
                self.ok(200, &format!("DCAU {name}."));
            }
            FtpCommand::Prot(Protection::Confidential) => {
                self.ok(536, "Protection level is not supported.");
            }
            FtpCommand::Prot(protection)
                if self.settings.dcau == Dcau::None && protection != Protection::Clear =>
            {
                self.ok(503, "Protection needs authentication; send DCAU A first.");
            }
            FtpCommand::Prot(protection) => {
                let name = match protection {
                    Protection::Safe => "S",
                    Protection::Private => "P",
                    _ => "C",
                };
                self.settings.protection = protection;
                self.drop_data();
                self.ok(200, &format!("Protection level set to {name}."));
            }
            FtpCommand::Dcsc(credential) => {
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
    pub(super) fn reply(&mut self, reply: &FtpReply) {
        self.send_lines(reply.write(), true);
    }

    /// Sends lines of a reply, protected if the session is. Marks the last line of a complete
    /// reply.
    pub(super) fn send_lines(&mut self, plain: Vec<u8>, complete_file: bool) {
        let bytes = match (&mut self.security, self.protected) {
            (Some(security), Some(true)) => {
                let lines = plain.split_inclusive(|&byte| byte == b'\n');
                let last = lines.clone().count().saturating_sub(1);
                let mut bytes = Vec::new();
                for (index, line) in lines.enumerate() {
                    let Ok(token) = security.wrap(line) else {
                        return self.close();
                    };
                    let mark = if complete_file && index == last {
                        ' '
                    } else {
                        '-'
                    };
                    bytes.extend(format!("632{mark}{}\r\n", base64::encode(&token)).bytes());
                }
                bytes
            }
            _ => plain,
        };
        self.outputs.push_back(super::ServerOutput::Send(bytes));
    }

    /// Returns the command in a line. `None`: the line belonged to the handshake and was handled.
    pub(super) fn unprotected(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, FtpError> {
        let Some(over) = self.protected else {
            return match FtpCommand::parse(line) {
                Ok(FtpCommand::Auth(mechanism)) => {
                    self.start_handshake(&mechanism);
                    Ok(None)
                }
                _ => Ok(Some(line.to_vec())),
            };
        };
        let security = self
            .security
            .as_mut()
            .ok_or_else(|| FtpError::Security("none".to_owned()))?;
        match FtpCommand::parse(line)? {
            FtpCommand::Adat(token) if !over => {
                let handshake = security.step(Some(&token))?;
                let token = handshake
                    .token
                    .map(|token| format!("ADAT={}", base64::encode(&token)));
                let text = token.unwrap_or_else(|| "Authentication successful.".to_owned());
                self.reply(&FtpReply::new(if handshake.done { 235 } else { 335 }, text));
                self.protected = Some(handshake.done);
                if handshake.done && self.peer().is_some() {
                    // Default of GFD.20 once both sides are authenticated.
                    self.settings.dcau = Dcau::User;
                }
                Ok(None)
            }
            FtpCommand::Enc(token) | FtpCommand::Mic(token) if over => {
                let mut plain = security.unwrap(&token)?;
                while matches!(plain.last(), Some(b'\r' | b'\n' | 0)) {
                    plain.pop();
                }
                Ok(Some(plain))
            }
            // Reject unprotected commands.
            _ => Err(FtpError::Security(
                "expected a protected command".to_owned(),
            )),
        }
    }

    fn start_handshake(&mut self, mechanism: &[u8]) {
        let known = self.security.as_ref().is_some_and(|security| {
            security
                .mechanism()
                .as_bytes()
                .eq_ignore_ascii_case(mechanism)
        });
        if known && self.login == LoginState::None {
            self.protected = Some(false);
            self.reply(&FtpReply::new(
                334,
                "Using authentication type; ADAT must follow.",
            ));
        } else {
            self.reply(&FtpReply::new(504, "Security mechanism not supported."));
        }
    }
}
