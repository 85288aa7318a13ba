//! What bytes cross between a source and a destination: disks, mounts, links both ways of a connection, proxies.

use venturi_plan::{Call, Name, Scalar, Service, Transfer, Via};

use super::course::Ask;
use super::network::RoundTrip;
use super::passage::{Found, text};
use super::{Error, LinkNumber, World};
use crate::cost::Direction;

/// Of the round trips of a copy between two servers, those that the nearer one takes besides, over those of the farther one.
///
/// Measured in the lab with GSI (November 2026, a round trip of 60 ms, means of 3 to 12 calls less those without delay): from a third host, as
/// far from both, and from the host of the source, `globus-url-copy` waits for 39 and 23 round trips and for 3.5 and 2.0 a file, `gfal-copy`
/// for 141 and 98, and for 55 and 35 from SRM: 1.4 to 1.7 times as many.
const SHARE_OF_THE_NEARER: f64 = 0.6;

impl World {
    pub(super) fn read(
        &self,
        found: &mut Found,
        transfer: &Transfer,
        warm: bool,
    ) -> Result<(), Error> {
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

    pub(super) fn write(&self, found: &mut Found, transfer: &Transfer) -> Result<(), Error> {
        let Some(store) = self.stores.of(&transfer.destination) else {
            return Ok(());
        };
        found.resources.push(store.write);
        self.mounted(found, &transfer.destination, |trip| trip.there)
    }

    /// The links between a mount and where its bytes are; of several servers the first, as one chunk is on one.
    fn mounted(
        &self,
        found: &mut Found,
        endpoint: &venturi_plan::Endpoint,
        way: impl Fn(RoundTrip) -> Vec<LinkNumber>,
    ) -> Result<(), Error> {
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
            .round_trip(&self.tables.leaves_by(&mount.host, &to)?, &to)?;
        found.rtt_s += trip.rtt_s;
        self.cross(found, way(trip));
        Ok(())
    }

    /// Between source and destination, where no proxy is in between.
    pub(super) fn carry(&self, found: &mut Found, ask: &Ask<'_>, call: &Call) -> Result<(), Error> {
        let serves = |via: &Option<Via>| {
            let name = self.doors.mover_for(via.as_ref()?.service(), ask.process);
            self.header.services.get(name)
        };
        let source = serves(&ask.transfer.source_via);
        let destination = serves(&ask.transfer.destination_via);
        match (source, destination) {
            (Some(source), Some(destination)) if !is_relayed(call) => {
                self.between(found, ask.host, call, source, destination)
            }
            _ => {
                for (server, direction) in
                    [(source, Direction::Read), (destination, Direction::Write)]
                {
                    if let Some(server) = server {
                        self.deal(found, ask.host, call, server, direction)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// From one server to another, by command of a client.
    fn between(
        &self,
        found: &mut Found,
        host: &Name,
        call: &Call,
        source: &Service,
        destination: &Service,
    ) -> Result<(), Error> {
        if source.host == destination.host {
            return self.stay(found, &source.host);
        }
        let trip = self.tables.round_trip(
            &self.interface_of(source)?,
            &self.interface_of(destination)?,
        )?;
        let rtts = [
            self.rtt_to(host, call, source)?,
            self.rtt_to(host, call, destination)?,
        ];
        found.nearer_rtt_s = SHARE_OF_THE_NEARER * rtts[0].min(rtts[1]);
        found.control_rtt_s = rtts[0].max(rtts[1]) + found.nearer_rtt_s;
        self.connect(found, &source.host, &destination.host, trip.rtt_s);
        self.cross(found, trip.there);
        Ok(())
    }

    /// Between a client and a server: bytes that it fetches from there (read), or stores there (write).
    fn deal(
        &self,
        found: &mut Found,
        host: &Name,
        call: &Call,
        server: &Service,
        direction: Direction,
    ) -> Result<(), Error> {
        if server.host == *host {
            return self.stay(found, host);
        }
        let to = self.interface_of(server)?;
        let trip = self
            .tables
            .round_trip(&self.client_interface(host, call, &to)?, &to)?;
        found.control_rtt_s = found.control_rtt_s.max(trip.rtt_s);
        let (sender, receiver, links) = match direction {
            Direction::Read => (&server.host, host, trip.back),
            Direction::Write => (host, &server.host, trip.there),
        };
        self.connect(found, sender, receiver, trip.rtt_s);
        self.cross(found, links);
        Ok(())
    }

    /// A proxy delivers from its memory, or passes on what it fetches as it comes.
    pub(super) fn through_proxy(
        &self,
        found: &mut Found,
        ask: &Ask<'_>,
        call: &Call,
        proxy: &Service,
        from_cache: bool,
    ) -> Result<(), Error> {
        let origin = ask
            .transfer
            .source_via
            .as_ref()
            .and_then(|via| self.header.services.get(via.service()));
        if let Some(origin) = origin.filter(|origin| !from_cache && origin.host != proxy.host) {
            let to = self.interface_of(origin)?;
            let trip = self
                .tables
                .round_trip(&self.tables.leaves_by(&proxy.host, &to)?, &to)?;
            found.rtt_s += trip.rtt_s;
            self.cross(found, trip.back);
        }
        if proxy.host == *ask.host {
            return self.stay(found, ask.host);
        }
        // By the interface that the URL names; services that listen on all are reached by each.
        let named = text(call, "proxy").and_then(venturi_plan::authority);
        let named = named.and_then(|(host, _)| self.assumptions.names.get(host));
        let to = named
            .cloned()
            .map_or_else(|| self.interface_of(proxy), Ok)?;
        let trip = self
            .tables
            .round_trip(&self.client_interface(ask.host, call, &to)?, &to)?;
        // What is not in the cache is asked for first.
        found.control_rtt_s = trip.rtt_s + found.rtt_s;
        self.connect(found, &proxy.host, ask.host, trip.rtt_s);
        self.cross(found, trip.back);
        Ok(())
    }

    fn rtt_to(&self, host: &Name, call: &Call, server: &Service) -> Result<f64, Error> {
        if server.host == *host {
            return Ok(0.0);
        }
        let to = self.interface_of(server)?;
        Ok(self
            .tables
            .round_trip(&self.client_interface(host, call, &to)?, &to)?
            .rtt_s)
    }

    fn stay(&self, found: &mut Found, host: &Name) -> Result<(), Error> {
        found.resources.push(self.hosts[host].loopback);
        found.loopback = Some(host.clone());
        Ok(())
    }

    fn connect(&self, found: &mut Found, sender: &Name, receiver: &Name, rtt_s: f64) {
        found.rtt_s += rtt_s;
        found.ends = Some((sender.clone(), receiver.clone()));
    }

    fn cross(&self, found: &mut Found, links: Vec<LinkNumber>) {
        found
            .resources
            .extend(links.iter().map(|number| self.links[*number].resource));
        found.links.extend(links);
    }

    fn interface_of(&self, service: &Service) -> Result<Name, Error> {
        service.interface.clone().ok_or_else(|| Error::NoWay {
            from: "another host".into(),
            to: service.host.as_ref().into(),
            found: "the plan has no network between its hosts".into(),
        })
    }

    /// The interface that a client uses: the one its call names, or the one its host chooses.
    fn client_interface(&self, host: &Name, call: &Call, to: &Name) -> Result<Name, Error> {
        let bound = text(call, "bind").and_then(|name| self.assumptions.names.get(name));
        let own = bound.filter(|interface| self.tables.host_of(interface) == Some(host));
        own.cloned()
            .map_or_else(|| self.tables.leaves_by(host, to), Ok)
    }
}

/// Whether bytes between two servers pass through the client: tools that can do so say it by an option.
fn is_relayed(call: &Call) -> bool {
    match call.options.get("third_party") {
        Some(Scalar::Truth(third)) => !third,
        // Of xrdcp, and of gfal-copy, which otherwise has the servers do it.
        Some(Scalar::Text(text)) => matches!(&**text, "none" | "streamed"),
        _ => false,
    }
}
