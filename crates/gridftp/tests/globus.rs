//! The client against an unmodified globus-gridftp-server, over loopback.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a real server, and the files that it has"
)]

mod content;
mod driver;
mod globus_server;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use content::content;
use driver::Driver;
use driver::relay::relay;
use globus_server::{Server, open_to_all};
use venturi_gridftp::address::parse_host_port;
use venturi_gridftp::client::{
    Direction, Get, Job, Login, Output, Pair, Put, Settings, Source, ThirdParty, ThirdPartyOutput,
    Upload,
};
use venturi_gridftp::mode_e::{Chunk, Sender};
use venturi_gridftp::{ByteRanges, Collected, Entry, Mode, Path, ReplyCollector};

fn with_server(test: impl FnOnce(&Server)) {
    match Server::start() {
        Ok(server) => test(&server),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

fn settings(mode: Mode, connections: u16, depth: usize) -> Settings {
    Settings {
        login: Login::Anonymous,
        server: "127.0.0.1".parse().expect("an address"),
        mode,
        connections,
        depth,
        block_bytes: 100_000,
        buffer_bytes: None,
        data: None,
        upload: None,
        attempts: 3,
        striped: false,
        patience: Duration::from_secs(20),
    }
}

fn session(server: &Server, mode: Mode, connections: u16, depth: usize) -> Driver {
    let mut driver = Driver::connect(server.address, settings(mode, connections, depth));
    driver.ready();
    assert_eq!(driver.client.mode(), mode);
    driver
}

fn get(transfer: u64, path: Path, size_bytes: Option<u64>) -> Get {
    Get {
        transfer,
        source: Source::File,
        path,
        size_bytes,
        present: ByteRanges::default(),
    }
}

fn put(server: &Server, transfer: u64, name: &str, bytes: &[u8]) -> Put {
    Put {
        transfer,
        path: server.path(name),
        temporary: Some(server.path(&format!("{name}.part"))),
        size_bytes: bytes.len() as u64,
        checksum: None,
        modify_s: Some(1_700_000_000 + transfer as i64),
        present: ByteRanges::default(),
        part: None,
    }
}

fn failed(driver: &Driver) -> Vec<u64> {
    driver
        .heard
        .iter()
        .filter_map(|output| match output {
            Output::Failed { transfer, .. } => Some(*transfer),
            _ => None,
        })
        .collect()
}

/// Around the block sizes of both sides, and none at all.
const SIZES: [usize; 8] = [0, 1, 99_999, 262_144, 262_145, 17, 1_000_003, 3];

#[test]
fn files_come_back_as_they_went_in_both_modes_over_one_and_four_connections() {
    with_server(|server| {
        for (mode, connections, depth) in [
            (Mode::Stream, 1, 1),
            (Mode::Stream, 1, 16),
            (Mode::Extended, 1, 1),
            (Mode::Extended, 1, 64),
            (Mode::Extended, 4, 64),
        ] {
            let mut driver = session(server, mode, connections, depth);
            let files: Vec<(u64, String, Vec<u8>)> = (0..)
                .zip(SIZES)
                .map(|(number, size)| {
                    (
                        number,
                        format!("{mode:?}-{connections}-{depth}-{number}"),
                        content(number, size),
                    )
                })
                .collect();
            let puts = files
                .iter()
                .map(|(number, name, bytes)| {
                    driver.sources.insert(*number, bytes.clone());
                    Job::Put(put(server, *number, name, bytes))
                })
                .collect();
            driver.carry_out(puts);
            assert_eq!(
                failed(&driver),
                [],
                "{mode:?} {connections} {depth}: {:?}",
                driver.heard
            );
            for (_, name, bytes) in &files {
                assert_eq!(server.read(name).as_ref(), Some(bytes), "{name}");
            }
            let gets = files
                .iter()
                .map(|(number, name, bytes)| {
                    Job::Get(get(
                        100 + number,
                        server.path(name),
                        Some(bytes.len() as u64),
                    ))
                })
                .collect();
            driver.carry_out(gets);
            assert_eq!(
                failed(&driver),
                [],
                "{mode:?} {connections} {depth}: {:?}",
                driver.heard
            );
            for (number, name, bytes) in &files {
                let found = driver
                    .sinks
                    .get(&(100 + number))
                    .map_or(&[][..], Vec::as_slice);
                assert!(
                    found == bytes,
                    "{name}: {} of {} bytes",
                    found.len(),
                    bytes.len()
                );
            }
        }
        assert!(server.names().iter().all(|name| !name.ends_with(".part")));
    });
}

#[test]
fn a_file_comes_over_as_many_connections_as_are_wanted_when_it_is_asked_for() {
    with_server(|server| {
        let bytes = content(1, 3_000_000);
        server.write("wide", &bytes);
        let mut driver = Driver::connect(server.address, settings(Mode::Extended, 1, 64));
        // They are asked for with the login, before it is known how large the file is.
        driver.client.prepare(Direction::Receive);
        driver.ready();
        assert!(driver.client.widen(4) && !driver.client.widen(4));
        let size = Some(bytes.len() as u64);
        driver.carry_out(vec![Job::Get(get(1, server.path("wide"), size))]);
        assert_eq!((failed(&driver), driver.connections()), (vec![], 4));
        assert!(driver.sinks[&1] == bytes);
    });
}

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
fn a_transfer_goes_on_where_it_was_and_a_region_lies_where_it_belongs() {
    with_server(|server| {
        let bytes = content(5, 1_000_000);
        server.write("file", &bytes);
        for (mode, present) in [
            (Mode::Stream, "0-300001"),
            (Mode::Extended, "0-10,300000-600001,999999-1000000"),
        ] {
            let mut driver = session(server, mode, 1, 4);
            let present = ByteRanges::parse(present.as_bytes()).expect("ranges");
            let mut sink = vec![0; bytes.len()];
            for range in present.iter() {
                let range = range.start as usize..range.end as usize;
                sink[range.clone()].copy_from_slice(&bytes[range]);
            }
            driver.sinks.insert(0, sink);
            let whole = Get {
                present,
                ..get(0, server.path("file"), Some(1_000_000))
            };
            driver.carry_out(vec![Job::Get(whole)]);
            assert_eq!(failed(&driver), [], "{:?}", driver.heard);
            assert!(driver.sinks[&0] == bytes, "{mode:?}");
            let source = Source::Region {
                offset: 123_456,
                length: 400_000,
            };
            let region = Get {
                source,
                ..get(1, server.path("file"), Some(1_000_000))
            };
            driver.carry_out(vec![Job::Get(region)]);
            assert_eq!(failed(&driver), [], "{:?}", driver.heard);
            assert!(
                driver.sinks[&1][123_456..] == bytes[123_456..523_456],
                "{mode:?}"
            );
        }
        // Upload: a temporary file that has the first third.
        let mut driver = session(server, Mode::Extended, 1, 4);
        server.write("up.part", &bytes[..333_333]);
        driver.sources.insert(9, bytes.clone());
        let rest = Put {
            present: ByteRanges::of(0..333_333),
            ..put(server, 9, "up", &bytes)
        };
        driver.carry_out(vec![Job::Put(rest)]);
        assert!(server.read("up") == Some(bytes.clone()));
        // Parts in any order, in place; then all of it is there, and it gets its name.
        for (transfer, range) in [(10, 600_000..bytes.len()), (11, 0..600_000)] {
            driver.sources.insert(transfer, bytes.clone());
            let part = Put {
                path: server.path("whole.part"),
                temporary: None,
                size_bytes: range.len() as u64,
                modify_s: None,
                part: Some(range.start as u64),
                ..put(server, transfer, "whole", &bytes)
            };
            driver.carry_out(vec![Job::Put(part)]);
        }
        assert!(server.read("whole.part") == Some(bytes.clone()));
        driver.sources.insert(12, bytes.clone());
        let name = Put {
            present: ByteRanges::of(0..bytes.len() as u64),
            ..put(server, 12, "whole", &bytes)
        };
        driver.carry_out(vec![Job::Put(name)]);
        assert!(server.read("whole") == Some(bytes.clone()));
        // So it has, if the session was lost before that was told; and not if it is another file.
        let name = |transfer, modify_s| {
            let name = put(server, transfer, "whole", &bytes);
            let present = ByteRanges::of(0..bytes.len() as u64);
            let modify_s = Some(modify_s);
            vec![Job::Put(Put {
                present,
                modify_s,
                ..name
            })]
        };
        driver.carry_out(name(13, 1_700_000_012));
        assert_eq!(failed(&driver), [], "{:?}", driver.heard);
        driver.carry_out(name(14, 1_700_000_013));
        assert_eq!(failed(&driver), [14], "{:?}", driver.heard);
        assert!(server.read("whole") == Some(bytes.clone()));
        assert_eq!(server.read("whole.part"), None);
        // What cannot have its name stays.
        server.write("lost.part", &bytes);
        let unnamed = Put {
            path: server.path("nowhere/lost"),
            present: ByteRanges::of(0..bytes.len() as u64),
            ..put(server, 15, "lost", &bytes)
        };
        driver.carry_out(vec![Job::Put(unnamed)]);
        assert_eq!(failed(&driver), [14, 15], "{:?}", driver.heard);
        assert!(server.read("lost.part") == Some(bytes));
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
fn listings_come_on_the_control_connection_and_on_data_connections() {
    with_server(|server| {
        for name in ["a", "b c", ";d"] {
            server.write(name, name.as_bytes());
        }
        let mut names = server.names();
        names.sort();
        let sorted = |lines: Vec<Vec<u8>>| {
            let entries = lines
                .iter()
                .map(|line| Entry::parse(line).expect("an entry"));
            let mut found: Vec<_> = entries
                .filter(Entry::is_inside)
                .map(|entry| {
                    assert_eq!(entry.size_bytes, Some(entry.name.len() as u64));
                    String::from_utf8(entry.name).expect("text")
                })
                .collect();
            found.sort();
            found
        };
        let directory = Path::new(server.directory.path().to_str().expect("text")).expect("a path");
        for mode in [Mode::Stream, Mode::Extended] {
            let mut driver = session(server, mode, 1, 4);
            let command = venturi_gridftp::Command::Mlsc(Some(directory.clone()));
            driver.client.request(Duration::ZERO, 7, command);
            driver.until(|driver| {
                driver
                    .heard
                    .iter()
                    .any(|output| matches!(output, Output::Answer { request: 7, .. }))
            });
            let lines = driver.heard.iter().filter_map(|output| match output {
                Output::Line { request: 7, text } => Some(text.clone()),
                _ => None,
            });
            assert_eq!(sorted(lines.collect()), names);
            let listing = Get {
                source: Source::Directory,
                ..get(1, directory.clone(), None)
            };
            driver.carry_out(vec![Job::Get(listing)]);
            let lines = driver.sinks[&1]
                .split(|&byte| byte == b'\n')
                .map(|line| line.trim_ascii_end().to_vec());
            assert_eq!(
                sorted(lines.filter(|line| !line.is_empty()).collect()),
                names
            );
        }
    });
}

#[test]
fn an_upload_keeps_its_time_and_a_wrong_checksum_is_caught_by_the_server() {
    with_server(|server| {
        let mut driver = session(server, Mode::Extended, 1, 8);
        let bytes = b"abc".to_vec();
        for number in 0..3 {
            driver.sources.insert(number, bytes.clone());
        }
        // ADLER32 of `abc` by RFC 1950: a = 1 + 97 + 98 + 99 = 295, b = 98 + 196 + 295 = 589.
        let job = |number: u64, name: &str, value: &str| {
            let checksum = Some(("ADLER32".to_owned(), value.to_owned()));
            Job::Put(Put {
                checksum,
                ..put(server, number, name, &bytes)
            })
        };
        driver.carry_out(vec![
            job(0, "a", "024d0127"),
            job(1, "b", "11111111"),
            job(2, "c", "024d0127"),
        ]);
        assert_eq!(failed(&driver), [1], "{:?}", driver.heard);
        assert_eq!(server.names(), ["a", "c"]);
        let modified = fs::metadata(server.directory.path().join("c"))
            .and_then(|file| file.modified())
            .expect("a time");
        let modified = modified
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970");
        assert_eq!(modified.as_secs(), 1_700_000_002);
    });
}

#[test]
fn a_file_without_a_temporary_name_and_a_gated_session_arrive_too() {
    with_server(|server| {
        for mode in [Mode::Stream, Mode::Extended] {
            let gated = Settings {
                upload: Some(Upload::Gated),
                ..settings(mode, 2, 8)
            };
            let mut driver = Driver::connect(server.address, gated);
            driver.ready();
            let names = ["a", "no-such-directory/b", "c", "d"];
            let jobs = (0..)
                .zip(names)
                .map(|(number, name)| {
                    let bytes = content(number, 50_000);
                    driver.sources.insert(number, bytes.clone());
                    let temporary = (name == "c").then(|| server.path("c.part"));
                    Job::Put(Put {
                        temporary,
                        ..put(server, number, name, &bytes)
                    })
                })
                .collect();
            driver.carry_out(jobs);
            assert_eq!(failed(&driver), [1], "{mode:?}");
            for (number, name) in [(0, "a"), (2, "c"), (3, "d")] {
                assert!(
                    server.read(name) == Some(content(number, 50_000)),
                    "{mode:?} {name}"
                );
            }
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
