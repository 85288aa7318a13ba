//! Incremental reader of one HTTP/1.x response (RFC 9112). It keeps no byte of the body.

use crate::FetchFailure;

/// Maximum response head: above the limits of servers (nginx and Squid stop at 64 KiB at most).
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum chunk-size line, including extensions.
const MAX_CHUNK_LINE_BYTES: usize = 4096;

/// Result of feeding bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseProgress {
    /// Bytes of the head and of framing.
    pub head_bytes: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Set if the response is complete. Later bytes belong to no request.
    pub complete: bool,
}

/// Reader of one response.
///
/// ```
/// use venturi_http_load::ResponseReader;
/// let mut response = ResponseReader::default();
/// let progress = response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
/// assert!(progress.complete && progress.body_bytes == 3 && response.keeps_alive());
/// ```
#[derive(Debug, Default)]
pub struct ResponseReader {
    state: ClientState,
    head: Vec<u8>,
    status: u16,
    body_bytes: u64,
    keeps_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ClientState {
    #[default]
    Head,
    /// Remaining body bytes.
    Sized(u64),
    /// The body ends with the connection.
    UntilClose,
    ChunkLine,
    Chunk(u64),
    /// Line break after a chunk: remaining bytes.
    ChunkEnd(u8),
    Trailer,
    Complete,
}

impl ResponseReader {
    /// Return the status; 0 before the head is complete.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Return the number of body bytes so far.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Return whether the connection is reusable after the response.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// Return whether no byte has arrived.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.state == ClientState::Head && self.head.is_empty()
    }

    /// Takes bytes that have arrived.
    ///
    /// # Errors
    /// [`FetchFailure::Malformed`] if the bytes are not HTTP, or the head is too large.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<ResponseProgress, FetchFailure> {
        let mut progress = ResponseProgress::default();
        while !bytes.is_empty() && self.state != ClientState::Complete {
            let (taken, is_body) = match self.state {
                ClientState::Head => (self.head_line(bytes)?, false),
                ClientState::Sized(left) => (self.sized(bytes, left), true),
                ClientState::UntilClose => (bytes.len(), true),
                ClientState::ChunkLine => (self.chunk_line(bytes)?, false),
                ClientState::Chunk(left) => (self.chunk(bytes, left), true),
                ClientState::ChunkEnd(left) => (self.chunk_end(bytes, left)?, false),
                ClientState::Trailer => (self.trailer_line(bytes)?, false),
                ClientState::Complete => unreachable!("the loop ends with it"),
            };
            *(if is_body {
                &mut progress.body_bytes
            } else {
                &mut progress.head_bytes
            }) += taken as u64;
            bytes = &bytes[taken..];
        }
        if !bytes.is_empty() {
            // More bytes than requested: the start of the next response is unknown.
            self.keeps_alive = false;
        }
        self.body_bytes += progress.body_bytes;
        progress.complete = self.state == ClientState::Complete;
        Ok(progress)
    }

    /// Handles the end of the connection; returns whether the response is complete.
    #[must_use]
    pub fn end(&mut self) -> bool {
        if self.state == ClientState::UntilClose {
            self.state = ClientState::Complete;
        }
        self.state == ClientState::Complete
    }

    fn head_line(&mut self, bytes: &[u8]) -> Result<usize, FetchFailure> {
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

    /// Buffers bytes of the current line; returns their number and whether the line has ended.
    fn line(&mut self, bytes: &[u8], limit: usize) -> Result<(usize, bool), FetchFailure> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |at| at + 1);
        if self.head.len() + taken > limit {
            return Err(FetchFailure::Malformed);
        }
        self.head.extend_from_slice(&bytes[..taken]);
        Ok((taken, end.is_some()))
    }

    fn read_head(&mut self, head: &[u8]) -> Result<ClientState, FetchFailure> {
        let text = std::str::from_utf8(head).map_err(|_| FetchFailure::Malformed)?;
        let mut lines = text.lines();
        let first = lines.next().ok_or(FetchFailure::Malformed)?;
        let (version, rest) = first.split_once(' ').ok_or(FetchFailure::Malformed)?;
        let code = rest.get(..3).ok_or(FetchFailure::Malformed)?;
        self.status = code.parse().map_err(|_| FetchFailure::Malformed)?;
        self.keeps_alive = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ => return Err(FetchFailure::Malformed),
        };
        let (mut length, mut chunked) = (None, false);
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(FetchFailure::Malformed)?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse().map_err(|_| FetchFailure::Malformed)?);
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

    /// End of the body (RFC 9112, section 6.3).
    fn after_head(&mut self, length: Option<u64>, chunked: bool) -> ClientState {
        match (self.status, chunked, length) {
            // Informational response (100, 103): another head follows.
            (100..=199, ..) => ClientState::Head,
            (204 | 304, ..) => ClientState::Complete,
            (_, true, _) => ClientState::ChunkLine,
            (_, false, Some(0)) => ClientState::Complete,
            (_, false, Some(length)) => ClientState::Sized(length),
            (_, false, None) => {
                self.keeps_alive = false;
                ClientState::UntilClose
            }
        }
    }

    fn sized(&mut self, bytes: &[u8], left: u64) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.state = match left - taken {
            0 => ClientState::Complete,
            left => ClientState::Sized(left),
        };
        taken as usize
    }

    fn chunk_line(&mut self, bytes: &[u8]) -> Result<usize, FetchFailure> {
        let (taken, ended) = self.line(bytes, MAX_CHUNK_LINE_BYTES)?;
        if ended {
            let line = std::mem::take(&mut self.head);
            let text = std::str::from_utf8(&line).map_err(|_| FetchFailure::Malformed)?;
            let digits = text.split([';', '\r', '\n']).next().unwrap_or("").trim();
            // `from_str_radix` would accept a sign.
            if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(FetchFailure::Malformed);
            }
            let size = u64::from_str_radix(digits, 16).map_err(|_| FetchFailure::Malformed)?;
            self.state = if size == 0 {
                ClientState::Trailer
            } else {
                ClientState::Chunk(size)
            };
        }
        Ok(taken)
    }

    fn chunk(&mut self, bytes: &[u8], left: u64) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.state = match left - taken {
            0 => ClientState::ChunkEnd(2),
            left => ClientState::Chunk(left),
        };
        taken as usize
    }

    fn chunk_end(&mut self, bytes: &[u8], left: u8) -> Result<usize, FetchFailure> {
        let expected = if left == 2 { b'\r' } else { b'\n' };
        if bytes[0] != expected {
            return Err(FetchFailure::Malformed);
        }
        self.state = if left == 2 {
            ClientState::ChunkEnd(1)
        } else {
            ClientState::ChunkLine
        };
        Ok(1)
    }

    fn trailer_line(&mut self, bytes: &[u8]) -> Result<usize, FetchFailure> {
        let (taken, ended) = self.line(bytes, MAX_HEAD_BYTES)?;
        if ended {
            let line = std::mem::take(&mut self.head);
            if line == b"\r\n" || line == b"\n" {
                self.state = ClientState::Complete;
            }
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
