//! Checks of numbers that the types of a plan accept and a world cannot use.

use venturi_plan::{Header, Link, Loss};

use super::WorldError;
use super::assumptions::{not_negative, positive};

/// Minimum interval of samples, so that all samples of a plan can be counted.
const SHORTEST_INTERVAL_S: f64 = 1e-6;

/// Check that the interval of samples is long enough.
pub(super) fn check_measure(header: &Header) -> Result<(), WorldError> {
    match header.measure.interval_s {
        Some(interval) if interval.get() < SHORTEST_INTERVAL_S => Err(WorldError::Value {
            where_: "measure.interval_s".into(),
            expected: "at least a microsecond",
            found: interval.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Check every link at all times of the plan.
pub(super) fn check_links(header: &Header) -> Result<(), WorldError> {
    let Some(network) = &header.network else {
        return Ok(());
    };
    for (name, link) in &network.links {
        check(&format!("network.links.{name}"), link)?;
    }
    let mut links = network.links.clone();
    for (number, change) in network.changes.iter().enumerate() {
        let where_ = format!("network.changes[{number}]");
        not_negative(&format!("{where_}.time_s"), change.time_s.get())?;
        let link = links
            .get_mut(&change.link)
            .ok_or_else(|| WorldError::Unknown {
                where_: format!("{where_}.link"),
                expected: "a link of the network",
                found: change.link.as_ref().into(),
            })?;
        change.set.apply(link);
        check(&format!("{where_}.set"), link)?;
    }
    Ok(())
}

fn check(where_: &str, link: &Link) -> Result<(), WorldError> {
    positive(&format!("{where_}.rate_bit_per_s"), link.rate_bit_per_s)?;
    not_negative(&format!("{where_}.delay_s"), link.delay_s.get())?;
    let probabilities = match link.loss {
        None => Vec::new(),
        Some(Loss::Independent { probability }) => vec![probability],
        Some(Loss::Bursty {
            enter,
            leave,
            probability,
        }) => vec![enter, leave, probability],
    };
    match probabilities
        .into_iter()
        .find(|it| !(0.0..=1.0).contains(it))
    {
        None => Ok(()),
        Some(found) => Err(WorldError::Value {
            where_: format!("{where_}.loss"),
            expected: "probabilities from 0 to 1",
            found: found.to_string(),
        }),
    }
}
