//! Proxies of HTTP: which one, and the way through it.
//!
//! A request for `http:` goes to the proxy with the whole URL; for `https:` the proxy is asked for a tunnel (CONNECT, RFC 9110, section 9.3.6), in which
//! TLS is with the server as ever. Which one, the environment says in the variables that curl, wget and others read. `http_proxy` counts in lower case alone,
//! since in a CGI script `HTTP_PROXY` is a field of somebody's request. What is on this host is never asked of a proxy that the environment names.

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

use super::fault::{Fault, broken};
use super::target::{Server, Target};
use crate::error::Error;
use crate::net::url::{Scheme, Url, shown};

/// What names the proxy for `https:`, and for `http:`; the first that is set.
const OF_HTTPS: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const OF_HTTP: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
/// Who is asked without one.
const EXEMPT: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// A proxy of HTTP, and who we are to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(super) server: Server,
    login: Option<HeaderValue>,
}

/// Which proxy requests go through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Through {
    /// Those that the environment names.
    #[default]
    Environment,
    /// None, whatever it names.
    Nothing,
    /// This one, whatever it names.
    One(Arc<Proxy>),
}

/// Proxies of an order.
#[derive(Debug)]
pub(crate) struct Proxies {
    of_http: Named,
    of_https: Named,
    /// None where a proxy is for all servers.
    exempt: Option<Vec<String>>,
}

/// A proxy, or why what was named is none: that is told to who is to go through it, and to nobody else.
type Named = Result<Option<Arc<Proxy>>, Error>;

impl Proxy {
    /// Reads `http://USER:PASSWORD@HOST:PORT`; the scheme may be missing.
    ///
    /// # Errors
    /// If it is something else; `place` is where it was written.
    pub(crate) fn parse(place: &str, text: &OsStr) -> Result<Arc<Self>, Error> {
        let mut whole = text.to_owned();
        if !text.to_string_lossy().contains("://") {
            whole = "http://".into();
            whole.push(text);
        }
        let refused = |found: String| Error::Place {
            place: PathBuf::from(place),
            expected: "a proxy of HTTP, such as http://proxy.example:3128",
            found,
            advice: "name one, or go without (`--proxy none`)",
        };
        let url = Url::parse(&whole).map_err(|error| match error {
            Error::Place { found, .. } => refused(format!("`{}`, with {found}", shown(&whole))),
            _ => refused(format!("`{}`", shown(&whole))),
        })?;
        if url.scheme != Scheme::Http || url.path != b"/" || url.query.is_some() {
            return Err(refused(format!("`{}`", shown(&whole))));
        }
        let login = url.user.as_ref().map(|user| {
            let password = url.password.as_ref().map_or(&b""[..], |secret| &secret.0);
            let both = base64::encode(&[user.as_slice(), b":", password].concat());
            let mut value =
                HeaderValue::try_from(format!("Basic {both}")).expect("letters, digits and marks");
            value.set_sensitive(true);
            value
        });
        let server = Target::from(&url).server;
        Ok(Arc::new(Self { server, login }))
    }

    /// What it is to see of a request besides what its server is to see.
    pub(super) fn login(&self) -> Option<&HeaderValue> {
        self.login.as_ref()
    }

    /// Has it open a tunnel to a server over a connection.
    ///
    /// # Errors
    /// If it does not, or is no proxy.
    pub(super) async fn tunnel(
        &self,
        stream: TcpStream,
        server: &Server,
    ) -> Result<TcpStream, Fault> {
        let unfit = |_| Fault::Answer {
            expected: "the name of a host",
            found: "other signs".into(),
        };
        let begun = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| broken(&error))?;
        // It ends with its sender, or hands the stream over; what went wrong with it, the request is told.
        tokio::task::spawn_local(async move {
            let _ = connection.with_upgrades().await;
        });
        let place = server.with_port();
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(&place)
            .header(HOST, &place);
        if let Some(login) = &self.login {
            request = request.header(PROXY_AUTHORIZATION, login);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(unfit)?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| broken(&error))?;
        if !answer.status().is_success() {
            return Err(Fault::Proxy {
                proxy: self.to_string(),
                status: answer.status(),
            });
        }
        let open = hyper::upgrade::on(answer).await;
        let open = open.map_err(|error| broken(&error))?;
        let parts = open.downcast::<TokioIo<TcpStream>>();
        let parts = parts.expect("that is what it was made of");
        if !parts.read_buf.is_empty() {
            return Err(Fault::Answer {
                expected: "a tunnel",
                found: format!("more than an answer from the proxy {self}"),
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
    /// Reads what `--proxy` says.
    ///
    /// # Errors
    /// If it is neither `none` nor a proxy.
    pub(crate) fn parse(text: Option<&OsStr>) -> Result<Self, Error> {
        match text {
            None => Ok(Self::Environment),
            Some(text) if text == "none" => Ok(Self::Nothing),
            Some(text) => Proxy::parse("--proxy", text).map(Self::One),
        }
    }

    /// The proxies that are meant.
    pub(crate) fn proxies(&self) -> Proxies {
        match self {
            Self::Environment => {
                Proxies::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
            }
            Self::Nothing => Proxies::all(None),
            Self::One(proxy) => Proxies::all(Some(proxy)),
        }
    }
}

impl Proxies {
    /// This one for all servers, or none for any.
    pub(crate) fn all(proxy: Option<&Arc<Proxy>>) -> Self {
        Self {
            of_http: Ok(proxy.cloned()),
            of_https: Ok(proxy.cloned()),
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
            of_http: proxy(&OF_HTTP).transpose(),
            of_https: proxy(&OF_HTTPS).transpose(),
            exempt: Some(
                exempt
                    .filter(|entry| !entry.is_empty())
                    .map(str::to_owned)
                    .collect(),
            ),
        }
    }

    /// The one that a server is asked through, if any.
    ///
    /// # Errors
    /// If what the environment names for it is no proxy of HTTP.
    pub(crate) fn to(&self, server: &Server) -> Result<Option<&Arc<Proxy>>, Error> {
        let host = server.host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let exempt = self.exempt.as_ref().is_some_and(|entries| {
            is_here(host) || entries.iter().any(|entry| is_exempt(entry, host))
        });
        if exempt {
            return Ok(None);
        }
        let named = if server.tls {
            &self.of_https
        } else {
            &self.of_http
        };
        named.as_ref().map(Option::as_ref).map_err(Error::clone)
    }
}

/// Whether a host is this one.
fn is_here(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Whether an entry of `no_proxy` is about a host: `*`, a name with all that end in it, an address, or a network of addresses.
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

/// Whether the first bits of two addresses of one family are the same.
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

    fn proxies(set: &[(&str, &str)]) -> Proxies {
        let set: HashMap<_, _> = set.iter().copied().collect();
        Proxies::of(|name| set.get(name).map(OsString::from))
    }

    fn to(proxies: &Proxies, place: &str) -> Option<String> {
        let url = Url::parse(OsStr::new(place)).expect("a URL");
        let found = proxies.to(&Target::from(&url).server).expect("a proxy");
        found.map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_proxy_and_what_is_on_this_host_none() {
        let found = proxies(&[
            ("https_proxy", "a:1"),
            ("HTTPS_PROXY", "b:1"),
            ("ALL_PROXY", "http://c"),
        ]);
        assert_eq!(to(&found, "davs://h/"), Some("http://a:1".into()));
        assert_eq!(to(&found, "http://h/"), Some("http://c:80".into()));
        for here in [
            "http://localhost/",
            "https://LOCALHOST:1/",
            "http://127.0.0.2/",
            "http://[::1]/",
            "http://x.localhost/",
        ] {
            assert_eq!(to(&found, here), None, "{here}");
        }
        let upper = proxies(&[("HTTP_PROXY", "evil:1")]);
        assert_eq!(to(&upper, "http://h/"), None);
        let told = Through::parse(Some(OsStr::new("p:3128"))).expect("a proxy");
        assert_eq!(
            to(&told.proxies(), "http://127.0.0.1/"),
            Some("http://p:3128".into())
        );
    }

    #[test]
    fn names_addresses_and_networks_are_exempt() {
        let check = |entries, place, expected| {
            let found = proxies(&[("all_proxy", "p:1"), ("no_proxy", entries)]);
            assert_eq!(to(&found, place).is_none(), expected, "{entries}: {place}");
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
    fn what_is_no_proxy_is_refused_without_its_password() {
        for wrong in [
            "socks5://u:sesame@p:1080",
            "https://u:sesame@p",
            "http://u:sesame@p:x",
            "http://u:sesame@p/path",
            "",
        ] {
            let refused = Proxy::parse("https_proxy", OsStr::new(wrong)).expect_err(wrong);
            let told = refused.to_string();
            assert!(
                told.starts_with("https_proxy: expected a proxy of HTTP"),
                "{told}"
            );
            assert!(!told.contains("sesame"), "{told}");
        }
        let proxy =
            Proxy::parse("", OsStr::new("http://Aladdin:open%20sesame@p")).expect("a proxy");
        let login = proxy.login().expect("a login");
        assert_eq!(login, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{proxy:?} {login:?}").contains("QWxh"));
    }
}
