//! Copy of a file between two servers through this host, if neither server copies to or from
//! others.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::mpsc;

use super::exchange::{HttpClient, HttpRequest};
use super::list;
use super::outgoing::{Blocks, OutgoingBody};
use super::put::{SENT_AT_ONCE, counted, guard};
use super::request_error::RequestError;
use super::retry::RetryState;
use super::target::HttpTarget;
use super::third_party::ThirdPartyCopy;
use super::wait::TICK;
use super::work::HttpContext;

/// Maximum number of blocks in memory.
const BLOCKS: usize = 8;

/// Copy of a file through this host, streamed without a local file. Each attempt requests the source when the
/// destination wants the first byte, because the destination may redirect before.
pub(super) async fn through(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    size: Option<u64>,
    attempts: &Cell<u32>,
) -> Result<(), RequestError> {
    let mut fields = HeaderMap::new();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    guard(cx.order, &mut fields);
    let (count, feeding) = (Arc::new(AtomicU64::new(0)), Rc::new(Cell::new(None)));
    let body = || {
        attempts.set(attempts.get() + 1);
        let (exchange, from) = (Rc::clone(exchange), job.from.clone());
        let (count, feeding) = (Arc::clone(&count), Rc::clone(&feeding));
        let start = move || {
            let (sender, blocks) = mpsc::channel(BLOCKS);
            feeding.set(Some(tokio::task::spawn_local(async move {
                let fed = feed(&exchange, &from, size, &sender, &count).await;
                if fed.is_err() {
                    // Otherwise the destination would accept an incomplete file.
                    let _ = sender
                        .send(Err(std::io::ErrorKind::UnexpectedEof.into()))
                        .await;
                }
                fed
            })));
            blocks
        };
        OutgoingBody::Stream {
            blocks: Blocks::OnDemand(Some(Box::new(start))),
            remaining: size,
            gate: None,
        }
    };
    let request = HttpRequest {
        body: &body,
        expects: size.is_none_or(|size| size > SENT_AT_ONCE),
        ..HttpRequest::plain(Method::PUT, fields)
    };
    let mut failed = RetryState::default();
    let fed = loop {
        let sent = counted(cx, &count, exchange.once(&job.to, &request, &[])).await;
        let fed = feeding.take();
        match sent {
            Ok(response) => {
                response.finish().await;
                break fed;
            }
            Err(RequestError::Silence(waited)) => return Err(RequestError::Silence(waited)),
            Err(fault) => match why(fed).await {
                Some(source) => {
                    let again = failed.again(exchange, source).await;
                    again.map_err(|fault| RequestError::Local(fault.at(&job.from)))?;
                }
                None => failed.again(exchange, fault).await?,
            },
        }
    };
    let fault = match fed {
        // An empty file needs no request for its bytes.
        None if size == Some(0) => return Ok(()),
        None => early(),
        Some(fed) => match fed.await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Err(fault)) => RequestError::Local(fault.at(&job.from)),
            Ok(Ok(false)) | Err(_) => early(),
        },
    };
    // The destination does not have the expected content.
    list::remove(exchange, &job.to).await;
    Err(fault)
}

/// Feed an upload and return whether all bytes were accepted.
type Feeding = tokio::task::JoinHandle<Result<bool, RequestError>>;

fn early() -> RequestError {
    RequestError::UnexpectedResponse {
        expected: "the server to accept all bytes",
        found: "a success response before the last byte".into(),
    }
}

/// Return the error of the source that made an upload fail, if known by now.
async fn why(fed: Option<Feeding>) -> Option<RequestError> {
    let fed = tokio::time::timeout(TICK, fed?).await;
    fed.ok()?.ok()?.err()
}

/// Send the bytes of the source while the destination accepts them. Return whether it accepted all.
async fn feed(
    exchange: &Rc<HttpClient>,
    from: &HttpTarget,
    size: Option<u64>,
    sender: &mpsc::Sender<std::io::Result<Bytes>>,
    count: &AtomicU64,
) -> Result<bool, RequestError> {
    let mut fields = HeaderMap::new();
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    // One attempt, because the upload retries.
    let request = HttpRequest::plain(Method::GET, fields);
    let mut response = exchange.once(from, &request, &[]).await?;
    let reported = response.file_length()?;
    if reported.is_some() && size.is_some() && reported != size {
        return Err(RequestError::Changed);
    }
    let mut at = 0;
    while let Some(bytes) = response.bytes().await? {
        at += bytes.len() as u64;
        // The destination stops at the declared length, and a chunked response may have more bytes.
        if size.is_some_and(|size| at > size) {
            return Err(RequestError::Changed);
        }
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if sender.send(Ok(bytes)).await.is_err() {
            // The destination reports the reason.
            return Ok(false);
        }
    }
    response.finish().await;
    if size.is_some_and(|size| at < size) {
        return Err(RequestError::Changed);
    }
    Ok(true)
}
