//! Limits of a server for any input of a client, and the trust of a protected session.

mod memory;

use std::time::Duration;

use memory::{InMemorySession, InjectedFault, policy};
use proptest::prelude::*;
use venturi_gridftp::client::{Client, ClientOutput, ClientSettings, Login, Put, TransferJob};
use venturi_gridftp::server::{self, DriverRequest, DriverResponse, Server};
use venturi_gridftp::{ByteRanges, FtpError, Handshake, Mode, Path, Security};

const SECOND: Duration = Duration::from_secs(1);

/// A server with a logged-in user, and its replies.
struct TestSession {
    server: Server,
    requested: Vec<DriverRequest>,
    reply_text: Vec<u8>,
    closed: bool,
}

impl TestSession {
    fn new(policy: server::ServerPolicy) -> Self {
        let server = Server::new(policy, None, Duration::ZERO);
        let mut session = Self {
            server,
            requested: Vec::new(),
            reply_text: Vec::new(),
            closed: false,
        };
        session.send("USER anonymous\r\nPASS x\r\n");
        session.reply_text.clear();
        session
    }

    fn send(&mut self, text: &str) -> String {
        self.server.handle_input(Duration::ZERO, text.as_bytes());
        self.outputs();
        String::from_utf8_lossy(&std::mem::take(&mut self.reply_text)).into_owned()
    }

    fn outputs(&mut self) {
        while let Some(output) = self.server.poll_output() {
            match output {
                server::ServerOutput::Send(bytes) => self.reply_text.extend(bytes),
                server::ServerOutput::Request(request) => {
                    self.server.respond(Duration::ZERO, DriverResponse::Done);
                    self.requested.push(request);
                }
                server::ServerOutput::Close => self.closed = true,
                _ => {}
            }
        }
    }
}

#[test]
fn data_is_not_sent_to_third_hosts_or_system_ports() {
    let mut session = TestSession::new(policy());
    for (command, code) in [
        ("PORT 192,0,2,1,200,1", "200"),
        ("PORT 192,0,2,9,200,1", "504"),
        ("PORT 192,0,2,1,0,25", "504"),
        ("EPRT |1|192.0.2.9|51201|", "504"),
        ("EPRT |2|::ffff:192.0.2.1|51201|", "200"),
        ("SPOR 192,0,2,1,200,1 192,0,2,9,200,1", "504"),
    ] {
        let reply = session.send(&format!("{command}\r\n"));
        assert!(reply.starts_with(code), "{command}: {reply}");
    }
    let mut open = TestSession::new(server::ServerPolicy {
        third_party: true,
        ..policy()
    });
    assert!(open.send("PORT 192,0,2,9,200,1\r\n").starts_with("200"));
    // A connection from another host does not count as the peer's.
    session.send("PASV\r\n");
    assert!(
        !session
            .server
            .data_opened(SECOND, 1, "192.0.2.9".parse().expect("an address"))
    );
}

#[test]
fn paths_passed_to_the_driver_stay_below_the_root() {
    let mut session = TestSession::new(policy());
    session.send("DELE ../../etc/passwd\r\nMKD /a/../../b\r\nCKSM LENGTH 0 -1 x/..//../y\r\n");
    let paths: Vec<_> = session
        .requested
        .iter()
        .filter_map(|request| match request {
            DriverRequest::Delete(path)
            | DriverRequest::MakeDirectory(path)
            | DriverRequest::Checksum { path, .. } => Some(path.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(paths, ["/etc/passwd", "/b", "/y"]);
}

#[test]
fn a_read_only_server_requests_no_change() {
    let mut session = TestSession::new(server::ServerPolicy {
        writes: false,
        ..policy()
    });
    session.requested.clear();
    for command in [
        "STOR a",
        "DELE a",
        "MKD a",
        "RMD a",
        "RNFR a",
        "MFMT 20200101000000 a",
        "SITE CHMOD 644 a",
        "SITE TRNC 0 a",
        "ESTO A 0 a",
        "SITE UTIME 20200101000000 a",
    ] {
        let reply = session.send(&format!("PASV\r\n{command}\r\n"));
        assert!(reply.contains("550"), "{command}: {reply}");
    }
    assert!(
        session
            .requested
            .iter()
            .all(|request| *request == DriverRequest::Listen),
        "{:?}",
        session.requested
    );
}

#[test]
fn idle_time_and_a_slow_login_end_a_session() {
    let mut session = TestSession::new(policy());
    assert_eq!(session.server.poll_timeout(), Some(policy().idle_timeout));
    session.server.handle_timeout(policy().idle_timeout);
    session.outputs();
    assert!(session.closed && String::from_utf8_lossy(&session.reply_text).starts_with("421"));
    let mut server = Server::new(policy(), None, Duration::ZERO);
    for second in 1..60 {
        server.handle_input(SECOND * second, b"N");
        server.handle_timeout(SECOND * second);
    }
    server.handle_timeout(policy().login_timeout);
    let closed = std::iter::from_fn(|| server.poll_output())
        .any(|output| output == server::ServerOutput::Close);
    assert!(closed);
    assert_eq!(server.input_capacity(), 0);
}

#[test]
fn overlong_lines_are_rejected_and_queued_commands_are_limited() {
    let mut session = TestSession::new(server::ServerPolicy {
        queued_bytes: 100_000,
        ..policy()
    });
    let reply = session.send(&format!("{}\r\nNOOP\r\n", "x".repeat(70_000)));
    assert!(reply.starts_with("500") && reply.contains("200"), "{reply}");
    // Without a response of the driver, the server executes no later command and accepts only
    // queued bytes.
    let mut server = Server::new(policy(), None, Duration::ZERO);
    server.handle_input(Duration::ZERO, b"USER a\r\nPASS b\r\n");
    let commands = "NOOP\r\n".repeat(10_000);
    let mut taken = 0;
    while server.input_capacity() > 0 {
        let count = server.input_capacity().min(100);
        server.handle_input(Duration::ZERO, &commands.as_bytes()[taken..taken + count]);
        taken += count;
    }
    assert_eq!(taken, policy().queued_bytes);
}

#[test]
fn a_rejected_pipelined_upload_also_rejects_the_following_uploads() {
    // Otherwise the next file would get the bytes of the rejected one.
    let mut session = TestSession::new(policy());
    let rejected = "MODE E\r\nPASV\r\nSTOR a\r\nSTOR b\r\n";
    session
        .server
        .handle_input(Duration::ZERO, rejected.as_bytes());
    let mut reply_text = Vec::new();
    while let Some(output) = session.server.poll_output() {
        match output {
            server::ServerOutput::Request(DriverRequest::Write { .. }) => {
                session.server.respond(
                    Duration::ZERO,
                    DriverResponse::Failed(server::GlobusError::Denied),
                );
            }
            server::ServerOutput::Request(_) => session.server.respond(
                Duration::ZERO,
                DriverResponse::Listening("192.0.2.2:6000".parse().expect("an address")),
            ),
            server::ServerOutput::Send(bytes) => reply_text.extend(bytes),
            _ => {}
        }
    }
    let reply_text = String::from_utf8_lossy(&reply_text);
    assert!(
        reply_text.contains("550 End.") && reply_text.contains("425 "),
        "{reply_text}"
    );
}

/// Two tokens and a final message; then every message is numbered and reversed, so that a wrong
/// order is detected.
struct NumberingSecurity {
    client: bool,
    steps: u8,
    sent: u8,
    got: u8,
}

impl NumberingSecurity {
    fn side(client: bool) -> Option<Box<dyn Security>> {
        Some(Box::new(Self {
            client,
            steps: 0,
            sent: 0,
            got: 0,
        }))
    }
}

impl Security for NumberingSecurity {
    fn mechanism(&self) -> &'static str {
        "TOY"
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, FtpError> {
        self.steps += 1;
        let (expected, reply_text, done) = match (self.client, self.steps) {
            (true, 1) => (None, Some("hello"), false),
            (true, 2) => (Some("world"), Some("bye"), true),
            (false, 1) => (Some("hello"), Some("world"), false),
            (false, 2) => (Some("bye"), None, true),
            _ => return Err(FtpError::Security("one token too many".to_owned())),
        };
        if token != expected.map(str::as_bytes) {
            return Err(FtpError::Security("a wrong token".to_owned()));
        }
        Ok(Handshake {
            token: reply_text.map(|text| text.as_bytes().to_vec()),
            done,
        })
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

fn settings(mode: Mode) -> ClientSettings {
    ClientSettings {
        login: Login::Mapped,
        server: "192.0.2.2".parse().expect("an address"),
        mode,
        connections: 2,
        depth: 8,
        block_bytes: 500,
        buffer_bytes: None,
        data: None,
        upload: None,
        attempts: 3,
        striped: false,
        stall_timeout: Duration::from_secs(60),
    }
}

proptest! {
    #[test]
    fn a_protected_session_transfers_like_a_plain_one(seed: u64, sizes in prop::collection::vec(0_usize..2000, 1..6)) {
        let client = Client::new(settings(Mode::Extended), NumberingSecurity::side(true), Duration::ZERO).unwrap();
        let server = Server::new(policy(), NumberingSecurity::side(false), Duration::ZERO);
        let mut world = InMemorySession::of(client, server, seed, InjectedFault::None);
        let jobs = (0_u64..).zip(&sizes).map(|(transfer, &size)| {
            world.sources.insert(transfer, vec![transfer as u8; size]);
            TransferJob::Put(Put {
                transfer,
                path: Path::new(format!("/{transfer}")).unwrap(),
                temporary: Some(Path::new(format!("/{transfer}.part")).unwrap()),
                size_bytes: size as u64,
                checksum: None,
                modify_s: None,
                present: ByteRanges::default(),
                part: None,
                resumable: false,
            })
        }).collect();
        world.run(jobs);
        prop_assert_eq!(world.files.len(), sizes.len());
        for (number, size) in sizes.iter().enumerate() {
            prop_assert_eq!(&world.files[format!("/{number}").as_bytes()], &vec![number as u8; *size]);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_or_block_a_server(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40)) {
        let mut session = TestSession::new(policy());
        for bytes in chunks {
            let taken = bytes.len().min(session.server.input_capacity());
            session.server.handle_input(Duration::ZERO, &bytes[..taken]);
            session.outputs();
            prop_assert!(session.closed || session.server.input_capacity() > 0);
        }
    }

    #[test]
    fn no_bytes_make_a_client_panic(chunks in prop::collection::vec(prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "[1-6][0-9][0-9][ -][ -~]{0,30}\r\n".prop_map(String::into_bytes),
    ], 0..40)) {
        let mut client = Client::new(settings(Mode::Extended), None, Duration::ZERO).unwrap();
        for bytes in chunks {
            let _ = client.handle_input(Duration::ZERO, &bytes);
            while client.poll_output().is_some() {}
        }
    }
}

#[test]
fn a_plain_reply_in_a_protected_session_is_not_trusted() {
    let mut client = Client::new(
        settings(Mode::Stream),
        NumberingSecurity::side(true),
        Duration::ZERO,
    )
    .expect("settings");
    for reply in [
        "220 ready\r\n",
        "334 go on\r\n",
        "335 ADAT=d29ybGQ=\r\n",
        "235 ok\r\n",
    ] {
        client
            .handle_input(Duration::ZERO, reply.as_bytes())
            .expect("a handshake");
        while client.poll_output().is_some() {}
    }
    client
        .handle_input(Duration::ZERO, b"230 logged in\r\n")
        .expect_err("anybody could say that");
}

#[test]
fn a_silent_server_ends_the_session_and_reports_its_transfers() {
    let mut client = Client::new(settings(Mode::Stream), None, Duration::ZERO).expect("settings");
    let put = Put {
        transfer: 7,
        path: Path::new("/a").expect("a path"),
        temporary: None,
        size_bytes: 1,
        checksum: None,
        modify_s: None,
        present: ByteRanges::default(),
        part: None,
        resumable: false,
    };
    client.transfer(SECOND, TransferJob::Put(put));
    assert_eq!(client.poll_timeout(), Some(SECOND * 61));
    client.handle_timeout(SECOND * 60).expect("not yet");
    client
        .handle_timeout(SECOND * 61)
        .expect_err("nothing came");
    let reported = std::iter::from_fn(|| client.poll_output())
        .any(|output| matches!(output, ClientOutput::Failed { transfer: 7, .. }));
    assert!(reported && client.poll_timeout().is_none());
}
