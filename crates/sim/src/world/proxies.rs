//! Caching proxies: which service a call goes through, and what each of its processes has kept.

use std::collections::BTreeMap;

use venturi_plan::{Call, Endpoint, Header, Name, Scalar, Service, authority};

use super::servers::{number, processes_of};
use super::{Assumptions, Error};
use crate::cost::Lru;

/// The option of a service that says how much memory it has for objects: of an instance, or of a worker where they do not share.
const MEMORY: &str = "cache_memory_bytes";
/// The option that says which objects are too large to be kept.
const LIMIT: &str = "object_limit_bytes";

/// The proxies that calls name.
#[derive(Debug)]
pub(crate) struct Proxies {
    /// Call → the service that it names.
    by_call: BTreeMap<Name, Name>,
    caches: BTreeMap<Name, Cache>,
}

/// What a service has kept.
#[derive(Debug)]
struct Cache {
    /// One for each group of processes that share.
    parts: Vec<Lru<Endpoint>>,
    /// Processes of a group.
    sharing: u32,
    limit_bytes: u64,
    /// Who asks for what is on its way gets it from there.
    collapses: bool,
}

impl Proxies {
    pub(super) fn new(header: &Header, assumptions: &Assumptions) -> Result<Self, Error> {
        let by_call = named(header, assumptions)?;
        let cache = |name: &Name| {
            let said = assumptions.costs.services.get(name);
            let said = said
                .and_then(|cost| cost.cache_bytes)
                .map(|it| it.get() as u64);
            (name.clone(), Cache::new(&header.services[name], said))
        };
        let caches = by_call.values().map(cache).collect();
        Ok(Self { by_call, caches })
    }

    /// The service that a call goes through.
    pub fn of(&self, call: &Name) -> Option<&Name> {
        self.by_call.get(call)
    }

    /// Somebody asks a process for a file: whether it is delivered from memory.
    pub fn asked(
        &mut self,
        proxy: &Name,
        process: Option<u32>,
        file: &Endpoint,
        bytes: u64,
    ) -> bool {
        let Some((part, collapses)) = self.part(proxy, process, bytes) else {
            return false;
        };
        // Who asks for it uses it, and so does who has it fetched for all.
        (collapses || part.holds(file)) && part.request(file.clone(), bytes)
    }

    /// A process has passed on the whole of a file.
    pub fn delivered(&mut self, proxy: &Name, process: Option<u32>, file: &Endpoint, bytes: u64) {
        if let Some((part, _)) = self.part(proxy, process, bytes) {
            part.request(file.clone(), bytes);
        }
    }

    /// The cache that a process has for files of this size.
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
    /// `said`: what all of its processes keep together; else its options say so for each, and where they do not, it keeps all.
    fn new(service: &Service, said: Option<u64>) -> Self {
        let processes = processes_of(service);
        let truth = |key: &str| match service.options.get(key) {
            Some(Scalar::Truth(truth)) => Some(*truth),
            _ => None,
        };
        let workers = number(service, "workers").map_or(1, |it| it.max(1.0) as u32);
        let sharing = if truth("shared_cache").unwrap_or(true) {
            workers.min(processes)
        } else {
            1
        };
        let parts = (processes / sharing).max(1);
        let each = said.map(|bytes| bytes / u64::from(parts));
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

/// Call → the service that it names as its proxy.
fn named(header: &Header, assumptions: &Assumptions) -> Result<BTreeMap<Name, Name>, Error> {
    let url = |call: &Call| call.options.get("proxy").and_then(Scalar::as_argument);
    let named = header
        .calls
        .iter()
        .filter_map(|(name, call)| Some((name, url(call)?)));
    named
        .map(|(name, url)| Ok((name.clone(), named_by(header, assumptions, &url)?.clone())))
        .collect()
}

/// The service that a URL names, `http://anl1.lab.test:3128`.
fn named_by<'a>(
    header: &'a Header,
    assumptions: &Assumptions,
    url: &str,
) -> Result<&'a Name, Error> {
    let unknown = || Error::Unknown {
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
            .is_some_and(|it| it.host == service.host),
        _ => host == &*service.host || host.split('.').next() == Some(&*service.host),
    };
    let listens = |service: &Service| port.is_none_or(|port| service.ports.contains(&port));
    let mut all = header.services.iter();
    all.find(|(_, service)| of_host(service) && listens(service))
        .map(|(name, _)| name)
        .ok_or_else(unknown)
}
