//! The two ends of a transfer, and how its tool gets told of them: as a path, or as a URL through a door.

use std::path::{Path, PathBuf};

use venturi_plan::{Call, Door, Endpoint, Via};

use crate::places::{Location, Places, Spot};

/// One end of a transfer.
#[derive(Debug, Clone)]
pub(crate) struct End {
    door: Option<Door>,
    /// Absolute, as its host knows it; none where that depends on a scratch directory that is not known here.
    path: Option<PathBuf>,
    /// Below its place; none for a device.
    relative: Option<String>,
    /// Where this agent finds what the transfer reads or writes; none for a device, and on a host that it does not see.
    pub(crate) location: Option<Location>,
}

/// Which end, in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }
}

impl End {
    /// Finds an end and the way to it.
    ///
    /// # Errors
    /// In words, when there is no such place or way, or neither the agent sees the host nor a door leads there.
    pub(crate) fn find(
        places: &Places<'_>,
        side: Side,
        endpoint: &Endpoint,
        via: Option<&Via>,
        slot: u32,
    ) -> Result<Self, String> {
        let name = side.name();
        let spot = places
            .locate(endpoint)
            .ok_or_else(|| format!("{name} `{endpoint}`: expected a place of the plan"))?;
        let door = via.map(|via| places.header().door(via, slot));
        let door = door
            .transpose()
            .map_err(|error| format!("{name} `{endpoint}`: {error}"))?;
        let relative = (!endpoint.is_built_in()).then(|| endpoint.path().to_owned());
        let (path, location) = match spot {
            Spot::Device(path) => (Some(path.to_owned()), None),
            Spot::Seen(location) => (Some(location.path.clone()), Some(location)),
            Spot::Elsewhere { host, .. } if door.is_none() => {
                return Err(format!(
                    "{name} `{endpoint}`: expected a place of host `{}`, where the tool runs, found one of `{host}`; give the \
                     transfer a `{name}_via`, a service that serves it",
                    places.host()
                ));
            }
            Spot::Elsewhere { host, path: None } if door.as_ref().is_some_and(Door::needs_path) => {
                return Err(format!(
                    "{name} `{endpoint}`: expected to know the scratch directory of host `{host}`, as the place has a \
                     relative path, found none; give the place an absolute path, or take a door with `{{relative}}`"
                ));
            }
            Spot::Elsewhere { path, .. } => (path, None),
        };
        Ok(Self {
            door,
            path,
            relative,
            location,
        })
    }

    /// How the call writes it.
    ///
    /// # Errors
    /// In words, when the path cannot stand in an argument or a URL.
    pub(crate) fn text(&self, call: &Call) -> Result<String, String> {
        self.write(call, "")
    }

    /// How the call writes it as a directory: with a slash at the end, unless it is a device.
    ///
    /// # Errors
    /// As [`End::text`].
    pub(crate) fn folder_text(&self, call: &Call) -> Result<String, String> {
        self.write(call, if self.is_device() { "" } else { "/" })
    }

    /// How the call writes a file in it; a device is a file itself.
    ///
    /// # Errors
    /// As [`End::text`].
    pub(crate) fn file_text(&self, call: &Call, name: &str) -> Result<String, String> {
        if self.is_device() {
            return self.write(call, "");
        }
        self.write(call, &format!("/{name}"))
    }

    /// The directory that it is in; of a device, itself.
    pub(crate) fn folder(&self) -> Self {
        if self.is_device() {
            return self.clone();
        }
        let above = |path: &Path| path.parent().map(Path::to_owned);
        Self {
            door: self.door.clone(),
            path: self.path.as_deref().and_then(above),
            relative: self.relative.as_ref().map(|relative| {
                let above = relative.rsplit_once('/').map_or("", |(above, _)| above);
                above.to_owned()
            }),
            location: self.location.as_ref().and_then(|location| {
                Some(Location {
                    path: above(&location.path)?,
                    in_scratch: location.in_scratch,
                })
            }),
        }
    }

    /// What is of this name in it.
    pub(crate) fn entry(&self, name: &str) -> Self {
        Self {
            door: self.door.clone(),
            path: self.path.as_ref().map(|path| path.join(name)),
            relative: self
                .relative
                .as_ref()
                .map(|above| format!("{above}/{name}")),
            location: self.location.as_ref().map(|location| Location {
                path: location.path.join(name),
                in_scratch: location.in_scratch,
            }),
        }
    }

    /// A folder of this machine, reached by the same way as this device.
    pub(crate) fn in_place_of_device(&self, path: &Path) -> Self {
        Self {
            door: self.door.clone(),
            path: Some(path.to_owned()),
            // No door with `{relative}` leads to a device, so this is not asked for.
            relative: Some(String::new()),
            location: Some(Location {
                path: path.to_owned(),
                in_scratch: true,
            }),
        }
    }

    /// Whether a service stands between the tool and it.
    pub(crate) fn is_served(&self) -> bool {
        self.door.is_some()
    }

    fn is_device(&self) -> bool {
        self.relative.is_none()
    }

    fn write(&self, call: &Call, after: &str) -> Result<String, String> {
        let path = match &self.path {
            Some(path) => Some(format!("{}{after}", utf8(path)?)),
            None => None,
        };
        // `{relative}` of the place itself must not begin with the slash.
        let relative = self.relative.as_ref().map(|relative| {
            let joined = format!("{relative}{after}");
            joined
                .strip_prefix('/')
                .map_or(joined.clone(), str::to_owned)
        });
        let written = match (&self.door, &path) {
            (Some(door), _) => door.url(path.as_deref(), relative.as_deref()),
            (None, Some(path)) => call.local(path),
            (None, None) => return Err("expected a path of this host, found none".into()),
        };
        written.map_err(|error| error.to_string())
    }
}

fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("`{}` is no UTF-8", path.display()))
}
