//! Sessions with a Globus server, and their requests.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::time::Duration;

use venturi_gridftp::client::{ClientOutput, ClientSettings, Get, GetSource, Login, Put};
use venturi_gridftp::{ByteRanges, Mode, Path};

use crate::driver::Driver;
use crate::globus_server::GlobusServer;

pub fn with_server(test: impl FnOnce(&GlobusServer)) {
    match GlobusServer::start() {
        Ok(server) => test(&server),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

pub fn settings(mode: Mode, connections: u16, depth: usize) -> ClientSettings {
    ClientSettings {
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
        stall_timeout: Duration::from_secs(20),
    }
}

pub fn session(server: &GlobusServer, mode: Mode, connections: u16, depth: usize) -> Driver {
    opened(server, settings(mode, connections, depth))
}

/// Opens a session and waits until it is ready.
pub fn opened(server: &GlobusServer, settings: ClientSettings) -> Driver {
    let mode = settings.mode;
    let mut driver = Driver::connect(server.address, settings);
    driver.ready();
    assert_eq!(driver.client.mode(), mode);
    driver
}

pub fn get(transfer: u64, path: Path, size_bytes: Option<u64>) -> Get {
    Get {
        transfer,
        source: GetSource::File,
        path,
        size_bytes,
        present: ByteRanges::default(),
        stat_after: false,
    }
}

pub fn put(server: &GlobusServer, transfer: u64, name: &str, bytes: &[u8]) -> Put {
    Put {
        transfer,
        path: server.path(name),
        temporary: Some(server.path(&format!("{name}.part"))),
        size_bytes: bytes.len() as u64,
        checksum: None,
        modify_s: Some(1_700_000_000 + transfer as i64),
        present: ByteRanges::default(),
        part: None,
        resumable: false,
    }
}

pub fn failed(driver: &Driver) -> Vec<u64> {
    driver
        .received_replies
        .iter()
        .filter_map(|output| match output {
            ClientOutput::Failed { transfer, .. } => Some(*transfer),
            _ => None,
        })
        .collect()
}
