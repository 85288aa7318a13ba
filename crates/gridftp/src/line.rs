//! A control connection's bytes as lines, none longer than it may be.

/// Longest line of either side. Tokens of a GSI handshake come in one line, a chain of certificates in base64 among
/// them; everything else is far below.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// One line without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Its bytes.
    Whole(Vec<u8>),
    /// It was longer than [`MAX_LINE_BYTES`] and has been skipped.
    TooLong,
}

/// Collects bytes until they are a line. Lines end with LF, and a CR before it is dropped: some clients send LF alone.
///
/// Holds no more than one line and what was pushed since lines were last taken.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes before this are taken.
    start: usize,
    /// Bytes before this have no LF.
    searched: usize,
    skipping: bool,
}

impl LineBuffer {
    /// Adds what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that are held and not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a line can be taken.
    #[must_use]
    pub fn has_line(&self) -> bool {
        self.bytes[self.searched..].contains(&b'\n')
    }

    /// Whether the next line is there, and is what it is asked for.
    pub fn is_next(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let held = &self.bytes[self.start..];
        let end = held.iter().position(|&byte| byte == b'\n');
        end.is_some_and(|end| is(held[..end].strip_suffix(b"\r").unwrap_or(&held[..end])))
    }

    /// Takes the next line.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator that ends may not go on later; this one does"
    )]
    pub fn next(&mut self) -> Option<Line> {
        let Some(found) = self.bytes[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n')
        else {
            self.give_up_if_too_long();
            return None;
        };
        let end = self.searched + found;
        let line = &self.bytes[self.start..end];
        let too_long = self.skipping || line.len() > MAX_LINE_BYTES;
        let line = if too_long {
            Line::TooLong
        } else {
            Line::Whole(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        };
        self.skipping = false;
        self.start = end + 1;
        self.searched = self.start;
        Some(line)
    }

    fn give_up_if_too_long(&mut self) {
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

    fn lines(buffer: &mut LineBuffer) -> Vec<Line> {
        std::iter::from_fn(|| buffer.next()).collect()
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut() {
        let text = b"one\r\ntwo\n\r\nthree\r\nrest";
        let expected = [&b"one"[..], b"two", b"", b"three"].map(|line| Line::Whole(line.to_vec()));
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                buffer.push(piece);
                found.extend(lines(&mut buffer));
            }
            assert_eq!(found, expected, "pieces of {size}");
            assert_eq!(buffer.len(), 4);
        }
    }

    #[test]
    fn a_line_without_end_is_skipped_and_not_held() {
        let mut buffer = LineBuffer::default();
        for _ in 0..100 {
            buffer.push(&[b'x'; 10_000]);
            assert_eq!(buffer.next(), None);
            assert!(buffer.len() <= MAX_LINE_BYTES);
        }
        buffer.push(b"\nNOOP\r\n");
        assert_eq!(
            lines(&mut buffer),
            [Line::TooLong, Line::Whole(b"NOOP".to_vec())]
        );
    }
}
