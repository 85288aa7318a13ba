//! A client against a faulty server that fails, stalls, truncates, reorders, repeats or lies.
//! Injects each fault at each step of a session. The session ends within a bounded time, every
//! transfer is reported once, and no file has bytes of another.

mod content;
mod faulty_server;

use content::content;
use faulty_server::ServerFault;
use faulty_server::world::{FaultCase, ServerFaultRun};
use proptest::prelude::*;
use venturi_gridftp::Mode;
use venturi_gridftp::client::{ClientOutput, UploadMode};

const FAULTS: &[ServerFault] = &[
    ServerFault::Fail("550 No such file."),
    ServerFault::Fail("500 Command failed"),
    ServerFault::Fail("450 Busy."),
    ServerFault::Fail("552-Quota\r\n552 exceeded."),
    ServerFault::Reply("226 Done."),
    ServerFault::Reply("150 Begin."),
    ServerFault::Reply("550 No."),
    ServerFault::Reply("426 Closed."),
    ServerFault::Reply("350 Go on."),
    ServerFault::Reply("421 Going."),
    ServerFault::Reply("227 Entering Passive Mode (300,0,0,1,1,1)"),
    ServerFault::Reply("213 18446744073709551616"),
    ServerFault::Reply("112-Perf Marker\r\n112 End.\r\n111 Range Marker 9-3"),
    ServerFault::Reply("999 \u{0}"),
    ServerFault::Pretend,
    ServerFault::Swallow,
    ServerFault::Cut,
    ServerFault::Late,
    ServerFault::Twice,
    ServerFault::Number,
    ServerFault::Flood(10),
    ServerFault::Flood(20_000),
    ServerFault::Endless("2"),
    ServerFault::Endless("226-"),
    ServerFault::HangUp,
    ServerFault::Stall,
    ServerFault::CloseData,
    ServerFault::StallData,
    ServerFault::Skip,
    ServerFault::Repeat,
    ServerFault::Misplace,
    ServerFault::Truncate,
    ServerFault::Noise,
];

/// Returns `true` if bytes can shift to other files. If a server reports success without storing or
/// sending a file, the bytes of later files can count for earlier ones when the client is ahead of
/// the server. Only checksums detect this.
fn is_shifted(fault: ServerFault, case: FaultCase) -> bool {
    fault == ServerFault::Pretend && case.depth > 1 && case.mode == Mode::Extended
}

/// Returns `true` if a client that pipelines downloads of unknown size cannot detect the fault: a
/// repeated or missing end, or a server in another mode than reported.
fn is_unseen(fault: ServerFault, step: &str, case: FaultCase) -> bool {
    let ends = matches!(fault, ServerFault::Skip | ServerFault::Repeat);
    !case.known && (ends || step.starts_with("say MODE"))
}

/// Returns `true` if the fault is undetectable without checksum and size: the server drops or
/// misplaces bytes and reports success.
fn is_accepted(fault: ServerFault) -> bool {
    matches!(
        fault,
        ServerFault::Pretend
            | ServerFault::Skip
            | ServerFault::Misplace
            | ServerFault::Repeat
            | ServerFault::Truncate
            | ServerFault::Noise
    )
}

/// Returns the faults after the run.
fn faults(world: &ServerFaultRun, fault: ServerFault, step: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for transfer in 0..6 {
        let reported = |output: &&ClientOutput| match output {
            ClientOutput::Done {
                transfer: reported, ..
            } => *reported == transfer,
            ClientOutput::Failed {
                transfer: reported,
                failure,
            } => *reported == transfer && !failure.reason.is_empty(),
            _ => false,
        };
        let reported = world.received_replies.iter().filter(reported).count();
        if reported != 1 {
            faults.push(format!("transfer {transfer} is reported {reported} times"));
        }
        let own = content(transfer, world.case.sizes[transfer as usize % 3]);
        let name = format!("/{transfer}").into_bytes();
        let about = world
            .server
            .victim
            .as_ref()
            .is_some_and(|victim| victim.starts_with(&name));
        let accepted = about && is_accepted(fault)
            || is_shifted(fault, world.case) && !(transfer < 3 && world.case.checked)
            || is_unseen(fault, step, world.case);
        if transfer < 3 {
            let there = world.server.files.get(&name);
            if there.is_some_and(|bytes| *bytes != own) && !accepted {
                faults.push(format!("upload {transfer} has other bytes at the server"));
            }
            if there.is_none() && world.is_done(transfer) && !accepted {
                faults.push(format!("upload {transfer} is done and not there"));
            }
        } else if world.is_done(transfer) {
            let none = Vec::new();
            let got = world.sinks.get(&transfer).unwrap_or(&none);
            if *got != own && !accepted {
                faults.push(format!("download {transfer} is done and has other bytes"));
            }
        }
    }
    faults
}

fn check(case: FaultCase) {
    let mut honest = ServerFaultRun::of(case, Vec::new());
    assert!(
        honest.run(),
        "{case:?}: no end without a misdeed; {:?}",
        honest.server.steps
    );
    assert!(
        (0..6).all(|transfer| honest.is_done(transfer)),
        "{case:?}: {:?}",
        honest.received_replies
    );
    assert_eq!(
        faults(&honest, ServerFault::Stall, ""),
        Vec::<String>::new(),
        "{case:?}"
    );
    let (mut sessions, mut wrong) = (0, Vec::new());
    for (at, step) in honest.server.steps.iter().enumerate() {
        for &fault in FAULTS.iter().filter(|fault| fault.fits(step)) {
            sessions += 1;
            let mut world = ServerFaultRun::of(case, vec![(at, fault)]);
            let ended = world.run();
            let mut faults = faults(&world, fault, step);
            if !ended {
                faults.push("no end".to_owned());
            }
            if !faults.is_empty() {
                wrong.push(format!("{fault:?} at {at} ({step}): {faults:?}"));
            }
        }
    }
    println!(
        "{case:?}: {} steps, {sessions} sessions",
        honest.server.steps.len()
    );
    assert!(
        wrong.is_empty(),
        "{case:?}: {} of {sessions}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Different sizes, and equal sizes, which only the content distinguishes.
const UNEQUAL: [usize; 3] = [700, 0, 1100];
const EQUAL: [usize; 3] = [700, 700, 700];

#[test]
fn every_server_fault_is_handled_at_every_step_of_mode_s() {
    for (depth, sizes) in [(1, UNEQUAL), (4, EQUAL)] {
        check(FaultCase {
            mode: Mode::Stream,
            connections: 1,
            depth,
            upload: UploadMode::Gated,
            sizes,
            checked: false,
            known: true,
        });
    }
}

#[test]
fn every_server_fault_is_handled_at_every_step_of_mode_e_over_one_connection() {
    for (upload, sizes, checked, known) in [
        (UploadMode::Eager, EQUAL, true, true),
        (UploadMode::Gated, UNEQUAL, false, false),
    ] {
        check(FaultCase {
            mode: Mode::Extended,
            connections: 1,
            depth: 8,
            upload,
            sizes,
            checked,
            known,
        });
    }
}

#[test]
fn every_server_fault_is_handled_at_every_step_of_mode_e_over_two_connections() {
    for (upload, sizes) in [(UploadMode::Eager, UNEQUAL), (UploadMode::Gated, EQUAL)] {
        check(FaultCase {
            mode: Mode::Extended,
            connections: 2,
            depth: 8,
            upload,
            sizes,
            checked: false,
            known: true,
        });
    }
}

/// Reported failures.
const FAILURES: [ServerFault; 8] = [
    ServerFault::Fail("550 No such file."),
    ServerFault::Fail("500 Command failed"),
    ServerFault::Fail("450 Busy."),
    ServerFault::CloseData,
    ServerFault::StallData,
    ServerFault::HangUp,
    ServerFault::Stall,
    ServerFault::Cut,
];

proptest! {
    #[test]
    fn several_failures_in_one_session_do_not_mix_up_files(
        failures in prop::collection::vec((10_usize..90, prop::sample::select(&FAILURES[..])), 2..6),
        (extended, eager, equal, checked, known) in any::<(bool, bool, bool, bool, bool)>(), connections in 1_u16..3, depth in 1_usize..9,
    ) {
        let case = FaultCase {
            mode: if extended { Mode::Extended } else { Mode::Stream },
            connections: if extended { connections } else { 1 },
            depth,
            upload: if eager { UploadMode::Eager } else { UploadMode::Gated },
            sizes: if equal { EQUAL } else { UNEQUAL },
            checked,
            // In MODE S only the size distinguishes a complete file from a closed connection.
            known: known || !extended,
        };
        let mut world = ServerFaultRun::of(case, failures);
        prop_assert!(world.run(), "no end: {:?}", world.received_replies);
        prop_assert_eq!(faults(&world, ServerFault::Stall, ""), Vec::<String>::new());
    }
}
