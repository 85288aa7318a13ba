//! One COPY request and its result.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::ThirdPartyCopy;
use crate::http::chunked_download::STREAMS;
use crate::http::exchange::{HttpClient, HttpRequest, TIMEOUT};
use crate::http::list::{self, ChecksumTrust};
use crate::http::marker::{CopyOutcome, Markers};
use crate::http::outgoing::OutgoingBody;
use crate::http::request_error::RequestError;
use crate::http::response::HttpResponse;
use crate::http::retry::RetryState;
use crate::http::target::HttpTarget;
use crate::http::work::HttpContext;
use crate::options::Existing;

const SOURCE: HeaderName = HeaderName::from_static("source");
const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Bytes per second of the slowest server that copies internally without progress markers.
const SLOWEST: u64 = 5_000_000;

/// Return the timeout for the response to a COPY of this size.
fn timeout(size: u64) -> Duration {
    TIMEOUT.saturating_add(Duration::from_secs(size / SLOWEST))
}

/// Server that moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActiveParty {
    Destination,
    UploadSource,
}

/// Form in which a server reports completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyCompletion {
    /// With the last line of its response, as for copies to other servers.
    Reported,
    /// Only by its status, as in plain WebDAV.
    Silently,
}

/// Request a copy with the header fields that the server supports.
pub(super) async fn copy(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    active: ActiveParty,
    size: u64,
    (failed, attempts): (&mut RetryState, &Cell<u32>),
) -> Result<CopyCompletion, RequestError> {
    let passed_on = |name, text: &[u8]| {
        let token = cx.token.as_ref()?;
        let mut value = HeaderValue::from_bytes(&[text, token.as_bytes()].concat()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_static(name), value))
    };
    let mut token = passed_on("transferheaderauthorization", b"");
    let mut streams = cx.streams.unwrap_or(STREAMS);
    let mut is_older = false;
    loop {
        let markers_text = (streams, token.clone());
        match copy_with(
            cx,
            exchange,
            job,
            active,
            (size, markers_text),
            (failed, attempts),
        )
        .await
        {
            // XRootD 5.5 recognises the field only with its capitals, which HTTP clients do not
            // preserve. Its older field needs no more than one capital per word.
            Err(fault) if token.is_some() && !is_older && is_unknown(&fault) => {
                token = passed_on("copy-header", b"Authorization: ");
                is_older = true;
            }
            Err(fault) if cx.streams.is_none() && streams > 1 && is_buffer_shortage(&fault) => {
                let reason =
                    "the destination has no free buffer for data that arrives out of order";
                cx.decided("streams", 1, reason.into());
                // Its leftover belongs to this copy and blocks a copy that may not replace files.
                list::remove(exchange, &job.to).await;
                streams = 1;
            }
            other => return other,
        }
    }
}

/// Return whether XRootD has filled all buffers of a pull, so that it waits for data without a free buffer (seen
/// with 5.5.3). One stream avoids this.
fn is_buffer_shortage(fault: &RequestError) -> bool {
    matches!(fault, RequestError::UnexpectedResponse { found, .. } if found.contains("Internal logic error led to early abort"))
}

/// Return whether the passive server rejected the active one.
fn is_unknown(fault: &RequestError) -> bool {
    match fault {
        RequestError::Status { message, .. }
        | RequestError::UnexpectedResponse { found: message, .. } => {
            message.contains("401") || message.contains("403")
        }
        _ => false,
    }
}

async fn copy_with(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    active: ActiveParty,
    (size, (streams, token)): (u64, (usize, Option<(HeaderName, HeaderValue)>)),
    (failed, attempts): (&mut RetryState, &Cell<u32>),
) -> Result<CopyCompletion, RequestError> {
    let (at, field, other) = match active {
        ActiveParty::Destination => (&job.to, SOURCE, &job.from),
        ActiveParty::UploadSource => (&job.from, DESTINATION, &job.to),
    };
    let mut fields = HeaderMap::new();
    let unfit = |_| RequestError::UnexpectedResponse {
        expected: "a URL that fits into a header field",
        found: "invalid characters".into(),
    };
    fields.insert(field, HeaderValue::try_from(other.url()).map_err(unfit)?);
    // A pushing server may treat it as its own path, and no data may be lost there.
    let replaces = cx.order.existing != Existing::Keep && !job.is_pushed_by(active);
    let overwrite = if replaces { "T" } else { "F" };
    fields.insert("overwrite", HeaderValue::from_static(overwrite));
    // There is no proxy certificate to delegate; the forwarded fields have the credentials for the passive side.
    fields.insert("credential", HeaderValue::from_static("none"));
    fields.insert("x-no-delegate", HeaderValue::from_static("true"));
    fields.insert(
        "requirechecksumverification",
        HeaderValue::from_static("false"),
    );
    fields.insert("x-number-of-streams", HeaderValue::from(streams));
    fields.extend(token);
    let method = Method::from_bytes(b"COPY").expect("letters");
    let body = || {
        attempts.set(attempts.get() + 1);
        OutgoingBody::EMPTY
    };
    let request = HttpRequest {
        body: &body,
        timeout: timeout(size),
        ..HttpRequest::plain(method, fields)
    };
    let response = exchange.send_with(failed, at, &request, &[]).await?;
    match response.head.status {
        StatusCode::ACCEPTED => followed(cx, response, size, false).await,
        // Completed without a report.
        _ if response.length() == Some(0) || response.head.status == StatusCode::NO_CONTENT => {
            response.finish().await;
            Ok(CopyCompletion::Silently)
        }
        // Within a server it is a WebDAV COPY, whose status is the result (RFC 4918, section 9.8.5), with a text
        // or HTML page. XRootD sends markers there too.
        status => {
            let is_plain = status == StatusCode::CREATED && job.from.server == job.to.server;
            let done = followed(cx, response, size, is_plain).await?;
            if is_plain && size > 0 {
                check_size(exchange, &job.to, size).await?;
            }
            Ok(done)
        }
    }
}

/// Check that a server has the reported size.
async fn check_size(
    exchange: &Rc<HttpClient>,
    to: &HttpTarget,
    size: u64,
) -> Result<(), RequestError> {
    let existing = list::head(exchange, to, ChecksumTrust::Nothing).await?.size;
    if existing == Some(size) {
        return Ok(());
    }
    Err(RequestError::UnexpectedResponse {
        expected: "a copy of the size of its source",
        found: existing.map_or("a file of unknown size".into(), |existing| {
            format!("{existing} bytes")
        }),
    })
}

/// Read a transfer report to its last line, the only reliable result unless `is_plain` is set and no markers
/// arrive.
async fn followed(
    cx: &HttpContext<'_>,
    mut response: HttpResponse,
    size: u64,
    is_plain: bool,
) -> Result<CopyCompletion, RequestError> {
    let (mut markers, mut counted) = (Markers::default(), 0);
    let wrong = |found: String| RequestError::UnexpectedResponse {
        expected: "a transfer report with an end",
        found,
    };
    while let Some(bytes) = response.bytes().await? {
        if let Some(sum) = markers.feed(&bytes).map_err(wrong)? {
            cx.totals
                .moved_bytes
                .fetch_add(sum.saturating_sub(counted), Ordering::Relaxed);
            counted = counted.max(sum);
        }
        if cx.stop.is_cancelled() {
            return Err(RequestError::Stopped);
        }
    }
    response.finish().await;
    let is_plain = is_plain && !markers.were_received();
    match markers
        .finish()
        .or(is_plain.then_some(CopyOutcome::Success))
    {
        Some(CopyOutcome::Success) => {
            // A fast transfer has no markers.
            cx.totals
                .moved_bytes
                .fetch_add(size.saturating_sub(counted), Ordering::Relaxed);
            Ok(CopyCompletion::Reported)
        }
        Some(CopyOutcome::Failure(message)) if message.contains("423 Locked") => {
            Err(RequestError::Status {
                status: StatusCode::LOCKED,
                message,
                after: None,
            })
        }
        Some(CopyOutcome::Failure(message)) => Err(RequestError::UnexpectedResponse {
            expected: "the servers to copy the file",
            found: message,
        }),
        _ => Err(wrong("a response without a result".into())),
    }
}

#[cfg(test)]
mod tests;
