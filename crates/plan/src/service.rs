//! Server programs of the plan, and the doors through which transfers reach what they serve.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::template::{Value, expand};
use crate::{Error, Header, Name, Scalar};

/// Characters that stand in a URL as they are, besides letters and digits. Clients differ in how they treat `%20`, and a list of
/// files is split at spaces, so nothing is encoded: a path with other characters is refused.
const PLAIN: &str = "/-._~+,=@:";

/// A server program on a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Which program: `gridftp`, `xrootd`, `squid` …
    pub kind: String,
    /// The host it runs on.
    pub host: Name,
    /// The interface of the network whose address it serves on; null where there is no network of the plan's own.
    #[serde(default)]
    pub interface: Option<Name>,
    /// The places that it serves.
    #[serde(default)]
    pub places: Vec<Name>,
    /// Its options, in base units.
    #[serde(default)]
    pub options: BTreeMap<Name, Scalar>,
    /// Services that must be ready before it starts.
    #[serde(default)]
    pub after: Vec<Name>,
    /// The ports that it listens on; `{port}` of a door is one of them, by slot.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Protocol → URL template, with `{path}` (absolute), `{relative}` (below the place) and `{port}`.
    #[serde(default)]
    pub doors: BTreeMap<Name, String>,
}

/// `service/door`: the way by which a transfer reaches one of its ends.
///
/// ```
/// use venturi_plan::Via;
/// let via: Via = "gridftp-a/gsiftp".parse()?;
/// assert_eq!((via.service(), via.door()), ("gridftp-a", "gsiftp"));
/// assert!("gridftp-a".parse::<Via>().is_err());
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct Via(Arc<str>);

impl Via {
    /// The name of the service.
    #[must_use]
    pub fn service(&self) -> &str {
        self.split().0
    }

    /// The name of its door.
    #[must_use]
    pub fn door(&self) -> &str {
        self.split().1
    }

    /// The whole text, `service/door`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn split(&self) -> (&str, &str) {
        self.0
            .split_once('/')
            .expect("parsing admits only text with a slash")
    }
}

impl FromStr for Via {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once('/') {
            Some((service, door))
                if !service.is_empty() && !door.is_empty() && !door.contains('/') =>
            {
                Ok(Self(text.into()))
            }
            _ => Err(Error::Via { found: text.into() }),
        }
    }
}

impl TryFrom<Cow<'_, str>> for Via {
    type Error = Error;

    fn try_from(text: Cow<'_, str>) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Via> for String {
    fn from(via: Via) -> Self {
        via.0.as_ref().into()
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Via {
    fn schema_name() -> Cow<'static, str> {
        "Via".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "`service/door`",
            "pattern": "^[^/]+/[^/]+$",
        })
    }
}

/// One door of a service, as a transfer of some slot finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    via: Via,
    template: String,
    port: Option<u16>,
}

impl Door {
    /// Whether its URLs hold the absolute path, so that this must be known.
    #[must_use]
    pub fn needs_path(&self) -> bool {
        self.names("path")
    }

    /// The URL of a file or directory behind it.
    ///
    /// `path` is the absolute path on the host of the service, `relative` the path below its place; none of what has none: `null:`
    /// and `zero:` are `/dev/null` and `/dev/zero`, below no place.
    ///
    /// ```
    /// use venturi_plan::{Header, Via};
    /// # let text = concat!(
    /// #     r#"{"format":"venturi-plan","version":1,"name":"x","seed":1,"scale":1.0,"scenario":{},"#,
    /// #     r#""hosts":{"a":{"ssh":null,"memory_bytes":null}},"places":{"gpfs":{"host":"a","path":"/gpfs"}},"#,
    /// #     r#""services":{"ftp":{"kind":"gridftp","host":"a","places":["gpfs"],"ports":[2811,2812],"#,
    /// #     r#""doors":{"gsiftp":"gsiftp://a.lab.test:{port}{path}"}}},"datasets":{},"calls":{},"draws":{},"#,
    /// #     r#""pools":{},"measure":{"interval_s":null,"counters":[]},"#,
    /// #     r#""totals":{"trials":0,"transfers":0,"bytes":0,"disk_bytes":{}}}"#);
    /// # let header: Header = serde_json::from_str(text)?;
    /// let via: Via = "ftp/gsiftp".parse()?;
    /// let door = header.door(&via, 3)?; // gsiftp://a.lab.test:{port}{path}, ports 2811 and 2812
    /// assert_eq!(door.url(Some("/gpfs/x"), Some("x"))?, "gsiftp://a.lab.test:2812/gpfs/x");
    /// assert_eq!(door.url(Some("/dev/zero"), None)?, "gsiftp://a.lab.test:2812/dev/zero");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Service`] if the template needs what is not there, or a path holds other characters than letters, digits and
    /// `/-._~+,=@:`.
    pub fn url(&self, path: Option<&str>, relative: Option<&str>) -> Result<String, Error> {
        for (name, text) in [("path", path), ("relative", relative)] {
            match text {
                None if self.names(name) => {
                    return Err(self.wrong(
                        &format!("an end with a `{{{name}}}`"),
                        &format!("the template `{}`", self.template),
                    ));
                }
                Some(text) if self.names(name) && !text.chars().all(is_plain) => {
                    let expected = format!("a path of letters, digits and `{PLAIN}` in a URL");
                    return Err(self.wrong(&expected, &format!("`{text}`")));
                }
                _ => {}
            }
        }
        self.expand(path, relative)
    }

    fn expand(&self, path: Option<&str>, relative: Option<&str>) -> Result<String, Error> {
        let value = |name: &str| match name {
            "path" => path.into(),
            "relative" => relative.into(),
            "port" => self.port.into(),
            _ => Value::Unknown,
        };
        expand(&self.template, value, || "path, relative, port".into()).map_err(|source| {
            Error::Template {
                what: format!("door `{}`", self.via),
                source: Box::new(source),
            }
        })
    }

    fn names(&self, placeholder: &str) -> bool {
        self.template.contains(&format!("{{{placeholder}}}"))
    }

    fn check(&self) -> Result<(), Error> {
        if self.names("port") && self.port.is_none() {
            let found = format!("none, and the template `{}`", self.template);
            return Err(self.wrong("ports for `{port}`", &found));
        }
        let url = self.expand(Some("/"), Some(""))?;
        match authority(&url) {
            Some(_) => Ok(()),
            None => Err(self.wrong(
                "a URL `protocol://host:port…` behind each door",
                &format!("`{}`", self.template),
            )),
        }
    }

    fn wrong(&self, expected: &str, found: &str) -> Error {
        Error::Service {
            service: self.via.service().into(),
            expected: expected.into(),
            found: format!("{found} behind its door `{}`", self.via.door()),
        }
    }
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || PLAIN.contains(character)
}

/// Host and port in a URL; none if it is no URL with a host.
///
/// ```
/// use venturi_plan::authority;
/// assert_eq!(authority("gsiftp://me@a.lab.test:2811/x"), Some(("a.lab.test", Some(2811))));
/// assert_eq!(authority("http://[::1]/x"), Some(("::1", None)));
/// assert_eq!(authority("file:///x"), None);
/// ```
#[must_use]
pub fn authority(url: &str) -> Option<(&str, Option<u16>)> {
    let (_, rest) = url.split_once("://")?;
    let all = rest.split(['/', '?', '#']).next()?;
    let all = all.rsplit_once('@').map_or(all, |(_, host)| host);
    let (host, port) = match all.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, after)) => (host, Some(after.strip_prefix(':')?)),
        None => all
            .split_once(':')
            .map_or((all, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map(str::parse).transpose().ok()?;
    (!host.is_empty()).then_some((host, port))
}

impl Header {
    /// A door, as a transfer of this slot finds it: slots go round the ports of the service.
    ///
    /// # Errors
    /// [`Error::Service`] if there is no such service, or it has no such door.
    pub fn door(&self, via: &Via, slot: u32) -> Result<Door, Error> {
        let wrong = |expected: String, found: String| Error::Service {
            service: via.service().into(),
            expected,
            found,
        };
        let service = self.services.get(via.service()).ok_or_else(|| {
            let known = list(self.services.keys().map(AsRef::as_ref));
            wrong(
                format!("one of the services of the plan{known}"),
                format!("`{via}`"),
            )
        })?;
        let template = service.doors.get(via.door()).ok_or_else(|| {
            let known = list(service.doors.keys().map(AsRef::as_ref));
            wrong(format!("one of its doors{known}"), format!("`{via}`"))
        })?;
        let ports = &service.ports;
        let port = (!ports.is_empty()).then(|| ports[slot as usize % ports.len()]);
        Ok(Door {
            via: via.clone(),
            template: template.clone(),
            port,
        })
    }

    /// Whether every service fits the rest of the header.
    ///
    /// # Errors
    /// [`Error::Service`] and [`Error::Template`]: the first that does not, and why.
    pub fn check_services(&self) -> Result<(), Error> {
        self.services
            .iter()
            .try_for_each(|(name, service)| self.check_service(name, service))
    }

    fn check_service(&self, name: &Name, service: &Service) -> Result<(), Error> {
        let wrong = |kind: &str, found: &str| Error::Service {
            service: name.as_ref().into(),
            expected: format!("a {kind} of the plan"),
            found: format!("`{found}`"),
        };
        if !self.hosts.contains_key(&service.host) {
            return Err(wrong("host", &service.host));
        }
        if let Some(place) = service
            .places
            .iter()
            .find(|it| !self.places.contains_key(*it))
        {
            return Err(wrong("place", place));
        }
        if let Some(after) = service
            .after
            .iter()
            .find(|it| !self.services.contains_key(*it))
        {
            return Err(wrong("service", after));
        }
        if let Some(interface) = &service.interface {
            let known = self
                .network
                .as_ref()
                .and_then(|it| it.interfaces.get(interface));
            if known.is_none_or(|it| it.host != service.host) {
                return Err(wrong("network interface of its host", interface));
            }
        }
        service.doors.keys().try_for_each(|door| {
            let via: Via = format!("{name}/{door}").parse()?;
            self.door(&via, 0)?.check()
        })
    }
}

/// ` (a, b)`, or nothing.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names = names.collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        names
    } else {
        format!(" ({names})")
    }
}

#[cfg(test)]
mod tests;
