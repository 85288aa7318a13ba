//! Splits the bytes of a control connection into lines of limited length.

/// Maximum bytes of a line of either side. Tokens of a GSI handshake occupy one line, including a
/// chain of certificates in base64. All other lines are much shorter.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// One line without line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FtpLine {
    /// Bytes of the line.
    Complete(Vec<u8>),
    /// A line longer than [`MAX_LINE_BYTES`]; skipped.
    TooLong,
}

/// Collects bytes into lines. A line ends with LF, and a CR before it is dropped, because some
/// clients send LF alone.
///
/// Holds at most one line plus the bytes pushed since lines were last taken.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes before this index are consumed.
    start: usize,
    /// Bytes before this index contain no LF.
    searched: usize,
    skipping: bool,
}

impl LineBuffer {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of buffered bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns `true` if the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if a line is available.
    #[must_use]
    pub fn has_line(&self) -> bool {
        self.bytes[self.searched..].contains(&b'\n')
    }

    /// Returns `true` if the next line is available and matches.
    pub fn is_next(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let buffered = &self.bytes[self.start..];
        let end = buffered.iter().position(|&byte| byte == b'\n');
        end.is_some_and(|end| {
            is(buffered[..end]
                .strip_suffix(b"\r")
                .unwrap_or(&buffered[..end]))
        })
    }

    /// Takes the next line.
    #[allow(
        clippy::should_implement_trait,
        reason = "a finished iterator must not continue later; this one can"
    )]
    pub fn next(&mut self) -> Option<FtpLine> {
        let Some(found) = self.bytes[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n')
        else {
            self.skip_if_too_long();
            return None;
        };
        let end = self.searched + found;
        let line = &self.bytes[self.start..end];
        let too_long = self.skipping || line.len() > MAX_LINE_BYTES;
        let line = if too_long {
            FtpLine::TooLong
        } else {
            FtpLine::Complete(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        };
        self.skipping = false;
        self.start = end + 1;
        self.searched = self.start;
        Some(line)
    }

    fn skip_if_too_long(&mut self) {
        self.searched = self.bytes.len();
        if self.len() > MAX_LINE_BYTES {
            self.skipping = true;
        }
        if self.skipping {
            self.bytes.clear();
            self.start = 0;
            self.searched = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(buffer: &mut LineBuffer) -> Vec<FtpLine> {
        std::iter::from_fn(|| buffer.next()).collect()
    }

    #[test]
    fn lines_are_independent_of_how_the_bytes_are_split() {
        let text = b"one\r\ntwo\n\r\nthree\r\nrest";
        let expected =
            [&b"one"[..], b"two", b"", b"three"].map(|line| FtpLine::Complete(line.to_vec()));
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::default();
            let mut found = Vec::new();
            for part in text.chunks(size) {
                buffer.push(part);
                found.extend(lines(&mut buffer));
            }
            assert_eq!(found, expected, "pieces of {size}");
            assert_eq!(buffer.len(), 4);
        }
    }

    #[test]
    fn a_line_without_end_is_skipped_and_not_buffered() {
        let mut buffer = LineBuffer::default();
        for _ in 0..100 {
            buffer.push(&[b'x'; 10_000]);
            assert_eq!(buffer.next(), None);
            assert!(buffer.len() <= MAX_LINE_BYTES);
        }
        buffer.push(b"\nNOOP\r\n");
        assert_eq!(
            lines(&mut buffer),
            [FtpLine::TooLong, FtpLine::Complete(b"NOOP".to_vec())]
        );
    }
}
