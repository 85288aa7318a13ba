//! Recorded sessions with globus-gridftp-server 13.24 of Debian, over loopback. This crate parses
//! them and repeats them with its own server.

use std::time::Duration;

use venturi_gridftp::server::{
    DriverRequest, DriverResponse, GlobusError, Server, ServerOutput, ServerPolicy,
};
use venturi_gridftp::{
    EntryKind, Features, FtpCommand, FtpError, FtpReply, ListEntry, ProgressMarker, ReplyCollector,
    ReplyEvent,
};

const SESSION: &str = include_str!("dialogues/globus-13.24.txt");
const UPLOAD: &str = include_str!("dialogues/globus-13.24-upload.txt");

/// Returns the commands, each with its replies; the greeting has an empty command.
fn exchanges(text: &str) -> Vec<(String, Vec<FtpReply>)> {
    let mut exchanges = vec![(String::new(), Vec::new())];
    let mut collector = ReplyCollector::default();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            exchanges.push((command.to_owned(), Vec::new()));
        } else if let Some(line) = line.strip_prefix("< ")
            && let ReplyEvent::Reply(reply) =
                collector.line(line.as_bytes(), false).expect("a reply")
        {
            exchanges.last_mut().expect("one").1.push(reply);
        }
    }
    exchanges
}

fn reply_to(command: &str) -> FtpReply {
    let found = exchanges(SESSION)
        .into_iter()
        .find(|(reply_text, _)| reply_text == command);
    found
        .unwrap_or_else(|| panic!("{command} was said"))
        .1
        .remove(0)
}

#[test]
fn every_command_has_one_final_reply_and_round_trips() {
    for (command, replies) in exchanges(SESSION).into_iter().chain(exchanges(UPLOAD)) {
        let last = replies
            .iter()
            .filter(|reply| !reply.is_preliminary())
            .count();
        assert!(last == 1 || replies.is_empty(), "{command}: {replies:?}");
        match FtpCommand::parse(command.as_bytes()) {
            Ok(parsed) if command.starts_with("OPTS RETR Par") || !command.starts_with("OPTS") => {
                assert_eq!(parsed.text(), command.as_bytes(), "{command}");
            }
            Ok(parsed) => assert_eq!(FtpCommand::parse(&parsed.text()), Ok(parsed)),
            Err(FtpError::UnknownCommand { .. }) => {
                assert!(["NOPE", ""].contains(&command.as_str()))
            }
            Err(_) => assert_eq!(command, "MODE B"),
        }
    }
}

#[test]
fn features_and_commands_of_the_server_are_recognized() {
    let mut features = Features::default();
    features.add_greeting(&exchanges(SESSION)[0].1[0]);
    features.add_features(&reply_to("FEAT"));
    features.add_commands(&reply_to("SITE HELP"));
    assert!(features.is_globus());
    assert_eq!(
        features.checksums(),
        ["MD5", "ADLER32", "SHA1", "SHA256", "SHA512"]
    );
    for name in ["PARALLEL", "MLSC", "DCAU", "ERET", "SPAS", "SIZE"] {
        assert!(features.has(name), "{name}");
    }
    // SCKS and SBUF are listed as commands, not as features.
    assert!(features.has("SCKS") && features.has("SBUF") && !features.has("GETPUT"));
    assert!(
        features
            .value("MLST")
            .is_some_and(|facts| facts.starts_with("Type*;Size*;"))
    );
}

#[test]
fn facts_errors_and_markers_of_the_server_are_read() {
    let facts = reply_to("MLST /data/f");
    let entry = ListEntry::parse(&facts.lines[1]).expect("an entry");
    assert_eq!(
        (entry.kind, entry.size_bytes),
        (Some(EntryKind::File), Some(300_000))
    );
    // `date -u -d '2026-11-22 13:28:26' +%s`
    assert_eq!(entry.modify_s, Some(1_795_354_106));
    let listing = reply_to("MLSC /data");
    let lines = &listing.lines[1..listing.lines.len() - 1];
    let names = lines
        .iter()
        .map(|line| ListEntry::parse(line).expect("an entry"));
    let names: Vec<_> = names
        .filter(ListEntry::is_inside)
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, [&b"abc"[..], b"d", b"empty", b"f"]);
    assert_eq!(
        reply_to("SIZE /data/none").globus_error(),
        Some("PATH_NOT_FOUND")
    );
    assert_eq!(reply_to("MKD /data/d").globus_error(), Some("PATH_EXISTS"));
    assert_eq!(reply_to("RETR /data/none").globus_error(), None);

    let upload = exchanges(UPLOAD);
    let markers = |number: usize| {
        upload[number]
            .1
            .iter()
            .filter_map(|reply| ProgressMarker::parse(reply).expect("a marker"))
    };
    let bytes: Vec<_> = markers(2)
        .filter_map(|marker| match marker {
            ProgressMarker::Performance(marker) => Some(marker.bytes),
            _ => None,
        })
        .collect();
    assert_eq!(bytes, [0, 3]);
    // Ends are exclusive: the file has three bytes.
    let ranges = markers(2).find_map(|marker| match marker {
        ProgressMarker::Ranges(ranges) => Some(ranges),
        _ => None,
    });
    assert_eq!(ranges.expect("a marker").to_string(), "0-3");
    let wrong = upload[4].1.last().expect("a reply");
    assert_eq!(wrong.globus_error(), Some("INCORRECT_CHECKSUM"));
    assert_eq!(
        wrong.field(b"GridFTP-Computed-Checksum:"),
        Some(&b"024d0127"[..])
    );
}

/// Responds like a disk with only the requested files.
fn respond(request: &DriverRequest) -> DriverResponse {
    let file = |size: u64| {
        let mut entry = ListEntry::named("f");
        (entry.kind, entry.size_bytes, entry.modify_s) =
            (Some(EntryKind::File), Some(size), Some(0));
        DriverResponse::Entry(entry)
    };
    match request {
        DriverRequest::Stat(path) => match path.as_bytes() {
            b"/data/f" => file(300_000),
            b"/data/abc" | b"/data/abd" => file(3),
            b"/data" => {
                let mut entry = ListEntry::named("data");
                entry.kind = Some(EntryKind::Directory);
                DriverResponse::Entry(entry)
            }
            _ => DriverResponse::Failed(GlobusError::NotFound),
        },
        DriverRequest::List { .. } => DriverResponse::Entries {
            entries: vec![ListEntry::named("f")],
            more: false,
        },
        DriverRequest::MakeDirectory(path) if path.as_bytes() == b"/data/d" => {
            DriverResponse::Failed(GlobusError::Exists)
        }
        DriverRequest::Delete(_) | DriverRequest::Read(_) => {
            DriverResponse::Failed(GlobusError::NotFound)
        }
        DriverRequest::Checksum { .. } | DriverRequest::Verify { .. } => {
            DriverResponse::Checksum("024d0127".to_owned())
        }
        DriverRequest::Listen => {
            DriverResponse::Listening("127.0.0.1:50000".parse().expect("an address"))
        }
        _ => DriverResponse::Done,
    }
}

#[test]
fn our_server_replies_to_the_same_commands_with_the_same_codes() {
    let policy = ServerPolicy {
        greeting: "venturi".to_owned(),
        epoch: Duration::ZERO,
        peer: "127.0.0.1".parse().expect("an address"),
        writes: true,
        third_party: false,
        checksums: ["MD5", "ADLER32"].map(str::to_owned).to_vec(),
        connections: 4,
        block_bytes: 1000,
        queued_bytes: 10_000,
        logins: 3,
        login_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(600),
        stall_timeout: Duration::from_secs(60),
        marker_interval: Duration::from_secs(5),
    };
    // Differences of the Venturi server, with reasons.
    let different = [
        ("CKSM NOPE 0 -1 /data/abc", 504, "no such parameter"),
        ("STRU R", 504, "no such parameter"),
        ("OPTS UTF8 ON", 200, "names are UTF-8"),
        (
            "MFMT 20200101000000 /data/abc",
            213,
            "as in the draft of MFMT",
        ),
        (
            "RNFR /data/none",
            550,
            "as all other commands for a path that is not there",
        ),
    ];
    let mut server = Server::new(policy, None, Duration::ZERO);
    let mut collector = ReplyCollector::default();
    for (command, replies) in exchanges(SESSION) {
        if !command.is_empty() {
            server.handle_input(Duration::ZERO, format!("{command}\r\n").as_bytes());
        }
        let mut found = Vec::new();
        while let Some(output) = server.poll_output() {
            match output {
                ServerOutput::Send(bytes) => {
                    for line in bytes
                        .split(|&byte| byte == b'\n')
                        .filter(|line| !line.is_empty())
                    {
                        let line = line.strip_suffix(b"\r").expect("a line ends with CR LF");
                        if let ReplyEvent::Reply(reply) =
                            collector.line(line, false).expect("a reply")
                        {
                            found.push(reply.code);
                        }
                    }
                }
                ServerOutput::Request(request) => server.respond(Duration::ZERO, respond(&request)),
                _ => {}
            }
        }
        let expected: Vec<u16> = replies.iter().map(|reply| reply.code).collect();
        let ours = different
            .iter()
            .find(|(known, ..)| *known == command)
            .map(|&(_, code, _)| vec![code]);
        assert_ne!(ours.as_ref(), Some(&expected), "{command} is the same");
        assert_eq!(found, ours.unwrap_or(expected), "{command}");
    }
}
