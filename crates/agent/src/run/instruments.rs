//! Counters of a run: the sampler and the socket monitor, as the plan requests them.

use std::path::Path;

use nix::unistd::Pid;
use venturi_plan::{AgentEvent, CounterFamily, Record, Sample, Seconds, Start};

use crate::clock::{NS_PER_S, RunClock};
use crate::findings;
use crate::output::Sender;
use crate::sampler::{Sampler, SamplerMessage, Sources};
use crate::servers::PlanServers;
use crate::sockets::{SocketFilter, SocketWatcher};
use crate::storages::Storages;

/// Returns the interval of the samples, if the plan requests any.
fn interval_ns(start: &Start) -> Option<u64> {
    let interval = start.header.measure.interval_s;
    let interval = interval.filter(|interval| interval.get() > 0.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive; the cast saturates"
    )]
    Some((interval.get() * NS_PER_S as f64) as u64)
}

/// Starts the sampling of counters, if the plan requests it.
///
/// # Errors
/// A message if no thread can start.
pub(super) fn start_sampler(
    start: &Start,
    clock: RunClock,
    sender: &Sender,
    servers: &PlanServers,
    watchdog: Pid,
) -> Result<Option<Sampler>, String> {
    let Some(interval_ns) = interval_ns(start) else {
        return Ok(None);
    };
    let mut sources = Sources::default();
    for (controller, directory) in start.cgroups.iter().flatten() {
        if !sources.add_cgroup(controller, Path::new(directory)) {
            let finding = findings::cgroup_not_read(controller, directory);
            sender.send(&Record::Finding(finding));
        }
    }
    let mounts = Storages::new(start).network_mounts();
    for family in &start.header.measure.counters {
        match family {
            CounterFamily::Process => sources.add_processes(servers.clone(), watchdog),
            family => sources.add_family(*family, &mounts),
        }
    }
    if sources.is_empty() {
        return Ok(None); // no counters to sample
    }
    let sender = sender.clone();
    let emit = move |message| match message {
        SamplerMessage::Counters(time_ns, counters) => sender.offer(&Record::Sample(Sample {
            time_s: Seconds::new(clock.seconds_at(time_ns)),
            counters,
        })),
        SamplerMessage::Missing(time_ns, missing) => {
            let detail = missing
                .into_iter()
                .map(|(name, reason)| (name, reason.into()));
            sender.send(&Record::Event(AgentEvent {
                time_s: Seconds::new(clock.seconds_at(time_ns)),
                kind: "counters-missing".into(),
                detail: detail.collect(),
            }));
            true
        }
    };
    let sampler = Sampler::start(sources, interval_ns, emit);
    sampler
        .map(Some)
        .map_err(|error| format!("cannot start the sampling thread: {error}"))
}

/// Starts the socket monitor, if the plan requests it.
///
/// # Errors
/// A message if no thread can start.
pub(super) fn start_sockets(
    start: &Start,
    clock: RunClock,
    sender: &Sender,
    servers: &PlanServers,
) -> Result<Option<SocketWatcher>, String> {
    let requested = start.header.measure.counters.contains(&CounterFamily::Tcp);
    let Some(interval_ns) = interval_ns(start).filter(|_| requested) else {
        return Ok(None);
    };
    let sender = sender.clone();
    let emit = move |time_ns, sockets| {
        sender.offer(&Record::Sockets(venturi_plan::Sockets {
            time_s: Seconds::new(clock.seconds_at(time_ns)),
            sockets,
        }))
    };
    let sockets = SocketWatcher::start(SocketFilter::here(servers), interval_ns, emit);
    sockets
        .map(Some)
        .map_err(|error| format!("cannot start the socket monitor: {error}"))
}
