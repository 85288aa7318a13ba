//! Page caches of hosts: each an LRU of complete files over all storages of its host.

use std::collections::BTreeMap;

use venturi_plan::{Amount, Dataset, Endpoint, Header, Name};

use super::Assumptions;
use super::placement::host_of_storage;
use crate::cost::Lru;

/// Maximum number of files that one preparation or transfer caches, the last ones, to limit time
/// and memory.
const MAX_FILES: u64 = 1 << 20;

/// The page caches of a testbed.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    caches: BTreeMap<Name, PageCache>,
    /// Storage → the host whose memory caches it.
    hosts: BTreeMap<Name, Name>,
}

#[derive(Debug)]
struct PageCache {
    files: Lru<Endpoint>,
    /// Whether its size is known; otherwise it contains only the files that the plan puts there.
    known: bool,
}

impl Memories {
    pub(super) fn new(header: &Header, assumptions: &Assumptions) -> Self {
        let cache = |name: &Name| {
            let cost_value = assumptions.costs.hosts.get(name);
            let cost_value = cost_value.and_then(|host| host.page_cache_bytes);
            let plan = header.hosts[name].memory_bytes.map(|it| it.get());
            let bytes = cost_value.map(|bytes: Amount| bytes.get() as u64).or(plan);
            PageCache {
                files: Lru::new(bytes.unwrap_or(u64::MAX)),
                known: bytes.is_some(),
            }
        };
        let names = header.hosts.keys();
        Self {
            caches: names.map(|name| (name.clone(), cache(name))).collect(),
            hosts: header
                .storages
                .iter()
                .map(|(name, storage)| (name.clone(), host_of_storage(storage).clone()))
                .collect(),
        }
    }

    /// Return whether this number of files, starting with this one, are all cached.
    pub fn holds(&self, first: &Endpoint, files: u64) -> bool {
        let Some(cache) = self
            .of(first.storage())
            .filter(|it| it.files.used_bytes() > 0)
        else {
            return false;
        };
        if files <= 1 {
            return cache.files.holds(first);
        }
        first.numbered().is_some_and(|(directory, number)| {
            let all = number..number.saturating_add(files);
            all.into_iter()
                .all(|number| cache.files.holds(&file(first.storage(), directory, number)))
        })
    }

    /// Return whether the page cache of a storage's host has a known size.
    pub fn remembers(&self, endpoint: &Endpoint) -> bool {
        self.of(endpoint.storage()).is_some_and(|it| it.known)
    }

    /// Return whether files of a storage stay in memory after a read.
    pub fn learns_of(&self, storage: &str) -> bool {
        self.of(storage).is_some_and(|cache| cache.known)
    }

    /// Cache files that were read; `set` is the dataset that contains them. They stay until other
    /// files need the space, if the size of the cache is known.
    pub fn read(&mut self, first: &Endpoint, files: u64, bytes: u64, set: Option<&Dataset>) {
        if !self.remembers(first) {
            return;
        }
        let Some(cache) = self.of_mut(first.storage()) else {
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

    /// Cache files of a dataset as the plan requests, as far as the space allows.
    pub fn warmed(&mut self, set: &Dataset, first: u64, files: u64) {
        if let Some(cache) = self.of_mut(&set.storage) {
            cache.fill(set, first, files);
        }
    }

    /// Drop files of a dataset.
    pub fn dropped(&mut self, set: &Dataset, first: u64, files: u64) {
        let of_set = |it: &Endpoint| {
            it.storage() == &*set.storage
                && it.numbered().is_some_and(|(directory, number)| {
                    directory == set.path && number >= first && number - first < files
                })
        };
        if let Some(cache) = self.of_mut(&set.storage) {
            cache.files.retain(|it| !of_set(it));
        }
    }

    fn of(&self, storage: &str) -> Option<&PageCache> {
        self.caches.get(self.hosts.get(storage)?)
    }

    fn of_mut(&mut self, storage: &str) -> Option<&mut PageCache> {
        self.caches.get_mut(self.hosts.get(storage)?)
    }
}

impl PageCache {
    /// Cache the files in the order of reading.
    fn fill(&mut self, set: &Dataset, first: u64, files: u64) {
        let sizes = set.sizes();
        let end = first.saturating_add(files);
        for number in first.max(end.saturating_sub(MAX_FILES))..end {
            self.files
                .request(file(&set.storage, &set.path, number), sizes.of(number));
        }
    }
}

fn file(storage: &str, directory: &str, number: u64) -> Endpoint {
    let slash = if directory.is_empty() { "" } else { "/" };
    let name = venturi_plan::file_name(number);
    let text = format!("{storage}:{directory}{slash}{name}");
    text.parse()
        .expect("a storage and a directory of the plan, and a number")
}
