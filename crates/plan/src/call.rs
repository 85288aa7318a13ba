//! How a mover is called: a command line with placeholders.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Name, Scalar, Seconds};

/// How a mover is called, with one option set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Name of the mover.
    pub mover: String,
    /// The option set, in base units; each key is a placeholder.
    pub options: BTreeMap<Name, Scalar>,
    /// The command line.
    pub argv: Vec<Argument>,
    /// Tools that must be there.
    pub requires: Vec<String>,
    /// Time after which it is ended.
    pub timeout_s: Seconds,
    /// Whether to keep its whole output.
    pub capture: bool,
    /// What proves the transfer.
    pub expect: Expect,
}

/// An element of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Argument {
    /// One argument; each of its placeholders must have a value.
    One(String),
    /// Arguments that are left out whole when one of their placeholders has no value.
    Group(Vec<String>),
}

/// What proves a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The receiver holds the bytes.
    Destination,
    /// Nothing can: a sink such as `/dev/null`.
    Nothing,
}

/// What the placeholders of one transfer stand for, besides the call's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values<'a> {
    /// `{source}`: path or URL.
    pub source: &'a str,
    /// `{destination}`: path or URL.
    pub destination: &'a str,
    /// `{bytes}`: of all files together.
    pub bytes: u64,
    /// `{files}`.
    pub files: u64,
    /// `{slot}`.
    pub slot: u32,
    /// `{scratch}`: the agent's directory.
    pub scratch: &'a str,
    /// `{offset_bytes}`: has a value in a `read` only.
    pub offset_bytes: Option<u64>,
}

const PLACEHOLDERS: [&str; 7] = [
    "source",
    "destination",
    "bytes",
    "files",
    "slot",
    "scratch",
    "offset_bytes",
];

impl Call {
    /// The command line of one transfer: placeholders replaced, groups without a value left out. What a placeholder stands for is
    /// not looked into again, so braces in a path are safe.
    ///
    /// ```
    /// use venturi_plan::{Call, Values};
    /// let call: Call = serde_json::from_str(r#"{
    ///     "mover": "get", "options": {"streams": null, "block_bytes": 4096},
    ///     "argv": ["get", ["-p", "{streams}"], "-b{block_bytes}", "{source}", "{destination}"],
    ///     "requires": ["get"], "timeout_s": 600.0, "capture": false, "expect": "destination"}"#)?;
    /// let values = Values {
    ///     source: "/a", destination: "/b", bytes: 1, files: 1, slot: 0, scratch: "/s", offset_bytes: None,
    /// };
    /// assert_eq!(call.argv(&values)?, ["get", "-b4096", "/a", "/b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownPlaceholder`], [`Error::NoValue`] (outside a group) and [`Error::Brace`].
    pub fn argv(&self, values: &Values<'_>) -> Result<Vec<String>, Error> {
        let mut argv = Vec::with_capacity(self.argv.len());
        for argument in &self.argv {
            match argument {
                Argument::One(text) => argv.push(self.expand(text, values)?),
                Argument::Group(texts) => argv.extend(self.expand_group(texts, values)?),
            }
        }
        Ok(argv)
    }

    fn expand_group(&self, texts: &[String], values: &Values<'_>) -> Result<Vec<String>, Error> {
        let mut group = Vec::with_capacity(texts.len());
        let mut complete = true;
        // All texts are looked at, so that a slip in one is an error even where another leaves the group out.
        for text in texts {
            match self.expand(text, values) {
                Ok(argument) => group.push(argument),
                Err(Error::NoValue { .. }) => complete = false,
                Err(error) => return Err(error),
            }
        }
        Ok(if complete { group } else { Vec::new() })
    }

    fn expand(&self, text: &str, values: &Values<'_>) -> Result<String, Error> {
        let mut argument = String::with_capacity(text.len());
        let mut missing = None;
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            argument.push_str(&rest[..at]);
            let offset = text.len() - rest.len() + at;
            let brace = &rest[at..];
            if brace.starts_with("{{") || brace.starts_with("}}") {
                argument.push_str(&brace[..1]);
                rest = &brace[2..];
                continue;
            }
            let (name, after) = placeholder(brace).ok_or_else(|| Error::Brace {
                argument: text.into(),
                offset,
            })?;
            match self
                .value(name, values)
                .ok_or_else(|| self.unknown(text, name))?
            {
                Some(value) => argument.push_str(&value),
                None => missing = Some(name),
            }
            rest = after;
        }
        argument.push_str(rest);
        match missing {
            Some(name) => Err(Error::NoValue {
                argument: text.into(),
                placeholder: name.into(),
            }),
            None => Ok(argument),
        }
    }

    /// `None`: unknown; `Some(None)`: known, but without a value here. The plan's own names go before the options.
    fn value(&self, name: &str, values: &Values<'_>) -> Option<Option<String>> {
        Some(match name {
            "source" => Some(values.source.into()),
            "destination" => Some(values.destination.into()),
            "bytes" => Some(values.bytes.to_string()),
            "files" => Some(values.files.to_string()),
            "slot" => Some(values.slot.to_string()),
            "scratch" => Some(values.scratch.into()),
            "offset_bytes" => values.offset_bytes.map(|offset| offset.to_string()),
            _ => self.options.get(name)?.as_argument(),
        })
    }

    fn unknown(&self, text: &str, name: &str) -> Error {
        let known = PLACEHOLDERS
            .iter()
            .copied()
            .chain(self.options.keys().map(AsRef::as_ref));
        let known = known.collect::<Vec<_>>().join(", ");
        Error::UnknownPlaceholder {
            argument: text.into(),
            placeholder: name.into(),
            known,
        }
    }
}

/// The name in `{name}…` and what follows it.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix('{')?.split_once('}')?;
    (!name.contains('{')).then_some((name, after))
}

#[cfg(test)]
mod tests;
