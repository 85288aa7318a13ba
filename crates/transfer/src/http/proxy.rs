//! HTTP proxies: selection and tunnel.
//!
//! Requests for `http:` go to the proxy with the complete URL. For `https:` the client requests a tunnel (CONNECT,
//! RFC 9110, section 9.3.6) with end-to-end TLS. The environment names the proxy in the variables of curl and wget.
//! `http_proxy` counts only in lower case, because in a CGI script `HTTP_PROXY` is a field of a request. A proxy of
//! the environment is never used for this host.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use venturi_gridftp::base64;

use super::request_error::{RequestError, broken};
use super::target::{HttpServer, HttpTarget};
use crate::error::CopyError;
use crate::net::url::{Scheme, Url, shown};

/// Variables for the `https:` and `http:` proxies; the first set variable counts.
const HTTPS_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const HTTP_VARIABLES: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
/// Variables for hosts without proxy.
const EXEMPT: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// HTTP proxy and the login for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(super) server: HttpServer,
    login: Option<HeaderValue>,
}

/// Selection of the proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Through {
    /// The proxies of the environment.
    #[default]
    Environment,
    /// No proxy, regardless of the environment.
    Nothing,
    /// This proxy, regardless of the environment.
    One(Arc<Proxy>),
}

/// Proxies of a copy.
#[derive(Debug)]
pub(crate) struct ProxySelection {
    http: Named,
    https: Named,
    /// Hosts without proxy; none if the proxy is for all servers.
    exempt: Option<Vec<String>>,
}

/// Proxy, or the error of its setting, which only requests through it report.
type Named = Result<Option<Arc<Proxy>>, CopyError>;

impl Proxy {
    /// Parse `http://USER:PASSWORD@HOST:PORT`; the scheme may be missing.
    ///
    /// # Errors
    /// Invalid text; `origin` is the name of the setting.
    pub(crate) fn parse(origin: &str, text: &OsStr) -> Result<Arc<Self>, CopyError> {
        let mut whole = text.to_owned();
        if !text.to_string_lossy().contains("://") {
            whole = "http://".into();
            whole.push(text);
        }
        let rejected = |found: String| CopyError::Location {
            location: PathBuf::from(origin),
            expected: "the URL of an HTTP proxy, such as http://proxy.example:3128",
            found,
            advice: "correct the URL, or bypass the proxy (`--proxy none`)",
        };
        let url = Url::parse(&whole).map_err(|error| match error {
            CopyError::Location { found, .. } => {
                rejected(format!("`{}` with {found}", shown(&whole)))
            }
            _ => rejected(format!("`{}`", shown(&whole))),
        })?;
        if url.scheme != Scheme::Http || url.path != b"/" || url.query.is_some() {
            return Err(rejected(format!("`{}`", shown(&whole))));
        }
        let login = url.user.as_ref().map(|user| {
            let password = url.password.as_ref().map_or(&b""[..], |secret| &secret.0);
            let both = base64::encode(&[user.as_slice(), b":", password].concat());
            let mut value =
                HeaderValue::try_from(format!("Basic {both}")).expect("letters, digits and marks");
            value.set_sensitive(true);
            value
        });
        let server = HttpTarget::from(&url).server;
        Ok(Arc::new(Self { server, login }))
    }

    /// Return the `Proxy-Authorization` value.
    pub(super) fn login(&self) -> Option<&HeaderValue> {
        self.login.as_ref()
    }

    /// Request a tunnel to a server over a connection.
    ///
    /// # Errors
    /// The proxy rejects the tunnel, or is no proxy.
    pub(super) async fn tunnel(
        &self,
        stream: TcpStream,
        server: &HttpServer,
    ) -> Result<TcpStream, RequestError> {
        let unfit = |_| RequestError::UnexpectedResponse {
            expected: "a host name",
            found: "invalid characters".into(),
        };
        let started = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = started.map_err(|error| broken(&error))?;
        // The task ends with its sender or hands the stream over; the request reports its errors.
        tokio::task::spawn_local(async move {
            let _ = connection.with_upgrades().await;
        });
        let target = server.with_port();
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(&target)
            .header(HOST, &target);
        if let Some(login) = &self.login {
            request = request.header(PROXY_AUTHORIZATION, login);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(unfit)?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| broken(&error))?;
        if !response.status().is_success() {
            return Err(RequestError::Proxy {
                proxy: self.to_string(),
                status: response.status(),
            });
        }
        let open = hyper::upgrade::on(response).await;
        let open = open.map_err(|error| broken(&error))?;
        let parts = open.downcast::<TokioIo<TcpStream>>();
        let parts = parts.expect("built from these parts");
        if !parts.read_buf.is_empty() {
            return Err(RequestError::UnexpectedResponse {
                expected: "a tunnel",
                found: format!("extra bytes after the response of the proxy {self}"),
            });
        }
        Ok(parts.io.into_inner())
    }
}

/// Without user and password.
impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}", self.server.with_port())
    }
}

/// Without user and password.
impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl Through {
    /// Parse the value of `--proxy`.
    ///
    /// # Errors
    /// Neither `none` nor a proxy URL.
    pub(crate) fn parse(text: Option<&OsStr>) -> Result<Self, CopyError> {
        match text {
            None => Ok(Self::Environment),
            Some(text) if text == "none" => Ok(Self::Nothing),
            Some(text) => Proxy::parse("--proxy", text).map(Self::One),
        }
    }

    /// Return the selected proxies.
    pub(crate) fn proxies(&self) -> ProxySelection {
        match self {
            Self::Environment => {
                ProxySelection::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
            }
            Self::Nothing => ProxySelection::all(None),
            Self::One(proxy) => ProxySelection::all(Some(proxy)),
        }
    }
}

impl ProxySelection {
    /// Use this proxy for all servers, or none for any.
    pub(crate) fn all(proxy: Option<&Arc<Proxy>>) -> Self {
        Self {
            http: Ok(proxy.cloned()),
            https: Ok(proxy.cloned()),
            exempt: None,
        }
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let first = |names: &'static [&'static str]| {
            let mut set = names
                .iter()
                .filter_map(|name| variable(name).map(|value| (*name, value)));
            set.next()
        };
        let proxy = |names| first(names).map(|(name, value)| Proxy::parse(name, &value));
        let exempt = first(&EXEMPT).map_or_else(String::new, |(_, value)| {
            value.to_string_lossy().to_ascii_lowercase()
        });
        let exempt = exempt.split(|letter: char| letter == ',' || letter.is_whitespace());
        Self {
            http: proxy(&HTTP_VARIABLES).transpose(),
            https: proxy(&HTTPS_VARIABLES).transpose(),
            exempt: Some(
                exempt
                    .filter(|entry| !entry.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
        }
    }

    /// Return the proxy for a server, if any.
    ///
    /// # Errors
    /// An invalid proxy setting of the environment.
    pub(crate) fn to(&self, server: &HttpServer) -> Result<Option<&Arc<Proxy>>, CopyError> {
        let host = server.host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let exempt = self.exempt.as_ref().is_some_and(|entries| {
            is_local(host) || entries.iter().any(|entry| is_exempt(entry, host))
        });
        if exempt {
            return Ok(None);
        }
        let named = if server.tls { &self.https } else { &self.http };
        named.as_ref().map(Option::as_ref).map_err(CopyError::clone)
    }
}

/// Return whether a host is this one.
fn is_local(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Return whether an entry of `no_proxy` applies to a host: `*`, a domain with its subdomains, an
/// address, or a network of addresses.
fn is_exempt(entry: &str, host: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        let (network, bits) = match entry.split_once('/') {
            Some((network, bits)) => (network, bits.parse().ok()),
            None => (entry, Some(128)),
        };
        let network = network.trim_matches(['[', ']']).parse();
        return match (network, bits) {
            (Ok(network), Some(bits)) => is_within(address, network, bits),
            _ => false,
        };
    }
    let entry = entry.strip_prefix('*').unwrap_or(entry);
    let name = entry.trim_matches('.');
    let before = host.strip_suffix(name);
    !name.is_empty() && before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Return whether the first bits of two addresses of one family are the same.
fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let same =
        |differ: u128, width: u32| differ.checked_shr(width - bits.min(width)).unwrap_or(0) == 0;
    match (address.to_canonical(), network.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same((a.to_bits() ^ b.to_bits()).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits() ^ b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn proxies(set: &[(&str, &str)]) -> ProxySelection {
        let set: HashMap<_, _> = set.iter().copied().collect();
        ProxySelection::of(|name| set.get(name).map(OsString::from))
    }

    fn to(proxies: &ProxySelection, target: &str) -> Option<String> {
        let url = Url::parse(OsStr::new(target)).expect("a URL");
        let found = proxies.to(&HttpTarget::from(&url).server).expect("a proxy");
        found.map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_proxy_and_local_hosts_have_none() {
        let found = proxies(&[
            ("https_proxy", "a:1"),
            ("HTTPS_PROXY", "b:1"),
            ("ALL_PROXY", "http://c"),
        ]);
        assert_eq!(to(&found, "davs://h/"), Some("http://a:1".into()));
        assert_eq!(to(&found, "http://h/"), Some("http://c:80".into()));
        for local in [
            "http://localhost/",
            "https://LOCALHOST:1/",
            "http://127.0.0.2/",
            "http://[::1]/",
            "http://x.localhost/",
        ] {
            assert_eq!(to(&found, local), None, "{local}");
        }
        let upper = proxies(&[("HTTP_PROXY", "evil:1")]);
        assert_eq!(to(&upper, "http://h/"), None);
        let reported = Through::parse(Some(OsStr::new("p:3128"))).expect("a proxy");
        assert_eq!(
            to(&reported.proxies(), "http://127.0.0.1/"),
            Some("http://p:3128".into())
        );
    }

    #[test]
    fn names_addresses_and_networks_are_exempt() {
        let check = |entries, target, expected| {
            let found = proxies(&[("all_proxy", "p:1"), ("no_proxy", entries)]);
            assert_eq!(
                to(&found, target).is_none(),
                expected,
                "{entries}: {target}"
            );
        };
        for entries in [
            "cern.ch",
            ".cern.ch",
            "*.cern.ch",
            "x, CERN.CH ,y",
            "x cern.ch",
        ] {
            check(entries, "https://eos.cern.ch./", true);
            check(entries, "https://cern.ch.example/", false);
            check(entries, "https://notcern.ch/", false);
        }
        check("cern.ch", "http://cern.ch/", true);
        check("*", "http://anything/", true);
        check("", "http://anything/", false);
        check(" , .,*.", "http://anything/", false);
        check("10.1.2.3", "http://10.1.2.3/", true);
        check("10.1.2.3", "http://10.1.2.30/", false);
        check("10.0.0.0/8", "http://10.200.1.1/", true);
        check("10.0.0.0/8", "http://11.0.0.1/", false);
        check("0.0.0.0/0", "http://11.0.0.1/", true);
        check("10.0.0.0/x", "http://10.0.0.0/", false);
        check("2001:db8::/32,::2", "http://[2001:db8:1::1]/", true);
        check("2001:db8::/32,::2", "http://[::2]/", true);
        check("2001:db8::/32,::2", "http://[2001:db9::1]/", false);
    }

    #[test]
    fn an_invalid_proxy_is_rejected_without_its_password() {
        for wrong in [
            "socks5://u:sesame@p:1080",
            "https://u:sesame@p",
            "http://u:sesame@p:x",
            "http://u:sesame@p/path",
            "",
        ] {
            let rejected = Proxy::parse("https_proxy", OsStr::new(wrong)).expect_err(wrong);
            let reported = rejected.to_string();
            assert!(
                reported.starts_with("https_proxy: expected the URL of an HTTP proxy"),
                "{reported}"
            );
            assert!(!reported.contains("sesame"), "{reported}");
        }
        let proxy =
            Proxy::parse("", OsStr::new("http://Aladdin:open%20sesame@p")).expect("a proxy");
        let login = proxy.login().expect("a login");
        assert_eq!(login, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{proxy:?} {login:?}").contains("QWxh"));
    }
}
