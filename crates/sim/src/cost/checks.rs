//! Checksums that are asked for after a transfer: of both ends of each file, by a question of its own to each server.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | files of the transfer | – |
//! | c | questions under way together (`checks`) | – |
//! | k | round trips of a question (`check_round_trips`) | – |
//! | t, w | its waiting, and its processor time of the client (`check_s`, `check_core_s`) | s |
//! | a, b | processor time of a server for a login and for a byte (`auth_core_s`, `check_byte_core_s`) | s |
//!
//! T = ⌈2 N / c⌉ (t + k RTT) + work, where work is 2 N w of the client and N a and b a byte of each server, on c cores at most: the pessimistic
//! bound of a closed system of c customers, X ≥ c / (c D + Z) (Lazowska, Zahorjan, Graham, Sevcik 1984, section 5.2). It is near because questions that begin together log
//! in together: where processors are shared no work of one hides the waiting of another. In the lab 6, 16 and 60 questions, 8 at a time on two cores
//! and at 53 ms, took 2.3, 4.6 and 14.8 s; the bound is 2.0, 4.2 and 15.9 s, the optimistic one 1.3, 2.7 and 10 s.
//!
//! Range: questions that are alike. Where client and servers are different machines their work is added up all the same, and the time an upper bound.

use super::phase::{Phase, Why};
use super::sketch::{TransferSketch, or_none};

/// Append the questions of all files, if the mover asks any.
pub(super) fn put_checks(sketch: &TransferSketch<'_>, phases: &mut Vec<Phase>) {
    let mover = sketch.mover;
    let Some(wait_s) = mover.check_s else {
        return;
    };
    let files = sketch.files.count() as f64;
    let questions = 2.0 * files;
    let width = f64::from(mover.checks.unwrap_or(1)).min(questions).max(1.0);
    let (why, client_core_s) = (Why::Check, or_none(mover.check_core_s));
    let trips_s = or_none(mover.check_round_trips) * (sketch.control_rtt_s - sketch.nearer_rtt_s);
    phases.push(Phase::Delay {
        seconds: (questions / width).ceil() * (wait_s.get() + trips_s),
        why,
    });
    phases.push(Phase::ClientCpu {
        core_s: questions * client_core_s,
        width,
        why,
    });
    for (end, server) in sketch.servers() {
        let auth_core_s = or_none(server.auth_core_s);
        let bytes_core_s = sketch.files.bytes() * or_none(mover.check_byte_core_s);
        phases.push(Phase::ServerCpu {
            end,
            core_s: files * auth_core_s + bytes_core_s,
            width,
            why,
        });
    }
}
