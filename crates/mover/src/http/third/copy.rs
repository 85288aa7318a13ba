//! One COPY, and what its answer says came of it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::Pass;
use crate::http::answer::Answer;
use crate::http::exchange::{Ask, Exchange, PATIENCE};
use crate::http::fault::Fault;
use crate::http::list::{self, Worth};
use crate::http::marker::{Markers, Told};
use crate::http::outgoing::Outgoing;
use crate::http::pieces::STREAMS;
use crate::http::target::Target;
use crate::http::tries::Tries;
use crate::http::work::Context;
use crate::order::Existing;

const SOURCE: HeaderName = HeaderName::from_static("source");
const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Bytes a second of the slowest server that copies within itself, and says nothing before it is done.
const SLOWEST: u64 = 5_000_000;

/// How long a server may take to begin its answer to a COPY of so many bytes.
fn patience(size: u64) -> Duration {
    PATIENCE.saturating_add(Duration::from_secs(size / SLOWEST))
}

/// Who moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Active {
    Destination,
    Source,
}

/// How a server says that it has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// By the last line of its answer, as those that copy to others do.
    Told,
    /// By its status alone, as plain WebDAV has it.
    Silently,
}

/// Asks a server to copy a file, in the words that it knows.
pub(super) async fn copy(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    active: Active,
    size: u64,
    (failed, tries): (&mut Tries, &Cell<u32>),
) -> Result<Done, Fault> {
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
        let words = (streams, token.clone());
        match copy_with(cx, exchange, job, active, (size, words), (failed, tries)).await {
            // XRootD 5.5 knows the field by its capitals alone, and HTTP has none; it has an older one, which needs no more than one.
            Err(fault) if token.is_some() && !is_older && is_unknown(&fault) => {
                token = passed_on("copy-header", b"Authorization: ");
                is_older = true;
            }
            Err(fault) if cx.streams.is_none() && streams > 1 && has_no_room(&fault) => {
                let reason = "the destination has no buffer left for what comes out of order";
                cx.decided("streams", 1, reason.into());
                // What it has left is ours, and in the way of a copy that may replace nothing.
                list::remove(exchange, &job.to).await;
                streams = 1;
            }
            other => return other,
        }
    }
}

/// Whether XRootD has filled all buffers of its pull, the one whose turn it is being the last: it writes them when more comes, and for more it
/// has no buffer (seen with 5.5.3). One stream needs none.
fn has_no_room(fault: &Fault) -> bool {
    matches!(fault, Fault::Answer { found, .. } if found.contains("Internal logic error led to early abort"))
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
    (size, (streams, token)): (u64, (usize, Option<(HeaderName, HeaderValue)>)),
    (failed, tries): (&mut Tries, &Cell<u32>),
) -> Result<Done, Fault> {
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
    // Who pushes may take it for a place of its own: there nothing may be lost.
    let replaces = cx.order.existing != Existing::Keep && !job.is_pushed_by(active);
    let overwrite = if replaces { "T" } else { "F" };
    fields.insert("overwrite", HeaderValue::from_static(overwrite));
    // We have no proxy to delegate: what the passive side wants to see is in the fields that are passed on.
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
        tries.set(tries.get() + 1);
        Outgoing::EMPTY
    };
    let ask = Ask {
        body: &body,
        patience: patience(size),
        ..Ask::plain(method, fields)
    };
    let answer = exchange.ask_as(failed, at, &ask, &[]).await?;
    match answer.head.status {
        StatusCode::ACCEPTED => followed(cx, answer, size, false).await,
        // Done at once, in silence.
        _ if answer.length() == Some(0) || answer.head.status == StatusCode::NO_CONTENT => {
            answer.finish().await;
            Ok(Done::Silently)
        }
        // Within a server it is COPY of WebDAV, whose status says what came of it (RFC 4918, section 9.8.5), beside a word or a page for people;
        // XRootD has markers there, too.
        status => {
            let plain = status == StatusCode::CREATED && job.from.server == job.to.server;
            let done = followed(cx, answer, size, plain).await?;
            if plain && size > 0 {
                see_size(exchange, &job.to, size).await?;
            }
            Ok(done)
        }
    }
}

/// Sees that a server has what it says to have made.
async fn see_size(exchange: &Rc<Exchange>, to: &Target, size: u64) -> Result<(), Fault> {
    let there = list::head(exchange, to, Worth::Nothing).await?.size;
    if there == Some(size) {
        return Ok(());
    }
    Err(Fault::Answer {
        expected: "a copy of the size of its source",
        found: there.map_or("one of no size".into(), |there| format!("{there} bytes")),
    })
}

/// Follows a transfer to its last line: it alone says what came of it, but where that is `plain` and there are no markers.
async fn followed(
    cx: &Context<'_>,
    mut answer: Answer,
    size: u64,
    plain: bool,
) -> Result<Done, Fault> {
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
    let plain = plain && !markers.are_there();
    match markers.end().or(plain.then_some(Told::Success)) {
        Some(Told::Success) => {
            // A quick one has no markers.
            cx.totals
                .moved_bytes
                .fetch_add(size.saturating_sub(counted), Ordering::Relaxed);
            Ok(Done::Told)
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

#[cfg(test)]
mod tests;
