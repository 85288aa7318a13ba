//! What an unmodified globus-gridftp-server refuses, or lacks: no other file has a wrong byte.

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
use globus_server::{Server, open_to_all};
use globus_session::{failed, get, put, session, with_server};
use venturi_gridftp::address::parse_host_port;
use venturi_gridftp::client::{Job, Pair, Put, ThirdParty, ThirdPartyOutput};
use venturi_gridftp::mode_e::{Chunk, Sender};
use venturi_gridftp::{ByteRanges, Collected, Mode, ReplyCollector};

#[test]
fn of_two_hundred_pipelined_uploads_three_are_refused_and_no_other_has_a_wrong_byte() {
    with_server(|server| {
        for (mode, connections, equal) in [
            (Mode::Extended, 1, true),
            (Mode::Extended, 3, false),
            (Mode::Stream, 1, true),
        ] {
            let mut driver = session(server, mode, connections, 64);
            let refused = [0, 77, 78];
            let mut files = Vec::new();
            let jobs = (0..200)
                .map(|number| {
                    let name = if refused.contains(&number) {
                        format!("no-such-directory/{number}")
                    } else {
                        format!("{mode:?}-{number}")
                    };
                    // Of equal sizes only the content tells one file from its neighbour.
                    let size = if equal {
                        3000
                    } else {
                        (number as usize * 37) % 5000
                    };
                    let bytes = content(number, size);
                    driver.sources.insert(number, bytes.clone());
                    let job = Job::Put(put(server, number, &name, &bytes));
                    files.push((number, name, bytes));
                    job
                })
                .collect();
            driver.carry_out(jobs);
            let mut given_up = failed(&driver);
            given_up.sort_unstable();
            assert_eq!(given_up, refused, "{mode:?}");
            for (number, name, bytes) in files
                .iter()
                .filter(|(number, ..)| !refused.contains(number))
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

/// A firewall leaves a server few ports: soon it opens that of a refused file again for one of the next, before the client
/// knows.
#[test]
fn a_server_that_gives_a_file_the_port_of_a_refused_one_mixes_up_no_bytes() {
    match Server::start_with(Some(3)) {
        Ok(server) => {
            let mut driver = session(&server, Mode::Stream, 1, 16);
            driver.replies_bytes = 16;
            let is_refused = |number: u64| number % 4 == 1;
            let jobs = (0..60_u64)
                .map(|number| {
                    let directory = if is_refused(number) { "none/" } else { "" };
                    let bytes = content(number, 3000);
                    driver.sources.insert(number, bytes.clone());
                    Job::Put(put(
                        &server,
                        number,
                        &format!("{directory}{number}"),
                        &bytes,
                    ))
                })
                .collect();
            driver.carry_out(jobs);
            let mut given_up = failed(&driver);
            given_up.sort_unstable();
            let refused: Vec<u64> = (0..60).filter(|&number| is_refused(number)).collect();
            assert_eq!(given_up, refused, "{driver}");
            for number in (0..60).filter(|&number| !is_refused(number)) {
                let found = server.read(&number.to_string());
                assert!(found == Some(content(number, 3000)), "{number}: {driver}");
            }
        }
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

/// That the rule above is needed: commands and bytes of three files in one go, as a client would send them that looks at
/// each reply alone.
#[test]
fn this_server_stores_the_bytes_of_a_refused_file_under_the_name_of_the_next() {
    with_server(|server| {
        let mut control = BufReader::new(TcpStream::connect(server.address).expect("it listens"));
        let patience = Some(Duration::from_secs(20));
        control
            .get_ref()
            .set_read_timeout(patience)
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
                if let Collected::Reply(reply) = collected.expect("a reply")
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
            let mut sender = Sender::new([0], 100);
            sender.admit(&ByteRanges::of(0..1), 0);
            while let Some(chunk) = sender.poll(0) {
                let bytes = match chunk {
                    Chunk::Block { header, .. } => [&header[..], name.as_bytes()].concat(),
                    Chunk::End { header, .. } => header.to_vec(),
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
fn of_two_hundred_pipelined_downloads_three_are_missing_and_the_others_are_whole() {
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
                    Job::Get(get(
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
            driver.carry_out(jobs);
            let mut given_up = failed(&driver);
            given_up.sort_unstable();
            assert_eq!(given_up, missing, "{mode:?}");
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
fn a_directory_in_the_place_of_a_file_fails_after_it_began_and_costs_only_itself() {
    with_server(|server| {
        fs::create_dir(server.directory.path().join("directory")).expect("a directory");
        open_to_all(&server.directory.path().join("directory"));
        server.write("file", &content(1, 300_000));
        let mut driver = session(server, Mode::Extended, 2, 16);
        let names = ["file", "directory", "file", "file"];
        let jobs = (0..)
            .zip(names)
            .map(|(number, name)| {
                Job::Get(get(
                    number,
                    server.path(name),
                    (name == "file").then_some(300_000),
                ))
            })
            .collect();
        driver.carry_out(jobs);
        assert_eq!(failed(&driver), [1], "{:?}", driver.heard);
        for number in [0, 2, 3] {
            assert!(driver.sinks[&number] == content(1, 300_000), "{number}");
        }
    });
}

#[test]
fn what_a_server_refuses_goes_into_no_file_that_has_bytes_already() {
    with_server(|server| {
        let (bytes, other) = (content(1, 1_000_000), content(2, 900_000));
        for connections in [1, 4] {
            let mut driver = session(server, Mode::Extended, connections, 8);
            server.write("kept.part", &bytes);
            driver.sources.insert(1, bytes.clone());
            driver.sources.insert(2, other.clone());
            let refused = Put {
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
            driver.carry_out(vec![Job::Put(refused), Job::Put(part)]);
            assert_eq!(failed(&driver), [2], "{:?}", driver.heard);
            assert!(server.read("kept.part") == Some(bytes.clone()));
        }
    });
}

#[test]
fn two_servers_copy_a_pipeline_of_files_and_a_missing_one_shifts_nothing() {
    with_server(|source| {
        with_server(|destination| {
            for (mode, connections) in [(Mode::Extended, 2), (Mode::Stream, 1)] {
                let pairs = (0..20)
                    .map(|number| {
                        if number != 4 {
                            source.write(&format!("{number}"), &content(number, 2000));
                        }
                        let to = |end: &str| destination.path(&format!("{mode:?}-{number}{end}"));
                        Pair {
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
                let begin = Instant::now();
                while !copies.is_done() || ended.len() < 20 {
                    assert!(
                        begin.elapsed() < Duration::from_secs(30),
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
