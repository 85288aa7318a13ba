//! `storage:relative/path`: source or destination of bytes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Storage that discards all bytes: `/dev/null` of any host.
pub const NULL: &str = "null";
/// Storage with an endless sequence of zero bytes: `/dev/zero` of any host.
pub const ZERO: &str = "zero";

/// `storage:relative/path`, or `null:` or `zero:`.
///
/// Destinations are removed after their trial. So the parser rejects a path outside of its storage
/// (`..`, a leading `/`) and the storage itself (`.`). A value of this type needs no further check.
///
/// ```
/// use venturi_plan::Endpoint;
/// let endpoint: Endpoint = "gpfs:sets/100MB/000003".parse()?;
/// assert_eq!((endpoint.storage(), endpoint.path()), ("gpfs", "sets/100MB/000003"));
/// assert!("gpfs:../../etc".parse::<Endpoint>().is_err());
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct Endpoint(Arc<str>);

impl Endpoint {
    /// Return `null:`, the destination of a transfer that discards the bytes.
    #[must_use]
    pub fn null() -> Self {
        Self("null:".into())
    }

    /// Return `zero:`, the source of a transfer that reads no file.
    #[must_use]
    pub fn zero() -> Self {
        Self("zero:".into())
    }

    /// Return the name of the storage.
    #[must_use]
    pub fn storage(&self) -> &str {
        self.split().0
    }

    /// Return the path below the storage; empty for `null:` and `zero:`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.split().1
    }

    /// Return whether the storage is built in: `null:` or `zero:`.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        matches!(self.storage(), NULL | ZERO)
    }

    /// Return the directory below the storage and the number of the file, if this is a file of a
    /// dataset.
    ///
    /// ```
    /// # use venturi_plan::Endpoint;
    /// let file: Endpoint = "gpfs:sets/100MB/000003".parse()?;
    /// assert_eq!(file.numbered(), Some(("sets/100MB", 3)));
    /// assert_eq!("gpfs:sets/100MB/3".parse::<Endpoint>()?.numbered(), None);
    /// # Ok::<(), venturi_plan::Error>(())
    /// ```
    #[must_use]
    pub fn numbered(&self) -> Option<(&str, u64)> {
        let (directory, name) = self.path().rsplit_once('/').unwrap_or(("", self.path()));
        let number = name.parse().ok()?;
        (file_name(number) == name).then_some((directory, number))
    }

    /// Return the whole text, `storage:relative/path`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Append a text to the path; a built-in storage has no path and does not change.
    pub(crate) fn extended(self, by: &str) -> Self {
        if by.is_empty() || self.is_built_in() {
            return self;
        }
        Self(format!("{self}{by}").into())
    }

    fn split(&self) -> (&str, &str) {
        self.0
            .split_once(':')
            .expect("parsing admits only text with a colon")
    }
}

/// Return the name of a file of a dataset: its number with at least six digits.
///
/// ```
/// assert_eq!(venturi_plan::file_name(7), "000007");
/// ```
#[must_use]
pub fn file_name(number: u64) -> String {
    format!("{number:06}")
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |expected: &'static str| Error::Endpoint {
            expected,
            found: text.into(),
        };
        let (storage, path) = text
            .split_once(':')
            .ok_or_else(|| wrong("`storage:relative/path`"))?;
        if storage.is_empty() || storage.contains('/') || text.contains('\0') {
            return Err(wrong("the name of a storage before the colon, without NUL"));
        }
        match (storage, path.is_empty()) {
            (NULL | ZERO, true) => {}
            (NULL | ZERO, false) => return Err(wrong("no path after `null:` and `zero:`")),
            (_, true) => {
                return Err(wrong(
                    "a path after the colon, as a storage alone is not an endpoint",
                ));
            }
            (_, false) => {}
        }
        if path.starts_with('/') || path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(wrong(
                "a relative path below its storage, without `.` and `..`",
            ));
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<Cow<'_, str>> for Endpoint {
    type Error = Error;

    fn try_from(text: Cow<'_, str>) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.0.as_ref().into()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Endpoint {
    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "`storage:relative/path`, or `null:` or `zero:`",
            "pattern": r"^(null:|zero:|(?!(null|zero):)[^:/\u0000]+:(?!/)(?!([^\u0000]*/)?\.\.?(/|$))[^\u0000]+)$",
        })
    }
}
