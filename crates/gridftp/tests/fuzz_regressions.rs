//! Regression tests for fuzzing results.

mod memory;

use std::time::Duration;

use memory::policy;
use venturi_gridftp::client::{
    Client, ClientOutput, ClientSettings, ConnectionPurpose, Get, GetSource, Login, TransferJob,
};
use venturi_gridftp::gsi::Credential;
use venturi_gridftp::server::{DriverRequest, DriverResponse, GlobusError, Server, ServerPolicy};
use venturi_gridftp::{ByteRanges, FtpCommand, Mode, Path};

const NOW: Duration = Duration::ZERO;
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with a logged-in user.
struct TestSession {
    server: Server,
    requested: Option<DriverRequest>,
    reply_text: String,
}

impl TestSession {
    fn new(policy: ServerPolicy) -> Self {
        let server = Server::new(policy, None, NOW);
        let mut session = Self {
            server,
            requested: None,
            reply_text: String::new(),
        };
        session.send("USER anonymous\r\nPASS x\r\n");
        session.respond(DriverResponse::Done);
        session
    }

    /// Returns the replies to these commands, up to the first driver request.
    fn send(&mut self, text: &str) -> String {
        self.server.handle_input(NOW, text.as_bytes());
        self.outputs()
    }

    fn respond(&mut self, response: DriverResponse) -> String {
        assert!(self.requested.take().is_some(), "something is asked");
        self.server.respond(NOW, response);
        self.outputs()
    }

    fn outputs(&mut self) -> String {
        use venturi_gridftp::server::ServerOutput;
        while let Some(output) = self.server.poll_output() {
            match output {
                ServerOutput::Send(bytes) => self.reply_text += &String::from_utf8_lossy(&bytes),
                ServerOutput::Request(request) => self.requested = Some(request),
                ServerOutput::Connect { addresses, .. } => {
                    assert!(!addresses.is_empty(), "nowhere")
                }
                _ => {}
            }
        }
        std::mem::take(&mut self.reply_text)
    }
}

#[test]
fn a_transfer_is_rejected_if_its_cached_connections_close_before_its_file_opens() {
    let mut session = TestSession::new(policy());
    session.send("MODE E\r\nPORT 192,0,2,1,200,1\r\nRETR /a\r\n");
    session.respond(DriverResponse::Size(0));
    assert!(session.server.data_opened(NOW, 1, policy().peer));
    while session.server.poll_data(NOW, 1).is_some() {}
    session.outputs();
    assert!(session.respond(DriverResponse::Done).contains("226 "));
    session.send("RETR /a\r\n");
    session.server.data_closed(NOW, 1, true);
    let reply_text = session.respond(DriverResponse::Size(0));
    assert!(reply_text.starts_with("425 "), "{reply_text}");
}

#[test]
fn bytes_beyond_the_largest_offset_are_rejected() {
    for start in [
        "REST 18446744073709551615\r\nSTOR /a",
        "ESTO A 18446744073709551615 /a",
    ] {
        let mut session = TestSession::new(policy());
        session.send("PASV\r\n");
        session.respond(DriverResponse::Listening(
            "192.0.2.2:6000".parse().expect("an address"),
        ));
        session.send(&format!("{start}\r\n"));
        session.respond(DriverResponse::Done);
        assert!(session.server.data_opened(NOW, 1, policy().peer));
        let delivered = session.server.handle_data(NOW, 1, b"some");
        assert_eq!(delivered.payload, None, "{start}");
        let reply_text = session.outputs();
        assert!(reply_text.contains("426 "), "{start}: {reply_text}");
    }
}

#[test]
fn a_client_with_more_stripes_than_allowed_connections_is_rejected() {
    let mut session = TestSession::new(ServerPolicy {
        connections: 2,
        ..policy()
    });
    let stripes = |count| format!("SPOR{}\r\n", " 192,0,2,1,200,1".repeat(count));
    assert!(session.send(&stripes(2)).starts_with("200 "));
    assert!(session.send(&stripes(3)).starts_with("504 "));
}

#[test]
fn an_ended_session_accepts_no_data_connection() {
    let mut session = TestSession::new(policy());
    session.send("PASV\r\n");
    session.respond(DriverResponse::Listening(
        "192.0.2.2:6000".parse().expect("an address"),
    ));
    session.send("QUIT\r\n");
    assert!(!session.server.data_opened(NOW, 1, policy().peer));
}

#[test]
fn a_late_response_for_a_failed_listing_is_not_used_for_the_next_command() {
    let mut session = TestSession::new(policy());
    session.send("MODE E\r\nPORT 192,0,2,1,200,1\r\nMLSD /\r\n");
    let some = |more| DriverResponse::Entries {
        entries: Vec::new(),
        more,
    };
    session.respond(some(true));
    assert!(session.server.data_opened(NOW, 1, policy().peer));
    assert_eq!(session.server.poll_data(NOW, 1), None);
    session.outputs();
    assert_eq!(session.requested, Some(DriverRequest::More));
    session.server.data_closed(NOW, 1, false);
    let reply_text = session.send("SIZE /a\r\n");
    assert!(reply_text.contains("426 "), "{reply_text}");
    assert_eq!(
        session.requested,
        Some(DriverRequest::More),
        "one request at a time"
    );
    assert_eq!(session.respond(some(false)), "");
    assert!(matches!(session.requested, Some(DriverRequest::Stat(_))));
    let reply_text = session.respond(DriverResponse::Failed(GlobusError::NotFound));
    assert!(reply_text.starts_with("550"), "{reply_text}");
}

#[test]
fn a_restart_with_an_empty_range_round_trips() {
    let command = FtpCommand::parse(b"REST 0-0").expect("a command");
    assert_eq!(FtpCommand::parse(&command.text()), Ok(command));
}

/// A ready client in MODE S that has requested files of unknown size, numbered from 0.
struct Downloads {
    client: Client,
    outputs: Vec<ClientOutput>,
}

impl Downloads {
    fn of(files: u64, present: ByteRanges) -> Self {
        let settings = ClientSettings {
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
            stall_timeout: STALL_TIMEOUT,
        };
        let client = Client::new(settings, None, NOW).expect("settings");
        let outputs = Vec::new();
        let mut session = Self { client, outputs };
        session.send(&["220 Ready.", "331 Go on.", "230 In."]);
        session.send(&["500 No.", "500 No.", "200 OK.", "200 OK."]);
        for transfer in 0..files {
            let get = Get {
                transfer,
                source: GetSource::File,
                path: Path::new("/a").expect("a path"),
                size_bytes: None,
                present: present.clone(),
                stat_after: false,
            };
            session.client.transfer(NOW, TransferJob::Get(get));
        }
        session.collect();
        session
    }

    fn send(&mut self, replies: &[&str]) {
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
fn present_bytes_are_ignored_if_the_file_size_is_unknown() {
    let mut session = Downloads::of(1, ByteRanges::from_range(5..67));
    session.send(&["227 Passive (192,0,2,2,200,1)", "150 Begin."]);
    assert!(
        session
            .client
            .data_opened(NOW, 1, ConnectionPurpose::Transfer(0))
    );
    let delivered = session.client.handle_data(NOW, 1, b"abc");
    assert_eq!(delivered.payload.map(|payload| payload.offset), Some(0));
    session.client.data_closed(NOW, 1, true);
    session.send(&["226 Done."]);
    let done = ClientOutput::Done {
        transfer: 0,
        time_kept: true,
    };
    assert!(session.outputs.contains(&done));
    let mut prefix = Downloads::of(1, ByteRanges::from_range(0..67));
    prefix.collect();
    let requested = |output: &ClientOutput| matches!(output, ClientOutput::Send(bytes) if bytes.windows(4).any(|text| text == b"REST"));
    assert!(
        !prefix.outputs.iter().any(requested),
        "every byte is already requested"
    );
}

#[test]
fn connections_without_an_end_time_out_together() {
    let mut session = Downloads::of(4, ByteRanges::default());
    for transfer in 0..4 {
        session.send(&["227 Passive (192,0,2,2,200,1)", "150 Begin.", "226 Done."]);
        assert!(
            session
                .client
                .data_opened(NOW, transfer, ConnectionPurpose::Transfer(transfer))
        );
    }
    let due = session
        .client
        .poll_timeout()
        .expect("their ends are awaited");
    assert_eq!(due, STALL_TIMEOUT);
    session
        .client
        .handle_timeout(due)
        .expect("the session lives");
    session.collect();
    let failed = |output: &&ClientOutput| matches!(output, ClientOutput::Failed { .. });
    assert_eq!(session.outputs.iter().filter(failed).count(), 4);
    assert_eq!(session.client.poll_timeout(), None);
}

#[test]
fn credential_errors_do_not_contain_the_key() {
    // If the lines of a key are joined, the first line contains the whole key.
    for text in [
        "-----BEGIN PRIVATE KEY-----c2VzYW1l-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nc2VzYW1l\n",
        "-----BEGIN PRIVATE KEY-----\nc2VzYW1l!\n-----END PRIVATE KEY-----\n",
    ] {
        let error = Credential::from_pem(text.as_bytes(), None).expect_err(text);
        let reported = error.to_string();
        // As text, and as the numbers of its bytes.
        let shown = ["c2VzYW1l", "99, 50, 86"]
            .iter()
            .any(|key| reported.contains(key));
        assert!(!shown && reported.len() < 300, "{reported}");
    }
}
