//! A security layer without cryptography: two tokens, then every message is numbered and turned around, so that one out of
//! order is refused.

use venturi_gridftp::{FtpError, Handshake, Security};

/// One side of it.
pub(crate) struct ToySecurity {
    client: bool,
    steps: u8,
    sent: u8,
    got: u8,
}

impl ToySecurity {
    pub(crate) fn side(client: bool) -> Box<dyn Security> {
        Box::new(Self {
            client,
            steps: 0,
            sent: 0,
            got: 0,
        })
    }
}

impl Security for ToySecurity {
    fn mechanism(&self) -> &'static str {
        "TOY"
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, FtpError> {
        self.steps += 1;
        let (expected, output, done) = match (self.client, self.steps) {
            (true, 1) => (None, Some("hello"), false),
            (true, 2) => (Some("world"), Some("bye"), true),
            (false, 1) => (Some("hello"), Some("world"), false),
            (false, 2) => (Some("bye"), None, true),
            _ => return Err(FtpError::Security("one token too many".to_owned())),
        };
        if token != expected.map(str::as_bytes) {
            return Err(FtpError::Security("a wrong token".to_owned()));
        }
        let token = output.map(|text| text.as_bytes().to_vec());
        Ok(Handshake { token, done })
    }

    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, FtpError> {
        self.sent = self.sent.wrapping_add(1);
        Ok(std::iter::once(self.sent)
            .chain(plain.iter().map(|byte| !byte))
            .collect())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, FtpError> {
        self.got = self.got.wrapping_add(1);
        match token.split_first() {
            Some((&number, rest)) if number == self.got => {
                Ok(rest.iter().map(|byte| !byte).collect())
            }
            _ => Err(FtpError::Security("out of order".to_owned())),
        }
    }
}
