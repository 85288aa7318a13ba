//! RFC 2228 on the server's side: the handshake, protected commands and protected replies.

use super::{Login, Server};
use crate::{Command, Error, Reply, base64};

impl Server {
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
