//! The streams of random values of one actor, each as far as it has been drawn.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::{Bytes, DrawStream, Endpoint, Name, Scalar, Seconds, TrialId};

/// Streams outlive the strands that draw from them: the third child of a `parallel` that is repeated goes on in the next round
/// where it stopped in the last.
#[derive(Debug)]
pub(super) struct Streams {
    seed: u64,
    actor: Name,
    outside: ByStrand,
    trial: Option<(TrialId, ByStrand)>,
}

#[derive(Debug, Default)]
struct ByStrand {
    /// By path of children and name of the stream.
    values: BTreeMap<(Name, Name), DrawStream>,
    /// By path: what has arrived there so far.
    arrivals: BTreeMap<Name, u64>,
}

impl ByStrand {
    /// Drop what belongs to this path and to the ones below it.
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
            outside: ByStrand::default(),
            trial: None,
        }
    }

    pub fn begin_trial(&mut self, id: TrialId) {
        self.trial = Some((id, ByStrand::default()));
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

    /// Lend a stream out, as far as it has been drawn, for as long as nobody else draws from it.
    pub fn lend(&mut self, path: &Name, stream: &Name) -> DrawStream {
        let key = (path.clone(), stream.clone());
        let lent = self.here().values.remove(&key);
        lent.unwrap_or_else(|| self.start(path, stream))
    }

    /// Take it back.
    pub fn take_back(&mut self, path: &Name, stream: &Name, lent: DrawStream) {
        let key = (path.clone(), stream.clone());
        self.here().values.insert(key, lent);
    }

    fn start(&self, path: &Name, stream: &Name) -> DrawStream {
        let trial: &dyn Display = match &self.trial {
            Some((id, _)) => id,
            None => &"",
        };
        DrawStream::new(self.seed, &self.actor, stream, &format!("{trial}{path}"))
    }

    /// The number of the next arrival in the strand of this path.
    pub fn next_arrival(&mut self, path: &Name) -> u64 {
        let count = self.here().arrivals.entry(path.clone()).or_default();
        *count += 1;
        *count - 1
    }

    /// An arrival is over, and nothing will be drawn for it again: of a hundred million of them none may stay in memory.
    pub fn forget(&mut self, path: &Name) {
        self.here().forget(path);
    }

    /// Streams that are held, of strands within no trial.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.outside.values.len()
    }

    fn here(&mut self) -> &mut ByStrand {
        match &mut self.trial {
            Some((_, streams)) => streams,
            None => &mut self.outside,
        }
    }
}

/// Latest time and longest duration, three centuries: what a driver adds up stays far from where clocks overflow.
pub(super) const MAX_SECONDS: f64 = 1e10;

/// What a draw can stand for.
pub(super) trait Drawn: Clone {
    /// What every drawn value must be.
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

    /// To the nearest byte.
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
    const EXPECTED: &'static str = "texts `place:relative/path`";

    fn from_scalar(scalar: &Scalar) -> Option<Self> {
        match scalar {
            Scalar::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}
