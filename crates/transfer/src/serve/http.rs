//! HTTP and WebDAV: GET with ranges, PUT, PROPFIND, MKCOL, DELETE, MOVE, COPY, and copies between servers
//! (HTTP-TPC).
//!
//! Not supported: locks, and properties of clients. Signed tokens count if their issuer is trusted (see
//! [`access`]).
//!
//! Read [`session`] first, then [`response`].

pub(crate) mod access;
mod body;
mod checksum_cache;
pub(crate) mod conditions;
pub(crate) mod issuers;
mod list;
mod modify;
pub(crate) mod properties;
mod read;
mod response;
pub(crate) mod session;
mod splice_stream;
mod third_party;
mod tpc_stream;
mod transfer_guard;
mod write;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;

use self::access::FileTokens;
use self::checksum_cache::ChecksumCache;
use self::issuers::Issuers;
use super::arguments::address;
use crate::error::CopyError;

/// Command-line options for HTTP.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct HttpArguments {
    /// Address and port for HTTP and WebDAV, such as 127.0.0.1:8080. Repeatable. Port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) http: Vec<SocketAddr>,
    /// Address and port for HTTPS. Repeatable
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, requires = "tls_cert")]
    pub(crate) https: Vec<SocketAddr>,
    /// Certificate for HTTPS with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with one bearer token per line. A client with a token has the permissions of a user. Other clients have none, or can read with --anonymous. The server compares tokens and does not decode them
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// File of trusted token issuers (JSON). A signed token (WLCG JWT) grants the permissions of its scopes
    #[arg(long, value_name = "FILE")]
    pub(crate) issuers: Option<PathBuf>,
}

/// State that all HTTP sessions share.
#[derive(Debug)]
pub(crate) struct Web {
    tokens: Option<FileTokens>,
    issuers: Option<Issuers>,
    /// True if clients without token may read, if tokens are configured.
    anonymous: bool,
    tls: Option<Arc<ServerConfig>>,
    /// TLS configuration for copies from and to other servers.
    outwards: Option<Arc<rustls::ClientConfig>>,
    known: ChecksumCache,
}

impl Web {
    /// Open the files of the command line.
    ///
    /// # Errors
    /// An unreadable file.
    pub(crate) fn new(
        arguments: &HttpArguments,
        anonymous: bool,
        third_party: bool,
    ) -> Result<Self, CopyError> {
        let tls = match (&arguments.tls_cert, &arguments.tls_key) {
            (Some(cert), Some(key)) => Some(secured(cert, key)?),
            _ => None,
        };
        let any = !(arguments.http.is_empty() && arguments.https.is_empty());
        // Without trusted CAs, copies from and to https fail with an error.
        let outwards = if any && third_party {
            crate::http::tls::client().ok()
        } else {
            None
        };
        Ok(Self {
            tokens: arguments
                .tokens
                .as_deref()
                .map(FileTokens::read)
                .transpose()?,
            issuers: arguments
                .issuers
                .as_deref()
                .map(Issuers::read)
                .transpose()?,
            anonymous,
            tls,
            outwards,
            known: ChecksumCache::default(),
        })
    }
}

impl Web {
    /// Return whether tokens are configured.
    fn accepts_tokens(&self) -> bool {
        self.tokens.is_some() || self.issuers.is_some()
    }
}

const OTHERS: &str = "choose other files with --tls-cert and --tls-key";

fn secured(cert: &std::path::Path, key: &std::path::Path) -> Result<Arc<ServerConfig>, CopyError> {
    let (path, chain, key) = crate::http::tls::read(cert, key, OTHERS)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has suites for both versions")
        .with_no_client_auth();
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| CopyError::Location {
            location: path,
            expected: "a certificate and its key",
            found: error.to_string(),
            advice: OTHERS,
        })?;
    Ok(Arc::new(config))
}
