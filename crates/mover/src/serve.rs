//! Serves a directory: `venturi serve`.
//!
//! A fixed number of threads have all sessions, each a state machine of `venturi_gridftp` that is driven by the readiness of its
//! sockets; what may wait for a disk is done by other threads. Everything that a client can make grow has a bound: sessions in all
//! and for an address, time without a login, a command or a byte, buffers, and what each session may have waiting.
//!
//! Another protocol is served beside it by another kind of loop over the same [`host::Host`]: see [`listen`].
//!
//! Read [`arguments::Arguments`] first, then [`listen`], then [`ftp`]. What no path can leave is in [`root`].

mod arguments;
mod buffers;
mod doors;
mod fits;
mod ftp;
mod gsi;
mod host;
pub(crate) mod http;
mod limits;
mod listen;
mod log;
mod metrics;
pub(crate) mod root;
pub(crate) mod users;

use std::process::ExitCode;

use crate::talk;

pub use arguments::Arguments;

/// Nothing was served: the order cannot be carried out as it stands.
const REFUSED: u8 = 1;
/// Stopped by a second signal, or with transfers that were cut off.
const CUT: u8 = 130;

/// Serves a directory until a signal comes.
///
/// Exit codes: 0 ended by a signal, and every transfer had its time, 1 the order cannot be carried out, 2 wrong usage, 130 transfers were cut off.
pub fn serve(arguments: Arguments) -> ExitCode {
    match listen::carry_out(arguments) {
        Ok(listen::Ending::Drained) => ExitCode::SUCCESS,
        Ok(listen::Ending::Cut) => CUT.into(),
        Err(error) => {
            talk::say("serve", error);
            REFUSED.into()
        }
    }
}
