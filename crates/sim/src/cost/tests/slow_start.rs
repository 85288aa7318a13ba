//! Slow start of single and of several connections, compared with closed forms, single rounds, and
//! the log of a server.

use proptest::prelude::*;

use super::super::*;
use super::near;

const START: SlowStart = SlowStart {
    initial_window_bytes: 14_480.0,
    growth: 2.0,
    rtt_s: 0.1,
};

fn dealing(start: SlowStart, connections: u32, block_bytes: f64) -> Dealing {
    Dealing {
        start,
        connections,
        block_bytes,
    }
}

/// Return the waiting time of a long file in closed form: RTT (log2(B/IW) − 1 + IW/B), where B > IW
/// is IW times a power of 2.
fn waiting_of_a_long_file_s(start: &SlowStart, rate: f64) -> f64 {
    let ratio = rate * start.rtt_s / start.initial_window_bytes;
    start.rtt_s * (ratio.log2() - 1.0 + 1.0 / ratio)
}

#[test]
fn the_closed_form_of_slow_start_matches_a_round_by_round_calculation() {
    let start = START;
    for doublings in 1..20 {
        let rate = 14_480.0 * f64::powi(2.0, doublings) / 0.1;
        near(
            start.waiting_s(1e15, rate),
            waiting_of_a_long_file_s(&start, rate),
            1e-12,
        );
    }
    // 10 Gb/s over 100 ms: 13 doublings, 1.2 s.
    near(waiting_of_a_long_file_s(&start, 1.25e9), 1.2, 0.02);
    // Between powers of 2 the last round is shorter, and the closed form is off by less than a
    // tenth of a round trip.
    for rate in [3e6, 7e7, 4.4e8] {
        let difference = start.waiting_s(1e15, rate) - waiting_of_a_long_file_s(&start, rate);
        assert!(difference.abs() < 0.1 * 0.1, "{rate}: {difference}");
    }
}

#[test]
fn slow_start_rounds_match_the_logarithm() {
    for growth in [1.5, 2.0] {
        let start = SlowStart { growth, ..START };
        for bytes in [1.0, 14_479.0, 30_000.0, 1e6, 1e9, 1e12] {
            let expected = (1.0 + bytes * (growth - 1.0) / 14_480.0).log(growth).ceil();
            assert_eq!(start.rounds(bytes), expected, "{growth} {bytes}");
        }
    }
}

#[test]
fn files_on_a_persistent_connection_wait_about_as_long_as_one_file() {
    let one = dealing(START, 1, 262_144.0);
    let alone_s = one.waiting_s(1e6, 1e9);
    let many_s = one.waiting_of_many_s(&[(1000, 1_000_000)], 1, 1e9);
    assert!(
        alone_s > 0.5 && many_s >= alone_s && many_s < alone_s + 0.2,
        "{alone_s} {many_s}"
    );
    assert_eq!(one.waiting_of_many_s(&[(1, 1_000_000)], 1, 1e9), alone_s);
    assert_eq!(one.waiting_of_many_s(&[(1000, 10_000)], 1, 1e9), 0.0);
    // Eight sessions; half of them are busy in the last turn.
    let round_trip_s = |files| one.waiting_of_many_s(&[(files, 1_000_000)], 8, 1e9);
    near(
        round_trip_s(12),
        round_trip_s(8) + (round_trip_s(16) - round_trip_s(8)) / 2.0,
        1e-12,
    );
}

#[test]
fn a_file_of_one_block_uses_one_initial_window_and_a_long_file_uses_all() {
    let (one, four) = (dealing(START, 1, 262_144.0), dealing(START, 4, 262_144.0));
    for bytes in [1e3, 8e4, 2e5, 262_144.0] {
        assert_eq!(four.waiting_s(bytes, 1e9), one.waiting_s(bytes, 1e9));
    }
    // All connections carry a part of a long file, like one connection with four initial windows.
    let together = SlowStart {
        initial_window_bytes: 4.0 * START.initial_window_bytes,
        ..START
    };
    near(
        four.waiting_s(1e9, 1e8),
        together.waiting_s(1e9, 1e8),
        1e-12,
    );
    near(
        dealing(START, 4, 0.0).waiting_s(1e5, 1e8),
        together.waiting_s(1e5, 1e8),
        1e-12,
    );
}

#[test]
fn persistent_streams_each_have_a_separate_slow_start() {
    // globus-url-copy -fast, 8 files of 80 kB in one call over 100 Mb/s and 53 ms (November 2026).
    // Waits in round trips: duration of STOR in the server's log, minus half a round trip, the
    // round trip of a new connection, and the bytes. Three calls for each number of streams.
    let start = SlowStart {
        rtt_s: 0.053,
        ..START
    };
    for (streams, measured) in [
        (1, [2.0, 3.0, 3.0]),
        (2, [6.0, 6.0, 6.0]),
        (4, [10.0, 9.0, 11.0]),
    ] {
        let found =
            dealing(start, streams, 262_144.0).waiting_of_many_s(&[(8, 80_000)], 1, 12.07e6)
                / 0.053;
        let mean = measured.iter().sum::<f64>() / 3.0;
        // Dealing in turn uses all four immediately; by chance, some stay idle.
        near(found, mean, 0.2);
    }
}

proptest! {
    #[test]
    fn persistent_connections_wait_as_long_as_with_blocks_sent_one_by_one(
        sizes in prop::collection::vec(1_u64..2_000_000, 1..12), streams in 1_u32..9,
    ) {
        const BLOCK: u64 = 262_144;
        let mut windows = vec![START.initial_window_bytes; streams as usize];
        let (mut next, mut expected_s) = (0_usize, 0.0);
        for &size in &sizes {
            let used = size.div_ceil(BLOCK).min(u64::from(streams));
            let mut max_s = 0_u32;
            for number in 0..used {
                let whole = size > BLOCK * used;
                let mut left = if whole { size as f64 / used as f64 } else { (size - number * BLOCK).min(BLOCK) as f64 };
                let window = &mut windows[next];
                next = (next + 1) % streams as usize;
                let mut rounds = 0;
                while left > *window {
                    left -= *window;
                    *window *= 2.0;
                    rounds += 1;
                }
                *window = window.max(2.0 * left);
                max_s = max_s.max(rounds);
            }
            expected_s += f64::from(max_s) * 0.1;
        }
        let runs: Vec<(u64, u64)> = sizes.iter().map(|&size| (1, size)).collect();
        let found_s = dealing(START, streams, BLOCK as f64).waiting_of_many_s(&runs, 1, f64::INFINITY);
        prop_assert!((found_s - expected_s).abs() < 1e-9, "{} {}", found_s, expected_s);
    }

    #[test]
    fn waiting_is_finite_and_not_negative_for_any_connections_files_and_sessions(
        runs in prop::collection::vec((1_u64..u64::MAX, 0_u64..u64::MAX), 0..4),
        connections: u32, lanes: u64, block_bytes in 0.0..1e9, rate in 1.0..1e12,
    ) {
        let found = dealing(START, connections, block_bytes).waiting_of_many_s(&runs, lanes, rate);
        prop_assert!(found.is_finite() && found >= 0.0, "{}", found);
    }
}
