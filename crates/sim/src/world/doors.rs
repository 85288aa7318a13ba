//! Servers that move nothing themselves, but send each client to a door of other services, in turn: SRM.

use std::collections::BTreeMap;

use venturi_plan::{Header, Name, Scalar, Service};

/// The kind of services that do so.
const SENDS_ELSEWHERE: &str = "srm";

/// Such a service → the services that its option `doors` names.
#[derive(Debug, Default)]
pub(crate) struct Doors(BTreeMap<Name, Vec<Name>>);

impl Doors {
    pub(super) fn new(header: &Header) -> Self {
        let named = |service: &Service| -> Vec<Name> {
            let text = service.options.get("doors").and_then(Scalar::as_argument);
            text.unwrap_or_default()
                .split([',', ' '])
                .filter(|name| header.services.contains_key(*name))
                .map(Into::into)
                .collect()
        };
        let senders = header
            .services
            .iter()
            .filter(|(_, service)| service.kind == SENDS_ELSEWHERE)
            .map(|(name, service)| (name.clone(), named(service)));
        Self(senders.filter(|(_, doors)| !doors.is_empty()).collect())
    }

    /// Whether a service moves nothing itself.
    pub fn sends_elsewhere(&self, service: &str) -> bool {
        self.0.contains_key(service)
    }

    /// The number of the door that it hands out to a connection.
    pub fn turn(&self, service: &str, connection: u64) -> Option<u32> {
        let doors = self.0.get(service)?;
        Some((connection % doors.len() as u64) as u32)
    }

    /// The service that moves what is asked of this one: the door of that number, else itself.
    pub fn mover_for<'a>(&'a self, service: &'a str, number: Option<u32>) -> &'a str {
        let door = self
            .0
            .get(service)
            .map(|doors| &*doors[number.unwrap_or(0) as usize % doors.len()]);
        door.unwrap_or(service)
    }
}
