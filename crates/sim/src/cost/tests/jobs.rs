//! Jobs of many calls, several logins and requested checksums: compared with the single calls.

use proptest::prelude::*;

use super::super::*;
use super::{PATH, alone, amount, near, time_alone_s};

const RTT_S: f64 = 0.05;
const AUTH_S: f64 = 0.2;

fn mover() -> MoverCost {
    MoverCost {
        start_s: amount(0.5),
        start_core_s: amount(0.25),
        session_round_trips: amount(20.0),
        session_s: amount(0.01),
        session_core_s: amount(0.05),
        file_s: amount(0.003),
        file_core_s: amount(0.0),
        file_round_trips: amount(2.0),
        ..MoverCost::default()
    }
}

/// Return the phases of files between two servers, with `bundle` files per call and a number of
/// concurrent calls.
fn phases(
    files: &CallFiles,
    mover: &MoverCost,
    bundle: Option<u32>,
    concurrency: u32,
) -> Vec<TransferPhase> {
    let server = ServiceCost {
        auth_core_s: amount(AUTH_S),
        ..ServiceCost::default()
    };
    TransferSpec {
        source: Some(&server),
        destination: Some(&server),
        control_rtt_s: RTT_S,
        concurrency: Some(concurrency),
        files_per_session: bundle,
        ..alone(files, mover, &HostCost::default())
    }
    .phase_plan()
    .phases
}

fn core_s(phases: &[TransferPhase], matches: Why) -> f64 {
    let of = |phase: &TransferPhase| match *phase {
        TransferPhase::ServerCpu { core_s, why, .. } if why == matches => core_s,
        _ => 0.0,
    };
    phases.iter().map(of).sum()
}

proptest! {
    #[test]
    fn a_job_takes_its_start_time_and_its_calls_in_sequence(files in 1_u64..300, bundle in 1_u32..80) {
        let found = time_alone_s(&phases(&CallFiles::new([(files, 0)]), &mover(), Some(bundle), 1), 1e9);
        let one_call = |files: u64| 0.01 + 0.05 + 20.0 * RTT_S + 2.0 * AUTH_S + files as f64 * (2.0 * RTT_S + 0.003);
        let whole = files / u64::from(bundle);
        let rest = files % u64::from(bundle);
        let expected = 0.75 + whole as f64 * one_call(u64::from(bundle)) + if rest > 0 { one_call(rest) } else { 0.0 };
        prop_assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn every_call_logs_in_at_both_servers_for_any_concurrency(
        files in 1_u64..300, bundle in 1_u32..80, concurrency in 1_u32..20,
    ) {
        let phases = phases(&CallFiles::new([(files, 0)]), &mover(), Some(bundle), concurrency);
        let calls = files.div_ceil(u64::from(bundle)) as f64;
        prop_assert!((core_s(&phases, Why::Authentication) - 2.0 * calls * AUTH_S).abs() < 1e-9);
    }
}

#[test]
fn parallel_calls_wait_at_the_same_time() {
    let files = CallFiles::new([(30, 0)]);
    let alone = time_alone_s(&phases(&files, &mover(), Some(1), 1), 1e9);
    let four = time_alone_s(&phases(&files, &mover(), Some(1), 4), 1e9);
    // Eight rounds of four instead of thirty of one. CPUs are idle here, so work is divided by
    // four.
    let (waited, worked) = (0.01 + 22.0 * RTT_S + 0.003, 0.05 + 2.0 * AUTH_S);
    near(alone, 0.75 + 30.0 * (waited + worked), 1e-9);
    near(four, 0.75 + 8.0 * waited + 30.0 * worked / 4.0, 1e-9);
}

#[test]
fn a_call_of_one_file_keeps_no_data_connection_for_the_next() {
    let files = CallFiles::new([(10, 1_000_000)]);
    let kept = MoverCost {
        keeps_connection: Some(true),
        ..mover()
    };
    let slow_start = |bundle| -> f64 {
        let path_phases = TransferSpec {
            control_rtt_s: RTT_S,
            path: DataPath {
                rtt_s: RTT_S,
                bytes_per_s: 1e8,
                ..PATH
            },
            files_per_session: bundle,
            ..alone(&files, &kept, &HostCost::default())
        }
        .phase_plan()
        .phases;
        let of = |phase: &TransferPhase| match *phase {
            TransferPhase::Delay {
                seconds,
                why: Why::SlowStart,
            } => seconds,
            _ => 0.0,
        };
        path_phases.iter().map(of).sum()
    };
    assert!(slow_start(Some(1)) > 4.0 * slow_start(None));
}

#[test]
fn a_session_with_five_logins_authenticates_five_times_at_each_server() {
    let often = MoverCost {
        logins: amount(5.0),
        ..mover()
    };
    let found = phases(&CallFiles::one(1), &often, None, 1);
    near(core_s(&found, Why::Authentication), 10.0 * AUTH_S, 1e-12);
}

#[test]
fn checksums_take_their_rounds_and_then_the_total_work() {
    let requesting = |checks, byte_core_s| MoverCost {
        check_s: amount(0.1),
        check_core_s: amount(0.0),
        check_round_trips: amount(10.0),
        check_byte_core_s: amount(byte_core_s),
        checks: Some(checks),
        ..mover()
    };
    let time = |mover: &MoverCost, files: &CallFiles| {
        time_alone_s(&phases(files, mover, Some(64), 1), 1e12)
    };
    let files = CallFiles::new([(12, 1_000_000)]);
    let without = time(&mover(), &files);
    // 24 requests, 8 at a time: three rounds of 0.1 s, ten round trips and a login.
    near(
        time(&requesting(8, 0.0), &files) - without,
        3.0 * (0.1 + 10.0 * RTT_S + AUTH_S),
        1e-9,
    );
    // Bytes of both endpoints on eight cores: 2 · 12 MB · 2 µs / 8 = 6 s, and 24 logins of 0.2 s /
    // 8. No round hides them.
    near(
        time(&requesting(8, 2e-6), &files) - without,
        3.0 * (0.1 + 10.0 * RTT_S) + 6.0 + 0.6,
        1e-9,
    );
    // One request at a time.
    near(
        time(&requesting(1, 0.0), &files) - without,
        24.0 * (0.1 + 10.0 * RTT_S + AUTH_S),
        1e-9,
    );
}
