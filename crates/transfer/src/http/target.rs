//! Target of a request: a server and the encoded path.

use std::fmt;

use http::Uri;

use crate::net::url::{Url, decoded, encoded};

/// Server as the key of connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HttpServer {
    pub(crate) tls: bool,
    /// Name or address; IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// URL on a server. Its display omits the query, which may hold a token.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct HttpTarget {
    pub(crate) server: HttpServer,
    /// Encoded path from `/`, with the query.
    pub(crate) path: String,
}

impl HttpServer {
    /// Return the host and port as in the `Host` field.
    pub(crate) fn authority(&self) -> String {
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => self.bracketed(),
            _ => self.with_port(),
        }
    }

    /// Return the host with its port always included, as for a CONNECT request.
    pub(crate) fn with_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl From<&Url> for HttpTarget {
    fn from(url: &Url) -> Self {
        use crate::net::url::Scheme;
        let query = url
            .query
            .as_ref()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        Self {
            server: HttpServer {
                tls: matches!(url.scheme, Scheme::Https | Scheme::Davs),
                host: url.host.clone(),
                port: url.port,
            },
            path: url.encoded_path() + &query,
        }
    }
}

impl HttpTarget {
    /// Return the target of a `Location`.
    ///
    /// # Errors
    /// Description of a target that is not an HTTP URL.
    pub(crate) fn redirected(&self, location: &str) -> Result<Self, String> {
        let reported = || {
            format!(
                "a redirection to `{}`",
                location.split('?').next().unwrap_or_default()
            )
        };
        let uri: Uri = self.absolute(location).parse().map_err(|_| reported())?;
        // The fragment is for the client and is never sent (RFC 9110, section 10.2.2).
        let query = uri.query().map(|query| format!("?{query}"));
        let path = uri.path().to_owned() + &query.unwrap_or_default();
        let tls = match uri.scheme_str() {
            Some("https" | "davs") => true,
            Some("http" | "dav") => false,
            _ => return Err(reported()),
        };
        let host = uri
            .host()
            .ok_or_else(reported)?
            .trim_matches(['[', ']'])
            .to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self {
            server: HttpServer { tls, host, port },
            path,
        })
    }

    /// Return a reference as an absolute URL (RFC 3986, section 5.2).
    fn absolute(&self, reference: &str) -> String {
        let is_scheme_char =
            |letter: u8| letter.is_ascii_alphanumeric() || b"+-.".contains(&letter);
        let scheme = reference.split_once(':').map_or("", |(scheme, _)| scheme);
        if reference.is_empty() || !scheme.is_empty() && scheme.bytes().all(is_scheme_char) {
            return reference.to_owned();
        }
        if let Some(elsewhere) = reference.strip_prefix("//") {
            return format!("{}://{elsewhere}", self.server.scheme());
        }
        let cut = reference.find(['?', '#']).unwrap_or(reference.len());
        let (path, rest) = reference.split_at(cut);
        let own = self
            .path
            .find('?')
            .map_or(&*self.path, |cut| &self.path[..cut]);
        let path = match path {
            "" => own.to_owned(),
            path if path.starts_with('/') => path.to_owned(),
            path => {
                let directory = own.rfind('/').map_or("/", |slash| &own[..=slash]);
                without_dots(&format!("{directory}{path}"))
            }
        };
        let server = Self {
            server: self.server.clone(),
            path: path + rest,
        };
        server.url()
    }

    /// Return the URL of an entry of this directory.
    pub(crate) fn child(&self, name: &[u8]) -> Self {
        let (path, query) = self
            .path
            .split_once('?')
            .map_or((self.path.as_str(), None), |(path, query)| {
                (path, Some(query))
            });
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        Self {
            server: self.server.clone(),
            path: format!("{}/{}{query}", path.trim_end_matches('/'), encoded(name)),
        }
    }

    /// Return the parent directory; none for the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (path, query) = self
            .path
            .split_at(self.path.find('?').unwrap_or(self.path.len()));
        let path = path.trim_end_matches('/');
        let cut = path.rfind('/')?;
        Some(Self {
            server: self.server.clone(),
            path: format!("{}/{query}", &path[..cut]),
        })
    }

    /// Return the same URL with a slash at the end of its path, as used for directories.
    pub(crate) fn directory_url(&self) -> Self {
        let (path, query) = self
            .path
            .split_at(self.path.find('?').unwrap_or(self.path.len()));
        Self {
            server: self.server.clone(),
            path: format!("{}/{query}", path.trim_end_matches('/')),
        }
    }

    /// Return the decoded path without the query.
    pub(crate) fn decoded_path(&self) -> Vec<u8> {
        let path = self.path.split('?').next().unwrap_or_default();
        decoded(path.as_bytes()).unwrap_or_else(|| path.as_bytes().to_vec())
    }

    /// Return the last component of the path; empty if it has none.
    pub(crate) fn name(&self) -> Vec<u8> {
        let path = self.path.split('?').next().unwrap_or_default();
        // Decoded alone: an invalid %XX earlier in the path, as in a redirection, does not matter.
        let last = path.rsplit('/').next().unwrap_or_default().as_bytes();
        let name = decoded(last).unwrap_or_else(|| last.to_vec());
        let inner = name.rsplit(|byte| *byte == b'/').next();
        inner.unwrap_or_default().to_vec()
    }

    /// Return the complete URL with its query, for a server that downloads it.
    pub(crate) fn url(&self) -> String {
        format!(
            "{}://{}{}",
            self.server.scheme(),
            self.server.authority(),
            self.path
        )
    }
}

/// Return a path without `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut ends_with_slash = false;
    for segment in path.split('/').skip(1) {
        ends_with_slash = matches!(segment, "" | "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    if ends_with_slash && kept.last() != Some(&"") {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(
            formatter,
            "{}://{}{path}",
            self.server.scheme(),
            self.server.authority()
        )
    }
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;

    fn target(url: &str) -> HttpTarget {
        HttpTarget::from(&Url::parse(OsStr::new(url)).expect("a URL"))
    }

    #[test]
    fn a_redirect_may_be_a_path_or_name_another_server() {
        let from = target("https://h/a?x=1");
        let check = |location, expected: &str| {
            assert_eq!(from.redirected(location).expect(location).url(), expected)
        };
        check("/b%20c?d", "https://h/b%20c?d");
        check("http://pool:8080/x?authz=t", "http://pool:8080/x?authz=t");
        check("https://[::1]:444/", "https://[::1]:444/");
        check("https://h:443", "https://h/");
        // RFC 3986, section 5.4.
        let base = target("http://a/b/c/d;p?q");
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y/../x#s/../x", "http://a/b/c/g?y/../x"),
            (";x=1:2", "http://a/b/c/;x=1:2"),
            (".", "http://a/b/c/"),
            ("../", "http://a/b/"),
            ("../../../../g", "http://a/g"),
            ("g/.", "http://a/b/c/g/"),
            ("..g", "http://a/b/c/..g"),
            ("./g:h", "http://a/b/c/g:h"),
        ] {
            assert_eq!(base.redirected(reference).expect(reference).url(), expected);
        }
        for wrong in [
            "ftp://h/",
            "mailto:a@b",
            "",
            "http://",
            "/a b",
            "http://h/\u{e4}\n",
        ] {
            assert!(from.redirected(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_decoded_separately_and_is_never_a_path() {
        let listed = target("http://h/a");
        let wrong = listed.redirected("/%zz").expect("a place");
        assert_eq!(wrong.child(b"a b").name(), b"a b");
        assert_eq!(wrong.name(), b"%zz");
        let deeper = listed.redirected("/a/b%2F..%2Fc?d").expect("a place");
        assert_eq!(deeper.name(), b"c");
        let fragment = listed.redirected("/a?b#c d").expect("a place");
        assert_eq!(fragment.path, "/a?b");
        let bare = listed.redirected("https://h?b").expect("a place");
        assert_eq!(bare.path, "/?b");
    }

    #[test]
    fn a_query_is_kept_after_the_names_and_not_shown() {
        let listed = target("davs://h:8443/d%20r/?authz=secret");
        assert_eq!(listed.child(b"x/y").path, "/d%20r/x/y?authz=secret");
        assert_eq!(
            listed.child(b"a?b").directory_url().path,
            "/d%20r/a%3Fb/?authz=secret"
        );
        assert_eq!(listed.to_string(), "https://h:8443/d%20r/");
        assert_eq!(target("http://h/a%2fb/c%20d").name(), b"c d");
        assert_eq!(target("http://h").path, "/");
    }

    proptest! {
        #[test]
        fn no_location_panics(location: String) {
            let _ = target("http://h/").redirected(&location);
        }
    }
}
