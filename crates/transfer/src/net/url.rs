//! Parser of URLs: `SCHEME://USER:PASSWORD@HOST:PORT/PATH` (RFC 3986), with percent encoding.
//!
//! Passwords are a [`Secret`]. No form of a URL and no error shows them.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use venturi_gridftp::Secret;

use crate::error::CopyError;

/// URL scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// Local path.
    File,
    /// FTP, anonymous or with a password.
    Ftp,
    /// GridFTP with certificates (GSI).
    Gsiftp,
    /// GridFTP with a control connection through ssh.
    Sshftp,
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// WebDAV.
    Dav,
    /// WebDAV over TLS.
    Davs,
}

/// Name, scheme and default port (0: none).
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
    /// Returns the scheme of a name, in upper or lower case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut known = SCHEMES.iter();
        let found = known.find(|(known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, scheme, _)| scheme)
    }

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the default port.
    pub(crate) fn port(self) -> u16 {
        self.row().2
    }

    /// True for FTP protocols.
    pub(crate) fn is_ftp(self) -> bool {
        matches!(self, Self::Ftp | Self::Gsiftp | Self::Sshftp)
    }

    /// True for HTTP protocols.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Dav | Self::Davs)
    }

    fn row(self) -> &'static (&'static str, Self, u16) {
        let mut rows = SCHEMES.iter();
        let found = rows.find(|(_, scheme, _)| *scheme == self);
        found.expect("the table has every scheme")
    }
}

/// Parsed URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// User name, percent-decoded.
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) password: Option<Secret>,
    /// Host name or address; IPv6 without brackets.
    pub(crate) host: String,
    /// Port as written, or the default.
    pub(crate) port: u16,
    /// Path from `/` on, percent-decoded: any bytes except zero.
    pub(crate) path: Vec<u8>,
    /// Query as written; HTTP only.
    pub(crate) query: Option<String>,
}

impl Url {
    /// Parses a URL of a known scheme.
    ///
    /// # Errors
    /// An unknown scheme, or a malformed part.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, CopyError> {
        let (name, rest) = scheme(text.as_bytes()).ok_or_else(|| CopyError::Location {
            location: PathBuf::from(shown(text)),
            expected: "SCHEME://HOST/PATH",
            found: "no scheme".into(),
            advice: "add a scheme, such as `https`",
        })?;
        let scheme = Scheme::named(name).ok_or_else(|| CopyError::Scheme {
            location: shown(text),
            scheme: name.to_owned(),
        })?;
        Self::parse_as(scheme, text, rest)
    }

    /// Parses the part of a URL after the colon, with the rules of a scheme.
    ///
    /// # Errors
    /// A malformed part.
    pub(crate) fn parse_as(scheme: Scheme, text: &OsStr, rest: &[u8]) -> Result<Self, CopyError> {
        let rejected = |expected, found: String, advice| CopyError::Location {
            location: PathBuf::from(shown(text)),
            expected,
            found,
            advice,
        };
        let rest = rest.strip_prefix(b"//").ok_or_else(|| {
            let advice = "write two slashes after the colon";
            rejected("SCHEME://HOST/PATH", "one slash".into(), advice)
        })?;
        let (rest, query) = tail(scheme, rest).ok_or_else(|| {
            let advice = "remove it, or write it as %23";
            rejected("no fragment", "a `#`".into(), advice)
        })?;
        let cut = rest.iter().position(|byte| *byte == b'/');
        let (authority, path) = rest.split_at(cut.unwrap_or(rest.len()));
        let advice = "write SCHEME://USER@HOST:PORT/PATH, with %XX for unusual bytes";
        let parsed = parse_authority(scheme, authority).map_err(|found| {
            let expected = "a host, with optional user and port";
            rejected(expected, found.into(), advice)
        })?;
        let path = decoded(if path.is_empty() { b"/" } else { path }).ok_or_else(|| {
            let found = "an incomplete %XX or a zero byte".into();
            rejected("a path", found, advice)
        })?;
        Ok(Self {
            path,
            query,
            ..parsed
        })
    }

    /// Returns a URL with another path on the same server.
    pub(crate) fn with_path(&self, path: Vec<u8>) -> Self {
        Self {
            path,
            query: None,
            ..self.clone()
        }
    }

    /// True if server and user are the same, so that one session serves both.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let server = |url: &Self| (url.scheme, url.host.to_ascii_lowercase(), url.port);
        server(self) == server(other)
            && (&self.user, &self.password) == (&other.user, &other.password)
    }

    /// Returns host and port for HTTP and messages: IPv6 addresses in brackets, no default port.
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

    /// Returns the percent-encoded path.
    pub(crate) fn encoded_path(&self) -> String {
        encoded(&self.path)
    }
}

/// Omits the password.
impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", self.scheme.name())?;
        if let Some(user) = &self.user {
            write!(formatter, "{}@", encoded(user).replace('/', "%2F"))?;
        }
        write!(formatter, "{}{}", self.authority(), self.encoded_path())
    }
}

/// Omits the password.
impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Returns text for messages: without a password, and without a query, which can contain a token.
pub(crate) fn shown(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let Some((name, rest)) = scheme(text.as_bytes()).filter(|(_, rest)| rest.starts_with(b"//"))
    else {
        return text.into_owned();
    };
    let authority_start = name.len() + 3;
    let end = text[authority_start..]
        .find('/')
        .map_or(text.len(), |slash| authority_start + slash);
    let path = match Scheme::named(name) {
        Some(scheme) if scheme.is_http() => text[end..].split('?').next().unwrap_or_default(),
        _ => &text[end..],
    };
    debug_assert!(rest.len() + name.len() < text.len());
    let authority = &text[authority_start..end];
    // Without a port after the colon, the text can be a password with a `/` that should be %2F.
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

/// True if the authority consists of a host and a port number.
fn has_port(authority: &str) -> bool {
    parse_authority(Scheme::Ftp, authority.as_bytes()).is_ok() && !authority.ends_with(':')
}

/// Splits a scheme from the text after the colon. `a:b` has no scheme: it is a file name.
pub(crate) fn scheme(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let scheme = std::str::from_utf8(&bytes[..colon]).ok()?;
    let named = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (named && bytes.get(colon + 1) == Some(&b'/')).then(|| (scheme, &bytes[colon + 1..]))
}

/// Decodes percent encoding; none for an incomplete sequence or a zero byte.
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

/// Percent-encodes all bytes except letters, digits and unreserved characters of a path.
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

/// Splits path and query. FTP has no query, because file names can contain these characters. None: a fragment.
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

/// Returns a URL without a path from user, password, host and port, or the error.
pub(crate) fn parse_authority(scheme: Scheme, text: &[u8]) -> Result<Url, &'static str> {
    let (login, parsed) = match text.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (Some(&text[..at]), &text[at + 1..]),
        None => (None, text),
    };
    let (user, password) = match login {
        Some(login) => {
            let mut parts = login.splitn(2, |byte| *byte == b':');
            let mut part = || {
                parts
                    .next()
                    .map(|part| decoded(part).ok_or("an invalid %XX"))
            };
            (part().transpose()?, part().transpose()?.map(Secret))
        }
        None => (None, None),
    };
    let parsed = std::str::from_utf8(parsed).map_err(|_| "a host that is not valid text")?;
    let (host, port) = match parsed.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a `[` without `]`")?;
            (
                host,
                port.strip_prefix(':').or(port.is_empty().then_some("")),
            )
        }
        None => {
            let (host, port) = parsed.split_once(':').unwrap_or((parsed, ""));
            (host, Some(port))
        }
    };
    let port = match port.ok_or("text after `]`")? {
        "" => scheme.port(),
        digits => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or("a port that is not a number up to 65535")?,
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
