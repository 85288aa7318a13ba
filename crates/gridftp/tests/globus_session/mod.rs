//! Sessions with a server of the Globus toolkit, and what they are asked.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::time::Duration;

use venturi_gridftp::client::{Get, Login, Output, Put, Settings, Source};
use venturi_gridftp::{ByteRanges, Mode, Path};

use crate::driver::Driver;
use crate::globus_server::Server;

pub fn with_server(test: impl FnOnce(&Server)) {
    match Server::start() {
        Ok(server) => test(&server),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

pub fn settings(mode: Mode, connections: u16, depth: usize) -> Settings {
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

pub fn session(server: &Server, mode: Mode, connections: u16, depth: usize) -> Driver {
    opened(server, settings(mode, connections, depth))
}

/// A session that is ready.
pub fn opened(server: &Server, settings: Settings) -> Driver {
    let mode = settings.mode;
    let mut driver = Driver::connect(server.address, settings);
    driver.ready();
    assert_eq!(driver.client.mode(), mode);
    driver
}

pub fn get(transfer: u64, path: Path, size_bytes: Option<u64>) -> Get {
    Get {
        transfer,
        source: Source::File,
        path,
        size_bytes,
        present: ByteRanges::default(),
        see: false,
    }
}

pub fn put(server: &Server, transfer: u64, name: &str, bytes: &[u8]) -> Put {
    Put {
        transfer,
        path: server.path(name),
        temporary: Some(server.path(&format!("{name}.part"))),
        size_bytes: bytes.len() as u64,
        checksum: None,
        modify_s: Some(1_700_000_000 + transfer as i64),
        present: ByteRanges::default(),
        part: None,
        goes_on: false,
    }
}

pub fn failed(driver: &Driver) -> Vec<u64> {
    driver
        .heard
        .iter()
        .filter_map(|output| match output {
            Output::Failed { transfer, .. } => Some(*transfer),
            _ => None,
        })
        .collect()
}
