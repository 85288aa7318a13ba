//! Upload of a local file: skip check, upload with length, comparison of the checksum of the server.

use std::cell::Cell;
use std::ffi::CString;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::digest::{self, Digest, compare};
use super::directory::OpenDirectory;
use super::exchange::{HttpClient, HttpRequest};
use super::list::{self, ChecksumTrust, RemoteMetadata};
use super::outgoing::OutgoingBody;
use super::request_error::{RequestError, named, no_digest};
use super::source::{UploadSource, compute_checksum, open, read, stream};
use super::target::HttpTarget;
use super::work::HttpContext;
use crate::attributes;
use crate::checksum::{Adler32, Algorithm};
use crate::error::Failure;
use crate::options::{CopyOptions, Existing};

/// Maximum size of files that are sent immediately. Larger files wait for `100 Continue`, because a
/// server may redirect before the body.
pub(crate) const SENT_AT_ONCE: u64 = 1 << 20;
/// Interval of progress counts.
const TICK: Duration = Duration::from_millis(200);
/// Modification time of a file, as defined by ownCloud; other servers ignore it.
pub(crate) const MTIME: HeaderName = HeaderName::from_static("x-oc-mtime");

/// Upload of one local file.
#[derive(Debug)]
pub(crate) struct HttpUpload {
    pub(crate) directory: Arc<OpenDirectory>,
    pub(crate) name: CString,
    pub(crate) to: HttpTarget,
    /// Metadata of the existing destination from a listing; none if a request is necessary.
    pub(crate) existing: Option<Option<RemoteMetadata>>,
    /// True if missing parent directories are created.
    pub(crate) create_parents: bool,
}

/// Upload a file.
pub(crate) async fn store(cx: &HttpContext<'_>, exchange: &Rc<HttpClient>, job: HttpUpload) {
    if let Err(fault) = try_store(cx, exchange, &job).await {
        cx.report_failure(&fault.at(&job.to));
    }
}

async fn try_store(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &HttpUpload,
) -> Result<(), RequestError> {
    let source = open(cx, job)?;
    let shown = PathBuf::from(job.to.to_string());
    if is_up_to_date(cx, exchange, job, &source).await? {
        cx.skipped_file(&shown, source.metadata.size);
        return Ok(());
    }
    if cx.order.dry_run {
        cx.copied(&shown, source.metadata.size, "would copy", None);
        return Ok(());
    }
    let attempts = Cell::new(0);
    let sent = match send(cx, exchange, job, &source, &attempts).await {
        Err(RequestError::Status {
            status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
            ..
        }) if job.create_parents => {
            list::make_parents(exchange, &job.to).await?;
            send(cx, exchange, job, &source, &attempts).await
        }
        other => other,
    };
    let sent = match sent {
        Err(fault) if is_kept(cx.order, &fault) => {
            check_size_after(exchange, &job.to, source.metadata.size, &attempts).await?;
            cx.skipped_file(&shown, source.metadata.size);
            return Ok(());
        }
        other => other?,
    };
    if let Err(fault) = confirm(cx, exchange, job, &source, sent).await {
        // The destination does not have the expected content.
        list::remove(exchange, &job.to).await;
        return Err(named(fault, &shown));
    }
    cx.copied(&shown, source.metadata.size, "copied", Some("http"));
    Ok(())
}

/// Add conditions against replacement, if replacement is not allowed. Servers that ignore them were checked before.
pub(super) fn guard(order: &CopyOptions, fields: &mut HeaderMap) {
    if order.existing == Existing::Keep {
        fields.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
}

/// Return whether the server rejected the upload because the destination exists and must be kept.
pub(super) fn is_kept(order: &CopyOptions, fault: &RequestError) -> bool {
    let existing = matches!(fault, RequestError::Status { status, .. } if *status == StatusCode::PRECONDITION_FAILED);
    existing && order.existing == Existing::Keep
}

/// Check that the existing file is not a partial file of an earlier attempt.
pub(super) async fn check_size_after(
    exchange: &Rc<HttpClient>,
    to: &HttpTarget,
    size: u64,
    attempts: &Cell<u32>,
) -> Result<(), RequestError> {
    if attempts.get() < 2 {
        return Ok(());
    }
    let existing = list::head(exchange, to, ChecksumTrust::Nothing).await?.size;
    if existing == Some(size) {
        return Ok(());
    }
    let found = existing.map_or("a file of unknown size".into(), |existing| {
        format!("{existing} bytes")
    });
    Err(RequestError::Local(Failure::found(
        PathBuf::from(to.to_string()),
        format!("{size} bytes, after an attempt that broke off"),
        found,
        "delete it if it is part of this copy, then run the same command again",
    )))
}

/// Response and checksum of an upload.
struct UploadResult {
    digests: Vec<Digest>,
    /// None if the server did not accept all bytes.
    sum: Option<Adler32>,
}

async fn send(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &HttpUpload,
    source: &UploadSource,
    attempts: &Cell<u32>,
) -> Result<UploadResult, RequestError> {
    let mut fields = HeaderMap::new();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    digest::request_digest(&mut fields);
    guard(cx.order, &mut fields);
    if cx.order.preserve.times {
        fields.insert(MTIME, HeaderValue::from(source.metadata.modified.0));
    }
    let size = source.metadata.size;
    // Also for an empty file, because nginx requires it.
    fields.insert(CONTENT_LENGTH, HeaderValue::from(size));
    let (sum, count) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU64::new(0)));
    let small = if size <= SENT_AT_ONCE {
        Some(read(source).map_err(RequestError::Local)?)
    } else {
        None
    };
    let body = || {
        attempts.set(attempts.get() + 1);
        match &small {
            Some(bytes) => {
                *sum.lock().unwrap_or_else(PoisonError::into_inner) = Some(Adler32::of(bytes));
                count.store(bytes.len() as u64, Ordering::Relaxed);
                OutgoingBody::Whole(bytes.clone())
            }
            None => stream(
                Arc::clone(&source.file),
                size,
                Arc::clone(&sum),
                Arc::clone(&count),
            ),
        }
    };
    let request = HttpRequest {
        body: &body,
        expects: size > SENT_AT_ONCE,
        ..HttpRequest::plain(Method::PUT, fields)
    };
    let response = counted(cx, &count, exchange.send(&job.to, &request, &[])).await?;
    let digests = digest::found(&response.head.headers);
    response.finish().await;
    let sum = sum.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(UploadResult { digests, sum })
}

/// Check that the destination has the content of the source.
async fn confirm(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &HttpUpload,
    source: &UploadSource,
    sent: UploadResult,
) -> Result<(), RequestError> {
    let again = rustix::fs::fstat(&source.file).map(attributes::LocalMetadata::from);
    if again.map_or(true, |again| !source.metadata.unchanged(&again)) {
        return Err(RequestError::Local(Failure::found(
            source.path.clone(),
            "an unchanged file",
            "a file that changed during the copy",
            "wait until its writers finish, then run the same command again",
        )));
    }
    let early = || RequestError::UnexpectedResponse {
        expected: "the server to accept all bytes",
        found: "a success response before the last byte".into(),
    };
    let sum = sent.sum.ok_or_else(early)?;
    verify(cx, exchange, job, source, (sum, sent.digests)).await
}

/// Add sent bytes to the totals while a body is sent.
pub(super) async fn counted<T>(
    cx: &HttpContext<'_>,
    count: &AtomicU64,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    let add = || {
        cx.totals
            .moved_bytes
            .fetch_add(count.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    };
    loop {
        let done = tokio::time::timeout(TICK, work.as_mut()).await;
        add();
        if let Ok(done) = done {
            return done;
        }
    }
}

/// Compare the checksum of the sent bytes with the checksum of the server, if it has one or `--verify` is set.
async fn verify(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &HttpUpload,
    source: &UploadSource,
    (sum, mut digests): (Adler32, Vec<Digest>),
) -> Result<(), RequestError> {
    if digests.is_empty() && cx.order.verify {
        digests = list::head(exchange, &job.to, ChecksumTrust::Waiting)
            .await?
            .digests;
        if digests.is_empty() {
            return Err(no_digest());
        }
    }
    if let Some(adler) = digests
        .iter()
        .find(|(algorithm, _)| *algorithm == Algorithm::Adler32)
    {
        return compare(Some(adler), Some(sum.value().to_be_bytes().to_vec()));
    }
    match digests.first() {
        Some(reported) if cx.order.verify => {
            compare(Some(reported), Some(compute_checksum(source, reported.0)?))
        }
        _ => Ok(()),
    }
}

/// Return whether the destination is up to date.
async fn is_up_to_date(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &HttpUpload,
    source: &UploadSource,
) -> Result<bool, RequestError> {
    if cx.order.existing == Existing::Replace {
        return Ok(false);
    }
    let pending = existing(exchange, &job.to);
    let existing = match &job.existing {
        Some(existing) => existing.clone(),
        None if cx.is_one => exchange.with_spare(&job.to.server, pending).await?,
        None => pending.await?,
    };
    let Some(mut existing) = existing else {
        return Ok(false);
    };
    if cx.order.existing == Existing::Keep {
        return Ok(true);
    }
    if existing.size != Some(source.metadata.size) {
        return Ok(false);
    }
    if cx.order.checksum {
        if existing.digests.is_empty() {
            existing = list::head(exchange, &job.to, ChecksumTrust::Waiting).await?;
        }
        return match existing.digests.first() {
            Some((algorithm, reported)) => Ok(compute_checksum(source, *algorithm)? == *reported),
            None => Ok(false),
        };
    }
    // Most servers set the time of the upload. A copy that is newer than the last change of the source is up to
    // date.
    let seconds = existing
        .modified
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(seconds.is_some_and(|time| {
        i64::try_from(time.as_secs()).is_ok_and(|time| time >= source.metadata.modified.0)
    }))
}

async fn existing(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Result<Option<RemoteMetadata>, RequestError> {
    match list::head(exchange, target, ChecksumTrust::Nothing).await {
        Ok(metadata) => Ok(Some(metadata)),
        Err(RequestError::Status {
            status: StatusCode::NOT_FOUND | StatusCode::CONFLICT,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}
