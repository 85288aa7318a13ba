//! Automatic decisions of a copy, with their reasons.

/// Minimum gain to keep a further connection, or twice as many sessions: total throughput compared with before.
pub(crate) const MIN_GAIN: f64 = 1.05;

/// Decision to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) setting: &'static str,
    pub(crate) value: u64,
    pub(crate) reason: String,
}
