//! What counts beside a run: the sampler of counters and the watch on sockets, as the plan wants them.

use std::path::Path;

use venturi_plan::{CounterFamily, Record, Sample, Seconds, Start};

use crate::clock::{NS_PER_S, RunClock};
use crate::findings;
use crate::output::Sender;
use crate::sampler::{ControlGroups, Sampler};
use crate::sockets::{Sockets, Whose};

/// The interval of the samples, if any are wanted.
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

/// Starts the sampling of counters, if it is wanted.
///
/// # Errors
/// A text when there is no thread to be had.
pub(super) fn start_sampler(
    start: &Start,
    clock: RunClock,
    sender: &Sender,
) -> Result<Option<Sampler>, String> {
    let Some(interval_ns) = interval_ns(start) else {
        return Ok(None);
    };
    let mut groups = ControlGroups::default();
    for (controller, folder) in start.cgroups.iter().flatten() {
        if !groups.add(controller, Path::new(folder)) {
            let finding = findings::cgroup_not_read(controller, folder);
            sender.send(&Record::Finding(finding));
        }
    }
    let mut families = start.header.measure.counters.clone();
    families.retain(|family| *family != CounterFamily::Tcp);
    if families.is_empty() && groups.is_empty() {
        return Ok(None); // a sample of nothing is none
    }
    let sender = sender.clone();
    let emit = move |time_ns, counters| {
        sender.offer(&Record::Sample(Sample {
            time_s: Seconds::new(clock.seconds_at(time_ns)),
            counters,
        }))
    };
    let sampler = Sampler::start(&families, groups, interval_ns, emit);
    sampler
        .map(Some)
        .map_err(|error| format!("cannot start the sampling thread: {error}"))
}

/// Starts the watch on TCP sockets, if it is wanted.
///
/// # Errors
/// A text when there is no thread to be had.
pub(super) fn start_sockets(
    start: &Start,
    clock: RunClock,
    sender: &Sender,
) -> Result<Option<Sockets>, String> {
    let wanted = start.header.measure.counters.contains(&CounterFamily::Tcp);
    let Some(interval_ns) = interval_ns(start).filter(|_| wanted) else {
        return Ok(None);
    };
    let sender = sender.clone();
    let emit = move |time_ns, sockets| {
        sender.offer(&Record::Sockets(venturi_plan::Sockets {
            time_s: Seconds::new(clock.seconds_at(time_ns)),
            sockets,
        }))
    };
    let sockets = Sockets::start(Whose::here(), interval_ns, emit);
    sockets
        .map(Some)
        .map_err(|error| format!("cannot start the thread that watches sockets: {error}"))
}
