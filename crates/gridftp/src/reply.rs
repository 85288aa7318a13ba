//! Replies of one or several lines. The last line repeats the code of the first (RFC 959 section
//! 4.2).

use crate::{FtpError, error::excerpt, number};

/// Maximum lines of a stored reply. Listings are passed on line by line.
pub const MAX_REPLY_LINES: usize = 4096;
/// Maximum bytes of a stored reply.
pub const MAX_REPLY_BYTES: usize = 1024 * 1024;

/// A complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtpReply {
    /// Three-digit code.
    pub code: u16,
    /// Text of each line, without code. At least one.
    pub lines: Vec<Vec<u8>>,
}

impl FtpReply {
    /// Creates a reply of one line.
    #[must_use]
    pub fn new(code: u16, text: impl Into<Vec<u8>>) -> Self {
        Self {
            code,
            lines: vec![text.into()],
        }
    }

    /// Creates a reply of several lines and appends the last line `End.`.
    #[must_use]
    pub fn block(code: u16, lines: Vec<Vec<u8>>) -> Self {
        let mut lines = lines;
        lines.push(b"End.".to_vec());
        Self { code, lines }
    }

    /// Returns the number in the reply to SIZE (RFC 3659, section 4).
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        let text = self.lines.last().filter(|_| self.is_success())?;
        number(text.trim_ascii())
    }

    /// Returns `true` if another reply to the same command follows (1xx).
    #[must_use]
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// Returns `true` if the command succeeded (2xx).
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code / 100 == 2
    }

    /// Returns `true` if the server waits for the next command of a sequence (3xx).
    #[must_use]
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }

    /// Returns `true` if the command failed, but can succeed when repeated (4xx).
    #[must_use]
    pub fn is_transient_failure(&self) -> bool {
        self.code / 100 == 4
    }

    /// Returns the error name of Globus servers, such as `PATH_NOT_FOUND`.
    #[must_use]
    pub fn globus_error(&self) -> Option<&str> {
        let line = self.field(b"GlobusError:")?;
        let line = std::str::from_utf8(line).ok()?;
        line.split(' ').find_map(|word| word.strip_prefix("c="))
    }

    /// Returns the text after `name` in the first line that starts with it.
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.lines.iter().find_map(|line| {
            let value = line.trim_ascii_start().strip_prefix(name)?;
            Some(value.trim_ascii())
        })
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let Some((last, before)) = self.lines.split_last() else {
            return Vec::new();
        };
        let mut bytes = inner_lines(self.code, before, true);
        push_line(&mut bytes, &format!("{:03} ", self.code), last);
        bytes
    }

    /// Returns all lines as inner lines, for a reply that continues.
    pub(crate) fn inner_lines(&self, with_first: bool) -> Vec<u8> {
        inner_lines(self.code, &self.lines, with_first)
    }
}

/// Writes inner lines with a leading space, so that they cannot be read as the last line.
fn inner_lines(code: u16, lines: &[Vec<u8>], with_first: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let first = with_first && index == 0;
        let prefix = if first {
            format!("{code:03}-")
        } else {
            " ".to_owned()
        };
        push_line(&mut bytes, &prefix, line);
    }
    bytes
}

fn push_line(bytes: &mut Vec<u8>, prefix: &str, line: &[u8]) {
    bytes.extend(prefix.bytes());
    bytes.extend(line.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')));
    bytes.extend(b"\r\n");
}

impl std::fmt::Display for FtpReply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.code)?;
        for line in self.lines.iter().take(6) {
            write!(formatter, " {}", excerpt(line))?;
        }
        Ok(())
    }
}

/// Role of a line within a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyLine {
    /// A line before the last.
    Inner(u16, Vec<u8>),
    /// The last, or only, line.
    Last(u16, Vec<u8>),
    /// A line outside of replies, such as the rest of the reply of Globus servers to `LANG fr`,
    /// which contains a line end.
    Noise,
}

/// Recognises replies line by line.
#[derive(Debug, Clone, Default)]
pub struct ReplyParser {
    /// Code of the current reply.
    code: Option<u16>,
}

impl ReplyParser {
    /// Classifies the next line.
    pub fn line(&mut self, line: &[u8]) -> ReplyLine {
        match (self.code, heading(line)) {
            (Some(code), Some((found, false))) if found == code => {
                self.code = None;
                ReplyLine::Last(code, text_after_code(line))
            }
            (Some(code), Some((found, true))) if found == code => {
                ReplyLine::Inner(code, text_after_code(line))
            }
            (Some(code), _) => {
                ReplyLine::Inner(code, line.strip_prefix(b" ").unwrap_or(line).to_vec())
            }
            (None, Some((code, false))) => ReplyLine::Last(code, text_after_code(line)),
            (None, Some((code, true))) => {
                self.code = Some(code);
                ReplyLine::Inner(code, text_after_code(line))
            }
            (None, None) => ReplyLine::Noise,
        }
    }
}

/// Returns the code, and `true` if more lines follow.
fn heading(line: &[u8]) -> Option<(u16, bool)> {
    let code: u16 = number(line.get(..3)?)?;
    let more = match line.get(3) {
        None | Some(b' ') => false,
        Some(b'-') => true,
        Some(_) => return None,
    };
    (100..700).contains(&code).then_some((code, more))
}

fn text_after_code(line: &[u8]) -> Vec<u8> {
    line.get(4..).unwrap_or_default().to_vec()
}

/// Result of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    /// Nothing yet.
    Nothing,
    /// A line of a listing, passed on immediately.
    Line(Vec<u8>),
    /// A complete reply.
    Reply(FtpReply),
}

/// Collects the lines of one reply.
#[derive(Debug, Default)]
pub struct ReplyCollector {
    parser: ReplyParser,
    lines: Vec<Vec<u8>>,
    bytes: usize,
}

impl ReplyCollector {
    /// Adds the next line. If `streamed`, passes on the lines of a successful reply after the
    /// first, since a listing can have a million.
    ///
    /// # Errors
    /// If more than [`MAX_REPLY_LINES`] lines or [`MAX_REPLY_BYTES`] must be stored.
    pub fn line(&mut self, line: &[u8], streamed: bool) -> Result<ReplyEvent, FtpError> {
        let (code, text, last) = match self.parser.line(line) {
            ReplyLine::Noise => return Ok(ReplyEvent::Nothing),
            ReplyLine::Inner(code, text) => (code, text, false),
            ReplyLine::Last(code, text) => (code, text, true),
        };
        if streamed && !last && !self.lines.is_empty() && code < 300 {
            return Ok(ReplyEvent::Line(text));
        }
        self.bytes += text.len();
        if self.lines.len() == MAX_REPLY_LINES || self.bytes > MAX_REPLY_BYTES {
            return Err(FtpError::Limit {
                context: "bytes of a reply",
                limit: MAX_REPLY_BYTES as u64,
            });
        }
        self.lines.push(text);
        if !last {
            return Ok(ReplyEvent::Nothing);
        }
        self.bytes = 0;
        let lines = std::mem::take(&mut self.lines);
        Ok(ReplyEvent::Reply(FtpReply { code, lines }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Vec<FtpReply> {
        let mut collector = ReplyCollector::default();
        bytes
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                match collector.line(line, false).unwrap() {
                    ReplyEvent::Reply(reply) => Some(reply),
                    _ => None,
                }
            })
            .collect()
    }

    #[test]
    fn only_the_first_code_with_a_space_ends_a_reply() {
        let text = b"250-status of x\r\n 250 looks like an end\r\n200 neither is this\r\n250-nor this\r\n250 End.\r\n";
        let [reply] = &parse(text)[..] else {
            panic!("one reply")
        };
        assert_eq!(reply.code, 250);
        let lines = [
            "status of x",
            "250 looks like an end",
            "200 neither is this",
            "nor this",
            "End.",
        ];
        assert_eq!(reply.lines, lines.map(|line| line.as_bytes().to_vec()));
    }

    #[test]
    fn a_line_end_within_a_reply_does_not_affect_the_next_reply() {
        let replies =
            parse(b"501 'LANG fr\r\n' unrecognized language.\r\n200 NOOP command successful.\r\n");
        assert_eq!(
            replies.iter().map(|reply| reply.code).collect::<Vec<_>>(),
            [501, 200]
        );
    }

    proptest! {
        #[test]
        fn replies_round_trip_through_text(
            code in 100_u16..700, lines in prop::collection::vec("[^\r\n]{0,20}", 1..6),
        ) {
            let lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
            let reply = FtpReply { code, lines };
            prop_assert_eq!(parse(&reply.write()), [reply]);
        }

        #[test]
        fn no_line_makes_the_parser_panic(lines: Vec<Vec<u8>>, streamed: bool) {
            let mut collector = ReplyCollector::default();
            for line in lines {
                let _ = collector.line(&line, streamed);
            }
        }
    }
}
