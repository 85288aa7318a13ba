//! What a solver refuses.

/// A call that cannot be carried out; the solver is as it was before it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number out of its range.
    #[error("expected {what} to be {expected}, found {found}")]
    Value {
        /// Which number.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// What was given.
        found: f64,
    },
    /// An id that stands for nothing here, or no more.
    #[error("expected the id of {expected}, found number {found}, which is none")]
    Unknown {
        /// Of what.
        expected: &'static str,
        /// The number in the id.
        found: u32,
    },
    /// A time before one that was told already.
    #[error(
        "expected a time from {expected_from_s} s on, found {found_s} s: a solver never goes back"
    )]
    Past {
        /// The time of the solver.
        expected_from_s: f64,
        /// What was given.
        found_s: f64,
    },
    /// More of something than can be counted.
    #[error("expected at most {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// So many are possible.
        limit: u32,
    },
}

/// Bytes/s and weights at most: sums and quotients of such numbers are numbers.
const MOST: f64 = 1e30;

/// Bytes of a flow at most: a sum of some is a number.
const MOST_BYTES: f64 = 1e300;

impl Error {
    /// Refuse what is not a number of bytes/s from 0 to [`MOST`].
    pub(super) fn unless_rate(what: &'static str, found: f64) -> Result<(), Self> {
        let expected = "finite, at least 0 and at most 1e30";
        Self::unless((0.0..=MOST).contains(&found), what, expected, found)
    }

    /// Refuse what is not a number of bytes from 0 to [`MOST_BYTES`].
    pub(super) fn unless_bytes(what: &'static str, found: f64) -> Result<(), Self> {
        let expected = "finite, at least 0 and at most 1e300";
        Self::unless((0.0..=MOST_BYTES).contains(&found), what, expected, found)
    }

    fn unless(
        fits: bool,
        what: &'static str,
        expected: &'static str,
        found: f64,
    ) -> Result<(), Self> {
        if fits {
            return Ok(());
        }
        Err(Self::Value {
            what,
            expected,
            found,
        })
    }

    /// Refuse a time that is none, or before `from_s`.
    pub(super) fn unless_time(found_s: f64, from_s: f64) -> Result<(), Self> {
        let is_time = found_s.is_finite() && found_s >= 0.0;
        Self::unless(is_time, "the time", "finite and at least 0", found_s)?;
        if found_s >= from_s {
            return Ok(());
        }
        Err(Self::Past {
            expected_from_s: from_s,
            found_s,
        })
    }
}
