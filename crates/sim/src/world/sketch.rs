//! What a transfer does, stage by stage: the phases of its cost, on the resources of its passage.

use std::collections::BTreeSet;

use venturi_plan::{Amount, Endpoint, MoverCost, Transfer, Via};

use super::course::{Passage, option};
use super::{Error, World};
use crate::cost::{Bound, End, Files, HostCost, Phase, ServiceCost, TransferSketch, Why};
use crate::fluid::{ClassId, Fluid, ResourceId};

/// What a local end is called among protocols.
const FILE: &str = "file";

/// How much a transfer moves; the first file of a data set decides on sizes that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amounts {
    pub first: u64,
    pub files: u64,
    pub bytes: u64,
}

/// All that a transfer does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stages {
    pub stages: Vec<Stage>,
    /// Costs that nobody knows and that count nothing.
    pub unknown: Vec<&'static str>,
    /// The protocols of both ends.
    pub source: String,
    pub destination: String,
}

/// One thing that a transfer does; the next begins when it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stage {
    /// Time passes.
    Wait { seconds: f64, why: &'static str },
    /// A processor works.
    Work {
        class: ClassId,
        core_s: f64,
        /// How much that differs from one to the next, and on which axis they are drawn.
        scatter: (f64, usize),
        why: &'static str,
    },
    /// Bytes pass; `cap` is what its class is bound by besides resources.
    Bytes {
        class: ClassId,
        bytes: f64,
        cap: &'static str,
    },
    /// Remember the present moment.
    Mark,
    /// Wait until so much time has passed since then.
    NotBefore { seconds: f64, why: &'static str },
}

impl World {
    /// The stages of a transfer.
    pub(super) fn stages(
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
        let server = |name: &Option<venturi_plan::Name>| -> Option<ServiceCost> {
            name.as_ref()
                .map(|name| costs.services.get(name).cloned().unwrap_or_default())
        };
        let (source_cost, destination_cost) =
            (server(&passage.source), server(&passage.destination));
        let client = costs
            .hosts
            .get(&passage.client)
            .cloned()
            .unwrap_or_default();
        let files = self.files(&transfer.source, amounts);
        let whole = |key: &str| option(call, key).map(|number| number.max(1.0) as u32);
        let course = TransferSketch {
            files: &files,
            mover: known.unwrap_or(&nothing),
            source: source_cost.as_ref(),
            destination: destination_cost.as_ref(),
            client: &client,
            control_rtt_s: passage.control_rtt_s,
            path: passage.path,
            streams: whole("streams").unwrap_or(1),
            concurrency: whole("concurrency").unwrap_or(1),
            pipelining: whole("pipelining"),
        }
        .course();
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
        };
        let mut stages = Vec::with_capacity(course.phases.len());
        if let Some(opening) = self.opening(transfer, amounts) {
            stages.push(opening);
        }
        for phase in &course.phases {
            stages.push(maker.stage(phase)?);
        }
        if let Some(core_s) = option(call, "compute_s").filter(|core_s| *core_s > 0.0) {
            stages.push(maker.work(&passage.client.clone(), core_s, 1.0, "compute")?);
        }
        Ok(Stages {
            stages,
            unknown: unknown.into_iter().collect(),
            source,
            destination,
        })
    }

    /// Sizes of the files: those of their data set where that tells, else equal ones.
    fn files(&self, source: &Endpoint, amounts: Amounts) -> Files {
        let mixed = self
            .header
            .dataset_of(source)
            .filter(|set| !set.mix.is_empty() && amounts.files > 1);
        match mixed {
            Some(set) => {
                let sizes = set.sizes();
                Files::new(
                    (amounts.first..amounts.first + amounts.files)
                        .map(|index| (1, sizes.of(index))),
                )
            }
            None => Files::new([(amounts.files, amounts.bytes / amounts.files.max(1))]),
        }
    }

    /// Time to open the files, where a storage takes some.
    fn opening(&self, transfer: &Transfer, amounts: Amounts) -> Option<Stage> {
        let open_s = |end: &Endpoint| {
            self.assumptions
                .costs
                .places
                .get(end.place())
                .and_then(|cost| cost.open_s)
        };
        let ends = [&transfer.source, &transfer.destination];
        let each_s: f64 = ends.into_iter().filter_map(open_s).map(Amount::get).sum();
        (each_s > 0.0).then_some(Stage::Wait {
            seconds: each_s * amounts.files as f64,
            why: "open",
        })
    }
}

struct Maker<'a> {
    world: &'a World,
    fluid: &'a mut Fluid,
    passage: &'a Passage,
    client: &'a HostCost,
    /// What the tool was told to be no faster than.
    rate: Option<f64>,
}

impl Maker<'_> {
    fn stage(&mut self, phase: &Phase) -> Result<Stage, Error> {
        let passage = self.passage;
        match *phase {
            Phase::Delay { seconds, why } => Ok(Stage::Wait {
                seconds,
                why: name_of_why(why),
            }),
            Phase::ClientCpu { core_s, width, why } => {
                let speed = self.client.core_speed.map_or(1.0, Amount::get);
                self.work(&passage.client, core_s / speed, width, name_of_why(why))
            }
            Phase::ServerCpu {
                end,
                core_s,
                width,
                why,
            } => {
                let service = match end {
                    End::Source => &passage.source,
                    End::Destination => &passage.destination,
                };
                let host = service.as_ref().map_or(&passage.client, |name| {
                    &self.world.header.services[name].host
                });
                let speed = self.world.assumptions.costs.hosts.get(host);
                let speed = speed
                    .and_then(|host| host.core_speed)
                    .map_or(1.0, Amount::get);
                let mut stage =
                    self.work(&host.clone(), core_s / speed, width, name_of_why(why))?;
                if let (Stage::Work { scatter, .. }, Why::Authentication, Some(name)) =
                    (&mut stage, why, service)
                {
                    let cost = self.world.assumptions.costs.services.get(name);
                    let each = cost
                        .and_then(|cost| cost.auth_scatter)
                        .map_or(0.0, Amount::get);
                    // Of several logins together the sum scatters less.
                    *scatter = (each / width.sqrt(), usize::from(end == End::Destination));
                }
                Ok(stage)
            }
            Phase::Bytes {
                bytes,
                cap,
                weight,
                bound,
            } => {
                let (cap, name) = match self.rate {
                    Some(rate) if rate < cap => (rate, "rate"),
                    _ => (cap, name_of_bound(bound)),
                };
                // What crosses nothing, and is bound by nothing, takes no time.
                let free = passage.resources.is_empty() && cap.is_infinite();
                let cap = if free { f64::MAX } else { cap };
                let class = self.class(&passage.resources, weight, cap)?;
                Ok(Stage::Bytes {
                    class,
                    bytes,
                    cap: name,
                })
            }
            Phase::Mark => Ok(Stage::Mark),
            Phase::NotBefore { seconds, why } => Ok(Stage::NotBefore {
                seconds,
                why: name_of_why(why),
            }),
        }
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

const fn name_of_why(why: Why) -> &'static str {
    match why {
        Why::Start => "start",
        Why::Session => "session",
        Why::Authentication => "authentication",
        Why::Redirect => "redirect",
        Why::Commands => "commands",
        Why::File => "file",
        Why::SlowStart => "slow_start",
    }
}

const fn name_of_bound(bound: Bound) -> &'static str {
    match bound {
        Bound::None => "nothing",
        Bound::Window => "window",
        Bound::Ahead => "ahead",
        Bound::Loss => "loss",
        Bound::ClientCpu => "client_cpu",
        Bound::ServerCpu => "server_cpu",
        Bound::ServerProcess => "server_process",
        Bound::Block => "block",
    }
}
