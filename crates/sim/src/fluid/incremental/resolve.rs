//! Applies changes, and solves the simple ones without a region.

use super::super::flows::Flows;
use super::super::network::SolverNetwork;
use super::heap::OUTSIDE;
use super::lane::{CAP, IDLE, OWN};
use super::{Change, FULL, IncrementalSolver, of_class, of_link};

impl IncrementalSolver {
    /// Bring all rates up to date.
    pub(super) fn solve(&mut self, network: &SolverNetwork, flows: &Flows) {
        if self.dirty.is_empty() && self.dirty_links.is_empty() {
            // A clock that was read too early because of rounding, and ended no flow, is queued
            // again.
            self.queue_links();
            return;
        }
        self.changes.clear();
        self.pressed.clear();
        if self.restored < network.restored().len() {
            self.restore(network, flows);
        }
        while let Some(resource) = self.dirty_links.pop() {
            self.change_capacity(network, flows, resource);
        }
        // A class that leaves can make its neighbour dirty, so the list grows during the loop. Each
        // class is added at most once.
        let mut next = 0;
        while let Some(&class) = self.dirty.get(next) {
            next += 1;
            self.work.changes += 1;
            self.work.classes += 1;
            let resolved = self.changes.is_empty() && self.pressed.is_empty() && !self.whole;
            if let Some(change) = self.admit(network, flows, class)
                && !(resolved && self.resolve(network, flows, change))
            {
                self.changes.push(change);
            }
        }
        self.dirty.clear();
        if !(self.changes.is_empty() && self.pressed.is_empty()) {
            self.fill_region(network, flows);
        }
        self.queue_links();
    }

    /// Remove and re-add the classes that more resources can limit than before.
    fn restore(&mut self, network: &SolverNetwork, flows: &Flows) {
        let restored = &network.restored()[self.restored..];
        self.restored += restored.len();
        for &class in restored {
            // A class that is not known yet will be added with the new limits.
            let Some(lane) = self.lanes.get(class as usize) else {
                continue;
            };
            let solved = lane.solved;
            if solved > 0 {
                self.withdraw(network, class);
                for &resource in self.route(network, class) {
                    let users = self.links[resource as usize].users - solved;
                    self.count(network, resource, users);
                    self.pressed.push(resource);
                }
                self.lanes[class as usize].solved = 0;
                self.quit(network, flows, class);
                self.soil(class);
                self.whole = true;
            }
            self.lanes[class as usize].end = network.classes[class as usize].end;
        }
    }

    /// Apply a changed capacity.
    fn change_capacity(&mut self, network: &SolverNetwork, flows: &Flows, resource: u32) {
        self.work.changes += 1;
        let link = &mut self.links[resource as usize];
        let info = &network.resources[resource as usize];
        (link.capacity, link.varies) = (info.capacity(link.users), info.depends_on_users());
        if !link.is_shared() {
            if let Some(&(class, _)) = link.on.first() {
                self.loosen(class);
            }
        } else if link.entangled == 0 && self.pressed.is_empty() && !self.whole {
            self.refill(network, flows, resource, None);
        } else {
            if link.bottleneck == 0 {
                // An error that was small compared with the old capacity may exceed the new one.
                self.sum_again(resource);
            }
            let link = &self.links[resource as usize];
            if link.bottleneck > 0 || link.allocated > link.capacity * FULL {
                self.pressed.push(resource);
            }
        }
    }

    /// Mark a class whose cap may have changed although its flows have not.
    fn loosen(&mut self, class: u32) {
        self.lanes[class as usize].loose = true;
        self.soil(class);
    }

    /// Apply the new number of flows of a class and withdraw its rate. Return `None` if this
    /// changes no rate.
    fn admit(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) -> Option<Change> {
        let lane = &mut self.lanes[class as usize];
        lane.dirty = false;
        let (before, after) = (lane.solved, lane.live);
        if before == after && !lane.loose {
            self.queue_class(flows, class);
            return None;
        }
        lane.loose = false;
        let change = Change {
            class,
            level: self.level_of(class),
            clock: self.lanes[class as usize].clock,
        };
        self.withdraw(network, class);
        for &resource in self.route(network, class) {
            let users = self.links[resource as usize].users + after - before;
            self.count(network, resource, users);
            self.links[resource as usize].pressed |= after > before;
        }
        self.lanes[class as usize].solved = after;
        if before == 0 && after > 0 {
            self.enter(network, class);
        } else if after == 0 && before > 0 {
            self.quit(network, flows, class);
        }
        Some(change)
    }

    /// Set the number of flows on a resource, and its capacity if that depends on the number.
    fn count(&mut self, network: &SolverNetwork, resource: u32, users: u32) {
        let link = &mut self.links[resource as usize];
        link.users = users;
        if link.varies {
            link.capacity = network.resources[resource as usize].capacity(users);
        }
    }

    /// Detach a class from its clock and subtract its rate from the sums of the resources on its
    /// route.
    fn withdraw(&mut self, network: &SolverNetwork, class: u32) {
        let (clock, total, flow) = (
            self.lanes[class as usize].clock,
            self.lanes[class as usize].total(),
            self.flow_of(class),
        );
        self.detach(class);
        for &resource in self.route(network, class) {
            let link = &mut self.links[resource as usize];
            if clock == resource {
                link.release(total);
            } else {
                link.allocated -= flow;
            }
        }
    }

    /// Add a class that gets its first flow to all resources on its route.
    fn enter(&mut self, network: &SolverNetwork, class: u32) {
        let start = self.lanes[class as usize].start;
        for (&resource, seat) in self.route(network, class).iter().zip(start..) {
            let link = &mut self.links[resource as usize];
            self.seats[seat as usize] = link.on.len() as u32;
            link.on.push((class, seat));
            if link.on.len() == 2 {
                link.forget(self.now);
                let other = link.on[0].0;
                let full = self.lanes[other as usize].bottleneck == resource;
                // A first class that this resource has limited cannot keep its rate, even if the
                // new class fits. It is filled with the resource, which gets the level of the
                // class.
                let (flow, level) = if full {
                    (f64::INFINITY, self.level_of(other))
                } else {
                    (self.flow_of(other), f64::INFINITY)
                };
                let link = &mut self.links[resource as usize];
                (link.allocated, link.level) = (flow, level);
                if full && self.links[resource as usize].varies {
                    self.loosen(other);
                }
                if other == class {
                    self.lanes[class as usize].shared += 1;
                } else {
                    self.meet(network, other);
                }
            }
            self.lanes[class as usize].shared +=
                u32::from(self.links[resource as usize].is_shared());
        }
        if self.lanes[class as usize].shared > 1 {
            self.entangle(network, class);
        }
    }

    /// Remove a class that loses its last flow from all resources on its route.
    fn quit(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) {
        if self.lanes[class as usize].shared > 1 {
            self.disentangle(network, class);
        }
        let start = self.lanes[class as usize].start;
        for (&resource, seat) in self.route(network, class).iter().zip(start..) {
            let position = std::mem::replace(&mut self.seats[seat as usize], OUTSIDE);
            let link = &mut self.links[resource as usize];
            link.on.swap_remove(position as usize);
            if let Some(&(_, moved)) = link.on.get(position as usize) {
                self.seats[moved as usize] = position;
            }
            match link.on[..] {
                [(other, _)] if other != class => self.leave_alone(network, flows, resource, other),
                [] => link.level = f64::INFINITY,
                _ => {}
            }
        }
        self.lanes[class as usize].shared = 0;
    }

    /// Count one more shared resource on the route of a class.
    fn meet(&mut self, network: &SolverNetwork, class: u32) {
        self.lanes[class as usize].shared += 1;
        if self.lanes[class as usize].shared == 2 {
            self.entangle(network, class);
        }
        self.learn_top(network, class);
    }

    /// Make a resource with one remaining class a cap of that class.
    fn leave_alone(&mut self, network: &SolverNetwork, flows: &Flows, resource: u32, class: u32) {
        if self.lanes[class as usize].shared == 2 {
            self.disentangle(network, class);
        }
        self.lanes[class as usize].shared -= 1;
        let (cap, _) = self.learn_top(network, class);
        let clock = self.lanes[class as usize].clock;
        if clock == resource {
            let rate = self.rate_of(class);
            self.position(flows, class, OWN, resource, rate);
            self.loosen(class);
        } else if self.links[resource as usize].varies {
            self.loosen(class);
        } else if clock != OWN && clock != IDLE {
            let level = cap / self.lanes[class as usize].weight;
            let link = &mut self.links[clock as usize];
            link.min_cap = link.min_cap.min(level);
        }
        self.queue.remove(of_link(resource), &mut self.positions);
        self.links[resource as usize].forget(self.now);
    }

    fn entangle(&mut self, network: &SolverNetwork, class: u32) {
        for &resource in self.route(network, class) {
            let link = &mut self.links[resource as usize];
            link.entangled += 1;
            // The bounds on caps are not maintained while classes share other resources.
            link.min_cap = f64::NEG_INFINITY;
        }
    }

    fn disentangle(&mut self, network: &SolverNetwork, class: u32) {
        for &resource in self.route(network, class) {
            self.links[resource as usize].entangled -= 1;
        }
    }

    /// Solve the change of one class without a region. Return whether this is possible.
    fn resolve(&mut self, network: &SolverNetwork, flows: &Flows, change: Change) -> bool {
        let class = change.class;
        if self.lanes[class as usize].solved == 0 {
            return self.resolve_departure(network, flows, class)
                || self.local_update(network, flows, change);
        }
        let (cap, bottleneck) = self.learn_top(network, class);
        let flow = cap * f64::from(self.lanes[class as usize].solved);
        let route = self.route(network, class);
        let mut isolated = CAP;
        // The check counts each flow once, so it does not hold for a route that has a resource
        // twice.
        let mut slack = !self.lanes[class as usize].twice;
        for &resource in route {
            let link = &mut self.links[resource as usize];
            if link.is_shared() {
                slack &= link.bottleneck == 0 && link.allocated + flow <= link.capacity * FULL;
                isolated = resource;
            }
        }
        if slack {
            self.resolve_slack(network, flows, class, (cap, bottleneck));
            return true;
        }
        let alone =
            self.lanes[class as usize].shared == 1 && self.links[isolated as usize].entangled == 0;
        if alone {
            self.resolve_isolated(network, flows, isolated, Some((class, cap, bottleneck)));
            return true;
        }
        self.local_update(network, flows, change)
    }

    /// Solve a class that has its cap while no resource on its route is full.
    fn resolve_slack(
        &mut self,
        network: &SolverNetwork,
        flows: &Flows,
        class: u32,
        (cap, bottleneck): (f64, u32),
    ) {
        let lane = &self.lanes[class as usize];
        let (level, flow) = (cap / lane.weight, cap * f64::from(lane.solved));
        let route = network.route_slice(lane.start, lane.end);
        for &resource in route {
            let link = &mut self.links[resource as usize];
            link.allocated += flow;
            link.max_capped = link.max_capped.max(level);
            link.pressed = false;
            link.shifts += 1;
        }
        self.position(flows, class, OWN, bottleneck, cap);
        for &resource in route {
            if self.links[resource as usize].is_worn_by_shifts() {
                self.sum_again(resource);
            }
        }
    }

    /// Recompute sums that were changed often, because every change rounds them.
    pub(super) fn sum_again(&mut self, resource: u32) {
        let (mut allocated, mut weight) = (0.0, 0.0);
        for &(class, _) in &self.links[resource as usize].on {
            let lane = &self.lanes[class as usize];
            if lane.clock == resource {
                weight += lane.total();
            } else {
                allocated += self.flow_of(class);
            }
        }
        let link = &mut self.links[resource as usize];
        (link.allocated, link.weight) = (allocated, weight);
        (link.shifts, link.heaviest) = (0, 0.0);
    }

    fn resolve_departure(&mut self, network: &SolverNetwork, flows: &Flows, class: u32) -> bool {
        let fits = self.route(network, class).iter().all(|&resource| {
            let link = &self.links[resource as usize];
            !link.is_shared()
                || link.entangled == 0
                || (link.bottleneck == 0 && link.allocated <= link.capacity * FULL)
        });
        if fits {
            for &resource in self.route(network, class) {
                let link = &self.links[resource as usize];
                if link.is_shared()
                    && (link.bottleneck > 0 || link.allocated > link.capacity * FULL)
                {
                    self.resolve_isolated(network, flows, resource, None);
                }
            }
        }
        fits
    }
}

/// Methods that move classes between clocks.
impl IncrementalSolver {
    /// Attach a class to a clock.
    pub(super) fn position(
        &mut self,
        flows: &Flows,
        class: u32,
        clock: u32,
        bottleneck: u32,
        rate: f64,
    ) {
        let lane = &mut self.lanes[class as usize];
        lane.bottleneck = bottleneck;
        if lane.clock != clock || (clock == OWN && lane.rate != rate) {
            if lane.clock != clock {
                self.detach(class);
            } else {
                self.catch_up(class);
            }
            let lane = &mut self.lanes[class as usize];
            lane.clock = clock;
            lane.rate = rate;
            lane.since = match clock {
                OWN => self.now,
                link => {
                    let link = &mut self.links[link as usize];
                    link.catch_up(self.now);
                    link.joins += 1;
                    link.clock
                }
            };
        }
        self.queue_class(flows, class);
    }

    /// Detach a class from its clock.
    fn detach(&mut self, class: u32) {
        self.catch_up(class);
        let lane = &mut self.lanes[class as usize];
        match std::mem::replace(&mut lane.clock, IDLE) {
            IDLE => {}
            OWN => self.queue.remove(of_class(class), &mut self.positions),
            link => {
                self.links[link as usize]
                    .heap
                    .remove(of_class(class), &mut self.positions);
                self.spoil(link);
            }
        }
    }

    /// Queue the next end of a class in the heap of its clock.
    fn queue_class(&mut self, flows: &Flows, class: u32) {
        let lane = &mut self.lanes[class as usize];
        let end = lane.next_end(flows);
        let clock = lane.clock;
        let heap = match clock {
            IDLE => return,
            OWN => &mut self.queue,
            link => {
                self.spoil(link);
                &mut self.links[link as usize].heap
            }
        };
        if end < f64::INFINITY {
            heap.set(of_class(class), end, &mut self.positions);
        } else {
            heap.remove(of_class(class), &mut self.positions);
        }
    }

    /// Queue the next ends of all clocks whose level or first class has changed.
    fn queue_links(&mut self) {
        while let Some(resource) = self.stale.pop() {
            let link = &mut self.links[resource as usize];
            link.stale = false;
            if link.is_worn() {
                link.catch_up(self.now);
                let clock = std::mem::take(&mut link.clock);
                link.heap.lower(clock);
                link.joins = 0;
                for &(_, item) in link.heap.entries() {
                    self.lanes[item as usize / 2].since -= clock;
                }
            }
            let end = link.next_end();
            if end < f64::INFINITY {
                self.queue.set(of_link(resource), end, &mut self.positions);
            } else {
                self.queue.remove(of_link(resource), &mut self.positions);
            }
        }
    }
}
