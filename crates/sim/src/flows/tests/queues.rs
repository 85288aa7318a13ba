//! Comparison with queueing theory. Each case runs several seeds, and checks that the 99.9 %
//! confidence interval is narrow and contains the value.
//!
//! | symbol | meaning |
//! |---|---|
//! | λ, S, x | arrivals per second, mean size, size of one flow |
//! | C, r, R | capacity, cap of a flow, R = C / r |
//! | ρ | λ S / C |
//! | E₂(R, a) | Erlang C: probability that all R servers are busy, a = λ S / r |

use std::collections::VecDeque;

use super::super::*;
use crate::fluid::{Capacity, ClassId, Fluid};

/// Number of flows per seed; fewer without optimisation, which is twenty times slower.
const FLOWS: usize = if cfg!(debug_assertions) {
    20_000
} else {
    200_000
};
const SEEDS: std::ops::Range<u64> = 1..6;

/// Number of first flows to ignore: they find the system emptier than it is on average.
const WARM_UP: usize = FLOWS / 20;

/// Number of batches per seed, and Student's t for 99.9 % with 5 · 10 − 1 degrees of freedom.
const BATCHES: usize = 10;
const STUDENT_T: f64 = 3.50;

/// Maximum half width of an interval, relative to the value.
const NARROW: f64 = if cfg!(debug_assertions) { 0.08 } else { 0.025 };

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Draws(u64);

impl Draws {
    fn of(seed: u64) -> Self {
        Self(seed << 32)
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }

    /// Return one of two sizes that differ by a factor of twenty, with mean 1. Results that are
    /// insensitive to the distribution of sizes must not change.
    fn size(&mut self) -> f64 {
        if self.next() < 0.9 {
            0.5 / 1.45
        } else {
            10.0 / 1.45
        }
    }
}

/// Check that `expected` is within the confidence interval of the mean over all seeds of `run`, and
/// that the interval is narrow.
fn holds(expected: f64, run: impl Fn(u64) -> Vec<f64>) {
    let mut means = Vec::new();
    for seed in SEEDS {
        let values = run(seed);
        let values = &values[WARM_UP.min(values.len() / 2)..];
        let size = values.len() / BATCHES;
        means.extend(
            values
                .chunks_exact(size)
                .take(BATCHES)
                .map(|batch| batch.iter().sum::<f64>() / size as f64),
        );
    }
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance = means.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = STUDENT_T * (variance / count).sqrt();
    assert!(
        (mean - expected).abs() <= half,
        "expected {expected}, found {mean} ± {half}"
    );
    assert!(
        half < NARROW * expected,
        "an interval of ± {half} around {mean} is too wide"
    );
}

/// Observations of random arrivals at one resource, by flow.
#[derive(Default)]
struct ObservedQueue {
    /// Time in the system divided by size.
    slowdown: Vec<f64>,
    /// Number of flows present at the arrival, which equals that at random times (Wolff 1982).
    there: Vec<f64>,
}

/// Run flows that arrive at random, `rate_per_s` per second, with sizes of mean 1.
fn arrivals(
    fluid: &mut Fluid,
    class: ClassId,
    rate_per_s: f64,
    seed: u64,
    size: impl Fn(&mut Draws) -> f64,
) -> ObservedQueue {
    let mut draws = Draws::of(seed);
    let (mut now, mut live, mut started) = (0.0, 0usize, Vec::new());
    let mut seen = ObservedQueue {
        slowdown: vec![0.0; FLOWS],
        there: Vec::new(),
    };
    for flow in 0..FLOWS {
        now += draws.exponential(1.0 / rate_per_s);
        while let Some(end) = fluid.poll_output(now) {
            let (start_s, bytes): (f64, f64) = started[end.token as usize];
            seen.slowdown[end.token as usize] = (end.at_s - start_s) / bytes;
            live -= 1;
        }
        seen.there.push(live as f64);
        let bytes = size(&mut draws);
        started.push((now, bytes));
        fluid.start(now, class, bytes, flow as u64).unwrap();
        live += 1;
    }
    while let Some(end) = fluid
        .poll_timeout()
        .and_then(|at_s| fluid.poll_output(at_s))
    {
        let (start_s, bytes) = started[end.token as usize];
        seen.slowdown[end.token as usize] = (end.at_s - start_s) / bytes;
    }
    seen
}

/// Run such flows over one resource and with a cap.
fn shared(capacity: Capacity, cap: f64, rate_per_s: f64, seed: u64) -> ObservedQueue {
    let mut fluid = Fluid::new();
    let resource = fluid.resource(capacity).unwrap();
    let class = fluid.class(&[resource], 1.0, cap).unwrap();
    arrivals(&mut fluid, class, rate_per_s, seed, Draws::size)
}

/// Return the probability of waiting, for `servers` servers with `offered` busy on average (Erlang
/// C).
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
    // E[T | x] = x / (C (1 − ρ)), for every distribution of sizes.
    holds(1.0 / 0.4, |seed| {
        shared(Capacity::Constant(1.0), f64::INFINITY, 0.6, seed).slowdown
    });
}

#[test]
fn capped_flows_form_a_queue_with_as_many_servers_as_fit() {
    // E[T | x] = (x / r) (1 + E₂(R, R ρ) / (R (1 − ρ))).
    let (servers, load) = (4, 0.7);
    let waits = erlang_c(servers, 4.0 * load) / (f64::from(servers) * (1.0 - load));
    holds(f64::from(servers) * (1.0 + waits), |seed| {
        shared(Capacity::Constant(1.0), 0.25, load, seed).slowdown
    });
}

#[test]
fn a_disk_whose_bytes_depend_on_its_readers_has_a_product_form() {
    // P(n) ~ Π λ S / μ(k), μ(k) = C(k). By Little, E[T] = E[N] / λ. Insensitive, so E[T | x] = x
    // E[T] / S.
    let gives = [1.0, 0.8, 0.9, 1.1];
    let load = 0.6;
    let law = |count: usize| {
        let mut weights = vec![1.0];
        for n in 1..count {
            weights.push(weights[n - 1] * load / gives[n.min(gives.len()) - 1]);
        }
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(move |weight| weight / sum)
    };
    let readers: f64 = (0..)
        .map(f64::from)
        .zip(law(2000))
        .map(|(n, p)| n * p)
        .sum();
    let run = |seed| shared(Capacity::OfUsers(gives.into()), f64::INFINITY, load, seed);
    holds(readers / load, |seed| run(seed).slowdown);
    for (n, probability) in law(2000).enumerate().take(3) {
        holds(probability, |seed| {
            let there = run(seed).there;
            there
                .iter()
                .map(|&there| f64::from(u8::from(there == n as f64)))
                .collect()
        });
    }
}

#[test]
fn flows_without_shared_resources_form_a_queue_with_a_server_for_each() {
    // M/G/∞: N is Poisson with mean λ S / r, for every distribution of sizes.
    let (rate_per_s, cap) = (0.9, 0.5);
    let busy = rate_per_s / cap;
    let run = |seed| {
        let mut fluid = Fluid::new();
        let class = fluid.class(&[], 1.0, cap).unwrap();
        arrivals(&mut fluid, class, rate_per_s, seed, Draws::size).there
    };
    holds(busy, run);
    holds((-busy).exp(), |seed| {
        run(seed)
            .iter()
            .map(|&there| f64::from(u8::from(there == 0.0)))
            .collect()
    });
}

/// Flow that waits for a slot.
#[derive(Clone, Copy, Default)]
struct Customer {
    requested_s: f64,
    bytes: f64,
    wait_s: f64,
    stay_s: f64,
}

#[test]
fn flows_that_wait_for_slots_wait_as_erlang_predicts() {
    // M/M/c: P(wait) = E₂(c, a), E[T] = S + E₂ / (c / S − λ). A slot serves 1 byte/s and is free
    // again when its flow ends.
    let (slots, rate_per_s) = (3, 1.8);
    let waits = erlang_c(slots, rate_per_s);
    let line = |seed| line(slots as usize, rate_per_s, seed).into_iter();
    holds(waits, |seed| {
        line(seed)
            .map(|it| f64::from(u8::from(it.wait_s > 0.0)))
            .collect()
    });
    holds(1.0 + waits / (f64::from(slots) - rate_per_s), |seed| {
        line(seed).map(|it| it.stay_s).collect()
    });
}

/// Run flows that arrive at random and wait for a slot, first come, first served.
fn line(slots: usize, rate_per_s: f64, seed: u64) -> Vec<Customer> {
    let mut draws = Draws::of(seed);
    let mut fluid = Fluid::new();
    let server = fluid.resource(Capacity::Constant(slots as f64)).unwrap();
    let class = fluid.class(&[server], 1.0, 1.0).unwrap();
    let mut customers: Vec<Customer> = Vec::new();
    let (mut waiting, mut live, mut requested_s) = (VecDeque::new(), 0, 0.0);
    while customers.len() < FLOWS {
        requested_s += draws.exponential(1.0 / rate_per_s);
        // Ends are handled one by one: a waiting flow takes the slot at the time of the end.
        while let Some(now) = fluid.poll_timeout().filter(|&at_s| at_s <= requested_s) {
            let Some(end) = fluid.poll_output(now) else {
                continue;
            };
            let gone = &mut customers[end.token as usize];
            gone.stay_s = end.at_s - gone.requested_s;
            live -= 1;
            if let Some(next) = waiting.pop_front() {
                let customer: &mut Customer = &mut customers[next];
                customer.wait_s = end.at_s - customer.requested_s;
                fluid
                    .start(end.at_s, class, customer.bytes, next as u64)
                    .unwrap();
                live += 1;
            }
        }
        let number = customers.len();
        let bytes = draws.exponential(1.0);
        customers.push(Customer {
            requested_s,
            bytes,
            ..Customer::default()
        });
        if live < slots {
            fluid
                .start(requested_s, class, bytes, number as u64)
                .unwrap();
            live += 1;
        } else {
            waiting.push_back(number);
        }
    }
    // The last flows have not ended.
    customers.truncate(FLOWS - FLOWS / 50);
    customers
}

#[test]
fn agents_that_think_and_transfer_pass_as_mean_value_analysis_predicts() {
    // R(n) = S (1 + Q(n − 1)), X = n / (R + Z), Q = X R. Insensitive to both distributions.
    let (agents, think_s) = (8, 5.0);
    let (mut queue, mut stay) = (0.0, 0.0);
    for n in 1..=agents {
        stay = 1.0 + queue;
        queue = f64::from(n) / (stay + think_s) * stay;
    }
    holds(stay, |seed| response_times(agents, think_s, seed));
}

/// Return the times from request to end of agents on one link.
fn response_times(agents: u32, think_s: f64, seed: u64) -> Vec<f64> {
    let mut draws = Draws::of(seed);
    let flows = FlowColumns {
        start_s: (0..FLOWS).map(|_| 2.0 * think_s * draws.next()).collect(),
        route: vec![0; FLOWS],
        bytes: (0..FLOWS).map(|_| draws.size()).collect(),
    };
    let workload = Workload {
        links: vec![FlowLink {
            capacity: 1.0,
            latency_s: 0.0,
        }],
        hosts: vec![
            FlowHost {
                out: vec![0],
                into: vec![],
            },
            FlowHost::default(),
        ],
        routes: vec![(0, 1)],
        kind: WorkloadKind::Closed {
            flows,
            agent: (0..FLOWS as u32).map(|flow| flow % agents).collect(),
            agents,
        },
    };
    let outcome = run(&workload, FlowSettings::default()).unwrap();
    let started = outcome.end_s.iter().zip(&outcome.requested_s);
    started
        .map(|(end_s, requested_s)| end_s - requested_s)
        .collect()
}
