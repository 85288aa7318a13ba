//! Taking changes in, and solving those that reach nobody else.

use super::super::flows::Flows;
use super::super::network::Network;
use super::heap::OUTSIDE;
use super::lane::{CAP, IDLE, OWN};
use super::{Change, FULL, Partial, of_class, of_link};

impl Partial {
    /// Bring all rates up to date.
    pub(super) fn solve(&mut self, network: &Network, flows: &Flows) {
        if self.dirty.is_empty() && self.dirty_links.is_empty() {
            // A clock that was looked at by rounding too early, and ended nobody, goes back into the queue.
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
        // A class that leaves may soil its neighbour: the list grows while it is read, by a class at most once each.
        let mut next = 0;
        while let Some(&class) = self.dirty.get(next) {
            next += 1;
            self.work.changes += 1;
            self.work.classes += 1;
            let settled = self.changes.is_empty() && self.pressed.is_empty() && !self.whole;
            if let Some(change) = self.take_in(network, flows, class)
                && !(settled && self.settle(network, flows, change))
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

    /// Classes that can be limited by more than before leave, and come again.
    fn restore(&mut self, network: &Network, flows: &Flows) {
        let restored = &network.restored()[self.restored..];
        self.restored += restored.len();
        for &class in restored {
            // One that is not known yet will be taken as it is.
            let Some(lane) = self.lanes.get(class as usize) else {
                continue;
            };
            let solved = lane.solved;
            if solved > 0 {
                self.withdraw(network, class);
                for &resource in self.way(network, class) {
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

    /// A resource gives something else from now on.
    fn change_capacity(&mut self, network: &Network, flows: &Flows, resource: u32) {
        self.work.changes += 1;
        let link = &mut self.links[resource as usize];
        let facts = &network.resources[resource as usize];
        (link.capacity, link.varies) = (facts.capacity(link.users), facts.depends_on_users());
        if !link.is_shared() {
            if let Some(&(class, _)) = link.on.first() {
                self.loosen(class);
            }
        } else if link.entangled == 0 && self.pressed.is_empty() && !self.whole {
            self.refill(network, flows, resource, None);
        } else {
            if link.bound == 0 {
                // What was rounding beside the capacity before may be more than there is now.
                self.sum_again(resource);
            }
            let link = &self.links[resource as usize];
            if link.bound > 0 || link.given > link.capacity * FULL {
                self.pressed.push(resource);
            }
        }
    }

    /// The cap of a class may have changed though its flows have not.
    fn loosen(&mut self, class: u32) {
        self.lanes[class as usize].loose = true;
        self.soil(class);
    }

    /// Take the new number of flows of a class in, and its rate out. `None` if that changes nothing for anybody.
    fn take_in(&mut self, network: &Network, flows: &Flows, class: u32) -> Option<Change> {
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
        for &resource in self.way(network, class) {
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

    /// A resource has so many flows from now on, and may give something else to them.
    fn count(&mut self, network: &Network, resource: u32, users: u32) {
        let link = &mut self.links[resource as usize];
        link.users = users;
        if link.varies {
            link.capacity = network.resources[resource as usize].capacity(users);
        }
    }

    /// Take a class off its clock, and what it has out of the sums of the resources on its way.
    fn withdraw(&mut self, network: &Network, class: u32) {
        let (clock, total, flow) = (
            self.lanes[class as usize].clock,
            self.lanes[class as usize].total(),
            self.flow_of(class),
        );
        self.detach(class);
        for &resource in self.way(network, class) {
            let link = &mut self.links[resource as usize];
            if clock == resource {
                link.release(total);
            } else {
                link.given -= flow;
            }
        }
    }

    /// A class gets its first flow: it stands on all resources of its way.
    fn enter(&mut self, network: &Network, class: u32) {
        let begin = self.lanes[class as usize].begin;
        for (&resource, seat) in self.way(network, class).iter().zip(begin..) {
            let link = &mut self.links[resource as usize];
            self.seats[seat as usize] = link.on.len() as u32;
            link.on.push((class, seat));
            if link.on.len() == 2 {
                link.forget(self.now);
                let other = link.on[0].0;
                let full = self.lanes[other as usize].bound == resource;
                // A class that the resource itself has limited so far will not stay as it is, whatever fits beside it: it is filled with the
                // resource, of whose level it is.
                let (flow, level) = if full {
                    (f64::INFINITY, self.level_of(other))
                } else {
                    (self.flow_of(other), f64::INFINITY)
                };
                let link = &mut self.links[resource as usize];
                (link.given, link.level) = (flow, level);
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

    /// A class loses its last flow.
    fn quit(&mut self, network: &Network, flows: &Flows, class: u32) {
        if self.lanes[class as usize].shared > 1 {
            self.disentangle(network, class);
        }
        let begin = self.lanes[class as usize].begin;
        for (&resource, seat) in self.way(network, class).iter().zip(begin..) {
            let place = std::mem::replace(&mut self.seats[seat as usize], OUTSIDE);
            let link = &mut self.links[resource as usize];
            link.on.swap_remove(place as usize);
            if let Some(&(_, moved)) = link.on.get(place as usize) {
                self.seats[moved as usize] = place;
            }
            match link.on[..] {
                [(other, _)] if other != class => self.leave_alone(network, flows, resource, other),
                [] => link.level = f64::INFINITY,
                _ => {}
            }
        }
        self.lanes[class as usize].shared = 0;
    }

    /// A class meets another on one more resource.
    fn meet(&mut self, network: &Network, class: u32) {
        self.lanes[class as usize].shared += 1;
        if self.lanes[class as usize].shared == 2 {
            self.entangle(network, class);
        }
        self.learn_top(network, class);
    }

    /// A resource is left to one class: it is a cap of that class from now on.
    fn leave_alone(&mut self, network: &Network, flows: &Flows, resource: u32, class: u32) {
        if self.lanes[class as usize].shared == 2 {
            self.disentangle(network, class);
        }
        self.lanes[class as usize].shared -= 1;
        let (cap, _) = self.learn_top(network, class);
        let clock = self.lanes[class as usize].clock;
        if clock == resource {
            let rate = self.rate_of(class);
            self.place(flows, class, OWN, resource, rate);
            self.loosen(class);
        } else if self.links[resource as usize].varies {
            self.loosen(class);
        } else if clock != OWN && clock != IDLE {
            let level = cap / self.lanes[class as usize].weight;
            let link = &mut self.links[clock as usize];
            link.least_cap = link.least_cap.min(level);
        }
        self.queue.remove(of_link(resource), &mut self.places);
        self.links[resource as usize].forget(self.now);
    }

    fn entangle(&mut self, network: &Network, class: u32) {
        for &resource in self.way(network, class) {
            let link = &mut self.links[resource as usize];
            link.entangled += 1;
            // What is known of caps is not kept while classes meet each other elsewhere.
            link.least_cap = f64::NEG_INFINITY;
        }
    }

    fn disentangle(&mut self, network: &Network, class: u32) {
        for &resource in self.way(network, class) {
            self.links[resource as usize].entangled -= 1;
        }
    }

    /// Solve the change of one class, if it reaches nobody that would have to be looked at.
    fn settle(&mut self, network: &Network, flows: &Flows, change: Change) -> bool {
        let class = change.class;
        if self.lanes[class as usize].solved == 0 {
            return self.settle_departure(network, flows, class)
                || self.keep(network, flows, change);
        }
        let (cap, bound) = self.learn_top(network, class);
        let flow = cap * f64::from(self.lanes[class as usize].solved);
        let way = self.way(network, class);
        let mut isolated = CAP;
        // What is said here of one flow would be said twice of a class that names a resource twice.
        let mut slack = !self.lanes[class as usize].twice;
        for &resource in way {
            let link = &mut self.links[resource as usize];
            if link.is_shared() {
                slack &= link.bound == 0 && link.given + flow <= link.capacity * FULL;
                isolated = resource;
            }
        }
        if slack {
            self.settle_slack(network, flows, class, (cap, bound));
            return true;
        }
        let alone =
            self.lanes[class as usize].shared == 1 && self.links[isolated as usize].entangled == 0;
        if alone {
            self.settle_isolated(network, flows, isolated, Some((class, cap, bound)));
            return true;
        }
        self.keep(network, flows, change)
    }

    /// A class has its cap, and no resource on its way is full.
    fn settle_slack(
        &mut self,
        network: &Network,
        flows: &Flows,
        class: u32,
        (cap, bound): (f64, u32),
    ) {
        let lane = &self.lanes[class as usize];
        let (level, flow) = (cap / lane.weight, cap * f64::from(lane.solved));
        let way = network.stretch(lane.begin, lane.end);
        for &resource in way {
            let link = &mut self.links[resource as usize];
            link.given += flow;
            link.most_capped = link.most_capped.max(level);
            link.pressed = false;
            link.shifts += 1;
        }
        self.place(flows, class, OWN, bound, cap);
        for &resource in way {
            if self.links[resource as usize].is_worn_by_shifts() {
                self.sum_again(resource);
            }
        }
    }

    /// Sums that were changed often are made anew: they are rounded at every change.
    pub(super) fn sum_again(&mut self, resource: u32) {
        let (mut given, mut weight) = (0.0, 0.0);
        for &(class, _) in &self.links[resource as usize].on {
            let lane = &self.lanes[class as usize];
            if lane.clock == resource {
                weight += lane.total();
            } else {
                given += self.flow_of(class);
            }
        }
        let link = &mut self.links[resource as usize];
        (link.given, link.weight) = (given, weight);
        (link.shifts, link.heaviest) = (0, 0.0);
    }

    fn settle_departure(&mut self, network: &Network, flows: &Flows, class: u32) -> bool {
        let fits = self.way(network, class).iter().all(|&resource| {
            let link = &self.links[resource as usize];
            !link.is_shared()
                || link.entangled == 0
                || (link.bound == 0 && link.given <= link.capacity * FULL)
        });
        if fits {
            for &resource in self.way(network, class) {
                let link = &self.links[resource as usize];
                if link.is_shared() && (link.bound > 0 || link.given > link.capacity * FULL) {
                    self.settle_isolated(network, flows, resource, None);
                }
            }
        }
        fits
    }
}

/// Clocks.
impl Partial {
    /// Let a class follow a clock from now on.
    pub(super) fn place(&mut self, flows: &Flows, class: u32, clock: u32, bound: u32, rate: f64) {
        let lane = &mut self.lanes[class as usize];
        lane.bound = bound;
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

    /// Take a class off its clock.
    fn detach(&mut self, class: u32) {
        self.catch_up(class);
        let lane = &mut self.lanes[class as usize];
        match std::mem::replace(&mut lane.clock, IDLE) {
            IDLE => {}
            OWN => self.queue.remove(of_class(class), &mut self.places),
            link => {
                self.links[link as usize]
                    .heap
                    .remove(of_class(class), &mut self.places);
                self.spoil(link);
            }
        }
    }

    /// Put the next end of a class where its clock finds it.
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
            heap.set(of_class(class), end, &mut self.places);
        } else {
            heap.remove(of_class(class), &mut self.places);
        }
    }

    /// Put the next ends of all clocks in the queue whose level or first class has changed.
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
                self.queue.set(of_link(resource), end, &mut self.places);
            } else {
                self.queue.remove(of_link(resource), &mut self.places);
            }
        }
    }
}
