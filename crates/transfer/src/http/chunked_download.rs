//! Download of a large file in chunks: several workers skip chunks of an earlier copy and take over slow ones. The
//! last worker finishes the file.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use futures_util::future::{Either, select};
use http::StatusCode;
use http::header::CONTENT_RANGE;
use httpdate::fmt_http_date;
use tokio::time::timeout;

use super::digest::{Digest, compare};
use super::directory::OpenDirectory;
use super::exchange::HttpClient;
use super::get::{HttpDownload, send_get, take};
use super::list::{self, RemoteMetadata};
use super::partial_download::PartialDownload;
use super::range;
use super::range_allocator::{RangeAllocator, RangeLease, cut, split};
use super::request_error::{RequestError, named, no_digest};
use super::response::HttpResponse;
use super::retry::RetryState;
use super::wait::TICK;
use super::work::{HttpContext, HttpTask};
use crate::checksum::{Adler32, Algorithm, Checksum};
use crate::net::rtt::RttMonitor;

/// Bytes of a chunk if `--streams` sets several connections.
const CHUNK: u64 = 64 << 20;
/// Maximum connections of one large file. More do not help on a path with little loss, and are
/// unfair on a path with loss. The first connection fills an otherwise idle path; each further
/// request leaves the path empty for a round trip.
pub(super) const STREAMS: usize = 4;

/// Return the bytes of the first request: one chunk for several streams, otherwise the complete
/// file.
pub(super) fn first_request_bytes(streams: Option<usize>) -> u64 {
    match streams {
        Some(2..) => CHUNK,
        _ => u64::MAX,
    }
}

/// Large file that several workers download.
#[derive(Debug)]
pub(crate) struct LargeDownload {
    job: HttpDownload,
    metadata: RemoteMetadata,
    /// Modification time before the first byte, if it alone identifies the version.
    time: Option<SystemTime>,
    size: u64,
    partial: PartialDownload,
    /// Missing ranges at the start and their workers.
    claims: RangeAllocator,
    /// Round-trip times and losses of the connections.
    trips: RttMonitor,
    /// True if help with a slow range was requested.
    range: AtomicBool,
    /// Received parts.
    parts: Mutex<Vec<ReceivedPart>>,
    failed: Mutex<Option<RequestError>>,
}

/// Contiguous received bytes.
#[derive(Debug)]
struct ReceivedPart {
    range: Range<u64>,
    sum: Adler32,
}

/// Start a large file with its first response, if any, and the range of that response.
pub(crate) async fn chunks(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: HttpDownload,
    (metadata, time): (RemoteMetadata, Option<SystemTime>),
    size: u64,
    (response, present_bytes): (Option<HttpResponse>, Range<u64>),
) -> Result<(), (RequestError, HttpDownload)> {
    let identity = metadata.identity().or_else(|| time.map(fmt_http_date));
    let opened = PartialDownload::open(
        &job.directory,
        &job.name,
        job.origin.token,
        Some(size),
        identity.as_deref(),
        cx.order.sync,
    );
    let partial = match opened {
        Ok(partial) => partial,
        Err(failure) => return Err((RequestError::Local(failure), job)),
    };
    if partial.present_bytes() > 0 {
        cx.resumed(&partial.path, partial.present_bytes(), size);
    }
    let missing = partial.missing(0..size);
    let (chunks, max) = match cx.streams {
        Some(streams @ 2..) => (
            cut(&missing, streams, CHUNK, present_bytes.end.min(CHUNK)),
            streams,
        ),
        streams => (
            split(&missing, present_bytes.end),
            streams.unwrap_or(STREAMS),
        ),
    };
    let helpers = cx.streams.unwrap_or(1).min(chunks.len()).saturating_sub(1);
    let fits = chunks
        .first()
        .is_some_and(|first| first.start == 0 && first.end <= present_bytes.end);
    let large = Arc::new(LargeDownload {
        job,
        metadata,
        time,
        size,
        partial,
        claims: RangeAllocator::new(chunks, max),
        trips: RttMonitor::new(),
        range: AtomicBool::new(false),
        parts: Mutex::default(),
        failed: Mutex::default(),
    });
    // Before the others, because this worker already has the response.
    let first = large.claims.next(Instant::now());
    cx.pool
        .push((0..helpers).map(|_| HttpTask::Help(Arc::clone(&large))));
    large
        .run_worker(cx, exchange, first, response.filter(|_| fits))
        .await;
    Ok(())
}

impl LargeDownload {
    /// Download chunks until none is worth a request.
    pub(crate) async fn help(self: Arc<Self>, cx: &HttpContext<'_>, exchange: &Rc<HttpClient>) {
        if cx.streams.is_none()
            && let Some(reason) = self.reason_to_stop(exchange).await
            && let Some(count) = self.claims.stop_growing()
        {
            cx.decided("streams", count as u64, reason.into());
        }
        self.range.store(false, Ordering::Relaxed);
        let first = self.claims.next(Instant::now());
        self.run_worker(cx, exchange, first, None).await;
    }

    /// Return why another connection is not worth it: rejected, or slower to open because of queues of the others.
    async fn reason_to_stop(&self, exchange: &Rc<HttpClient>) -> Option<&'static str> {
        let server = &self.job.from.server;
        if !exchange.prepare(server).await {
            return Some("the server accepts no more connections");
        }
        let is_full = !self.claims.is_shared() && exchange.connections.is_full(server);
        is_full.then_some(
            "the network path is full; opening a connection takes longer than through empty queues",
        )
    }

    /// Start with this chunk and its response, if any. The last worker finishes the file.
    async fn run_worker(
        self: Arc<Self>,
        cx: &HttpContext<'_>,
        exchange: &Rc<HttpClient>,
        mut claim: Option<RangeLease>,
        mut response: Option<HttpResponse>,
    ) {
        while let Some(fetch_chunk) = claim {
            if !cx.stop.is_cancelled() && self.failed().is_none() {
                let fetched = self
                    .fetch_chunk(cx, exchange, &fetch_chunk, response.take())
                    .await;
                if let Err(fault) = fetched {
                    self.failed().get_or_insert(fault);
                }
            }
            self.claims.end(&fetch_chunk);
            claim = self.claims.next(Instant::now());
        }
        drop(response);
        if let Some(last) = Arc::into_inner(self) {
            let directory = Arc::clone(&last.job.directory);
            last.check_unchanged(cx, exchange).await;
            last.finish(cx);
            OpenDirectory::release(cx, directory);
        }
    }

    /// Download a chunk, or its remaining part. Request help if it is slow.
    async fn fetch_chunk(
        self: &Arc<Self>,
        cx: &HttpContext<'_>,
        exchange: &Rc<HttpClient>,
        claim: &RangeLease,
        first: Option<HttpResponse>,
    ) -> Result<(), RequestError> {
        let mut part = ReceivedPart {
            range: claim.start..claim.start,
            sum: Adler32::default(),
        };
        let fetched = {
            let bytes = std::pin::pin!(self.bytes(cx, exchange, claim, &mut part, first));
            let lost = std::pin::pin!(claim.lost.notified());
            let mut either = select(bytes, lost);
            loop {
                match timeout(TICK, &mut either).await {
                    Ok(Either::Left((fetched, _))) => break fetched,
                    Ok(Either::Right(_)) => break Ok(()),
                    Err(_) => self.request_help(cx),
                }
            }
        };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(part);
        fetched
    }

    fn request_help(self: &Arc<Self>, cx: &HttpContext<'_>) {
        if cx.streams.is_none()
            && let Some(reason) = self.trips.losses()
            && self.claims.use_all_workers()
        {
            cx.decided("streams", STREAMS as u64, reason);
            let helpers = (1..STREAMS).map(|_| HttpTask::Help(Arc::clone(self)));
            return cx.pool.push(helpers);
        }
        let requested = cx.pool.hungry() && self.claims.is_slow(Instant::now());
        if requested && !self.range.swap(true, Ordering::Relaxed) {
            cx.pool.push([HttpTask::Help(Arc::clone(self))]);
        }
    }

    async fn bytes(
        &self,
        cx: &HttpContext<'_>,
        exchange: &Rc<HttpClient>,
        claim: &RangeLease,
        part: &mut ReceivedPart,
        mut first: Option<HttpResponse>,
    ) -> Result<(), RequestError> {
        let wants_sum = self.adler().is_some();
        let mut attempts = RetryState::default();
        let mut looked = Instant::now();
        loop {
            let range = self.claims.remaining(claim);
            if range.is_empty() {
                return Ok(());
            }
            let mut response = match first.take() {
                Some(response) => response,
                None => {
                    self.send_get(exchange, &mut attempts, range.clone())
                        .await?
                }
            };
            let fault = loop {
                match response.bytes().await {
                    Err(fault) => break fault,
                    Ok(None) => break RequestError::Connection("an incomplete response".into()),
                    Ok(Some(bytes)) => {
                        let bytes = &bytes[..self.claims.take(claim, bytes.len())];
                        if wants_sum {
                            part.sum.update(bytes);
                        }
                        let (at, from) = (&mut part.range.end, part.range.start);
                        take(cx, &self.partial, bytes, at, from)?;
                        if looked.elapsed() >= TICK {
                            looked = Instant::now();
                            if let Some((found, loses)) = response.tcp_snapshot() {
                                self.trips.record(&found, loses);
                            }
                        }
                        if self.claims.remaining(claim).is_empty() {
                            // Otherwise bytes would follow that belong to another worker now.
                            if *at == range.end {
                                response.finish().await;
                            }
                            return Ok(());
                        }
                    }
                }
            };
            if part.range.end > range.start {
                attempts = RetryState::default();
            }
            attempts.again(exchange, fault).await?;
        }
    }

    /// Request a range of the same version.
    async fn send_get(
        &self,
        exchange: &Rc<HttpClient>,
        attempts: &mut RetryState,
        requested: Range<u64>,
    ) -> Result<HttpResponse, RequestError> {
        let start = requested.start;
        let response = send_get(
            exchange,
            attempts,
            &self.job.from,
            Some(requested),
            self.metadata.identity().as_deref(),
        )
        .await?;
        let reported = response
            .field(&CONTENT_RANGE)
            .and_then(range::parse_content_range);
        let fits = matches!(&reported, Some((Some(present_bytes), size)) if present_bytes.start == start && size.is_none_or(|size| size == self.size));
        let same = RemoteMetadata::of(&response).identity() == self.metadata.identity();
        if response.head.status == StatusCode::PARTIAL_CONTENT && fits && same {
            Ok(response)
        } else {
            Err(RequestError::Changed)
        }
    }

    /// Check that the file is unchanged since before the first byte, if no response proves it.
    async fn check_unchanged(&self, cx: &HttpContext<'_>, exchange: &Rc<HttpClient>) {
        if self.time.is_none() || cx.stop.is_cancelled() || self.failed().is_some() {
            return;
        }
        let now = list::changed(exchange, &self.job.from, self.size).await;
        if now != self.time {
            self.failed().get_or_insert(RequestError::Changed);
        }
    }

    fn adler(&self) -> Option<&Digest> {
        self.metadata
            .digests
            .iter()
            .find(|(algorithm, _)| *algorithm == Algorithm::Adler32)
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<RequestError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(self, cx: &HttpContext<'_>) {
        let fault = self.failed().take();
        let (job, size) = (&self.job, self.size);
        let modified = self.metadata.modified.or_else(|| job.changed(size));
        // The present bytes help the next copy if they are of that version.
        let result = match fault {
            Some(fault) => Err((fault, true)),
            None if cx.stop.is_cancelled() => Err((RequestError::Stopped, true)),
            None => self.verify(cx).map_err(|fault| (fault, false)),
        };
        match result {
            Ok(()) => {
                let path = self.partial.path.clone();
                match self
                    .partial
                    .commit(&job.directory, &job.name, modified, cx.order)
                {
                    Ok(()) => cx.copied(&path, size, "copied", Some("http")),
                    Err(failure) => cx.report_failure(&failure),
                }
            }
            Err((fault, useful)) => {
                if !(useful && self.partial.is_recorded() && fault != RequestError::Changed) {
                    self.partial.discard(&job.directory);
                }
                cx.report_failure(&fault.at(&job.from));
            }
        }
    }

    /// Compare the checksum, if no second read is needed or `--verify` is set.
    fn verify(&self, cx: &HttpContext<'_>) -> Result<(), RequestError> {
        if let Some(adler) = self.adler() {
            let sum = self.sum()?;
            return compare(Some(adler), Some(sum.value().to_be_bytes().to_vec()))
                .map_err(|fault| self.named(fault));
        }
        match self.metadata.digests.first() {
            Some(reported) if cx.order.verify => {
                let mut sum = Checksum::new(reported.0);
                self.partial
                    .read(0..self.size, |bytes| sum.update(bytes))
                    .map_err(RequestError::Local)?;
                compare(Some(reported), Some(sum.finish())).map_err(|fault| self.named(fault))
            }
            None if cx.order.verify => Err(no_digest()),
            _ => Ok(()),
        }
    }

    /// Combine the checksums of all parts in order, and read the bytes of an earlier copy.
    fn sum(&self) -> Result<Adler32, RequestError> {
        let mut parts =
            std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        parts.sort_unstable_by_key(|part| (part.range.start, part.range.end));
        let (mut whole, mut at) = (Adler32::default(), 0);
        for ReceivedPart { range, sum } in parts {
            whole = whole
                .followed_by(self.remaining(at..range.start)?)
                .followed_by(sum);
            at = range.end;
        }
        Ok(whole.followed_by(self.remaining(at..self.size)?))
    }

    fn remaining(&self, range: Range<u64>) -> Result<Adler32, RequestError> {
        let mut sum = Adler32::default();
        self.partial
            .read(range, |bytes| sum.update(bytes))
            .map_err(RequestError::Local)?;
        Ok(sum)
    }

    fn named(&self, fault: RequestError) -> RequestError {
        named(fault, &self.partial.path)
    }
}
