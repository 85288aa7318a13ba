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

impl Error {
    /// Refuse what is not a finite number from 0 on.
    pub(super) fn unless_amount(what: &'static str, found: f64) -> Result<(), Self> {
        if found.is_finite() && found >= 0.0 {
            return Ok(());
        }
        let expected = "finite and at least 0";
        Err(Self::Value {
            what,
            expected,
            found,
        })
    }

    /// Refuse a time that is none, or before `from_s`.
    pub(super) fn unless_time(found_s: f64, from_s: f64) -> Result<(), Self> {
        Self::unless_amount("the time", found_s)?;
        if found_s >= from_s {
            return Ok(());
        }
        Err(Self::Past {
            expected_from_s: from_s,
            found_s,
        })
    }
}
