//! Server: `venturi serve`.
//!
//! A fixed number of threads runs all sessions. Each session is a state machine of
//! `venturi_gridftp` that reacts to its sockets. Other threads do the disk operations. All
//! resources of clients are limited: sessions in total and per address, time without login, command
//! or data, buffers, and the queue of each session.
//!
//! HTTP uses another loop over the same `state::ServerState`: see `listen.rs`.
//!
//! Read [`ServeArgs`] first, then `listen.rs`, then `ftp.rs`. `confined_root.rs` keeps all paths inside the served directory.

mod acceptor;
mod address_range;
mod arguments;
mod buffers;
pub(crate) mod confined_root;
mod ftp;
mod gsi;
pub(crate) mod http;
mod limits;
mod listen;
mod log;
mod metrics;
mod option_conflicts;
mod state;
pub(crate) mod users;

use std::process::ExitCode;

use crate::stderr;

pub use arguments::ServeArgs;

/// Exit code: the server could not start.
const REJECTED: u8 = 1;
/// Exit code: stopped by a second signal, or with aborted transfers.
const INTERRUPTED: u8 = 130;

/// Serves a directory until a signal arrives.
///
/// Exit codes: 0 stopped by a signal after all transfers ended, 1 server could not start, 2 wrong usage, 130 aborted transfers.
pub fn serve(arguments: ServeArgs) -> ExitCode {
    match listen::run(arguments) {
        Ok(listen::ServerExit::Drained) => ExitCode::SUCCESS,
        Ok(listen::ServerExit::Cut) => INTERRUPTED.into(),
        Err(error) => {
            stderr::print("serve", error);
            REJECTED.into()
        }
    }
}
