//! A client against a scripted server: data connections that fail, or reach another transfer.

use std::time::Duration;

use venturi_gridftp::client::{
    Client, ClientOutput, ClientSettings, ConnectionPurpose, Get, GetSource, Login, Put,
    TransferDirection, TransferJob,
};
use venturi_gridftp::{ByteRanges, DataOut, Mode, Path};

const SECOND: Duration = Duration::from_secs(1);
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const PORT: &str = "227 Entering Passive Mode (192,0,2,2,23,112)\r\n";
const OTHER_PORT: &str = "227 Entering Passive Mode (192,0,2,2,23,113)\r\n";
const REJECTED: &str = "550 No such directory.\r\n";
const STORED: &str = "150 Begin.\r\n226 Done.\r\n";
/// Reply to DELE, for the temporary file of a failed transfer.
const NOT_FOUND: &str = "550 No such file.\r\n";
/// Size of all files, so that only the content distinguishes them.
const FILE_BYTES: u64 = 5;
const SIZE: &str = "213 5\r\n";
/// Replies to RNFR and RNTO.
const NAMED: &str = "350 Go on.\r\n250 Done.\r\n";

struct TestSession {
    client: Client,
    now: Duration,
    outputs: Vec<ClientOutput>,
    /// Names of the commands sent since the last replies.
    commands: Vec<String>,
}

impl TestSession {
    /// Creates a ready session that has requested uploads, numbered from 0.
    fn of_uploads(mode: Mode, uploads: u64) -> Self {
        let mut session = Self::ready(mode, 8);
        for transfer in 0..uploads {
            session.upload(transfer, false);
        }
        session.collect();
        session
    }

    fn upload(&mut self, transfer: u64, resumable: bool) {
        let put = Put {
            transfer,
            path: Path::new(format!("/{transfer}")).expect("a path"),
            temporary: Some(Path::new(format!("/{transfer}.part")).expect("a path")),
            size_bytes: FILE_BYTES,
            checksum: None,
            modify_s: None,
            present: ByteRanges::default(),
            part: None,
            resumable,
        };
        self.client.transfer(self.now, TransferJob::Put(put));
    }

    /// Creates a ready session.
    fn ready(mode: Mode, depth: usize) -> Self {
        Self::prepared(mode, depth, None)
    }

    /// Creates a ready session that requested data connections during login.
    fn prepared(mode: Mode, depth: usize, path: Option<TransferDirection>) -> Self {
        let settings = ClientSettings {
            login: Login::Anonymous,
            server: "192.0.2.2".parse().expect("an address"),
            mode,
            connections: 1,
            depth,
            block_bytes: 100,
            buffer_bytes: None,
            data: None,
            upload: None,
            attempts: 2,
            striped: false,
            stall_timeout: STALL_TIMEOUT,
        };
        let mut client = Client::new(settings, None, Duration::ZERO).expect("settings of a test");
        path.into_iter().for_each(|path| client.prepare(path));
        let (outputs, commands) = (Vec::new(), Vec::new());
        let mut session = Self {
            client,
            now: SECOND,
            outputs,
            commands,
        };
        session.send("220 GridFTP Server 13.24 [Globus Toolkit 6.0] ready.\r\n");
        // The whole login takes one round trip after the greeting.
        let flight = std::mem::take(&mut session.commands);
        assert_eq!(flight[..4], ["USER", "PASS", "FEAT", "SITE"]);
        assert_eq!(flight.last().map(String::as_str), Some("NOOP"));
        session.send("331 Password.\r\n230 Logged in.\r\n");
        session.send("211-Extensions\r\n PARALLEL\r\n211 End.\r\n214 Help.\r\n");
        session.send(&"200 OK.\r\n".repeat(flight.len() - 4));
        assert_eq!(session.client.mode(), mode);
        session.collect();
        session
    }

    /// Requests downloads, numbered from 0.
    fn request_downloads(&mut self, downloads: u64) {
        for transfer in 0..downloads {
            let get = Get {
                transfer,
                source: GetSource::File,
                path: Path::new(format!("/{transfer}")).expect("a path"),
                size_bytes: Some(FILE_BYTES),
                present: ByteRanges::default(),
                stat_after: false,
            };
            self.client.transfer(self.now, TransferJob::Get(get));
        }
        self.collect();
    }

    /// Listens, as the client requested.
    fn listen(&mut self, port: u16) {
        let requested = self
            .outputs
            .iter()
            .position(|it| *it == ClientOutput::Listen);
        self.outputs.remove(requested.expect("it is to listen"));
        let address = ([192, 0, 2, 1], port).into();
        self.client.listening(self.now, address);
        self.collect();
    }

    fn send(&mut self, replies: &str) {
        self.client
            .handle_input(self.now, replies.as_bytes())
            .expect("a session");
        self.collect();
    }

    fn collect(&mut self) {
        self.commands.clear();
        while let Some(output) = self.client.poll_output() {
            if let ClientOutput::Send(bytes) = &output {
                let text = String::from_utf8_lossy(bytes);
                let names = text
                    .lines()
                    .filter_map(|line| line.split_whitespace().next());
                self.commands.extend(names.map(str::to_owned));
            }
            self.outputs.push(output);
        }
    }

    /// Opens the connection of a transfer and sends its bytes. Returns `true` if the client accepts
    /// it.
    fn open(&mut self, connection: u64, transfer: Option<u64>) -> bool {
        let purpose = transfer.map_or(ConnectionPurpose::Stripe(0), ConnectionPurpose::Transfer);
        let expected = self.client.data_opened(self.now, connection, purpose);
        while let Some(out) = self.client.poll_data(self.now, connection)
            && out != DataOut::Close
        {}
        self.collect();
        expected
    }

    fn ended(&self) -> Vec<(u64, bool)> {
        let reported = |output: &ClientOutput| match output {
            ClientOutput::Done { transfer, .. } => Some((*transfer, true)),
            ClientOutput::Failed { transfer, .. } => Some((*transfer, false)),
            _ => None,
        };
        self.outputs.iter().filter_map(reported).collect()
    }

    /// Completes the next attempt of upload 1, over a new port, and renames the file.
    fn ends_with_another_try_of_upload_1(mut self) {
        assert_eq!(self.commands, ["PASV", "STOR"]);
        self.send(&[NOT_FOUND, OTHER_PORT].concat());
        assert!(self.open(3, Some(1)));
        self.send(STORED);
        self.ends_with_the_name_of_upload_1();
    }

    fn ends_with_the_name_of_upload_1(mut self) {
        assert_eq!(self.commands, ["SIZE"]);
        self.send(SIZE);
        assert_eq!(self.commands, ["RNFR", "RNTO"]);
        self.send(NAMED);
        assert_eq!(self.ended(), [(0, false), (1, true)]);
        assert_eq!(self.client.poll_timeout(), None);
    }
}

#[test]
fn downloads_are_requested_directly_after_the_port_command_if_pipelined() {
    let mut session = TestSession::ready(Mode::Extended, 8);
    session.request_downloads(2);
    session.listen(5000);
    assert_eq!(session.commands, ["PORT", "RETR", "RETR"]);
    let mut alone = TestSession::ready(Mode::Extended, 1);
    alone.request_downloads(2);
    alone.listen(5000);
    assert_eq!(alone.commands, ["PORT"], "it takes no commands ahead");
    alone.send("200 OK.\r\n");
    assert_eq!(alone.commands, ["RETR"]);
}

#[test]
fn a_rejected_port_is_charged_to_the_first_file_and_all_files_are_retried() {
    let mut session = TestSession::ready(Mode::Extended, 8);
    session.request_downloads(2);
    for (port, left) in [(5000, 2), (5001, 2), (5002, 1)] {
        session.listen(port);
        assert_eq!(session.commands.len(), 1 + left, "{:?}", session.commands);
        if port < 5002 {
            session.send("500 Not there.\r\n");
            session.send(&"425 No data connection.\r\n".repeat(left));
        }
    }
    assert_eq!(session.ended(), [(0, false)]);
    let reason = session.outputs.iter().find_map(|output| match output {
        ClientOutput::Failed { failure, .. } => Some(failure.reason.clone()),
        _ => None,
    });
    let reason = reason.expect("a failure");
    assert!(
        reason.contains("cannot open data connections: 500"),
        "{reason}"
    );
}

#[test]
fn replies_about_a_replaced_port_do_not_affect_the_next_port() {
    let mut session = TestSession::prepared(Mode::Extended, 8, Some(TransferDirection::Receive));
    session.listen(5000);
    assert_eq!(session.commands, ["PORT"]);
    assert!(session.client.widen(4));
    session.request_downloads(1);
    session.listen(5001);
    let (first, second) = ("500 Not there.\r\n", "200 OK.\r\n200 OK.\r\n");
    session.send(&[first, second, "550 No such file.\r\n"].concat());
    assert_eq!(session.ended(), [(0, false)]);
    assert!(
        !session.outputs.contains(&ClientOutput::Listen),
        "it was not tried again"
    );
}

#[test]
fn bytes_of_a_rejected_file_are_not_stored_under_the_name_of_the_next_file() {
    let mut session = TestSession::of_uploads(Mode::Stream, 2);
    assert_eq!(session.commands, ["PASV", "STOR", "PASV", "STOR"]);
    session.send(PORT);
    // The server has rejected the file and opened its port for the next, which gets these bytes.
    assert!(session.open(1, Some(0)));
    session.send(&[REJECTED, PORT].concat());
    assert!(
        session
            .outputs
            .contains(&ClientOutput::CloseData { connection: 1 })
    );
    assert!(
        !session.open(2, Some(1)),
        "the connection may belong to no upload"
    );
    session.send(STORED);
    session.ends_with_another_try_of_upload_1();
}

#[test]
fn a_connection_opened_after_the_rejection_of_its_file_is_closed_without_bytes() {
    let mut session = TestSession::of_uploads(Mode::Stream, 2);
    session.send(&[PORT, REJECTED, PORT].concat());
    assert!(
        !session.open(1, Some(0)),
        "a server waits until it is closed"
    );
    assert!(!session.open(2, Some(1)));
    session.send(STORED);
    session.ends_with_another_try_of_upload_1();
}

#[test]
fn a_separate_port_saves_the_next_file_a_retry_after_a_rejection() {
    let mut session = TestSession::of_uploads(Mode::Stream, 2);
    session.send(&[PORT, REJECTED].concat());
    assert!(!session.open(1, Some(0)));
    session.send(OTHER_PORT);
    assert!(session.open(2, Some(1)));
    session.send(&[STORED, NOT_FOUND].concat());
    session.ends_with_the_name_of_upload_1();
}

#[test]
fn a_retry_does_not_use_the_connection_of_the_previous_attempt() {
    let mut session = TestSession::of_uploads(Mode::Stream, 1);
    session.send(&[PORT, "450 Busy.\r\n"].concat());
    assert_eq!(
        session.commands, [""; 0],
        "its connection may still be opened"
    );
    assert!(!session.open(1, Some(0)));
    assert_eq!(session.commands, ["PASV", "STOR"]);
    session.send(OTHER_PORT);
    assert!(session.open(2, Some(0)));
    session.send(STORED);
    session.send(SIZE);
    session.send(NAMED);
    assert_eq!(session.ended(), [(0, true)]);
}

#[test]
fn an_interrupted_upload_is_returned_if_resumable_and_otherwise_retried() {
    for (resumable, ended, then) in [
        (true, vec![(0, false)], vec![]),
        (false, vec![], vec!["PASV", "STOR"]),
    ] {
        let mut session = TestSession::ready(Mode::Stream, 1);
        session.upload(0, resumable);
        session.collect();
        session.send(PORT);
        assert!(session.open(1, Some(0)));
        session.send("150 Begin.\r\n426 Cut off.\r\n");
        assert_eq!(session.ended(), ended);
        assert_eq!(session.commands, then);
    }
}

#[test]
fn an_upload_that_did_not_start_is_retried_even_if_it_is_resumable() {
    let mut session = TestSession::ready(Mode::Stream, 1);
    session.upload(0, true);
    session.collect();
    session.send(&[PORT, "450 Busy.\r\n"].concat());
    assert!(!session.open(1, Some(0)));
    assert_eq!(session.commands, ["PASV", "STOR"]);
}

#[test]
fn a_server_that_waits_on_a_data_connection_continues_after_it_is_closed() {
    for mode in [Mode::Stream, Mode::Extended] {
        let mut session = TestSession::of_uploads(mode, 1);
        let transfer = (mode == Mode::Stream).then_some(0);
        for attempt in 0..2 {
            session.send(PORT);
            assert!(session.open(attempt, transfer), "{mode:?} {attempt}");
            session.send("150 Begin.\r\n");
            let due = session.client.poll_timeout().expect("something is awaited");
            assert_eq!(due, session.now + STALL_TIMEOUT);
            session.now = due;
            session
                .client
                .handle_timeout(due)
                .expect("the session lives");
            session.send("426 Closed.\r\n");
        }
        assert_eq!(session.ended(), [(0, false)], "{mode:?}");
    }
}

#[test]
fn a_session_ends_if_the_server_stays_silent_for_a_second_timeout() {
    for mode in [Mode::Stream, Mode::Extended] {
        let mut session = TestSession::of_uploads(mode, 1);
        session.send(PORT);
        assert!(session.open(1, (mode == Mode::Stream).then_some(0)));
        let first = SECOND + STALL_TIMEOUT;
        session.client.handle_timeout(first).expect("it lives");
        assert_eq!(
            session.client.poll_timeout(),
            Some(first + STALL_TIMEOUT),
            "{mode:?}"
        );
        let ended = session.client.handle_timeout(first + STALL_TIMEOUT);
        ended.expect_err("nothing more came");
        session.collect();
        assert_eq!(session.ended(), [(0, false)], "{mode:?}");
        assert_eq!(session.client.poll_timeout(), None);
    }
}

#[test]
fn repeated_byte_counts_and_incomplete_lines_are_not_progress() {
    let marker = |bytes: u64| {
        format!(
            "112-Perf Marker\r\n Timestamp: 1\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: {bytes}\r\n Total Stripe Count: 1\r\n112 End.\r\n"
        )
    };
    let mut session = TestSession::of_uploads(Mode::Extended, 1);
    session.send(PORT);
    assert!(session.open(1, None));
    session.send("150 Begin.\r\n");
    for bytes in [0, 100, 200] {
        session.now += STALL_TIMEOUT / 2;
        session.send(&marker(bytes));
        let due = session.client.poll_timeout();
        assert_eq!(due, Some(session.now + STALL_TIMEOUT), "{bytes} are more");
    }
    let due = session.now + STALL_TIMEOUT;
    session.now += STALL_TIMEOUT / 2;
    session.send(&marker(200));
    session.send("226-Not yet");
    assert_eq!(session.client.poll_timeout(), Some(due));
}

#[test]
fn requests_to_an_ended_session_fail_immediately() {
    let mut session = TestSession::of_uploads(Mode::Extended, 1);
    session.client.handle_closed().expect_err("it is over");
    let get = venturi_gridftp::client::Get {
        transfer: 7,
        source: venturi_gridftp::client::GetSource::File,
        path: Path::root(),
        size_bytes: None,
        present: ByteRanges::default(),
        stat_after: false,
    };
    session.client.transfer(session.now, TransferJob::Get(get));
    session.collect();
    assert_eq!(session.ended(), [(0, false), (7, false)]);
    assert_eq!(session.client.poll_output(), None);
}
