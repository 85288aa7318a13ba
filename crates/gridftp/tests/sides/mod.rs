//! Both sides of GSI, in memory.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::time::UNIX_EPOCH;

use venturi_gridftp::gsi::{Credential, Gsi, Target};
use venturi_gridftp::{Error, Security};

use crate::grid::Grid;

/// Most tokens of one side.
pub const MAX_TOKENS: usize = 8;

/// Seconds since 1970.
pub fn now_s() -> u64 {
    UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

/// A test with a grid of its own, or a word why there is none.
pub fn with_grid(test: impl FnOnce(&Grid)) {
    match Grid::quick() {
        Ok(grid) => test(&grid),
        Err(reason) => println!("SKIPPED: {reason}"),
    }
}

pub fn target(host: &str, delegates: bool) -> Target {
    Target {
        host: host.to_owned(),
        subject: None,
        delegates,
    }
}

/// A client of this grid, now.
pub fn client(grid: &Grid, credential: &Credential, delegates: bool) -> Gsi {
    let target = target("localhost", delegates);
    Gsi::client(credential, &grid.authorities(), &target, now_s()).expect("a client")
}

/// The server of this grid, now.
pub fn server(grid: &Grid) -> Gsi {
    Gsi::server(&grid.pair("host"), &grid.authorities(), now_s()).expect("a server")
}

/// Passes tokens until both sides are content, or one refuses.
pub fn shake(client: &mut Gsi, server: &mut Gsi) -> Result<(), Error> {
    let mut said = client.step(None)?;
    for _ in 0..MAX_TOKENS {
        let answer = server.step(Some(&said.token.expect("the server waits")))?;
        if answer.done {
            assert!(said.done, "the server is content before the client");
            return Ok(());
        }
        said = client.step(Some(&answer.token.expect("the client waits")))?;
    }
    panic!("no end");
}

/// What the server says to a client with this credential.
pub fn refusal(grid: &Grid, credential: &Credential) -> String {
    let mut server = server(grid);
    let refused = shake(&mut client(grid, credential, false), &mut server);
    assert_eq!(server.peer(), None);
    refused.expect_err("it is to be refused").to_string()
}
