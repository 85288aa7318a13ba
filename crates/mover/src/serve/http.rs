//! HTTP and WebDAV from the same directory: GET with ranges, PUT, PROPFIND, MKCOL, DELETE, MOVE, COPY here and between servers (HTTP-TPC).
//!
//! What it leaves out: locks, and properties that clients set. What is in a token counts where its issuer is believed (see [`access`]).
//!
//! Read [`session`] first, then [`answer`].

pub(crate) mod access;
mod answer;
mod body;
mod carry;
mod change;
pub(crate) mod conditions;
mod going;
mod issuers;
mod known;
mod list;
pub(crate) mod properties;
mod read;
pub(crate) mod session;
mod third;
mod wire;
mod write;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;

use self::access::Tokens;
use self::issuers::Issuers;
use self::known::Known;
use super::arguments::address;
use crate::error::Error;

/// What can be said of HTTP on the command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct HttpArguments {
    /// Address and port for HTTP and WebDAV, such as 127.0.0.1:8080; may be repeated; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) http: Vec<SocketAddr>,
    /// The same within TLS
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, requires = "tls_cert")]
    pub(crate) https: Vec<SocketAddr>,
    /// Certificate for HTTPS, with those that lead to its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A file with a bearer token a line: who has one may do what a user may, all others nothing, or, with --anonymous, read. Nothing in a token is looked at, it is compared
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// A file of issuers (JSON) whose signed tokens (JWT of WLCG) are believed: who has one may do what its scopes say
    #[arg(long, value_name = "FILE")]
    pub(crate) issuers: Option<PathBuf>,
}

/// What all sessions of HTTP share.
#[derive(Debug)]
pub(crate) struct Web {
    tokens: Option<Tokens>,
    issuers: Option<Issuers>,
    /// Whether who has none may read, where there are tokens.
    anonymous: bool,
    tls: Option<Arc<ServerConfig>>,
    /// For servers that this one is to copy from or to.
    outwards: Option<Arc<rustls::ClientConfig>>,
    known: Known,
}

impl Web {
    /// Opens what the command line names.
    ///
    /// # Errors
    /// What cannot be read.
    pub(crate) fn new(
        arguments: &HttpArguments,
        anonymous: bool,
        third_party: bool,
    ) -> Result<Self, Error> {
        let tls = match (&arguments.tls_cert, &arguments.tls_key) {
            (Some(cert), Some(key)) => Some(secured(cert, key)?),
            _ => None,
        };
        let any = !(arguments.http.is_empty() && arguments.https.is_empty());
        // Where nobody is trusted, copies from and to https fail, and say so.
        let outwards = if any && third_party {
            crate::http::tls::client().ok()
        } else {
            None
        };
        Ok(Self {
            tokens: arguments.tokens.as_deref().map(Tokens::read).transpose()?,
            issuers: arguments
                .issuers
                .as_deref()
                .map(Issuers::read)
                .transpose()?,
            anonymous,
            tls,
            outwards,
            known: Known::default(),
        })
    }
}

impl Web {
    /// Whether there are tokens that let somebody in.
    fn knows_tokens(&self) -> bool {
        self.tokens.is_some() || self.issuers.is_some()
    }
}

const OTHERS: &str = "name others with --tls-cert and --tls-key";

fn secured(cert: &std::path::Path, key: &std::path::Path) -> Result<Arc<ServerConfig>, Error> {
    let (path, chain, key) = crate::http::tls::read(cert, key, OTHERS)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for both versions")
        .with_no_client_auth();
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| Error::Place {
            place: path,
            expected: "a certificate and its key",
            found: error.to_string(),
            advice: OTHERS,
        })?;
    Ok(Arc::new(config))
}
