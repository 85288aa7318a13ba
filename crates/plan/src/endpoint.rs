//! `place:relative/path`: where bytes come from or go to.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Error;

/// A place that swallows every byte: `/dev/null` of any host.
pub const NULL: &str = "null";
/// A place that yields zero bytes without end: `/dev/zero` of any host.
pub const ZERO: &str = "zero";

/// `place:relative/path`, or `null:` or `zero:`.
///
/// Destinations are removed after their trial, so a path that climbs out of its place (`..`, a leading `/`) or that is the place
/// itself (`.`) is refused when parsed, and whoever holds an `Endpoint` need not look again.
///
/// ```
/// use venturi_plan::Endpoint;
/// let endpoint: Endpoint = "gpfs:sets/100MB/000003".parse()?;
/// assert_eq!((endpoint.place(), endpoint.path()), ("gpfs", "sets/100MB/000003"));
/// assert!("gpfs:../../etc".parse::<Endpoint>().is_err());
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct Endpoint(Arc<str>);

impl Endpoint {
    /// `null:`, the destination of a transfer that keeps nothing.
    #[must_use]
    pub fn null() -> Self {
        Self("null:".into())
    }

    /// `zero:`, the source of a transfer that reads no file.
    #[must_use]
    pub fn zero() -> Self {
        Self("zero:".into())
    }

    /// The name of the place.
    #[must_use]
    pub fn place(&self) -> &str {
        self.split().0
    }

    /// The path below the place; empty for `null:` and `zero:`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.split().1
    }

    /// Whether the place is one of the built-in ones, `null:` and `zero:`.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        matches!(self.place(), NULL | ZERO)
    }

    /// The directory below the place and the number of the file, if this is a file of a data set.
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
        let (folder, name) = self.path().rsplit_once('/').unwrap_or(("", self.path()));
        let number = name.parse().ok()?;
        (file_name(number) == name).then_some((folder, number))
    }

    /// The whole text, `place:relative/path`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same with more at the end of its path; a built-in place has none, and stays.
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

/// The name of a file of a data set: its number, in six digits or more.
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
        let (place, path) = text
            .split_once(':')
            .ok_or_else(|| wrong("`place:relative/path`"))?;
        if place.is_empty() || place.contains('/') || text.contains('\0') {
            return Err(wrong("the name of a place before the colon, and no NUL"));
        }
        match (place, path.is_empty()) {
            (NULL | ZERO, true) => {}
            (NULL | ZERO, false) => return Err(wrong("no path after `null:` and `zero:`")),
            (_, true) => {
                return Err(wrong(
                    "a path after the colon: a place as a whole is no endpoint",
                ));
            }
            (_, false) => {}
        }
        if path.starts_with('/') || path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(wrong(
                "a relative path below its place, without `.` and `..`",
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
            "description": "`place:relative/path`, or `null:` or `zero:`",
            "pattern": r"^(null:|zero:|(?!(null|zero):)[^:/\u0000]+:(?!/)(?!([^\u0000]*/)?\.\.?(/|$))[^\u0000]+)$",
        })
    }
}
