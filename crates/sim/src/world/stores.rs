//! Places as resources: what is read and written, and what lies in memory.

use std::collections::BTreeMap;

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
                },
            );
        }
        Ok(Self { by_place })
    }

    /// A place of the plan; none for `null:` and `zero:`.
    pub fn of(&self, endpoint: &Endpoint) -> Option<&Store> {
        self.by_place.get(endpoint.place())
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
