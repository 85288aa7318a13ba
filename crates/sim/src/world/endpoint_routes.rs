//! Resources between a source and a destination: disks, mounts, links in both directions of a connection, proxies.

use venturi_plan::{Call, Name, Scalar, Service, Transfer, Via};

use super::network::RoundTrip;
use super::placement::host_of;
use super::route_builder::{RouteParts, text};
use super::route_cache::RouteQuery;
use super::{LinkNumber, World, WorldError};
use crate::cost::Direction;

/// Round trips added by the nearer of two servers, as a fraction of those to the farther one.
///
/// Measured in the lab with GSI (November 2026, a round trip of 60 ms, means of 3 to 12 calls minus
/// calls without delay). The first number is for a client on a third host equally far from both
/// servers, the second for a client on the host of the source:
///
/// - `globus-url-copy`: 39 and 23 round trips, plus 3.5 and 2.0 per file;
/// - `gfal-copy`: 141 and 98 round trips, plus 55 and 35 per file from SRM.
///
/// The first number is 1.4 to 1.7 times the second.
const NEARER_FRACTION: f64 = 0.6;

impl World {
    pub(super) fn read(
        &self,
        found: &mut RouteParts,
        transfer: &Transfer,
        warm: bool,
    ) -> Result<(), WorldError> {
        let Some(store) = self.stores.of(&transfer.source) else {
            return Ok(());
        };
        found
            .resources
            .push(if warm { store.memory } else { store.read });
        if warm {
            return Ok(());
        }
        self.mounted(found, &transfer.source, |trip| trip.back)
    }

    pub(super) fn write(
        &self,
        found: &mut RouteParts,
        transfer: &Transfer,
    ) -> Result<(), WorldError> {
        let Some(store) = self.stores.of(&transfer.destination) else {
            return Ok(());
        };
        found.resources.push(store.write);
        self.mounted(found, &transfer.destination, |trip| trip.forward)
    }

    /// Return the links between a mount and its bytes; of several servers the first, because one
    /// chunk is on one server.
    fn mounted(
        &self,
        found: &mut RouteParts,
        endpoint: &venturi_plan::Endpoint,
        route: impl Fn(RoundTrip) -> Vec<LinkNumber>,
    ) -> Result<(), WorldError> {
        let Some(store) = self.stores.of(endpoint) else {
            return Ok(());
        };
        let mount = store
            .mount
            .as_ref()
            .and_then(|name| self.header.services.get(name));
        let holder = store
            .mounted
            .first()
            .and_then(|name| self.header.services.get(name));
        let (Some(mount), Some(holder)) = (mount, holder) else {
            return Ok(());
        };
        if mount.host == holder.host {
            return Ok(());
        }
        let to = self.interface_of(holder)?;
        let trip = self
            .tables
            .round_trip(&self.tables.leaves_by(host_of(mount), &to)?, &to)?;
        found.rtt_s += trip.rtt_s;
        self.cross(found, route(trip));
        Ok(())
    }

    /// Add the resources between source and destination, without a proxy.
    pub(super) fn carry(
        &self,
        found: &mut RouteParts,
        query: &RouteQuery<'_>,
        call: &Call,
    ) -> Result<(), WorldError> {
        let serves = |via: &Option<Via>| {
            let name = self
                .service_ports
                .mover_for(via.as_ref()?.service(), query.process);
            self.header.services.get(name)
        };
        let source = serves(&query.transfer.source_via);
        let destination = serves(&query.transfer.destination_via);
        match (source, destination) {
            (Some(source), Some(destination)) if !is_relayed(call) => {
                self.between(found, query.host, call, source, destination)
            }
            _ => {
                for (server, direction) in
                    [(source, Direction::Read), (destination, Direction::Write)]
                {
                    if let Some(server) = server {
                        self.deal(found, query.host, call, server, direction)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Add the resources from one server to another, in a copy that a client commands.
    fn between(
        &self,
        found: &mut RouteParts,
        host: &Name,
        call: &Call,
        source: &Service,
        destination: &Service,
    ) -> Result<(), WorldError> {
        if source.host == destination.host {
            return self.stay(found, host_of(source));
        }
        let trip = self.tables.round_trip(
            &self.interface_of(source)?,
            &self.interface_of(destination)?,
        )?;
        let rtts = [
            self.rtt_to(host, call, source)?,
            self.rtt_to(host, call, destination)?,
        ];
        found.nearer_rtt_s = NEARER_FRACTION * rtts[0].min(rtts[1]);
        found.control_rtt_s = rtts[0].max(rtts[1]) + found.nearer_rtt_s;
        self.connect(found, host_of(source), host_of(destination), trip.rtt_s);
        self.cross(found, trip.forward);
        Ok(())
    }

    /// Add the resources between a client and a server: bytes that it fetches (read) or stores
    /// (write).
    fn deal(
        &self,
        found: &mut RouteParts,
        host: &Name,
        call: &Call,
        server: &Service,
        direction: Direction,
    ) -> Result<(), WorldError> {
        if host_of(server) == host {
            return self.stay(found, host);
        }
        let to = self.interface_of(server)?;
        let trip = self
            .tables
            .round_trip(&self.client_interface(host, call, &to)?, &to)?;
        found.control_rtt_s = found.control_rtt_s.max(trip.rtt_s);
        let (sender, receiver, links) = match direction {
            Direction::Read => (host_of(server), host, trip.back),
            Direction::Write => (host, host_of(server), trip.forward),
        };
        self.connect(found, sender, receiver, trip.rtt_s);
        self.cross(found, links);
        Ok(())
    }

    /// Add the resources of a proxy that delivers from its memory, or forwards a fetched file as it
    /// arrives.
    pub(super) fn through_proxy(
        &self,
        found: &mut RouteParts,
        query: &RouteQuery<'_>,
        call: &Call,
        proxy: &Service,
        from_cache: bool,
    ) -> Result<(), WorldError> {
        let origin = query
            .transfer
            .source_via
            .as_ref()
            .and_then(|via| self.header.services.get(via.service()));
        if let Some(origin) = origin.filter(|origin| !from_cache && origin.host != proxy.host) {
            let to = self.interface_of(origin)?;
            let trip = self
                .tables
                .round_trip(&self.tables.leaves_by(host_of(proxy), &to)?, &to)?;
            found.rtt_s += trip.rtt_s;
            self.cross(found, trip.back);
        }
        if host_of(proxy) == query.host {
            return self.stay(found, query.host);
        }
        // By the interface in the URL; services that listen on all interfaces are reached by each.
        let named = text(call, "proxy").filter(|_| !call.urls.contains_key("proxy"));
        let named = named.and_then(venturi_plan::authority);
        let named = named.and_then(|(host, _)| self.assumptions.names.get(host));
        let to = named
            .cloned()
            .map_or_else(|| self.interface_of(proxy), Ok)?;
        let trip = self
            .tables
            .round_trip(&self.client_interface(query.host, call, &to)?, &to)?;
        // A file outside of the cache is fetched first.
        found.control_rtt_s = trip.rtt_s + found.rtt_s;
        self.connect(found, host_of(proxy), query.host, trip.rtt_s);
        self.cross(found, trip.back);
        Ok(())
    }

    fn rtt_to(&self, host: &Name, call: &Call, server: &Service) -> Result<f64, WorldError> {
        if host_of(server) == host {
            return Ok(0.0);
        }
        let to = self.interface_of(server)?;
        Ok(self
            .tables
            .round_trip(&self.client_interface(host, call, &to)?, &to)?
            .rtt_s)
    }

    fn stay(&self, found: &mut RouteParts, host: &Name) -> Result<(), WorldError> {
        found.resources.push(self.hosts[host].loopback);
        found.loopback = Some(host.clone());
        Ok(())
    }

    fn connect(&self, found: &mut RouteParts, sender: &Name, receiver: &Name, rtt_s: f64) {
        found.rtt_s += rtt_s;
        found.ends = Some((sender.clone(), receiver.clone()));
    }

    fn cross(&self, found: &mut RouteParts, links: Vec<LinkNumber>) {
        found
            .resources
            .extend(links.iter().map(|number| self.links[*number].resource));
        found.links.extend(links);
    }

    fn interface_of(&self, service: &Service) -> Result<Name, WorldError> {
        service
            .interface
            .clone()
            .ok_or_else(|| WorldError::NoNetwork {
                host: host_of(service).as_ref().into(),
            })
    }

    /// Return the interface of a client: the one named in the call, or the one chosen by its host.
    fn client_interface(&self, host: &Name, call: &Call, to: &Name) -> Result<Name, WorldError> {
        let bottleneck = text(call, "bind").and_then(|name| self.assumptions.names.get(name));
        let own = bottleneck.filter(|interface| self.tables.host_of(interface) == Some(host));
        own.cloned()
            .map_or_else(|| self.tables.leaves_by(host, to), Ok)
    }
}

/// Return whether bytes between two servers pass through the client, by the options of these tools.
fn is_relayed(call: &Call) -> bool {
    match call.options.get("third_party") {
        Some(Scalar::Bool(third)) => !third,
        // Values of xrdcp, and of gfal-copy, which by default uses a third-party copy.
        Some(Scalar::Text(text)) => matches!(&**text, "none" | "streamed"),
        _ => false,
    }
}
