//! A client against a server that fails, stalls, cuts, reorders, repeats or lies: each misdeed at each step of a session. It ends
//! within a bounded time, every transfer is told of once, and no file has bytes of another.

mod content;
mod fake;

use content::content;
use fake::Misdeed;
use fake::world::{Case, World};
use proptest::prelude::*;
use venturi_gridftp::Mode;
use venturi_gridftp::client::{Output, Upload};

const MISDEEDS: &[Misdeed] = &[
    Misdeed::Fail("550 No such file."),
    Misdeed::Fail("500 Command failed"),
    Misdeed::Fail("450 Busy."),
    Misdeed::Fail("552-Quota\r\n552 exceeded."),
    Misdeed::Say("226 Done."),
    Misdeed::Say("150 Begin."),
    Misdeed::Say("550 No."),
    Misdeed::Say("426 Closed."),
    Misdeed::Say("350 Go on."),
    Misdeed::Say("421 Going."),
    Misdeed::Say("227 Entering Passive Mode (300,0,0,1,1,1)"),
    Misdeed::Say("213 18446744073709551616"),
    Misdeed::Say("112-Perf Marker\r\n112 End.\r\n111 Range Marker 9-3"),
    Misdeed::Say("999 \u{0}"),
    Misdeed::Pretend,
    Misdeed::Swallow,
    Misdeed::Cut,
    Misdeed::Late,
    Misdeed::Twice,
    Misdeed::Number,
    Misdeed::Flood(10),
    Misdeed::Flood(20_000),
    Misdeed::Endless("2"),
    Misdeed::Endless("226-"),
    Misdeed::HangUp,
    Misdeed::Stall,
    Misdeed::CloseData,
    Misdeed::StallData,
    Misdeed::Skip,
    Misdeed::Repeat,
    Misdeed::Misplace,
    Misdeed::Truncate,
    Misdeed::Noise,
];

/// What comes of a server that says that it has stored or sent a file and has not: the bytes of the next ones may count for
/// those before, where the client is ahead of the server. Only checksums can tell.
fn is_shifted(misdeed: Misdeed, case: Case) -> bool {
    misdeed == Misdeed::Pretend && case.depth > 1 && case.mode == Mode::Extended
}

/// What nobody can see who does not know the sizes of what he downloads ahead: an end that comes too often or not at all,
/// and a server in another mode than it says.
fn is_unseen(misdeed: Misdeed, step: &str, case: Case) -> bool {
    let ends = matches!(misdeed, Misdeed::Skip | Misdeed::Repeat);
    !case.known && (ends || step.starts_with("say MODE"))
}

/// What nobody can see who has neither checksum nor size: a server that drops or misplaces bytes and says that all is well.
fn is_believed(misdeed: Misdeed) -> bool {
    matches!(
        misdeed,
        Misdeed::Pretend
            | Misdeed::Skip
            | Misdeed::Misplace
            | Misdeed::Repeat
            | Misdeed::Truncate
            | Misdeed::Noise
    )
}

/// What is wrong in the end.
fn faults(world: &World, misdeed: Misdeed, step: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for transfer in 0..6 {
        let told = |output: &&Output| match output {
            Output::Done { transfer: told, .. } => *told == transfer,
            Output::Failed {
                transfer: told,
                failure,
            } => *told == transfer && !failure.reason.is_empty(),
            _ => false,
        };
        let told = world.heard.iter().filter(told).count();
        if told != 1 {
            faults.push(format!("transfer {transfer} is told of {told} times"));
        }
        let own = content(transfer, world.case.sizes[transfer as usize % 3]);
        let name = format!("/{transfer}").into_bytes();
        let about = world
            .fake
            .victim
            .as_ref()
            .is_some_and(|victim| victim.starts_with(&name));
        let believed = about && is_believed(misdeed)
            || is_shifted(misdeed, world.case) && !(transfer < 3 && world.case.checked)
            || is_unseen(misdeed, step, world.case);
        if transfer < 3 {
            let there = world.fake.files.get(&name);
            if there.is_some_and(|bytes| *bytes != own) && !believed {
                faults.push(format!("upload {transfer} has other bytes at the server"));
            }
            if there.is_none() && world.is_done(transfer) && !believed {
                faults.push(format!("upload {transfer} is done and not there"));
            }
        } else if world.is_done(transfer) {
            let none = Vec::new();
            let got = world.sinks.get(&transfer).unwrap_or(&none);
            if *got != own && !believed {
                faults.push(format!("download {transfer} is done and has other bytes"));
            }
        }
    }
    faults
}

fn check(case: Case) {
    let mut honest = World::of(case, Vec::new());
    assert!(
        honest.run(),
        "{case:?}: no end without a misdeed; {:?}",
        honest.fake.steps
    );
    assert!(
        (0..6).all(|transfer| honest.is_done(transfer)),
        "{case:?}: {:?}",
        honest.heard
    );
    assert_eq!(
        faults(&honest, Misdeed::Stall, ""),
        Vec::<String>::new(),
        "{case:?}"
    );
    let (mut sessions, mut wrong) = (0, Vec::new());
    for (at, step) in honest.fake.steps.iter().enumerate() {
        for &misdeed in MISDEEDS.iter().filter(|misdeed| misdeed.fits(step)) {
            sessions += 1;
            let mut world = World::of(case, vec![(at, misdeed)]);
            let ended = world.run();
            let mut faults = faults(&world, misdeed, step);
            if !ended {
                faults.push("no end".to_owned());
            }
            if !faults.is_empty() {
                wrong.push(format!("{misdeed:?} at {at} ({step}): {faults:?}"));
            }
        }
    }
    println!(
        "{case:?}: {} steps, {sessions} sessions",
        honest.fake.steps.len()
    );
    assert!(
        wrong.is_empty(),
        "{case:?}: {} of {sessions}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Another size each; and the same, of which only the content tells one from another.
const UNEQUAL: [usize; 3] = [700, 0, 1100];
const EQUAL: [usize; 3] = [700, 700, 700];

#[test]
fn every_misdeed_at_every_step_of_mode_s() {
    for (depth, sizes) in [(1, UNEQUAL), (4, EQUAL)] {
        check(Case {
            mode: Mode::Stream,
            connections: 1,
            depth,
            upload: Upload::Gated,
            sizes,
            checked: false,
            known: true,
        });
    }
}

#[test]
fn every_misdeed_at_every_step_of_mode_e_over_one_connection() {
    for (upload, sizes, checked, known) in [
        (Upload::Eager, EQUAL, true, true),
        (Upload::Gated, UNEQUAL, false, false),
    ] {
        check(Case {
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
fn every_misdeed_at_every_step_of_mode_e_over_two_connections() {
    for (upload, sizes) in [(Upload::Eager, UNEQUAL), (Upload::Gated, EQUAL)] {
        check(Case {
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

/// What fails and is said to.
const FAILURES: [Misdeed; 8] = [
    Misdeed::Fail("550 No such file."),
    Misdeed::Fail("500 Command failed"),
    Misdeed::Fail("450 Busy."),
    Misdeed::CloseData,
    Misdeed::StallData,
    Misdeed::HangUp,
    Misdeed::Stall,
    Misdeed::Cut,
];

proptest! {
    #[test]
    fn several_failures_in_one_session_mix_up_nothing(
        failures in prop::collection::vec((10_usize..90, prop::sample::select(&FAILURES[..])), 2..6),
        (extended, eager, equal, checked, known) in any::<(bool, bool, bool, bool, bool)>(), connections in 1_u16..3, depth in 1_usize..9,
    ) {
        let case = Case {
            mode: if extended { Mode::Extended } else { Mode::Stream },
            connections: if extended { connections } else { 1 },
            depth,
            upload: if eager { Upload::Eager } else { Upload::Gated },
            sizes: if equal { EQUAL } else { UNEQUAL },
            checked,
            // In MODE S only the size tells a whole file from one whose connection was closed.
            known: known || !extended,
        };
        let mut world = World::of(case, failures);
        prop_assert!(world.run(), "no end: {:?}", world.heard);
        prop_assert_eq!(faults(&world, Misdeed::Stall, ""), Vec::<String>::new());
    }
}
