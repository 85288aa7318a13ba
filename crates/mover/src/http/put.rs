//! A file of ours to a server: judged, sent with its length, its checksum compared where the server tells one.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as plain};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::digest::{self, Digest};
use super::exchange::{Ask, Exchange};
use super::fault::Fault;
use super::get::{compare, named, no_digest};
use super::landing::Folder;
use super::list::{self, Facts};
use super::outgoing::Outgoing;
use super::target::Target;
use super::work::Context;
use crate::attributes;
use crate::checksum::{Adler32, Algorithm, Checksum};
use crate::error::Failure;
use crate::order::Existing;

/// Files up to this are sent at once, larger ones when the server says that it wants them: one that sends us elsewhere does so before the bytes.
const SENT_AT_ONCE: u64 = 1 << 20;
/// Bytes that are read at a time, and such blocks between disk and network.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS: usize = 4;
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
    /// What is there, as a listing has it.
    pub(crate) there: Option<Facts>,
    /// Whether `there` is the truth; else the server is asked.
    pub(crate) listed: bool,
    /// Whether directories that lead to it are made.
    pub(crate) make_way: bool,
}

/// A file that is open, and what it was then.
struct Source {
    file: Arc<OwnedFd>,
    facts: attributes::Facts,
    path: PathBuf,
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
    let sent = match send(cx, exchange, job, &source).await {
        Err(Fault::Status {
            status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
            ..
        }) if job.make_way => {
            list::make_parents(exchange, &job.to).await?;
            send(cx, exchange, job, &source).await?
        }
        other => other?,
    };
    let result = verify(cx, exchange, job, &source, sent).await;
    if let Err(fault) = result {
        // What is there under its name is not what it should be.
        let gone = exchange
            .ask(&job.to, &Ask::plain(Method::DELETE, HeaderMap::new()), &[])
            .await;
        if let Ok(answer) = gone {
            answer.finish().await;
        }
        return Err(named(fault, &shown));
    }
    cx.copied(&shown, source.facts.size, "copied", Some("http"));
    Ok(())
}

fn open(cx: &Context<'_>, job: &Store) -> Result<Source, Fault> {
    let path = job.folder.at(&job.name);
    let failed = |errno| {
        Fault::Local(Failure::kernel(
            path.clone(),
            "a file that can be read",
            errno,
        ))
    };
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !cx.order.follow && cx.order.recursive {
        flags |= OFlags::NOFOLLOW;
    }
    let file =
        rustix::fs::openat(&job.folder.fd, &job.name, flags, Mode::empty()).map_err(failed)?;
    let facts = attributes::Facts::from(rustix::fs::fstat(&file).map_err(failed)?);
    if facts.kind != FileType::RegularFile {
        let found = if facts.kind == FileType::Directory {
            "a directory: say --recursive to copy it"
        } else {
            "something else"
        };
        return Err(Fault::Local(Failure::found(
            path,
            "a file",
            found,
            "name another",
        )));
    }
    Ok(Source {
        file: Arc::new(file),
        facts,
        path,
    })
}

/// What an upload said and what was sent.
struct Sent {
    digests: Vec<Digest>,
    sum: Adler32,
}

async fn send(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Store,
    source: &Source,
) -> Result<Sent, Fault> {
    let mut fields = HeaderMap::new();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    digest::ask(&mut fields);
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
    let body = || match &small {
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
    };
    let ask = Ask {
        method: Method::PUT,
        fields,
        body: &body,
        expects: size > SENT_AT_ONCE,
    };
    let answer = counted(cx, &count, exchange.ask(&job.to, &ask, &[])).await?;
    let digests = digest::found(&answer.head.headers);
    answer.finish().await;
    let again = rustix::fs::fstat(&source.file).map(attributes::Facts::from);
    if again.map_or(true, |again| !source.facts.unchanged(&again)) {
        return Err(Fault::Local(Failure::found(
            source.path.clone(),
            "a file at rest",
            "that it was written to while it was copied",
            "run the same command again when nobody writes to it",
        )));
    }
    let sum = sum.lock().unwrap_or_else(PoisonError::into_inner).take();
    let early = || Fault::Answer {
        expected: "that the server takes all of it",
        found: "success before the last byte".into(),
    };
    sum.map(|sum| Sent { digests, sum }).ok_or_else(early)
}

/// Adds to the totals while a body goes out.
async fn counted<T>(cx: &Context<'_>, count: &AtomicU64, work: impl Future<Output = T>) -> T {
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

fn read(source: &Source) -> Result<Bytes, Failure> {
    let size = usize::try_from(source.facts.size).expect("a small file");
    let mut bytes = vec![0; size];
    let filled = fill(&source.file, &mut bytes, 0);
    let filled =
        filled.map_err(|errno| Failure::kernel(source.path.clone(), "bytes to be read", errno))?;
    bytes.truncate(filled);
    Ok(bytes.into())
}

fn fill(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Memory that goes back to where it is filled, when nobody reads it any more.
struct Block {
    bytes: Vec<u8>,
    filled: usize,
    home: plain::Sender<Vec<u8>>,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // The file may be at its end.
        let _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

/// A file as a body: read by a thread of its own, so that no disk holds the network back before the blocks are used up.
fn stream(
    file: Arc<OwnedFd>,
    size: u64,
    sum: Arc<Mutex<Option<Adler32>>>,
    count: Arc<AtomicU64>,
) -> Outgoing {
    let (sender, blocks) = mpsc::channel(BLOCKS);
    tokio::task::spawn_blocking(move || {
        let (home, spare) = plain::channel();
        for _ in 0..BLOCKS + 2 {
            let _ = home.send(vec![0; BLOCK_BYTES]);
        }
        let (mut at, mut running) = (0, Adler32::default());
        while at < size {
            let Ok(mut bytes) = spare.recv() else { return };
            let most = usize::try_from(size - at)
                .unwrap_or(BLOCK_BYTES)
                .min(BLOCK_BYTES);
            let filled = match fill(&file, &mut bytes[..most], at) {
                Ok(filled) if filled == most => filled,
                Ok(_) => {
                    return drop(sender.blocking_send(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Err(errno) => return drop(sender.blocking_send(Err(errno.into()))),
            };
            running.update(&bytes[..filled]);
            at += filled as u64;
            count.fetch_add(filled as u64, Ordering::Relaxed);
            if at == size {
                *sum.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            }
            let block = Bytes::from_owner(Block {
                bytes,
                filled,
                home: home.clone(),
            });
            if sender.blocking_send(Ok(block)).is_err() {
                return;
            }
        }
    });
    Outgoing::Stream {
        blocks,
        left: Some(size),
        gate: None,
    }
}

/// Compares the checksum of what was sent with that of what is there, where the server tells one or that was asked for.
async fn verify(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Store,
    source: &Source,
    sent: Sent,
) -> Result<(), Fault> {
    let mut digests = sent.digests;
    if digests.is_empty() && cx.order.verify {
        digests = list::head(exchange, &job.to).await?.digests;
        if digests.is_empty() {
            return Err(no_digest());
        }
    }
    if let Some(adler) = digests
        .iter()
        .find(|(algorithm, _)| *algorithm == Algorithm::Adler32)
    {
        return compare(Some(adler), Some(sent.sum.value().to_be_bytes().to_vec()));
    }
    match digests.first() {
        Some(told) if cx.order.verify => compare(Some(told), Some(sum_of(source, told.0)?)),
        _ => Ok(()),
    }
}

fn sum_of(source: &Source, algorithm: Algorithm) -> Result<Vec<u8>, Fault> {
    let failed = |errno| {
        Fault::Local(Failure::kernel(
            source.path.clone(),
            "bytes to be read",
            errno,
        ))
    };
    let mut sum = Checksum::new(algorithm);
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < source.facts.size {
        match fill(&source.file, &mut buffer, at).map_err(failed)? {
            0 => break,
            count => {
                sum.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
    Ok(sum.finish())
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
    let there = if job.listed {
        job.there.clone()
    } else {
        seen(exchange, &job.to).await?
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
            there = list::head(exchange, &job.to).await?;
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
    match list::head(exchange, place).await {
        Ok(facts) => Ok(Some(facts)),
        Err(Fault::Status {
            status: StatusCode::NOT_FOUND | StatusCode::CONFLICT,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}
