//! Resources that can never be full because another one is full first.
//!
//! Every class on a *follower* also crosses its *leader*, whose capacity is not larger. The leader
//! carries all load of the follower, so it is full no later. Examples are a disk behind a slower
//! network card, and the far end of a route between equal cards. Followers limit no class. Without
//! them, classes share fewer resources, which makes more cases simple. A class elsewhere or a
//! change of capacity ends this permanently, because few resources would become followers again and
//! again.

use super::{Capacity, SolverNetwork};

/// A resource without a leader.
const NONE: u32 = u32::MAX;

/// Leader and followers of each resource.
#[derive(Debug, Default)]
pub(super) struct Leads {
    /// Leader of each resource, or [`NONE`].
    leader: Vec<u32>,
    /// Classes on each resource.
    classes: Vec<Vec<u32>>,
    /// Number of followers of each resource.
    followers: Vec<u32>,
    /// Classes of resources that no longer follow, in the order of these changes.
    restored: Vec<u32>,
}

impl SolverNetwork {
    /// Return the resources that can limit a class.
    pub fn limits(&self, class: u32) -> &[u32] {
        let info = &self.classes[class as usize];
        self.route_slice(info.route.0, info.end)
    }

    /// Return the classes that gained possible limits, in the order of these changes.
    pub fn restored(&self) -> &[u32] {
        &self.leads.restored
    }

    /// Return all classes on a follower; `None` if the resource does not follow another.
    pub fn followers_on(&self, resource: u32) -> Option<&[u32]> {
        let leads = &self.leads;
        let led = *leads.leader.get(resource as usize)? != NONE;
        led.then(|| &leads.classes[resource as usize][..])
    }

    /// Update leaders for a new class. Resources used for the first time may follow the narrowest
    /// resource of the route; others may lose their leader.
    pub(super) fn lead_class(&mut self, class: u32) {
        let count = self.resources.len();
        self.leads.leader.resize(count, NONE);
        self.leads.classes.resize(count, Vec::new());
        self.leads.followers.resize(count, 0);
        let route = self.route(class).to_vec();
        let twice = (1..route.len()).any(|at| route[..at].contains(&route[at]));
        let mut fresh = Vec::new();
        for &resource in &route {
            let leads = &mut self.leads;
            let leader = leads.leader[resource as usize];
            if leads.classes[resource as usize].is_empty() {
                fresh.push(resource);
            } else if leader != NONE && (twice || !route.contains(&leader)) {
                self.restore(resource);
            }
            self.leads.classes[resource as usize].push(class);
        }
        if !twice {
            self.choose_leader(&route, &fresh);
        }
        self.hide(class);
    }

    /// Make fresh resources of a route follow its narrowest resource.
    fn choose_leader(&mut self, route: &[u32], fresh: &[u32]) {
        let free = route.iter().copied();
        let free = free.filter(|&one| self.leads.leader[one as usize] == NONE);
        let gives = |one: u32| self.constant(one).map(|capacity| (capacity, one));
        let lowest = free.filter_map(gives).min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, leader)) = lowest else { return };
        for &resource in fresh {
            if resource != leader && self.constant(resource).is_some() {
                self.leads.leader[resource as usize] = leader;
                self.leads.followers[leader as usize] += 1;
            }
        }
    }

    /// Move the followers of a route behind the other resources.
    fn hide(&mut self, class: u32) {
        let (start, mut end) = self.classes[class as usize].route;
        for at in (start..end).rev() {
            if self.leads.leader[self.routes[at as usize] as usize] != NONE {
                end -= 1;
                self.routes.swap(at as usize, end as usize);
            }
        }
        self.classes[class as usize].end = end;
    }

    /// End the leads that no longer hold after a change of capacity.
    pub(super) fn lead_again(&mut self, resource: u32) {
        let leads = &self.leads;
        if leads
            .leader
            .get(resource as usize)
            .is_some_and(|&leader| leader != NONE)
            && !self.is_led(resource)
        {
            self.restore(resource);
        }
        let followers = self.leads.followers.get(resource as usize);
        if followers.is_none_or(|&count| count == 0) {
            return;
        }
        for other in 0..self.leads.leader.len() as u32 {
            if self.leads.leader[other as usize] == resource && !self.is_led(other) {
                self.restore(other);
            }
        }
    }

    /// Return whether the leader's capacity is at most the resource's own.
    fn is_led(&self, resource: u32) -> bool {
        let leader = self.leads.leader[resource as usize];
        let (one, other) = (self.constant(leader), self.constant(resource));
        one.zip(other).is_some_and(|(leader, own)| leader <= own)
    }

    fn constant(&self, resource: u32) -> Option<f64> {
        match self.resources[resource as usize].capacity {
            Capacity::Constant(capacity) => Some(capacity),
            Capacity::OfUsers(_) => None,
        }
    }

    /// End the lead of a resource: it can limit all classes on it again.
    fn restore(&mut self, resource: u32) {
        let leader = std::mem::replace(&mut self.leads.leader[resource as usize], NONE);
        self.leads.followers[leader as usize] -= 1;
        let classes = std::mem::take(&mut self.leads.classes[resource as usize]);
        for &class in &classes {
            let info = &mut self.classes[class as usize];
            let (start, end) = (info.end as usize, info.route.1 as usize);
            let hidden = &mut self.routes[start..end];
            if let Some(at) = hidden.iter().position(|&other| other == resource) {
                hidden.swap(0, at);
                info.end += 1;
            }
        }
        self.leads.restored.extend(&classes);
        self.leads.classes[resource as usize] = classes;
    }
}
