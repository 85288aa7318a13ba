//! Queueing theory: exact means that a run of moderate length must hold within its confidence interval. Seeds are fixed.

use super::*;
use crate::fluid::{Capacity, Fluid};

/// Batches of a confidence interval by batch means, and Student's t for 95 % with 19 degrees of freedom, twice over: 99.97 % or so.
const BATCHES: usize = 20;
const WIDTH: f64 = 2.0 * 2.093;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }

    /// Two sizes a hundred times apart, of mean 1: what is insensitive to the law of sizes is not to see it.
    fn size(&mut self) -> f64 {
        if self.next() < 0.9 {
            0.1 / 1.09
        } else {
            10.0 / 1.09
        }
    }
}

/// The mean of `values` lies within its interval around `expected`.
fn holds(values: &[f64], expected: f64) {
    let size = values.len() / BATCHES;
    let means: Vec<f64> = values
        .chunks_exact(size)
        .map(|batch| batch.iter().sum::<f64>() / size as f64)
        .collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let variance =
        means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
    let half = WIDTH * (variance / means.len() as f64).sqrt();
    assert!(
        (mean - expected).abs() <= half,
        "expected {expected}, found {mean} ± {half}"
    );
    assert!(
        half < 0.1 * expected,
        "an interval of ± {half} around {mean} says little"
    );
}

/// Times in the system, divided by size, of flows that arrive at random at one resource.
fn slowdowns(capacity: Capacity, cap: f64, load: f64, flows: usize, seed: u64) -> Vec<f64> {
    let mut draws = Draws(seed);
    let mut fluid = Fluid::new();
    let resource = fluid.resource(capacity).unwrap();
    let class = fluid.class(&[resource], 1.0, cap).unwrap();
    let (mut now, mut asked, mut found) = (0.0, Vec::new(), vec![0.0; flows]);
    for flow in 0..flows {
        now += draws.exponential(1.0 / load);
        let bytes = draws.size();
        while let Some(end) = fluid.poll_output(now) {
            let (start_s, bytes): (f64, f64) = asked[end.token as usize];
            found[end.token as usize] = (end.at_s - start_s) / bytes;
        }
        asked.push((now, bytes));
        fluid.start(now, class, bytes, flow as u64).unwrap();
    }
    while let Some(end) = fluid
        .poll_timeout()
        .and_then(|at_s| fluid.poll_output(at_s))
    {
        let (start_s, bytes) = asked[end.token as usize];
        found[end.token as usize] = (end.at_s - start_s) / bytes;
    }
    found
}

/// Probability of waiting with `servers` of them and `offered` busy ones on average (Erlang C).
fn erlang_c(servers: u32, offered: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 0.0);
    for n in 0..servers {
        sum += term;
        term *= offered / f64::from(n + 1);
    }
    let last = term / (1.0 - offered / f64::from(servers));
    last / (sum + last)
}

#[test]
fn a_shared_link_is_a_queue_with_processor_sharing() {
    // E[T | x] = x / (C (1 − ρ)), whatever the law of sizes.
    holds(
        &slowdowns(Capacity::Constant(1.0), f64::INFINITY, 0.6, 200_000, 1),
        1.0 / 0.4,
    );
}

#[test]
fn caps_make_it_a_queue_with_as_many_servers_as_fit() {
    // E[T | x] = (x / r) (1 + E₂(R, Rρ) / (R (1 − ρ))), R = C / r.
    let (servers, load) = (4, 0.7);
    let expected = f64::from(servers)
        * (1.0 + erlang_c(servers, 4.0 * load) / (f64::from(servers) * (1.0 - load)));
    holds(
        &slowdowns(Capacity::Constant(1.0), 0.25, load, 200_000, 2),
        expected,
    );
}

#[test]
fn a_disk_whose_bytes_depend_on_its_readers_has_a_product_form() {
    // P(n) ~ Π λ S / μ(k); by Little, E[T] = E[N] / λ, and insensitive, so E[T | x] = x E[T] / S.
    let gives = [1.0, 0.8, 0.9, 1.1];
    let load = 0.6;
    let (mut weight, mut sum, mut readers) = (1.0, 1.0, 0.0);
    for n in 1..2000usize {
        weight *= load / gives[n.min(gives.len()) - 1];
        sum += weight;
        readers += n as f64 * weight;
    }
    holds(
        &slowdowns(
            Capacity::OfUsers(gives.into()),
            f64::INFINITY,
            load,
            200_000,
            3,
        ),
        readers / sum / load,
    );
}

#[test]
fn agents_that_think_and_transfer_pass_as_mean_value_analysis_says() {
    // R(n) = S (1 + Q(n − 1)), X = n / (R + Z), Q = X R; insensitive to both laws.
    let (agents, think_s, each) = (8, 5.0, 20_000);
    let (mut queue, mut passage) = (0.0, 0.0);
    for n in 1..=agents {
        passage = 1.0 + queue;
        queue = f64::from(n) / (passage + think_s) * passage;
    }
    let mut draws = Draws(4);
    let count = agents as usize * each;
    let agent = (0..count)
        .map(|flow| (flow % agents as usize) as u32)
        .collect();
    let flows = Columns {
        start_s: (0..count).map(|_| 2.0 * think_s * draws.next()).collect(),
        way: vec![0; count],
        bytes: (0..count).map(|_| draws.size()).collect(),
    };
    let workload = Workload {
        links: vec![Link {
            capacity: 1.0,
            latency_s: 0.0,
        }],
        hosts: vec![
            Host {
                out: vec![0],
                into: vec![],
            },
            Host::default(),
        ],
        ways: vec![(0, 1)],
        kind: Kind::Closed {
            flows,
            agent,
            agents,
        },
    };
    let outcome = carry_out(&workload, Settings::default()).unwrap();
    let passages: Vec<f64> = outcome
        .end_s
        .iter()
        .zip(&outcome.asked_s)
        .map(|(end_s, asked_s)| end_s - asked_s)
        .collect();
    holds(&passages, passage);
}

fn parsed(text: &str) -> Result<Workload, String> {
    Workload::parse(text.as_bytes()).map_err(|error| error.to_string())
}

const HEAD: &str = "1\n1e9 0.25\n2\n1 0 0\n0 0\n";

#[test]
fn a_flow_takes_the_latency_of_its_way_and_then_its_share_or_its_window() {
    let workload = parsed(&format!("{HEAD}open 2 1\n1 0 1 1e9\n")).unwrap();
    assert_eq!(
        carry_out(&workload, Settings::default()).unwrap().end_s,
        [2.25]
    );
    let window = Settings {
        window_bytes: Some(1e8),
        ..Settings::default()
    };
    // 1e8 bytes / (2 · 0.25 s) = 2e8 bytes/s
    assert_eq!(carry_out(&workload, window).unwrap().end_s, [6.25]);
}

#[test]
fn a_replay_ends_as_the_run_it_came_from_and_as_the_full_refill() {
    let text = "3\n1e9 0.01\n2e9 0.01\n1e9 0.01\n3\n1 0 0\n1 1 1 2\n0 1 1\nclosed 3 6\n\
        0 0 0 1 3e8\n1 0.1 0 2 4e8\n2 0.2 1 2 7e8\n0 0.1 1 2 5e8\n1 0 1 1 6e8\n2 0.3 0 1 1e8\n";
    let workload = parsed(text).unwrap();
    let outcome = carry_out(&workload, Settings::default()).unwrap();
    let replay = workload.replay(&outcome).unwrap();
    let mut written = Vec::new();
    replay.write(&mut written).unwrap();
    let read = Workload::parse(written.as_slice()).unwrap();
    assert_eq!(
        read.kind.clone(),
        parsed(std::str::from_utf8(&written).unwrap()).unwrap().kind
    );
    assert_eq!(
        read.replay(&Outcome::default()),
        Some(read.clone()),
        "open arrivals are their own replay"
    );
    let mut expected = outcome.end_s.clone();
    expected.sort_by(f64::total_cmp);
    for reference in [false, true] {
        let mut found = carry_out(
            &read,
            Settings {
                reference,
                ..Settings::default()
            },
        )
        .unwrap()
        .end_s;
        found.sort_by(f64::total_cmp);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= 1e-12 * expected,
                "{found} in place of {expected}"
            );
        }
    }
}

#[test]
fn jobs_read_and_compute_in_turn_on_the_cores_that_there_are() {
    // Two jobs of two chunks on one core: both read at 5e8 bytes/s, then compute at half a core, and so again.
    let text = "2\n1e9 0\n1e9 0\n2\n1 0 0\n0 1 1\nbatch 2 2 2 0 2e9 1\n1e9 3\n1e9 3\n";
    let outcome = carry_out(&parsed(text).unwrap(), Settings::default()).unwrap();
    assert_eq!(outcome.end_s, [16.0, 16.0]);
}

#[test]
fn what_is_no_workload_is_refused_with_its_line() {
    for (text, line, found) in [
        ("", 1, "the end of the file"),
        ("x\n", 1, "`x`"),
        ("1\n-1 0\n", 2, "`-1 0`"),
        ("1\n1e9 0\n1\n1 1 0\n", 4, "`1 1 0`"),
        (&format!("{HEAD}shut 1 1\n"), 6, "`shut 1 1`"),
        (&format!("{HEAD}open 2 1\n0 0 2 1e9\n"), 7, "`0 0 2 1e9`"),
        (&format!("{HEAD}open 2 1\n0 0 1 NaN\n"), 7, "`0 0 1 NaN`"),
        (
            &format!("{HEAD}open 2 2\n0 0 1 1e9\n"),
            8,
            "the end of the file",
        ),
        (
            &format!("{HEAD}closed 1 1\n1 0 0 1 1e9\n"),
            7,
            "`1 0 0 1 1e9`",
        ),
        (&format!("{HEAD}batch 1 1 0 0 1e9 1\n"), 6, "0 chunks"),
    ] {
        let message = parsed(text).unwrap_err();
        assert!(
            message.starts_with(&format!("line {line}: expected ")) && message.contains(found),
            "{message}"
        );
    }
}
