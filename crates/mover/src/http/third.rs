//! From server to server (HTTP-TPC): the destination pulls; else the source pushes; else the bytes come through us.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::answer::Answer;
use super::exchange::{Ask, Exchange, PATIENCE};
use super::fault::{Fault, no_digest};
use super::list::{self, Facts, Worth};
use super::marker::{Markers, Told};
use super::outgoing::Outgoing;
use super::put::{is_kept, see_whole};
use super::target::Target;
use super::through::through;
use super::tries::Tries;
use super::work::Context;
use crate::order::Existing;

const SOURCE: HeaderName = HeaderName::from_static("source");
const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// A file of a server that is to come to another.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) from: Target,
    pub(crate) facts: Option<Facts>,
    pub(crate) to: Target,
    /// What is there, as a listing has it.
    pub(crate) there: Option<Facts>,
    /// Whether `there` is the truth; else the server is asked.
    pub(crate) listed: bool,
}

/// Bytes a second of the slowest server that copies within itself, and says nothing before it is done.
const SLOWEST: u64 = 5_000_000;
/// Waiting for a destination that another copy holds begins with this and doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long a server may take to begin its answer to a COPY of so many bytes.
fn patience(size: u64) -> Duration {
    PATIENCE.saturating_add(Duration::from_secs(size / SLOWEST))
}

/// Who moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Active {
    Destination,
    Source,
}

/// Has a file copied.
pub(crate) async fn pass(cx: &Context<'_>, exchange: &Rc<Exchange>, job: Pass) {
    if let Err(fault) = try_pass(cx, exchange, &job).await {
        cx.tell(&fault.at(&job.to));
    }
}

async fn try_pass(cx: &Context<'_>, exchange: &Rc<Exchange>, job: &Pass) -> Result<(), Fault> {
    let shown = PathBuf::from(job.to.to_string());
    let worth = Worth::of(cx.order.verify || cx.order.checksum);
    let source = match &job.facts {
        Some(facts) if !(cx.order.verify || cx.order.checksum) => facts.clone(),
        _ => list::head(exchange, &job.from, worth)
            .await
            .map_err(|fault| Fault::Local(fault.at(&job.from)))?,
    };
    let size = source.size.unwrap_or(0);
    if is_there(cx, exchange, job, &source).await? {
        cx.kept(&shown, size);
        return Ok(());
    }
    if cx.order.dry_run {
        cx.copied(&shown, size, "would copy", None);
        return Ok(());
    }
    let tries = Cell::new(0);
    let how = match carry(cx, exchange, job, source.size, &tries).await {
        Err(fault) if is_kept(cx.order, &fault) => {
            see_whole(exchange, &job.to, size, &tries).await?;
            cx.kept(&shown, size);
            return Ok(());
        }
        other => other?,
    };
    if let Err(fault) = verify(cx, exchange, job, &source).await {
        // What is there under its name is not what it should be.
        list::remove(exchange, &job.to).await;
        return Err(fault);
    }
    cx.copied(&shown, size, "copied", Some(how));
    Ok(())
}

async fn carry(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    size: Option<u64>,
    tries: &Cell<u32>,
) -> Result<&'static str, Fault> {
    if size == Some(0) {
        // There is nothing to carry, and XRootD 5 pulls no empty file ("Internal state error in libcurl").
        return through(cx, exchange, job, size, tries)
            .await
            .map(|()| "through the client");
    }
    let mut ways = [(Active::Destination, "pulled"), (Active::Source, "pushed")];
    if job.from.server == job.to.server {
        // Within a server this is COPY of plain WebDAV, and no byte leaves it.
        ways = [
            (Active::Source, "by the server"),
            (Active::Destination, "pulled"),
        ];
    }
    for (active, how) in ways {
        match when_free(cx, exchange, job, active, size.unwrap_or(0), tries).await {
            Ok(()) => return Ok(how),
            Err(fault) if !is_unable(&fault) => return Err(fault),
            Err(_) => {}
        }
    }
    through(cx, exchange, job, size, tries)
        .await
        .map(|()| "through the client")
}

/// Whether a server says that it does not copy to or from others, or not for us, or does not understand how we ask.
fn is_unable(fault: &Fault) -> bool {
    matches!(fault, Fault::Status { status, .. } if matches!(status.as_u16(), 400 | 403 | 405 | 415 | 501 | 502))
}

/// Copies as soon as the destination is free: one that was killed may not have ended there.
async fn when_free(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    active: Active,
    size: u64,
    tries: &Cell<u32>,
) -> Result<(), Fault> {
    let mut locked = Tries::from(FIRST_PAUSE);
    loop {
        match copy(cx, exchange, job, active, size, tries).await {
            Err(fault) if is_locked(&fault) => locked.again(exchange, fault).await?,
            other => return other,
        }
    }
}

fn is_locked(fault: &Fault) -> bool {
    matches!(fault, Fault::Status { status, .. } if *status == StatusCode::LOCKED)
}

async fn copy(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    active: Active,
    size: u64,
    tries: &Cell<u32>,
) -> Result<(), Fault> {
    let passed_on = |name, text: &[u8]| {
        let token = cx.token.as_ref()?;
        let mut value = HeaderValue::from_bytes(&[text, token.as_bytes()].concat()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_static(name), value))
    };
    let token = passed_on("transferheaderauthorization", b"");
    match copy_with(cx, exchange, job, active, (size, token), tries).await {
        // XRootD 5.5 knows the field by its capitals alone, and HTTP has none; it has an older one, which needs no more than one.
        Err(fault) if cx.token.is_some() && is_unknown(&fault) => {
            let token = passed_on("copy-header", b"Authorization: ");
            copy_with(cx, exchange, job, active, (size, token), tries).await
        }
        other => other,
    }
}

/// Whether the passive server did not let the active one in.
fn is_unknown(fault: &Fault) -> bool {
    match fault {
        Fault::Status { said, .. } | Fault::Answer { found: said, .. } => {
            said.contains("401") || said.contains("403")
        }
        _ => false,
    }
}

async fn copy_with(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    active: Active,
    (size, token): (u64, Option<(HeaderName, HeaderValue)>),
    tries: &Cell<u32>,
) -> Result<(), Fault> {
    let (at, field, other) = match active {
        Active::Destination => (&job.to, SOURCE, &job.from),
        Active::Source => (&job.from, DESTINATION, &job.to),
    };
    let mut fields = HeaderMap::new();
    let unfit = |_| Fault::Answer {
        expected: "a place that fits into a header field",
        found: "other signs".into(),
    };
    fields.insert(field, HeaderValue::try_from(other.url()).map_err(unfit)?);
    let overwrite = if cx.order.existing == Existing::Keep {
        "F"
    } else {
        "T"
    };
    fields.insert("overwrite", HeaderValue::from_static(overwrite));
    // We have no proxy to delegate: what the passive side wants to see is in the fields that are passed on.
    fields.insert("credential", HeaderValue::from_static("none"));
    fields.insert("x-no-delegate", HeaderValue::from_static("true"));
    fields.insert(
        "requirechecksumverification",
        HeaderValue::from_static("false"),
    );
    fields.insert("x-number-of-streams", HeaderValue::from(cx.streams));
    fields.extend(token);
    let method = Method::from_bytes(b"COPY").expect("letters");
    let body = || {
        tries.set(tries.get() + 1);
        Outgoing::EMPTY
    };
    let ask = Ask {
        body: &body,
        patience: patience(size),
        ..Ask::plain(method, fields)
    };
    let answer = exchange.ask(at, &ask, &[]).await?;
    match answer.head.status {
        StatusCode::ACCEPTED => followed(cx, answer, size).await,
        // Done at once, in silence.
        _ if answer.length() == Some(0) || answer.head.status == StatusCode::NO_CONTENT => {
            cx.totals.moved_bytes.fetch_add(size, Ordering::Relaxed);
            answer.finish().await;
            Ok(())
        }
        _ => followed(cx, answer, size).await,
    }
}

/// Follows a transfer to its last line: it alone says what came of it.
async fn followed(cx: &Context<'_>, mut answer: Answer, size: u64) -> Result<(), Fault> {
    let (mut markers, mut counted) = (Markers::default(), 0);
    let wrong = |found: String| Fault::Answer {
        expected: "a transfer that is told to its end",
        found,
    };
    while let Some(bytes) = answer.bytes().await? {
        if let Some(sum) = markers.take(&bytes).map_err(wrong)? {
            cx.totals
                .moved_bytes
                .fetch_add(sum.saturating_sub(counted), Ordering::Relaxed);
            counted = counted.max(sum);
        }
        if cx.stop.asked() {
            return Err(Fault::Stopped);
        }
    }
    answer.finish().await;
    match markers.end() {
        Some(Told::Success) => {
            // A quick one has no markers.
            cx.totals
                .moved_bytes
                .fetch_add(size.saturating_sub(counted), Ordering::Relaxed);
            Ok(())
        }
        Some(Told::Failure(said)) if said.contains("423 Locked") => Err(Fault::Status {
            status: StatusCode::LOCKED,
            said,
            after: None,
        }),
        Some(Told::Failure(said)) => Err(Fault::Answer {
            expected: "that the servers copy it",
            found: said,
        }),
        _ => Err(wrong(
            "an answer that ends without saying what came of it".into(),
        )),
    }
}

async fn verify(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    source: &Facts,
) -> Result<(), Fault> {
    if !cx.order.verify {
        return Ok(());
    }
    let there = list::head(exchange, &job.to, Worth::Waiting).await?;
    match common(source, &there) {
        Some(true) => Ok(()),
        Some(false) => Err(Fault::Answer {
            expected: "the checksum of the source",
            found: "another".into(),
        }),
        None => Err(no_digest()),
    }
}

/// Whether a checksum that both tell is the same; none if they tell none of the same kind.
fn common(a: &Facts, b: &Facts) -> Option<bool> {
    a.digests.iter().find_map(|(algorithm, ours)| {
        let theirs = b.digests.iter().find(|(other, _)| other == algorithm)?;
        Some(theirs.1 == *ours)
    })
}

async fn is_there(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    source: &Facts,
) -> Result<bool, Fault> {
    if cx.order.existing == Existing::Replace {
        return Ok(false);
    }
    let there = if job.listed && !cx.order.checksum {
        job.there.clone()
    } else {
        match list::head(exchange, &job.to, Worth::of(cx.order.checksum)).await {
            Ok(facts) => Some(facts),
            Err(Fault::Status {
                status: StatusCode::NOT_FOUND | StatusCode::CONFLICT,
                ..
            }) => None,
            Err(fault) => return Err(fault),
        }
    };
    let Some(there) = there else { return Ok(false) };
    if cx.order.existing == Existing::Keep {
        return Ok(true);
    }
    if there.size.is_none() || there.size != source.size {
        return Ok(false);
    }
    if cx.order.checksum {
        return Ok(common(source, &there) == Some(true));
    }
    Ok(there
        .modified
        .zip(source.modified)
        .is_some_and(|(there, source)| there >= source))
}

#[cfg(test)]
mod tests;
