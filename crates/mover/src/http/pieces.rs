//! A large file: its pieces are fetched by several, those that an earlier copy has left are not, slow ones are taken over, and whoever is the last
//! finishes it.

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

use super::answer::Answer;
use super::claims::{Claim, Claims, cut, split};
use super::digest::{Digest, compare};
use super::exchange::Exchange;
use super::fault::{Fault, named, no_digest};
use super::folder::Folder;
use super::get::{Fetch, ask, take};
use super::landing::Landing;
use super::list::{self, Facts};
use super::range;
use super::tries::Tries;
use super::wait::TICK;
use super::work::{Context, Task};
use crate::checksum::{Adler32, Algorithm, Checksum};
use crate::net::trips::Trips;

/// What is fetched of a file at a time by each of several connections that were asked for.
const PIECE: u64 = 64 << 20;
/// Connections for one large file: more do not help a path that loses little, and are unfair to others on one that does. It begins with one, which on
/// a path that is nobody else's fills it; each request more leaves the path empty for a round trip.
pub(super) const STREAMS: usize = 4;

/// What is asked for first where so many connections were asked for: by one, all of it.
pub(super) fn most_at_first(streams: Option<usize>) -> u64 {
    match streams {
        Some(2..) => PIECE,
        _ => u64::MAX,
    }
}

/// A file whose pieces are fetched by several.
#[derive(Debug)]
pub(crate) struct Large {
    job: Fetch,
    facts: Facts,
    /// When it was changed last before the first byte, where that alone tells versions apart.
    time: Option<SystemTime>,
    size: u64,
    landing: Landing,
    /// What was missing when it was begun, and who has it.
    claims: Claims,
    /// What the connections tell.
    trips: Trips,
    /// Whether somebody was asked to help with what is slow.
    asked: AtomicBool,
    /// What has come.
    parts: Mutex<Vec<Part>>,
    failed: Mutex<Option<Fault>>,
}

/// Bytes that have come one after the other.
#[derive(Debug)]
struct Part {
    range: Range<u64>,
    sum: Adler32,
}

/// Begins a large file, of which this is the first answer, if any, and what it has.
pub(crate) async fn pieces(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: Fetch,
    (facts, time): (Facts, Option<SystemTime>),
    size: u64,
    (answer, there): (Option<Answer>, Range<u64>),
) -> Result<(), (Fault, Fetch)> {
    let identity = facts.identity().or_else(|| time.map(fmt_http_date));
    let opened = Landing::open(
        &job.folder,
        &job.name,
        job.origin.token,
        Some(size),
        identity.as_deref(),
        cx.order.sync,
    );
    let landing = match opened {
        Ok(landing) => landing,
        Err(failure) => return Err((Fault::Local(failure), job)),
    };
    if landing.there() > 0 {
        cx.resumed(&landing.path, landing.there(), size);
    }
    let missing = landing.missing(0..size);
    let (pieces, most) = match cx.streams {
        Some(streams @ 2..) => (cut(&missing, streams, PIECE, there.end.min(PIECE)), streams),
        streams => (split(&missing, there.end), streams.unwrap_or(STREAMS)),
    };
    let helpers = cx.streams.unwrap_or(1).min(pieces.len()).saturating_sub(1);
    let fits = pieces
        .first()
        .is_some_and(|first| first.start == 0 && first.end <= there.end);
    let large = Arc::new(Large {
        job,
        facts,
        time,
        size,
        landing,
        claims: Claims::new(pieces, most),
        trips: Trips::new(),
        asked: AtomicBool::new(false),
        parts: Mutex::default(),
        failed: Mutex::default(),
    });
    // Before anybody else: this one is there already.
    let first = large.claims.next(Instant::now());
    cx.pool
        .push((0..helpers).map(|_| Task::Help(Arc::clone(&large))));
    large
        .carry_on(cx, exchange, first, answer.filter(|_| fits))
        .await;
    Ok(())
}

impl Large {
    /// Fetches pieces until none is left that is worth it.
    pub(crate) async fn help(self: Arc<Self>, cx: &Context<'_>, exchange: &Rc<Exchange>) {
        if cx.streams.is_none()
            && let Some(reason) = self.refusal(exchange).await
            && let Some(count) = self.claims.settle()
        {
            cx.decided("streams", count as u64, reason.into());
        }
        self.asked.store(false, Ordering::Relaxed);
        let first = self.claims.next(Instant::now());
        self.carry_on(cx, exchange, first, None).await;
    }

    /// Why one more connection is not worth it, as it shows when it is opened: through what the others have queue.
    async fn refusal(&self, exchange: &Rc<Exchange>) -> Option<&'static str> {
        let server = &self.job.from.server;
        if !exchange.prepare(server).await {
            return Some("no more connections to the server are to be had");
        }
        let is_full = !self.claims.is_shared() && exchange.connections.is_full(server);
        is_full.then_some(
            "the path is full: a connection more takes longer to open than through empty queues",
        )
    }

    /// Begins with this piece, of which this is the answer, if any; whoever is the last to end finishes the file.
    async fn carry_on(
        self: Arc<Self>,
        cx: &Context<'_>,
        exchange: &Rc<Exchange>,
        mut claim: Option<Claim>,
        mut answer: Option<Answer>,
    ) {
        while let Some(piece) = claim {
            if !cx.stop.asked() && self.failed().is_none() {
                let fetched = self.piece(cx, exchange, &piece, answer.take()).await;
                if let Err(fault) = fetched {
                    self.failed().get_or_insert(fault);
                }
            }
            self.claims.end(&piece);
            claim = self.claims.next(Instant::now());
        }
        drop(answer);
        if let Some(last) = Arc::into_inner(self) {
            let folder = Arc::clone(&last.job.folder);
            last.see_unchanged(cx, exchange).await;
            last.finish(cx);
            Folder::release(cx, folder);
        }
    }

    /// Fetches a piece, or what others leave of it; who is slow is told to those who have nothing to do.
    async fn piece(
        self: &Arc<Self>,
        cx: &Context<'_>,
        exchange: &Rc<Exchange>,
        claim: &Claim,
        first: Option<Answer>,
    ) -> Result<(), Fault> {
        let mut part = Part {
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
                    Err(_) => self.call_for_help(cx),
                }
            }
        };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(part);
        fetched
    }

    fn call_for_help(self: &Arc<Self>, cx: &Context<'_>) {
        if cx.streams.is_none()
            && let Some(reason) = self.trips.losses()
            && self.claims.share()
        {
            cx.decided("streams", STREAMS as u64, reason);
            let helpers = (1..STREAMS).map(|_| Task::Help(Arc::clone(self)));
            return cx.pool.push(helpers);
        }
        let wanted = cx.pool.hungry() && self.claims.is_slow(Instant::now());
        if wanted && !self.asked.swap(true, Ordering::Relaxed) {
            cx.pool.push([Task::Help(Arc::clone(self))]);
        }
    }

    async fn bytes(
        &self,
        cx: &Context<'_>,
        exchange: &Rc<Exchange>,
        claim: &Claim,
        part: &mut Part,
        mut first: Option<Answer>,
    ) -> Result<(), Fault> {
        let wants_sum = self.adler().is_some();
        let mut tries = Tries::default();
        let mut looked = Instant::now();
        loop {
            let asked = self.claims.left(claim);
            if asked.is_empty() {
                return Ok(());
            }
            let mut answer = match first.take() {
                Some(answer) => answer,
                None => self.ask(exchange, &mut tries, asked.clone()).await?,
            };
            let fault = loop {
                match answer.bytes().await {
                    Err(fault) => break fault,
                    Ok(None) => break Fault::Connection("an answer that ends early".into()),
                    Ok(Some(bytes)) => {
                        let bytes = &bytes[..self.claims.take(claim, bytes.len())];
                        if wants_sum {
                            part.sum.update(bytes);
                        }
                        let (at, from) = (&mut part.range.end, part.range.start);
                        take(cx, &self.landing, bytes, at, from)?;
                        if looked.elapsed() >= TICK {
                            looked = Instant::now();
                            if let Some((seen, loses)) = answer.seen() {
                                self.trips.tell(&seen, loses);
                            }
                        }
                        if self.claims.left(claim).is_empty() {
                            // What others have taken over would come yet.
                            if *at == asked.end {
                                answer.finish().await;
                            }
                            return Ok(());
                        }
                    }
                }
            };
            if part.range.end > asked.start {
                tries = Tries::default();
            }
            tries.again(exchange, fault).await?;
        }
    }

    /// Asks for a range of the version that was begun, and of no other.
    async fn ask(
        &self,
        exchange: &Rc<Exchange>,
        tries: &mut Tries,
        asked: Range<u64>,
    ) -> Result<Answer, Fault> {
        let start = asked.start;
        let answer = ask(
            exchange,
            tries,
            &self.job.from,
            Some(asked),
            self.facts.identity().as_deref(),
        )
        .await?;
        let told = answer.field(&CONTENT_RANGE).and_then(range::answered);
        let fits = matches!(&told, Some((Some(there), size)) if there.start == start && size.is_none_or(|size| size == self.size));
        let same = Facts::of(&answer).identity() == self.facts.identity();
        if answer.head.status == StatusCode::PARTIAL_CONTENT && fits && same {
            Ok(answer)
        } else {
            Err(Fault::Changed)
        }
    }

    /// Sees that it is still what it was before the first byte, where no answer says so.
    async fn see_unchanged(&self, cx: &Context<'_>, exchange: &Rc<Exchange>) {
        if self.time.is_none() || cx.stop.asked() || self.failed().is_some() {
            return;
        }
        let now = list::changed(exchange, &self.job.from, self.size).await;
        if now != self.time {
            self.failed().get_or_insert(Fault::Changed);
        }
    }

    fn adler(&self) -> Option<&Digest> {
        self.facts
            .digests
            .iter()
            .find(|(algorithm, _)| *algorithm == Algorithm::Adler32)
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<Fault>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(self, cx: &Context<'_>) {
        let fault = self.failed().take();
        let (job, size) = (&self.job, self.size);
        let modified = self.facts.modified.or_else(|| job.changed(size));
        // What is there of it is of use to the next copy, if it is of that version.
        let result = match fault {
            Some(fault) => Err((fault, true)),
            None if cx.stop.asked() => Err((Fault::Stopped, true)),
            None => self.verify(cx).map_err(|fault| (fault, false)),
        };
        match result {
            Ok(()) => {
                let path = self.landing.path.clone();
                match self
                    .landing
                    .commit(&job.folder, &job.name, modified, cx.order)
                {
                    Ok(()) => cx.copied(&path, size, "copied", Some("http")),
                    Err(failure) => cx.tell(&failure),
                }
            }
            Err((fault, useful)) => {
                if !(useful && self.landing.is_recorded() && fault != Fault::Changed) {
                    self.landing.discard(&job.folder);
                }
                cx.tell(&fault.at(&job.from));
            }
        }
    }

    /// Compares the checksum, if that needs no second read, or if that was asked for.
    fn verify(&self, cx: &Context<'_>) -> Result<(), Fault> {
        if let Some(adler) = self.adler() {
            let sum = self.sum()?;
            return compare(Some(adler), Some(sum.value().to_be_bytes().to_vec()))
                .map_err(|fault| self.named(fault));
        }
        match self.facts.digests.first() {
            Some(told) if cx.order.verify => {
                let mut sum = Checksum::new(told.0);
                self.landing
                    .read(0..self.size, |bytes| sum.update(bytes))
                    .map_err(Fault::Local)?;
                compare(Some(told), Some(sum.finish())).map_err(|fault| self.named(fault))
            }
            None if cx.order.verify => Err(no_digest()),
            _ => Ok(()),
        }
    }

    /// That of all parts in their order; what an earlier copy has left is read.
    fn sum(&self) -> Result<Adler32, Fault> {
        let mut parts =
            std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        parts.sort_unstable_by_key(|part| (part.range.start, part.range.end));
        let (mut whole, mut at) = (Adler32::default(), 0);
        for Part { range, sum } in parts {
            whole = whole
                .followed_by(self.left(at..range.start)?)
                .followed_by(sum);
            at = range.end;
        }
        Ok(whole.followed_by(self.left(at..self.size)?))
    }

    fn left(&self, range: Range<u64>) -> Result<Adler32, Fault> {
        let mut sum = Adler32::default();
        self.landing
            .read(range, |bytes| sum.update(bytes))
            .map_err(Fault::Local)?;
        Ok(sum)
    }

    fn named(&self, fault: Fault) -> Fault {
        named(fault, &self.landing.path)
    }
}
