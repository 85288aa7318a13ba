//! The places of an order with its lists read, and who can carry it out.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::error::Error;
use crate::list;
use crate::net::url::{Scheme, Url, scheme};
use crate::order::{Order, What};
use crate::place;

/// What is copied, with its lists read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    /// Sources to a destination.
    Places(Vec<OsString>, OsString),
    /// Names below a source to the same names below a destination.
    Names(Vec<PathBuf>, OsString, OsString),
    /// Sources, each with the name of its copy.
    Pairs(Vec<(OsString, OsString)>),
}

/// A place, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path of this host.
    Here(PathBuf),
    /// One of a server.
    There(Url),
}

/// Who carries an order out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// All places are on this host.
    Local,
    /// Some are at servers of FTP.
    Ftp,
    /// Some are at servers of HTTP.
    Http,
}

impl Place {
    /// Reads a place.
    ///
    /// # Errors
    /// If it is a URL of another scheme, or a wrong one.
    pub(crate) fn read(text: &OsStr) -> Result<Self, Error> {
        match scheme_of(text) {
            Some(scheme) if scheme.is_http() => {
                let url = Url::parse(text)?;
                let path = without_dots(&url.path);
                Ok(Self::There(Url { path, ..url }))
            }
            Some(scheme) if scheme != Scheme::File => Url::parse(text).map(Self::There),
            _ => place::local(text).map(Self::Here),
        }
    }

    /// Its path as it is written, without `%XX`.
    pub(crate) fn bytes(&self) -> &[u8] {
        use std::os::unix::ffi::OsStrExt;
        match self {
            Self::Here(path) => path.as_os_str().as_bytes(),
            Self::There(url) => &url.path,
        }
    }

    /// For messages.
    pub(crate) fn shown(&self) -> PathBuf {
        match self {
            Self::Here(path) => path.clone(),
            Self::There(url) => url.to_string().into(),
        }
    }
}

/// A path without the segments `.` and `..`, which mean the same wherever they stand (RFC 3986, section 5.2.4): servers of HTTP need not know them.
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
            // It was a directory.
            kept.push(b"");
        }
    }
    [b"/", &*kept.join(&b'/')].concat()
}

fn scheme_of(text: &OsStr) -> Option<Scheme> {
    use std::os::unix::ffi::OsStrExt;
    scheme(text.as_bytes()).and_then(|(name, _)| Scheme::named(name))
}

impl Given {
    /// Reads the lists of an order.
    ///
    /// # Errors
    /// A list that cannot be read.
    pub(crate) fn read(order: &Order) -> Result<Self, Error> {
        Ok(match &order.what {
            What::Places {
                sources,
                destination,
            } => Self::Places(sources.clone(), destination.clone()),
            What::Names {
                list,
                null,
                source,
                destination,
            } => {
                let names = list::names(list, &mut *list::open(list)?, *null)?;
                Self::Names(names, source.clone(), destination.clone())
            }
            What::Pairs { list, null } => {
                Self::Pairs(list::pairs(list, &mut *list::open(list)?, *null)?)
            }
        })
    }

    /// All places that are named.
    fn places(&self) -> Box<dyn Iterator<Item = &OsString> + '_> {
        match self {
            Self::Places(sources, destination) => Box::new(sources.iter().chain([destination])),
            Self::Names(_, source, destination) => Box::new([source, destination].into_iter()),
            Self::Pairs(pairs) => Box::new(pairs.iter().flat_map(|(from, to)| [from, to])),
        }
    }

    /// Whether all of it goes from this host to servers.
    pub(crate) fn is_upload(&self) -> bool {
        let there =
            |place: &OsString| scheme_of(place).is_some_and(|scheme| scheme != Scheme::File);
        match self {
            Self::Places(sources, to) => there(to) && !sources.iter().any(there),
            Self::Names(_, from, to) => there(to) && !there(from),
            Self::Pairs(pairs) => pairs.iter().all(|(from, to)| there(to) && !there(from)),
        }
    }

    /// Who carries it out.
    ///
    /// # Errors
    /// If it takes two who cannot work together.
    pub(crate) fn route(&self) -> Result<Route, Error> {
        let schemes = self.places().filter_map(|place| scheme_of(place));
        let (mut ftp, mut http) = (false, false);
        for scheme in schemes {
            ftp |= scheme.is_ftp();
            http |= scheme.is_http();
        }
        match (ftp, http) {
            (false, false) => Ok(Route::Local),
            (true, false) => Ok(Route::Ftp),
            (false, true) => Ok(Route::Http),
            (true, true) => Err(Error::Order {
                option: "SRC DST",
                expected: "places of FTP or of HTTP, and of this host; copy between the two by way of this host",
                found: "both".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(places: &[&str]) -> Result<Route, String> {
        let (last, sources) = places.split_last().expect("places");
        let sources = sources.iter().map(OsString::from).collect();
        let given = Given::Places(sources, last.into());
        given.route().map_err(|error| error.to_string())
    }

    #[test]
    fn an_upload_is_all_from_here_to_servers() {
        let check = |given: Given, expected| assert_eq!(given.is_upload(), expected, "{given:?}");
        let places = |from: &[&str], to: &str| {
            Given::Places(from.iter().map(OsString::from).collect(), to.into())
        };
        check(places(&["a", "file:///b"], "ftp://h/"), true);
        check(places(&["a", "ftp://h/b"], "ftp://h/"), false);
        check(places(&["a"], "b"), false);
        check(places(&["a"], "file:///b"), false);
        check(places(&["https://h/a"], "b"), false);
        let names = |from: &str, to: &str| Given::Names(Vec::new(), from.into(), to.into());
        check(names("a", "davs://h/"), true);
        check(names("ftp://h/", "a"), false);
        let up = ("a".into(), "http://h/a".into());
        let down = ("http://h/b".into(), "b".into());
        check(Given::Pairs(vec![up.clone()]), true);
        check(Given::Pairs(vec![up, down]), false);
    }

    #[test]
    fn dots_of_a_path_of_http_say_where_it_is_and_go() {
        let check = |path: &str, expected: &str| {
            let found = Place::read(&OsString::from(format!("https://h{path}?a/../b")));
            let Ok(Place::There(url)) = found else {
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
        // The example of the RFC.
        check("/a/b/c/./../../g", "/a/g");
    }

    #[test]
    fn places_tell_who_carries_an_order_out() {
        assert_eq!(route(&["a", "file:///b"]), Ok(Route::Local));
        assert_eq!(route(&["a", "b:c"]), Ok(Route::Local));
        assert_eq!(route(&["gsiftp://h/a", "ftp://h/b"]), Ok(Route::Ftp));
        assert_eq!(route(&["a", "b", "davs://h/"]), Ok(Route::Http));
        let told = route(&["ftp://h/a", "https://h/b"]).expect_err("two at once");
        assert!(told.contains("by way of this host"), "{told}");
        // Nobody knows it; whoever reads it says so.
        assert_eq!(route(&["root://h//a", "b"]), Ok(Route::Local));
    }
}
