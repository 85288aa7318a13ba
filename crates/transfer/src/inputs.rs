//! Sources and destinations of a copy, with all lists read, and the client that executes it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::error::CopyError;
use crate::list;
use crate::local_path;
use crate::net::url::{Scheme, Url, scheme};
use crate::options::{CopyOptions, CopySources};

/// Sources and destinations, with all lists read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyInputs {
    /// Sources to a destination.
    Operands(Vec<OsString>, OsString),
    /// Names below a source to the same names below a destination.
    Names(Vec<PathBuf>, OsString, OsString),
    /// Sources, each with the name of its copy.
    Pairs(Vec<(OsString, OsString)>),
}

/// Parsed source or destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyLocation {
    /// Path on this host.
    Local(PathBuf),
    /// URL of a server.
    Remote(Url),
}

/// Client that executes a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// All locations are on this host.
    Local,
    /// At least one location is on an FTP server.
    Ftp,
    /// At least one location is on an HTTP server.
    Http,
}

impl CopyLocation {
    /// Parses a location.
    ///
    /// # Errors
    /// A URL that is malformed or has another scheme.
    pub(crate) fn read(text: &OsStr) -> Result<Self, CopyError> {
        match parse_scheme(text) {
            Some(scheme) if scheme.is_http() => {
                let url = Url::parse(text)?;
                let path = without_dots(&url.path);
                Ok(Self::Remote(Url { path, ..url }))
            }
            Some(scheme) if scheme != Scheme::File => Url::parse(text).map(Self::Remote),
            _ => local_path::parse(text).map(Self::Local),
        }
    }

    /// Returns the path without percent encoding.
    pub(crate) fn bytes(&self) -> &[u8] {
        use std::os::unix::ffi::OsStrExt;
        match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::Remote(url) => &url.path,
        }
    }

    /// Returns the location for messages, without a password.
    pub(crate) fn shown(&self) -> PathBuf {
        match self {
            Self::Local(path) => path.clone(),
            Self::Remote(url) => url.to_string().into(),
        }
    }
}

/// Returns a path without the segments `.` and `..` (RFC 3986, section 5.2.4), which HTTP servers need not support.
pub(crate) fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            b"." => {}
            b".." => drop(kept.pop()),
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if segments.peek().is_none() {
            // The path ended with a directory.
            kept.push(b"");
        }
    }
    [b"/", &*kept.join(&b'/')].concat()
}

fn parse_scheme(text: &OsStr) -> Option<Scheme> {
    use std::os::unix::ffi::OsStrExt;
    scheme(text.as_bytes()).and_then(|(name, _)| Scheme::named(name))
}

impl CopyInputs {
    /// Reads the lists of a copy.
    ///
    /// # Errors
    /// An unreadable or invalid list.
    pub(crate) fn read(options: &CopyOptions) -> Result<Self, CopyError> {
        Ok(match &options.sources {
            CopySources::Operands {
                sources,
                destination,
            } => Self::Operands(sources.clone(), destination.clone()),
            CopySources::Names {
                list,
                null,
                source,
                destination,
            } => {
                let names = list::names(list, &mut *list::open(list)?, *null)?;
                Self::Names(names, source.clone(), destination.clone())
            }
            CopySources::Pairs { list, null } => {
                Self::Pairs(list::pairs(list, &mut *list::open(list)?, *null)?)
            }
        })
    }

    /// Returns all sources and destinations.
    fn locations(&self) -> Box<dyn Iterator<Item = &OsString> + '_> {
        match self {
            Self::Operands(sources, destination) => Box::new(sources.iter().chain([destination])),
            Self::Names(_, source, destination) => Box::new([source, destination].into_iter()),
            Self::Pairs(pairs) => Box::new(pairs.iter().flat_map(|(from, to)| [from, to])),
        }
    }

    /// True if all sources are local and all destinations are on servers.
    pub(crate) fn is_upload(&self) -> bool {
        let is_remote = |location: &OsString| {
            parse_scheme(location).is_some_and(|scheme| scheme != Scheme::File)
        };
        match self {
            Self::Operands(sources, to) => is_remote(to) && !sources.iter().any(is_remote),
            Self::Names(_, from, to) => is_remote(to) && !is_remote(from),
            Self::Pairs(pairs) => pairs
                .iter()
                .all(|(from, to)| is_remote(to) && !is_remote(from)),
        }
    }

    /// True if a copy has a server as source and as destination.
    pub(crate) fn is_between_servers(&self) -> bool {
        let is_remote = |location: &OsString| {
            parse_scheme(location).is_some_and(|scheme| scheme != Scheme::File)
        };
        match self {
            Self::Operands(sources, to) => is_remote(to) && sources.iter().any(is_remote),
            Self::Names(_, from, to) => is_remote(to) && is_remote(from),
            Self::Pairs(pairs) => pairs
                .iter()
                .any(|(from, to)| is_remote(to) && is_remote(from)),
        }
    }

    /// Returns the client that executes the copy.
    ///
    /// # Errors
    /// FTP and HTTP in one copy.
    pub(crate) fn route(&self) -> Result<Route, CopyError> {
        let schemes = self
            .locations()
            .filter_map(|location| parse_scheme(location));
        let (mut ftp, mut http) = (false, false);
        for scheme in schemes {
            ftp |= scheme.is_ftp();
            http |= scheme.is_http();
        }
        match (ftp, http) {
            (false, false) => Ok(Route::Local),
            (true, false) => Ok(Route::Ftp),
            (false, true) => Ok(Route::Http),
            (true, true) => Err(CopyError::InvalidOption {
                option: "SRC DST",
                expected: "either FTP or HTTP locations; copy between the two through this host",
                found: "both".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(locations: &[&str]) -> Result<Route, String> {
        let (last, sources) = locations.split_last().expect("places");
        let sources = sources.iter().map(OsString::from).collect();
        let inputs = CopyInputs::Operands(sources, last.into());
        inputs.route().map_err(|error| error.to_string())
    }

    #[test]
    fn inputs_are_an_upload_if_all_go_from_this_host_to_servers() {
        let check =
            |inputs: CopyInputs, expected| assert_eq!(inputs.is_upload(), expected, "{inputs:?}");
        let locations = |from: &[&str], to: &str| {
            CopyInputs::Operands(from.iter().map(OsString::from).collect(), to.into())
        };
        check(locations(&["a", "file:///b"], "ftp://h/"), true);
        check(locations(&["a", "ftp://h/b"], "ftp://h/"), false);
        check(locations(&["a"], "b"), false);
        check(locations(&["a"], "file:///b"), false);
        check(locations(&["https://h/a"], "b"), false);
        let names = |from: &str, to: &str| CopyInputs::Names(Vec::new(), from.into(), to.into());
        check(names("a", "davs://h/"), true);
        check(names("ftp://h/", "a"), false);
        let up = ("a".into(), "http://h/a".into());
        let down = ("http://h/b".into(), "b".into());
        check(CopyInputs::Pairs(vec![up.clone()]), true);
        check(CopyInputs::Pairs(vec![up, down]), false);
    }

    #[test]
    fn dot_segments_of_http_paths_are_resolved() {
        let check = |path: &str, expected: &str| {
            let found = CopyLocation::read(&OsString::from(format!("https://h{path}?a/../b")));
            let Ok(CopyLocation::Remote(url)) = found else {
                panic!("{path}")
            };
            assert_eq!(String::from_utf8_lossy(&url.path), expected, "{path}");
            assert_eq!(url.query.as_deref(), Some("a/../b"));
        };
        check("", "/");
        check("/", "/");
        check("/a/b", "/a/b");
        check("/a/b/", "/a/b/");
        check("/a//b", "/a//b");
        check("/.", "/");
        check("/..", "/");
        check("/a/.", "/a/");
        check("/a/..", "/");
        check("/a/b/../", "/a/");
        check("/../../a", "/a");
        check("/a/%2e%2E/b", "/b");
        check("/a/.../..b/.c", "/a/.../..b/.c");
        // Example of the RFC.
        check("/a/b/c/./../../g", "/a/g");
    }

    #[test]
    fn locations_determine_the_route_of_a_copy() {
        assert_eq!(route(&["a", "file:///b"]), Ok(Route::Local));
        assert_eq!(route(&["a", "b:c"]), Ok(Route::Local));
        assert_eq!(route(&["gsiftp://h/a", "ftp://h/b"]), Ok(Route::Ftp));
        assert_eq!(route(&["a", "b", "davs://h/"]), Ok(Route::Http));
        let error = route(&["ftp://h/a", "https://h/b"]).expect_err("two at once");
        assert!(error.contains("through this host"), "{error}");
        // An unknown scheme is rejected later.
        assert_eq!(route(&["root://h//a", "b"]), Ok(Route::Local));
    }
}
