//! Numbers of a plan that its types let pass and a world cannot have.

use venturi_plan::{Header, Link, Loss};

use super::Error;
use super::assumptions::{not_negative, positive};

/// Samples are not closer together: all of a plan can be counted then.
const SHORTEST_INTERVAL_S: f64 = 1e-6;

/// Whether samples are so far apart that their number is one.
pub(super) fn check_measure(header: &Header) -> Result<(), Error> {
    match header.measure.interval_s {
        Some(interval) if interval.get() < SHORTEST_INTERVAL_S => Err(Error::Value {
            where_: "measure.interval_s".into(),
            expected: "at least a microsecond",
            found: interval.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Whether every link is one that can be, at all times of the plan.
pub(super) fn check_links(header: &Header) -> Result<(), Error> {
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
        let link = links.get_mut(&change.link).ok_or_else(|| Error::Unknown {
            where_: format!("{where_}.link"),
            expected: "a link of the network",
            found: change.link.as_ref().into(),
        })?;
        change.set.apply(link);
        check(&format!("{where_}.set"), link)?;
    }
    Ok(())
}

fn check(where_: &str, link: &Link) -> Result<(), Error> {
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
        Some(found) => Err(Error::Value {
            where_: format!("{where_}.loss"),
            expected: "probabilities from 0 to 1",
            found: found.to_string(),
        }),
    }
}
