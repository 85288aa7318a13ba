//! Streams of random values of one actor, with their positions.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::{Bytes, DrawStream, Endpoint, Name, Scalar, Seconds, TrialId};

/// Streams outlive the fibers that draw from them. So in each round, a child of a repeated
/// `parallel` continues its stream from the previous round.
#[derive(Debug)]
pub(super) struct Streams {
    seed: u64,
    actor: Name,
    outside: FiberStreams,
    trial: Option<(TrialId, FiberStreams)>,
}

#[derive(Debug, Default)]
struct FiberStreams {
    /// Streams by path of children and name.
    values: BTreeMap<(Name, Name), DrawStream>,
    /// Number of arrivals so far, by path.
    arrivals: BTreeMap<Name, u64>,
}

impl FiberStreams {
    /// Drop the streams of this path and of the paths below it.
    fn forget(&mut self, path: &Name) {
        let own = |other: &Name| {
            let below = other.strip_prefix(&**path);
            below.is_some_and(|it| !it.starts_with(|it: char| it.is_ascii_digit()))
        };
        let first = (path.clone(), Name::from(""));
        while let Some(key) = self
            .values
            .range(&first..)
            .next()
            .map(|(key, _)| key.clone())
        {
            if !own(&key.0) {
                break;
            }
            self.values.remove(&key);
        }
        while let Some(key) = self
            .arrivals
            .range::<Name, _>(path..)
            .next()
            .map(|(key, _)| key.clone())
        {
            if !own(&key) {
                break;
            }
            self.arrivals.remove(&key);
        }
    }
}

impl Streams {
    pub fn new(seed: u64, actor: &Name) -> Self {
        Self {
            seed,
            actor: actor.clone(),
            outside: FiberStreams::default(),
            trial: None,
        }
    }

    pub fn start_trial(&mut self, id: TrialId) {
        self.trial = Some((id, FiberStreams::default()));
    }

    pub fn end_trial(&mut self) {
        self.trial = None;
    }

    pub fn next_bits(&mut self, path: &Name, stream: &Name) -> u64 {
        let (trial, streams): (&dyn Display, _) = match &mut self.trial {
            Some((id, streams)) => (id, streams),
            None => (&"", &mut self.outside),
        };
        let start = || DrawStream::new(self.seed, &self.actor, stream, &format!("{trial}{path}"));
        streams
            .values
            .entry((path.clone(), stream.clone()))
            .or_insert_with(start)
            .next_bits()
    }

    /// Lend a stream in its current state; it has no other user until its return.
    pub fn lend(&mut self, path: &Name, stream: &Name) -> DrawStream {
        let key = (path.clone(), stream.clone());
        let lent = self.current().values.remove(&key);
        lent.unwrap_or_else(|| self.start(path, stream))
    }

    /// Take a lent stream back.
    pub fn return_stream(&mut self, path: &Name, stream: &Name, lent: DrawStream) {
        let key = (path.clone(), stream.clone());
        self.current().values.insert(key, lent);
    }

    fn start(&self, path: &Name, stream: &Name) -> DrawStream {
        let trial: &dyn Display = match &self.trial {
            Some((id, _)) => id,
            None => &"",
        };
        DrawStream::new(self.seed, &self.actor, stream, &format!("{trial}{path}"))
    }

    /// Return the number of the next arrival in the fiber of this path.
    pub fn next_arrival(&mut self, path: &Name) -> u64 {
        let count = self.current().arrivals.entry(path.clone()).or_default();
        *count += 1;
        *count - 1
    }

    /// Remove the streams of an ended arrival, because a hundred million of them would fill the
    /// memory.
    pub fn forget(&mut self, path: &Name) {
        self.current().forget(path);
    }

    /// Return the number of stored streams of fibers outside of trials.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.outside.values.len()
    }

    fn current(&mut self) -> &mut FiberStreams {
        match &mut self.trial {
            Some((_, streams)) => streams,
            None => &mut self.outside,
        }
    }
}

/// Maximum time and duration, three centuries, so that sums in a driver cannot overflow clocks.
pub(super) const MAX_SECONDS: f64 = 1e10;

/// Types of values that a draw can return.
pub(super) trait Drawn: Clone {
    /// Requirement for every drawn value.
    const EXPECTED: &'static str;

    fn from_scalar(scalar: &Scalar) -> Option<Self>;
}

impl Drawn for Seconds {
    const EXPECTED: &'static str = "numbers of at least 0 and at most 1e10";

    fn from_scalar(scalar: &Scalar) -> Option<Self> {
        let number = scalar.as_number()?;
        (0.0..=MAX_SECONDS)
            .contains(&number)
            .then_some(Self::new(number))
    }
}

impl Drawn for f64 {
    const EXPECTED: &'static str = "numbers of at least 0";

    fn from_scalar(scalar: &Scalar) -> Option<Self> {
        scalar
            .as_number()
            .filter(|number| (0.0..=Self::MAX).contains(number))
    }
}

impl Drawn for Bytes {
    const EXPECTED: &'static str = "numbers of at least 0 and below 2^63";

    /// Rounded to the nearest byte.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds
    fn from_scalar(scalar: &Scalar) -> Option<Self> {
        const TOO_MANY: f64 = (1_u64 << 63) as f64;
        if let Scalar::Integer(integer) = scalar {
            return u64::try_from(*integer).ok().map(Self::new);
        }
        let number = scalar.as_number()?;
        (0.0..TOO_MANY)
            .contains(&number)
            .then_some(Self::new(number.round() as u64))
    }
}

impl Drawn for Endpoint {
    const EXPECTED: &'static str = "texts `storage:relative/path`";

    fn from_scalar(scalar: &Scalar) -> Option<Self> {
        match scalar {
            Scalar::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}
