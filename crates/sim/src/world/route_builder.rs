//! Finds the resources of a transfer: links and disks between source and destination, and processes.

use venturi_plan::{Amount, Call, Name, Scalar, Transfer, Via};

use super::route_cache::{RouteQuery, TransferRoute};
use super::{LinkNumber, World, WorldError};
use crate::cost::{CongestionControl, DataPath, window_of_buffers};
use crate::fluid::ResourceId;

/// Payload of a segment on the loopback interface of Linux, whose MTU is 65,536 bytes.
const LOOPBACK_SEGMENT_BYTES: f64 = 65_484.0;

/// Parts of a route during the search.
#[derive(Debug, Default)]
pub(super) struct RouteParts {
    pub resources: Vec<ResourceId>,
    pub links: Vec<LinkNumber>,
    pub loopback: Option<Name>,
    pub rtt_s: f64,
    pub control_rtt_s: f64,
    /// Part of the round trip that the nearer of two servers adds.
    pub nearer_rtt_s: f64,
    /// Sender and receiver of the TCP connections.
    pub ends: Option<(Name, Name)>,
}

impl World {
    /// Return the service whose processes send the bytes.
    pub(super) fn sender_of<'a>(&'a self, transfer: &'a Transfer) -> Option<&'a str> {
        let proxy = self.proxies.of(&transfer.call).map(|name| &**name);
        proxy.or_else(|| transfer.source_via.as_ref().map(Via::service))
    }

    pub(super) fn route(&self, query: &RouteQuery<'_>) -> Result<TransferRoute, WorldError> {
        let transfer = query.transfer;
        let call = &self.header.calls[&transfer.call];
        let proxy = self
            .proxies
            .of(&transfer.call)
            .map(|name| (name, &self.header.services[name]));
        let mut found = RouteParts::default();
        let from_cache = proxy.is_some() && query.cached;
        if !from_cache {
            self.read(&mut found, transfer, query.warm)?;
        }
        match proxy {
            Some((_, service)) => {
                self.through_proxy(&mut found, query, call, service, from_cache)?
            }
            None => self.carry(&mut found, query, call)?,
        }
        self.write(&mut found, transfer)?;
        if let (Some(sender), Some(process)) = (self.sender_of(transfer), query.process) {
            found
                .resources
                .extend(self.servers.process(sender, process));
        }
        let named = |via: &Option<Via>| {
            via.as_ref()
                .map(|via| Name::from(self.service_ports.mover_for(via.service(), query.process)))
        };
        let proxy = proxy.map(|(name, _)| name.clone());
        let source = proxy.clone().or_else(|| named(&transfer.source_via));
        let destination = named(&transfer.destination_via);
        let queues = self.sessions(&mut found, source.iter().chain(&destination));
        Ok(TransferRoute {
            path: self.data_path(&found, call, source.as_deref()),
            resources: found.resources,
            links: found.links,
            loopback: found.loopback,
            queues,
            proxy,
            from_cache,
            process: query.process,
            source,
            destination,
            client: query.host.clone(),
            control_rtt_s: found.control_rtt_s,
            nearer_rtt_s: found.nearer_rtt_s,
        })
    }

    /// Return the queues of these services, each once, by name, and add the resources that their sessions share.
    fn sessions<'a>(
        &self,
        found: &mut RouteParts,
        services: impl Iterator<Item = &'a Name>,
    ) -> Vec<Name> {
        let mut services: Vec<&Name> = services.collect();
        services.sort();
        services.dedup();
        let crowded = services.iter().filter_map(|it| self.servers.sessions(it));
        found.resources.extend(crowded);
        services.retain(|name| self.slots_of(name).is_some());
        services.into_iter().cloned().collect()
    }

    /// Return the maximum number of concurrent sessions of a service, if it has a limit.
    pub(crate) fn slots_of(&self, service: &str) -> Option<u32> {
        self.assumptions
            .costs
            .services
            .get(service)
            .and_then(|cost| cost.sessions)
    }

    fn data_path(&self, found: &RouteParts, call: &Call, source: Option<&str>) -> DataPath {
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
        let of_source = |key| {
            source
                .and_then(|name| self.header.services.get(name))
                .and_then(|service| service.options.get(key))
                .and_then(Scalar::as_number)
        };
        DataPath {
            rtt_s: found.rtt_s,
            window_bytes: option(call, "window_bytes").unwrap_or(window),
            mss_bytes: links()
                .map(|link| link.segment_bytes)
                .reduce(f64::min)
                .unwrap_or(LOOPBACK_SEGMENT_BYTES),
            // Data connections of a GridFTP server in extended block mode.
            block_bytes: of_source("block_bytes").unwrap_or(0.0),
            loss: 1.0 - kept,
            pacing_bytes_per_s: of_source("pacing_bytes_per_s")
                .or(option(call, "pacing_bytes_per_s"))
                .unwrap_or(f64::INFINITY),
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

    /// Return the window of one connection: the minimum of the sender's limit of unacknowledged
    /// bytes and the receiver's advertised window.
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
}

pub(super) fn option(call: &Call, key: &str) -> Option<f64> {
    call.options.get(key).and_then(Scalar::as_number)
}

pub(super) fn text<'a>(call: &'a Call, key: &str) -> Option<&'a str> {
    match call.options.get(key) {
        Some(Scalar::Text(text)) => Some(text),
        _ => None,
    }
}
