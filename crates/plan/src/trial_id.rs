//! `t0000012`: the name of a trial.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The name of a trial: `t` and at least seven digits, counted in the order of execution.
///
/// ```
/// use venturi_plan::TrialId;
/// let id: TrialId = "t0000012".parse()?;
/// assert_eq!((id.number(), id.to_string().as_str()), (12, "t0000012"));
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct TrialId(u32);

impl TrialId {
    /// Create the id of the trial of this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Return the number in the order of execution, from 0.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{:07}", self.0)
    }
}

impl FromStr for TrialId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text
            .strip_prefix('t')
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok()).map(Self);
        // Each number has one spelling; otherwise a resume would treat `t12` and `t0000012` as two
        // trials.
        number
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| Error::TrialId { found: text.into() })
    }
}

impl TryFrom<Cow<'_, str>> for TrialId {
    type Error = Error;

    fn try_from(text: Cow<'_, str>) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<TrialId> for String {
    fn from(id: TrialId) -> Self {
        id.to_string()
    }
}

impl JsonSchema for TrialId {
    fn schema_name() -> Cow<'static, str> {
        "TrialId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "`t` and at least seven digits, in the order of execution",
            "pattern": "^t([0-9]{7}|[1-9][0-9]{7,9})$",
        })
    }
}
