//! URLs: the object, and the proxy that it is fetched through.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Error;

/// An `http` URL in parts.
///
/// ```
/// let target = venturi_load::Target::parse("url", "http://origin.lab.test:8000/set/000000")?;
/// assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("origin.lab.test", 8000, "/set/000000"));
/// # Ok::<(), venturi_load::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A name or an address; of IPv6 without brackets.
    pub host: String,
    /// 80 where the URL has none.
    pub port: u16,
    /// With its slash and what follows a question mark.
    pub path: String,
}

impl Target {
    /// Reads a URL given as `option`.
    ///
    /// # Errors
    /// Where it is none of `http://`, or holds white space, which a request line cannot.
    pub fn parse(option: &'static str, url: &str) -> Result<Self, Error> {
        let wrong = || Error::Order {
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

    /// Host and port as a `Host` header has them.
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

    /// The first address that its name has, asked for once.
    ///
    /// # Errors
    /// Where there is none.
    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        first_address(&self.host, self.port)
    }
}

/// The address of a local interface, given as number or name.
pub(crate) fn local_address(name: &str) -> Result<IpAddr, Error> {
    Ok(first_address(name, 0)?.ip())
}

fn first_address(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let failed = |reason: String| Error::Resolve {
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
    fn a_url_is_taken_apart_and_put_together() {
        for (url, host, authority, path) in [
            ("http://a", "a", "a", "/"),
            ("http://a:81/x?y=1", "a", "a:81", "/x?y=1"),
            ("http://[::1]:8000/x", "::1", "[::1]:8000", "/x"),
        ] {
            let target = Target::parse("url", url).expect(url);
            assert_eq!(
                (&*target.host, &*target.authority(), &*target.path),
                (host, authority, path)
            );
        }
    }

    #[test]
    fn what_is_no_plain_url_is_refused_with_the_option_and_what_was_found() {
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
            let told = Target::parse("proxy", url).expect_err(url).to_string();
            assert!(told.starts_with("--proxy: expected a URL"), "{told}");
        }
    }
}
