//! What can be wrong with bytes of a peer, or with what was asked of a session.

/// How much of what was found an error repeats.
const EXCERPT_BYTES: usize = 80;

/// What was expected, what was found, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are not what the protocol allows there.
    #[error("{place}: expected {expected}, found `{found}`")]
    Malformed {
        /// The command, reply or field.
        place: &'static str,
        /// What is needed.
        expected: &'static str,
        /// What is there, cut and escaped.
        found: String,
    },
    /// A command that this crate does not know.
    #[error("expected a command of FTP or GridFTP, found `{found}`")]
    UnknownCommand {
        /// Its first word, cut and escaped.
        found: String,
    },
    /// Something is larger than it may be.
    #[error("{place}: expected at most {limit}, found more")]
    Limit {
        /// What is limited.
        place: &'static str,
        /// The bound, in the unit that `place` names.
        limit: u64,
    },
    /// The peer does not keep to the order of the protocol.
    #[error("expected {expected}, found {found}")]
    Order {
        /// What had to come.
        expected: &'static str,
        /// What came.
        found: String,
    },
    /// The peer refuses something without which the session cannot go on.
    #[error("{step} refused: `{reply}`")]
    Refused {
        /// The step of the session.
        step: &'static str,
        /// Its reply, cut and escaped.
        reply: String,
    },
    /// Nothing came for too long.
    #[error("expected {expected} within {seconds} s, found nothing")]
    Silence {
        /// What was waited for.
        expected: &'static str,
        /// The patience.
        seconds: u64,
    },
    /// The control connection ended.
    #[error("expected the control connection to stay open, found it closed{detail}")]
    Closed {
        /// `: ` and the last words of the peer, or nothing.
        detail: String,
    },
    /// The security layer refuses.
    #[error("security: {0}")]
    Security(String),
}

impl Error {
    pub(crate) fn malformed(place: &'static str, expected: &'static str, found: &[u8]) -> Self {
        Self::Malformed {
            place,
            expected,
            found: excerpt(found),
        }
    }
}

/// The beginning of `bytes`, fit to be shown: printable, on one line, short.
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
