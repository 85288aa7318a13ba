//! Storages as resources: reads and writes, and cached files.

use std::collections::BTreeMap;

use venturi_plan::{Amount, Endpoint, Header, Name, Scalar, Service};

use super::assumptions::positive;
use super::placement::host_of_storage;
use super::{Assumptions, Maker, WorldError};
use crate::cost::{Direction, storage_rates};
use crate::fluid::ResourceId;

/// Kind of service of a mounted file system.
const MOUNT: &str = "moosefs-mount";
/// Kind of service that stores the bytes of a mount.
const HOLDER: &str = "moosefs-chunkserver";

/// Storages of a plan.
#[derive(Debug)]
pub(crate) struct Stores {
    by_storage: BTreeMap<Name, SimStore>,
}

/// Resources of a storage.
#[derive(Debug)]
pub(crate) struct SimStore {
    pub read: ResourceId,
    pub write: ResourceId,
    /// Reads from the page cache; the rates of the plan apply to the disk.
    pub memory: ResourceId,
    /// Services with the bytes, if the storage is a mount.
    pub mounted: Vec<Name>,
    pub mount: Option<Name>,
}

impl Stores {
    pub(super) fn new(
        header: &Header,
        assumptions: &Assumptions,
        maker: &mut Maker<'_>,
    ) -> Result<Self, WorldError> {
        let mut by_storage = BTreeMap::new();
        for (name, storage) in &header.storages {
            let host = assumptions
                .costs
                .hosts
                .get(host_of_storage(storage))
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
                .find(|(_, service)| service.kind == MOUNT && service.storages.contains(name));
            by_storage.insert(
                name.clone(),
                SimStore {
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
        Ok(Self { by_storage })
    }

    /// Return a storage of the plan; none for `null:` and `zero:`.
    pub fn of(&self, endpoint: &Endpoint) -> Option<&SimStore> {
        self.by_storage.get(endpoint.storage())
    }
}

/// Return the capacity of a storage for 1, 2, … users, in the model of its costs. A rate of the
/// plan has precedence over one of the costs.
fn rates(
    header: &Header,
    assumptions: &Assumptions,
    name: &Name,
    direction: Direction,
) -> Result<Vec<f64>, WorldError> {
    let storage = header.storages[name].spec.as_ref();
    let mut cost = assumptions
        .costs
        .storages
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
    let where_ = format!("storages.{name}.spec.{key}");
    let chosen = positive(
        &where_,
        given.or(rate.map(Amount::get)).unwrap_or(otherwise),
    )?;
    let wrong = |found: String| WorldError::Value {
        where_: where_.clone(),
        expected: "rates of one model",
        found,
    };
    *rate = Some(Amount::new(chosen).map_err(wrong)?);
    storage_rates(&cost, direction).map_err(|error| wrong(error.to_string()))
}

/// Return the chunk servers of a mount: its option names them, otherwise its master does.
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
