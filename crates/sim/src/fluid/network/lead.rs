//! Resources that can never be full because another one is full first.
//!
//! Every class on a resource crosses its *leader* too, which gives no more: what is on the follower is on the leader, so the leader is full no later.
//! A disk behind a slower network card, the far end of a way between equal cards: such resources limit nobody, and classes meet on fewer of them,
//! which is what makes cases easy. A class elsewhere or a change of capacity ends that, once and for all: few resources are led again and again.

use super::{Capacity, Network};

/// A resource without a leader.
const NONE: u32 = u32::MAX;

/// Who follows whom.
#[derive(Debug, Default)]
pub(super) struct Leads {
    /// By resource: its leader, or [`NONE`].
    leader: Vec<u32>,
    /// By resource: the classes on it.
    classes: Vec<Vec<u32>>,
    /// How many follow each resource.
    followers: Vec<u32>,
    /// Classes of resources that follow no more, in the order in which that was found.
    restored: Vec<u32>,
}

impl Network {
    /// The resources that can limit a class.
    pub fn limits(&self, class: u32) -> &[u32] {
        let facts = &self.classes[class as usize];
        self.stretch(facts.way.0, facts.end)
    }

    /// Classes whose limits have become more, in the order in which that was found.
    pub fn restored(&self) -> &[u32] {
        &self.leads.restored
    }

    /// All classes on a resource that follows another; `None` if it does not.
    pub fn followers_on(&self, resource: u32) -> Option<&[u32]> {
        let leads = &self.leads;
        let led = *leads.leader.get(resource as usize)? != NONE;
        led.then(|| &leads.classes[resource as usize][..])
    }

    /// A class is new: resources that it brings in may follow its narrowest, others may lose their leader.
    pub(super) fn lead_class(&mut self, class: u32) {
        let count = self.resources.len();
        self.leads.leader.resize(count, NONE);
        self.leads.classes.resize(count, Vec::new());
        self.leads.followers.resize(count, 0);
        let way = self.way(class).to_vec();
        let twice = (1..way.len()).any(|at| way[..at].contains(&way[at]));
        let mut fresh = Vec::new();
        for &resource in &way {
            let leads = &mut self.leads;
            let leader = leads.leader[resource as usize];
            if leads.classes[resource as usize].is_empty() {
                fresh.push(resource);
            } else if leader != NONE && (twice || !way.contains(&leader)) {
                self.restore(resource);
            }
            self.leads.classes[resource as usize].push(class);
        }
        if !twice {
            self.choose_leader(&way, &fresh);
        }
        self.hide(class);
    }

    /// Let fresh resources of a way follow its narrowest.
    fn choose_leader(&mut self, way: &[u32], fresh: &[u32]) {
        let free = way.iter().copied();
        let free = free.filter(|&one| self.leads.leader[one as usize] == NONE);
        let gives = |one: u32| self.constant(one).map(|capacity| (capacity, one));
        let least = free.filter_map(gives).min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, leader)) = least else { return };
        for &resource in fresh {
            if resource != leader && self.constant(resource).is_some() {
                self.leads.leader[resource as usize] = leader;
                self.leads.followers[leader as usize] += 1;
            }
        }
    }

    /// Put the followers among the resources of a class behind the others.
    fn hide(&mut self, class: u32) {
        let (begin, mut end) = self.classes[class as usize].way;
        for at in (begin..end).rev() {
            if self.leads.leader[self.ways[at as usize] as usize] != NONE {
                end -= 1;
                self.ways.swap(at as usize, end as usize);
            }
        }
        self.classes[class as usize].end = end;
    }

    /// A capacity has changed: who follows, or is followed, may not do so any more.
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

    /// Whether a resource gives as much as its leader.
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

    /// A resource follows no more: it can limit all classes on it.
    fn restore(&mut self, resource: u32) {
        let leader = std::mem::replace(&mut self.leads.leader[resource as usize], NONE);
        self.leads.followers[leader as usize] -= 1;
        let classes = std::mem::take(&mut self.leads.classes[resource as usize]);
        for &class in &classes {
            let facts = &mut self.classes[class as usize];
            let (begin, end) = (facts.end as usize, facts.way.1 as usize);
            let hidden = &mut self.ways[begin..end];
            if let Some(at) = hidden.iter().position(|&other| other == resource) {
                hidden.swap(0, at);
                facts.end += 1;
            }
        }
        self.leads.restored.extend(&classes);
        self.leads.classes[resource as usize] = classes;
    }
}
