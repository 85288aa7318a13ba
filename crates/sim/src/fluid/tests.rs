//! Tests of the solver: closed forms (`exact`), definition and certificate (`random`), invalid
//! calls (`fuzz`), and documented behaviour (this file).

mod exact;
mod fuzz;
pub(super) mod random;

use super::*;

impl Fluid {
    /// Assert that each resource counts the classes that it limits.
    fn assert_counts(&mut self) {
        // This solves the pending changes.
        self.poll_timeout();
        if let Solver::Partial(solver) = &self.solver {
            solver.assert_counts();
        }
    }
}

/// Return all ends from now on, as token and time.
fn ends(fluid: &mut Fluid) -> Vec<(u64, f64)> {
    let mut reported = Vec::new();
    while let Some(at_s) = fluid.poll_timeout() {
        while let Some(end) = fluid.poll_output(at_s) {
            reported.push((end.token, end.at_s));
        }
    }
    reported
}

/// Run a test with both solvers.
fn both(test: impl Fn(Fluid)) {
    test(Fluid::new());
    test(Fluid::reference());
}

fn link(fluid: &mut Fluid, capacity: f64) -> ResourceId {
    fluid
        .resource(Capacity::Constant(capacity))
        .expect("a capacity")
}

#[test]
fn flows_stop_during_an_outage_and_continue_after_it() {
    both(|mut fluid| {
        let link = link(&mut fluid, 10.0);
        let class = fluid.class(&[link], 1.0, f64::INFINITY).unwrap();
        fluid.start(0.0, class, 100.0, 0).unwrap();
        fluid
            .set_capacity(5.0, link, Capacity::Constant(0.0))
            .unwrap();
        assert_eq!(fluid.poll_timeout(), None);
        fluid
            .set_capacity(8.0, link, Capacity::Constant(50.0))
            .unwrap();
        assert_eq!(ends(&mut fluid), [(0, 9.0)]);
    });
}

#[test]
fn simultaneous_ends_are_reported_in_start_order() {
    both(|mut fluid| {
        let link = link(&mut fluid, 8.0);
        let fast = fluid.class(&[link], 2.0, f64::INFINITY).unwrap();
        let slow = fluid.class(&[link], 1.0, f64::INFINITY).unwrap();
        for (class, bytes, token) in [
            (slow, 10.0, 3),
            (fast, 20.0, 1),
            (slow, 10.0, 2),
            (fast, 0.0, 9),
        ] {
            fluid.start(0.0, class, bytes, token).unwrap();
        }
        assert_eq!(ends(&mut fluid), [(9, 0.0), (3, 5.0), (1, 5.0), (2, 5.0)]);
    });
}

#[test]
fn a_stopped_flow_returns_its_remaining_bytes_and_frees_its_share() {
    both(|mut fluid| {
        let link = link(&mut fluid, 10.0);
        let class = fluid.class(&[link], 1.0, f64::INFINITY).unwrap();
        let flows = [1, 2].map(|token| fluid.start(0.0, class, 100.0, token).unwrap());
        assert_eq!(fluid.stop(4.0, flows[0]), Ok(80.0));
        assert_eq!(fluid.rate(flows[1]), Ok(10.0));
        assert_eq!(ends(&mut fluid), [(2, 12.0)]);
        assert!(matches!(
            fluid.rate(flows[1]),
            Err(FluidError::Unknown { .. })
        ));
        assert!(matches!(
            fluid.stop(20.0, flows[0]),
            Err(FluidError::Unknown { .. })
        ));
    });
}

#[test]
fn a_resource_named_twice_carries_the_rate_of_a_flow_twice() {
    both(|mut fluid| {
        let disk = link(&mut fluid, 10.0);
        let copy = fluid.class(&[disk, disk], 1.0, f64::INFINITY).unwrap();
        let flow = fluid.start(0.0, copy, 10.0, 0).unwrap();
        assert_eq!(fluid.rate(flow), Ok(5.0));
        assert_eq!(fluid.load(disk), Ok(10.0));
    });
}

#[test]
fn invalid_arguments_are_rejected_without_changes() {
    both(|mut fluid| {
        let link = link(&mut fluid, 10.0);
        let class = fluid.class(&[link], 1.0, 3.0).unwrap();
        assert_eq!(fluid.class(&[link], 1.0, 3.0), Ok(class));
        let flow = fluid.start(5.0, class, 30.0, 0).unwrap();
        let none = ResourceId(7);
        for rejected in [
            fluid.resource(Capacity::Constant(f64::NAN)).err(),
            fluid.resource(Capacity::OfUsers(Box::new([]))).err(),
            fluid.class(&[none], 1.0, 1.0).err(),
            fluid.class(&[link], 0.0, 1.0).err(),
            fluid.class(&[link], 1.0, f64::NAN).err(),
            fluid.class(&[], 1.0, f64::INFINITY).err(),
            fluid.start(6.0, ClassId(9), 1.0, 0).err(),
            fluid.start(6.0, class, -1.0, 0).err(),
            fluid.start(4.0, class, 1.0, 0).err(),
            fluid.start(f64::NAN, class, 1.0, 0).err(),
            fluid.set_capacity(6.0, none, Capacity::Constant(1.0)).err(),
            fluid.load(none).err(),
        ] {
            let message = rejected.expect("an error").to_string();
            assert!(message.starts_with("expected "), "{message}");
        }
        for no_time in [f64::NAN, f64::INFINITY, -1.0, 4.0] {
            assert_eq!(fluid.poll_output(no_time), None);
        }
        assert_eq!(
            (fluid.rate(flow), fluid.bottleneck(flow)),
            (Ok(3.0), Ok(Bottleneck::Cap))
        );
        assert_eq!(ends(&mut fluid), [(0, 15.0)]);
    });
}

/// Return the number of examined classes per change, for a number of concurrent flows on one
/// bottleneck.
fn classes_a_change(flows: u64, classes: u64) -> f64 {
    let mut fluid = Fluid::new();
    let backbone = link(&mut fluid, 1e9);
    let routes: Vec<ClassId> = (0..classes)
        .map(|_| {
            let access = link(&mut fluid, 1e8);
            fluid
                .class(&[access, backbone], 1.0, f64::INFINITY)
                .unwrap()
        })
        .collect();
    for flow in 0..flows {
        let bytes = 1e6 + (flow * 7919 % 1000) as f64;
        fluid
            .start(
                flow as f64 * 1e-9,
                routes[(flow % classes) as usize],
                bytes,
                flow,
            )
            .unwrap();
    }
    assert_eq!(ends(&mut fluid).len(), flows as usize);
    let work = fluid.work();
    work.classes as f64 / work.changes as f64
}

#[test]
fn the_work_of_a_change_does_not_grow_with_the_number_of_flows() {
    let few = classes_a_change(100, 100);
    assert!(classes_a_change(30_000, 100) < 1.3 * few, "{few} with few");
    assert!(classes_a_change(3000, 3000) < 1.3 * few, "{few} with few");
}

#[test]
fn a_disk_behind_a_slower_card_limits_flows_only_after_it_becomes_slower() {
    both(|mut fluid| {
        let (card, disk) = (link(&mut fluid, 10.0), link(&mut fluid, 15.0));
        let flows = [1.0, 2.0].map(|weight| {
            let node = link(&mut fluid, 10.0);
            let route = [card, node, disk];
            let class = fluid.class(&route, weight, f64::INFINITY).unwrap();
            fluid.start(0.0, class, 1e3, 0).unwrap()
        });
        assert_eq!(fluid.load(disk), Ok(10.0));
        assert_eq!(fluid.work().regions, 0);
        let slow = Capacity::Constant(6.0);
        fluid.set_capacity(1.0, disk, slow).unwrap();
        assert_eq!(flows.map(|flow| fluid.rate(flow)), [Ok(2.0), Ok(4.0)]);
        assert_eq!(fluid.bottleneck(flows[0]), Ok(Bottleneck::Resource(disk)));
        // A flow from elsewhere to the disk does not cross the card.
        let local = fluid.class(&[disk], 3.0, f64::INFINITY).unwrap();
        let copy = fluid.start(2.0, local, 1e3, 0).unwrap();
        assert_eq!(fluid.rate(copy), Ok(3.0));
        assert_eq!((fluid.load(disk), fluid.load(card)), (Ok(6.0), Ok(3.0)));
    });
}

#[test]
fn a_saturated_star_is_filled_again_only_when_a_flow_changes_sides() {
    let mut fluid = Fluid::new();
    let sides = [(); 2].map(|()| {
        (1..7)
            .map(|site| link(&mut fluid, f64::from(site * site)))
            .collect::<Vec<_>>()
    });
    let mut tokens = 0..;
    for out in &sides[0] {
        for into in &sides[1] {
            let class = fluid.class(&[*out, *into], 1.0, f64::INFINITY).unwrap();
            for (token, number) in (&mut tokens).zip(0..20) {
                fluid
                    .start(0.0, class, 1.0 + f64::from(number * 7 % 20), token)
                    .unwrap();
            }
        }
    }
    let reported = ends(&mut fluid).len();
    let work = fluid.work();
    assert_eq!(reported, 36 * 20);
    assert!(3 * work.regions < work.changes, "{work:?}");
}
