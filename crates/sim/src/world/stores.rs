//! Places as resources: what is read and written, and what lies in memory.

use std::collections::{BTreeMap, BTreeSet};

use venturi_plan::{Amount, Endpoint, Header, Name, Scalar, Service};

use super::assumptions::positive;
use super::{Assumptions, Error, Maker};
use crate::cost::{Direction, storage_rates};
use crate::fluid::ResourceId;

/// A file system that a place is mounted from.
const MOUNT: &str = "moosefs-mount";
/// What holds its bytes.
const HOLDER: &str = "moosefs-chunkserver";

/// The places of a plan.
#[derive(Debug)]
pub(crate) struct Stores {
    by_place: BTreeMap<Name, Store>,
    /// Folders whose files were read or made last, and not dropped: `place:folder`.
    warm: BTreeSet<String>,
}

/// A place.
#[derive(Debug)]
pub(crate) struct Store {
    pub read: ResourceId,
    pub write: ResourceId,
    /// Reads of what is in the page cache; the plan's rates are those of the disk.
    pub memory: ResourceId,
    /// Where the bytes are, if the place is a mount: the services that hold them.
    pub mounted: Vec<Name>,
    pub mount: Option<Name>,
    /// What the host may keep of it in memory.
    memory_bytes: Option<u64>,
}

impl Stores {
    pub(super) fn new(
        header: &Header,
        assumptions: &Assumptions,
        maker: &mut Maker<'_>,
    ) -> Result<Self, Error> {
        let mut by_place = BTreeMap::new();
        for (name, place) in &header.places {
            let host = assumptions
                .costs
                .hosts
                .get(&place.host)
                .cloned()
                .unwrap_or_default();
            let read = rates(header, assumptions, name, Direction::Read)?;
            let write = rates(header, assumptions, name, Direction::Write)?;
            let memory = host
                .page_cache_bytes_per_s
                .map_or(assumptions.storage_read_bytes_per_s, Amount::get);
            let mount = header
                .services
                .iter()
                .find(|(_, service)| service.kind == MOUNT && service.places.contains(name));
            let known = header
                .hosts
                .get(&place.host)
                .and_then(|host| host.memory_bytes)
                .map(|it| it.get());
            by_place.insert(
                name.clone(),
                Store {
                    memory: maker.resource(&format!("memory:{name}:read"), memory.max(read[0]))?,
                    read: maker.shared(&format!("disk:{name}:read"), read)?,
                    write: maker.shared(&format!("disk:{name}:write"), write)?,
                    mounted: mount
                        .map(|(_, service)| holders(header, service))
                        .unwrap_or_default(),
                    mount: mount.map(|(service, _)| service.clone()),
                    memory_bytes: host
                        .page_cache_bytes
                        .map(|bytes| bytes.get() as u64)
                        .or(known),
                },
            );
        }
        Ok(Self {
            by_place,
            warm: BTreeSet::new(),
        })
    }

    /// A place of the plan; none for `null:` and `zero:`.
    pub fn of(&self, endpoint: &Endpoint) -> Option<&Store> {
        self.by_place.get(endpoint.place())
    }

    /// Whether it is known how much of a place its host can keep in memory.
    pub fn remembers(&self, endpoint: &Endpoint) -> bool {
        self.of(endpoint)
            .is_some_and(|store| store.memory_bytes.is_some())
    }

    /// Whether the files of this folder are in memory.
    pub fn is_warm(&self, endpoint: &Endpoint) -> bool {
        !self.warm.is_empty()
            && folder_of(endpoint).is_some_and(|folder| self.warm.contains(&folder))
    }

    /// The files of a folder, so many bytes together, have just been read. They stay if they fit into the memory of their host, and if nobody
    /// knows how much that is, only if `asked` for.
    pub fn warmed(&mut self, place: &str, folder: &str, bytes: u64, asked: bool) {
        let memory = self
            .by_place
            .get(place)
            .and_then(|store| store.memory_bytes);
        if memory.map_or(asked, |memory| bytes <= memory) {
            self.warm.insert(format!("{place}:{folder}"));
        }
    }

    /// They have been dropped.
    pub fn dropped(&mut self, place: &str, folder: &str) {
        self.warm.remove(&format!("{place}:{folder}"));
    }
}

/// What a place gives to 1, 2, … users: the plan's rate before the one of the costs, in the model of the costs.
fn rates(
    header: &Header,
    assumptions: &Assumptions,
    name: &Name,
    direction: Direction,
) -> Result<Vec<f64>, Error> {
    let storage = header.places[name].storage.as_ref();
    let mut cost = assumptions
        .costs
        .places
        .get(name)
        .cloned()
        .unwrap_or_default();
    let (given, otherwise, rate, key) = match direction {
        Direction::Read => (
            storage.and_then(|it| it.read_bytes_per_s),
            assumptions.storage_read_bytes_per_s,
            &mut cost.read_bytes_per_s,
            "read_bytes_per_s",
        ),
        Direction::Write => (
            storage.and_then(|it| it.write_bytes_per_s),
            assumptions.storage_write_bytes_per_s,
            &mut cost.write_bytes_per_s,
            "write_bytes_per_s",
        ),
    };
    let where_ = format!("places.{name}.storage.{key}");
    let chosen = positive(
        &where_,
        given.or(rate.map(Amount::get)).unwrap_or(otherwise),
    )?;
    let wrong = |found: String| Error::Value {
        where_: where_.clone(),
        expected: "rates of one model",
        found,
    };
    *rate = Some(Amount::new(chosen).map_err(wrong)?);
    storage_rates(&cost, direction).map_err(|error| wrong(error.to_string()))
}

/// The folder of a file of a data set, with its place.
fn folder_of(endpoint: &Endpoint) -> Option<String> {
    let (folder, _) = endpoint.numbered()?;
    Some(format!("{}:{folder}", endpoint.place()))
}

/// The chunk servers of a mount: those that it names, in one text, else those of its master.
fn holders(header: &Header, mount: &Service) -> Vec<Name> {
    let text =
        |service: &Service, key: &str| service.options.get(key).and_then(Scalar::as_argument);
    let named = text(mount, "chunkservers").unwrap_or_default();
    let named: Vec<Name> = named
        .split([',', ' '])
        .filter(|name| !name.is_empty())
        .map(Into::into)
        .collect();
    if !named.is_empty() {
        return named;
    }
    let master = text(mount, "master");
    let own = |service: &Service| service.kind == HOLDER && text(service, "master") == master;
    header
        .services
        .iter()
        .filter(|(_, service)| own(service))
        .map(|(name, _)| name.clone())
        .collect()
}
