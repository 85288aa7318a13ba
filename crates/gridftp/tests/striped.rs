//! The client against a striped Globus server: a front end, and data nodes that share each file.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a real server, which may never reply"
)]

mod content;
mod driver;
mod globus_server;
mod globus_session;

use std::time::{Duration, Instant};

use content::content;
use driver::Driver;
use driver::relay::relay;
use globus_server::GlobusServer;
use globus_session::{opened, settings};
use venturi_gridftp::client::{
    ClientOutput, ClientSettings, CopyPair, Get, GetSource, Put, ThirdParty, ThirdPartyOutput,
    TransferJob,
};
use venturi_gridftp::{ByteRanges, Mode};

/// Sizes around the blocks of both sides, zero, and enough for all nodes.
const SIZES: [usize; 9] = [0, 1, 99_999, 262_144, 262_145, 17, 3_000_003, 3, 5_000_000];

fn session(server: &GlobusServer, mode: Mode, connections: u16, depth: usize) -> Driver {
    let settings = ClientSettings {
        striped: true,
        ..settings(mode, connections, depth)
    };
    opened(server, settings)
}

fn all_done(driver: &Driver, count: usize) {
    let done = |output: &&ClientOutput| matches!(output, ClientOutput::Done { .. });
    assert_eq!(
        driver.received_replies.iter().filter(done).count(),
        count,
        "{:?}",
        driver.received_replies
    );
}

/// Uploads and downloads files. Returns the server's log of each.
fn copy_in_both_directions(
    server: &GlobusServer,
    driver: &mut Driver,
    round: usize,
) -> Vec<String> {
    let files: Vec<(u64, Vec<u8>)> = (0..)
        .zip(SIZES)
        .map(|(number, size)| (number, content(number, size)))
        .collect();
    let name = |number: u64| format!("{round}-{number}");
    let puts = files.iter().map(|(number, bytes)| {
        driver.sources.insert(*number, bytes.clone());
        TransferJob::Put(Put {
            transfer: *number,
            path: server.path(&name(*number)),
            temporary: Some(server.path(&format!("{}.part", name(*number)))),
            size_bytes: bytes.len() as u64,
            checksum: None,
            modify_s: None,
            present: ByteRanges::default(),
            part: None,
            resumable: false,
        })
    });
    let puts = puts.collect();
    driver.run(puts);
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
        TransferJob::Get(Get {
            transfer: 100 + number,
            source: GetSource::File,
            path: server.path(&name(*number)),
            size_bytes: Some(bytes.len() as u64),
            present: ByteRanges::default(),
            stat_after: false,
        })
    });
    driver.run(gets.collect());
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
fn all_data_nodes_transfer_each_file_with_and_without_pipelining() {
    let server = match GlobusServer::start_striped(3) {
        Ok(server) => server,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    for (round, (connections, depth)) in [(1, 1), (1, 32), (3, 32)].into_iter().enumerate() {
        let mut driver = session(&server, Mode::Extended, connections, depth);
        let logged = copy_in_both_directions(&server, &mut driver, round);
        assert_eq!(logged.len(), 2 * SIZES.len(), "{logged:#?}");
        for line in logged {
            assert!(line.contains(" STRIPES=3 "), "{line}");
        }
    }
}

#[test]
fn a_directory_is_listed_between_files_and_a_partial_download_resumes() {
    let server = match GlobusServer::start_striped(2) {
        Ok(server) => server,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let bytes = content(7, 4_000_000);
    server.write("whole", &bytes);
    let mut driver = session(&server, Mode::Extended, 2, 16);
    let get = |transfer, source, name, present| {
        TransferJob::Get(Get {
            transfer,
            source,
            path: server.path(name),
            size_bytes: (source == GetSource::File).then_some(bytes.len() as u64),
            present,
            stat_after: false,
        })
    };
    let present = ByteRanges::from_range(1_000_000..3_000_000);
    driver.run(vec![
        get(0, GetSource::File, "whole", ByteRanges::default()),
        get(1, GetSource::Directory, "", ByteRanges::default()),
        get(2, GetSource::File, "whole", present),
        get(3, GetSource::File, "missing", ByteRanges::default()),
        get(4, GetSource::File, "whole", ByteRanges::default()),
    ]);
    all_done(&driver, 4);
    let failed = |output: &ClientOutput| matches!(output, ClientOutput::Failed { transfer: 3, .. });
    assert!(driver.received_replies.iter().any(failed));
    assert!(driver.sinks[&0] == bytes && driver.sinks[&4] == bytes);
    let rest = &driver.sinks[&2];
    assert!(rest[..1_000_000] == bytes[..1_000_000] && rest[3_000_000..] == bytes[3_000_000..]);
    let listing = String::from_utf8_lossy(&driver.sinks[&1]);
    assert!(listing.contains(" whole\r\n"), "{listing}");
}

#[test]
fn files_are_copied_from_all_nodes_of_one_server_to_all_of_another() {
    let servers = (
        GlobusServer::start_striped(2),
        GlobusServer::start_striped(3),
    );
    let (Ok(source), Ok(destination)) = servers else {
        return println!("SKIPPED: no server");
    };
    let contents: Vec<_> = (0..)
        .zip(SIZES)
        .map(|(number, size)| content(number, size))
        .collect();
    let pairs = (0..).zip(&contents).map(|(transfer, bytes)| {
        source.write(&format!("from-{transfer}"), bytes);
        CopyPair {
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
    let (mut reported, start) = (Vec::new(), Instant::now());
    while reported.len() < SIZES.len() {
        assert!(start.elapsed() < Duration::from_secs(30), "{reported:?}");
        reported.extend(relay(&mut copies, &mut sides));
    }
    for output in reported {
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
fn single_node_servers_and_mode_s_sessions_still_transfer_files() {
    let servers = (GlobusServer::start_striped(1), GlobusServer::start());
    let (Ok(one), Ok(plain)) = servers else {
        return println!("SKIPPED: no server");
    };
    for (server, mode) in [
        (&one, Mode::Extended),
        (&plain, Mode::Extended),
        (&plain, Mode::Stream),
    ] {
        let mut driver = session(server, mode, 2, 8);
        copy_in_both_directions(server, &mut driver, 0);
    }
}
