//! A large file: its pieces are fetched by several, those that an earlier copy has left are not, and whoever is the last finishes it.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use http::StatusCode;
use http::header::CONTENT_RANGE;
use httpdate::fmt_http_date;

use super::answer::Answer;
use super::digest::{Digest, compare};
use super::exchange::Exchange;
use super::fault::{Fault, named, no_digest};
use super::folder::Folder;
use super::get::{Fetch, ask, take, token};
use super::landing::{Landing, UNIT};
use super::list::{self, Facts};
use super::range;
use super::tries::Tries;
use super::work::{Context, Task};
use crate::checksum::{Adler32, Algorithm, Checksum};

/// A piece of less would have its stream wait longer for the first byte than it takes to come.
const LEAST_PIECE: u64 = 2 << 20;

/// A file whose pieces are fetched by several.
#[derive(Debug)]
pub(crate) struct Large {
    job: Fetch,
    facts: Facts,
    /// When it was changed last before the first byte, where that alone tells versions apart.
    time: Option<SystemTime>,
    size: u64,
    landing: Landing,
    /// What was missing when it was begun.
    pieces: Vec<Range<u64>>,
    next: AtomicUsize,
    /// Checksums of pieces by where they begin.
    sums: Mutex<Vec<(u64, Adler32)>>,
    failed: Mutex<Option<Fault>>,
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
        token(&job),
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
    let pieces = cut(
        &landing.missing(0..size),
        cx.streams,
        cx.piece_bytes,
        there.end.min(cx.piece_bytes),
    );
    let helpers = pieces
        .len()
        .saturating_sub(1)
        .min(cx.streams.saturating_sub(1));
    let fits = pieces
        .first()
        .is_some_and(|first| first.start == 0 && first.end <= there.end);
    let large = Arc::new(Large {
        job,
        facts,
        time,
        size,
        landing,
        pieces,
        next: AtomicUsize::new(0),
        sums: Mutex::default(),
        failed: Mutex::default(),
    });
    cx.pool
        .push((0..helpers).map(|_| Task::Help(Arc::clone(&large))));
    large.help(cx, exchange, answer.filter(|_| fits)).await;
    Ok(())
}

/// Cuts what is missing into pieces; none crosses the end of the first answer. They become smaller towards the end, so that all streams end at about the
/// same time: one that is left alone with a large piece has its share of the path, and not yet more.
fn cut(missing: &[Range<u64>], streams: usize, most: u64, first: u64) -> Vec<Range<u64>> {
    let mut left: u64 = missing.iter().map(|range| range.end - range.start).sum();
    let mut pieces = Vec::new();
    for range in missing {
        let mut at = range.start;
        while at < range.end {
            let share = left / (2 * streams as u64 - 1) / UNIT * UNIT;
            let piece = share.max(LEAST_PIECE).min(most);
            let end = if at < first {
                first
            } else {
                at.saturating_add(piece)
            };
            pieces.push(at..end.min(range.end));
            left -= end.min(range.end) - at;
            at = end.min(range.end);
        }
    }
    pieces
}

impl Large {
    /// Fetches pieces until none is left; whoever is the last to end finishes the file.
    pub(crate) async fn help(
        self: Arc<Self>,
        cx: &Context<'_>,
        exchange: &Rc<Exchange>,
        mut answer: Option<Answer>,
    ) {
        while !cx.stop.asked() && self.failed().is_none() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(index) else {
                break;
            };
            let first = if index == 0 { answer.take() } else { None };
            if let Err(fault) = self.piece(cx, exchange, piece.clone(), first).await {
                self.failed().get_or_insert(fault);
            }
        }
        drop(answer);
        if let Some(last) = Arc::into_inner(self) {
            let folder = Arc::clone(&last.job.folder);
            last.see_unchanged(cx, exchange).await;
            last.finish(cx);
            Folder::release(cx, folder);
        }
    }

    async fn piece(
        &self,
        cx: &Context<'_>,
        exchange: &Rc<Exchange>,
        piece: Range<u64>,
        mut first: Option<Answer>,
    ) -> Result<(), Fault> {
        let wants_sum = self.adler().is_some();
        let (mut at, mut sum) = (piece.start, Adler32::default());
        let mut tries = Tries::default();
        while at < piece.end {
            let mut answer = match first.take() {
                Some(answer) => answer,
                None => self.ask(exchange, at..piece.end).await?,
            };
            let before = at;
            let fault = loop {
                match answer.bytes().await {
                    Err(fault) => break fault,
                    Ok(None) => break Fault::Connection("an answer that ends early".into()),
                    Ok(Some(bytes)) => {
                        let left = usize::try_from(piece.end - at).unwrap_or(usize::MAX);
                        let bytes = &bytes[..bytes.len().min(left)];
                        if wants_sum {
                            sum.update(bytes);
                        }
                        take(cx, &self.landing, bytes, &mut at, piece.start)?;
                        if at == piece.end {
                            answer.finish().await;
                            self.sums
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push((piece.start, sum));
                            return Ok(());
                        }
                    }
                }
            };
            if at > before {
                tries = Tries::default();
            }
            tries.again(exchange, fault).await?;
        }
        Ok(())
    }

    /// Asks for a range of the version that was begun, and of no other.
    async fn ask(&self, exchange: &Rc<Exchange>, asked: Range<u64>) -> Result<Answer, Fault> {
        let start = asked.start;
        let answer = ask(
            exchange,
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

    /// That of all pieces in their order; what an earlier copy has left is read.
    fn sum(&self) -> Result<Adler32, Fault> {
        let mut sums =
            std::mem::take(&mut *self.sums.lock().unwrap_or_else(PoisonError::into_inner));
        sums.sort_unstable_by_key(|(start, _)| *start);
        let mut ends: Vec<_> = self
            .pieces
            .iter()
            .map(|piece| (piece.start, piece.end))
            .collect();
        ends.sort_unstable();
        let (mut whole, mut at) = (Adler32::default(), 0);
        for ((start, sum), (_, end)) in sums.into_iter().zip(ends) {
            whole = whole.followed_by(self.left(at..start)?).followed_by(sum);
            at = end;
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

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is what is meant"
)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_that_is_missing_and_become_smaller_towards_the_end() {
        let size = |piece: &Range<u64>| piece.end - piece.start;
        let (most, whole) = (64 << 20, 1_000_000_000);
        for (missing, first) in [
            (vec![0..whole], 0),
            (vec![0..whole], most),
            (vec![5 << 20..7 << 20, 9 << 20..whole], 0),
        ] {
            let pieces = cut(&missing, 4, most, first);
            let mut joined: Vec<Range<u64>> = Vec::new();
            for piece in &pieces {
                assert!((1..=most).contains(&size(piece)), "{piece:?}");
                match joined.last_mut() {
                    Some(last) if last.end == piece.start => last.end = piece.end,
                    _ => joined.push(piece.clone()),
                }
            }
            assert_eq!(joined, missing);
            assert!(
                pieces
                    .iter()
                    .all(|piece| piece.start == 0 || piece.start >= first)
            );
            assert!(
                pieces
                    .iter()
                    .rev()
                    .take(4)
                    .all(|piece| size(piece) <= LEAST_PIECE)
            );
        }
        assert_eq!(cut(&[0..9 << 20], 1, most, 0), [0..9 << 20]);
    }
}
