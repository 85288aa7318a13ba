//! HTTP requests of file operations: one attempt each, with a limit for every wait.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::mpsc;

use super::content::{BLOCK_BYTES, Checksums, NewFile};
use super::error::FileError;
use super::s3_listing::parse_error;
use super::servers::Context;
use crate::http::connect::Dialer;
use crate::http::exchange::{HttpClient, HttpRequest};
use crate::http::outgoing::{Blocks, OutgoingBody};
use crate::http::proxy::Through;
use crate::http::put::SENT_AT_ONCE;
use crate::http::request_error::RequestError;
use crate::http::response::{HttpResponse, first_line};
use crate::http::target::HttpTarget;
use crate::http::wait::within;
use crate::net::sockets::Tcp;
use crate::stop::CancelToken;

/// Maximum bytes of a response in memory.
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// Maximum bytes of an error response that are read for its message.
const MAX_ERROR_BYTES: usize = 16 << 10;
/// Statuses whose responses are read for their messages.
const ERRORS: [StatusCode; 16] = [
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::CONFLICT,
    StatusCode::GONE,
    StatusCode::LENGTH_REQUIRED,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::NOT_IMPLEMENTED,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::INSUFFICIENT_STORAGE,
];
/// Blocks between generator and network.
const BLOCKS: usize = 4;

/// Requests to servers with the same credentials.
pub(super) struct HttpRequests {
    context: Context,
    client: Rc<HttpClient>,
    stop: CancelToken,
}

/// Response with its body.
pub(super) struct CompleteResponse {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// Head of a response.
pub(super) struct Head {
    pub(super) fields: HeaderMap,
    pub(super) length: Option<u64>,
    pub(super) modified_s: Option<i64>,
    /// True if the server has redirected the request to a directory.
    pub(super) is_directory: bool,
}

impl HttpRequests {
    /// Return a client that adds these fields to requests, but not to redirected requests for other servers.
    ///
    /// # Errors
    /// An unusable certificate, or no trusted CA.
    pub(super) fn new(context: Context, tls: bool, secrets: HeaderMap) -> Result<Self, FileError> {
        let stop = CancelToken::default();
        let tls = tls.then(|| context.tls()).transpose()?;
        let dialer =
            Dialer::new(tls, Tcp::default(), stop.clone()).through(Through::Environment.proxies());
        Ok(Self {
            client: HttpClient::new(dialer, secrets),
            context,
            stop,
        })
    }

    /// Send a request with a short body, and return the complete response.
    pub(super) fn send(
        &self,
        target: &HttpTarget,
        method: Method,
        fields: HeaderMap,
        body: Bytes,
    ) -> Result<CompleteResponse, FileError> {
        let limit = self.context.timeout;
        self.run(async {
            let body = || OutgoingBody::Whole(body.clone());
            let request = HttpRequest {
                body: &body,
                timeout: limit,
                ..HttpRequest::plain(method, fields)
            };
            let response = self.start(target, &request).await?;
            let status = response.head.status;
            let body = self.text(response, MAX_RESPONSE_BYTES).await?;
            Ok(CompleteResponse { status, body })
        })
    }

    /// Return the head of a file.
    pub(super) fn head(
        &self,
        target: &HttpTarget,
        mut fields: HeaderMap,
    ) -> Result<Head, FileError> {
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let limit = self.context.timeout;
        self.run(async {
            let request = HttpRequest {
                timeout: limit,
                ..HttpRequest::plain(Method::HEAD, fields)
            };
            let response = self.start(target, &request).await?;
            let modified = response.field(&LAST_MODIFIED);
            let modified = modified.and_then(|text| httpdate::parse_http_date(text).ok());
            let head = Head {
                fields: response.head.headers.clone(),
                length: response.length(),
                modified_s: modified.and_then(seconds),
                is_directory: response
                    .from
                    .path
                    .split('?')
                    .next()
                    .is_some_and(|path| path.ends_with('/')),
            };
            response.finish().await;
            Ok(head)
        })
    }

    /// Pass the content of a file to `sink`.
    pub(super) fn get(
        &self,
        target: &HttpTarget,
        mut fields: HeaderMap,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), FileError> {
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let limit = self.context.timeout;
        self.run(async {
            let request = HttpRequest {
                timeout: limit,
                ..HttpRequest::plain(Method::GET, fields)
            };
            let mut response = self.start(target, &request).await?;
            response.file_length()?;
            while let Some(bytes) = self.next(&mut response).await? {
                sink(&bytes);
            }
            response.finish().await;
            Ok(())
        })
    }

    /// Write a file, with the fields of [`upload_fields`].
    pub(super) fn put(
        &self,
        target: &HttpTarget,
        fields: HeaderMap,
        file: &NewFile,
    ) -> Result<Option<Checksums>, FileError> {
        let limit = self.context.timeout;
        let results = RefCell::new(None);
        self.run(async {
            let body = || {
                let (body, result) = body(file);
                // A repeated request starts again.
                *results.borrow_mut() = Some(result);
                body
            };
            let request = HttpRequest {
                body: &body,
                expects: file.size_bytes > SENT_AT_ONCE,
                timeout: limit,
                ..HttpRequest::plain(Method::PUT, fields)
            };
            let response = self.client.once(target, &request, &ERRORS).await?;
            self.accepted(response).await?.finish().await;
            Ok(())
        })?;
        // The generator ends after the last byte, or when the body was dropped.
        let result = results
            .take()
            .and_then(|result| result.recv_timeout(limit).ok());
        result.ok_or_else(|| {
            RequestError::UnexpectedResponse {
                expected: "the server to accept all bytes",
                found: "a success response before the last byte".into(),
            }
            .into()
        })
    }

    /// Write bytes, and return the fields of the response.
    pub(super) fn put_bytes(
        &self,
        target: &HttpTarget,
        fields: HeaderMap,
        bytes: Bytes,
    ) -> Result<HeaderMap, FileError> {
        let limit = self.context.timeout;
        self.run(async {
            let body = || stream(&bytes);
            let request = HttpRequest {
                body: &body,
                timeout: limit,
                ..HttpRequest::plain(Method::PUT, fields)
            };
            let response = self.client.once(target, &request, &ERRORS).await?;
            let response = self.accepted(response).await?;
            let fields = response.head.headers.clone();
            response.finish().await;
            Ok(fields)
        })
    }

    fn run<T>(&self, work: impl Future<Output = Result<T, FileError>>) -> Result<T, FileError> {
        self.context.runtime.run(work)
    }

    /// Send a request with a short body, and wait for the head of the response.
    async fn start(
        &self,
        target: &HttpTarget,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, FileError> {
        let sent = self.client.once(target, request, &ERRORS);
        let response = within(&self.stop, self.context.timeout, sent).await??;
        self.accepted(response).await
    }

    /// Return a response without an error status.
    async fn accepted(&self, response: HttpResponse) -> Result<HttpResponse, FileError> {
        let status = response.head.status;
        if !ERRORS.contains(&status) {
            return Ok(response);
        }
        // A message that is too long or incomplete is omitted.
        let text = self
            .text(response, MAX_ERROR_BYTES)
            .await
            .unwrap_or_default();
        let message = match parse_error(&text) {
            Some((code, message)) => format!("{code}: {message}"),
            None => first_line(&text),
        };
        Err(FileError::status(status, &message))
    }

    /// Return the complete body of a response.
    async fn text(&self, mut response: HttpResponse, limit: usize) -> Result<Vec<u8>, FileError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next(&mut response).await? {
            if body.len() + bytes.len() > limit {
                return Err(RequestError::UnexpectedResponse {
                    expected: "a response that fits into memory",
                    found: format!("more than {limit} bytes"),
                }
                .into());
            }
            body.extend_from_slice(&bytes);
        }
        response.finish().await;
        Ok(body)
    }

    async fn next(&self, response: &mut HttpResponse) -> Result<Option<Bytes>, FileError> {
        Ok(within(&self.stop, self.context.timeout, response.bytes()).await??)
    }
}

/// Return the fields of an upload that must not overwrite a file. Servers that ignore the condition were queried before.
pub(super) fn upload_fields(size_bytes: u64) -> HeaderMap {
    HeaderMap::from_iter([
        (
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (IF_NONE_MATCH, HeaderValue::from_static("*")),
        // Also for an empty file, because nginx requires it.
        (CONTENT_LENGTH, HeaderValue::from(size_bytes)),
    ])
}

/// Return the body of an upload, and the receiver of its checksums.
fn body(file: &NewFile) -> (OutgoingBody, Receiver<Option<Checksums>>) {
    let (sums, result) = channel();
    let mut blocks = file.blocks();
    if file.size_bytes <= SENT_AT_ONCE {
        let most = usize::try_from(SENT_AT_ONCE).expect("it fits into memory");
        let bytes = blocks.next(most).unwrap_or_default();
        let _ = sums.send(blocks.checksums());
        return (OutgoingBody::Whole(bytes.into()), result);
    }
    let (sender, receiver) = mpsc::channel(BLOCKS);
    let generate = move || {
        while let Some(block) = blocks.next(BLOCK_BYTES) {
            if sender.blocking_send(Ok(block.into())).is_err() {
                return;
            }
        }
        let _ = sums.send(blocks.checksums());
    };
    let start = move || {
        std::thread::spawn(generate);
        receiver
    };
    let body = OutgoingBody::Stream {
        blocks: Blocks::OnDemand(Some(Box::new(start))),
        remaining: Some(file.size_bytes),
        gate: None,
    };
    (body, result)
}

/// Return bytes as a body in blocks that count as progress.
fn stream(bytes: &Bytes) -> OutgoingBody {
    let count = bytes.len().div_ceil(BLOCK_BYTES);
    let (sender, receiver) = mpsc::channel(count.max(1));
    for start in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let end = bytes.len().min(start + BLOCK_BYTES);
        let sent = sender.try_send(Ok(bytes.slice(start..end)));
        sent.expect("the channel has room for all blocks");
    }
    OutgoingBody::Stream {
        blocks: Blocks::Coming(receiver),
        remaining: Some(bytes.len() as u64),
        gate: None,
    }
}

/// Return a time in seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}
