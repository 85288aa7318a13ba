//! What a server promises its driver, and never does.

use std::net::SocketAddr;

use venturi_gridftp::server::{DriverRequest, ServerOutput};
use venturi_gridftp::{FtpCommand, FtpLine, Path, ReplyEvent};

use super::{FuzzSession, Open};

impl FuzzSession {
    pub(super) fn check_output(&mut self, output: ServerOutput) {
        assert!(
            !self.closed,
            "nothing more of a session that is closed: {output:?}"
        );
        match output {
            ServerOutput::Send(bytes) => self.check_replies(&bytes),
            ServerOutput::Request(request) => {
                self.check_request(&request);
                if request == DriverRequest::Finish {
                    self.open = Open::Nothing;
                }
                assert_eq!(
                    self.requested.replace(request),
                    None,
                    "one request at a time"
                );
            }
            ServerOutput::Connect {
                addresses,
                connections,
            } => {
                let all = usize::from(connections) * addresses.len();
                assert!(
                    0 < all && all <= usize::from(self.policy.connections),
                    "{all} connections"
                );
                assert!(
                    addresses.iter().all(|address| self.may_connect(*address)),
                    "{addresses:?}"
                );
                self.connects = all;
            }
            ServerOutput::DropData => {
                self.links.clear();
                self.connects = 0;
            }
            ServerOutput::CloseFile => self.open = Open::Nothing,
            ServerOutput::Close => self.closed = true,
            _ => {}
        }
    }

    fn may_connect(&self, address: SocketAddr) -> bool {
        address.port() >= 1024 && (self.policy.third_party || address.ip() == self.policy.peer)
    }

    fn check_request(&self, request: &DriverRequest) {
        use DriverRequest as R;
        let is_login = matches!(request, R::Login { .. });
        assert!(
            is_login || self.logged_in,
            "no user is logged in: {request:?}"
        );
        let (paths, changes): (Vec<&Path>, bool) = match request {
            R::Stat(path) | R::List { path, .. } | R::Checksum { path, .. } | R::Read(path) => {
                (vec![path], false)
            }
            R::MakeDirectory(path) | R::RemoveDirectory(path) | R::Delete(path) => {
                (vec![path], true)
            }
            R::Rename { from, to } => (vec![from, to], true),
            R::SetModified { path, .. } | R::SetMode { path, .. } | R::Truncate { path, .. } => {
                (vec![path], true)
            }
            R::Write { path, .. } => (vec![path], true),
            _ => (Vec::new(), false),
        };
        assert!(self.policy.writes || !changes, "read only: {request:?}");
        for path in paths {
            let text = path.as_bytes();
            let mut names = text.split(|&byte| byte == b'/');
            assert!(
                text.starts_with(b"/") && names.all(|name| name != b".."),
                "{path} leaves the root"
            );
        }
    }

    /// Every reply can be read, and there are no more final ones than commands, a greeting and a farewell.
    fn check_replies(&mut self, bytes: &[u8]) {
        assert!(bytes.is_empty() || bytes.ends_with(b"\r\n"));
        self.replies.push(bytes);
        while let Some(line) = self.replies.next() {
            let FtpLine::Complete(mut line) = line else {
                panic!("a reply's line is too long");
            };
            if line.starts_with(b"632")
                && let Some(security) = &mut self.security
            {
                let Ok(FtpCommand::Enc(token)) = FtpCommand::parse(&[b"ENC ", &line[4..]].concat())
                else {
                    panic!("no token");
                };
                line = security
                    .unwrap(&token)
                    .expect("in order")
                    .trim_ascii_end()
                    .to_vec();
            }
            match self.collector.line(&line, true).expect("short replies") {
                ReplyEvent::Reply(reply) if !reply.is_preliminary() => self.finals += 1,
                _ => {}
            }
        }
        assert!(
            self.finals <= self.commands + 2,
            "{} replies to {} commands",
            self.finals,
            self.commands
        );
    }
}
