//! Hosts of services and storages. An existing server has no host, so it cannot be simulated.

use venturi_plan::{Header, Name, Service, Storage};

use super::WorldError;

/// Check that each service and each storage is on a host of the plan.
pub(super) fn check_hosts(header: &Header) -> Result<(), WorldError> {
    let services = header
        .services
        .iter()
        .map(|(name, it)| ("services", name, &it.host));
    let storages = header
        .storages
        .iter()
        .map(|(name, it)| ("storages", name, &it.host));
    for (key, name, host) in services.chain(storages) {
        if host
            .as_ref()
            .is_none_or(|host| !header.hosts.contains_key(host))
        {
            return Err(WorldError::Unplaced {
                where_: format!("{key}.{name}.host"),
                found: host
                    .as_ref()
                    .map_or("none".into(), |host| format!("`{host}`")),
            });
        }
    }
    Ok(())
}

/// Return the host of a service.
pub(super) fn host_of(service: &Service) -> &Name {
    service
        .host
        .as_ref()
        .expect("`check_hosts` rejects a service without a host")
}

/// Return the host of a storage.
pub(super) fn host_of_storage(storage: &Storage) -> &Name {
    storage
        .host
        .as_ref()
        .expect("`check_hosts` rejects a storage without a host")
}
