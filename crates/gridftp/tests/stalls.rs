//! A client and a server that is a list of replies: data connections that come to nothing, or to another transfer.

use std::time::Duration;

use venturi_gridftp::client::{
    Client, Direction, Get, Job, Login, Output, Purpose, Put, Settings, Source,
};
use venturi_gridftp::{ByteRanges, DataOut, Mode, Path};

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: &str = "227 Entering Passive Mode (192,0,2,2,23,112)\r\n";
const OTHER_PORT: &str = "227 Entering Passive Mode (192,0,2,2,23,113)\r\n";
const REFUSED: &str = "550 No such directory.\r\n";
const STORED: &str = "150 Begin.\r\n226 Done.\r\n";
/// To DELE, for the temporary file of a transfer that failed.
const NOT_THERE: &str = "550 No such file.\r\n";
/// All files have this size: only the content tells one from another.
const FILE_BYTES: u64 = 5;
const SIZE: &str = "213 5\r\n";
/// To RNFR and RNTO.
const NAMED: &str = "350 Go on.\r\n250 Done.\r\n";

struct Talk {
    client: Client,
    now: Duration,
    outputs: Vec<Output>,
    /// Names of the commands that were sent since the replies before.
    commands: Vec<String>,
}

impl Talk {
    /// A session that is ready, and that has asked for uploads number 0 and up.
    fn of_uploads(mode: Mode, uploads: u64) -> Self {
        let mut talk = Self::ready(mode, 8);
        for transfer in 0..uploads {
            talk.upload(transfer, false);
        }
        talk.collect();
        talk
    }

    fn upload(&mut self, transfer: u64, goes_on: bool) {
        let put = Put {
            transfer,
            path: Path::new(format!("/{transfer}")).expect("a path"),
            temporary: Some(Path::new(format!("/{transfer}.part")).expect("a path")),
            size_bytes: FILE_BYTES,
            checksum: None,
            modify_s: None,
            present: ByteRanges::default(),
            part: None,
            goes_on,
        };
        self.client.transfer(self.now, Job::Put(put));
    }

    /// A session that is ready.
    fn ready(mode: Mode, depth: usize) -> Self {
        Self::prepared(mode, depth, None)
    }

    /// The same with data connections that are asked for with the login.
    fn prepared(mode: Mode, depth: usize, way: Option<Direction>) -> Self {
        let settings = Settings {
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
            patience: PATIENCE,
        };
        let mut client = Client::new(settings, None, Duration::ZERO).expect("settings of a test");
        way.into_iter().for_each(|way| client.prepare(way));
        let (outputs, commands) = (Vec::new(), Vec::new());
        let mut talk = Self {
            client,
            now: SECOND,
            outputs,
            commands,
        };
        talk.say("220 GridFTP Server 13.24 [Globus Toolkit 6.0] ready.\r\n");
        // All of it in one flight: a login costs one round trip behind the greeting.
        let flight = std::mem::take(&mut talk.commands);
        assert_eq!(flight[..4], ["USER", "PASS", "FEAT", "SITE"]);
        assert_eq!(flight.last().map(String::as_str), Some("NOOP"));
        talk.say("331 Password.\r\n230 Logged in.\r\n");
        talk.say("211-Extensions\r\n PARALLEL\r\n211 End.\r\n214 Help.\r\n");
        talk.say(&"200 OK.\r\n".repeat(flight.len() - 4));
        assert_eq!(talk.client.mode(), mode);
        talk.collect();
        talk
    }

    /// Asks for downloads number 0 and up.
    fn ask_for_downloads(&mut self, downloads: u64) {
        for transfer in 0..downloads {
            let get = Get {
                transfer,
                source: Source::File,
                path: Path::new(format!("/{transfer}")).expect("a path"),
                size_bytes: Some(FILE_BYTES),
                present: ByteRanges::default(),
                see: false,
            };
            self.client.transfer(self.now, Job::Get(get));
        }
        self.collect();
    }

    /// Listens, as it was told to.
    fn listen(&mut self, port: u16) {
        let asked = self.outputs.iter().position(|it| *it == Output::Listen);
        self.outputs.remove(asked.expect("it is to listen"));
        let address = ([192, 0, 2, 1], port).into();
        self.client.listening(self.now, address);
        self.collect();
    }

    fn say(&mut self, replies: &str) {
        self.client
            .handle_input(self.now, replies.as_bytes())
            .expect("a session");
        self.collect();
    }

    fn collect(&mut self) {
        self.commands.clear();
        while let Some(output) = self.client.poll_output() {
            if let Output::Send(bytes) = &output {
                let text = String::from_utf8_lossy(bytes);
                let names = text
                    .lines()
                    .filter_map(|line| line.split_whitespace().next());
                self.commands.extend(names.map(str::to_owned));
            }
            self.outputs.push(output);
        }
    }

    /// Opens the connection of a transfer; whether it is wanted. What is to be sent on it goes to the server.
    fn open(&mut self, connection: u64, transfer: Option<u64>) -> bool {
        let purpose = transfer.map_or(Purpose::Stripe(0), Purpose::Transfer);
        let wanted = self.client.data_opened(self.now, connection, purpose);
        while let Some(out) = self.client.poll_data(self.now, connection)
            && out != DataOut::Close
        {}
        self.collect();
        wanted
    }

    fn ended(&self) -> Vec<(u64, bool)> {
        let told = |output: &Output| match output {
            Output::Done { transfer, .. } => Some((*transfer, true)),
            Output::Failed { transfer, .. } => Some((*transfer, false)),
            _ => None,
        };
        self.outputs.iter().filter_map(told).collect()
    }

    /// The next try of upload 1, over a port that no other had: it is whole, and gets its name.
    fn ends_with_another_try_of_upload_1(mut self) {
        assert_eq!(self.commands, ["PASV", "STOR"]);
        self.say(&[NOT_THERE, OTHER_PORT].concat());
        assert!(self.open(3, Some(1)));
        self.say(STORED);
        self.ends_with_the_name_of_upload_1();
    }

    fn ends_with_the_name_of_upload_1(mut self) {
        assert_eq!(self.commands, ["SIZE"]);
        self.say(SIZE);
        assert_eq!(self.commands, ["RNFR", "RNTO"]);
        self.say(NAMED);
        assert_eq!(self.ended(), [(0, false), (1, true)]);
        assert_eq!(self.client.poll_timeout(), None);
    }
}

#[test]
fn files_are_asked_for_behind_the_port_that_they_are_to_come_to() {
    let mut talk = Talk::ready(Mode::Extended, 8);
    talk.ask_for_downloads(2);
    talk.listen(5000);
    assert_eq!(talk.commands, ["PORT", "RETR", "RETR"]);
    let mut alone = Talk::ready(Mode::Extended, 1);
    alone.ask_for_downloads(2);
    alone.listen(5000);
    assert_eq!(alone.commands, ["PORT"], "it takes no commands ahead");
    alone.say("200 OK.\r\n");
    assert_eq!(alone.commands, ["RETR"]);
}

#[test]
fn of_files_behind_a_port_that_is_refused_the_first_is_charged_and_all_are_tried_again() {
    let mut talk = Talk::ready(Mode::Extended, 8);
    talk.ask_for_downloads(2);
    for (port, left) in [(5000, 2), (5001, 2), (5002, 1)] {
        talk.listen(port);
        assert_eq!(talk.commands.len(), 1 + left, "{:?}", talk.commands);
        if port < 5002 {
            talk.say("500 Not there.\r\n");
            talk.say(&"425 No data connection.\r\n".repeat(left));
        }
    }
    assert_eq!(talk.ended(), [(0, false)]);
    let reason = talk.outputs.iter().find_map(|output| match output {
        Output::Failed { failure, .. } => Some(failure.reason.clone()),
        _ => None,
    });
    let reason = reason.expect("a failure");
    assert!(reason.contains("no data connections: 500"), "{reason}");
}

#[test]
fn what_is_said_of_a_port_that_nobody_wants_any_more_is_not_of_the_next_one() {
    let mut talk = Talk::prepared(Mode::Extended, 8, Some(Direction::Receive));
    talk.listen(5000);
    assert_eq!(talk.commands, ["PORT"]);
    assert!(talk.client.widen(4));
    talk.ask_for_downloads(1);
    talk.listen(5001);
    let (first, second) = ("500 Not there.\r\n", "200 OK.\r\n200 OK.\r\n");
    talk.say(&[first, second, "550 No such file.\r\n"].concat());
    assert_eq!(talk.ended(), [(0, false)]);
    assert!(
        !talk.outputs.contains(&Output::Listen),
        "it was not tried again"
    );
}

#[test]
fn bytes_of_a_refused_file_do_not_get_the_name_of_the_one_that_is_given_its_port() {
    let mut talk = Talk::of_uploads(Mode::Stream, 2);
    assert_eq!(talk.commands, ["PASV", "STOR", "PASV", "STOR"]);
    talk.say(PORT);
    // The server has refused it, and opened its port for the next: these bytes become the next one's.
    assert!(talk.open(1, Some(0)));
    talk.say(&[REFUSED, PORT].concat());
    assert!(talk.outputs.contains(&Output::CloseData { connection: 1 }));
    assert!(!talk.open(2, Some(1)), "it may be nobody's connection");
    talk.say(STORED);
    talk.ends_with_another_try_of_upload_1();
}

#[test]
fn a_connection_that_is_opened_after_its_file_was_refused_is_closed_and_takes_no_bytes() {
    let mut talk = Talk::of_uploads(Mode::Stream, 2);
    talk.say(&[PORT, REFUSED, PORT].concat());
    assert!(!talk.open(1, Some(0)), "a server waits for its end");
    assert!(!talk.open(2, Some(1)));
    talk.say(STORED);
    talk.ends_with_another_try_of_upload_1();
}

#[test]
fn a_port_of_its_own_costs_the_next_file_no_other_try() {
    let mut talk = Talk::of_uploads(Mode::Stream, 2);
    talk.say(&[PORT, REFUSED].concat());
    assert!(!talk.open(1, Some(0)));
    talk.say(OTHER_PORT);
    assert!(talk.open(2, Some(1)));
    talk.say(&[STORED, NOT_THERE].concat());
    talk.ends_with_the_name_of_upload_1();
}

#[test]
fn the_next_try_of_a_file_is_not_given_the_connection_of_the_try_before() {
    let mut talk = Talk::of_uploads(Mode::Stream, 1);
    talk.say(&[PORT, "450 Busy.\r\n"].concat());
    assert_eq!(talk.commands, [""; 0], "its connection may still be opened");
    assert!(!talk.open(1, Some(0)));
    assert_eq!(talk.commands, ["PASV", "STOR"]);
    talk.say(OTHER_PORT);
    assert!(talk.open(2, Some(0)));
    talk.say(STORED);
    talk.say(SIZE);
    talk.say(NAMED);
    assert_eq!(talk.ended(), [(0, true)]);
}

#[test]
fn an_upload_of_which_it_is_seen_what_is_there_is_given_back_where_it_was_cut_off_and_stays_there()
{
    for (goes_on, ended, then) in [
        (true, vec![(0, false)], vec![]),
        (false, vec![], vec!["PASV", "STOR"]),
    ] {
        let mut talk = Talk::ready(Mode::Stream, 1);
        talk.upload(0, goes_on);
        talk.collect();
        talk.say(PORT);
        assert!(talk.open(1, Some(0)));
        talk.say("150 Begin.\r\n426 Cut off.\r\n");
        assert_eq!(talk.ended(), ended);
        assert_eq!(talk.commands, then);
    }
}

#[test]
fn an_upload_that_was_not_begun_is_tried_again_whatever_is_seen_of_it() {
    let mut talk = Talk::ready(Mode::Stream, 1);
    talk.upload(0, true);
    talk.collect();
    talk.say(&[PORT, "450 Busy.\r\n"].concat());
    assert!(!talk.open(1, Some(0)));
    assert_eq!(talk.commands, ["PASV", "STOR"]);
}

#[test]
fn a_server_that_waits_on_a_data_connection_goes_on_when_it_is_given_up() {
    for mode in [Mode::Stream, Mode::Extended] {
        let mut talk = Talk::of_uploads(mode, 1);
        let transfer = (mode == Mode::Stream).then_some(0);
        for attempt in 0..2 {
            talk.say(PORT);
            assert!(talk.open(attempt, transfer), "{mode:?} {attempt}");
            talk.say("150 Begin.\r\n");
            let due = talk.client.poll_timeout().expect("something is awaited");
            assert_eq!(due, talk.now + PATIENCE);
            talk.now = due;
            talk.client.handle_timeout(due).expect("the session lives");
            talk.say("426 Closed.\r\n");
        }
        assert_eq!(talk.ended(), [(0, false)], "{mode:?}");
    }
}

#[test]
fn a_server_that_waits_on_nothing_is_given_up_after_one_silence_more() {
    for mode in [Mode::Stream, Mode::Extended] {
        let mut talk = Talk::of_uploads(mode, 1);
        talk.say(PORT);
        assert!(talk.open(1, (mode == Mode::Stream).then_some(0)));
        let first = SECOND + PATIENCE;
        talk.client.handle_timeout(first).expect("it lives");
        assert_eq!(
            talk.client.poll_timeout(),
            Some(first + PATIENCE),
            "{mode:?}"
        );
        let ended = talk.client.handle_timeout(first + PATIENCE);
        ended.expect_err("nothing more came");
        talk.collect();
        assert_eq!(talk.ended(), [(0, false)], "{mode:?}");
        assert_eq!(talk.client.poll_timeout(), None);
    }
}

#[test]
fn markers_that_tell_of_no_more_bytes_and_lines_without_end_are_no_progress() {
    let marker = |bytes: u64| {
        format!(
            "112-Perf Marker\r\n Timestamp: 1\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: {bytes}\r\n Total Stripe Count: 1\r\n112 End.\r\n"
        )
    };
    let mut talk = Talk::of_uploads(Mode::Extended, 1);
    talk.say(PORT);
    assert!(talk.open(1, None));
    talk.say("150 Begin.\r\n");
    for bytes in [0, 100, 200] {
        talk.now += PATIENCE / 2;
        talk.say(&marker(bytes));
        let due = talk.client.poll_timeout();
        assert_eq!(due, Some(talk.now + PATIENCE), "{bytes} are more");
    }
    let due = talk.now + PATIENCE;
    talk.now += PATIENCE / 2;
    talk.say(&marker(200));
    talk.say("226-Not yet");
    assert_eq!(talk.client.poll_timeout(), Some(due));
}

#[test]
fn whatever_is_asked_of_a_session_that_is_over_fails_at_once() {
    let mut talk = Talk::of_uploads(Mode::Extended, 1);
    talk.client.handle_closed().expect_err("it is over");
    let get = venturi_gridftp::client::Get {
        transfer: 7,
        source: venturi_gridftp::client::Source::File,
        path: Path::root(),
        size_bytes: None,
        present: ByteRanges::default(),
        see: false,
    };
    talk.client.transfer(talk.now, Job::Get(get));
    talk.collect();
    assert_eq!(talk.ended(), [(0, false), (7, false)]);
    assert_eq!(talk.client.poll_output(), None);
}
