//! Errors of requests and the decision to retry.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;

use super::retry::MAX_ATTEMPTS;
use super::target::HttpTarget;
use crate::error::Failure;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Connection failed or broke; another may work.
    Connection(String),
    /// The body of the request is incomplete.
    Body(String),
    /// No byte arrived for this time.
    Silence(Duration),
    /// The server certificate is not trusted, or the server does not trust the client.
    Tls(String),
    /// A proxy rejects the tunnel to the server.
    Proxy { proxy: String, status: StatusCode },
    /// The only server does not respond: it never responded, or not during all attempts.
    Unreached(Box<Self>),
    /// The server rejected the request.
    Status {
        status: StatusCode,
        /// First line of its error text.
        message: String,
        /// Time of the next attempt according to the server.
        after: Option<Duration>,
    },
    /// The response is invalid.
    UnexpectedResponse {
        expected: &'static str,
        found: String,
    },
    /// The source changed after the start.
    Changed,
    /// Local failure.
    Local(Failure),
    /// The copy was cancelled.
    Stopped,
}

impl RequestError {
    /// Return whether the same request may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Body(_) | Self::Silence(_) => true,
            Self::Proxy { status, .. } => matches!(status.as_u16(), 502..=504),
            Self::Status { status, .. } => {
                // 423: an earlier, killed copy may still be active on the server.
                matches!(
                    status.as_u16(),
                    408 | 423 | 425 | 429 | 500 | 502 | 503 | 504
                )
            }
            _ => false,
        }
    }

    /// Return whether the error concerns the connection and not the requested file.
    pub(crate) fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::Connection(_)
                | Self::Silence(_)
                | Self::Tls(_)
                | Self::Proxy { .. }
                | Self::Unreached(_)
        )
    }

    /// Return whether to retry after this many attempts. A silent request is retried once: its connection may have
    /// broken unnoticed. Each silent attempt takes minutes.
    pub(crate) fn is_retryable(&self, attempts: u32) -> bool {
        let max = match self {
            Self::Silence(_) => 2,
            _ => MAX_ATTEMPTS,
        };
        self.is_temporary() && attempts < max
    }

    /// Return the failure of a URL.
    pub(crate) fn at(self, target: &HttpTarget) -> Failure {
        let path = PathBuf::from(target.to_string());
        let again = "run the same command again; complete files are kept";
        match self {
            Self::Connection(found) => Failure::found(
                path,
                "a response",
                found,
                "check the server, the network and the firewall, then run the same command again",
            ),
            Self::Body(found) => Failure::found(path, "all bytes of the source", found, again),
            Self::Silence(waited) => Failure::found(
                path,
                "a response",
                format!("no byte for {} s", waited.as_secs()),
                again,
            ),
            Self::Tls(found) => Failure::found(
                path,
                "a trusted server certificate",
                found,
                "check the trusted CAs (X509_CERT_DIR, SSL_CERT_FILE) and your certificate (X509_USER_PROXY)",
            ),
            Self::Proxy { proxy, status } => Failure::found(
                path,
                format!("a tunnel through the proxy {proxy}"),
                status.to_string(),
                match status.as_u16() {
                    407 => LOGIN_ADVICE,
                    _ => {
                        "check the rules of the proxy, or bypass it (`--proxy none`, or add the server to no_proxy)"
                    }
                },
            ),
            Self::Unreached(why) => Failure {
                ends_all: true,
                ..why.at(target)
            },
            Self::Status {
                status, message, ..
            } => {
                let message = if message.is_empty() {
                    String::new()
                } else {
                    format!(" ({message})")
                };
                Failure::found(
                    path,
                    match status.as_u16() {
                        404 | 410 => "an existing path",
                        _ => "the server to execute the request",
                    },
                    format!("{status}{message}"),
                    advice(status),
                )
            }
            Self::UnexpectedResponse { expected, found } => Failure::found(
                path,
                expected,
                found,
                "check the response of the server with another client (`curl -v`)",
            ),
            Self::Changed => Failure::found(
                path,
                "an unchanged file",
                "another version, written during the copy",
                "wait until its writers finish, then run the same command again",
            ),
            Self::Local(failure) => failure,
            Self::Stopped => Failure::found(
                path,
                "to finish the copy",
                "an interruption",
                "run the same command again",
            ),
        }
    }
}

/// Advice for a proxy that requires a login.
const LOGIN_ADVICE: &str =
    "add user and password to the proxy URL (http://USER:PASSWORD@HOST:PORT)";

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        407 => LOGIN_ADVICE,
        401 => {
            "get a token (BEARER_TOKEN, BEARER_TOKEN_FILE) or a proxy certificate (X509_USER_PROXY) that the server accepts"
        }
        403 => "request access; a token may have the wrong scope or path",
        404 | 410 => "list the directory (`davix-ls`, `curl`)",
        405 | 501 => "choose a URL that supports this method; directories need WebDAV",
        409 => "create the parent directories, or add --mkpath",
        413 | 507 => "free some space on the server",
        423 => "wait until its writers finish, then run the same command again",
        408 | 425 | 429 | 500..=599 => {
            "the server reports a fault; run the same command again later"
        }
        _ => "check the response of the server with another client (`curl -v`)",
    }
}

/// Return the error of `--verify` without a checksum.
pub(crate) fn no_digest() -> RequestError {
    RequestError::UnexpectedResponse {
        expected: "a checksum to verify the copy (Digest: adler32, md5 or sha-256)",
        found: "none; remove --verify".into(),
    }
}

/// Add the path to a failure without one.
pub(crate) fn named(fault: RequestError, path: &Path) -> RequestError {
    match fault {
        RequestError::Local(failure) if failure.path.as_os_str().is_empty() => {
            RequestError::Local(Failure {
                path: path.to_owned(),
                ..failure
            })
        }
        other => other,
    }
}

/// Return the error of hyper in one line.
pub(super) fn broken(error: &hyper::Error) -> RequestError {
    use std::error::Error as _;
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(tls) = inner
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            // An alert after the handshake, as in TLS 1.3: a certificate is missing or not trusted.
            if tls.is::<rustls::Error>() {
                return RequestError::Tls(tls.to_string());
            }
        }
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    if error.is_user() {
        return RequestError::Body(message);
    }
    if error.is_parse() {
        return RequestError::UnexpectedResponse {
            expected: "an HTTP response",
            found: message,
        };
    }
    RequestError::Connection(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_retried_once_and_a_busy_one_several_times() {
        let attempts = |fault: RequestError| {
            (1..9)
                .take_while(|&attempts| fault.is_retryable(attempts))
                .count()
        };
        let status = |status| RequestError::Status {
            status,
            message: String::new(),
            after: None,
        };
        assert_eq!(attempts(RequestError::Silence(Duration::from_secs(180))), 1);
        assert_eq!(attempts(RequestError::Connection("reset".into())), 3);
        assert_eq!(attempts(status(StatusCode::LOCKED)), 3);
        assert_eq!(attempts(status(StatusCode::NOT_FOUND)), 0);
    }
}
