//! Builds the stages of a transfer: the phases of its cost on the resources of its route.

use std::collections::BTreeSet;

use venturi_plan::{Amount, Call, Endpoint, HostCost, MoverCost, Name, ServiceCost, Transfer, Via};

use super::placement::host_of;
use super::route_builder::option;
use super::route_cache::TransferRoute;
use super::stage::{
    Amounts, RetryRule, Stage, Stages, check_phase, name_of_bottleneck, name_of_why,
};
use super::{World, WorldError};
use crate::cost::{CallFiles, EndpointRole, PhasePlan, TransferPhase, TransferSpec, Why};
use crate::fluid::{ClassId, Fluid, ResourceId};

/// Name of a local endpoint among protocols.
const FILE: &str = "file";

/// Maximum number of files of one call with individual sizes; the files of a longer call count as equal.
const MAX_SIZES: u64 = 1 << 20;

impl World {
    /// Return the stages of a transfer.
    pub(crate) fn stages(
        &self,
        fluid: &mut Fluid,
        transfer: &Transfer,
        route: &TransferRoute,
        amounts: Amounts,
    ) -> Result<Stages, WorldError> {
        let call = &self.header.calls[&transfer.call];
        let protocol = |via: &Option<Via>| {
            via.as_ref()
                .map_or(FILE.to_owned(), |via| via.service_port().to_owned())
        };
        let (source, destination) = (
            protocol(&transfer.source_via),
            protocol(&transfer.destination_via),
        );
        let costs = &self.assumptions.costs;
        let known = costs.mover(&transfer.call, &source, &destination);
        let nothing = MoverCost::default();
        let mover = known.unwrap_or(&nothing);
        let client = costs.hosts.get(&route.client).cloned().unwrap_or_default();
        let phase_plan = self.phase_plan(transfer, route, amounts, mover, &client);
        let mut unknown: BTreeSet<&'static str> = phase_plan.unknown.iter().copied().collect();
        if known.is_none() {
            unknown.insert("the mover between these endpoints");
        }
        let mut maker = Maker {
            world: self,
            fluid,
            route,
            resources: self.with_byte_cpus(route, mover),
            client: &client,
            rate: option(call, "rate_bytes_per_s"),
            wait_s: self.block_wait_s(transfer, call, mover)
                / f64::from(whole(call, "concurrency").unwrap_or(1)),
            unloaded_s: 0.0,
            mark_s: 0.0,
        };
        let mut stages = Vec::with_capacity(phase_plan.phases.len());
        if let Some((opening, seconds)) = self.opening(transfer, amounts) {
            maker.unloaded_s += seconds;
            stages.push(opening);
        }
        for phase in &phase_plan.phases {
            check_phase(phase)
                .map_err(|wrong| wrong_cost(&transfer.call, &source, &destination, wrong))?;
            stages.push(maker.stage(phase)?);
        }
        if let Some(core_s) = option(call, "compute_s").filter(|core_s| *core_s > 0.0) {
            stages.push(maker.work(&route.client.clone(), core_s, 1.0, "compute")?);
        }
        Ok(Stages {
            unloaded_s: maker.unloaded_s,
            stages,
            unknown: unknown.into_iter().collect(),
            source,
            destination,
            stall_timeout_s: known.and_then(|cost| cost.stall_timeout_s).map(Amount::get),
            retry_rule: RetryRule::new(call, mover),
        })
    }

    /// Return the resources of the bytes: links and storages of the route, and the cores of client and servers.
    fn with_byte_cpus(&self, route: &TransferRoute, mover: &MoverCost) -> Vec<ResourceId> {
        let services = &self.assumptions.costs.services;
        let servers = [&route.source, &route.destination].into_iter().flatten();
        let servers = servers.filter_map(|name| {
            let core_s = services.get(name)?.byte_core_s;
            self.byte_cpus(host_of(self.header.services.get(name)?), core_s)
        });
        let client = self.byte_cpus(&route.client, mover.byte_core_s);
        let mut found = route.resources.clone();
        found.extend(client.into_iter().chain(servers));
        found
    }

    /// Return the costs of a service. If another service (`query`) redirected the client to it, the
    /// session costs of that service are added.
    fn service_cost(&self, name: &str, query: Option<&str>) -> ServiceCost {
        let costs = &self.assumptions.costs.services;
        let cost = costs.get(name).cloned().unwrap_or_default();
        let Some(query) = query.filter(|query| self.service_ports.sends_elsewhere(query)) else {
            return cost;
        };
        let before = costs.get(query).cloned().unwrap_or_default();
        let session = [
            before.session_core_s,
            before.auth_core_s,
            cost.session_core_s,
        ];
        let core_s: f64 = session.into_iter().flatten().map(Amount::get).sum();
        ServiceCost {
            session_core_s: Amount::new(core_s).ok(),
            redirect_round_trips: before.redirect_round_trips,
            ..cost
        }
    }

    /// Return the phases of a transfer from its costs.
    fn phase_plan(
        &self,
        transfer: &Transfer,
        route: &TransferRoute,
        amounts: Amounts,
        mover: &MoverCost,
        client: &HostCost,
    ) -> PhasePlan {
        let call = &self.header.calls[&transfer.call];
        let [source, destination] = [
            (&route.source, &transfer.source_via),
            (&route.destination, &transfer.destination_via),
        ]
        .map(|(name, via)| {
            let query = via.as_ref().map(Via::service);
            name.as_ref().map(|name| self.service_cost(name, query))
        });
        let bytes = |amount: Option<Amount>| amount.map(|amount| amount.get() as u64);
        let files = self.files(&transfer.source, amounts);
        let files = match (bytes(mover.large_bytes), bytes(mover.chunk_bytes)) {
            (Some(large), Some(chunk)) => files.in_chunks(large, chunk),
            _ => files,
        };
        TransferSpec {
            files: &files,
            mover,
            source: source.as_ref(),
            destination: destination.as_ref(),
            client,
            control_rtt_s: route.control_rtt_s,
            nearer_rtt_s: route.nearer_rtt_s,
            path: route.path,
            streams: whole(call, "streams").unwrap_or(1),
            concurrency: whole(call, "concurrency"),
            pipelining: whole(call, "pipelining"),
            files_per_session: whole(call, "bundle"),
        }
        .phase_plan()
    }

    /// Return the sizes of the files: those of their dataset if it has sizes, otherwise equal ones.
    fn files(&self, source: &Endpoint, amounts: Amounts) -> CallFiles {
        let mixed = self
            .header
            .dataset_of(source)
            .filter(|set| !set.mix.is_empty() && amounts.files > 1);
        match mixed {
            Some(set) if amounts.files <= MAX_SIZES => {
                let sizes = set.sizes();
                CallFiles::new(
                    (amounts.first..amounts.first.saturating_add(amounts.files))
                        .map(|index| (1, sizes.of(index))),
                )
            }
            _ => CallFiles::new([(amounts.files, amounts.bytes / amounts.files.max(1))]),
        }
    }

    /// Return the time to open the files, if a storage takes time for this.
    fn opening(&self, transfer: &Transfer, amounts: Amounts) -> Option<(Stage, f64)> {
        let open_s = |end: &Endpoint| {
            self.assumptions
                .costs
                .storages
                .get(end.storage())
                .and_then(|cost| cost.open_s)
        };
        let ends = [&transfer.source, &transfer.destination];
        let each_s: f64 = ends.into_iter().filter_map(open_s).map(Amount::get).sum();
        let seconds = each_s * amounts.files as f64;
        let opening = Stage::Wait {
            seconds,
            why: "open",
        };
        (each_s > 0.0).then_some((opening, seconds))
    }
}

/// Return a whole number from the options of a call.
fn whole(call: &Call, key: &str) -> Option<u32> {
    option(call, key).map(|number| number.max(1.0) as u32)
}

fn wrong_cost(
    call: &str,
    source: &str,
    destination: &str,
    (expected, found): (&'static str, f64),
) -> WorldError {
    WorldError::Value {
        where_: format!("the cost of the call `{call}` from `{source}` to `{destination}`"),
        expected,
        found: found.to_string(),
    }
}

struct Maker<'a> {
    world: &'a World,
    fluid: &'a mut Fluid,
    route: &'a TransferRoute,
    /// Resources of the bytes.
    resources: Vec<ResourceId>,
    client: &'a HostCost,
    /// Rate limit of the tool.
    rate: Option<f64>,
    /// Wait per byte for blocks of the storages.
    wait_s: f64,
    /// Duration without load until here, and until the last mark.
    unloaded_s: f64,
    mark_s: f64,
}

impl Maker<'_> {
    fn stage(&mut self, phase: &TransferPhase) -> Result<Stage, WorldError> {
        let route = self.route;
        match *phase {
            TransferPhase::Delay { seconds, why } => {
                self.unloaded_s += seconds;
                Ok(Stage::Wait {
                    seconds,
                    why: name_of_why(why),
                })
            }
            TransferPhase::ClientCpu { core_s, width, why } => {
                let speed = self.client.core_speed.map_or(1.0, Amount::get);
                self.work(&route.client, core_s / speed, width, name_of_why(why))
            }
            TransferPhase::ServerCpu {
                end,
                core_s,
                width,
                why,
            } => self.server_work(end, core_s, width, why),
            TransferPhase::Bytes {
                bytes,
                cap,
                weight,
                bottleneck,
            } => self.bytes(bytes, weight, cap, name_of_bottleneck(bottleneck)),
            TransferPhase::Mark => {
                self.mark_s = self.unloaded_s;
                Ok(Stage::Mark)
            }
            TransferPhase::NotBefore { seconds, why } => {
                self.unloaded_s = self.unloaded_s.max(self.mark_s + seconds);
                Ok(Stage::NotBefore {
                    seconds,
                    why: name_of_why(why),
                })
            }
        }
    }

    /// Add CPU work of the server at an endpoint, on its host.
    fn server_work(
        &mut self,
        end: EndpointRole,
        core_s: f64,
        width: f64,
        why: Why,
    ) -> Result<Stage, WorldError> {
        let (world, route) = (self.world, self.route);
        let service = match end {
            EndpointRole::Source => &route.source,
            EndpointRole::Destination => &route.destination,
        };
        let own = |name: &Name| host_of(&world.header.services[name]);
        let host = service.as_ref().map_or(&route.client, own);
        let costs = &world.assumptions.costs;
        let speed = costs.hosts.get(host).and_then(|host| host.core_speed);
        let speed = speed.map_or(1.0, Amount::get);
        let mut stage = self.work(host, core_s / speed, width, name_of_why(why))?;
        if let (Stage::Work { scatter, .. }, Why::Authentication, Some(name)) =
            (&mut stage, why, service)
        {
            let cost = costs.services.get(name);
            let each = cost.and_then(|cost| cost.auth_scatter);
            let one = cost
                .and_then(|cost| cost.auth_core_s)
                .map_or(0.0, Amount::get);
            let logins = if one > 0.0 {
                (core_s / one).max(1.0)
            } else {
                1.0
            };
            // The sum of several logins has a smaller relative scatter.
            let scattered = each.map_or(0.0, Amount::get) / logins.sqrt();
            *scatter = (scattered, usize::from(end == EndpointRole::Destination));
        }
        Ok(stage)
    }

    /// Add bytes on the resources of the route; `name` is the name of their cap.
    fn bytes(
        &mut self,
        bytes: f64,
        weight: f64,
        cap: f64,
        name: &'static str,
    ) -> Result<Stage, WorldError> {
        let resources = &self.resources.clone();
        let (mut cap, mut name) = match self.rate {
            Some(rate) if rate < cap => (rate.max(0.0), "rate"),
            _ => (cap, name),
        };
        if self.wait_s > 0.0 {
            let moving = self.world.alone(resources, cap);
            (cap, name) = ((moving.recip() + self.wait_s).recip(), "block");
        }
        // Bytes without resources and caps take no time.
        let free = resources.is_empty() && cap.is_infinite();
        let cap = if free { f64::MAX } else { cap };
        let class = self.class(resources, weight, cap)?;
        self.unloaded_s += bytes / self.world.alone(resources, cap);
        Ok(Stage::Bytes {
            class,
            bytes,
            cap: name,
        })
    }

    fn work(
        &mut self,
        host: &str,
        core_s: f64,
        width: f64,
        why: &'static str,
    ) -> Result<Stage, WorldError> {
        let world = self.world;
        let cpus = world.cpus(host);
        self.unloaded_s += core_s / world.alone(cpus, width);
        if !core_s.is_finite() {
            return Err(WorldError::Value {
                where_: format!("world.costs.hosts.{host}.core_speed"),
                expected: "a finite speed above 0",
                found: format!("a speed at which `{why}` takes {core_s} s"),
            });
        }
        if cpus.is_empty() {
            return Ok(Stage::Wait {
                seconds: core_s / width,
                why,
            });
        }
        let class = self.class(cpus, 1.0, width)?;
        Ok(Stage::Work {
            class,
            core_s,
            scatter: (0.0, 0),
            why,
        })
    }

    fn class(
        &mut self,
        resources: &[ResourceId],
        weight: f64,
        cap: f64,
    ) -> Result<ClassId, WorldError> {
        let made = self.fluid.class(resources, weight, cap);
        made.map_err(|source| WorldError::Solver {
            what: "a class of transfers".into(),
            time_s: 0.0,
            source,
        })
    }
}
