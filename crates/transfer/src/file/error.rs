//! Errors of file operations: a kind for programs, and a message for people.

use std::fmt::Display;
use std::io;

use http::StatusCode;
use serde::Serialize;
use venturi_gridftp::FtpReply;

use crate::http::request_error::RequestError;

/// Reason of a failed operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub(super) struct FileError {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

/// Kind of an error, as far as callers distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErrorKind {
    NotFound,
    Permission,
    Exists,
    NoSpace,
    Timeout,
    #[serde(rename = "refused")]
    NoListener,
    Unreachable,
    Unresolved,
    Throttled,
    Unsupported,
    Invalid,
    Other,
}

/// Texts of error messages in lower case, and their kinds; the first match counts. System errors have the texts of strerror(3). Other texts
/// come from Globus, XRootD, gfal2 and OpenSSH.
const TEXTS: [(&str, ErrorKind); 43] = [
    ("no such file", ErrorKind::NotFound),
    ("path_not_found", ErrorKind::NotFound),
    ("path not found", ErrorKind::NotFound),
    ("does not exist", ErrorKind::NotFound),
    ("file not found", ErrorKind::NotFound),
    ("not a directory", ErrorKind::NotFound),
    ("no such object", ErrorKind::NotFound),
    ("permission denied", ErrorKind::Permission),
    ("operation not permitted", ErrorKind::Permission),
    ("permission_denied", ErrorKind::Permission),
    ("read-only file system", ErrorKind::Permission),
    ("not authorized", ErrorKind::Permission),
    ("unauthorized", ErrorKind::Permission),
    ("authentication", ErrorKind::Permission),
    ("auth failed", ErrorKind::Permission),
    ("auth is required", ErrorKind::Permission),
    ("authorization", ErrorKind::Permission),
    ("login incorrect", ErrorKind::Permission),
    ("credential", ErrorKind::Permission),
    ("host key verification failed", ErrorKind::Permission),
    ("certificate", ErrorKind::Permission),
    ("file exists", ErrorKind::Exists),
    ("already exists", ErrorKind::Exists),
    ("directory not empty", ErrorKind::Exists),
    ("is not empty", ErrorKind::Exists),
    ("no space", ErrorKind::NoSpace),
    ("disk quota exceeded", ErrorKind::NoSpace),
    ("quota exceeded", ErrorKind::NoSpace),
    ("timed out", ErrorKind::Timeout),
    ("timeout", ErrorKind::Timeout),
    ("operation expired", ErrorKind::Timeout),
    ("no byte for", ErrorKind::Timeout),
    ("no progress for", ErrorKind::Timeout),
    ("connection refused", ErrorKind::NoListener),
    ("no route to host", ErrorKind::Unreachable),
    ("network is unreachable", ErrorKind::Unreachable),
    ("cannot resolve", ErrorKind::Unresolved),
    ("could not resolve", ErrorKind::Unresolved),
    ("no address for", ErrorKind::Unresolved),
    ("name or service not known", ErrorKind::Unresolved),
    (
        "temporary failure in name resolution",
        ErrorKind::Unresolved,
    ),
    ("invalid address", ErrorKind::Unresolved),
    ("not supported", ErrorKind::Unsupported),
];

impl FileError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Error of an operation that a protocol or server does not have.
    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Error that is known only by its text.
    pub(super) fn text(text: impl Display) -> Self {
        let message = text.to_string();
        Self::new(kind_of_text(&message).unwrap_or(ErrorKind::Other), message)
    }

    /// Error of a local system call.
    pub(super) fn system(action: &str, error: &io::Error) -> Self {
        Self::text(format!("{action}: {}", crate::error::describe(error)))
    }

    /// Error reply of an FTP server. `usual` is the kind of a permanent error without a known text.
    pub(super) fn reply(reply: &FtpReply, usual: ErrorKind) -> Self {
        let message = reply.to_string();
        let kind = match reply.code {
            421 | 450 => ErrorKind::Throttled,
            430 | 530 | 532 | 534 | 535 => ErrorKind::Permission,
            452 | 552 => ErrorKind::NoSpace,
            500 | 501 | 502 | 504 => kind_of_text(&message).unwrap_or(ErrorKind::Unsupported),
            _ => kind_of_text(&message).unwrap_or(usual),
        };
        Self::new(kind, message)
    }

    /// Error with the text of an FTP reply in it. `usual` is the kind of a permanent error without a known text.
    pub(super) fn rejection(text: &str, usual: ErrorKind) -> Self {
        // The reply itself, or a sentence with the reply in quotes.
        let reply = text.split_once('`').map_or(text, |(_, reply)| reply);
        let code = reply.split(' ').next().filter(|code| code.len() == 3);
        let code: Option<u16> = code.and_then(|code| code.parse().ok());
        match code {
            Some(code) => Self {
                message: text.to_owned(),
                ..Self::reply(&FtpReply::new(code, text), usual)
            },
            None => Self::text(text),
        }
    }

    /// Add location and action to the message.
    pub(super) fn at(self, location: impl Display, action: &str) -> Self {
        Self {
            kind: self.kind,
            message: format!("{location}: cannot {action}: {}", self.message),
        }
    }
}

impl From<RequestError> for FileError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Connection(text) | RequestError::Body(text) => Self::text(text),
            RequestError::Silence(waited) => Self::new(
                ErrorKind::Timeout,
                format!("timed out: no byte for {} s", waited.as_secs()),
            ),
            RequestError::Tls(text) => Self::new(
                ErrorKind::Permission,
                format!(
                    "{text}; check the trusted CAs (X509_CERT_DIR, SSL_CERT_FILE) and your certificate (X509_USER_PROXY)"
                ),
            ),
            RequestError::Proxy { proxy, status } => Self::new(
                ErrorKind::Other,
                format!("the proxy {proxy} returned {status}"),
            ),
            RequestError::Unreached(error) => (*error).into(),
            RequestError::Status {
                status, message, ..
            } => Self::status(status, &message),
            RequestError::UnexpectedResponse { expected, found } => Self::new(
                ErrorKind::Other,
                format!("expected {expected}, found {found}"),
            ),
            RequestError::Changed => Self::new(ErrorKind::Other, "the file changed"),
            RequestError::Local(failure) => Self::text(failure),
            RequestError::Stopped => Self::new(ErrorKind::Other, "interrupted"),
        }
    }
}

impl FileError {
    /// Error status of an HTTP server.
    pub(super) fn status(status: StatusCode, message: &str) -> Self {
        let kind = match status.as_u16() {
            401 | 403 => ErrorKind::Permission,
            404 | 410 => ErrorKind::NotFound,
            408 | 504 => ErrorKind::Timeout,
            // For a new path, a conflict is a missing parent (RFC 4918, sections 9.3.1 and 9.7.1).
            409 => kind_of_text(message).unwrap_or(ErrorKind::NotFound),
            412 => ErrorKind::Exists,
            413 | 507 => ErrorKind::NoSpace,
            429 | 503 => ErrorKind::Throttled,
            405 | 501 => ErrorKind::Unsupported,
            _ => kind_of_text(message).unwrap_or(ErrorKind::Other),
        };
        let message = if message.is_empty() {
            status.to_string()
        } else {
            format!("{status} ({message})")
        };
        Self::new(kind, message)
    }
}

/// Return the kind of a message in English; none if it has no known text.
fn kind_of_text(text: &str) -> Option<ErrorKind> {
    let text = text.to_lowercase();
    let found = TEXTS.iter().find(|(known, _)| text.contains(known));
    found.map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_real_programs_are_classified_by_kind() {
        for (text, kind) in [
            (
                "[ERROR] Server responded with an error: [3011] Unable to locate /x; no such file or directory",
                ErrorKind::NotFound,
            ),
            (
                "gfal-stat error: 2 (No such file or directory) - errno reported by local system call",
                ErrorKind::NotFound,
            ),
            (
                "cannot connect to 127.0.0.1:9: Connection refused",
                ErrorKind::NoListener,
            ),
            (
                "ssh: Could not resolve hostname nowhere.invalid: Name or service not known",
                ErrorKind::Unresolved,
            ),
            (
                "alice@h: Permission denied (publickey,password).",
                ErrorKind::Permission,
            ),
            (
                "[FATAL] Auth failed: No protocols left to try",
                ErrorKind::Permission,
            ),
            ("something new", ErrorKind::Other),
        ] {
            assert_eq!(FileError::text(text).kind, kind, "{text}");
        }
    }

    #[test]
    fn replies_and_statuses_are_classified_by_kind() {
        let reply =
            |code, text: &str| FileError::reply(&FtpReply::new(code, text), ErrorKind::Other).kind;
        assert_eq!(
            reply(550, "x: No such file or directory"),
            ErrorKind::NotFound
        );
        assert_eq!(reply(421, "Too many users"), ErrorKind::Throttled);
        assert_eq!(reply(552, "Full"), ErrorKind::NoSpace);
        assert_eq!(reply(550, "Failed"), ErrorKind::Other);
        let status =
            |code| FileError::status(StatusCode::from_u16(code).expect("a status"), "").kind;
        assert_eq!(status(503), ErrorKind::Throttled);
        assert_eq!(status(507), ErrorKind::NoSpace);
        assert_eq!(status(412), ErrorKind::Exists);
    }
}
