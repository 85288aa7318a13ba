//! What a transfer does, stage by stage: the phases of its cost, on the resources of its passage.

use std::collections::BTreeSet;

use venturi_plan::{Amount, Call, Endpoint, HostCost, MoverCost, Name, ServiceCost, Transfer, Via};

use super::course::Passage;
use super::passage::option;
use super::stage::{Amounts, Stage, Stages, Tries, check_phase, name_of_bound, name_of_why};
use super::{Error, World};
use crate::cost::{Course, End, Files, Phase, TransferSketch, Why};
use crate::fluid::{ClassId, Fluid, ResourceId};

/// What a local end is called among protocols.
const FILE: &str = "file";

/// Files of one call whose sizes are told apart; those of a longer one are taken to be alike.
const MOST_SIZES: u64 = 1 << 20;

impl World {
    /// The stages of a transfer.
    pub(crate) fn stages(
        &self,
        fluid: &mut Fluid,
        transfer: &Transfer,
        passage: &Passage,
        amounts: Amounts,
    ) -> Result<Stages, Error> {
        let call = &self.header.calls[&transfer.call];
        let protocol = |via: &Option<Via>| {
            via.as_ref()
                .map_or(FILE.to_owned(), |via| via.door().to_owned())
        };
        let (source, destination) = (
            protocol(&transfer.source_via),
            protocol(&transfer.destination_via),
        );
        let costs = &self.assumptions.costs;
        let known = costs.mover(&transfer.call, &source, &destination);
        let nothing = MoverCost::default();
        let mover = known.unwrap_or(&nothing);
        let client = costs
            .hosts
            .get(&passage.client)
            .cloned()
            .unwrap_or_default();
        let course = self.course(transfer, passage, amounts, mover, &client);
        let mut unknown: BTreeSet<&'static str> = course.unknown.iter().copied().collect();
        if known.is_none() {
            unknown.insert("the mover between these ends");
        }
        let mut maker = Maker {
            world: self,
            fluid,
            passage,
            client: &client,
            rate: option(call, "rate_bytes_per_s"),
            wait_s: self.block_wait_s(transfer, call, mover)
                / f64::from(whole(call, "concurrency").unwrap_or(1)),
            alone_s: 0.0,
            mark_s: 0.0,
        };
        let mut stages = Vec::with_capacity(course.phases.len());
        if let Some((opening, seconds)) = self.opening(transfer, amounts) {
            maker.alone_s += seconds;
            stages.push(opening);
        }
        for phase in &course.phases {
            check_phase(phase)
                .map_err(|wrong| wrong_cost(&transfer.call, &source, &destination, wrong))?;
            stages.push(maker.stage(phase)?);
        }
        if let Some(core_s) = option(call, "compute_s").filter(|core_s| *core_s > 0.0) {
            stages.push(maker.work(&passage.client.clone(), core_s, 1.0, "compute")?);
        }
        Ok(Stages {
            alone_s: maker.alone_s,
            stages,
            unknown: unknown.into_iter().collect(),
            source,
            destination,
            patience_s: known.and_then(|cost| cost.patience_s).map(Amount::get),
            tries: Tries::new(call, mover),
        })
    }

    /// What a service costs; where another one was `asked`, which sent the client to this door of its own, that one's session besides.
    fn service_cost(&self, name: &str, asked: Option<&str>) -> ServiceCost {
        let costs = &self.assumptions.costs.services;
        let cost = costs.get(name).cloned().unwrap_or_default();
        let Some(asked) = asked.filter(|asked| self.doors.sends_elsewhere(asked)) else {
            return cost;
        };
        let before = costs.get(asked).cloned().unwrap_or_default();
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

    /// The phases of a transfer by its cost.
    fn course(
        &self,
        transfer: &Transfer,
        passage: &Passage,
        amounts: Amounts,
        mover: &MoverCost,
        client: &HostCost,
    ) -> Course {
        let call = &self.header.calls[&transfer.call];
        let [source, destination] = [
            (&passage.source, &transfer.source_via),
            (&passage.destination, &transfer.destination_via),
        ]
        .map(|(name, via)| {
            let asked = via.as_ref().map(Via::service);
            name.as_ref().map(|name| self.service_cost(name, asked))
        });
        let bytes = |amount: Option<Amount>| amount.map(|amount| amount.get() as u64);
        let files = self.files(&transfer.source, amounts);
        let files = match (bytes(mover.large_bytes), bytes(mover.piece_bytes)) {
            (Some(large), Some(piece)) => files.in_pieces(large, piece),
            _ => files,
        };
        TransferSketch {
            files: &files,
            mover,
            source: source.as_ref(),
            destination: destination.as_ref(),
            client,
            control_rtt_s: passage.control_rtt_s,
            nearer_rtt_s: passage.nearer_rtt_s,
            path: passage.path,
            streams: whole(call, "streams").unwrap_or(1),
            concurrency: whole(call, "concurrency"),
            pipelining: whole(call, "pipelining"),
            files_per_session: whole(call, "bundle"),
        }
        .course()
    }

    /// Sizes of the files: those of their data set where that tells, else equal ones.
    fn files(&self, source: &Endpoint, amounts: Amounts) -> Files {
        let mixed = self
            .header
            .dataset_of(source)
            .filter(|set| !set.mix.is_empty() && amounts.files > 1);
        match mixed {
            Some(set) if amounts.files <= MOST_SIZES => {
                let sizes = set.sizes();
                Files::new(
                    (amounts.first..amounts.first.saturating_add(amounts.files))
                        .map(|index| (1, sizes.of(index))),
                )
            }
            _ => Files::new([(amounts.files, amounts.bytes / amounts.files.max(1))]),
        }
    }

    /// Time to open the files, where a storage takes some.
    fn opening(&self, transfer: &Transfer, amounts: Amounts) -> Option<(Stage, f64)> {
        let open_s = |end: &Endpoint| {
            self.assumptions
                .costs
                .places
                .get(end.place())
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

/// A whole number among the options of a call.
fn whole(call: &Call, key: &str) -> Option<u32> {
    option(call, key).map(|number| number.max(1.0) as u32)
}

fn wrong_cost(
    call: &str,
    source: &str,
    destination: &str,
    (expected, found): (&'static str, f64),
) -> Error {
    Error::Value {
        where_: format!("the cost of the call `{call}` from `{source}` to `{destination}`"),
        expected,
        found: found.to_string(),
    }
}

struct Maker<'a> {
    world: &'a World,
    fluid: &'a mut Fluid,
    passage: &'a Passage,
    client: &'a HostCost,
    /// What the tool was told to be no faster than.
    rate: Option<f64>,
    /// What a byte waits for blocks at its places.
    wait_s: f64,
    /// Time up to here while nothing else moves, and at the last mark.
    alone_s: f64,
    mark_s: f64,
}

impl Maker<'_> {
    fn stage(&mut self, phase: &Phase) -> Result<Stage, Error> {
        let passage = self.passage;
        match *phase {
            Phase::Delay { seconds, why } => {
                self.alone_s += seconds;
                Ok(Stage::Wait {
                    seconds,
                    why: name_of_why(why),
                })
            }
            Phase::ClientCpu { core_s, width, why } => {
                let speed = self.client.core_speed.map_or(1.0, Amount::get);
                self.work(&passage.client, core_s / speed, width, name_of_why(why))
            }
            Phase::ServerCpu {
                end,
                core_s,
                width,
                why,
            } => self.server_work(end, core_s, width, why),
            Phase::Bytes {
                bytes,
                cap,
                weight,
                bound,
            } => self.bytes(bytes, weight, cap, name_of_bound(bound)),
            Phase::Mark => {
                self.mark_s = self.alone_s;
                Ok(Stage::Mark)
            }
            Phase::NotBefore { seconds, why } => {
                self.alone_s = self.alone_s.max(self.mark_s + seconds);
                Ok(Stage::NotBefore {
                    seconds,
                    why: name_of_why(why),
                })
            }
        }
    }

    /// Work of the server at an end, on its host.
    fn server_work(&mut self, end: End, core_s: f64, width: f64, why: Why) -> Result<Stage, Error> {
        let (world, passage) = (self.world, self.passage);
        let service = match end {
            End::Source => &passage.source,
            End::Destination => &passage.destination,
        };
        let own = |name: &Name| &world.header.services[name].host;
        let host = service.as_ref().map_or(&passage.client, own);
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
            // Of several logins the sum scatters less.
            let scattered = each.map_or(0.0, Amount::get) / logins.sqrt();
            *scatter = (scattered, usize::from(end == End::Destination));
        }
        Ok(stage)
    }

    /// Bytes on the resources of the passage; `name`: what caps them.
    fn bytes(
        &mut self,
        bytes: f64,
        weight: f64,
        cap: f64,
        name: &'static str,
    ) -> Result<Stage, Error> {
        let resources = &self.passage.resources;
        let (mut cap, mut name) = match self.rate {
            Some(rate) if rate < cap => (rate.max(0.0), "rate"),
            _ => (cap, name),
        };
        if self.wait_s > 0.0 {
            let moving = self.world.alone(resources, cap);
            (cap, name) = ((moving.recip() + self.wait_s).recip(), "block");
        }
        // What crosses nothing, and is bound by nothing, takes no time.
        let free = resources.is_empty() && cap.is_infinite();
        let cap = if free { f64::MAX } else { cap };
        let class = self.class(resources, weight, cap)?;
        self.alone_s += bytes / self.world.alone(resources, cap);
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
    ) -> Result<Stage, Error> {
        let world = self.world;
        let cpus = world.cpus(host);
        self.alone_s += core_s / world.alone(cpus, width);
        if !core_s.is_finite() {
            return Err(Error::Value {
                where_: format!("world.costs.hosts.{host}.core_speed"),
                expected: "a finite speed above 0",
                found: format!("one at which `{why}` takes {core_s} s"),
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

    fn class(&mut self, resources: &[ResourceId], weight: f64, cap: f64) -> Result<ClassId, Error> {
        let made = self.fluid.class(resources, weight, cap);
        made.map_err(|source| Error::Solver {
            what: "a class of transfers".into(),
            time_s: 0.0,
            source,
        })
    }
}
