//! One HTTP/1.x response, read as it comes; no byte of the body is kept. RFC 9112.

use crate::Failure;

/// The longest head that is read: larger than what servers send (nginx and Squid stop at 64 KiB at most).
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The longest line that tells the size of a chunk, its extensions included.
const MAX_CHUNK_LINE_BYTES: usize = 4096;

/// What came of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Of the head and of framing.
    pub head_bytes: u64,
    /// Of the body.
    pub body_bytes: u64,
    /// Whether the response is whole; what comes after it belongs to no response that was asked for.
    pub whole: bool,
}

/// A response being read.
///
/// ```
/// use venturi_load::Response;
/// let mut response = Response::default();
/// let progress = response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
/// assert!(progress.whole && progress.body_bytes == 3 && response.keeps_alive());
/// ```
#[derive(Debug, Default)]
pub struct Response {
    state: State,
    head: Vec<u8>,
    status: u16,
    body_bytes: u64,
    keeps_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Head,
    /// So many bytes of the body are to come.
    Sized(u64),
    /// The body ends with the connection.
    ToTheEnd,
    ChunkLine,
    Chunk(u64),
    /// The line break after a chunk: so many bytes of it are to come.
    ChunkEnd(u8),
    Trailer,
    Whole,
}

impl Response {
    /// The status, 0 before the head is whole.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of the body so far.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether the connection can be used again once the response is whole.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// Whether nothing has come yet.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.state == State::Head && self.head.is_empty()
    }

    /// Takes bytes that have arrived.
    ///
    /// # Errors
    /// [`Failure::Malformed`] where they are no HTTP, or more of a head than is read.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Progress, Failure> {
        let mut progress = Progress::default();
        while !bytes.is_empty() && self.state != State::Whole {
            let (taken, is_body) = match self.state {
                State::Head => (self.head_line(bytes)?, false),
                State::Sized(left) => (self.sized(bytes, left), true),
                State::ToTheEnd => (bytes.len(), true),
                State::ChunkLine => (self.chunk_line(bytes)?, false),
                State::Chunk(left) => (self.chunk(bytes, left), true),
                State::ChunkEnd(left) => (self.chunk_end(bytes, left)?, false),
                State::Trailer => (self.trailer_line(bytes)?, false),
                State::Whole => unreachable!("the loop ends with it"),
            };
            *(if is_body {
                &mut progress.body_bytes
            } else {
                &mut progress.head_bytes
            }) += taken as u64;
            bytes = &bytes[taken..];
        }
        if !bytes.is_empty() {
            // More than was asked for: where the next response would begin is not known.
            self.keeps_alive = false;
        }
        self.body_bytes += progress.body_bytes;
        progress.whole = self.state == State::Whole;
        Ok(progress)
    }

    /// The connection has ended: whether the response is whole with that.
    #[must_use]
    pub fn end(&mut self) -> bool {
        if self.state == State::ToTheEnd {
            self.state = State::Whole;
        }
        self.state == State::Whole
    }

    fn head_line(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let (taken, line) = self.line(bytes, MAX_HEAD_BYTES)?;
        if line
            && self.head.ends_with(b"\n")
            && (self.head.ends_with(b"\r\n\r\n") || self.head.ends_with(b"\n\n"))
        {
            let head = std::mem::take(&mut self.head);
            self.state = self.read_head(&head)?;
        }
        Ok(taken)
    }

    /// Keeps what belongs to the line that has begun; tells how much, and whether the line has ended.
    fn line(&mut self, bytes: &[u8], limit: usize) -> Result<(usize, bool), Failure> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |at| at + 1);
        if self.head.len() + taken > limit {
            return Err(Failure::Malformed);
        }
        self.head.extend_from_slice(&bytes[..taken]);
        Ok((taken, end.is_some()))
    }

    fn read_head(&mut self, head: &[u8]) -> Result<State, Failure> {
        let text = std::str::from_utf8(head).map_err(|_| Failure::Malformed)?;
        let mut lines = text.lines();
        let first = lines.next().ok_or(Failure::Malformed)?;
        let (version, rest) = first.split_once(' ').ok_or(Failure::Malformed)?;
        let code = rest.get(..3).ok_or(Failure::Malformed)?;
        self.status = code.parse().map_err(|_| Failure::Malformed)?;
        self.keeps_alive = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ => return Err(Failure::Malformed),
        };
        let (mut length, mut chunked) = (None, false);
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(Failure::Malformed)?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse().map_err(|_| Failure::Malformed)?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.to_ascii_lowercase().ends_with("chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                self.keeps_alive = match value.to_ascii_lowercase().as_str() {
                    "close" => false,
                    "keep-alive" => true,
                    _ => self.keeps_alive,
                };
            }
        }
        Ok(self.after_head(length, chunked))
    }

    /// RFC 9112, section 6.3: what ends the body.
    fn after_head(&mut self, length: Option<u64>, chunked: bool) -> State {
        match (self.status, chunked, length) {
            // Not the answer yet (100, 103): another head follows.
            (100..=199, ..) => State::Head,
            (204 | 304, ..) => State::Whole,
            (_, true, _) => State::ChunkLine,
            (_, false, Some(0)) => State::Whole,
            (_, false, Some(length)) => State::Sized(length),
            (_, false, None) => {
                self.keeps_alive = false;
                State::ToTheEnd
            }
        }
    }

    fn sized(&mut self, bytes: &[u8], left: u64) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.state = match left - taken {
            0 => State::Whole,
            left => State::Sized(left),
        };
        taken as usize
    }

    fn chunk_line(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let (taken, ended) = self.line(bytes, MAX_CHUNK_LINE_BYTES)?;
        if ended {
            let line = std::mem::take(&mut self.head);
            let text = std::str::from_utf8(&line).map_err(|_| Failure::Malformed)?;
            let digits = text.split([';', '\r', '\n']).next().unwrap_or("").trim();
            // `from_str_radix` would take a sign.
            if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(Failure::Malformed);
            }
            let size = u64::from_str_radix(digits, 16).map_err(|_| Failure::Malformed)?;
            self.state = if size == 0 {
                State::Trailer
            } else {
                State::Chunk(size)
            };
        }
        Ok(taken)
    }

    fn chunk(&mut self, bytes: &[u8], left: u64) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.state = match left - taken {
            0 => State::ChunkEnd(2),
            left => State::Chunk(left),
        };
        taken as usize
    }

    fn chunk_end(&mut self, bytes: &[u8], left: u8) -> Result<usize, Failure> {
        let expected = if left == 2 { b'\r' } else { b'\n' };
        if bytes[0] != expected {
            return Err(Failure::Malformed);
        }
        self.state = if left == 2 {
            State::ChunkEnd(1)
        } else {
            State::ChunkLine
        };
        Ok(1)
    }

    fn trailer_line(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let (taken, ended) = self.line(bytes, MAX_HEAD_BYTES)?;
        if ended {
            let line = std::mem::take(&mut self.head);
            if line == b"\r\n" || line == b"\n" {
                self.state = State::Whole;
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
