//! Servers that move no bytes, but redirect clients to service ports of other services in turn:
//! SRM.

use std::collections::BTreeMap;

use venturi_plan::{Header, Name, Scalar, Service};

/// Kind of services that redirect.
const SENDS_ELSEWHERE: &str = "srm";

/// Redirecting service → the services in its option `service_ports`.
#[derive(Debug, Default)]
pub(crate) struct ServicePorts(BTreeMap<Name, Vec<Name>>);

impl ServicePorts {
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
        Self(
            senders
                .filter(|(_, service_ports)| !service_ports.is_empty())
                .collect(),
        )
    }

    /// Return whether a service only redirects.
    pub fn sends_elsewhere(&self, service: &str) -> bool {
        self.0.contains_key(service)
    }

    /// Return the index of the service port for a connection.
    pub fn turn(&self, service: &str, connection: u64) -> Option<u32> {
        let service_ports = self.0.get(service)?;
        Some((connection % service_ports.len() as u64) as u32)
    }

    /// Return the service that moves the bytes for this one: the service port with that index,
    /// otherwise itself.
    pub fn mover_for<'a>(&'a self, service: &'a str, number: Option<u32>) -> &'a str {
        let service_port = self.0.get(service).map(|service_ports| {
            &*service_ports[number.unwrap_or(0) as usize % service_ports.len()]
        });
        service_port.unwrap_or(service)
    }
}
