//! What kinds of transfers there are in a plan: the passage of each, and what it does there, worked out once.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Name, Transfer, Via};

use super::{Amounts, Error, LinkNumber, Stages, World};
use crate::cost::DataPath;
use crate::fluid::{Fluid, ResourceId};

/// A transfer that wants to know its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The host of its actor.
    pub host: &'a Name,
    pub transfer: &'a Transfer,
    /// Which process of the service that sends takes it, where they are told apart.
    pub process: Option<u32>,
    /// What it reads lies in the memory of its host.
    pub warm: bool,
    /// What it asks a proxy for lies in the memory of that.
    pub cached: bool,
}

/// What all transfers of a kind have in common: what their bytes cross, and between whom.
#[derive(Debug)]
pub(crate) struct Passage {
    pub resources: Vec<ResourceId>,
    pub links: Vec<LinkNumber>,
    /// The host that the bytes do not leave, though they pass its TCP stack.
    pub loopback: Option<Name>,
    /// Services in whose lines it stands, each once, by name.
    pub lines: Vec<Name>,
    /// The service that caches what it delivers.
    pub proxy: Option<Name>,
    /// It delivers from its memory: the source is not read.
    pub from_cache: bool,
    /// Which process of the service that sends.
    pub process: Option<u32>,
    /// The services that are read from and written to.
    pub source: Option<Name>,
    pub destination: Option<Name>,
    pub client: Name,
    pub path: DataPath,
    pub control_rtt_s: f64,
    /// What of it the nearer of two servers adds.
    pub nearer_rtt_s: f64,
}

/// What tells courses apart, as numbers: cheap to compare.
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

/// Lists of stages that are kept: sizes of which there are more are seldom met again.
const MOST_KINDS: usize = 1 << 16;

/// Passages and stages that were found, and the names of a plan as numbers.
#[derive(Debug, Default)]
pub(crate) struct Courses {
    passages: BTreeMap<Key, Arc<Passage>>,
    stages: BTreeMap<(Key, Amounts), Arc<Stages>>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl Courses {
    /// The passage of a transfer and what it does there; worked out once for each kind.
    pub(crate) fn of(
        &mut self,
        world: &World,
        fluid: &mut Fluid,
        ask: &Ask<'_>,
        amounts: Amounts,
    ) -> Result<(Arc<Passage>, Arc<Stages>), Error> {
        let key = self.key(ask);
        let passage = self.passage_of(world, ask, key)?;
        let stages = match self.stages.get(&(key, amounts)) {
            Some(known) => known.clone(),
            None => {
                if self.stages.len() >= MOST_KINDS {
                    self.stages.clear();
                }
                let stages = Arc::new(world.stages(fluid, ask.transfer, &passage, amounts)?);
                self.stages.insert((key, amounts), stages.clone());
                stages
            }
        };
        Ok((passage, stages))
    }

    /// The passage alone.
    pub(crate) fn passage(&mut self, world: &World, ask: &Ask<'_>) -> Result<Arc<Passage>, Error> {
        let key = self.key(ask);
        self.passage_of(world, ask, key)
    }

    fn passage_of(
        &mut self,
        world: &World,
        ask: &Ask<'_>,
        key: Key,
    ) -> Result<Arc<Passage>, Error> {
        if let Some(known) = self.passages.get(&key) {
            return Ok(known.clone());
        }
        let passage = Arc::new(world.passage(ask)?);
        self.passages.insert(key, passage.clone());
        Ok(passage)
    }

    fn key(&mut self, ask: &Ask<'_>) -> Key {
        let transfer = ask.transfer;
        let service = |via: &Option<Via>| {
            via.as_ref()
                .map_or(String::new(), |via| via.service().into())
        };
        Key {
            host: self.number(ask.host),
            call: self.number(&transfer.call),
            source: self.number(transfer.source.place()),
            source_service: self.number(&service(&transfer.source_via)),
            destination: self.number(transfer.destination.place()),
            destination_service: self.number(&service(&transfer.destination_via)),
            process: ask.process.unwrap_or(u32::MAX),
            warm: ask.warm,
            cached: ask.cached,
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
