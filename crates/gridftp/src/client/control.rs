//! Commands written ahead of their replies, and replies matched to them: strictly in order, one final reply each.

use std::collections::VecDeque;

use crate::line::{Line, LineBuffer};
use crate::reply::{Collected, Reply, ReplyCollector};
use crate::security::{Handshake, Security};
use crate::{Command, Error, MAX_LINE_BYTES, base64};

/// Most bytes of commands without a reply: what names a file in an upload takes 300 bytes, so that 20 000 files a second go at 40 ms. A
/// driver reads while it writes, and so no side waits for the other to read.
const MAX_FLIGHT_BYTES: usize = 256 * 1024;
/// Most commands without a reply. A server of the Globus toolkit that has more than 1000 to read ends the session (`500 Pipeline queue full`,
/// DEFAULT_MAX_Q_LEN in its control library); a group may go beyond this by a few.
const MAX_FLIGHT: usize = 900;
/// Most lines that belong to no reply, before the other side is taken for something else than an FTP server.
const MAX_NOISE_LINES: usize = 1000;

/// Most tokens of a handshake; TLS with delegation takes five.
const MAX_TOKENS: u64 = 32;

/// What was heard, and of which command.
#[derive(Debug)]
pub(super) enum Heard<T> {
    Preliminary(T, Reply),
    Line(T, Vec<u8>),
    Final(T, Reply),
}

#[derive(Debug)]
struct Pending<T> {
    tag: T,
    bytes: usize,
    streamed: bool,
    transfers: bool,
}

/// Commands that must follow each other without another between them.
pub(super) type Group<T> = Vec<(T, Command)>;

pub(super) struct Control<T> {
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
    /// Whether nothing is said while a transfer is under way.
    keeps_step: bool,
}

impl<T: Clone> Control<T> {
    /// A connection on which the reply to no command, the greeting, is awaited.
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
            keeps_step: false,
        }
    }

    pub fn submit(&mut self, group: Group<T>) {
        self.queue.push_back(group);
    }

    /// Takes back what is not written yet.
    pub fn retract(&mut self, is_void: impl Fn(&T) -> bool) -> Vec<T> {
        let (void, kept) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|group| group.iter().any(|(tag, _)| is_void(tag)));
        self.queue = kept;
        let void: VecDeque<Group<T>> = void;
        void.into_iter().flatten().map(|(tag, _)| tag).collect()
    }

    /// Whether a reply is awaited, or a command to be written.
    pub fn is_busy(&self) -> bool {
        !self.flight.is_empty() || !self.queue.is_empty()
    }

    pub fn mechanism(&self) -> Option<&'static str> {
        self.security.as_ref().map(|security| security.mechanism())
    }

    pub fn handshake(&mut self, token: Option<&[u8]>) -> Result<Handshake, Error> {
        match &mut self.security {
            Some(security) => {
                self.tokens += 1;
                if self.tokens > MAX_TOKENS {
                    return Err(Error::Limit {
                        place: "tokens of a handshake",
                        limit: MAX_TOKENS,
                    });
                }
                let said = security.step(token)?;
                self.content = said.done;
                Ok(said)
            }
            None => Err(Error::Security("a token without a mechanism".to_owned())),
        }
    }

    pub fn security(&self) -> Option<&dyn Security> {
        self.security.as_deref()
    }

    /// Whether this side of the handshake is done.
    pub fn is_content(&self) -> bool {
        self.content
    }

    /// From here on every command and reply is protected.
    pub fn protect(&mut self) {
        self.protected = true;
    }

    /// From here on nothing is said between a command that moves bytes and its last reply: a server may take it for an ABOR that it does not know, and
    /// throw it away (Pure-FTPd, ProFTPD), or close the data connection for it (pyftpdlib).
    pub fn keep_step(&mut self) {
        self.keeps_step = true;
    }

    fn may_speak(&self) -> bool {
        !(self.keeps_step && self.flight.iter().any(|pending| pending.transfers))
    }

    pub fn is_protected(&self) -> bool {
        self.protected
    }

    /// Bytes to write, as far as commands in flight allow.
    pub fn output(&mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while self.flight_bytes < MAX_FLIGHT_BYTES
            && self.flight.len() < MAX_FLIGHT
            && self.may_speak()
            && let Some(group) = self.queue.pop_front()
        {
            let mut group = group.into_iter();
            // What is left of it waits as well.
            while self.may_speak()
                && let Some((tag, command)) = group.next()
            {
                let line = self.line_of(&command)?;
                let streamed = matches!(command, Command::Mlsc(_) | Command::Stat(_));
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

    fn line_of(&mut self, command: &Command) -> Result<Vec<u8>, Error> {
        let mut line = command.text();
        line.extend(b"\r\n");
        if self.protected
            && let Some(security) = &mut self.security
        {
            line = Command::Enc(security.wrap(&line)?).text();
            line.extend(b"\r\n");
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(Error::Limit {
                place: "bytes of a command",
                limit: MAX_LINE_BYTES as u64,
            });
        }
        Ok(line)
    }

    /// Takes what came.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next thing that was heard. To be called until there is nothing: whoever acts on a reply may change what the
    /// lines behind it mean.
    pub fn poll(&mut self) -> Result<Option<Heard<T>>, Error> {
        loop {
            // Inner lines first: they came before the outer ones that still wait.
            let (line, inner) = match self.inner.next() {
                Some(line) => (line, true),
                None => match self.lines.next() {
                    Some(line) => (line, false),
                    None => return Ok(None),
                },
            };
            let Line::Whole(line) = line else {
                return Err(Error::Limit {
                    place: "bytes of a line of the server",
                    limit: MAX_LINE_BYTES as u64,
                });
            };
            if self.protected && !inner {
                self.open_protected(&line)?;
            } else if let Some(heard) = self.line(&line)? {
                return Ok(Some(heard));
            }
        }
    }

    /// `631`, `632` or `633`, a space or `-`, and base 64.
    fn open_protected(&mut self, line: &[u8]) -> Result<(), Error> {
        let token = line
            .strip_prefix(b"63")
            .and_then(|rest| rest.split_first_chunk::<2>())
            .filter(|([digit, mark], _)| (b'1'..=b'3').contains(digit) && b" -".contains(mark))
            .map(|(_, token)| token);
        // A reply that anybody on the way could have written is not believed, whatever it says.
        let token = token.ok_or_else(|| Error::malformed("reply", "a protected one", line))?;
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

    fn line(&mut self, line: &[u8]) -> Result<Option<Heard<T>>, Error> {
        let streamed = self.flight.front().is_some_and(|pending| pending.streamed);
        let reply = match self.collector.line(line, streamed)? {
            Collected::Nothing => {
                self.noise += 1;
                let too_much = self.noise > MAX_NOISE_LINES + crate::MAX_REPLY_LINES;
                return if too_much {
                    Err(Error::malformed("reply", "three digits and a text", line))
                } else {
                    Ok(None)
                };
            }
            Collected::Line(text) => {
                return Ok(self
                    .flight
                    .front()
                    .map(|head| Heard::Line(head.tag.clone(), text)));
            }
            Collected::Reply(reply) => reply,
        };
        self.noise = 0;
        // 421 answers no command: the server goes.
        if reply.code == 421 {
            return Err(Error::Closed {
                detail: format!(": {reply}"),
            });
        }
        let Some(head) = self.flight.front() else {
            return Err(Error::Order {
                expected: "a reply for each command",
                found: format!("one more: {reply}"),
            });
        };
        if reply.is_preliminary() {
            return Ok(Some(Heard::Preliminary(head.tag.clone(), reply)));
        }
        self.flight_bytes -= head.bytes;
        let head = self.flight.pop_front();
        Ok(head.map(|head| Heard::Final(head.tag, reply)))
    }
}
