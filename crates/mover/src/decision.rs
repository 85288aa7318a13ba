//! What a copy decides by itself, and why.

/// One decision, to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) what: &'static str,
    pub(crate) value: u64,
    pub(crate) reason: String,
}
