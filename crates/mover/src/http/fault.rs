//! What went wrong with a request, and whether to try again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;

use super::target::Target;
use super::tries::MOST_TRIES;
use crate::error::Failure;

/// What went wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection, or one that broke: the next may not.
    Connection(String),
    /// What we were to send broke off.
    Body(String),
    /// Nothing came for so long.
    Silence(Duration),
    /// The server is not who it says, or does not take us for one it knows.
    Tls(String),
    /// A proxy does not let us through to the server.
    Proxy { proxy: String, status: StatusCode },
    /// The only server does not answer, for this reason: nothing has ever been heard of it, or not for as long as we try.
    Unreached(Box<Self>),
    /// The server refuses.
    Status {
        status: StatusCode,
        /// The first words of what it says of it.
        said: String,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// What came is not what was asked for.
    Answer {
        expected: &'static str,
        found: String,
    },
    /// The file at the source is not the one that was begun.
    Changed,
    /// Our own file.
    Local(Failure),
    /// We are to stop.
    Stopped,
}

impl Fault {
    /// Whether the same request may fare better later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Body(_) | Self::Silence(_) => true,
            Self::Proxy { status, .. } => matches!(status.as_u16(), 502..=504),
            Self::Status { status, .. } => {
                // 423: a copy that was killed may not have ended there.
                matches!(
                    status.as_u16(),
                    408 | 423 | 425 | 429 | 500 | 502 | 503 | 504
                )
            }
            _ => false,
        }
    }

    /// Whether it is about who is asked, and not about what is asked for.
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

    /// Whether to try again what was tried so often. What is silent is tried once more: its connection may have broken unseen, and else
    /// nobody is there; each time takes minutes.
    pub(crate) fn is_worth_another(&self, tries: u32) -> bool {
        let most = match self {
            Self::Silence(_) => 2,
            _ => MOST_TRIES,
        };
        self.is_temporary() && tries < most
    }

    /// As a failure of a place.
    pub(crate) fn at(self, place: &Target) -> Failure {
        let path = PathBuf::from(place.to_string());
        let again = "run the same command again: what is whole stays";
        match self {
            Self::Connection(found) => Failure::found(
                path,
                "an answer",
                found,
                "see whether the server is up and the network lets us there, then run the same command again",
            ),
            Self::Body(found) => Failure::found(path, "all bytes of the source", found, again),
            Self::Silence(waited) => Failure::found(
                path,
                "an answer",
                format!("none for {} s", waited.as_secs()),
                again,
            ),
            Self::Tls(found) => Failure::found(
                path,
                "a server that is who it says",
                found,
                "see whom you trust (X509_CERT_DIR, SSL_CERT_FILE) and who you are (X509_USER_PROXY)",
            ),
            Self::Proxy { proxy, status } => Failure::found(
                path,
                format!("a way through the proxy {proxy}"),
                status.to_string(),
                match status.as_u16() {
                    407 => OF_LOGIN,
                    _ => {
                        "see whether that proxy lets you there, or go without it (`--proxy none`, or the server in no_proxy)"
                    }
                },
            ),
            Self::Unreached(why) => Failure {
                ends_all: true,
                ..why.at(place)
            },
            Self::Status { status, said, .. } => {
                let said = if said.is_empty() {
                    String::new()
                } else {
                    format!(" ({said})")
                };
                Failure::found(
                    path,
                    match status.as_u16() {
                        404 | 410 => "something of that name",
                        _ => "that the server does it",
                    },
                    format!("{status}{said}"),
                    advice(status),
                )
            }
            Self::Answer { expected, found } => Failure::found(
                path,
                expected,
                found,
                "see what the server says with another client (`curl -v`)",
            ),
            Self::Changed => Failure::found(
                path,
                "a file at rest",
                "that it was replaced while it was copied",
                "run the same command again when nobody writes to it",
            ),
            Self::Local(failure) => failure,
            Self::Stopped => Failure::found(
                path,
                "to be finished",
                "that we were stopped",
                "run the same command again",
            ),
        }
    }
}

/// What a proxy that wants to know who we are needs.
const OF_LOGIN: &str =
    "write who you are into the URL of the proxy (http://USER:PASSWORD@HOST:PORT)";

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        407 => OF_LOGIN,
        401 => {
            "get a token (BEARER_TOKEN, BEARER_TOKEN_FILE) or a proxy (X509_USER_PROXY) that the server knows"
        }
        403 => "get the right to it; a token may have another scope or path",
        404 | 410 => "see what is there (`davix-ls`, `curl`)",
        405 | 501 => {
            "the server does not do this at that place: name another, for directories one with WebDAV"
        }
        409 => "make the directories that lead to it, or say --mkpath",
        413 | 507 => "free some space at the server",
        423 => "wait for whoever writes it to end, then run the same command again",
        408 | 425 | 429 | 500..=599 => "the server has trouble: run the same command again later",
        _ => "see what the server says with another client (`curl -v`)",
    }
}

/// What `--verify` needs.
pub(crate) fn no_digest() -> Fault {
    Fault::Answer {
        expected: "a checksum to verify the copy by (Digest: adler32, md5 or sha-256)",
        found: "none: leave --verify out".into(),
    }
}

/// Gives a failure the path that it is about.
pub(crate) fn named(fault: Fault, path: &Path) -> Fault {
    match fault {
        Fault::Local(failure) if failure.path.as_os_str().is_empty() => Fault::Local(Failure {
            path: path.to_owned(),
            ..failure
        }),
        other => other,
    }
}

/// What hyper says of a connection, in one line.
pub(super) fn broken(error: &hyper::Error) -> Fault {
    use std::error::Error as _;
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(tls) = inner
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            // An alert that comes after the handshake, as in TLS 1.3: a certificate that is wanted, or is not trusted.
            if tls.is::<rustls::Error>() {
                return Fault::Tls(tls.to_string());
            }
        }
        said = format!("{said}: {inner}");
        cause = inner.source();
    }
    if error.is_user() {
        return Fault::Body(said);
    }
    if error.is_parse() {
        return Fault::Answer {
            expected: "an answer of HTTP",
            found: said,
        };
    }
    Fault::Connection(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_asked_once_more_and_who_is_busy_some_times() {
        let tries = |fault: Fault| {
            (1..9)
                .take_while(|&tries| fault.is_worth_another(tries))
                .count()
        };
        let status = |status| Fault::Status {
            status,
            said: String::new(),
            after: None,
        };
        assert_eq!(tries(Fault::Silence(Duration::from_secs(180))), 1);
        assert_eq!(tries(Fault::Connection("reset".into())), 3);
        assert_eq!(tries(status(StatusCode::LOCKED)), 3);
        assert_eq!(tries(status(StatusCode::NOT_FOUND)), 0);
    }
}
