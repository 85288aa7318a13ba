//! Both sides of GSI, in memory.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::time::UNIX_EPOCH;

use venturi_gridftp::gsi::{Credential, Gsi, GsiPeer};
use venturi_gridftp::{FtpError, Security};

use crate::grid::Grid;

/// Maximum tokens of one side.
pub const MAX_TOKENS: usize = 8;

/// Returns seconds since 1970.
pub fn now_s() -> u64 {
    UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

/// Runs a test with its own grid, or prints why there is none.
pub fn with_grid(test: impl FnOnce(&Grid)) {
    match Grid::quick() {
        Ok(grid) => test(&grid),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

pub fn target(host: &str, delegates: bool) -> GsiPeer {
    GsiPeer {
        host: host.to_owned(),
        subject: None,
        delegates,
    }
}

/// Creates a client of this grid at the current time.
pub fn client(grid: &Grid, credential: &Credential, delegates: bool) -> Gsi {
    let target = target("localhost", delegates);
    Gsi::client(credential, &grid.trust_store(), &target, now_s()).expect("a client")
}

/// Creates the server of this grid at the current time.
pub fn server(grid: &Grid) -> Gsi {
    Gsi::server(&grid.pair("host"), &grid.trust_store(), now_s()).expect("a server")
}

/// Passes tokens until both sides are done, or one rejects.
pub fn shake(client: &mut Gsi, server: &mut Gsi) -> Result<(), FtpError> {
    let mut reply_text = client.step(None)?;
    for _ in 0..MAX_TOKENS {
        let response = server.step(Some(&reply_text.token.expect("the server waits")))?;
        if response.done {
            assert!(reply_text.done, "the server is content before the client");
            return Ok(());
        }
        reply_text = client.step(Some(&response.token.expect("the client waits")))?;
    }
    panic!("no end");
}

/// Returns the server's rejection of a client with this credential.
pub fn rejection(grid: &Grid, credential: &Credential) -> String {
    let mut server = server(grid);
    let rejected = shake(&mut client(grid, credential, false), &mut server);
    assert_eq!(server.peer(), None);
    rejected.expect_err("the handshake is rejected").to_string()
}
