//! Caching proxies: the service of a call, and the cached files of each of its processes.

use std::collections::BTreeMap;

use venturi_plan::{Endpoint, Header, Name, Scalar, Service, authority};

use super::placement::host_of;
use super::servers::{number, processes_of};
use super::{Assumptions, WorldError};
use crate::cost::Lru;

/// Option of a service for its object memory: per instance, or per worker if workers do not share
/// memory.
const MEMORY: &str = "cache_memory_bytes";
/// Option for the maximum size of a cached object.
const LIMIT: &str = "object_limit_bytes";

/// Proxies of calls.
#[derive(Debug)]
pub(crate) struct Proxies {
    /// Call → its proxy service.
    by_call: BTreeMap<Name, Name>,
    caches: BTreeMap<Name, Cache>,
}

/// Cached files of a service.
#[derive(Debug)]
struct Cache {
    /// One cache for each group of processes that share memory.
    parts: Vec<Lru<Endpoint>>,
    /// Number of processes in a group.
    sharing: u32,
    limit_bytes: u64,
    /// A request for a file in flight shares the fetch.
    collapses: bool,
}

impl Proxies {
    pub(super) fn new(header: &Header, assumptions: &Assumptions) -> Result<Self, WorldError> {
        let by_call = named(header, assumptions)?;
        let cache = |name: &Name| {
            let cost_value = assumptions.costs.services.get(name);
            let cost_value = cost_value
                .and_then(|cost| cost.cache_bytes)
                .map(|it| it.get() as u64);
            (name.clone(), Cache::new(&header.services[name], cost_value))
        };
        let caches = by_call.values().map(cache).collect();
        Ok(Self { by_call, caches })
    }

    /// Return the proxy service of a call.
    pub fn of(&self, call: &Name) -> Option<&Name> {
        self.by_call.get(call)
    }

    /// Request a file from a process; return whether its memory has it.
    pub fn request(
        &mut self,
        proxy: &Name,
        process: Option<u32>,
        file: &Endpoint,
        bytes: u64,
    ) -> bool {
        let Some((part, collapses)) = self.part(proxy, process, bytes) else {
            return false;
        };
        // The request counts as a use of the file, also if it fetches the file for all.
        (collapses || part.holds(file)) && part.request(file.clone(), bytes)
    }

    /// Cache a file that a process has delivered completely.
    pub fn delivered(&mut self, proxy: &Name, process: Option<u32>, file: &Endpoint, bytes: u64) {
        if let Some((part, _)) = self.part(proxy, process, bytes) {
            part.request(file.clone(), bytes);
        }
    }

    /// Return the cache of a process for files of this size.
    fn part(
        &mut self,
        proxy: &Name,
        process: Option<u32>,
        bytes: u64,
    ) -> Option<(&mut Lru<Endpoint>, bool)> {
        let cache = self.caches.get_mut(proxy)?;
        let number = (process.unwrap_or(0) / cache.sharing) as usize;
        let fits = bytes <= cache.limit_bytes;
        let part = cache.parts.get_mut(number).filter(|_| fits)?;
        Some((part, cache.collapses))
    }
}

impl Cache {
    /// Create the cache of a service. `cost_value`: bytes for all processes together. Without it,
    /// the options set the size for each group; without options, the cache keeps all files.
    fn new(service: &Service, cost_value: Option<u64>) -> Self {
        let processes = processes_of(service);
        let truth = |key: &str| match service.options.get(key) {
            Some(Scalar::Bool(truth)) => Some(*truth),
            _ => None,
        };
        let workers = number(service, "workers").map_or(1, |it| it.max(1.0) as u32);
        let sharing = if truth("shared_cache").unwrap_or(true) {
            workers.min(processes)
        } else {
            1
        };
        let parts = (processes / sharing).max(1);
        let each = cost_value.map(|bytes| bytes / u64::from(parts));
        let each = each.or(number(service, MEMORY).map(|it| it as u64));
        Self {
            parts: (0..parts)
                .map(|_| Lru::new(each.unwrap_or(u64::MAX)))
                .collect(),
            sharing,
            limit_bytes: number(service, LIMIT).map_or(u64::MAX, |it| it as u64),
            collapses: truth("collapsed_forwarding").unwrap_or(false),
        }
    }
}

/// Option of a call that names its proxy.
const PROXY: &str = "proxy";

/// Return the proxy service of each call.
fn named(header: &Header, assumptions: &Assumptions) -> Result<BTreeMap<Name, Name>, WorldError> {
    let mut found = BTreeMap::new();
    for (name, call) in &header.calls {
        let service = match (call.urls.get(PROXY), call.options.get(PROXY)) {
            (Some(via), _) => {
                let known = header.services.get_key_value(via.service());
                let (name, _) = known.ok_or_else(|| WorldError::Unknown {
                    where_: format!("calls.{name}.urls.{PROXY}"),
                    expected: "a service of the plan",
                    found: via.to_string(),
                })?;
                name.clone()
            }
            (None, Some(option)) => match option.as_argument() {
                Some(url) => named_by(header, assumptions, &url)?.clone(),
                None => continue,
            },
            (None, None) => continue,
        };
        found.insert(name.clone(), service);
    }
    Ok(found)
}

/// Return the service that a URL names, such as `http://anl1.lab.test:3128`.
fn named_by<'a>(
    header: &'a Header,
    assumptions: &Assumptions,
    url: &str,
) -> Result<&'a Name, WorldError> {
    let unknown = || WorldError::Unknown {
        where_: "the option `proxy` of a call".into(),
        expected: "the URL of a service of the plan",
        found: url.into(),
    };
    let (host, port) = authority(url).ok_or_else(unknown)?;
    let interface = assumptions.names.get(host);
    let of_host = |service: &Service| match (interface, &header.network) {
        (Some(interface), Some(network)) => network
            .interfaces
            .get(interface)
            .is_some_and(|it| it.host == *host_of(service)),
        _ => {
            let own = &**host_of(service);
            host == own || host.split('.').next() == Some(own)
        }
    };
    let listens = |service: &Service| port.is_none_or(|port| service.ports.contains(&port));
    let mut all = header.services.iter();
    all.find(|(_, service)| of_host(service) && listens(service))
        .map(|(name, _)| name)
        .ok_or_else(unknown)
}
