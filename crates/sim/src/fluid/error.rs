//! Errors of the solver.

/// Rejected call. The solver is unchanged, except that its time may have advanced to `now`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FluidError {
    /// A number is out of its range.
    #[error("expected {what} to be {expected}, found {found}")]
    Value {
        /// Name of the number.
        what: &'static str,
        /// Valid range.
        expected: &'static str,
        /// Value found.
        found: f64,
    },
    /// An identifier belongs to no object of this solver, or no longer does.
    #[error("expected the id of {expected}, found the unknown number {found}")]
    Unknown {
        /// Kind of object.
        expected: &'static str,
        /// Number in the identifier.
        found: u32,
    },
    /// A time is before the time of the solver.
    #[error(
        "expected a time of at least {expected_from_s} s, found {found_s} s; the solver cannot go back \
         in time"
    )]
    Past {
        /// Time of the solver.
        expected_from_s: f64,
        /// Time found.
        found_s: f64,
    },
    /// There are too many objects of one kind.
    #[error("expected at most {limit} {what}")]
    TooMany {
        /// Kind of object.
        what: &'static str,
        /// Maximum number.
        limit: u32,
    },
}

/// Maximum of rates in bytes/s and of weights: sums and quotients of these stay finite.
const MAX_COUNT: f64 = 1e30;

/// Maximum bytes of a flow: sums of several flows stay finite.
const MAX_BYTES: f64 = 1e300;

impl FluidError {
    /// Reject a rate outside of 0 to [`MAX_COUNT`] bytes/s.
    pub(super) fn unless_rate(what: &'static str, found: f64) -> Result<(), Self> {
        let expected = "finite, at least 0 and at most 1e30";
        Self::unless((0.0..=MAX_COUNT).contains(&found), what, expected, found)
    }

    /// Reject a number of bytes outside of 0 to [`MAX_BYTES`].
    pub(super) fn unless_bytes(what: &'static str, found: f64) -> Result<(), Self> {
        let expected = "finite, at least 0 and at most 1e300";
        Self::unless((0.0..=MAX_BYTES).contains(&found), what, expected, found)
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

    /// Reject a time that is negative, not finite, or before `from_s`.
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
