//! Paths on servers: URLs of all protocols.

use std::ffi::OsStr;
use std::fmt;

use super::error::{ErrorKind, FileError};
use crate::net::url::{Scheme, Url, parse_authority, scheme, shown};

/// Protocol of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Ftp,
    Http,
    S3,
    Sftp,
    Xrootd,
    Srm,
    /// Files of this host.
    Local,
}

/// Names of the schemes, their protocols, and the scheme that gives the default port and the rules of the path.
const SCHEMES: [(&str, Protocol, Scheme); 14] = [
    ("ftp", Protocol::Ftp, Scheme::Ftp),
    ("gsiftp", Protocol::Ftp, Scheme::Gsiftp),
    ("http", Protocol::Http, Scheme::Http),
    ("https", Protocol::Http, Scheme::Https),
    ("dav", Protocol::Http, Scheme::Dav),
    ("davs", Protocol::Http, Scheme::Davs),
    ("s3", Protocol::S3, Scheme::Http),
    ("s3s", Protocol::S3, Scheme::Https),
    ("sftp", Protocol::Sftp, Scheme::Sshftp),
    // Without a default port: their programs know it.
    ("root", Protocol::Xrootd, Scheme::File),
    ("roots", Protocol::Xrootd, Scheme::File),
    ("xroot", Protocol::Xrootd, Scheme::File),
    ("srm", Protocol::Srm, Scheme::File),
    ("file", Protocol::Local, Scheme::File),
];

/// A path on a server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileLocation {
    pub(super) protocol: Protocol,
    scheme: &'static str,
    /// Host, and path from `/` on. The path is decoded, except for XRootD and SRM: their programs decode nothing.
    pub(super) url: Url,
}

/// A server and a user there: the key of an open session.
pub(super) type ServerKey = (&'static str, Option<Vec<u8>>, String, u16);

impl FileLocation {
    /// Parse a URL.
    ///
    /// # Errors
    /// An unknown scheme, or a malformed part.
    pub(super) fn parse(text: &str) -> Result<Self, FileError> {
        let invalid = |expected: &str, found: &str| {
            let location = shown(OsStr::new(text));
            FileError::new(
                ErrorKind::Invalid,
                format!("{location}: expected {expected}, found {found}; correct the URL"),
            )
        };
        let (name, rest) =
            scheme(text.as_bytes()).ok_or_else(|| invalid("SCHEME://HOST/PATH", "no scheme"))?;
        let mut known = SCHEMES.iter();
        let &(name, protocol, rules) = known
            .find(|(known, ..)| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| {
            let names: Vec<_> = SCHEMES.iter().map(|(name, ..)| *name).collect();
            invalid(
                &format!("one of the schemes {}", names.join(", ")),
                &format!("`{name}`"),
            )
        })?;
        let url = match protocol {
            Protocol::Local if !rest.starts_with(b"///") => {
                return Err(invalid("file:///PATH with an absolute path", "a host"));
            }
            Protocol::Local => literal(&[b"//localhost", &rest[2..]].concat())
                .map_err(|(expected, found)| invalid(expected, found))?,
            Protocol::Xrootd | Protocol::Srm => {
                literal(rest).map_err(|(expected, found)| invalid(expected, found))?
            }
            _ => Url::parse_as(rules, OsStr::new(text), rest)
                .map_err(|error| FileError::new(ErrorKind::Invalid, error.to_string()))?,
        };
        let at = Self {
            protocol,
            scheme: name,
            url,
        };
        match protocol {
            Protocol::Xrootd if !at.url.path.starts_with(b"//") => Err(invalid(
                "root://HOST//PATH with two slashes before the path",
                "one",
            )),
            Protocol::Xrootd => Ok(at.with_path(at.url.path[1..].to_vec())),
            _ => Ok(at),
        }
    }

    /// Return another path on the same server.
    pub(super) fn with_path(&self, path: Vec<u8>) -> Self {
        let query = self.url.query.clone();
        Self {
            url: Url {
                query,
                ..self.url.with_path(path)
            },
            ..self.clone()
        }
    }

    /// Return the path of an entry of this directory.
    pub(super) fn child(&self, name: &str) -> Self {
        self.with_path([self.trimmed(), b"/", name.as_bytes()].concat())
    }

    /// Return the parent directory; none for the root.
    pub(super) fn parent(&self) -> Option<Self> {
        let path = self.trimmed();
        let cut = path.iter().rposition(|byte| *byte == b'/')?;
        Some(self.with_path(path[..cut.max(1)].to_vec()))
    }

    /// True for the root of the server.
    pub(super) fn is_root(&self) -> bool {
        self.trimmed().is_empty()
    }

    /// Return the path without slashes at its end.
    pub(super) fn trimmed(&self) -> &[u8] {
        let end = self.url.path.iter().rposition(|byte| *byte != b'/');
        &self.url.path[..end.map_or(0, |end| end + 1)]
    }

    /// Return the server with its user.
    pub(super) fn server(&self) -> ServerKey {
        let host = self.url.host.to_ascii_lowercase();
        (self.scheme, self.url.user.clone(), host, self.url.port)
    }

    /// Return the URL for programs of XRootD and SRM.
    pub(super) fn literal(&self) -> String {
        format!(
            "{}{}",
            self.endpoint(),
            String::from_utf8_lossy(&self.url.path)
        )
    }

    /// Return the URL of the server for programs of XRootD and SRM.
    pub(super) fn endpoint(&self) -> String {
        let user = self.url.user.as_deref().map(String::from_utf8_lossy);
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let slash = if self.protocol == Protocol::Xrootd {
            "/"
        } else {
            ""
        };
        format!("{}://{user}{}{slash}", self.scheme, self.url.authority())
    }
}

/// Parse authority and path of a URL whose path is passed on as it is.
fn literal(rest: &[u8]) -> Result<Url, (&'static str, &'static str)> {
    let rest = rest
        .strip_prefix(b"//")
        .ok_or(("SCHEME://HOST/PATH", "one slash"))?;
    let cut = rest.iter().position(|byte| *byte == b'/');
    let (authority, path) = rest.split_at(cut.unwrap_or(rest.len()));
    let url = parse_authority(Scheme::Ftp, authority)
        .map_err(|found| ("a host, with optional user and port", found))?;
    if url.password.is_some() {
        return Err(("a URL without a password", "a password"));
    }
    // Without a default port, the port of the program counts.
    let written = parse_authority(Scheme::File, authority).map_or(0, |url| url.port);
    Ok(Url {
        scheme: Scheme::File,
        port: written,
        path: if path.is_empty() {
            b"/".to_vec()
        } else {
            path.to_vec()
        },
        ..url
    })
}

/// Omits password and query.
impl fmt::Display for FileLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Local => {
                write!(
                    formatter,
                    "file://{}",
                    String::from_utf8_lossy(&self.url.path)
                )
            }
            Protocol::Xrootd | Protocol::Srm => {
                let text = self.literal();
                // A query of XRootD can contain a token. A query of SRM contains the path.
                let cut = text.find('?').filter(|_| self.protocol == Protocol::Xrootd);
                formatter.write_str(&text[..cut.unwrap_or(text.len())])
            }
            _ => {
                let text = self.url.to_string();
                let rest = text.split_once(':').map_or(&*text, |(_, rest)| rest);
                // The default port depends on the scheme, and both have the same one.
                write!(formatter, "{}:{rest}", self.scheme)
            }
        }
    }
}

impl fmt::Debug for FileLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> FileLocation {
        FileLocation::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_scheme_is_parsed_and_shown_without_secrets() {
        for (text, shown, path) in [
            ("ftp://u:p@h/a%20b", "ftp://u@h/a%20b", "/a b"),
            ("DAVS://h:8443/a?authz=t", "davs://h:8443/a", "/a"),
            ("s3s://h/b/k", "s3s://h/b/k", "/b/k"),
            ("s3://[::1]:9000/b", "s3://[::1]:9000/b", "/b"),
            ("sftp://u@h:2222/a", "sftp://u@h:2222/a", "/a"),
            (
                "root://h//a%20b?authz=t",
                "root://h//a%20b",
                "/a%20b?authz=t",
            ),
            ("root://u@h:1095//", "root://u@h:1095//", "/"),
            (
                "srm://h:8443/srm/managerv2?SFN=/a/b",
                "srm://h:8443/srm/managerv2?SFN=/a/b",
                "/srm/managerv2?SFN=/a/b",
            ),
        ] {
            let found = location(text);
            assert_eq!(found.to_string(), shown);
            assert_eq!(String::from_utf8_lossy(&found.url.path), path);
        }
        for wrong in [
            "",
            "/a",
            "root://h/a",
            "gopher://h/",
            "ftp:/h",
            "root:///a",
            "srm://u:p@h/a",
            "http://h/#a",
        ] {
            let error = FileLocation::parse(wrong).expect_err(wrong);
            assert_eq!(error.kind, ErrorKind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn parents_end_at_the_root() {
        let names = |text| {
            let mut found = Vec::new();
            let mut at = Some(location(text));
            while let Some(location) = at {
                found.push(location.to_string());
                at = location.parent();
            }
            found
        };
        assert_eq!(
            names("ftp://h/a/b/"),
            ["ftp://h/a/b/", "ftp://h/a", "ftp://h/"]
        );
        assert_eq!(names("root://h//a"), ["root://h//a", "root://h//"]);
        assert_eq!(
            location("dav://h/a/").child("b c").to_string(),
            "dav://h/a/b%20c"
        );
        assert!(location("ftp://h").is_root() && !location("ftp://h/a").is_root());
    }
}
