//! Tests of internal state.

use super::*;
use crate::fluid::{Capacity, Fluid, Solver};

fn partial(fluid: &mut Fluid) -> &mut IncrementalSolver {
    match &mut fluid.solver {
        Solver::Partial(solver) => solver,
        Solver::Full(_) => unreachable!("expected the fast solver"),
    }
}

#[test]
fn a_clock_polled_too_early_by_rounding_returns_to_the_queue() {
    let mut fluid = Fluid::new();
    let link = fluid.resource(Capacity::Constant(10.0)).unwrap();
    for (class, weight) in [1.0, 2.0].into_iter().enumerate() {
        let class_id = fluid.class(&[link], weight, f64::INFINITY).unwrap();
        fluid.start(0.0, class_id, 100.0, class as u64).unwrap();
    }
    assert_eq!(fluid.poll_timeout(), Some(15.0));
    // Imitates the effect of rounding on the key, on a larger scale.
    let solver = partial(&mut fluid);
    solver.queue.set(of_link(0), 14.0, &mut solver.positions);
    assert_eq!(fluid.poll_output(14.0), None);
    assert_eq!(fluid.poll_timeout(), Some(15.0));
    assert_eq!(fluid.poll_output(15.0).map(|end| end.token), Some(1));
    assert_eq!(fluid.poll_timeout(), Some(20.0));
}
