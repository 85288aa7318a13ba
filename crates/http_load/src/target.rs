//! URLs of the object and of its proxy.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::LoadError;

/// Parsed `http` URL.
///
/// ```
/// let target = venturi_http_load::LoadTarget::parse("url", "http://origin.lab.test:8000/set/000000")?;
/// assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("origin.lab.test", 8000, "/set/000000"));
/// # Ok::<(), venturi_http_load::LoadError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadTarget {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// Port; 80 if the URL has none.
    pub port: u16,
    /// Path with leading slash and query.
    pub path: String,
}

impl LoadTarget {
    /// Reads a URL given as `option`.
    ///
    /// # Errors
    /// If it does not start with `http://`, or contains white space.
    pub fn parse(option: &'static str, url: &str) -> Result<Self, LoadError> {
        let wrong = || LoadError::Option {
            option,
            expected: "a URL such as http://host:8000/path",
            found: url.into(),
        };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong());
        }
        let (authority, path) = rest
            .find('/')
            .map_or((rest, "/"), |at| (&rest[..at], &rest[at..]));
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(wrong)?;
                (host, after.strip_prefix(':'))
            }
            None => authority
                .split_once(':')
                .map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(80), str::parse).map_err(|_| wrong())?;
        if host.is_empty() || host.contains('@') {
            return Err(wrong());
        }
        Ok(Self {
            host: host.into(),
            port,
            path: path.into(),
        })
    }

    /// Return host and port as in a `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match self.port {
            80 => host,
            port => format!("{host}:{port}"),
        }
    }

    /// Return the first address of the name, resolved once.
    ///
    /// # Errors
    /// If the name has no address.
    pub(crate) fn address(&self) -> Result<SocketAddr, LoadError> {
        first_address(&self.host, self.port)
    }
}

/// Return the address of a local interface, given as number or name.
pub(crate) fn local_address(name: &str) -> Result<IpAddr, LoadError> {
    Ok(first_address(name, 0)?.ip())
}

fn first_address(host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let failed = |reason: String| LoadError::Resolve {
        name: host.into(),
        reason,
    };
    (host, port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?
        .next()
        .ok_or_else(|| failed("the name has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_and_formatted() {
        for (url, host, authority, path) in [
            ("http://a", "a", "a", "/"),
            ("http://a:81/x?y=1", "a", "a:81", "/x?y=1"),
            ("http://[::1]:8000/x", "::1", "[::1]:8000", "/x"),
        ] {
            let target = LoadTarget::parse("url", url).expect(url);
            assert_eq!(
                (&*target.host, &*target.authority(), &*target.path),
                (host, authority, path)
            );
        }
    }

    #[test]
    fn an_invalid_url_is_rejected_with_the_name_of_the_option() {
        for url in [
            "",
            "ftp://a/",
            "https://a/",
            "http:///x",
            "http://a:b/",
            "http://a/x y",
            "http://u@a/",
            "http://[::1/",
        ] {
            let output_error = LoadTarget::parse("proxy", url).expect_err(url).to_string();
            assert!(
                output_error.starts_with("--proxy: expected a URL"),
                "{output_error}"
            );
        }
    }
}
