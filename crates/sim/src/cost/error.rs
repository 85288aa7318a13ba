//! Why a cost cannot be told.

/// What is missing or makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter that has no default and was not given.
    #[error(
        "expected {what}, found nothing; give it under testbed.cost in the scenario, or calibrate it from a run"
    )]
    Unknown {
        /// The parameter.
        what: &'static str,
    },
    /// A storage of two kinds at once.
    #[error(
        "expected one model of a storage (seek_s, half_users, or contention and coherency), found more; leave the others out"
    )]
    Models,
}
