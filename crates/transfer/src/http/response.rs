//! HTTP response with a parsed head and an unread body.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::connect::{HttpConnection, InFlightGuard};
use super::exchange::HttpClient;
use super::request_error::{RequestError, broken};
use super::target::HttpTarget;
use super::wait::{TICK, within};
use crate::net::tcp_info;

/// Timeout for the next bytes of a body.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum bytes of an error body that are read for its message.
const MAX_ERROR_BODY_LEN: usize = 16 << 10;

/// Response with an unread body. A partially read response closes its connection.
pub(crate) struct HttpResponse {
    pub(crate) head: response::Parts,
    /// Final URL after all redirections.
    pub(crate) from: HttpTarget,
    body: Incoming,
    sender: HttpConnection,
    _in_flight: InFlightGuard,
    home: Rc<HttpClient>,
}

impl HttpResponse {
    pub(super) fn new(
        (head, body): (response::Parts, Incoming),
        from: HttpTarget,
        (sender, in_flight): (HttpConnection, InFlightGuard),
        home: Rc<HttpClient>,
    ) -> Self {
        Self {
            head,
            from,
            body,
            sender,
            _in_flight: in_flight,
            home,
        }
    }

    /// Return the next bytes of the body; none at its end.
    ///
    /// # Errors
    /// The connection breaks before the end.
    pub(crate) async fn bytes(&mut self) -> Result<Option<Bytes>, RequestError> {
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

    /// Return the TCP information of the connection, and whether packets were lost since the last call.
    pub(super) fn tcp_snapshot(&mut self) -> Option<(tcp_info::TcpSnapshot, bool)> {
        self.sender.tcp_snapshot()
    }

    /// Return the complete body, limited to this many bytes.
    ///
    /// # Errors
    /// A longer body, or a broken connection.
    pub(crate) async fn text(mut self, limit: usize) -> Result<Vec<u8>, RequestError> {
        let mut text = Vec::new();
        while let Some(bytes) = self.bytes().await? {
            if text.len() + bytes.len() > limit {
                return Err(RequestError::UnexpectedResponse {
                    expected: "a response that fits into memory",
                    found: format!("more than {limit} bytes"),
                });
            }
            text.extend_from_slice(&bytes);
        }
        self.finish().await;
        Ok(text)
    }

    /// Allow reuse of the connection if few or no bytes of the body remain.
    pub(crate) async fn finish(mut self) {
        let mut remaining = MAX_ERROR_BODY_LEN;
        while let Ok(Some(bytes)) = self.bytes().await {
            remaining = match remaining.checked_sub(bytes.len()) {
                Some(remaining) => remaining,
                None => return,
            };
        }
        // Ready as soon as its task has seen the end, unless the server closes the connection or
        // stopped reading the request body.
        if timeout(TICK, self.sender.ready())
            .await
            .is_ok_and(|ready| ready.is_ok())
        {
            self.home.connections.keep(&self.from.server, self.sender);
        }
    }

    /// Return the length of the file in the body; none for chunked encoding.
    ///
    /// # Errors
    /// If only the end of the connection ends the body, because a truncated body would look complete.
    pub(crate) fn file_length(&self) -> Result<Option<u64>, RequestError> {
        let length = self.length();
        if length.is_some() || self.head.headers.contains_key(TRANSFER_ENCODING) {
            return Ok(length);
        }
        Err(RequestError::UnexpectedResponse {
            expected: "a body of known length (Content-Length, or chunks)",
            found: "a body that ends when the connection closes".into(),
        })
    }

    /// Return the declared length of the body.
    pub(crate) fn length(&self) -> Option<u64> {
        self.field(&CONTENT_LENGTH)?.parse().ok()
    }

    /// Return a field of the head as text.
    pub(crate) fn field(&self, name: &http::HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// Return the error of an unsuccessful response.
    pub(crate) async fn reason_to_stop(mut self) -> RequestError {
        let status = self.head.status;
        let after = self.field(&RETRY_AFTER).and_then(requested);
        let mut text = Vec::new();
        while let Ok(Some(bytes)) = self.bytes().await {
            text.extend_from_slice(&bytes[..bytes.len().min(MAX_ERROR_BODY_LEN - text.len())]);
            if text.len() == MAX_ERROR_BODY_LEN {
                break;
            }
        }
        if text.len() < MAX_ERROR_BODY_LEN {
            self.finish().await;
        }
        RequestError::Status {
            status,
            message: first_line(&text),
            after,
        }
    }
}

/// Return the wait that a server requests (RFC 9110, section 10.2.3): seconds, or until a time.
fn requested(text: &str) -> Option<Duration> {
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

/// Return the first line of a readable text; empty for HTML.
pub(crate) fn first_line(text: &[u8]) -> String {
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
