//! Call of a mover: a command line with placeholders.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::template::{Value, expand};
use crate::{Error, Name, Scalar, Seconds, Via};

/// Call of a mover with one set of options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Name of the mover.
    pub mover: String,
    /// The option set, in base units; each key is a placeholder.
    pub options: BTreeMap<Name, Scalar>,
    /// The command line.
    pub argv: Vec<Argument>,
    /// Required tools.
    pub requires: Vec<String>,
    /// Timeout after which the agent ends the call.
    pub timeout_s: Seconds,
    /// Whether to keep its whole output.
    pub capture: bool,
    /// Check that proves the transfer.
    pub expect: Expect,
    /// Form of a path on the actor's host, for example `file://{path}`.
    #[serde(default = "plain_path")]
    pub local: String,
    /// Options whose value is the URL of a service port, known when the service has started: `proxy` → `squid/http-proxy`. They
    /// replace options of the same name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub urls: BTreeMap<Name, Via>,
}

fn plain_path() -> String {
    "{path}".into()
}

/// An element of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Argument {
    /// One argument; each of its placeholders must have a value.
    One(String),
    /// Arguments that are omitted together if one of their placeholders has no value.
    Group(Vec<String>),
}

/// Check that proves a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The receiver has the bytes.
    Destination,
    /// No check is possible: a sink such as `/dev/null`.
    Nothing,
}

/// Values of the placeholders for one transfer, in addition to the call's options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// `{list}`: path of the list of files; has a value if there is more than one file.
    pub list: Option<&'a str>,
    /// `{directory}`: the source directory with only these files; has a value if there is more than
    /// one file.
    pub directory: Option<&'a str>,
    /// `{source_host}`: host of the URL; has no value for a local source.
    pub source_host: Option<&'a str>,
    /// `{source_port}`: port of the URL, if it has one.
    pub source_port: Option<u16>,
    /// `{destination_host}`: host of the URL; has no value for a local destination.
    pub destination_host: Option<&'a str>,
    /// `{destination_port}`: port of the URL, if it has one.
    pub destination_port: Option<u16>,
    /// Values of the call's `urls`, from [`Header::call_urls`](crate::Header::call_urls).
    pub urls: Option<&'a BTreeMap<Name, String>>,
}

const PLACEHOLDERS: [&str; 13] = [
    "source",
    "destination",
    "bytes",
    "files",
    "slot",
    "scratch",
    "offset_bytes",
    "list",
    "directory",
    "source_host",
    "source_port",
    "destination_host",
    "destination_port",
];

impl Call {
    /// Return the command line of one transfer, with replaced placeholders and without groups that
    /// lack a value. The value of a placeholder is not expanded again, so braces in a path are
    /// safe.
    ///
    /// ```
    /// use venturi_plan::{Call, Values};
    /// let call: Call = serde_json::from_str(r#"{
    ///     "mover": "get", "options": {"streams": null, "block_bytes": 4096},
    ///     "argv": ["get", ["-p", "{streams}"], "-b{block_bytes}", "{source}", "{destination}"],
    ///     "requires": ["get"], "timeout_s": 600.0, "capture": false, "expect": "destination"}"#)?;
    /// let values = Values {
    ///     source: "/a", destination: "/b", bytes: 1, files: 1, slot: 0, scratch: "/s", ..Values::default()
    /// };
    /// assert_eq!(call.argv(&values)?, ["get", "-b4096", "/a", "/b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownPlaceholder`], [`Error::NoValue`] (outside a group), [`Error::Brace`], and
    /// [`Error::NoOffset`] if only a part of a file is requested and the tool has no argument for
    /// it, because it would read from the start without an error.
    pub fn argv(&self, values: &Values<'_>) -> Result<Vec<String>, Error> {
        if values.offset_bytes.is_some_and(|offset| offset > 0) && !self.names("{offset_bytes}") {
            return Err(Error::NoOffset {
                mover: self.mover.clone(),
            });
        }
        let mut argv = Vec::with_capacity(self.argv.len());
        for argument in &self.argv {
            match argument {
                Argument::One(text) => argv.push(self.expand(text, values)?),
                Argument::Group(texts) => argv.extend(self.expand_group(texts, values)?),
            }
        }
        Ok(argv)
    }

    /// Return whether the call needs directories that contain only the files of the transfer.
    #[must_use]
    pub fn takes_directory(&self) -> bool {
        self.names("{directory}")
    }

    fn names(&self, placeholder: &str) -> bool {
        self.argv.iter().any(|argument| match argument {
            Argument::One(text) => text.contains(placeholder),
            Argument::Group(texts) => texts.iter().any(|text| text.contains(placeholder)),
        })
    }

    fn expand_group(&self, texts: &[String], values: &Values<'_>) -> Result<Vec<String>, Error> {
        let mut group = Vec::with_capacity(texts.len());
        let mut complete = true;
        // Check all texts, so that a mistake in one is an error even if another one omits the
        // group.
        for text in texts {
            match self.expand(text, values) {
                Ok(argument) => group.push(argument),
                Err(Error::NoValue { .. }) => complete = false,
                Err(error) => return Err(error),
            }
        }
        Ok(if complete { group } else { Vec::new() })
    }

    /// Return the form of a path on its own host for this call.
    ///
    /// ```
    /// # use venturi_plan::Call;
    /// # let call: Call = serde_json::from_str(r#"{"mover": "x", "options": {}, "argv": [], "requires": [], "timeout_s": 1.0,
    /// #     "capture": false, "expect": "nothing", "local": "file://{path}"}"#)?;
    /// assert_eq!(call.local("/data/000003")?, "file:///data/000003"); // `local` is `file://{path}`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Template`] if `local` has another placeholder than `{path}`, or a single brace.
    pub fn local(&self, path: &str) -> Result<String, Error> {
        let value = |name: &str| match name {
            "path" => Value::Text(path.into()),
            _ => Value::Unknown,
        };
        expand(&self.local, value, || "path".into()).map_err(|source| Error::Template {
            what: format!("`local` of the mover `{}`", self.mover),
            source: Box::new(source),
        })
    }

    fn expand(&self, text: &str, values: &Values<'_>) -> Result<String, Error> {
        expand(text, |name| self.value(name, values), || self.known())
    }

    /// Return the value of a placeholder; names of the plan have priority over options.
    fn value(&self, name: &str, values: &Values<'_>) -> Value {
        match name {
            "source" => Some(values.source).into(),
            "destination" => Some(values.destination).into(),
            "bytes" => Some(values.bytes).into(),
            "files" => Some(values.files).into(),
            "slot" => Some(values.slot).into(),
            "scratch" => Some(values.scratch).into(),
            "offset_bytes" => values.offset_bytes.into(),
            "list" => values.list.into(),
            "directory" => values.directory.into(),
            "source_host" => values.source_host.into(),
            "source_port" => values.source_port.into(),
            "destination_host" => values.destination_host.into(),
            "destination_port" => values.destination_port.into(),
            _ if self.urls.contains_key(name) => {
                let url = values.urls.and_then(|urls| urls.get(name));
                url.map(String::as_str).into()
            }
            _ => match self.options.get(name) {
                Some(option) => option.as_argument().into(),
                None => Value::Unknown,
            },
        }
    }

    fn known(&self) -> String {
        let options = self.options.keys().chain(self.urls.keys());
        let options = options.map(AsRef::as_ref);
        let known = PLACEHOLDERS.iter().copied().chain(options);
        known.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
