//! Rejections and missing features of an unmodified globus-gridftp-server: no other file has a
//! wrong byte.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a real server, and the files that it has"
)]

mod content;
mod driver;
mod globus_server;
mod globus_session;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use content::content;
use driver::relay::relay;
use globus_server::{GlobusServer, open_to_all};
use globus_session::{failed, get, put, session, with_server};
use venturi_gridftp::address::parse_host_port;
use venturi_gridftp::client::{CopyPair, Put, ThirdParty, ThirdPartyOutput, TransferJob};
use venturi_gridftp::mode_e::{BlockSender, OutgoingBlock};
use venturi_gridftp::{ByteRanges, Mode, ReplyCollector, ReplyEvent};

#[test]
fn three_rejected_of_two_hundred_pipelined_uploads_do_not_corrupt_the_others() {
    with_server(|server| {
        for (mode, connections, equal) in [
            (Mode::Extended, 1, true),
            (Mode::Extended, 3, false),
            (Mode::Stream, 1, true),
        ] {
            let mut driver = session(server, mode, connections, 64);
            let rejected = [0, 77, 78];
            let mut files = Vec::new();
            let jobs = (0..200)
                .map(|number| {
                    let name = if rejected.contains(&number) {
                        format!("no-such-directory/{number}")
                    } else {
                        format!("{mode:?}-{number}")
                    };
                    // For equal sizes, only the content distinguishes a file from its neighbour.
                    let size = if equal {
                        3000
                    } else {
                        (number as usize * 37) % 5000
                    };
                    let bytes = content(number, size);
                    driver.sources.insert(number, bytes.clone());
                    let job = TransferJob::Put(put(server, number, &name, &bytes));
                    files.push((number, name, bytes));
                    job
                })
                .collect();
            driver.run(jobs);
            let mut failures = failed(&driver);
            failures.sort_unstable();
            assert_eq!(failures, rejected, "{mode:?}");
            for (number, name, bytes) in files
                .iter()
                .filter(|(number, ..)| !rejected.contains(number))
            {
                assert!(
                    server.read(name).as_ref() == Some(bytes),
                    "{mode:?}: {number} is another file"
                );
            }
            assert!(
                server.names().iter().all(|name| !name.ends_with(".part")),
                "{:?}",
                server.names()
            );
        }
    });
}

/// Behind a firewall a server has few ports. It soon reuses the port of a rejected file for a later
/// one, before the client knows.
#[test]
fn reusing_the_port_of_a_rejected_file_does_not_mix_up_bytes() {
    match GlobusServer::start_with(Some(3)) {
        Ok(server) => {
            let mut driver = session(&server, Mode::Stream, 1, 16);
            driver.replies_bytes = 16;
            let is_rejected = |number: u64| number % 4 == 1;
            let jobs = (0..60_u64)
                .map(|number| {
                    let directory = if is_rejected(number) { "none/" } else { "" };
                    let bytes = content(number, 3000);
                    driver.sources.insert(number, bytes.clone());
                    TransferJob::Put(put(
                        &server,
                        number,
                        &format!("{directory}{number}"),
                        &bytes,
                    ))
                })
                .collect();
            driver.run(jobs);
            let mut failures = failed(&driver);
            failures.sort_unstable();
            let rejected: Vec<u64> = (0..60).filter(|&number| is_rejected(number)).collect();
            assert_eq!(failures, rejected, "{driver}");
            for number in (0..60).filter(|&number| !is_rejected(number)) {
                let found = server.read(&number.to_string());
                assert!(found == Some(content(number, 3000)), "{number}: {driver}");
            }
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

/// Shows that the rule above is needed. Sends commands and bytes of three files in one flight, like
/// a client that checks each reply separately.
#[test]
fn the_server_stores_the_bytes_of_a_rejected_file_under_the_name_of_the_next() {
    with_server(|server| {
        let mut control = BufReader::new(TcpStream::connect(server.address).expect("it listens"));
        let stall_timeout = Some(Duration::from_secs(20));
        control
            .get_ref()
            .set_read_timeout(stall_timeout)
            .expect("a socket");
        let mut final_reply = |command: Option<String>| {
            if let Some(command) = command {
                let line = format!("{command}\r\n");
                control
                    .get_mut()
                    .write_all(line.as_bytes())
                    .expect("it reads");
            }
            let mut collector = ReplyCollector::default();
            loop {
                let mut line = String::new();
                control.read_line(&mut line).expect("a reply");
                let collected = collector.line(line.trim_end().as_bytes(), false);
                if let ReplyEvent::Reply(reply) = collected.expect("a reply")
                    && !reply.is_preliminary()
                {
                    return reply;
                }
            }
        };
        final_reply(None);
        for command in ["USER anonymous", "PASS x@", "TYPE I", "MODE E"] {
            final_reply(Some(command.to_owned()));
        }
        let text = final_reply(Some("PASV".to_owned())).to_string();
        let inside = text.split(['(', ')']).nth(1).expect("an address");
        let address = parse_host_port(inside.as_bytes()).expect("an address");
        let mut data = TcpStream::connect(address).expect("it listens");
        for name in ["a", "b", "c"] {
            let mut sender = BlockSender::new([0], 100);
            sender.admit(&ByteRanges::from_range(0..1), 0);
            while let Some(chunk) = sender.poll(0) {
                let bytes = match chunk {
                    OutgoingBlock::Block { header, .. } => [&header[..], name.as_bytes()].concat(),
                    OutgoingBlock::End { header, .. } => header.to_vec(),
                };
                data.write_all(&bytes).expect("it reads");
            }
        }
        let stored = ["a", "no-such-directory/b", "c"].map(|name| {
            let path = server.directory.path().join(name);
            final_reply(Some(format!("STOR {}", path.display()))).is_success()
        });
        assert_eq!(stored, [true, false, true]);
        assert_eq!(server.read("c").as_deref(), Some(&b"b"[..]));
    });
}

#[test]
fn three_missing_of_two_hundred_pipelined_downloads_do_not_affect_the_others() {
    with_server(|server| {
        for (mode, connections) in [(Mode::Extended, 1), (Mode::Extended, 4), (Mode::Stream, 1)] {
            let mut driver = session(server, mode, connections, 64);
            let missing = [0, 77, 78];
            let jobs = (0..200_u64)
                .map(|number| {
                    let name = format!("{number}");
                    if !missing.contains(&number) {
                        server.write(&name, &content(number, 3000));
                    }
                    TransferJob::Get(get(
                        number,
                        server.path(&if missing.contains(&number) {
                            format!("none{number}")
                        } else {
                            name
                        }),
                        Some(3000),
                    ))
                })
                .collect();
            driver.run(jobs);
            let mut failures = failed(&driver);
            failures.sort_unstable();
            assert_eq!(failures, missing, "{mode:?}");
            for number in (0..200).filter(|number| !missing.contains(number)) {
                assert!(
                    driver.sinks[&number] == content(number, 3000),
                    "{mode:?} {number}"
                );
            }
        }
    });
}

#[test]
fn a_directory_requested_as_a_file_fails_without_affecting_other_files() {
    with_server(|server| {
        fs::create_dir(server.directory.path().join("directory")).expect("a directory");
        open_to_all(&server.directory.path().join("directory"));
        server.write("file", &content(1, 300_000));
        let mut driver = session(server, Mode::Extended, 2, 16);
        let names = ["file", "directory", "file", "file"];
        let jobs = (0..)
            .zip(names)
            .map(|(number, name)| {
                TransferJob::Get(get(
                    number,
                    server.path(name),
                    (name == "file").then_some(300_000),
                ))
            })
            .collect();
        driver.run(jobs);
        assert_eq!(failed(&driver), [1], "{:?}", driver.received_replies);
        for number in [0, 2, 3] {
            assert!(driver.sinks[&number] == content(1, 300_000), "{number}");
        }
    });
}

#[test]
fn bytes_of_a_rejected_upload_are_not_written_into_an_existing_file() {
    with_server(|server| {
        let (bytes, other) = (content(1, 1_000_000), content(2, 900_000));
        for connections in [1, 4] {
            let mut driver = session(server, Mode::Extended, connections, 8);
            server.write("kept.part", &bytes);
            driver.sources.insert(1, bytes.clone());
            driver.sources.insert(2, other.clone());
            let rejected = Put {
                temporary: Some(server.path("nowhere/x.part")),
                ..put(server, 2, "x", &other)
            };
            let part = Put {
                path: server.path("kept.part"),
                temporary: None,
                size_bytes: 100_000,
                modify_s: None,
                part: Some(50_000),
                ..put(server, 1, "kept", &bytes)
            };
            driver.run(vec![TransferJob::Put(rejected), TransferJob::Put(part)]);
            assert_eq!(failed(&driver), [2], "{:?}", driver.received_replies);
            assert!(server.read("kept.part") == Some(bytes.clone()));
        }
    });
}

#[test]
fn a_missing_file_does_not_shift_a_pipelined_copy_between_two_servers() {
    with_server(|source| {
        with_server(|destination| {
            for (mode, connections) in [(Mode::Extended, 2), (Mode::Stream, 1)] {
                let pairs = (0..20)
                    .map(|number| {
                        if number != 4 {
                            source.write(&format!("{number}"), &content(number, 2000));
                        }
                        let to = |end: &str| destination.path(&format!("{mode:?}-{number}{end}"));
                        CopyPair {
                            transfer: number,
                            from: source.path(&format!("{number}")),
                            to: to(""),
                            temporary: to(".part"),
                            size_bytes: Some(2000),
                        }
                    })
                    .collect();
                let mut copies =
                    ThirdParty::new(pairs, mode, 8, 3, destination.address.ip(), false);
                let open =
                    || [source, destination].map(|server| session(server, mode, connections, 1));
                let mut sessions = open();
                let mut ended = Vec::new();
                let start = Instant::now();
                while !copies.is_done() || ended.len() < 20 {
                    assert!(
                        start.elapsed() < Duration::from_secs(30),
                        "told of {ended:?}"
                    );
                    match relay(&mut copies, &mut sessions) {
                        Some(ThirdPartyOutput::Reopen) => {
                            sessions = open();
                            copies.reopened();
                        }
                        Some(ThirdPartyOutput::Done { transfer }) => ended.push((transfer, true)),
                        Some(ThirdPartyOutput::Failed { transfer, .. }) => {
                            ended.push((transfer, false))
                        }
                        _ => {}
                    }
                }
                for number in 0..20 {
                    let found = destination.read(&format!("{mode:?}-{number}"));
                    let expected = (number != 4).then(|| content(number, 2000));
                    assert!(found == expected, "{mode:?} {number}");
                    assert!(ended.contains(&(number, number != 4)), "{mode:?} {number}");
                }
            }
        });
    });
}
