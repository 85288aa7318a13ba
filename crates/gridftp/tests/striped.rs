//! The client against a striped server of the Globus toolkit: a front end, and data nodes that share each file.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a real server, which may never answer"
)]

mod content;
mod driver;
mod globus_server;
mod globus_session;

use std::time::{Duration, Instant};

use content::content;
use driver::Driver;
use driver::relay::relay;
use globus_server::Server;
use globus_session::{opened, settings};
use venturi_gridftp::client::{
    Get, Job, Output, Pair, Put, Settings, Source, ThirdParty, ThirdPartyOutput,
};
use venturi_gridftp::{ByteRanges, Mode};

/// Around the blocks of both sides, none at all, and enough for all nodes.
const SIZES: [usize; 9] = [0, 1, 99_999, 262_144, 262_145, 17, 3_000_003, 3, 5_000_000];

fn session(server: &Server, mode: Mode, connections: u16, depth: usize) -> Driver {
    let settings = Settings {
        striped: true,
        ..settings(mode, connections, depth)
    };
    opened(server, settings)
}

fn all_done(driver: &Driver, count: usize) {
    let done = |output: &&Output| matches!(output, Output::Done { .. });
    assert_eq!(
        driver.heard.iter().filter(done).count(),
        count,
        "{:?}",
        driver.heard
    );
}

/// Files up and down again; what the server logged of each.
fn there_and_back(server: &Server, driver: &mut Driver, round: usize) -> Vec<String> {
    let files: Vec<(u64, Vec<u8>)> = (0..)
        .zip(SIZES)
        .map(|(number, size)| (number, content(number, size)))
        .collect();
    let name = |number: u64| format!("{round}-{number}");
    let puts = files.iter().map(|(number, bytes)| {
        driver.sources.insert(*number, bytes.clone());
        Job::Put(Put {
            transfer: *number,
            path: server.path(&name(*number)),
            temporary: Some(server.path(&format!("{}.part", name(*number)))),
            size_bytes: bytes.len() as u64,
            checksum: None,
            modify_s: None,
            present: ByteRanges::default(),
            part: None,
            goes_on: false,
        })
    });
    let puts = puts.collect();
    driver.carry_out(puts);
    all_done(driver, SIZES.len());
    for (number, bytes) in &files {
        assert_eq!(
            server.read(&name(*number)).as_ref(),
            Some(bytes),
            "{}",
            name(*number)
        );
    }
    let gets = files.iter().map(|(number, bytes)| {
        Job::Get(Get {
            transfer: 100 + number,
            source: Source::File,
            path: server.path(&name(*number)),
            size_bytes: Some(bytes.len() as u64),
            present: ByteRanges::default(),
            see: false,
        })
    });
    driver.carry_out(gets.collect());
    all_done(driver, 2 * SIZES.len());
    for (number, bytes) in &files {
        let found = driver
            .sinks
            .get(&(100 + number))
            .map_or(&[][..], Vec::as_slice);
        assert!(found == bytes, "{}: {} bytes", name(*number), found.len());
    }
    let log = server
        .read("log")
        .map(|log| String::from_utf8(log).expect("text"));
    log.unwrap_or_default()
        .lines()
        .filter(|line| line.contains(&format!("/{round}-")))
        .map(str::to_owned)
        .collect()
}

#[test]
fn all_data_nodes_move_each_file_one_after_the_other_and_in_a_pipeline() {
    let server = match Server::start_striped(3) {
        Ok(server) => server,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    for (round, (connections, depth)) in [(1, 1), (1, 32), (3, 32)].into_iter().enumerate() {
        let mut driver = session(&server, Mode::Extended, connections, depth);
        let logged = there_and_back(&server, &mut driver, round);
        assert_eq!(logged.len(), 2 * SIZES.len(), "{logged:#?}");
        for line in logged {
            assert!(line.contains(" STRIPES=3 "), "{line}");
        }
    }
}

#[test]
fn a_directory_is_listed_between_files_and_what_is_missing_of_one_goes_on() {
    let server = match Server::start_striped(2) {
        Ok(server) => server,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let bytes = content(7, 4_000_000);
    server.write("whole", &bytes);
    let mut driver = session(&server, Mode::Extended, 2, 16);
    let get = |transfer, source, name, present| {
        Job::Get(Get {
            transfer,
            source,
            path: server.path(name),
            size_bytes: (source == Source::File).then_some(bytes.len() as u64),
            present,
            see: false,
        })
    };
    let present = ByteRanges::of(1_000_000..3_000_000);
    driver.carry_out(vec![
        get(0, Source::File, "whole", ByteRanges::default()),
        get(1, Source::Directory, "", ByteRanges::default()),
        get(2, Source::File, "whole", present),
        get(3, Source::File, "missing", ByteRanges::default()),
        get(4, Source::File, "whole", ByteRanges::default()),
    ]);
    all_done(&driver, 4);
    let failed = |output: &Output| matches!(output, Output::Failed { transfer: 3, .. });
    assert!(driver.heard.iter().any(failed));
    assert!(driver.sinks[&0] == bytes && driver.sinks[&4] == bytes);
    let rest = &driver.sinks[&2];
    assert!(rest[..1_000_000] == bytes[..1_000_000] && rest[3_000_000..] == bytes[3_000_000..]);
    let listing = String::from_utf8_lossy(&driver.sinks[&1]);
    assert!(listing.contains(" whole\r\n"), "{listing}");
}

#[test]
fn files_go_from_all_nodes_of_one_server_to_all_of_another() {
    let servers = (Server::start_striped(2), Server::start_striped(3));
    let (Ok(source), Ok(destination)) = servers else {
        return println!("SKIPPED: no server");
    };
    let contents: Vec<_> = (0..)
        .zip(SIZES)
        .map(|(number, size)| content(number, size))
        .collect();
    let pairs = (0..).zip(&contents).map(|(transfer, bytes)| {
        source.write(&format!("from-{transfer}"), bytes);
        Pair {
            transfer,
            from: source.path(&format!("from-{transfer}")),
            to: destination.path(&format!("to-{transfer}")),
            temporary: destination.path(&format!("to-{transfer}.part")),
            size_bytes: Some(bytes.len() as u64),
        }
    });
    let pairs = pairs.collect();
    let mut sides = [&source, &destination].map(|server| session(server, Mode::Extended, 2, 8));
    let mut copies = ThirdParty::new(pairs, Mode::Extended, 8, 2, destination.address.ip(), true);
    let (mut told, begin) = (Vec::new(), Instant::now());
    while told.len() < SIZES.len() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{told:?}");
        told.extend(relay(&mut copies, &mut sides));
    }
    for output in told {
        assert!(
            matches!(output, ThirdPartyOutput::Done { .. }),
            "{output:?}"
        );
    }
    for (number, bytes) in contents.iter().enumerate() {
        assert_eq!(
            destination.read(&format!("to-{number}")).as_ref(),
            Some(bytes),
            "{number}"
        );
    }
    let log = destination.read("log").expect("a log");
    let log = String::from_utf8_lossy(&log);
    let stored = log.lines().filter(|line| line.contains(" STRIPES=3 "));
    assert_eq!(stored.count(), SIZES.len(), "{log}");
}

#[test]
fn a_server_with_one_node_and_a_session_in_mode_s_are_as_ever() {
    let servers = (Server::start_striped(1), Server::start());
    let (Ok(one), Ok(plain)) = servers else {
        return println!("SKIPPED: no server");
    };
    for (server, mode) in [
        (&one, Mode::Extended),
        (&plain, Mode::Extended),
        (&plain, Mode::Stream),
    ] {
        let mut driver = session(server, mode, 2, 8);
        there_and_back(server, &mut driver, 0);
    }
}
