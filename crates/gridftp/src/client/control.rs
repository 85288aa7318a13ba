//! Pipelined commands and their replies, matched strictly in order, one final reply each.

use std::collections::VecDeque;

use crate::line::{FtpLine, LineBuffer};
use crate::reply::{FtpReply, ReplyCollector, ReplyEvent};
use crate::security::{Handshake, Security};
use crate::{FtpCommand, FtpError, MAX_LINE_BYTES, base64};

/// Maximum bytes of commands without a reply. The commands of one upload take 300 bytes, which
/// allows 20 000 files per second at 40 ms. A driver reads while it writes, so neither side blocks.
const MAX_FLIGHT_BYTES: usize = 256 * 1024;
/// Maximum commands without a reply. A server of the Globus toolkit that has more than 1000 to read
/// ends the session (`500 Pipeline queue full`, DEFAULT_MAX_Q_LEN in its control library); a group
/// can exceed this by a few.
const MAX_FLIGHT: usize = 900;
/// Maximum lines outside of replies, before the peer is considered not to be an FTP server.
const MAX_NOISE_LINES: usize = 1000;

/// Maximum tokens of a handshake; TLS with delegation takes five.
const MAX_TOKENS: u64 = 32;

/// A reply or line, with the tag of its command.
#[derive(Debug)]
pub(super) enum MatchedReply<T> {
    Preliminary(T, FtpReply),
    Line(T, Vec<u8>),
    Final(T, FtpReply),
}

#[derive(Debug)]
struct Pending<T> {
    tag: T,
    bytes: usize,
    streamed: bool,
    transfers: bool,
}

/// Commands that must be sent without others between them.
pub(super) type Group<T> = Vec<(T, FtpCommand)>;

pub(super) struct CommandPipeline<T> {
    lines: LineBuffer,
    /// Lines inside protected replies.
    inner: LineBuffer,
    collector: ReplyCollector,
    queue: VecDeque<Group<T>>,
    flight: VecDeque<Pending<T>>,
    flight_bytes: usize,
    noise: usize,
    security: Option<Box<dyn Security>>,
    content: bool,
    tokens: u64,
    protected: bool,
    /// `true` if no command is sent during a transfer.
    serial_transfers: bool,
}

impl<T: Clone> CommandPipeline<T> {
    /// Creates a pipeline that awaits the greeting.
    pub fn new(greeting: T, security: Option<Box<dyn Security>>) -> Self {
        let greeting = Pending {
            tag: greeting,
            bytes: 0,
            streamed: false,
            transfers: false,
        };
        Self {
            lines: LineBuffer::default(),
            inner: LineBuffer::default(),
            collector: ReplyCollector::default(),
            queue: VecDeque::new(),
            flight: VecDeque::from([greeting]),
            flight_bytes: 0,
            noise: 0,
            security,
            content: false,
            tokens: 0,
            protected: false,
            serial_transfers: false,
        }
    }

    pub fn submit(&mut self, group: Group<T>) {
        self.queue.push_back(group);
    }

    /// Retracts commands that are not sent yet.
    pub fn retract(&mut self, is_void: impl Fn(&T) -> bool) -> Vec<T> {
        let (void, kept) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|group| group.iter().any(|(tag, _)| is_void(tag)));
        self.queue = kept;
        let void: VecDeque<Group<T>> = void;
        void.into_iter().flatten().map(|(tag, _)| tag).collect()
    }

    /// Returns `true` if a reply or a command is pending.
    pub fn is_busy(&self) -> bool {
        !self.flight.is_empty() || !self.queue.is_empty()
    }

    pub fn mechanism(&self) -> Option<&'static str> {
        self.security.as_ref().map(|security| security.mechanism())
    }

    pub fn handshake(&mut self, token: Option<&[u8]>) -> Result<Handshake, FtpError> {
        match &mut self.security {
            Some(security) => {
                self.tokens += 1;
                if self.tokens > MAX_TOKENS {
                    return Err(FtpError::Limit {
                        context: "tokens of a handshake",
                        limit: MAX_TOKENS,
                    });
                }
                let result = security.step(token)?;
                self.content = result.done;
                Ok(result)
            }
            None => Err(FtpError::Security(
                "the server sent a token, but no security mechanism is set".to_owned(),
            )),
        }
    }

    pub fn security(&self) -> Option<&dyn Security> {
        self.security.as_deref()
    }

    /// Returns `true` if this side of the handshake is done.
    pub fn is_content(&self) -> bool {
        self.content
    }

    /// Protects all later commands and replies.
    pub fn protect(&mut self) {
        self.protected = true;
    }

    /// Sends no command between a transfer command and its final reply. A server can treat such a
    /// command as an unknown ABOR and discard it (Pure-FTPd, ProFTPD), or close the data connection
    /// (pyftpdlib).
    pub fn serialize_transfers(&mut self) {
        self.serial_transfers = true;
    }

    fn can_send(&self) -> bool {
        !(self.serial_transfers && self.flight.iter().any(|pending| pending.transfers))
    }

    pub fn is_protected(&self) -> bool {
        self.protected
    }

    /// Returns the bytes to write, within the limits of commands in flight.
    pub fn output(&mut self) -> Result<Vec<u8>, FtpError> {
        let mut bytes = Vec::new();
        while self.flight_bytes < MAX_FLIGHT_BYTES
            && self.flight.len() < MAX_FLIGHT
            && self.can_send()
            && let Some(group) = self.queue.pop_front()
        {
            let mut group = group.into_iter();
            // The rest of the group waits as well.
            while self.can_send()
                && let Some((tag, command)) = group.next()
            {
                let line = self.encode_line(&command)?;
                let streamed = matches!(command, FtpCommand::Mlsc(_) | FtpCommand::Stat(_));
                self.flight_bytes += line.len();
                self.flight.push_back(Pending {
                    tag,
                    bytes: line.len(),
                    streamed,
                    transfers: command.is_transfer(),
                });
                bytes.extend(line);
            }
            let rest: Group<T> = group.collect();
            if !rest.is_empty() {
                self.queue.push_front(rest);
            }
        }
        Ok(bytes)
    }

    fn encode_line(&mut self, command: &FtpCommand) -> Result<Vec<u8>, FtpError> {
        let mut line = command.text();
        line.extend(b"\r\n");
        if self.protected
            && let Some(security) = &mut self.security
        {
            line = FtpCommand::Enc(security.wrap(&line)?).text();
            line.extend(b"\r\n");
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(FtpError::Limit {
                context: "bytes of a command",
                limit: MAX_LINE_BYTES as u64,
            });
        }
        Ok(line)
    }

    /// Adds received bytes.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Returns the next reply or line. Call it until `None`: handling a reply can change the
    /// meaning of later lines.
    pub fn poll(&mut self) -> Result<Option<MatchedReply<T>>, FtpError> {
        loop {
            // Inner lines first: they are older than the waiting outer lines.
            let (line, inner) = match self.inner.next() {
                Some(line) => (line, true),
                None => match self.lines.next() {
                    Some(line) => (line, false),
                    None => return Ok(None),
                },
            };
            let FtpLine::Complete(line) = line else {
                return Err(FtpError::Limit {
                    context: "bytes of a line of the server",
                    limit: MAX_LINE_BYTES as u64,
                });
            };
            if self.protected && !inner {
                self.open_protected(&line)?;
            } else if let Some(matched) = self.line(&line)? {
                return Ok(Some(matched));
            }
        }
    }

    /// Handles a protected reply: `631`, `632` or `633`, a space or `-`, and base 64.
    fn open_protected(&mut self, line: &[u8]) -> Result<(), FtpError> {
        let token = line
            .strip_prefix(b"63")
            .and_then(|rest| rest.split_first_chunk::<2>())
            .filter(|([digit, mark], _)| (b'1'..=b'3').contains(digit) && b" -".contains(mark))
            .map(|(_, token)| token);
        // An unprotected reply is not trusted.
        let token = token.ok_or_else(|| FtpError::malformed("reply", "a protected one", line))?;
        let token = base64::decode(token.trim_ascii_end())?;
        if let Some(security) = &mut self.security {
            let mut plain = security.unwrap(&token)?;
            if !plain.ends_with(b"\n") {
                plain.extend(b"\r\n");
            }
            self.inner.push(&plain);
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<MatchedReply<T>>, FtpError> {
        let streamed = self.flight.front().is_some_and(|pending| pending.streamed);
        let reply = match self.collector.line(line, streamed)? {
            ReplyEvent::Nothing => {
                self.noise += 1;
                let over_limit = self.noise > MAX_NOISE_LINES + crate::MAX_REPLY_LINES;
                return if over_limit {
                    Err(FtpError::malformed(
                        "reply",
                        "three digits and a text",
                        line,
                    ))
                } else {
                    Ok(None)
                };
            }
            ReplyEvent::Line(text) => {
                return Ok(self
                    .flight
                    .front()
                    .map(|head| MatchedReply::Line(head.tag.clone(), text)));
            }
            ReplyEvent::Reply(reply) => reply,
        };
        self.noise = 0;
        // 421 belongs to no command: the server closes.
        if reply.code == 421 {
            return Err(FtpError::Closed {
                detail: format!(": {reply}"),
            });
        }
        let Some(head) = self.flight.front() else {
            return Err(FtpError::Order {
                expected: "a reply for each command",
                found: format!("one more: {reply}"),
            });
        };
        if reply.is_preliminary() {
            return Ok(Some(MatchedReply::Preliminary(head.tag.clone(), reply)));
        }
        self.flight_bytes -= head.bytes;
        let head = self.flight.pop_front();
        Ok(head.map(|head| MatchedReply::Final(head.tag, reply)))
    }
}
