//! Quantities with units as separate types, to prevent mistakes.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of bytes.
///
/// ```
/// use venturi_plan::Bytes;
/// assert_eq!(Bytes::new(1_000_000).get(), 1_000_000);
/// ```
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
#[schemars(description = "A number of bytes.")] // without the example
pub struct Bytes(u64);

impl Bytes {
    /// Create from a number of bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Return the number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A time or a duration in seconds; as a time, since the epoch of the run.
///
/// It has a total order (`f64::total_cmp`), so that it can be a key; JSON cannot contain NaN.
///
/// ```
/// use venturi_plan::Seconds;
/// assert!(Seconds::new(0.5) < Seconds::new(1.0));
/// assert_eq!((Seconds::new(0.5) + Seconds::new(1.0)).get(), 1.5);
/// ```
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(description = "A time of the run or a duration, in seconds.")] // without the example
pub struct Seconds(f64);

impl Seconds {
    /// Time zero, or a duration of zero.
    pub const ZERO: Self = Self(0.0);

    /// Create from a number of seconds.
    #[must_use]
    pub const fn new(seconds: f64) -> Self {
        Self(seconds)
    }

    /// Return the number of seconds.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Seconds {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Seconds {}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Add for Seconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Seconds {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
