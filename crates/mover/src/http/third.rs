//! From server to server (HTTP-TPC): the destination pulls; else the source pushes; else the bytes come through us.

mod copy;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use http::StatusCode;

use super::exchange::Exchange;
use super::fault::{Fault, no_digest};
use super::list::{self, Facts, Worth};
use super::put::{is_kept, see_whole};
use super::target::Target;
use super::through::through;
use super::tries::Tries;
use super::work::Context;
use crate::order::Existing;
use copy::{Active, Done, copy};

/// A file of a server that is to come to another.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) from: Target,
    pub(crate) facts: Option<Facts>,
    pub(crate) to: Target,
    /// What is there, if anything, as a listing has it; none if the server has to be asked.
    pub(crate) there: Option<Option<Facts>>,
}

impl Pass {
    /// Where the source's server may take the destination to be: nginx passes over the port of a place on a host of its own name.
    fn mistaken(&self) -> Option<Target> {
        let same_name = (self.from.server.host).eq_ignore_ascii_case(&self.to.server.host);
        (same_name && self.from.server != self.to.server).then(|| Target {
            server: self.from.server.clone(),
            path: self.to.path.clone(),
        })
    }

    fn is_pushed_by(&self, active: Active) -> bool {
        active == Active::Source && self.from.server != self.to.server
    }
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
        let pushes = job.is_pushed_by(active);
        let mistaken = job.mistaken().filter(|_| pushes);
        if let Some(place) = &mistaken
            && !is_free(exchange, place).await
        {
            continue;
        }
        match when_free(cx, exchange, job, active, size.unwrap_or(0), tries).await {
            Ok(Done::Silently) if pushes && !has_come(exchange, job, size).await? => {
                // It was not there before.
                if let Some(place) = mistaken {
                    list::remove(exchange, &place).await;
                }
            }
            Ok(done) => {
                // Those that tell are counted as they come.
                let silent = if done == Done::Silently { size } else { None };
                let moved = &cx.totals.moved_bytes;
                moved.fetch_add(silent.unwrap_or(0), Ordering::Relaxed);
                return Ok(how);
            }
            Err(fault) if is_unable(&fault) || (pushes && is_occupied(&fault)) => {}
            Err(fault) => return Err(fault),
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

/// Whether something was in the way of a copy that may replace nothing.
fn is_occupied(fault: &Fault) -> bool {
    matches!(fault, Fault::Status { status, .. } if *status == StatusCode::PRECONDITION_FAILED)
}

/// Whether what a server says to have sent is where it should be.
async fn has_come(exchange: &Rc<Exchange>, job: &Pass, size: Option<u64>) -> Result<bool, Fault> {
    match list::head(exchange, &job.to, Worth::Nothing).await {
        Ok(facts) => Ok(facts.size == size),
        Err(Fault::Status { .. }) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Whether nothing is at a place, as far as its server says.
async fn is_free(exchange: &Rc<Exchange>, place: &Target) -> bool {
    let there = list::head(exchange, place, Worth::Nothing).await;
    matches!(there, Err(Fault::Status { status, .. }) if status == StatusCode::NOT_FOUND)
}

/// Copies, and again where that breaks off, or when the destination is free: a copy that was killed may not have ended there.
async fn when_free(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    active: Active,
    size: u64,
    tries: &Cell<u32>,
) -> Result<Done, Fault> {
    let failed = &mut Tries::default();
    loop {
        match copy(cx, exchange, job, active, size, (failed, tries)).await {
            Ok(done) => return Ok(done),
            Err(fault @ Fault::Silence(_)) => return Err(fault),
            Err(fault) => failed.again(exchange, fault).await?,
        }
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
    let there = match &job.there {
        Some(there) if !cx.order.checksum => there.clone(),
        _ => match list::head(exchange, &job.to, Worth::of(cx.order.checksum)).await {
            Ok(facts) => Some(facts),
            Err(Fault::Status {
                status: StatusCode::NOT_FOUND | StatusCode::CONFLICT,
                ..
            }) => None,
            Err(fault) => return Err(fault),
        },
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
