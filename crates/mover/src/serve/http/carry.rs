//! The bytes of a copy between servers: pulled from another, or pushed to it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::mpsc;

use super::answer::{Refusal, aside};
use super::body::at_once;
use super::third::{Job, Progress};
use super::write::{unreplaced, within};
use crate::checksum::Adler32;
use crate::http::connect::Dialer;
use crate::http::digest;
use crate::http::exchange::{Ask, Exchange};
use crate::http::fault::Fault;
use crate::http::list::{self, Facts, Worth};
use crate::http::outgoing::{Blocks, Outgoing};
use crate::http::tries::Tries;
use crate::net::sockets::Tcp;
use crate::serve::host::Host;
use crate::serve::metrics;
use crate::serve::root::upload::Begin;
use crate::stop::Stop;

/// Bytes that are read at a time, and such blocks between disk and network.
const BLOCK_BYTES: usize = 512 << 10;
const BLOCKS: usize = 4;

/// Carries out a copy between servers.
///
/// # Errors
/// What came in between, in a line for its client.
pub(super) async fn carry_out(job: &Job, progress: &Rc<Progress>) -> Result<(), String> {
    if job.other.server.tls && job.host.web.outwards.is_none() {
        return Err("this server trusts no certificates (X509_CERT_DIR, SSL_CERT_FILE)".into());
    }
    let tcp = Tcp {
        pacing_bytes_per_s: job.host.settings.pacing_bytes_per_s,
        ..Tcp::default()
    };
    let dialer = Dialer::new(job.host.web.outwards.clone(), tcp, Stop::default());
    let exchange = Exchange::new(dialer, job.fields.clone());
    let told = |fault: Fault| {
        let failure = fault.at(&job.other);
        format!(
            "{}: expected {}, found {}",
            failure.path.display(),
            failure.expected,
            failure.found
        )
    };
    if job.pull {
        pull(job, &exchange, progress).await.map_err(told)
    } else {
        push(job, &exchange, progress).await.map_err(told)
    }
}

fn refused(refusal: Refusal) -> Fault {
    Fault::Status {
        status: refusal.status,
        said: refusal.text,
        after: None,
    }
}

async fn pull(job: &Job, exchange: &Rc<Exchange>, progress: &Progress) -> Result<(), Fault> {
    let (host, path, may_replace) = (Arc::clone(&job.host), job.path.clone(), job.may_replace);
    let upload = aside(move || {
        if !may_replace && host.root.stat(&path).is_ok() {
            return Err(unreplaced(rustix::io::Errno::EXIST));
        }
        host.root.upload(&path, Begin::New).map_err(within)
    });
    let upload = progress.of_ours(upload).await.map_err(refused)?;
    let none = HeaderMap::new();
    let tries = &mut Tries::default();
    let asked = list::file(
        exchange,
        tries,
        &job.other,
        Method::GET,
        none,
        Worth::Little,
    );
    let mut answer = asked.await?;
    if answer.head.status != StatusCode::OK {
        // 206 and 416 are of a range, and nobody asked for one.
        return Err(Fault::Answer {
            expected: "the whole file (200)",
            found: answer.head.status.to_string(),
        });
    }
    let (told, facts) = (answer.file_length()?, Facts::of(&answer));
    let (mut at, mut sum) = (0, Adler32::default());
    while let Some(bytes) = answer.bytes().await? {
        let file = upload.share().map_err(|errno| refused(errno.into()))?;
        let (length, place, mut running) = (bytes.len() as u64, at, sum);
        let written = aside(move || {
            running.update(&bytes);
            crate::bytes::put(&file, &bytes, place)?;
            Ok(running)
        });
        sum = progress.of_ours(written).await.map_err(refused)?;
        at += length;
        progress.bytes.set(at);
        metrics::add(&job.host.metrics.received_bytes, length);
    }
    if told.is_some_and(|told| told != at) {
        return Err(Fault::Connection(format!(
            "{at} bytes of {}",
            told.unwrap_or(0)
        )));
    }
    answer.finish().await;
    let late = facts.digests.is_empty() && at > 0;
    let digests = if late {
        list::digests(exchange, &job.other, &facts).await
    } else {
        facts.digests
    };
    if let Some(adler) = digests
        .iter()
        .find(|(algorithm, _)| *algorithm == crate::checksum::Algorithm::Adler32)
    {
        let found = sum.value().to_be_bytes();
        if adler.1 != found {
            let found = format!(
                "{} for {}",
                digest::to_hex(&found),
                digest::to_hex(&adler.1)
            );
            return Err(Fault::Answer {
                expected: "the bytes of the checksum that the source tells",
                found,
            });
        }
    }
    let (host, conditions) = (Arc::clone(&job.host), Arc::clone(&job.conditions));
    let kept = aside(move || {
        conditions.hold(&host.root)?;
        let sync = host.settings.sync;
        let facts = upload.commit(sync, may_replace).map_err(unreplaced)?;
        host.web.known.keep(&facts, sum.value());
        Ok(())
    });
    progress.of_ours(kept).await.map_err(refused)
}

async fn push(job: &Job, exchange: &Rc<Exchange>, progress: &Rc<Progress>) -> Result<(), Fault> {
    let (host, path) = (Arc::clone(&job.host), job.path.clone());
    let opened = aside(move || Ok(host.root.read(&path)?))
        .await
        .map_err(refused)?;
    if !opened.facts.is_file() {
        return Err(refused(Refusal::new(
            StatusCode::CONFLICT,
            "only a file can be pushed",
        )));
    }
    let (file, size) = (Arc::new(opened.file), opened.facts.bytes);
    let mut fields = HeaderMap::new();
    if !job.may_replace {
        fields.insert(http::header::IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    let body = || {
        let (sender, blocks) = mpsc::channel(BLOCKS);
        tokio::task::spawn_local(feed(
            Arc::clone(&file),
            size,
            sender,
            Rc::clone(progress),
            Arc::clone(&job.host),
        ));
        Outgoing::Stream {
            blocks: Blocks::Coming(blocks),
            left: Some(size),
            gate: None,
        }
    };
    let ask = Ask {
        body: &body,
        expects: size > BLOCK_BYTES as u64,
        ..Ask::plain(Method::PUT, fields)
    };
    let answer = exchange.ask(&job.other, &ask, &[]).await?;
    answer.finish().await;
    Ok(())
}

async fn feed(
    file: Arc<OwnedFd>,
    size: u64,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    progress: Rc<Progress>,
    host: Arc<Host>,
) {
    let mut at = 0;
    while at < size {
        let most = usize::try_from(size - at)
            .unwrap_or(BLOCK_BYTES)
            .min(BLOCK_BYTES);
        let bytes = match at_once(&file, most, at) {
            Some(bytes) => Ok(bytes),
            None => {
                let file = Arc::clone(&file);
                let read = aside(move || {
                    let mut bytes = vec![0; most];
                    let count = rustix::io::pread(&file, &mut bytes, at)?;
                    bytes.truncate(count);
                    if count == 0 {
                        Err(rustix::io::Errno::IO.into())
                    } else {
                        Ok(bytes)
                    }
                });
                progress.of_ours(read).await
            }
        };
        let Ok(bytes) = bytes else { return };
        let length = bytes.len() as u64;
        if sender.send(Ok(bytes.into())).await.is_err() {
            return;
        }
        at += length;
        progress.bytes.set(at);
        metrics::add(&host.metrics.sent_bytes, length);
    }
}
