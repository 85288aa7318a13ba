//! A place in the network as people write it: `SCHEME://USER:PASSWORD@HOST:PORT/PATH` (RFC 3986), with `%XX` for unusual bytes.
//!
//! A password is kept as a [`Secret`] and never shown, in no form of a URL and in no error.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use venturi_gridftp::Secret;

use crate::error::Error;

/// How a place is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// A path of this host.
    File,
    /// FTP, anonymous or with a password.
    Ftp,
    /// GridFTP with certificates (GSI).
    Gsiftp,
    /// GridFTP whose control connection is that of ssh.
    Sshftp,
    /// HTTP.
    Http,
    /// HTTP within TLS.
    Https,
    /// WebDAV.
    Dav,
    /// WebDAV within TLS.
    Davs,
}

/// Name, scheme, port where none is written (0: there is no such thing).
const SCHEMES: [(&str, Scheme, u16); 8] = [
    ("file", Scheme::File, 0),
    ("ftp", Scheme::Ftp, 21),
    ("gsiftp", Scheme::Gsiftp, 2811),
    ("sshftp", Scheme::Sshftp, 22),
    ("http", Scheme::Http, 80),
    ("https", Scheme::Https, 443),
    ("dav", Scheme::Dav, 80),
    ("davs", Scheme::Davs, 443),
];

impl Scheme {
    /// The scheme of that name, whatever its case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut known = SCHEMES.iter();
        let found = known.find(|(known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, scheme, _)| scheme)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    /// The port where none is written.
    pub(crate) fn port(self) -> u16 {
        self.row().2
    }

    /// Whether FTP commands are spoken.
    pub(crate) fn is_ftp(self) -> bool {
        matches!(self, Self::Ftp | Self::Gsiftp | Self::Sshftp)
    }

    /// Whether HTTP is spoken.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Dav | Self::Davs)
    }

    fn row(self) -> &'static (&'static str, Self, u16) {
        let mut rows = SCHEMES.iter();
        let found = rows.find(|(_, scheme, _)| *scheme == self);
        found.expect("the table has every scheme")
    }
}

/// A place in the network.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// As it is sent: without `%XX`.
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) password: Option<Secret>,
    /// A name, or an address; that of IPv6 without its brackets.
    pub(crate) host: String,
    /// As written, or that of the scheme.
    pub(crate) port: u16,
    /// From `/` on, without `%XX`: any bytes but zero.
    pub(crate) path: Vec<u8>,
    /// What follows a `?`, as it was written; of HTTP alone.
    pub(crate) query: Option<String>,
}

impl Url {
    /// Reads a URL of a scheme that is known.
    ///
    /// # Errors
    /// If the scheme is another one, or something behind it is not as it should be.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, Error> {
        let bytes = text.as_bytes();
        let refused = |expected, found: String, advice| Error::Place {
            place: PathBuf::from(shown(text)),
            expected,
            found,
            advice,
        };
        let (name, rest) = scheme(bytes).ok_or_else(|| {
            refused(
                "SCHEME://HOST/PATH",
                "no scheme".into(),
                "write one, such as `https`",
            )
        })?;
        let scheme = Scheme::named(name).ok_or_else(|| Error::Scheme {
            place: shown(text),
            scheme: name.to_owned(),
        })?;
        let rest = rest.strip_prefix(b"//").ok_or_else(|| {
            let advice = "write two slashes behind the colon";
            refused("SCHEME://HOST/PATH", "one slash".into(), advice)
        })?;
        let (rest, query) = tail(scheme, rest).ok_or_else(|| {
            let advice = "leave it out, or write it as %23";
            refused("no fragment", "a `#`".into(), advice)
        })?;
        let cut = rest.iter().position(|byte| *byte == b'/');
        let (authority, path) = rest.split_at(cut.unwrap_or(rest.len()));
        let advice = "write SCHEME://USER@HOST:PORT/PATH, with %XX for unusual bytes";
        let place = authority_of(scheme, authority).map_err(|found| {
            let expected = "a host, and perhaps a user and a port";
            refused(expected, found.into(), advice)
        })?;
        let path = decoded(if path.is_empty() { b"/" } else { path }).ok_or_else(|| {
            let found = "an incomplete %XX or a zero byte".into();
            refused("a path", found, advice)
        })?;
        Ok(Self {
            path,
            query,
            ..place
        })
    }

    /// Another path on the same server.
    pub(crate) fn with_path(&self, path: Vec<u8>) -> Self {
        Self {
            path,
            query: None,
            ..self.clone()
        }
    }

    /// Whether the same server and the same user are meant, so that one session serves both.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let server = |url: &Self| (url.scheme, url.host.to_ascii_lowercase(), url.port);
        server(self) == server(other)
            && (&self.user, &self.password) == (&other.user, &other.password)
    }

    /// The host and port, as HTTP and messages have them: brackets around an address of IPv6, no port where it is the scheme's.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        if self.port == self.scheme.port() {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The path with `%XX` where a URL needs it.
    pub(crate) fn encoded_path(&self) -> String {
        encoded(&self.path)
    }
}

/// Without the password.
impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", self.scheme.name())?;
        if let Some(user) = &self.user {
            write!(formatter, "{}@", encoded(user).replace('/', "%2F"))?;
        }
        write!(formatter, "{}{}", self.authority(), self.encoded_path())
    }
}

/// Without the password.
impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// A place as it was written, fit to be shown: without a password, and without a query, which may hold a token.
pub(crate) fn shown(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let Some((name, rest)) = scheme(text.as_bytes()).filter(|(_, rest)| rest.starts_with(b"//"))
    else {
        return text.into_owned();
    };
    let begin = name.len() + 3;
    let end = text[begin..]
        .find('/')
        .map_or(text.len(), |slash| begin + slash);
    let path = match Scheme::named(name) {
        Some(scheme) if scheme.is_http() => text[end..].split('?').next().unwrap_or_default(),
        _ => &text[end..],
    };
    debug_assert!(rest.len() + name.len() < text.len());
    let authority = &text[begin..end];
    // Where no port follows the colon it may be a password with a `/` that should have been %2F.
    let split = authority.contains(':') && !has_port(authority);
    match (authority.rsplit_once('@'), text[end..].rsplit_once('@')) {
        (None, Some((_, rest))) if split => {
            let user = authority.split(':').next().unwrap_or_default();
            let rest = rest.split('?').next().unwrap_or_default();
            format!("{name}://{user}@{rest}")
        }
        (Some((user, host)), _) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{name}://{user}@{host}{path}")
        }
        (None, _) => format!("{}{path}", &text[..end]),
    }
}

/// Whether a host and the number of a port are all of it.
fn has_port(authority: &str) -> bool {
    authority_of(Scheme::Ftp, authority.as_bytes()).is_ok() && !authority.ends_with(':')
}

/// The scheme that a text begins with, and what follows the colon. `a:b` has none: that is the name of a file.
pub(crate) fn scheme(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let scheme = std::str::from_utf8(&bytes[..colon]).ok()?;
    let named = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (named && bytes.get(colon + 1) == Some(&b'/')).then(|| (scheme, &bytes[colon + 1..]))
}

/// Without `%XX`; none if one is incomplete, or a zero byte is in it.
pub(crate) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let byte = if byte == b'%' {
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        };
        bytes.push(byte);
    }
    (!bytes.contains(&0)).then_some(bytes)
}

/// With `%XX` for all but letters, digits, and what means nothing in a path.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:".contains(&byte) {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// What stands before the query, and the query; FTP has none, and a file may have these signs in its name. None: a fragment.
fn tail(scheme: Scheme, rest: &[u8]) -> Option<(&[u8], Option<String>)> {
    if !scheme.is_http() {
        return Some((rest, None));
    }
    if rest.contains(&b'#') {
        return None;
    }
    match rest.iter().position(|byte| *byte == b'?') {
        Some(cut) => {
            let query = String::from_utf8_lossy(&rest[cut + 1..]).into_owned();
            Some((&rest[..cut], Some(query)))
        }
        None => Some((rest, None)),
    }
}

/// User, password, host and port, as a URL without a path; or what is wrong.
fn authority_of(scheme: Scheme, text: &[u8]) -> Result<Url, &'static str> {
    let (login, place) = match text.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (Some(&text[..at]), &text[at + 1..]),
        None => (None, text),
    };
    let (user, password) = match login {
        Some(login) => {
            let mut parts = login.splitn(2, |byte| *byte == b':');
            let mut part = || parts.next().map(|part| decoded(part).ok_or("a wrong %XX"));
            (part().transpose()?, part().transpose()?.map(Secret))
        }
        None => (None, None),
    };
    let place = std::str::from_utf8(place).map_err(|_| "a host that is no text")?;
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a `[` without `]`")?;
            (
                host,
                port.strip_prefix(':').or(port.is_empty().then_some("")),
            )
        }
        None => {
            let (host, port) = place.split_once(':').unwrap_or((place, ""));
            (host, Some(port))
        }
    };
    let port = match port.ok_or("something behind `]`")? {
        "" => scheme.port(),
        digits => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or("a port that is no number up to 65535")?,
    };
    let odd =
        |letter: char| letter.is_whitespace() || letter.is_control() || "%[]".contains(letter);
    if host.contains(odd) || (host.is_empty() && scheme != Scheme::File) {
        return Err("no host, or one with a blank or a bracket");
    }
    Ok(Url {
        scheme,
        user,
        password,
        host: host.to_owned(),
        port,
        path: Vec::new(),
        query: None,
    })
}

#[cfg(test)]
mod tests;
