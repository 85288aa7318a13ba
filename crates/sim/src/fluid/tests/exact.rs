//! Tests against closed forms.

use super::*;

const NEAR: f64 = 1e-12;

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= NEAR * expected.abs(),
        "expected {expected:?}, found {found:?}"
    );
}

const SIZES: [f64; 5] = [3e8, 4.5e8, 8e8, 8.1e8, 1.6e9];
const WEIGHTS: [f64; 5] = [1.0, 0.3, 2.5, 1.7, 0.9];

#[test]
fn flows_of_one_link_end_as_processor_sharing_predicts() {
    both(|mut fluid| {
        let (capacity, count) = (1.25e9, SIZES.len());
        let link = link(&mut fluid, capacity);
        let class = fluid.class(&[link], 1.0, f64::INFINITY).unwrap();
        for (token, &bytes) in (0..).zip(&SIZES) {
            fluid.start(0.0, class, bytes, token).unwrap();
        }
        for (at, (token, end_s)) in ends(&mut fluid).into_iter().enumerate() {
            assert_eq!(token, at as u64);
            let before: f64 = SIZES[..at].iter().sum();
            near(end_s, (before + (count - at) as f64 * SIZES[at]) / capacity);
        }
    });
}

#[test]
fn flows_of_one_link_with_weights_end_in_the_order_of_size_by_weight() {
    both(|mut fluid| {
        let capacity = 1.25e9;
        let link = link(&mut fluid, capacity);
        for (token, (&bytes, &weight)) in (0..).zip(SIZES.iter().zip(&WEIGHTS)) {
            let class = fluid.class(&[link], weight, f64::INFINITY).unwrap();
            fluid.start(0.0, class, bytes, token).unwrap();
        }
        let mut order: Vec<usize> = (0..SIZES.len()).collect();
        order.sort_by(|&a, &b| (SIZES[a] / WEIGHTS[a]).total_cmp(&(SIZES[b] / WEIGHTS[b])));
        let mut gone = 0.0;
        for (at, (token, end_s)) in ends(&mut fluid).into_iter().enumerate() {
            let flow = order[at];
            assert_eq!(token, flow as u64);
            let left: f64 = order[at..].iter().map(|&other| WEIGHTS[other]).sum();
            near(
                end_s,
                (gone + SIZES[flow] / WEIGHTS[flow] * left) / capacity,
            );
            gone += SIZES[flow];
        }
    });
}

#[test]
fn caps_leave_the_rest_to_the_others_by_water_filling() {
    let caps = [1e8, 4e8, 2.5e8, f64::INFINITY, 9e8];
    both(|mut fluid| {
        let capacity = 1.25e9;
        let link = link(&mut fluid, capacity);
        let flows: Vec<FlowId> = (0..caps.len())
            .map(|at| {
                let class = fluid.class(&[link], WEIGHTS[at], caps[at]).unwrap();
                fluid.start(0.0, class, 1e9, 0).unwrap()
            })
            .collect();
        // Bisection, because the sum is monotone in the level.
        let (mut low, mut high) = (0.0, capacity);
        for _ in 0..200 {
            let level = (low + high) / 2.0;
            let sum: f64 = (0..caps.len())
                .map(|at| caps[at].min(WEIGHTS[at] * level))
                .sum();
            if sum < capacity {
                low = level
            } else {
                high = level
            }
        }
        for (at, &flow) in flows.iter().enumerate() {
            near(fluid.rate(flow).unwrap(), caps[at].min(WEIGHTS[at] * low));
            let capped = caps[at] < WEIGHTS[at] * low;
            assert_eq!(
                fluid.bottleneck(flow),
                Ok(if capped {
                    Bottleneck::Cap
                } else {
                    Bottleneck::Resource(link)
                })
            );
        }
        near(fluid.load(link).unwrap(), capacity);
    });
}

#[test]
fn a_long_flow_of_a_parking_lot_gets_the_share_of_its_busiest_link() {
    for shorts in [vec![1; 6], vec![3, 1, 7, 2]] {
        both(|mut fluid| {
            let capacity = 1e9;
            let links: Vec<ResourceId> =
                shorts.iter().map(|_| link(&mut fluid, capacity)).collect();
            let long = fluid.class(&links, 1.0, f64::INFINITY).unwrap();
            let long = fluid.start(0.0, long, 1e9, 0).unwrap();
            let mut short = Vec::new();
            for (&link, &count) in links.iter().zip(&shorts) {
                let class = fluid.class(&[link], 1.0, f64::INFINITY).unwrap();
                short.extend((0..count).map(|_| (count, fluid.start(0.0, class, 1e9, 0).unwrap())));
            }
            let busiest = f64::from(*shorts.iter().max().unwrap());
            let rate = capacity / (busiest + 1.0);
            near(fluid.rate(long).unwrap(), rate);
            for (count, flow) in short {
                near(
                    fluid.rate(flow).unwrap(),
                    (capacity - rate) / f64::from(count),
                );
            }
        });
    }
}

#[test]
fn a_flow_over_two_links_gets_the_lower_share() {
    both(|mut fluid| {
        let (one, two) = (link(&mut fluid, 1.0), link(&mut fluid, 2.0));
        let classes = [[one].as_slice(), &[one, two], &[two]]
            .map(|route| fluid.class(route, 1.0, f64::INFINITY).unwrap());
        let flows = classes.map(|class| fluid.start(0.0, class, 1e3, 0).unwrap());
        assert_eq!(flows.map(|flow| fluid.rate(flow).unwrap()), [0.5, 0.5, 1.5]);
        assert_eq!(fluid.bottleneck(flows[2]), Ok(Bottleneck::Resource(two)));
        assert_eq!(fluid.load(two), Ok(2.0));
    });
}

#[test]
fn a_disk_has_the_capacity_for_its_number_of_readers() {
    both(|mut fluid| {
        let disk = fluid
            .resource(Capacity::OfUsers(Box::new([200.0, 120.0, 90.0])))
            .unwrap();
        let class = fluid.class(&[disk], 1.0, f64::INFINITY).unwrap();
        for token in 0..4 {
            fluid
                .start(0.0, class, 90.0 * (1.0 + token as f64), token)
                .unwrap();
        }
        // Four and three readers share 90, two 120, one has 200.
        let expected = [4.0, 7.0, 8.5, 8.95];
        for ((_, end_s), expected) in ends(&mut fluid).into_iter().zip(expected) {
            near(end_s, expected);
        }
    });
}

#[test]
fn unrelated_flows_do_not_change_the_end_of_a_flow() {
    both(|mut fluid| {
        // Rounding each step to whole bytes would show here: 100 readers of 10 kB from a disk of 1
        // MB/s, and an unrelated flow.
        let (disk, other) = (link(&mut fluid, 1e6), link(&mut fluid, 1.0));
        let read = fluid.class(&[disk], 1.0, f64::INFINITY).unwrap();
        let tick = fluid.class(&[other], 1.0, f64::INFINITY).unwrap();
        for token in 0..100 {
            fluid.start(0.0, read, 1e4, token).unwrap();
        }
        let mut reported = Vec::new();
        for step in 1..300 {
            let now = f64::from(step) * 4.9e-3;
            while let Some(end) = fluid.poll_output(now) {
                reported.extend((end.token < 100).then_some(end.at_s));
            }
            fluid.start(now, tick, 1e-3, 100).unwrap();
        }
        assert_eq!(reported.len(), 100);
        reported.into_iter().for_each(|end_s| near(end_s, 1.0));
    });
}
