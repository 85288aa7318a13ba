//! Download of a file: skip check, download to a temporary file, checksum, rename into place.
//!
//! The first response has the size and the version. For a large file it also has the first chunk. Idle workers
//! download the rest; each request has that version as a condition (`If-Range`). No request goes beyond the end:
//! XRootD 5.5 promises bytes that it then does not send.

use std::ffi::CString;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use futures_util::future::{Either, select};
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, IF_RANGE, RANGE, SERVER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::chunked_download::{chunks, first_request_bytes};
use super::connect::ServerProfile;
use super::digest::compare;
use super::directory::OpenDirectory;
use super::exchange::HttpClient;
use super::list::{self, ChecksumTrust, RemoteMetadata};
use super::partial_download::PartialDownload;
use super::range;
use super::request_error::{RequestError, named};
use super::response::HttpResponse;
use super::retry::RetryState;
use super::skip_check::{fetch_digests, fetch_listed, is_up_to_date};
use super::target::HttpTarget;
use super::work::HttpContext;
use crate::checksum::{Algorithm, Checksum};
use crate::journal::Origin;
use crate::net::rate_limit;

/// Checksum that is requested after the download.
const LATE: Algorithm = Algorithm::Adler32;
/// Minimum size for a range request; smaller known files are requested completely.
const WORTH_A_RANGE: u64 = 8 << 20;

/// Download of one file.
#[derive(Debug)]
pub(crate) struct HttpDownload {
    pub(crate) from: HttpTarget,
    /// Metadata from a listing.
    pub(crate) metadata: Option<RemoteMetadata>,
    pub(crate) directory: Arc<OpenDirectory>,
    pub(crate) name: CString,
    /// True if no destination can exist.
    pub(crate) fresh: bool,
    /// Copy to which the file belongs.
    pub(crate) origin: Origin,
}

impl HttpDownload {
    /// Return its size, if known.
    pub(super) fn size(&self) -> Option<u64> {
        self.metadata.as_ref()?.size
    }

    /// Return the modification time from a listing, if the listing has this size.
    pub(super) fn changed(&self, size: u64) -> Option<SystemTime> {
        let listed = self
            .metadata
            .as_ref()
            .filter(|metadata| metadata.size == Some(size));
        listed?.modified
    }
}

/// Download a file, with the help of idle workers if it is large.
pub(crate) async fn download(cx: &HttpContext<'_>, exchange: &Rc<HttpClient>, job: HttpDownload) {
    let (from, directory) = (job.from.clone(), Arc::clone(&job.directory));
    if let Err(fault) = try_download(cx, exchange, job).await {
        cx.report_failure(&fault.at(&from));
    }
    OpenDirectory::release(cx, directory);
}

async fn try_download(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    mut job: HttpDownload,
) -> Result<(), RequestError> {
    if !job.fresh && is_up_to_date(cx, exchange, &mut job).await? {
        let size = job.size().unwrap_or(0);
        cx.skipped_file(&job.directory.at(&job.name), size);
        return Ok(());
    }
    if cx.order.dry_run {
        let size = match &job.metadata {
            Some(metadata) => metadata.size,
            None => {
                list::head(exchange, &job.from, ChecksumTrust::Nothing)
                    .await?
                    .size
            }
        };
        let size = size.unwrap_or(0);
        cx.copied(&job.directory.at(&job.name), size, "would copy", None);
        return Ok(());
    }
    if cx.order.verify {
        fetch_digests(exchange, &mut job).await?;
    }
    let mut attempts = RetryState::default();
    while let Err((fault, again)) = once(cx, exchange, &mut attempts, job).await {
        attempts.again(exchange, fault).await?;
        job = again;
    }
    Ok(())
}

/// Make one attempt; return the job if it failed.
async fn once(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    attempts: &mut RetryState,
    mut job: HttpDownload,
) -> Result<(), (RequestError, HttpDownload)> {
    let is_known = exchange.manner(&job.from).is_some();
    let listed = needs_listed_time(cx, exchange, &job, job.size());
    if listed {
        fetch_listed(exchange, &mut job).await;
    }
    let known_size = job.size().filter(|size| *size >= WORTH_A_RANGE);
    let first = known_size.map(|size| 0..size.min(first_request_bytes(cx.streams)));
    let result = if cx.is_one && !is_known && job.metadata.is_none() && job.from.server.tls {
        request_and_list(exchange, attempts, &job.from).await
    } else {
        let result = send_get(exchange, attempts, &job.from, first, None).await;
        result.map(|response| (response, None))
    };
    let (response, meanwhile) = match result {
        Ok(result) => result,
        Err(fault) => return Err((fault, job)),
    };
    let (mut metadata, size, existing) = match parse_first(&job, &response) {
        Ok(parse_first) => (parse_first.metadata, parse_first.size, parse_first.existing),
        Err(fault) => return Err((fault, job)),
    };
    // The request did not have the old field, and the server does not compute requested checksums.
    let may_report = !is_known && exchange.manner(&job.from) == Some(ServerProfile::Full);
    let late = may_report && metadata.digests.is_empty() && size != Some(0);
    let versions = metadata.identity().is_some();
    if let (Some(size), Some(existing)) = (size.filter(|size| *size >= WORTH_A_RANGE), existing) {
        if versions && late {
            // The kernel buffers data that arrives during this request.
            metadata.digests = list::digests(exchange, &job.from, &metadata).await;
        }
        if !versions && !listed {
            // Open connections for later requests at the same time.
            let more = cx.streams.map_or(0, |streams| streams.saturating_sub(1));
            let needed = cx.connect(&job.from.server, more);
            update_listed(exchange, &mut job, meanwhile).await;
            drop(needed);
        }
        let time = job.changed(size).filter(|_| !versions);
        if versions || time.is_some() {
            let start = if versions || listed {
                (Some(response), existing)
            } else {
                // The earlier response may be of another version.
                drop(response);
                (None, 0..0)
            };
            return chunks(cx, exchange, job, (metadata, time), size, start).await;
        }
    } else if !versions && !listed && needs_listed_time(cx, exchange, &job, size) {
        response.finish().await;
        update_listed(exchange, &mut job, meanwhile).await;
        return again(cx, exchange, attempts, &job)
            .await
            .map_err(|fault| (fault, job));
    }
    let done = if response.head.status == StatusCode::PARTIAL_CONTENT {
        // No later response could prove the same version.
        again(cx, exchange, attempts, &job).await
    } else {
        whole(
            cx,
            &job,
            &metadata,
            size,
            response,
            late.then_some(exchange),
        )
        .await
    };
    done.map_err(|fault| (fault, job))
}

/// Request a file and its listing entry at the same time, and wait for the entry only if it alone has the
/// modification time. Over TLS a second connection takes three round trips, which then run in parallel.
async fn request_and_list(
    exchange: &Rc<HttpClient>,
    attempts: &mut RetryState,
    from: &HttpTarget,
) -> Result<(HttpResponse, Option<RemoteMetadata>), RequestError> {
    let result = std::pin::pin!(send_get(exchange, attempts, from, None, None));
    let listed = std::pin::pin!(list::entry(exchange, from));
    match select(result, listed).await {
        Either::Left((result, listed)) => {
            let response = result?;
            let listed = match exchange.manner(from) {
                Some(ServerProfile::Listed) => listed.await,
                _ => None,
            };
            Ok((response, listed))
        }
        Either::Right((listed, result)) => {
            Ok((exchange.wait_with_kept(&from.server, result).await?, listed))
        }
    }
}

/// Update the metadata from the parallel listing, or from a new one.
async fn update_listed(
    exchange: &Rc<HttpClient>,
    job: &mut HttpDownload,
    meanwhile: Option<RemoteMetadata>,
) {
    match meanwhile {
        Some(metadata) => job.metadata = Some(metadata),
        None => fetch_listed(exchange, job).await,
    }
}

/// Return whether the modification time needs a listing.
fn needs_listed_time(
    cx: &HttpContext<'_>,
    exchange: &HttpClient,
    job: &HttpDownload,
    size: Option<u64>,
) -> bool {
    let large = size.is_some_and(|size| size >= WORTH_A_RANGE);
    let has_time = job
        .metadata
        .as_ref()
        .is_some_and(|metadata| metadata.modified.is_some());
    let needed = large || (cx.order.preserve.times && !has_time);
    needed && exchange.manner(&job.from) == Some(ServerProfile::Listed)
}

/// Download the complete file in one response without an earlier version to compare.
async fn again(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    attempts: &mut RetryState,
    job: &HttpDownload,
) -> Result<(), RequestError> {
    let response = send_get(exchange, attempts, &job.from, None, None).await?;
    let FirstResponse { metadata, size, .. } = parse_first(job, &response)?;
    whole(cx, job, &metadata, size, response, None).await
}

pub(super) async fn send_get(
    exchange: &Rc<HttpClient>,
    attempts: &mut RetryState,
    from: &HttpTarget,
    result: Option<Range<u64>>,
    version: Option<&str>,
) -> Result<HttpResponse, RequestError> {
    // A resumed download uses the checksum of its start.
    let worth = if version.is_some() {
        ChecksumTrust::Nothing
    } else {
        ChecksumTrust::Little
    };
    let mut fields = HeaderMap::new();
    if let Some(result) = result {
        fields.insert(
            RANGE,
            HeaderValue::try_from(range::range(&result)).expect("digits"),
        );
        if let Some(Ok(version)) = version.map(HeaderValue::try_from) {
            fields.insert(IF_RANGE, version);
        }
    }
    list::file(exchange, attempts, from, Method::GET, fields, worth).await
}

/// Metadata of the first response.
struct FirstResponse {
    metadata: RemoteMetadata,
    /// None if the server does not declare the size.
    size: Option<u64>,
    /// Received range, if the server supports ranges.
    existing: Option<Range<u64>>,
}

fn parse_first(job: &HttpDownload, response: &HttpResponse) -> Result<FirstResponse, RequestError> {
    let is_directory = |path: &str| {
        path.split('?')
            .next()
            .is_some_and(|path| path.ends_with('/'))
    };
    if is_directory(&response.from.path) && !is_directory(&job.from.path) {
        return Err(RequestError::UnexpectedResponse {
            expected: "a file",
            found: "a directory; add --recursive to copy it".into(),
        });
    }
    let mut metadata = RemoteMetadata::of(response);
    if let (true, Some(listed)) = (metadata.digests.is_empty(), &job.metadata) {
        metadata.digests.clone_from(&listed.digests);
    }
    if response.head.status == StatusCode::PARTIAL_CONTENT {
        return match response
            .field(&CONTENT_RANGE)
            .and_then(range::parse_content_range)
        {
            Some((Some(existing), Some(size))) if existing.start == 0 => Ok(FirstResponse {
                metadata,
                size: Some(size),
                existing: Some(existing),
            }),
            _ => Err(RequestError::UnexpectedResponse {
                expected: "a range from the first byte, and the size",
                found: "another".into(),
            }),
        };
    }
    if response.head.status == StatusCode::RANGE_NOT_SATISFIABLE {
        // The file is now shorter than in the listing.
        return Err(RequestError::Changed);
    }
    // XRootD 5.5 supports ranges without announcing them.
    let has_ranges = response
        .field(&ACCEPT_RANGES)
        .is_some_and(|unit| unit.eq_ignore_ascii_case("bytes"))
        || response
            .field(&SERVER)
            .is_some_and(|name| name.starts_with("XrootD"));
    let size = response.file_length()?;
    Ok(FirstResponse {
        metadata,
        size,
        existing: size.filter(|_| has_ranges).map(|size| 0..size),
    })
}

/// Download a complete file from one response. `late` requests its checksum afterwards.
async fn whole(
    cx: &HttpContext<'_>,
    job: &HttpDownload,
    metadata: &RemoteMetadata,
    size: Option<u64>,
    response: HttpResponse,
    late: Option<&Rc<HttpClient>>,
) -> Result<(), RequestError> {
    let partial = PartialDownload::open(
        &job.directory,
        &job.name,
        job.origin.token,
        None,
        None,
        cx.order.sync,
    )
    .map_err(RequestError::Local)?;
    let filled = fill(cx, &partial, metadata, size, response, late.is_some()).await;
    let result = match filled {
        Ok((bytes, sum)) => verify(job, metadata, late, sum).await.map(|()| bytes),
        Err(fault) => Err(fault),
    };
    match result {
        Ok(bytes) => {
            let path = partial.path.clone();
            let modified = metadata.modified.or_else(|| job.changed(bytes));
            partial
                .commit(&job.directory, &job.name, modified, cx.order)
                .map_err(RequestError::Local)?;
            cx.copied(&path, bytes, "copied", Some("http"));
            Ok(())
        }
        Err(fault) => {
            partial.discard(&job.directory);
            Err(named(fault, &partial.path))
        }
    }
}

async fn fill(
    cx: &HttpContext<'_>,
    partial: &PartialDownload,
    metadata: &RemoteMetadata,
    size: Option<u64>,
    mut response: HttpResponse,
    late: bool,
) -> Result<(u64, Option<Vec<u8>>), RequestError> {
    let has_time = metadata.digests.first().map(|(algorithm, _)| *algorithm);
    let mut sum = has_time.or(late.then_some(LATE)).map(Checksum::new);
    let mut at = 0;
    while let Some(bytes) = response.bytes().await? {
        if let Some(sum) = &mut sum {
            sum.update(&bytes);
        }
        take(cx, partial, &bytes, &mut at, 0)?;
    }
    response.finish().await;
    if size.is_some_and(|size| size != at) {
        return Err(RequestError::Connection(format!(
            "{at} bytes of {}",
            size.unwrap_or(0)
        )));
    }
    Ok((at, sum.map(Checksum::finish)))
}

/// Compare the checksum with the server's, requested now if necessary.
async fn verify(
    job: &HttpDownload,
    metadata: &RemoteMetadata,
    late: Option<&Rc<HttpClient>>,
    sum: Option<Vec<u8>>,
) -> Result<(), RequestError> {
    let Some(exchange) = late else {
        return compare(metadata.digests.first(), sum);
    };
    let has_time = list::digests(exchange, &job.from, metadata).await;
    compare(
        has_time.iter().find(|(algorithm, _)| *algorithm == LATE),
        sum,
    )
}

pub(crate) fn take(
    cx: &HttpContext<'_>,
    partial: &PartialDownload,
    bytes: &[u8],
    at: &mut u64,
    from: u64,
) -> Result<(), RequestError> {
    partial
        .write(bytes, *at, from)
        .map_err(RequestError::Local)?;
    *at += bytes.len() as u64;
    cx.totals
        .moved_bytes
        .fetch_add(bytes.len() as u64, Ordering::Relaxed);
    rate_limit::wait_after(bytes.len() as u64);
    if cx.stop.is_cancelled() {
        Err(RequestError::Stopped)
    } else {
        Ok(())
    }
}
