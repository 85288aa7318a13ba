//! A file from a server: judged, fetched under a temporary name, its checksum compared, renamed.
//!
//! The first answer says how large the file is and which version. Of a large one it brings the first piece: what is left is fetched by
//! whoever has time, each piece guarded by that version (`If-Range`). A range beyond the end is never asked for: XRootD 5.5 promises bytes that
//! it does not have then.

use std::ffi::CString;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use futures_util::future::{Either, select};
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, IF_RANGE, RANGE, SERVER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::answer::Answer;
use super::connect::Manner;
use super::digest::compare;
use super::exchange::Exchange;
use super::fault::{Fault, named};
use super::folder::Folder;
use super::judge::{is_there, see_digests, see_listed};
use super::landing::Landing;
use super::list::{self, Facts, Worth};
use super::pieces::{most_at_first, pieces};
use super::range;
use super::target::Target;
use super::tries::Tries;
use super::work::Context;
use crate::checksum::{Algorithm, Checksum};
use crate::journal::Origin;

/// The checksum that is asked for afterwards.
const LATE: Algorithm = Algorithm::Adler32;
/// Files that are known to be smaller are fetched without a range.
const WORTH_A_RANGE: u64 = 8 << 20;

/// A file of a server that is to come here.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: Target,
    /// As a listing has it.
    pub(crate) facts: Option<Facts>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) name: CString,
    /// Whether nothing can be there.
    pub(crate) fresh: bool,
    /// The copy that it belongs to.
    pub(crate) origin: Origin,
}

impl Fetch {
    /// Its size, as far as it is known.
    pub(super) fn size(&self) -> Option<u64> {
        self.facts.as_ref()?.size
    }

    /// When a listing has it that a file of this size was changed last.
    pub(super) fn changed(&self, size: u64) -> Option<SystemTime> {
        let listed = self.facts.as_ref().filter(|facts| facts.size == Some(size));
        listed?.modified
    }
}

/// Fetches a file, or has it fetched.
pub(crate) async fn fetch(cx: &Context<'_>, exchange: &Rc<Exchange>, job: Fetch) {
    let (from, folder) = (job.from.clone(), Arc::clone(&job.folder));
    if let Err(fault) = try_fetch(cx, exchange, job).await {
        cx.tell(&fault.at(&from));
    }
    Folder::release(cx, folder);
}

async fn try_fetch(cx: &Context<'_>, exchange: &Rc<Exchange>, mut job: Fetch) -> Result<(), Fault> {
    if !job.fresh && is_there(cx, exchange, &mut job).await? {
        let size = job.size().unwrap_or(0);
        cx.kept(&job.folder.at(&job.name), size);
        return Ok(());
    }
    if cx.order.dry_run {
        let size = match &job.facts {
            Some(facts) => facts.size,
            None => list::head(exchange, &job.from, Worth::Nothing).await?.size,
        };
        let size = size.unwrap_or(0);
        cx.copied(&job.folder.at(&job.name), size, "would copy", None);
        return Ok(());
    }
    if cx.order.verify {
        see_digests(exchange, &mut job).await?;
    }
    let mut tries = Tries::default();
    while let Err((fault, again)) = once(cx, exchange, &mut tries, job).await {
        tries.again(exchange, fault).await?;
        job = again;
    }
    Ok(())
}

/// One attempt; the job comes back if it failed.
async fn once(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    tries: &mut Tries,
    mut job: Fetch,
) -> Result<(), (Fault, Fetch)> {
    let is_known = exchange.manner(&job.from).is_some();
    let listed = lacks_time(cx, exchange, &job, job.size());
    if listed {
        see_listed(exchange, &mut job).await;
    }
    let known = job.size().filter(|size| *size >= WORTH_A_RANGE);
    let first = known.map(|size| 0..size.min(most_at_first(cx.streams)));
    let asked = if cx.is_one && !is_known && job.facts.is_none() && job.from.server.tls {
        ask_and_list(exchange, tries, &job.from).await
    } else {
        let asked = ask(exchange, tries, &job.from, first, None).await;
        asked.map(|answer| (answer, None))
    };
    let (answer, meanwhile) = match asked {
        Ok(asked) => asked,
        Err(fault) => return Err((fault, job)),
    };
    let (mut facts, size, there) = match begun(&job, &answer) {
        Ok(begun) => (begun.facts, begun.size, begun.there),
        Err(fault) => return Err((fault, job)),
    };
    // Of the old field it had not been asked, and it does not compute what it is asked for.
    let may_tell = !is_known && exchange.manner(&job.from) == Some(Manner::Full);
    let late = may_tell && facts.digests.is_empty() && size != Some(0);
    let versions = facts.identity().is_some();
    if let (Some(size), Some(there)) = (size.filter(|size| *size >= WORTH_A_RANGE), there) {
        if versions && late {
            // What comes meanwhile, the kernel keeps.
            facts.digests = list::digests(exchange, &job.from, &facts).await;
        }
        if !versions && !listed {
            // Connections for what is then asked for are opened meanwhile.
            let more = cx.streams.map_or(0, |streams| streams.saturating_sub(1));
            let wanted = cx.connect(&job.from.server, more);
            see_listed_now(exchange, &mut job, meanwhile).await;
            drop(wanted);
        }
        let time = job.changed(size).filter(|_| !versions);
        if versions || time.is_some() {
            let begin = if versions || listed {
                (Some(answer), there)
            } else {
                // What it was asked for before is perhaps of another version.
                drop(answer);
                (None, 0..0)
            };
            return pieces(cx, exchange, job, (facts, time), size, begin).await;
        }
    } else if !versions && !listed && lacks_time(cx, exchange, &job, size) {
        answer.finish().await;
        see_listed_now(exchange, &mut job, meanwhile).await;
        return again(cx, exchange, tries, &job)
            .await
            .map_err(|fault| (fault, job));
    }
    let done = if answer.head.status == StatusCode::PARTIAL_CONTENT {
        // Nothing would tell whether the rest is of the same version.
        again(cx, exchange, tries, &job).await
    } else {
        whole(cx, &job, &facts, size, answer, late.then_some(exchange)).await
    };
    done.map_err(|fault| (fault, job))
}

/// Asks for a file, and meanwhile for its entry in a listing, which is waited for if nothing else will tell when it was changed last: over TLS a
/// connection of its own is three round trips that do not come one after the other.
async fn ask_and_list(
    exchange: &Rc<Exchange>,
    tries: &mut Tries,
    from: &Target,
) -> Result<(Answer, Option<Facts>), Fault> {
    let asked = std::pin::pin!(ask(exchange, tries, from, None, None));
    let listed = std::pin::pin!(list::entry(exchange, from));
    match select(asked, listed).await {
        Either::Left((asked, listed)) => {
            let answer = asked?;
            let listed = match exchange.manner(from) {
                Some(Manner::Listed) => listed.await,
                _ => None,
            };
            Ok((answer, listed))
        }
        Either::Right((listed, asked)) => Ok((exchange.beside(&from.server, asked).await?, listed)),
    }
}

/// Has a listing say what a file is: the one that was asked for meanwhile, or one of now.
async fn see_listed_now(exchange: &Rc<Exchange>, job: &mut Fetch, meanwhile: Option<Facts>) {
    match meanwhile {
        Some(facts) => job.facts = Some(facts),
        None => see_listed(exchange, job).await,
    }
}

/// Whether a listing has to tell when a file was changed last.
fn lacks_time(cx: &Context<'_>, exchange: &Exchange, job: &Fetch, size: Option<u64>) -> bool {
    let large = size.is_some_and(|size| size >= WORTH_A_RANGE);
    let told = job
        .facts
        .as_ref()
        .is_some_and(|facts| facts.modified.is_some());
    let wanted = large || (cx.order.preserve.times && !told);
    wanted && exchange.manner(&job.from) == Some(Manner::Listed)
}

/// All of it, from an answer that nothing else is to be held against.
async fn again(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    tries: &mut Tries,
    job: &Fetch,
) -> Result<(), Fault> {
    let answer = ask(exchange, tries, &job.from, None, None).await?;
    let Begun { facts, size, .. } = begun(job, &answer)?;
    whole(cx, job, &facts, size, answer, None).await
}

pub(super) async fn ask(
    exchange: &Rc<Exchange>,
    tries: &mut Tries,
    from: &Target,
    asked: Option<Range<u64>>,
    version: Option<&str>,
) -> Result<Answer, Fault> {
    // What goes on has the checksum of its begin.
    let worth = if version.is_some() {
        Worth::Nothing
    } else {
        Worth::Little
    };
    let mut fields = HeaderMap::new();
    if let Some(asked) = asked {
        fields.insert(
            RANGE,
            HeaderValue::try_from(range::range(&asked)).expect("digits"),
        );
        if let Some(Ok(version)) = version.map(HeaderValue::try_from) {
            fields.insert(IF_RANGE, version);
        }
    }
    list::file(exchange, tries, from, Method::GET, fields, worth).await
}

/// What the first answer says.
struct Begun {
    facts: Facts,
    /// None where the server does not say it beforehand.
    size: Option<u64>,
    /// What it has, if the rest may be asked for by range.
    there: Option<Range<u64>>,
}

fn begun(job: &Fetch, answer: &Answer) -> Result<Begun, Fault> {
    let is_folder = |path: &str| {
        path.split('?')
            .next()
            .is_some_and(|path| path.ends_with('/'))
    };
    if is_folder(&answer.from.path) && !is_folder(&job.from.path) {
        return Err(Fault::Answer {
            expected: "a file",
            found: "a directory: say --recursive to copy it".into(),
        });
    }
    let mut facts = Facts::of(answer);
    if let (true, Some(listed)) = (facts.digests.is_empty(), &job.facts) {
        facts.digests.clone_from(&listed.digests);
    }
    if answer.head.status == StatusCode::PARTIAL_CONTENT {
        return match answer.field(&CONTENT_RANGE).and_then(range::answered) {
            Some((Some(there), Some(size))) if there.start == 0 => Ok(Begun {
                facts,
                size: Some(size),
                there: Some(there),
            }),
            _ => Err(Fault::Answer {
                expected: "a range from the first byte on, and the size",
                found: "another".into(),
            }),
        };
    }
    if answer.head.status == StatusCode::RANGE_NOT_SATISFIABLE {
        // It has become shorter than the listing said.
        return Err(Fault::Changed);
    }
    // XRootD 5.5 has ranges and does not say so.
    let has_ranges = answer
        .field(&ACCEPT_RANGES)
        .is_some_and(|unit| unit.eq_ignore_ascii_case("bytes"))
        || answer
            .field(&SERVER)
            .is_some_and(|name| name.starts_with("XrootD"));
    let size = answer.file_length()?;
    Ok(Begun {
        facts,
        size,
        there: size.filter(|_| has_ranges).map(|size| 0..size),
    })
}

/// All of a file in one answer; with whom its checksum is asked for afterwards, if that may be told.
async fn whole(
    cx: &Context<'_>,
    job: &Fetch,
    facts: &Facts,
    size: Option<u64>,
    answer: Answer,
    late: Option<&Rc<Exchange>>,
) -> Result<(), Fault> {
    let landing = Landing::open(
        &job.folder,
        &job.name,
        job.origin.token,
        None,
        None,
        cx.order.sync,
    )
    .map_err(Fault::Local)?;
    let filled = fill(cx, &landing, facts, size, answer, late.is_some()).await;
    let result = match filled {
        Ok((bytes, sum)) => judge(job, facts, late, sum).await.map(|()| bytes),
        Err(fault) => Err(fault),
    };
    match result {
        Ok(bytes) => {
            let path = landing.path.clone();
            let modified = facts.modified.or_else(|| job.changed(bytes));
            landing
                .commit(&job.folder, &job.name, modified, cx.order)
                .map_err(Fault::Local)?;
            cx.copied(&path, bytes, "copied", Some("http"));
            Ok(())
        }
        Err(fault) => {
            landing.discard(&job.folder);
            Err(named(fault, &landing.path))
        }
    }
}

async fn fill(
    cx: &Context<'_>,
    landing: &Landing,
    facts: &Facts,
    size: Option<u64>,
    mut answer: Answer,
    late: bool,
) -> Result<(u64, Option<Vec<u8>>), Fault> {
    let told = facts.digests.first().map(|(algorithm, _)| *algorithm);
    let mut sum = told.or(late.then_some(LATE)).map(Checksum::new);
    let mut at = 0;
    while let Some(bytes) = answer.bytes().await? {
        if let Some(sum) = &mut sum {
            sum.update(&bytes);
        }
        take(cx, landing, &bytes, &mut at, 0)?;
    }
    answer.finish().await;
    if size.is_some_and(|size| size != at) {
        return Err(Fault::Connection(format!(
            "{at} bytes of {}",
            size.unwrap_or(0)
        )));
    }
    Ok((at, sum.map(Checksum::finish)))
}

/// Compares the checksum with what the server has told, or tells now.
async fn judge(
    job: &Fetch,
    facts: &Facts,
    late: Option<&Rc<Exchange>>,
    sum: Option<Vec<u8>>,
) -> Result<(), Fault> {
    let Some(exchange) = late else {
        return compare(facts.digests.first(), sum);
    };
    let told = list::digests(exchange, &job.from, facts).await;
    compare(told.iter().find(|(algorithm, _)| *algorithm == LATE), sum)
}

pub(crate) fn take(
    cx: &Context<'_>,
    landing: &Landing,
    bytes: &[u8],
    at: &mut u64,
    from: u64,
) -> Result<(), Fault> {
    landing.write(bytes, *at, from).map_err(Fault::Local)?;
    *at += bytes.len() as u64;
    cx.totals
        .moved_bytes
        .fetch_add(bytes.len() as u64, Ordering::Relaxed);
    if cx.stop.asked() {
        Err(Fault::Stopped)
    } else {
        Ok(())
    }
}
