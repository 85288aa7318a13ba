//! Errors of costs.

/// A missing or invalid value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostError {
    /// A parameter without a default is missing.
    #[error(
        "expected {what}, found nothing; set it under testbed.cost in the scenario, or calibrate it from \
         a run"
    )]
    Unknown {
        /// Name of the parameter.
        what: &'static str,
    },
    /// A storage has more than one model.
    #[error(
        "expected one model of a storage (seek_s, half_users, or contention and coherency), found more; \
         remove the others"
    )]
    Models,
}
