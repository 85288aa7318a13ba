//! The endpoints of a transfer, as the tool receives them: as a path, or as a URL through a service port.

use std::path::{Path, PathBuf};

use venturi_plan::{Call, Endpoint, ServicePort, Via};

use crate::storages::{EndpointPath, Location, Storages, shown_host, utf8};

/// Source or destination of a transfer.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedEndpoint {
    service_port: Option<ServicePort>,
    /// Absolute path on its host; none if it depends on a scratch directory that this agent does
    /// not know.
    path: Option<PathBuf>,
    /// Path below its storage; none for a device.
    relative: Option<String>,
    /// Location of the files for operations; none for a device, and on a host without a shell.
    pub(crate) location: Option<Location>,
}

/// Name of an endpoint in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointSide {
    Source,
    Destination,
}

impl EndpointSide {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }
}

impl ResolvedEndpoint {
    /// Find an endpoint and its service port.
    ///
    /// # Errors
    /// A message if the plan has no such storage or service port, or this agent reaches the storage neither directly nor through a
    /// service port.
    pub(crate) fn find(
        storages: &Storages<'_>,
        side: EndpointSide,
        endpoint: &Endpoint,
        via: Option<&Via>,
        slot: u32,
    ) -> Result<Self, String> {
        let name = side.name();
        let endpoint_path = storages.locate(endpoint).ok_or_else(|| {
            format!("{name} `{endpoint}`: expected a storage of the plan, found none")
        })?;
        let service_port = via.map(|via| storages.service_port(via, slot));
        let service_port = service_port
            .transpose()
            .map_err(|error| format!("{name} `{endpoint}`: {error}"))?;
        let relative = storages.relative(endpoint);
        let (path, location) = match endpoint_path {
            EndpointPath::Device(path) => (Some(path.to_owned()), None),
            EndpointPath::Seen(location) => (Some(location.path.clone()), Some(location)),
            EndpointPath::Requested(location) if service_port.is_some() => {
                (Some(location.path.clone()), Some(location))
            }
            EndpointPath::Requested(Location { ref host, .. }) => {
                return Err(unserved(storages, side, endpoint, host.as_deref()));
            }
            EndpointPath::Elsewhere { host, .. } if service_port.is_none() => {
                return Err(unserved(storages, side, endpoint, host));
            }
            EndpointPath::Elsewhere { host, path: None }
                if service_port.as_ref().is_some_and(ServicePort::needs_path) =>
            {
                return Err(format!(
                    "{name} `{endpoint}`: expected a scratch directory for {}, because the storage has a \
                     relative path, found none; set an absolute path, or use a service port with \
                     `{{relative}}`",
                    shown_host(host)
                ));
            }
            EndpointPath::Elsewhere { path, .. } => (path, None),
        };
        Ok(Self {
            service_port,
            path,
            relative,
            location,
        })
    }

    /// Return the location, if this agent sees the files.
    pub(crate) fn seen(&self) -> Option<&Location> {
        self.location
            .as_ref()
            .filter(|location| location.host.is_none())
    }

    /// Returns the form of the endpoint for the call.
    ///
    /// # Errors
    /// A message if the path cannot be an argument or part of a URL.
    pub(crate) fn text(&self, call: &Call) -> Result<String, String> {
        self.write(call, "")
    }

    /// Returns the form of the endpoint as a directory, with a slash at the end unless it is a
    /// device.
    ///
    /// # Errors
    /// As [`ResolvedEndpoint::text`].
    pub(crate) fn directory_text(&self, call: &Call) -> Result<String, String> {
        self.write(call, if self.is_device() { "" } else { "/" })
    }

    /// Returns the form of a file in it for the call; a device is a file itself.
    ///
    /// # Errors
    /// As [`ResolvedEndpoint::text`].
    pub(crate) fn file_text(&self, call: &Call, name: &str) -> Result<String, String> {
        if self.is_device() {
            return self.write(call, "");
        }
        self.write(call, &format!("/{name}"))
    }

    /// Returns its parent directory; for a device, the device.
    pub(crate) fn directory(&self) -> Self {
        if self.is_device() {
            return self.clone();
        }
        let above = |path: &Path| path.parent().map(Path::to_owned);
        Self {
            service_port: self.service_port.clone(),
            path: self.path.as_deref().and_then(above),
            relative: self.relative.as_ref().map(|relative| {
                let above = relative.rsplit_once('/').map_or("", |(above, _)| above);
                above.to_owned()
            }),
            location: self.location.as_ref().and_then(|location| {
                Some(Location {
                    path: above(&location.path)?,
                    ..location.clone()
                })
            }),
        }
    }

    /// Return the entry of this name in it.
    pub(crate) fn entry(&self, name: &str) -> Self {
        Self {
            service_port: self.service_port.clone(),
            path: self.path.as_ref().map(|path| path.join(name)),
            relative: self
                .relative
                .as_ref()
                .map(|above| format!("{above}/{name}")),
            location: self.location.as_ref().map(|location| Location {
                path: location.path.join(name),
                ..location.clone()
            }),
        }
    }

    /// Returns a directory through the service port of this device.
    pub(crate) fn replacing_device(&self, location: Location) -> Self {
        Self {
            service_port: self.service_port.clone(),
            path: Some(location.path.clone()),
            // No service port with `{relative}` leads to a device, so this is not called.
            relative: Some(String::new()),
            location: Some(location),
        }
    }

    /// Return whether a service is between the tool and the endpoint.
    pub(crate) fn is_served(&self) -> bool {
        self.service_port.is_some()
    }

    fn is_device(&self) -> bool {
        self.relative.is_none()
    }

    fn write(&self, call: &Call, after: &str) -> Result<String, String> {
        let path = match &self.path {
            Some(path) => Some(format!("{}{after}", utf8(path)?)),
            None => None,
        };
        // `{relative}` of the storage itself must not start with the slash.
        let relative = self.relative.as_ref().map(|relative| {
            let joined = format!("{relative}{after}");
            joined
                .strip_prefix('/')
                .map_or(joined.clone(), str::to_owned)
        });
        let written = match (&self.service_port, &path) {
            (Some(service_port), _) => service_port.url(path.as_deref(), relative.as_deref()),
            (None, Some(path)) => call.local(path),
            (None, None) => return Err("expected a path of this host, found none".into()),
        };
        written.map_err(|error| error.to_string())
    }
}

/// Returns the error text for an endpoint on another host without a service.
fn unserved(
    storages: &Storages<'_>,
    side: EndpointSide,
    endpoint: &Endpoint,
    host: Option<&str>,
) -> String {
    let name = side.name();
    format!(
        "{name} `{endpoint}`: expected a storage of host `{}`, where the tool runs, found a storage of {}; \
         set `{name}_via` to a service that serves it",
        storages.host(),
        shown_host(host)
    )
}
