//! Protocol and session errors.

/// Maximum excerpt of found bytes in an error.
const EXCERPT_BYTES: usize = 80;

/// Protocol or session error, with location, expected and found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FtpError {
    /// Bytes that violate the protocol.
    #[error("{context}: expected {expected}, found `{found}`")]
    Malformed {
        /// The command, reply or field.
        context: &'static str,
        /// Expected form.
        expected: &'static str,
        /// Found bytes, cut and escaped.
        found: String,
    },
    /// An unknown command.
    #[error("expected an FTP or GridFTP command, found `{found}`")]
    UnknownCommand {
        /// First word of the command, cut and escaped.
        found: String,
    },
    /// A limit is exceeded.
    #[error("{context}: expected at most {limit}, found more")]
    Limit {
        /// Limited quantity.
        context: &'static str,
        /// The bound, in the unit that `context` names.
        limit: u64,
    },
    /// The peer violates the order of the protocol.
    #[error("expected {expected}, found {found}")]
    Order {
        /// Expected message.
        expected: &'static str,
        /// Found message.
        found: String,
    },
    /// The peer rejects a required step of the session.
    #[error("the server rejected {step}: `{reply}`")]
    Rejected {
        /// The step of the session.
        step: &'static str,
        /// Reply of the peer, cut and escaped.
        reply: String,
    },
    /// No progress within the timeout.
    #[error("timed out: no {expected} within {seconds} s")]
    Timeout {
        /// Awaited message.
        expected: &'static str,
        /// Length of the timeout.
        seconds: u64,
    },
    /// The control connection ended.
    #[error("the control connection closed{detail}")]
    Closed {
        /// `: ` and the last reply of the peer, or empty.
        detail: String,
    },
    /// Error of the security layer.
    #[error("security: {0}")]
    Security(String),
}

impl FtpError {
    pub(crate) fn malformed(context: &'static str, expected: &'static str, found: &[u8]) -> Self {
        Self::Malformed {
            context,
            expected,
            found: excerpt(found),
        }
    }
}

/// Returns the start of `bytes` as short, printable text on one line.
#[must_use]
pub fn excerpt(bytes: &[u8]) -> String {
    let mut text: String = bytes
        .iter()
        .take(EXCERPT_BYTES)
        .flat_map(|&byte| std::ascii::escape_default(byte))
        .map(char::from)
        .collect();
    if bytes.len() > EXCERPT_BYTES {
        text.push_str("...");
    }
    text
}
