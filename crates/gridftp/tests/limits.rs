//! What a server refuses, whatever a client sends, and what a protected session believes.

mod memory;

use std::time::Duration;

use memory::{Fault, World, policy};
use proptest::prelude::*;
use venturi_gridftp::client::{Client, Job, Login, Output, Put, Settings};
use venturi_gridftp::server::{self, Answer, Request, Server};
use venturi_gridftp::{ByteRanges, Error, Handshake, Mode, Path, Security};

const SECOND: Duration = Duration::from_secs(1);

/// A server that somebody is logged in at, and what it says.
struct Talk {
    server: Server,
    asked: Vec<Request>,
    said: Vec<u8>,
    closed: bool,
}

impl Talk {
    fn new(policy: server::Policy) -> Self {
        let server = Server::new(policy, None, Duration::ZERO);
        let mut talk = Self {
            server,
            asked: Vec::new(),
            said: Vec::new(),
            closed: false,
        };
        talk.say("USER anonymous\r\nPASS x\r\n");
        talk.said.clear();
        talk
    }

    fn say(&mut self, text: &str) -> String {
        self.server.handle_input(Duration::ZERO, text.as_bytes());
        self.outputs();
        String::from_utf8_lossy(&std::mem::take(&mut self.said)).into_owned()
    }

    fn outputs(&mut self) {
        while let Some(output) = self.server.poll_output() {
            match output {
                server::Output::Send(bytes) => self.said.extend(bytes),
                server::Output::Ask(request) => {
                    self.server.answer(Duration::ZERO, Answer::Done);
                    self.asked.push(request);
                }
                server::Output::Close => self.closed = true,
                _ => {}
            }
        }
    }
}

#[test]
fn data_goes_to_no_third_host_and_to_no_port_of_the_system() {
    let mut talk = Talk::new(policy());
    for (command, code) in [
        ("PORT 192,0,2,1,200,1", "200"),
        ("PORT 192,0,2,9,200,1", "504"),
        ("PORT 192,0,2,1,0,25", "504"),
        ("EPRT |1|192.0.2.9|51201|", "504"),
        ("EPRT |2|::ffff:192.0.2.1|51201|", "200"),
        ("SPOR 192,0,2,1,200,1 192,0,2,9,200,1", "504"),
    ] {
        let reply = talk.say(&format!("{command}\r\n"));
        assert!(reply.starts_with(code), "{command}: {reply}");
    }
    let mut open = Talk::new(server::Policy {
        third_party: true,
        ..policy()
    });
    assert!(open.say("PORT 192,0,2,9,200,1\r\n").starts_with("200"));
    // Nor does anybody else's connection become the peer's.
    talk.say("PASV\r\n");
    assert!(
        !talk
            .server
            .data_opened(SECOND, 1, "192.0.2.9".parse().expect("an address"))
    );
}

#[test]
fn no_path_that_is_asked_of_the_driver_leaves_the_root() {
    let mut talk = Talk::new(policy());
    talk.say("DELE ../../etc/passwd\r\nMKD /a/../../b\r\nCKSM LENGTH 0 -1 x/..//../y\r\n");
    let paths: Vec<_> = talk
        .asked
        .iter()
        .filter_map(|request| match request {
            Request::Delete(path)
            | Request::MakeDirectory(path)
            | Request::Checksum { path, .. } => Some(path.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(paths, ["/etc/passwd", "/b", "/y"]);
}

#[test]
fn a_server_that_is_read_only_asks_for_no_change() {
    let mut talk = Talk::new(server::Policy {
        writes: false,
        ..policy()
    });
    talk.asked.clear();
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
        let reply = talk.say(&format!("PASV\r\n{command}\r\n"));
        assert!(reply.contains("550"), "{command}: {reply}");
    }
    assert!(
        talk.asked.iter().all(|request| *request == Request::Listen),
        "{:?}",
        talk.asked
    );
}

#[test]
fn time_without_a_command_and_a_login_that_drips_in_end_a_session() {
    let mut talk = Talk::new(policy());
    assert_eq!(talk.server.poll_timeout(), Some(policy().idle_patience));
    talk.server.handle_timeout(policy().idle_patience);
    talk.outputs();
    assert!(talk.closed && String::from_utf8_lossy(&talk.said).starts_with("421"));
    let mut server = Server::new(policy(), None, Duration::ZERO);
    for second in 1..60 {
        server.handle_input(SECOND * second, b"N");
        server.handle_timeout(SECOND * second);
    }
    server.handle_timeout(policy().login_patience);
    let closed =
        std::iter::from_fn(|| server.poll_output()).any(|output| output == server::Output::Close);
    assert!(closed);
    assert_eq!(server.room_bytes(), 0);
}

#[test]
fn a_line_without_end_is_refused_and_commands_that_wait_stay_in_the_socket() {
    let mut talk = Talk::new(server::Policy {
        queued_bytes: 100_000,
        ..policy()
    });
    let reply = talk.say(&format!("{}\r\nNOOP\r\n", "x".repeat(70_000)));
    assert!(reply.starts_with("500") && reply.contains("200"), "{reply}");
    // The driver has not answered: nothing is carried out ahead of it, and no more is taken than may wait.
    let mut server = Server::new(policy(), None, Duration::ZERO);
    server.handle_input(Duration::ZERO, b"USER a\r\nPASS b\r\n");
    let commands = "NOOP\r\n".repeat(10_000);
    let mut taken = 0;
    while server.room_bytes() > 0 {
        let count = server.room_bytes().min(100);
        server.handle_input(Duration::ZERO, &commands.as_bytes()[taken..taken + count]);
        taken += count;
    }
    assert_eq!(taken, policy().queued_bytes);
}

#[test]
fn a_refused_upload_of_a_client_that_did_not_wait_takes_the_next_ones_with_it() {
    // Otherwise the next one would be given the bytes of the refused one.
    let mut talk = Talk::new(policy());
    let refused = "MODE E\r\nPASV\r\nSTOR a\r\nSTOR b\r\n";
    talk.server.handle_input(Duration::ZERO, refused.as_bytes());
    let mut said = Vec::new();
    while let Some(output) = talk.server.poll_output() {
        match output {
            server::Output::Ask(Request::Write { .. }) => {
                talk.server
                    .answer(Duration::ZERO, Answer::Refused(server::Refusal::Denied));
            }
            server::Output::Ask(_) => talk.server.answer(
                Duration::ZERO,
                Answer::Listening("192.0.2.2:6000".parse().expect("an address")),
            ),
            server::Output::Send(bytes) => said.extend(bytes),
            _ => {}
        }
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("550 End.") && said.contains("425 "), "{said}");
}

/// Two tokens and a goodbye; then every message is numbered and turned around, so that one out of order is seen.
struct Toy {
    client: bool,
    steps: u8,
    sent: u8,
    got: u8,
}

impl Toy {
    fn side(client: bool) -> Option<Box<dyn Security>> {
        Some(Box::new(Self {
            client,
            steps: 0,
            sent: 0,
            got: 0,
        }))
    }
}

impl Security for Toy {
    fn mechanism(&self) -> &'static str {
        "TOY"
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Handshake, Error> {
        self.steps += 1;
        let (expected, said, done) = match (self.client, self.steps) {
            (true, 1) => (None, Some("hello"), false),
            (true, 2) => (Some("world"), Some("bye"), true),
            (false, 1) => (Some("hello"), Some("world"), false),
            (false, 2) => (Some("bye"), None, true),
            _ => return Err(Error::Security("one token too many".to_owned())),
        };
        if token != expected.map(str::as_bytes) {
            return Err(Error::Security("a wrong token".to_owned()));
        }
        Ok(Handshake {
            token: said.map(|text| text.as_bytes().to_vec()),
            done,
        })
    }

    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        self.sent = self.sent.wrapping_add(1);
        Ok(std::iter::once(self.sent)
            .chain(plain.iter().map(|byte| !byte))
            .collect())
    }

    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>, Error> {
        self.got = self.got.wrapping_add(1);
        match token.split_first() {
            Some((&number, rest)) if number == self.got => {
                Ok(rest.iter().map(|byte| !byte).collect())
            }
            _ => Err(Error::Security("out of order".to_owned())),
        }
    }
}

fn settings(mode: Mode) -> Settings {
    Settings {
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
        patience: Duration::from_secs(60),
    }
}

proptest! {
    #[test]
    fn a_protected_session_transfers_like_a_plain_one(seed: u64, sizes in prop::collection::vec(0_usize..2000, 1..6)) {
        let client = Client::new(settings(Mode::Extended), Toy::side(true), Duration::ZERO).unwrap();
        let server = Server::new(policy(), Toy::side(false), Duration::ZERO);
        let mut world = World::of(client, server, seed, Fault::None);
        let jobs = (0_u64..).zip(&sizes).map(|(transfer, &size)| {
            world.sources.insert(transfer, vec![transfer as u8; size]);
            Job::Put(Put {
                transfer,
                path: Path::new(format!("/{transfer}")).unwrap(),
                temporary: Some(Path::new(format!("/{transfer}.part")).unwrap()),
                size_bytes: size as u64,
                checksum: None,
                modify_s: None,
                present: ByteRanges::default(),
                part: None,
                goes_on: false,
            })
        }).collect();
        world.carry_out(jobs);
        prop_assert_eq!(world.files.len(), sizes.len());
        for (number, size) in sizes.iter().enumerate() {
            prop_assert_eq!(&world.files[format!("/{number}").as_bytes()], &vec![number as u8; *size]);
        }
    }

    #[test]
    fn no_bytes_make_a_server_panic_or_hold_more_than_it_may(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40)) {
        let mut talk = Talk::new(policy());
        for bytes in pieces {
            let taken = bytes.len().min(talk.server.room_bytes());
            talk.server.handle_input(Duration::ZERO, &bytes[..taken]);
            talk.outputs();
            prop_assert!(talk.closed || talk.server.room_bytes() > 0);
        }
    }

    #[test]
    fn no_bytes_make_a_client_panic(pieces in prop::collection::vec(prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "[1-6][0-9][0-9][ -][ -~]{0,30}\r\n".prop_map(String::into_bytes),
    ], 0..40)) {
        let mut client = Client::new(settings(Mode::Extended), None, Duration::ZERO).unwrap();
        for bytes in pieces {
            let _ = client.handle_input(Duration::ZERO, &bytes);
            while client.poll_output().is_some() {}
        }
    }
}

#[test]
fn a_plain_reply_in_a_protected_session_is_not_believed() {
    let mut client =
        Client::new(settings(Mode::Stream), Toy::side(true), Duration::ZERO).expect("settings");
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
fn a_server_that_says_nothing_ends_the_session_and_tells_of_its_transfers() {
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
        goes_on: false,
    };
    client.transfer(SECOND, Job::Put(put));
    assert_eq!(client.poll_timeout(), Some(SECOND * 61));
    client.handle_timeout(SECOND * 60).expect("not yet");
    client
        .handle_timeout(SECOND * 61)
        .expect_err("nothing came");
    let told = std::iter::from_fn(|| client.poll_output())
        .any(|output| matches!(output, Output::Failed { transfer: 7, .. }));
    assert!(told && client.poll_timeout().is_none());
}
