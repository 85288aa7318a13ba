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
use venturi_gridftp::client::{
    ClientOutput, ClientSettings, Get, GetSource, Put, TransferDirection, TransferJob, UploadMode,
};
use venturi_gridftp::{ByteRanges, ListEntry, Mode, Path};

/// Sizes around the block sizes of both sides, and zero.
const SIZES: [usize; 8] = [0, 1, 99_999, 262_144, 262_145, 17, 1_000_003, 3];

#[test]
fn files_round_trip_in_both_modes_over_one_and_four_connections() {
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
                    TransferJob::Put(put(server, *number, name, bytes))
                })
                .collect();
            driver.run(puts);
            assert_eq!(
                failed(&driver),
                [],
                "{mode:?} {connections} {depth}: {:?}",
                driver.received_replies
            );
            for (_, name, bytes) in &files {
                assert_eq!(server.read(name).as_ref(), Some(bytes), "{name}");
            }
            let gets = files
                .iter()
                .map(|(number, name, bytes)| {
                    TransferJob::Get(get(
                        100 + number,
                        server.path(name),
                        Some(bytes.len() as u64),
                    ))
                })
                .collect();
            driver.run(gets);
            assert_eq!(
                failed(&driver),
                [],
                "{mode:?} {connections} {depth}: {:?}",
                driver.received_replies
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
fn connections_can_be_added_before_a_download_is_requested() {
    with_server(|server| {
        let bytes = content(1, 3_000_000);
        server.write("wide", &bytes);
        let mut driver = Driver::connect(server.address, settings(Mode::Extended, 1, 64));
        // The connections are requested during login, before the file size is known.
        driver.client.prepare(TransferDirection::Receive);
        driver.ready();
        assert!(driver.client.widen(4) && !driver.client.widen(4));
        let size = Some(bytes.len() as u64);
        driver.run(vec![TransferJob::Get(get(1, server.path("wide"), size))]);
        assert_eq!((failed(&driver), driver.connections()), (vec![], 4));
        assert!(driver.sinks[&1] == bytes);
    });
}

#[test]
fn a_download_resumes_and_a_region_is_stored_at_its_offset() {
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
            driver.run(vec![TransferJob::Get(whole)]);
            assert_eq!(failed(&driver), [], "{:?}", driver.received_replies);
            assert!(driver.sinks[&0] == bytes, "{mode:?}");
            let source = GetSource::Region {
                offset: 123_456,
                length: 400_000,
            };
            let region = Get {
                source,
                ..get(1, server.path("file"), Some(1_000_000))
            };
            driver.run(vec![TransferJob::Get(region)]);
            assert_eq!(failed(&driver), [], "{:?}", driver.received_replies);
            assert!(
                driver.sinks[&1][123_456..] == bytes[123_456..523_456],
                "{mode:?}"
            );
        }
        // Upload: a temporary file contains the first third.
        let mut driver = session(server, Mode::Extended, 1, 4);
        server.write("up.part", &bytes[..333_333]);
        driver.sources.insert(9, bytes.clone());
        let rest = Put {
            present: ByteRanges::from_range(0..333_333),
            ..put(server, 9, "up", &bytes)
        };
        driver.run(vec![TransferJob::Put(rest)]);
        assert!(server.read("up") == Some(bytes.clone()));
        // Upload parts in any order, in place, then rename the complete file.
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
            driver.run(vec![TransferJob::Put(part)]);
        }
        assert!(server.read("whole.part") == Some(bytes.clone()));
        driver.sources.insert(12, bytes.clone());
        let name = Put {
            present: ByteRanges::from_range(0..bytes.len() as u64),
            ..put(server, 12, "whole", &bytes)
        };
        driver.run(vec![TransferJob::Put(name)]);
        assert!(server.read("whole") == Some(bytes.clone()));
        // A repeated rename succeeds if the session was lost before the reply, but not for another
        // file.
        let name = |transfer, modify_s| {
            let name = put(server, transfer, "whole", &bytes);
            let present = ByteRanges::from_range(0..bytes.len() as u64);
            let modify_s = Some(modify_s);
            vec![TransferJob::Put(Put {
                present,
                modify_s,
                ..name
            })]
        };
        driver.run(name(13, 1_700_000_012));
        assert_eq!(failed(&driver), [], "{:?}", driver.received_replies);
        driver.run(name(14, 1_700_000_013));
        assert_eq!(failed(&driver), [14], "{:?}", driver.received_replies);
        assert!(server.read("whole") == Some(bytes.clone()));
        assert_eq!(server.read("whole.part"), None);
        // A file that cannot be renamed keeps its temporary name.
        server.write("lost.part", &bytes);
        let unnamed = Put {
            path: server.path("nowhere/lost"),
            present: ByteRanges::from_range(0..bytes.len() as u64),
            ..put(server, 15, "lost", &bytes)
        };
        driver.run(vec![TransferJob::Put(unnamed)]);
        assert_eq!(failed(&driver), [14, 15], "{:?}", driver.received_replies);
        assert!(server.read("lost.part") == Some(bytes));
    });
}

#[test]
fn listings_work_over_control_and_data_connections() {
    with_server(|server| {
        for name in ["a", "b c", ";d"] {
            server.write(name, name.as_bytes());
        }
        let mut names = server.names();
        names.sort();
        let sorted = |lines: Vec<Vec<u8>>| {
            let entries = lines
                .iter()
                .map(|line| ListEntry::parse(line).expect("an entry"));
            let mut found: Vec<_> = entries
                .filter(ListEntry::is_inside)
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
            let command = venturi_gridftp::FtpCommand::Mlsc(Some(directory.clone()));
            driver.client.request(Duration::ZERO, 7, command);
            driver.until(|driver| {
                driver
                    .received_replies
                    .iter()
                    .any(|output| matches!(output, ClientOutput::Reply { request: 7, .. }))
            });
            let lines = driver
                .received_replies
                .iter()
                .filter_map(|output| match output {
                    ClientOutput::Line { request: 7, text } => Some(text.clone()),
                    _ => None,
                });
            assert_eq!(sorted(lines.collect()), names);
            let listing = Get {
                source: GetSource::Directory,
                ..get(1, directory.clone(), None)
            };
            driver.run(vec![TransferJob::Get(listing)]);
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
fn an_upload_keeps_its_modification_time_and_a_wrong_checksum_is_detected() {
    with_server(|server| {
        let mut driver = session(server, Mode::Extended, 1, 8);
        let bytes = b"abc".to_vec();
        for number in 0..3 {
            driver.sources.insert(number, bytes.clone());
        }
        // ADLER32 of `abc` by RFC 1950: a = 1 + 97 + 98 + 99 = 295, b = 98 + 196 + 295 = 589.
        let job = |number: u64, name: &str, value: &str| {
            let checksum = Some(("ADLER32".to_owned(), value.to_owned()));
            TransferJob::Put(Put {
                checksum,
                ..put(server, number, name, &bytes)
            })
        };
        driver.run(vec![
            job(0, "a", "024d0127"),
            job(1, "b", "11111111"),
            job(2, "c", "024d0127"),
        ]);
        assert_eq!(failed(&driver), [1], "{:?}", driver.received_replies);
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
fn uploads_without_a_temporary_name_and_in_gated_sessions_succeed() {
    with_server(|server| {
        for mode in [Mode::Stream, Mode::Extended] {
            let gated = ClientSettings {
                upload: Some(UploadMode::Gated),
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
                    TransferJob::Put(Put {
                        temporary,
                        ..put(server, number, name, &bytes)
                    })
                })
                .collect();
            driver.run(jobs);
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
