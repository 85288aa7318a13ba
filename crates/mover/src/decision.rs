//! What a copy decides by itself, and why.

/// Another connection, or twice as many sessions, stay if all bring so many times as much as they did without.
pub(crate) const WORTH: f64 = 1.05;

/// One decision, to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) what: &'static str,
    pub(crate) value: u64,
    pub(crate) reason: String,
}
