//! Comparison with a list that is searched for the lowest tag at every step.

use proptest::prelude::*;

use super::*;
use crate::fluid::tests::random::Draws;

const CALLS: usize = 3000;

fn serials(entries: &[Tagged]) -> Vec<u32> {
    entries.iter().map(|entry| entry.serial).collect()
}

/// Push and pop flows. A fraction `grow` of the calls pushes, and a fraction `near` of these has
/// tags near the first.
fn check(seed: u64, grow: f64, near: f64) {
    let mut draws = Draws(seed);
    let (mut queue, mut known) = (LaneQueue::default(), Vec::<Tagged>::new());
    let mut now = 0.0;
    for serial in 0..CALLS as u32 {
        if draws.chance(grow) {
            let far = if draws.chance(near) { 1.0 } else { 1000.0 };
            // Whole numbers: many tags are equal.
            let tag = now + (far * draws.next()).ceil();
            let (serial, slot) = (serial, serial);
            queue.push(Tagged { tag, serial, slot });
            known.push(Tagged { tag, serial, slot });
        } else if let Some(first) = queue.first() {
            let lowest = known.iter().map(|entry| entry.tag).reduce(f64::min);
            assert_eq!(Some(first.tag), lowest);
            let at = serials(&known).iter().position(|&one| one == first.serial);
            known.swap_remove(at.expect("it was pushed once"));
            queue.pop();
            now = first.tag;
        }
        if serial % 500 == 499 {
            queue.count_from(now, |entry| entry.serial % 7 != 0);
            known.retain(|entry| entry.serial % 7 != 0);
            known.iter_mut().for_each(|entry| entry.tag -= now);
            now = 0.0;
        }
        assert_eq!(queue.len(), known.len());
        assert_eq!(queue.first().is_none(), known.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flows_leave_in_the_order_of_their_tags(seed: u64, grow in 0.4..0.9, near in 0.0..1.0) {
        check(seed, grow, near);
    }
}

#[test]
fn most_of_many_flows_stay_out_of_the_heap() {
    let mut queue = LaneQueue::default();
    for serial in 0..10_000_u32 {
        let tag = f64::from(serial.wrapping_mul(2_654_435_761) >> 12);
        let slot = serial;
        queue.push(Tagged { tag, serial, slot });
        let many = queue.many.as_ref().map_or(0, |many| many.far.len());
        assert!(queue.heap.len() <= FEW + many / FAR_DIVISOR, "{serial}");
    }
}
