//! Resolves sources and destinations of copies with a server, by the rules of local copies.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use venturi_gridftp::{EntryKind, Path};

use super::listing;
use super::session_handle::SessionHandle;
use crate::error::CopyError;
use crate::glob;
use crate::inputs::{CopyInputs, CopyLocation};
use crate::net::url::Url;
use crate::options::CopyOptions;
use crate::roots::{self, DestinationInfo};

/// Path at the source or the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointLocation {
    /// Path as written, with a trailing slash.
    pub(crate) bytes: Vec<u8>,
    /// Server; none: this host.
    pub(crate) server: Option<Url>,
}

/// A source and the path of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtpRoot {
    pub(crate) from: EndpointLocation,
    pub(crate) to: EndpointLocation,
    /// Create missing parent directories of the copy.
    pub(crate) create_parents: bool,
    /// Follow a symbolic link at the destination directory, because the user named it.
    pub(crate) as_written: bool,
}

/// Servers of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    pub(crate) source: Option<Url>,
    pub(crate) destination: Option<Url>,
}

impl EndpointLocation {
    pub(crate) fn read(text: &OsStr) -> Result<Self, CopyError> {
        Ok(match CopyLocation::read(text)? {
            CopyLocation::Local(path) => Self {
                bytes: path.into_os_string().into_vec(),
                server: None,
            },
            CopyLocation::Remote(url) => Self {
                bytes: url.path.clone(),
                server: Some(url),
            },
        })
    }

    /// Returns a path below it.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut bytes = self.bytes.clone();
        if !bytes.ends_with(b"/") && !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self {
            bytes,
            server: self.server.clone(),
        }
    }

    /// Returns the last name; none after a trailing slash or dot, or for the root.
    pub(crate) fn name(&self) -> Option<Vec<u8>> {
        self.path().file_name().map(|name| name.as_bytes().to_vec())
    }

    /// True if only its contents are copied.
    pub(crate) fn is_contents(&self) -> bool {
        roots::is_contents(self.path())
    }

    fn path(&self) -> &std::path::Path {
        std::path::Path::new(OsStr::from_bytes(&self.bytes))
    }

    /// Returns the local path.
    pub(crate) fn local_path(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.bytes.clone()))
    }

    /// Returns the remote path, without a trailing slash.
    ///
    /// # Errors
    /// A name that FTP commands cannot contain.
    pub(crate) fn remote_path(&self) -> Result<Path, CopyError> {
        let mut end = self.bytes.len();
        while end > 1 && self.bytes[end - 1] == b'/' {
            end -= 1;
        }
        Path::new(&self.bytes[..end]).map_err(|_| CopyError::Location {
            location: self.shown(),
            expected: "a path of at most 4096 bytes without line ends",
            found: "another path".into(),
            advice: "rename it first",
        })
    }

    /// Returns the path or URL for messages.
    pub(crate) fn shown(&self) -> PathBuf {
        match &self.server {
            Some(url) => url.with_path(self.bytes.clone()).to_string().into(),
            None => self.local_path(),
        }
    }
}

/// Returns the servers of a copy; all sources must have the same one, and all destinations too.
///
/// # Errors
/// Several servers, or an unsupported URL.
pub(crate) fn servers(inputs: &CopyInputs) -> Result<Servers, CopyError> {
    let pairs: Vec<(EndpointLocation, EndpointLocation)> = match inputs {
        CopyInputs::Operands(sources, destination) => {
            let to = EndpointLocation::read(destination)?;
            let pair = |source: &OsString| Ok((EndpointLocation::read(source)?, to.clone()));
            sources.iter().map(pair).collect::<Result<_, CopyError>>()?
        }
        CopyInputs::Names(_, source, destination) => {
            vec![(
                EndpointLocation::read(source)?,
                EndpointLocation::read(destination)?,
            )]
        }
        CopyInputs::Pairs(pairs) => pairs
            .iter()
            .map(|(from, to)| Ok((EndpointLocation::read(from)?, EndpointLocation::read(to)?)))
            .collect::<Result<_, CopyError>>()?,
    };
    let Some((from, to)) = pairs.first() else {
        return Ok(Servers {
            source: None,
            destination: None,
        });
    };
    let same = |a: &Option<Url>, b: &Option<Url>| match (a, b) {
        (Some(a), Some(b)) => a.is_same_server(b),
        (None, None) => true,
        _ => false,
    };
    for (other_from, other_to) in &pairs {
        if !same(&from.server, &other_from.server) || !same(&to.server, &other_to.server) {
            return Err(CopyError::InvalidOption {
                option: "SRC DST",
                expected: "all sources on one server or this host, and one destination server; copy from each server separately",
                found: "several servers".into(),
            });
        }
    }
    Ok(Servers {
        source: from.server.clone(),
        destination: to.server.clone(),
    })
}

/// Access to one host for the resolution of paths.
pub(crate) trait EndpointStat {
    /// Returns true for a directory, false for another file, none for a missing one.
    fn is_directory(&self, location: &EndpointLocation) -> Result<Option<bool>, CopyError>;

    /// Returns the matches of a pattern.
    fn expand(&self, location: &EndpointLocation) -> Result<Vec<EndpointLocation>, CopyError>;
}

/// Access to this host.
pub(crate) struct LocalStat;

impl EndpointStat for LocalStat {
    fn is_directory(&self, location: &EndpointLocation) -> Result<Option<bool>, CopyError> {
        Ok(std::fs::metadata(location.local_path())
            .ok()
            .map(|found| found.is_dir()))
    }

    fn expand(&self, location: &EndpointLocation) -> Result<Vec<EndpointLocation>, CopyError> {
        let found = glob::expand(&location.local_path())?;
        Ok(found
            .into_iter()
            .map(|path| EndpointLocation {
                bytes: path.into_os_string().into_vec(),
                server: None,
            })
            .collect())
    }
}

/// Access to a server.
pub(crate) struct ServerStat<'d> {
    pub(crate) handle: &'d SessionHandle,
    /// Kind of listing.
    pub(crate) lister: listing::Lister,
}

impl EndpointStat for ServerStat<'_> {
    fn is_directory(&self, location: &EndpointLocation) -> Result<Option<bool>, CopyError> {
        let found = self.handle.stat(&location.remote_path()?);
        let found = found.map_err(|_| session_lost(location))?;
        Ok(
            found
                .map(|entry| matches!(entry.kind, Some(EntryKind::Directory | EntryKind::Current))),
        )
    }

    fn expand(&self, location: &EndpointLocation) -> Result<Vec<EndpointLocation>, CopyError> {
        if !glob::wild(&location.bytes) {
            return Ok(vec![location.clone()]);
        }
        if self.is_directory(location)?.is_some() {
            return Ok(vec![location.clone()]);
        }
        let mut found = vec![Vec::new()];
        for name in location.bytes.split(|byte| *byte == b'/').skip(1) {
            let mut next = Vec::new();
            for before in found {
                let directory: &[u8] = if before.is_empty() { b"/" } else { &before };
                if !glob::wild(name) {
                    next.push([&before[..], b"/", name].concat());
                    continue;
                }
                let directory = Path::new(directory).map_err(|_| session_lost(location))?;
                let entries = listing::list_all(self.handle, self.lister, &directory);
                // As in a shell, an unreadable directory has no matches.
                let entries = entries
                    .map_err(|_| session_lost(location))?
                    .unwrap_or_default();
                let mut names: Vec<_> = entries
                    .into_iter()
                    .map(|entry| entry.name)
                    .filter(|found| glob::fits(name, found))
                    .map(|found| [&before[..], b"/", &found[..]].concat())
                    .collect();
                names.sort_unstable();
                next.extend(names);
            }
            found = next;
        }
        Ok(found
            .into_iter()
            .map(|bytes| EndpointLocation {
                bytes,
                server: location.server.clone(),
            })
            .collect())
    }
}

fn session_lost(location: &EndpointLocation) -> CopyError {
    CopyError::Location {
        location: location.shown(),
        expected: "a session with the server",
        found: "a closed session".into(),
        advice: "run the same command again",
    }
}

/// Returns the sources and the paths of their copies.
///
/// # Errors
/// Locations that do not fit together.
pub(crate) fn resolve(
    options: &CopyOptions,
    inputs: &CopyInputs,
    source: &dyn EndpointStat,
    destination: &dyn EndpointStat,
    is_unfinished: impl Fn(&EndpointLocation, &EndpointLocation) -> bool,
) -> Result<Vec<FtpRoot>, CopyError> {
    let root = |from, to, create_parents| FtpRoot {
        from,
        to,
        create_parents,
        as_written: false,
    };
    match inputs {
        CopyInputs::Names(names, from, to) => {
            let (from, to) = (EndpointLocation::read(from)?, EndpointLocation::read(to)?);
            let below = |name: &PathBuf| name.as_os_str().as_bytes().to_vec();
            Ok(names
                .iter()
                .map(|name| root(from.join(&below(name)), to.join(&below(name)), true))
                .collect())
        }
        CopyInputs::Pairs(pairs) => {
            let pair = |(from, to): &(OsString, OsString)| {
                let (from, to) = (EndpointLocation::read(from)?, EndpointLocation::read(to)?);
                let contents = from.is_contents() && source.is_directory(&from)? == Some(true);
                let into = roots::is_directory_as_written(options, &to.bytes) && !contents;
                let to = match from.name() {
                    Some(name) if into => to.join(&name),
                    _ => to,
                };
                Ok(root(from, to, options.mkpath || into))
            };
            let roots = pairs.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
            roots::check_distinct(roots.iter().map(|root| {
                let contents = root.from.is_contents();
                let [from, to] = [&root.from, &root.to].map(|location| location.path().into());
                (from, to, contents)
            }))?;
            Ok(roots)
        }
        CopyInputs::Operands(sources, to) => {
            let mut found = Vec::new();
            for text in sources {
                let location = EndpointLocation::read(text)?;
                let expanded = source.expand(&location)?;
                if expanded.is_empty() {
                    return Err(CopyError::Location {
                        location: location.shown(),
                        expected: "matches of the pattern",
                        found: "none".into(),
                        advice: "list the directory (`ls`)",
                    });
                }
                found.extend(expanded);
            }
            with_destinations(
                options,
                found,
                EndpointLocation::read(to)?,
                source,
                destination,
                is_unfinished,
            )
        }
    }
}

fn with_destinations(
    options: &CopyOptions,
    sources: Vec<EndpointLocation>,
    to: EndpointLocation,
    source: &dyn EndpointStat,
    destination: &dyn EndpointStat,
    is_unfinished: impl Fn(&EndpointLocation, &EndpointLocation) -> bool,
) -> Result<Vec<FtpRoot>, CopyError> {
    let many = sources.len() > 1;
    let remote_path = destination.is_directory(&to)?;
    let target = DestinationInfo {
        is_directory: remote_path == Some(true),
        exists: remote_path.is_some(),
        slash: to.bytes.ends_with(b"/"),
    };
    let rejected =
        |(expected, found, advice): (&'static str, &str, &'static str)| CopyError::Location {
            location: to.shown(),
            expected,
            found: found.into(),
            advice,
        };
    roots::find_conflict(options, target, many).map_err(rejected)?;
    let into = !options.no_target_directory && (target.is_directory || target.slash);
    let (mut roots, mut names) = (Vec::new(), HashSet::new());
    for from in sources {
        let contents = from.is_contents() && source.is_directory(&from)? == Some(true);
        let unfinished = into && !many && !target.slash && !contents && is_unfinished(&from, &to);
        let inside = into && !contents && !unfinished;
        let copy = match from.name() {
            Some(name) if inside => to.join(&name),
            _ => to.clone(),
        };
        if !names.insert(copy.bytes.clone()) && !contents {
            return Err(rejected(roots::DUPLICATE_NAME));
        }
        let create_parents = options.mkpath || (target.slash && !contents);
        roots.push(FtpRoot {
            from,
            to: copy,
            create_parents,
            as_written: !inside,
        });
    }
    Ok(roots)
}

/// Checks that a URL has no part that would be ignored.
///
/// # Errors
/// A password for ssh.
pub(crate) fn check_login(url: &Url) -> Result<(), CopyError> {
    if url.scheme != crate::net::url::Scheme::Sshftp || url.password.is_none() {
        return Ok(());
    }
    Err(CopyError::Location {
        location: url.to_string().into(),
        expected: "no password",
        found: "one".into(),
        advice: "remove it; ssh uses a key or prompts for a password",
    })
}
