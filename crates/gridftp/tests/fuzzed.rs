//! What fuzzers found: each of these failed before.

mod memory;

use std::time::Duration;

use memory::policy;
use venturi_gridftp::client::{Client, Get, Job, Login, Output, Purpose, Settings, Source};
use venturi_gridftp::gsi::Credential;
use venturi_gridftp::server::{Answer, Policy, Refusal, Request, Server};
use venturi_gridftp::{ByteRanges, Command, Mode, Path};

const NOW: Duration = Duration::ZERO;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that somebody is logged in at.
struct Talk {
    server: Server,
    asked: Option<Request>,
    said: String,
}

impl Talk {
    fn new(policy: Policy) -> Self {
        let server = Server::new(policy, None, NOW);
        let mut talk = Self {
            server,
            asked: None,
            said: String::new(),
        };
        talk.say("USER anonymous\r\nPASS x\r\n");
        talk.answer(Answer::Done);
        talk
    }

    /// What is said to these commands, as far as no answer of the driver is needed.
    fn say(&mut self, text: &str) -> String {
        self.server.handle_input(NOW, text.as_bytes());
        self.outputs()
    }

    fn answer(&mut self, answer: Answer) -> String {
        assert!(self.asked.take().is_some(), "something is asked");
        self.server.answer(NOW, answer);
        self.outputs()
    }

    fn outputs(&mut self) -> String {
        use venturi_gridftp::server::Output;
        while let Some(output) = self.server.poll_output() {
            match output {
                Output::Send(bytes) => self.said += &String::from_utf8_lossy(&bytes),
                Output::Ask(request) => self.asked = Some(request),
                Output::Connect { addresses, .. } => assert!(!addresses.is_empty(), "nowhere"),
                _ => {}
            }
        }
        std::mem::take(&mut self.said)
    }
}

#[test]
fn a_transfer_whose_cached_connections_end_while_its_file_is_opened_is_refused_at_once() {
    let mut talk = Talk::new(policy());
    talk.say("MODE E\r\nPORT 192,0,2,1,200,1\r\nRETR /a\r\n");
    talk.answer(Answer::Size(0));
    assert!(talk.server.data_opened(NOW, 1, policy().peer));
    while talk.server.poll_data(NOW, 1).is_some() {}
    talk.outputs();
    assert!(talk.answer(Answer::Done).contains("226 "));
    talk.say("RETR /a\r\n");
    talk.server.data_closed(NOW, 1, true);
    let said = talk.answer(Answer::Size(0));
    assert!(said.starts_with("425 "), "{said}");
}

#[test]
fn bytes_behind_the_last_position_that_can_be_counted_are_refused() {
    for begin in [
        "REST 18446744073709551615\r\nSTOR /a",
        "ESTO A 18446744073709551615 /a",
    ] {
        let mut talk = Talk::new(policy());
        talk.say("PASV\r\n");
        talk.answer(Answer::Listening(
            "192.0.2.2:6000".parse().expect("an address"),
        ));
        talk.say(&format!("{begin}\r\n"));
        talk.answer(Answer::Done);
        assert!(talk.server.data_opened(NOW, 1, policy().peer));
        let delivered = talk.server.handle_data(NOW, 1, b"some");
        assert_eq!(delivered.payload, None, "{begin}");
        let said = talk.outputs();
        assert!(said.contains("426 "), "{begin}: {said}");
    }
}

#[test]
fn a_client_that_names_more_stripes_than_it_may_have_connections_is_refused() {
    let mut talk = Talk::new(Policy {
        connections: 2,
        ..policy()
    });
    let stripes = |count| format!("SPOR{}\r\n", " 192,0,2,1,200,1".repeat(count));
    assert!(talk.say(&stripes(2)).starts_with("200 "));
    assert!(talk.say(&stripes(3)).starts_with("504 "));
}

#[test]
fn a_session_that_is_over_takes_no_connection() {
    let mut talk = Talk::new(policy());
    talk.say("PASV\r\n");
    talk.answer(Answer::Listening(
        "192.0.2.2:6000".parse().expect("an address"),
    ));
    talk.say("QUIT\r\n");
    assert!(!talk.server.data_opened(NOW, 1, policy().peer));
}

#[test]
fn an_answer_that_comes_after_its_listing_has_failed_is_not_taken_for_that_of_the_next_command() {
    let mut talk = Talk::new(policy());
    talk.say("MODE E\r\nPORT 192,0,2,1,200,1\r\nMLSD /\r\n");
    let some = |more| Answer::Entries {
        entries: Vec::new(),
        more,
    };
    talk.answer(some(true));
    assert!(talk.server.data_opened(NOW, 1, policy().peer));
    assert_eq!(talk.server.poll_data(NOW, 1), None);
    talk.outputs();
    assert_eq!(talk.asked, Some(Request::More));
    talk.server.data_closed(NOW, 1, false);
    let said = talk.say("SIZE /a\r\n");
    assert!(said.contains("426 "), "{said}");
    assert_eq!(talk.asked, Some(Request::More), "one request at a time");
    assert_eq!(talk.answer(some(false)), "");
    assert!(matches!(talk.asked, Some(Request::Stat(_))));
    let said = talk.answer(Answer::Refused(Refusal::NotFound));
    assert!(said.starts_with("550"), "{said}");
}

#[test]
fn a_restart_at_no_range_can_be_read_as_it_is_written() {
    let command = Command::parse(b"REST 0-0").expect("a command");
    assert_eq!(Command::parse(&command.text()), Ok(command));
}

/// A client in MODE S that is ready, and has asked for files number 0 and up of unknown size.
struct Downloads {
    client: Client,
    outputs: Vec<Output>,
}

impl Downloads {
    fn of(files: u64, present: ByteRanges) -> Self {
        let settings = Settings {
            login: Login::Anonymous,
            server: "192.0.2.2".parse().expect("an address"),
            mode: Mode::Stream,
            connections: 1,
            depth: 8,
            block_bytes: 100,
            buffer_bytes: None,
            data: None,
            upload: None,
            attempts: 1,
            striped: false,
            patience: PATIENCE,
        };
        let client = Client::new(settings, None, NOW).expect("settings");
        let outputs = Vec::new();
        let mut talk = Self { client, outputs };
        talk.say(&["220 Ready.", "331 Go on.", "230 In."]);
        talk.say(&["500 No.", "500 No.", "200 OK.", "200 OK."]);
        for transfer in 0..files {
            let get = Get {
                transfer,
                source: Source::File,
                path: Path::new("/a").expect("a path"),
                size_bytes: None,
                present: present.clone(),
                see: false,
            };
            talk.client.transfer(NOW, Job::Get(get));
        }
        talk.collect();
        talk
    }

    fn say(&mut self, replies: &[&str]) {
        for reply in replies {
            let line = format!("{reply}\r\n");
            self.client
                .handle_input(NOW, line.as_bytes())
                .expect("a session");
            self.collect();
        }
    }

    fn collect(&mut self) {
        self.outputs
            .extend(std::iter::from_fn(|| self.client.poll_output()));
    }
}

#[test]
fn what_is_there_of_a_file_whose_size_is_not_known_does_not_count() {
    let mut talk = Downloads::of(1, ByteRanges::of(5..67));
    talk.say(&["227 Passive (192,0,2,2,200,1)", "150 Begin."]);
    assert!(talk.client.data_opened(NOW, 1, Purpose::Transfer(0)));
    let delivered = talk.client.handle_data(NOW, 1, b"abc");
    assert_eq!(delivered.payload.map(|payload| payload.offset), Some(0));
    talk.client.data_closed(NOW, 1, true);
    talk.say(&["226 Done."]);
    let done = Output::Done {
        transfer: 0,
        time_kept: true,
    };
    assert!(talk.outputs.contains(&done));
    let mut prefix = Downloads::of(1, ByteRanges::of(0..67));
    prefix.collect();
    let asked = |output: &Output| matches!(output, Output::Send(bytes) if bytes.windows(4).any(|text| text == b"REST"));
    assert!(!prefix.outputs.iter().any(asked), "all of it is asked for");
}

#[test]
fn connections_that_bring_no_end_are_given_up_together_not_one_after_the_other() {
    let mut talk = Downloads::of(4, ByteRanges::default());
    for transfer in 0..4 {
        talk.say(&["227 Passive (192,0,2,2,200,1)", "150 Begin.", "226 Done."]);
        assert!(
            talk.client
                .data_opened(NOW, transfer, Purpose::Transfer(transfer))
        );
    }
    let due = talk.client.poll_timeout().expect("their ends are awaited");
    assert_eq!(due, PATIENCE);
    talk.client.handle_timeout(due).expect("the session lives");
    talk.collect();
    let failed = |output: &&Output| matches!(output, Output::Failed { .. });
    assert_eq!(talk.outputs.iter().filter(failed).count(), 4);
    assert_eq!(talk.client.poll_timeout(), None);
}

#[test]
fn what_is_wrong_with_a_credential_is_told_without_its_text() {
    // Of a key whose lines were joined the first line has all.
    for text in [
        "-----BEGIN PRIVATE KEY-----c2VzYW1l-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nc2VzYW1l\n",
        "-----BEGIN PRIVATE KEY-----\nc2VzYW1l!\n-----END PRIVATE KEY-----\n",
    ] {
        let error = Credential::from_pem(text.as_bytes(), None).expect_err(text);
        let told = error.to_string();
        // As it is, and as numbers of its bytes.
        let shown = ["c2VzYW1l", "99, 50, 86"]
            .iter()
            .any(|key| told.contains(key));
        assert!(!shown && told.len() < 300, "{told}");
    }
}
