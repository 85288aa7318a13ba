//! An answer: its head is there, its body is yet to be read.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::connect::{Sender, UnderWay};
use super::exchange::Exchange;
use super::fault::{Fault, broken};
use super::target::Target;
use super::wait::{TICK, within};
use crate::net::tcp_info;

/// How long a server may be silent within a body.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of a refusal that are read for its words.
const LONGEST_REFUSAL: usize = 16 << 10;

/// An answer whose body is yet to be read. One that is not read to its end takes its connection with it.
pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    /// Who gave it, after all redirections.
    pub(crate) from: Target,
    body: Incoming,
    sender: Sender,
    _under_way: UnderWay,
    home: Rc<Exchange>,
}

impl Answer {
    pub(super) fn new(
        (head, body): (response::Parts, Incoming),
        from: Target,
        (sender, under_way): (Sender, UnderWay),
        home: Rc<Exchange>,
    ) -> Self {
        Self {
            head,
            from,
            body,
            sender,
            _under_way: under_way,
            home,
        }
    }

    /// The next bytes of the body; none at its end.
    ///
    /// # Errors
    /// If the connection breaks before.
    pub(crate) async fn bytes(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let stop = self.home.connections.stop();
            match within(stop, SILENCE, self.body.frame()).await? {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// What the kernel tells of its connection, and whether packets were lost since that was asked last.
    pub(super) fn seen(&mut self) -> Option<(tcp_info::Seen, bool)> {
        self.sender.seen()
    }

    /// The whole body, if it is not longer than so many bytes.
    ///
    /// # Errors
    /// If it is, or the connection breaks.
    pub(crate) async fn text(mut self, limit: usize) -> Result<Vec<u8>, Fault> {
        let mut text = Vec::new();
        while let Some(bytes) = self.bytes().await? {
            if text.len() + bytes.len() > limit {
                return Err(Fault::Answer {
                    expected: "an answer that fits into memory",
                    found: format!("more than {limit} bytes"),
                });
            }
            text.extend_from_slice(&bytes);
        }
        self.finish().await;
        Ok(text)
    }

    /// Lets the connection be used again, if nothing or little of the body is left.
    pub(crate) async fn finish(mut self) {
        let mut left = LONGEST_REFUSAL;
        while let Ok(Some(bytes)) = self.bytes().await {
            left = match left.checked_sub(bytes.len()) {
                Some(left) => left,
                None => return,
            };
        }
        // Ready as soon as its task has seen the end; not if the server closes, or our own body was not wanted.
        if timeout(TICK, self.sender.ready())
            .await
            .is_ok_and(|ready| ready.is_ok())
        {
            self.home.connections.keep(&self.from.server, self.sender);
        }
    }

    /// The length of a file that is the body; none where it comes in chunks.
    ///
    /// # Errors
    /// If nothing but the end of the connection ends it: what is cut short looks whole then.
    pub(crate) fn file_length(&self) -> Result<Option<u64>, Fault> {
        let length = self.length();
        if length.is_some() || self.head.headers.contains_key(TRANSFER_ENCODING) {
            return Ok(length);
        }
        Err(Fault::Answer {
            expected: "bytes whose end is told (Content-Length, or chunks)",
            found: "that the connection ends, with all of them or some".into(),
        })
    }

    /// The length of the body, where it is told.
    pub(crate) fn length(&self) -> Option<u64> {
        self.field(&CONTENT_LENGTH)?.parse().ok()
    }

    /// A field of the head as text.
    pub(crate) fn field(&self, name: &http::HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// What a server says when it refuses.
    pub(crate) async fn refusal(mut self) -> Fault {
        let status = self.head.status;
        let after = self.field(&RETRY_AFTER).and_then(wanted);
        let mut text = Vec::new();
        while let Ok(Some(bytes)) = self.bytes().await {
            text.extend_from_slice(&bytes[..bytes.len().min(LONGEST_REFUSAL - text.len())]);
            if text.len() == LONGEST_REFUSAL {
                break;
            }
        }
        if text.len() < LONGEST_REFUSAL {
            self.finish().await;
        }
        Fault::Status {
            status,
            said: first_words(&text),
            after,
        }
    }
}

/// How long a server wants to be left alone (RFC 9110, section 10.2.3): seconds, or until a time.
fn wanted(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    Some(
        until
            .duration_since(SystemTime::now())
            .unwrap_or(Duration::ZERO),
    )
}

/// The first line of a text that people can read; of HTML, nothing.
fn first_words(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    if line.starts_with('<') {
        return String::new();
    }
    line.chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect()
}
