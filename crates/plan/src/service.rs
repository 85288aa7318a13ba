//! Server programs of the plan, and their service ports, which give transfers access to storages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::template::{Value, expand};
use crate::{Call, Error, Header, Interface, Name, Scalar};

/// Domain of the host names in a lab.
const LAB_DOMAIN: &str = "lab.test";

/// Name of the loopback interface.
const LOCALHOST: &str = "localhost";

/// Characters that need no encoding in a URL, in addition to letters and digits. Clients treat
/// `%20` differently, and a list of files is split at spaces. So paths with other characters are
/// rejected instead of encoded.
const SAFE_IN_URL: &str = "/-._~+,=@:";

/// A server program on a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Server program: `gridftp`, `xrootd`, `squid` …
    pub kind: String,
    /// Host of the server; null: an existing server with fixed URLs.
    pub host: Option<Name>,
    /// Network interface that it listens on; null if the plan has no network.
    #[serde(default)]
    pub interface: Option<Name>,
    /// The storages that it exports.
    #[serde(default)]
    pub storages: Vec<Name>,
    /// Its options, in base units.
    #[serde(default)]
    pub options: BTreeMap<Name, Scalar>,
    /// Services that must be ready before it starts.
    #[serde(default)]
    pub after: Vec<Name>,
    /// The ports that it listens on; `{port}` of a service port is one of them, selected by slot.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Protocol → URL template, with `{path}` (absolute), `{relative}` (below the storage), `{host}` and `{port}`.
    #[serde(default)]
    pub service_ports: BTreeMap<Name, String>,
}

/// Location of a started service in one session, which is therefore not in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceAddress {
    /// Host name or address, as in a URL: `dtn.example.org`, `10.0.0.2`, `[fd00::2]`.
    pub address: String,
    /// The ports that it listens on.
    pub ports: Vec<u16>,
}

/// `service/service_port`: the service port of one endpoint of a transfer.
///
/// ```
/// use venturi_plan::Via;
/// let via: Via = "gridftp-a/gsiftp".parse()?;
/// assert_eq!((via.service(), via.service_port()), ("gridftp-a", "gsiftp"));
/// assert!("gridftp-a".parse::<Via>().is_err());
/// # Ok::<(), venturi_plan::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct Via(Arc<str>);

impl Via {
    /// Return the name of the service.
    #[must_use]
    pub fn service(&self) -> &str {
        self.split().0
    }

    /// Return the name of its service port.
    #[must_use]
    pub fn service_port(&self) -> &str {
        self.split().1
    }

    /// Return the whole text, `service/service_port`.
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
            Some((service, service_port))
                if !service.is_empty()
                    && !service_port.is_empty()
                    && !service_port.contains('/') =>
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

/// A service port of a service for the transfers of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    via: Via,
    template: String,
    host: Option<String>,
    port: Option<u16>,
}

impl ServicePort {
    /// Return whether its URLs contain the absolute path, so that this path must be known.
    #[must_use]
    pub fn needs_path(&self) -> bool {
        self.names("path")
    }

    /// Return the URL of a file or directory.
    ///
    /// `path` is the absolute path on the host of the service, `relative` the path below its storage; none if it does
    /// not exist: `null:` and `zero:` are `/dev/null` and `/dev/zero`, below no storage.
    ///
    /// ```
    /// use venturi_plan::{Header, Via};
    /// # let text = concat!(
    /// #     r#"{"format":"venturi-plan","version":2,"name":"x","seed":1,"scale":1.0,"scenario":{},"#,
    /// #     r#""hosts":{"a":{"ssh":null,"memory_bytes":null}},"storages":{"gpfs":{"host":"a","path":"/gpfs"}},"#,
    /// #     r#""services":{"ftp":{"kind":"gridftp","host":"a","storages":["gpfs"],"ports":[2811,2812],"#,
    /// #     r#""service_ports":{"gsiftp":"gsiftp://a.lab.test:{port}{path}"}}},"datasets":{},"calls":{},"draws":{},"#,
    /// #     r#""pools":{},"measure":{"interval_s":null,"counters":[]},"#,
    /// #     r#""totals":{"trials":0,"transfers":0,"bytes":0,"disk_bytes":{}}}"#);
    /// # let header: Header = serde_json::from_str(text)?;
    /// let via: Via = "ftp/gsiftp".parse()?;
    /// let door = header.service_port(&via, 3, None)?; // gsiftp://a.lab.test:{port}{path}, ports 2811 and 2812
    /// assert_eq!(door.url(Some("/gpfs/x"), Some("x"))?, "gsiftp://a.lab.test:2812/gpfs/x");
    /// assert_eq!(door.url(Some("/dev/zero"), None)?, "gsiftp://a.lab.test:2812/dev/zero");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Service`] if the template needs a missing value, or a path has other characters than letters, digits
    /// and `/-._~+,=@:`.
    pub fn url(&self, path: Option<&str>, relative: Option<&str>) -> Result<String, Error> {
        for (name, text) in [("path", path), ("relative", relative)] {
            match text {
                None if self.names(name) => {
                    return Err(self.wrong(
                        &format!("an endpoint with a `{{{name}}}`"),
                        &format!("the template `{}`", self.template),
                    ));
                }
                Some(text) if self.names(name) && !text.chars().all(is_safe_in_url) => {
                    let expected =
                        format!("a path of letters, digits and `{SAFE_IN_URL}` in a URL");
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
            "host" => self.host.as_deref().into(),
            "port" => self.port.into(),
            _ => Value::Unknown,
        };
        let known = || "path, relative, host, port".into();
        expand(&self.template, value, known).map_err(|source| Error::Template {
            what: format!("service port `{}`", self.via),
            source: Box::new(source),
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
        if self.names("host") && self.host.is_none() {
            let found = format!("none, and the template `{}`", self.template);
            return Err(self.wrong("a host for `{host}`", &found));
        }
        let url = self.expand(Some("/"), Some(""))?;
        match authority(&url) {
            Some(_) => Ok(()),
            None => Err(self.wrong(
                "a URL `protocol://host:port…` at each service port",
                &format!("`{}`", self.template),
            )),
        }
    }

    fn wrong(&self, expected: &str, found: &str) -> Error {
        Error::Service {
            service: self.via.service().into(),
            expected: expected.into(),
            found: format!("{found} at its service port `{}`", self.via.service_port()),
        }
    }
}

fn is_safe_in_url(character: char) -> bool {
    character.is_ascii_alphanumeric() || SAFE_IN_URL.contains(character)
}

/// Return the host and port of a URL, or none if it is not a URL with a host.
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
    /// Return the services that a transfer uses: of its source, its destination, and the URLs of its call.
    pub fn services_of<'a>(
        &'a self,
        call: &str,
        source: Option<&'a Via>,
        destination: Option<&'a Via>,
    ) -> impl Iterator<Item = Name> + 'a {
        let urls = self
            .calls
            .get(call)
            .into_iter()
            .flat_map(|call| call.urls.values());
        let vias = source.into_iter().chain(destination).chain(urls);
        vias.map(|via| via.service().into())
    }

    /// Return the existing servers of a storage with a URL; none for directories.
    pub fn servers_of<'a>(&'a self, storage: &'a str) -> impl Iterator<Item = Name> + 'a {
        let has_url = self
            .storages
            .get(storage)
            .is_some_and(|it| it.url.is_some());
        let services = self.services.iter().filter(move |(_, service)| {
            has_url && service.host.is_none() && service.storages.iter().any(|it| &**it == storage)
        });
        services.map(|(name, _)| name.clone())
    }

    /// Return a service port, as a transfer of this slot uses it: slots take the ports of the service in turn.
    ///
    /// `started` is the address of the service in this session. Without it, `{host}` is the name of the service's host
    /// in the plan, and `{port}` one of the service's ports in the plan.
    ///
    /// # Errors
    /// [`Error::Service`] if there is no such service, or it has no such service port.
    pub fn service_port(
        &self,
        via: &Via,
        slot: u32,
        started: Option<&ServiceAddress>,
    ) -> Result<ServicePort, Error> {
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
        let template = service
            .service_ports
            .get(via.service_port())
            .ok_or_else(|| {
                let known = list(service.service_ports.keys().map(AsRef::as_ref));
                wrong(
                    format!("one of its service ports{known}"),
                    format!("`{via}`"),
                )
            })?;
        let ports = started.map_or(&service.ports, |started| &started.ports);
        let port = (!ports.is_empty()).then(|| ports[slot as usize % ports.len()]);
        Ok(ServicePort {
            via: via.clone(),
            template: template.clone(),
            host: started
                .map(|started| started.address.clone())
                .or_else(|| self.host_name(service)),
            port,
        })
    }

    /// Return the values of a call's `urls`, with the addresses of services that have started. `{port}` is the first port.
    ///
    /// # Errors
    /// [`Error::Service`] if there is no such service or service port, or its URL needs a path.
    pub fn call_urls<'a>(
        &self,
        call: &Call,
        started: impl Fn(&str) -> Option<&'a ServiceAddress>,
    ) -> Result<BTreeMap<Name, String>, Error> {
        let urls = call.urls.iter().map(|(option, via)| {
            let service_port = self.service_port(via, 0, started(via.service()))?;
            Ok((option.clone(), service_port.url(None, None)?))
        });
        urls.collect()
    }

    /// Return the name of a service's host in a lab: of the interface that the service listens on. None for a service without host.
    fn host_name(&self, service: &Service) -> Option<String> {
        let name = service.host.as_ref()?;
        let interfaces = self.network.as_ref().map(|network| &network.interfaces);
        let own = |found: &&Interface| found.host == *name;
        let first = interfaces.and_then(|all| all.values().find(own));
        let listens = service.interface.as_ref();
        let interface = listens.and_then(|listens| interfaces?.get(listens));
        Some(match (interface, first) {
            (None, Some(_)) => LOCALHOST.into(),
            (Some(found), Some(first)) if found != first => {
                format!("{name}-{}.{LAB_DOMAIN}", found.device)
            }
            _ => format!("{name}.{LAB_DOMAIN}"),
        })
    }

    /// Check that every service fits the rest of the header.
    ///
    /// # Errors
    /// [`Error::Service`] or [`Error::Template`] for the first service that does not fit.
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
        if let Some(host) = service
            .host
            .as_ref()
            .filter(|it| !self.hosts.contains_key(*it))
        {
            return Err(wrong("host", host));
        }
        if let Some(storage) = service
            .storages
            .iter()
            .find(|it| !self.storages.contains_key(*it))
        {
            return Err(wrong("storage", storage));
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
            if known.is_none_or(|it| Some(&it.host) != service.host.as_ref()) {
                return Err(wrong("network interface of its host", interface));
            }
        }
        service.service_ports.keys().try_for_each(|service_port| {
            let via: Via = format!("{name}/{service_port}").parse()?;
            self.service_port(&via, 0, None)?.check()
        })
    }
}

/// Return ` (a, b)`, or an empty text.
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
