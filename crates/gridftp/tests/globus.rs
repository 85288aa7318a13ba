//! The client against an unmodified globus-gridftp-server, over loopback.

mod content;
mod driver;
mod globus_server;
mod globus_session;

use std::fs;
use std::time::Duration;

use content::content;
use driver::Driver;
use globus_session::{failed, get, put, session, settings, with_server};
use venturi_gridftp::client::{Direction, Get, Job, Output, Put, Settings, Source, Upload};
use venturi_gridftp::{ByteRanges, Entry, Mode, Path};

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
