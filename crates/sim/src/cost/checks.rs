//! Checksums after a transfer: one request per endpoint of each file, sent to its server.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | files of the transfer | – |
//! | c | requests in flight together (`checks`) | – |
//! | k | round trips of a request (`check_round_trips`) | – |
//! | t, w | wait of a request, and its CPU time at the client (`check_s`, `check_core_s`) | s |
//! | a, b | CPU time of a server for a login and for a byte (`auth_core_s`, `check_byte_core_s`) | s |
//!
//! T = ⌈2 N / c⌉ (t + k RTT) + work. The work is 2 N w of the client, and at each server N a plus b
//! per byte, on at most c cores. This is the pessimistic bound of a closed system of c customers, X
//! ≥ c / (c D + Z) (Lazowska, Zahorjan, Graham, Sevcik 1984, section 5.2). The bound is close
//! because requests that start together also log in together: on shared CPUs, the work of one
//! request does not hide the wait of another.
//!
//! In the lab, 6, 16 and 60 requests, 8 at a time on two cores and at 53 ms, took 2.3, 4.6 and 14.8
//! s. The bound is 2.0, 4.2 and 15.9 s, the optimistic bound 1.3, 2.7 and 10 s.
//!
//! Range: equal requests. If client and servers are different machines, their work is still added,
//! so the time is an upper limit.

use super::phase::{TransferPhase, Why};
use super::transfer_spec::{TransferSpec, or_none};

/// Append the requests of all files, if the mover sends any.
pub(super) fn put_checks(sketch: &TransferSpec<'_>, phases: &mut Vec<TransferPhase>) {
    let mover = sketch.mover;
    let Some(wait_s) = mover.check_s else {
        return;
    };
    let files = sketch.files.count() as f64;
    let checks = 2.0 * files;
    let width = f64::from(mover.checks.unwrap_or(1)).min(checks).max(1.0);
    let (why, client_core_s) = (Why::Check, or_none(mover.check_core_s));
    let trips_s = or_none(mover.check_round_trips) * (sketch.control_rtt_s - sketch.nearer_rtt_s);
    phases.push(TransferPhase::Delay {
        seconds: (checks / width).ceil() * (wait_s.get() + trips_s),
        why,
    });
    phases.push(TransferPhase::ClientCpu {
        core_s: checks * client_core_s,
        width,
        why,
    });
    for (end, server) in sketch.servers() {
        let auth_core_s = or_none(server.auth_core_s);
        let bytes_core_s = sketch.files.bytes() * or_none(mover.check_byte_core_s);
        phases.push(TransferPhase::ServerCpu {
            end,
            core_s: files * auth_core_s + bytes_core_s,
            width,
            why,
        });
    }
}
