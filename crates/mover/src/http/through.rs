//! A file from a server to another that comes through us, since neither copies to or from others.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::mpsc;

use super::exchange::{Ask, Exchange};
use super::fault::Fault;
use super::list;
use super::outgoing::{Blocks, Outgoing};
use super::put::{SENT_AT_ONCE, counted, guard};
use super::target::Target;
use super::third::Pass;
use super::tries::Tries;
use super::wait::TICK;
use super::work::Context;

/// Blocks that come through us at a time.
const BLOCKS: usize = 8;

/// The bytes come to us and go on at once. Each attempt asks the source anew, when the destination wants the first byte: it may lead us elsewhere before.
pub(super) async fn through(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &Pass,
    size: Option<u64>,
    tries: &Cell<u32>,
) -> Result<(), Fault> {
    let mut fields = HeaderMap::new();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    guard(cx.order, &mut fields);
    let (count, feeding) = (Arc::new(AtomicU64::new(0)), Rc::new(Cell::new(None)));
    let body = || {
        tries.set(tries.get() + 1);
        let (exchange, from) = (Rc::clone(exchange), job.from.clone());
        let (count, feeding) = (Arc::clone(&count), Rc::clone(&feeding));
        let begin = move || {
            let (sender, blocks) = mpsc::channel(BLOCKS);
            feeding.set(Some(tokio::task::spawn_local(async move {
                let fed = feed(&exchange, &from, size, &sender, &count).await;
                if fed.is_err() {
                    // Else the destination would take what it has for all.
                    let _ = sender
                        .send(Err(std::io::ErrorKind::UnexpectedEof.into()))
                        .await;
                }
                fed
            })));
            blocks
        };
        Outgoing::Stream {
            blocks: Blocks::OnDemand(Some(Box::new(begin))),
            left: size,
            gate: None,
        }
    };
    let ask = Ask {
        body: &body,
        expects: size.is_none_or(|size| size > SENT_AT_ONCE),
        ..Ask::plain(Method::PUT, fields)
    };
    let mut failed = Tries::default();
    let fed = loop {
        let sent = counted(cx, &count, exchange.once(&job.to, &ask, &[])).await;
        let fed = feeding.take();
        match sent {
            Ok(answer) => {
                answer.finish().await;
                break fed;
            }
            Err(Fault::Silence(waited)) => return Err(Fault::Silence(waited)),
            Err(fault) => match why(fed).await {
                Some(source) => {
                    let again = failed.again(exchange, source).await;
                    again.map_err(|fault| Fault::Local(fault.at(&job.from)))?;
                }
                None => failed.again(exchange, fault).await?,
            },
        }
    };
    let fault = match fed {
        // Nobody asks for the bytes of an empty file.
        None if size == Some(0) => return Ok(()),
        None => early(),
        Some(fed) => match fed.await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Err(fault)) => Fault::Local(fault.at(&job.from)),
            Ok(Ok(false)) | Err(_) => early(),
        },
    };
    // What is there under its name is not what it should be.
    list::remove(exchange, &job.to).await;
    Err(fault)
}

/// Feeds an upload; whether all that there is was taken.
type Feeding = tokio::task::JoinHandle<Result<bool, Fault>>;

fn early() -> Fault {
    Fault::Answer {
        expected: "that the server takes all of it",
        found: "success before the last byte".into(),
    }
}

/// Why an upload failed, if its source is to blame and that is known by now: what the destination says comes of it.
async fn why(fed: Option<Feeding>) -> Option<Fault> {
    let fed = tokio::time::timeout(TICK, fed?).await;
    fed.ok()?.ok()?.err()
}

/// Sends what the source has, as long as the destination takes it: whether it took all.
async fn feed(
    exchange: &Rc<Exchange>,
    from: &Target,
    size: Option<u64>,
    sender: &mpsc::Sender<std::io::Result<Bytes>>,
    count: &AtomicU64,
) -> Result<bool, Fault> {
    let mut fields = HeaderMap::new();
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    // Once: whoever is fed tries again.
    let ask = Ask::plain(Method::GET, fields);
    let mut answer = exchange.once(from, &ask, &[]).await?;
    let told = answer.file_length()?;
    if told.is_some() && size.is_some() && told != size {
        return Err(Fault::Changed);
    }
    let mut at = 0;
    while let Some(bytes) = answer.bytes().await? {
        at += bytes.len() as u64;
        // The destination ends with what it was told, and an answer in chunks may have more.
        if size.is_some_and(|size| at > size) {
            return Err(Fault::Changed);
        }
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if sender.send(Ok(bytes)).await.is_err() {
            // Why, the destination knows.
            return Ok(false);
        }
    }
    answer.finish().await;
    if size.is_some_and(|size| at < size) {
        return Err(Fault::Changed);
    }
    Ok(true)
}
