//! A file of ours to a server: judged, sent with its length, its checksum compared where the server tells one.

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
use super::exchange::{Ask, Exchange};
use super::fault::{Fault, named, no_digest};
use super::folder::Folder;
use super::list::{self, Facts, Worth};
use super::outgoing::Outgoing;
use super::source::{Source, open, read, stream, sum_of};
use super::target::Target;
use super::work::Context;
use crate::attributes;
use crate::checksum::{Adler32, Algorithm};
use crate::error::Failure;
use crate::order::{Existing, Order};

/// Files up to this are sent at once, larger ones when the server says that it wants them: one that sends us elsewhere does so before the bytes.
pub(super) const SENT_AT_ONCE: u64 = 1 << 20;
/// How often progress is counted.
const TICK: Duration = Duration::from_millis(200);
/// The time of a file, as ownCloud has it; servers that do not know it pass over it.
pub(crate) const MTIME: HeaderName = HeaderName::from_static("x-oc-mtime");

/// A file of ours that is to come to a server.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) folder: Arc<Folder>,
    pub(crate) name: CString,
    pub(crate) to: Target,
    /// What is there, if anything, as a listing has it; none if the server has to be asked.
    pub(crate) there: Option<Option<Facts>>,
    /// Whether directories that lead to it are made.
    pub(crate) make_way: bool,
}

/// Sends a file.
pub(crate) async fn store(cx: &Context<'_>, exchange: &Rc<Exchange>, job: Store) {
    if let Err(fault) = try_store(cx, exchange, &job).await {
        cx.tell(&fault.at(&job.to));
    }
}

async fn try_store(cx: &Context<'_>, exchange: &Rc<Exchange>, job: &Store) -> Result<(), Fault> {
    let source = open(cx, job)?;
    let shown = PathBuf::from(job.to.to_string());
    if is_there(cx, exchange, job, &source).await? {
        cx.kept(&shown, source.facts.size);
        return Ok(());
    }
    if cx.order.dry_run {
        cx.copied(&shown, source.facts.size, "would copy", None);
        return Ok(());
    }
    let tries = Cell::new(0);
    let sent = match send(cx, exchange, job, &source, &tries).await {
        Err(Fault::Status {
            status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
            ..
        }) if job.make_way => {
            list::make_parents(exchange, &job.to).await?;
            send(cx, exchange, job, &source, &tries).await
        }
        other => other,
    };
    let sent = match sent {
        Err(fault) if is_kept(cx.order, &fault) => {
            see_whole(exchange, &job.to, source.facts.size, &tries).await?;
            cx.kept(&shown, source.facts.size);
            return Ok(());
        }
        other => other?,
    };
    if let Err(fault) = judge(cx, exchange, job, &source, sent).await {
        // What is there under its name is not what it should be.
        list::remove(exchange, &job.to).await;
        return Err(named(fault, &shown));
    }
    cx.copied(&shown, source.facts.size, "copied", Some("http"));
    Ok(())
}

/// Asks a server that it replaces nothing, where nothing may be replaced; one that does not understand it has been asked what is there.
pub(super) fn guard(order: &Order, fields: &mut HeaderMap) {
    if order.existing == Existing::Keep {
        fields.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
}

/// Whether a server has said that something is there, which is to be kept.
pub(super) fn is_kept(order: &Order, fault: &Fault) -> bool {
    let there =
        matches!(fault, Fault::Status { status, .. } if *status == StatusCode::PRECONDITION_FAILED);
    there && order.existing == Existing::Keep
}

/// Sees that what is kept is no part of a file that an attempt of our own has left.
pub(super) async fn see_whole(
    exchange: &Rc<Exchange>,
    to: &Target,
    size: u64,
    tries: &Cell<u32>,
) -> Result<(), Fault> {
    if tries.get() < 2 {
        return Ok(());
    }
    let there = list::head(exchange, to, Worth::Nothing).await?.size;
    if there == Some(size) {
        return Ok(());
    }
    let found = there.map_or("one of no size".into(), |there| format!("{there} bytes"));
    Err(Fault::Local(Failure::found(
        PathBuf::from(to.to_string()),
        format!("{size} bytes, after an attempt that broke off"),
        found,
        "remove it if it is a part of the copy, then run the same command again",
    )))
}

/// What an upload said and what was sent.
struct Sent {
    digests: Vec<Digest>,
    /// None if the server did not want all of it.
    sum: Option<Adler32>,
}

async fn send(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Store,
    source: &Source,
    tries: &Cell<u32>,
) -> Result<Sent, Fault> {
    let mut fields = HeaderMap::new();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    digest::ask(&mut fields);
    guard(cx.order, &mut fields);
    if cx.order.preserve.times {
        fields.insert(MTIME, HeaderValue::from(source.facts.modified.0));
    }
    let size = source.facts.size;
    // Said of an empty file, too: nginx wants it.
    fields.insert(CONTENT_LENGTH, HeaderValue::from(size));
    let (sum, count) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU64::new(0)));
    let small = if size <= SENT_AT_ONCE {
        Some(read(source).map_err(Fault::Local)?)
    } else {
        None
    };
    let body = || {
        tries.set(tries.get() + 1);
        match &small {
            Some(bytes) => {
                *sum.lock().unwrap_or_else(PoisonError::into_inner) = Some(Adler32::of(bytes));
                count.store(bytes.len() as u64, Ordering::Relaxed);
                Outgoing::Whole(bytes.clone())
            }
            None => stream(
                Arc::clone(&source.file),
                size,
                Arc::clone(&sum),
                Arc::clone(&count),
            ),
        }
    };
    let ask = Ask {
        body: &body,
        expects: size > SENT_AT_ONCE,
        ..Ask::plain(Method::PUT, fields)
    };
    let answer = counted(cx, &count, exchange.ask(&job.to, &ask, &[])).await?;
    let digests = digest::found(&answer.head.headers);
    answer.finish().await;
    let sum = sum.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Sent { digests, sum })
}

/// Sees that what is there now is the source.
async fn judge(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Store,
    source: &Source,
    sent: Sent,
) -> Result<(), Fault> {
    let again = rustix::fs::fstat(&source.file).map(attributes::Facts::from);
    if again.map_or(true, |again| !source.facts.unchanged(&again)) {
        return Err(Fault::Local(Failure::found(
            source.path.clone(),
            "a file at rest",
            "that it was written to while it was copied",
            "run the same command again when nobody writes to it",
        )));
    }
    let early = || Fault::Answer {
        expected: "that the server takes all of it",
        found: "success before the last byte".into(),
    };
    let sum = sent.sum.ok_or_else(early)?;
    verify(cx, exchange, job, source, (sum, sent.digests)).await
}

/// Adds to the totals while a body goes out.
pub(super) async fn counted<T>(
    cx: &Context<'_>,
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

/// Compares the checksum of what was sent with that of what is there, where the server tells one or that was asked for.
async fn verify(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Store,
    source: &Source,
    (sum, mut digests): (Adler32, Vec<Digest>),
) -> Result<(), Fault> {
    if digests.is_empty() && cx.order.verify {
        digests = list::head(exchange, &job.to, Worth::Waiting).await?.digests;
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
        Some(told) if cx.order.verify => compare(Some(told), Some(sum_of(source, told.0)?)),
        _ => Ok(()),
    }
}

/// Whether it is there already, by the rules of the order.
async fn is_there(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Store,
    source: &Source,
) -> Result<bool, Fault> {
    if cx.order.existing == Existing::Replace {
        return Ok(false);
    }
    let asked = seen(exchange, &job.to);
    let there = match &job.there {
        Some(there) => there.clone(),
        None if cx.is_one => exchange.with_spare(&job.to.server, asked).await?,
        None => asked.await?,
    };
    let Some(mut there) = there else {
        return Ok(false);
    };
    if cx.order.existing == Existing::Keep {
        return Ok(true);
    }
    if there.size != Some(source.facts.size) {
        return Ok(false);
    }
    if cx.order.checksum {
        if there.digests.is_empty() {
            there = list::head(exchange, &job.to, Worth::Waiting).await?;
        }
        return match there.digests.first() {
            Some((algorithm, told)) => Ok(sum_of(source, *algorithm)? == *told),
            None => Ok(false),
        };
    }
    // Most servers keep the time of the upload: what came after the last change of the source is that.
    let seconds = there
        .modified
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(seconds.is_some_and(|time| {
        i64::try_from(time.as_secs()).is_ok_and(|time| time >= source.facts.modified.0)
    }))
}

async fn seen(exchange: &Rc<Exchange>, place: &Target) -> Result<Option<Facts>, Fault> {
    match list::head(exchange, place, Worth::Nothing).await {
        Ok(facts) => Ok(Some(facts)),
        Err(Fault::Status {
            status: StatusCode::NOT_FOUND | StatusCode::CONFLICT,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}
