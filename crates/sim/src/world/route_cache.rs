//! Kinds of transfers in a plan: the route and the stages of each, computed once.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Name, Transfer, Via};

use super::{Amounts, LinkNumber, Stages, World, WorldError};
use crate::cost::DataPath;
use crate::fluid::{Fluid, ResourceId};

/// Lookup key of the route of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteQuery<'a> {
    /// Host of its actor.
    pub host: &'a Name,
    pub transfer: &'a Transfer,
    /// Process of the sending service, if its processes differ.
    pub process: Option<u32>,
    /// The source is in the memory of its host.
    pub warm: bool,
    /// The requested file is in the memory of the proxy.
    pub cached: bool,
}

/// Common properties of all transfers of a kind: their resources, and their hosts.
#[derive(Debug)]
pub(crate) struct TransferRoute {
    pub resources: Vec<ResourceId>,
    pub links: Vec<LinkNumber>,
    /// Host within which the bytes stay, although they pass its TCP stack.
    pub loopback: Option<Name>,
    /// Services in whose queues the transfer waits, each once, by name.
    pub queues: Vec<Name>,
    /// The service that caches the delivered files.
    pub proxy: Option<Name>,
    /// The proxy delivers from its memory, so the source is not read.
    pub from_cache: bool,
    /// Process of the sending service.
    pub process: Option<u32>,
    /// Services of the source and the destination.
    pub source: Option<Name>,
    pub destination: Option<Name>,
    pub client: Name,
    pub path: DataPath,
    pub control_rtt_s: f64,
    /// Part of the round trip that the nearer of two servers adds.
    pub nearer_rtt_s: f64,
}

/// Key of a route as numbers: cheap to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: u32,
    call: u32,
    source: u32,
    source_service: u32,
    destination: u32,
    destination_service: u32,
    process: u32,
    warm: bool,
    cached: bool,
}

/// Maximum number of cached stage lists; beyond it, sizes seldom repeat.
const MAX_KINDS: usize = 1 << 16;

/// Cached routes and stages, and the names of a plan as numbers.
#[derive(Debug, Default)]
pub(crate) struct RouteCache {
    routes: BTreeMap<Key, Arc<TransferRoute>>,
    stages: BTreeMap<(Key, Amounts), Arc<Stages>>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl RouteCache {
    /// Return the route and the stages of a transfer, which are computed once for each kind.
    pub(crate) fn of(
        &mut self,
        world: &World,
        fluid: &mut Fluid,
        query: &RouteQuery<'_>,
        amounts: Amounts,
    ) -> Result<(Arc<TransferRoute>, Arc<Stages>), WorldError> {
        let key = self.key(query);
        let route = self.route_of(world, query, key)?;
        let stages = match self.stages.get(&(key, amounts)) {
            Some(known) => known.clone(),
            None => {
                if self.stages.len() >= MAX_KINDS {
                    self.stages.clear();
                }
                let stages = Arc::new(world.stages(fluid, query.transfer, &route, amounts)?);
                self.stages.insert((key, amounts), stages.clone());
                stages
            }
        };
        Ok((route, stages))
    }

    /// Return only the route.
    pub(crate) fn route(
        &mut self,
        world: &World,
        query: &RouteQuery<'_>,
    ) -> Result<Arc<TransferRoute>, WorldError> {
        let key = self.key(query);
        self.route_of(world, query, key)
    }

    fn route_of(
        &mut self,
        world: &World,
        query: &RouteQuery<'_>,
        key: Key,
    ) -> Result<Arc<TransferRoute>, WorldError> {
        if let Some(known) = self.routes.get(&key) {
            return Ok(known.clone());
        }
        let route = Arc::new(world.route(query)?);
        self.routes.insert(key, route.clone());
        Ok(route)
    }

    fn key(&mut self, query: &RouteQuery<'_>) -> Key {
        let transfer = query.transfer;
        let service = |via: &Option<Via>| {
            via.as_ref()
                .map_or(String::new(), |via| via.service().into())
        };
        Key {
            host: self.number(query.host),
            call: self.number(&transfer.call),
            source: self.number(transfer.source.storage()),
            source_service: self.number(&service(&transfer.source_via)),
            destination: self.number(transfer.destination.storage()),
            destination_service: self.number(&service(&transfer.destination_via)),
            process: query.process.unwrap_or(u32::MAX),
            warm: query.warm,
            cached: query.cached,
        }
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let next = u32::try_from(self.numbers.len()).expect("a plan names fewer things than 2^32");
        self.numbers.insert(name.into(), next);
        next
    }
}
