//! How a transfer finds its resources: from where to where, over which links and disks, through which processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{Amount, Call, Name, Scalar, Service, Transfer, Via};

use super::network::RoundTrip;
use super::sketch::Amounts;
use super::{Error, LinkNumber, Stages, World};
use crate::cost::{CongestionControl, DataPath, window_of_buffers};
use crate::fluid::{Fluid, ResourceId};

/// Payload of a segment on the loopback interface of Linux, whose MTU is 65,536 bytes.
const LOOPBACK_SEGMENT_BYTES: f64 = 65_484.0;

/// A transfer that wants to know its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The host of its actor.
    pub host: &'a Name,
    pub transfer: &'a Transfer,
    /// Counts the connections of the run.
    pub connection: u64,
    /// What it asks a proxy for has been asked for before.
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
    /// The services that are read from and written to.
    pub source: Option<Name>,
    pub destination: Option<Name>,
    pub client: Name,
    pub path: DataPath,
    pub control_rtt_s: f64,
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
        let key = self.key(world, ask);
        let passage = match self.passages.get(&key) {
            Some(known) => known.clone(),
            None => {
                let passage = Arc::new(world.passage(ask, key.process, key.warm)?);
                self.passages.insert(key, passage.clone());
                passage
            }
        };
        let stages = match self.stages.get(&(key, amounts)) {
            Some(known) => known.clone(),
            None => {
                let stages = Arc::new(world.stages(fluid, ask.transfer, &passage, amounts)?);
                self.stages.insert((key, amounts), stages.clone());
                stages
            }
        };
        Ok((passage, stages))
    }

    fn key(&mut self, world: &World, ask: &Ask<'_>) -> Key {
        let transfer = ask.transfer;
        let service = |via: &Option<Via>| {
            via.as_ref()
                .map_or(String::new(), |via| via.service().into())
        };
        let sender = world.sender_of(transfer);
        let process = sender.and_then(|name| {
            world
                .servers
                .process_of(name, world.header.seed, ask.connection)
        });
        Key {
            host: self.number(ask.host),
            call: self.number(&transfer.call),
            source: self.number(transfer.source.place()),
            source_service: self.number(&service(&transfer.source_via)),
            destination: self.number(transfer.destination.place()),
            destination_service: self.number(&service(&transfer.destination_via)),
            process: process.unwrap_or(u32::MAX),
            warm: world.stores.is_warm(&transfer.source),
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

/// What a course is made of, while it is being found.
#[derive(Debug, Default)]
struct Found {
    resources: Vec<ResourceId>,
    links: Vec<LinkNumber>,
    loopback: Option<Name>,
    rtt_s: f64,
    control_rtt_s: f64,
    /// Sender and receiver of the TCP connections.
    ends: Option<(Name, Name)>,
}

impl World {
    /// The service whose processes send the bytes.
    fn sender_of<'a>(&'a self, transfer: &'a Transfer) -> Option<&'a str> {
        let proxy = self.proxies.get(&transfer.call).map(|name| &**name);
        proxy.or_else(|| transfer.source_via.as_ref().map(Via::service))
    }

    fn passage(&self, ask: &Ask<'_>, process: u32, warm: bool) -> Result<Passage, Error> {
        let transfer = ask.transfer;
        let call = &self.header.calls[&transfer.call];
        let proxy = self
            .proxies
            .get(&transfer.call)
            .map(|name| (name, &self.header.services[name]));
        let mut found = Found::default();
        let from_cache = proxy.is_some() && ask.cached;
        if !from_cache {
            self.read(&mut found, transfer, warm)?;
        }
        match proxy {
            Some((_, service)) => self.through_proxy(&mut found, ask, call, service, from_cache)?,
            None => self.carry(&mut found, ask, call)?,
        }
        self.write(&mut found, transfer)?;
        if let Some(sender) = self.sender_of(transfer) {
            found
                .resources
                .extend(self.servers.process(sender, process));
        }
        let named = |via: &Option<Via>| via.as_ref().map(|via| Name::from(via.service()));
        let proxy = proxy.map(|(name, _)| name.clone());
        let source = proxy.clone().or_else(|| named(&transfer.source_via));
        let destination = named(&transfer.destination_via);
        let limited = |name: &&Name| self.slots_of(name).is_some();
        let mut lines: Vec<Name> = source
            .iter()
            .chain(&destination)
            .filter(limited)
            .cloned()
            .collect();
        lines.sort();
        lines.dedup();
        Ok(Passage {
            path: self.data_path(&found, call),
            resources: found.resources,
            links: found.links,
            loopback: found.loopback,
            lines,
            proxy,
            source,
            destination,
            client: ask.host.clone(),
            control_rtt_s: found.control_rtt_s,
        })
    }

    /// How many sessions a service has at a time, if it has a limit.
    pub(crate) fn slots_of(&self, service: &str) -> Option<u32> {
        self.assumptions
            .costs
            .services
            .get(service)
            .and_then(|cost| cost.sessions)
    }

    fn data_path(&self, found: &Found, call: &Call) -> DataPath {
        let links = || found.links.iter().map(|number| &self.links[*number]);
        let kept: f64 = links().map(|link| 1.0 - link.loss()).product();
        let sender = found
            .ends
            .as_ref()
            .and_then(|(sender, _)| self.header.hosts.get(sender));
        let control = sender
            .and_then(|host| host.lab.as_ref())
            .map(|lab| lab.congestion_control.as_str());
        let window = found
            .ends
            .as_ref()
            .map_or(f64::INFINITY, |(sender, receiver)| {
                self.window(sender, receiver)
            });
        DataPath {
            rtt_s: found.rtt_s,
            window_bytes: option(call, "window_bytes").unwrap_or(window),
            mss_bytes: links()
                .map(|link| link.segment_bytes)
                .reduce(f64::min)
                .unwrap_or(LOOPBACK_SEGMENT_BYTES),
            loss: 1.0 - kept,
            congestion_control: match control {
                Some("reno") => CongestionControl::Reno,
                Some("bbr") => CongestionControl::Bbr,
                _ => CongestionControl::Cubic,
            },
            bytes_per_s: links()
                .map(|link| link.payload_bytes_per_s)
                .reduce(f64::min)
                .unwrap_or(f64::INFINITY),
        }
    }

    /// The window of one connection: what the sender may have unacknowledged, and what the receiver announces.
    fn window(&self, sender: &str, receiver: &str) -> f64 {
        let largest = |host: &str, key: &str| {
            let lab = self
                .header
                .hosts
                .get(host)
                .and_then(|host| host.lab.as_ref());
            let text = lab.and_then(|lab| lab.sysctls.get(key));
            text.and_then(|text| text.split_whitespace().nth(2)?.parse::<f64>().ok())
        };
        let costs = &self.assumptions.costs.hosts;
        let send = costs
            .get(sender)
            .and_then(|cost| cost.send_buffer_bytes)
            .map(Amount::get);
        let send = send.or_else(|| largest(sender, "net.ipv4.tcp_wmem"));
        let receive = costs
            .get(receiver)
            .and_then(|cost| cost.receive_buffer_bytes)
            .map(Amount::get);
        let receive = receive.or_else(|| largest(receiver, "net.ipv4.tcp_rmem"));
        window_of_buffers(
            send.unwrap_or(self.assumptions.send_buffer_bytes),
            receive.unwrap_or(self.assumptions.receive_buffer_bytes),
        )
    }

    fn read(&self, found: &mut Found, transfer: &Transfer, warm: bool) -> Result<(), Error> {
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

    fn write(&self, found: &mut Found, transfer: &Transfer) -> Result<(), Error> {
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
    fn carry(&self, found: &mut Found, ask: &Ask<'_>, call: &Call) -> Result<(), Error> {
        let serves = |via: &Option<Via>| {
            via.as_ref()
                .and_then(|via| self.header.services.get(via.service()))
        };
        let source = serves(&ask.transfer.source_via);
        let destination = serves(&ask.transfer.destination_via);
        match (source, destination) {
            (None, None) => Ok(()),
            (Some(source), None) => self.fetch(found, ask.host, call, source),
            (None, Some(destination)) => self.store(found, ask.host, call, destination),
            (Some(source), Some(destination)) if is_relayed(call) => {
                self.fetch(found, ask.host, call, source)?;
                self.store(found, ask.host, call, destination)
            }
            (Some(source), Some(destination)) => {
                if source.host == destination.host {
                    return self.stay(found, &source.host);
                }
                let trip = self.tables.round_trip(
                    &self.interface_of(source)?,
                    &self.interface_of(destination)?,
                )?;
                for server in [source, destination] {
                    found.control_rtt_s = found
                        .control_rtt_s
                        .max(self.rtt_to(ask.host, call, server)?);
                }
                self.connect(found, &source.host, &destination.host, trip.rtt_s);
                self.cross(found, trip.there);
                Ok(())
            }
        }
    }

    fn fetch(
        &self,
        found: &mut Found,
        host: &Name,
        call: &Call,
        server: &Service,
    ) -> Result<(), Error> {
        if server.host == *host {
            return self.stay(found, host);
        }
        let to = self.interface_of(server)?;
        let trip = self
            .tables
            .round_trip(&self.client_interface(host, call, &to)?, &to)?;
        found.control_rtt_s = found.control_rtt_s.max(trip.rtt_s);
        self.connect(found, &server.host, host, trip.rtt_s);
        self.cross(found, trip.back);
        Ok(())
    }

    fn store(
        &self,
        found: &mut Found,
        host: &Name,
        call: &Call,
        server: &Service,
    ) -> Result<(), Error> {
        if server.host == *host {
            return self.stay(found, host);
        }
        let to = self.interface_of(server)?;
        let trip = self
            .tables
            .round_trip(&self.client_interface(host, call, &to)?, &to)?;
        found.control_rtt_s = found.control_rtt_s.max(trip.rtt_s);
        self.connect(found, host, &server.host, trip.rtt_s);
        self.cross(found, trip.there);
        Ok(())
    }

    /// A proxy delivers from its memory, or passes on what it fetches as it comes.
    fn through_proxy(
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

pub(super) fn option(call: &Call, key: &str) -> Option<f64> {
    call.options.get(key).and_then(Scalar::as_number)
}

fn text<'a>(call: &'a Call, key: &str) -> Option<&'a str> {
    match call.options.get(key) {
        Some(Scalar::Text(text)) => Some(text),
        _ => None,
    }
}
