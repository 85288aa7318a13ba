//! Random calls, some with invalid identifiers, numbers and times, return a result or an error, and
//! never panic or hang.

use proptest::prelude::*;

use super::random::Draws;
use super::*;

const CALLS: u64 = 120;

/// Maximum number of ends at one instant; more would be a loop.
const MOST_ENDS: usize = 10_000;

/// Return a number, valid or not.
fn number(draws: &mut Draws) -> f64 {
    const ODD: [f64; 14] = [
        0.0,
        -0.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        5e-324,
        1e-300,
        1e300,
        f64::MAX,
        1e-9,
        1e15,
        1e-30,
        1e30,
    ];
    if draws.chance(0.3) {
        ODD[draws.below(ODD.len())]
    } else {
        10.0 * draws.next()
    }
}

fn capacity(draws: &mut Draws) -> Capacity {
    if draws.chance(0.7) {
        return Capacity::Constant(number(draws));
    }
    Capacity::OfUsers((0..draws.below(4)).map(|_| number(draws)).collect())
}

fn id(draws: &mut Draws, known: usize) -> u32 {
    if draws.chance(0.1) {
        u32::MAX - draws.below(3) as u32
    } else {
        draws.below(known + 1) as u32
    }
}

/// Success or error of a call.
type CallResult = Result<(), FluidError>;

/// Make one call; started flows are added to `flows`.
fn call(draws: &mut Draws, fluid: &mut Fluid, now: f64, flows: &mut Vec<FlowId>) -> CallResult {
    let (resources, classes) = (fluid.network.resources.len(), fluid.network.classes.len());
    let flow = flows.get(draws.below(flows.len().max(1))).copied();
    let flow = flow.unwrap_or(FlowId {
        slot: id(draws, 3),
        serial: id(draws, 3),
    });
    match draws.below(10) {
        0 => fluid.resource(capacity(draws)).map(drop),
        1 => {
            let route: Vec<ResourceId> = (0..draws.below(4))
                .map(|_| ResourceId(id(draws, resources)))
                .collect();
            fluid.class(&route, number(draws), number(draws)).map(drop)
        }
        2..5 => {
            flows.push(fluid.start(now, ClassId(id(draws, classes)), number(draws), 0)?);
            Ok(())
        }
        5 => fluid.stop(now, flow).map(drop),
        6 => fluid.set_capacity(now, ResourceId(id(draws, resources)), capacity(draws)),
        7 => fluid
            .rate(flow)
            .and_then(|_| fluid.bottleneck(flow))
            .map(drop),
        8 => fluid.load(ResourceId(id(draws, resources))).map(drop),
        _ => {
            let reported = std::iter::from_fn(|| fluid.poll_output(now))
                .take(MOST_ENDS)
                .count();
            assert!(reported < MOST_ENDS, "ends without an end");
            Ok(())
        }
    }
}

/// Make the calls of a seed. Return which of them succeed, and check the time after each.
fn fuzz(seed: u64, mut fluid: Fluid) -> Vec<bool> {
    let mut draws = Draws(seed);
    let (mut now, mut flows, mut outcomes) = (0.0, Vec::new(), Vec::new());
    for _ in 0..CALLS {
        now = match draws.below(12) {
            0 => number(&mut draws),
            1 => now - 1.0,
            2..6 => fluid.now + draws.next(),
            _ => fluid.now,
        };
        let before = fluid.now;
        let outcome = call(&mut draws, &mut fluid, now, &mut flows);
        if let Err(error) = &outcome {
            assert!(error.to_string().starts_with("expected "), "{error}");
        }
        assert!(
            fluid.now.is_finite() && fluid.now >= before,
            "time went from {before} to {}",
            fluid.now
        );
        assert!(
            fluid.poll_timeout().is_none_or(|at_s| at_s.is_finite()),
            "an end at no time"
        );
        fluid.assert_counts();
        outcomes.push(outcome.is_ok());
    }
    outcomes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_with_invalid_arguments_never_panic_or_hang(seed: u64) {
        fuzz(seed, Fluid::new());
        fuzz(seed, Fluid::reference());
    }
}
