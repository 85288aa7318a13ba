//! What lies in the memory of hosts: their page caches, each an LRU of whole files over all places of its host.

use std::collections::BTreeMap;

use venturi_plan::{Amount, Dataset, Endpoint, Header, Name};

use super::Assumptions;
use crate::cost::Lru;

/// Files that one preparation or transfer leaves behind at most, the last ones: a bound on time and memory.
const MOST_FILES: u64 = 1 << 20;

/// The page caches of a testbed.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    caches: BTreeMap<Name, PageCache>,
    /// Place → the host whose memory it is in.
    hosts: BTreeMap<Name, Name>,
}

#[derive(Debug)]
struct PageCache {
    files: Lru<Endpoint>,
    /// Whether it is known how much it holds; else only what the plan wants there is in it.
    known: bool,
}

impl Memories {
    pub(super) fn new(header: &Header, assumptions: &Assumptions) -> Self {
        let cache = |name: &Name| {
            let said = assumptions.costs.hosts.get(name);
            let said = said.and_then(|host| host.page_cache_bytes);
            let plan = header.hosts[name].memory_bytes.map(|it| it.get());
            let bytes = said.map(|bytes: Amount| bytes.get() as u64).or(plan);
            PageCache {
                files: Lru::new(bytes.unwrap_or(u64::MAX)),
                known: bytes.is_some(),
            }
        };
        let names = header.hosts.keys();
        Self {
            caches: names.map(|name| (name.clone(), cache(name))).collect(),
            hosts: header
                .places
                .iter()
                .map(|(name, place)| (name.clone(), place.host.clone()))
                .collect(),
        }
    }

    /// Whether so many files, this one the first, are all there.
    pub fn holds(&self, first: &Endpoint, files: u64) -> bool {
        let Some(cache) = self
            .of(first.place())
            .filter(|it| it.files.used_bytes() > 0)
        else {
            return false;
        };
        if files <= 1 {
            return cache.files.holds(first);
        }
        first.numbered().is_some_and(|(folder, number)| {
            let all = number..number.saturating_add(files);
            all.into_iter()
                .all(|number| cache.files.holds(&file(first.place(), folder, number)))
        })
    }

    /// Whether it is known how much of a place its host keeps in memory.
    pub fn remembers(&self, endpoint: &Endpoint) -> bool {
        self.of(endpoint.place()).is_some_and(|it| it.known)
    }

    /// Whether files of a place stay in memory once they have been read.
    pub fn learns_of(&self, place: &str) -> bool {
        self.of(place).is_some_and(|cache| cache.known)
    }

    /// Files have been read, `set` being what they are part of. They stay until others need their room, where it is known how much that is.
    pub fn read(&mut self, first: &Endpoint, files: u64, bytes: u64, set: Option<&Dataset>) {
        if !self.remembers(first) {
            return;
        }
        let Some(cache) = self.of_mut(first.place()) else {
            return;
        };
        match (first.numbered(), set) {
            (Some((_, number)), Some(set)) => cache.fill(set, number, files),
            _ if files <= 1 => {
                cache.files.request(first.clone(), bytes);
            }
            _ => {}
        }
    }

    /// Files of a data set are there because the plan wants them to be, as far as there is room.
    pub fn warmed(&mut self, set: &Dataset, first: u64, files: u64) {
        if let Some(cache) = self.of_mut(&set.place) {
            cache.fill(set, first, files);
        }
    }

    /// Files of a data set are there no more.
    pub fn dropped(&mut self, set: &Dataset, first: u64, files: u64) {
        let of_set = |it: &Endpoint| {
            it.place() == &*set.place
                && it.numbered().is_some_and(|(folder, number)| {
                    folder == set.path && number >= first && number - first < files
                })
        };
        if let Some(cache) = self.of_mut(&set.place) {
            cache.files.retain(|it| !of_set(it));
        }
    }

    fn of(&self, place: &str) -> Option<&PageCache> {
        self.caches.get(self.hosts.get(place)?)
    }

    fn of_mut(&mut self, place: &str) -> Option<&mut PageCache> {
        self.caches.get_mut(self.hosts.get(place)?)
    }
}

impl PageCache {
    /// One file after the other, as they are read.
    fn fill(&mut self, set: &Dataset, first: u64, files: u64) {
        let sizes = set.sizes();
        let end = first.saturating_add(files);
        for number in first.max(end.saturating_sub(MOST_FILES))..end {
            self.files
                .request(file(&set.place, &set.path, number), sizes.of(number));
        }
    }
}

fn file(place: &str, folder: &str, number: u64) -> Endpoint {
    let slash = if folder.is_empty() { "" } else { "/" };
    let name = venturi_plan::file_name(number);
    let text = format!("{place}:{folder}{slash}{name}");
    text.parse()
        .expect("a place and a folder of the plan, and a number")
}
