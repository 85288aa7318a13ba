//! COPY between servers (HTTP-TPC), of which this one is the active: it pulls what `Source` names, or pushes to what `Destination` names.
//!
//! The answer is 202 at once, markers while it goes on, and a last line that says what came of it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use tokio::sync::mpsc;

use super::answer::{Answer, Asked, Refusal, aside};
use super::body::{Reply, at_once};
use super::change::{DESTINATION, OVERWRITE, is_here};
use super::write::within;
use crate::checksum::Adler32;
use crate::http::exchange::{Ask, Exchange};
use crate::http::fault::Fault;
use crate::http::list::{Facts, usual_fields};
use crate::http::outgoing::Outgoing;
use crate::http::target::Target;
use crate::http::{digest, marker};
use crate::net::sockets::Tcp;
use crate::net::url::Url;
use crate::serve::host::Host;
use crate::serve::log::Transfer;
use crate::serve::metrics;
use crate::serve::root::upload::Begin;
use crate::stop::Stop;

const SOURCE: HeaderName = HeaderName::from_static("source");
const CREDENTIAL: HeaderName = HeaderName::from_static("credential");
/// What begins the name of a field that is passed on.
const PASSED_ON: &str = "transferheader";
/// Fields that are passed on at most.
const MOST_PASSED_ON: usize = 32;
/// How often a marker is sent: FTS gives a transfer up after minutes without one.
const INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that are read or gathered at a time.
const BLOCK_BYTES: usize = 512 << 10;
const BLOCKS: usize = 4;

/// Whether a COPY is one between servers.
pub(crate) fn is_remote(asked: &Asked) -> bool {
    if asked.fields.contains_key(SOURCE) {
        return true;
    }
    let place = asked
        .field(&DESTINATION)
        .and_then(|text| text.parse::<Uri>().ok());
    place.is_some_and(|uri| !is_here(asked, &uri))
}

struct Job {
    host: Arc<Host>,
    path: Vec<u8>,
    other: Target,
    fields: HeaderMap,
    pull: bool,
    may_replace: bool,
    session: u64,
    peer: std::net::SocketAddr,
    user: String,
    start: SystemTime,
}

/// COPY between servers.
pub(crate) fn copy(asked: Asked) -> Answer {
    if !asked.rights.third_party {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "copies between servers are for users, where the server has --third-party",
        ));
    }
    let pull = asked.fields.contains_key(SOURCE);
    if pull {
        asked.may_write()?;
        if asked.fields.contains_key(DESTINATION) {
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "a Source or a Destination is needed, not both",
            ));
        }
    }
    if asked
        .field(&CREDENTIAL)
        .is_some_and(|kind| !kind.eq_ignore_ascii_case("none"))
    {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "Credential: none is understood; a token goes in TransferHeaderAuthorization",
        ));
    }
    let field = if pull { SOURCE } else { DESTINATION };
    let other = asked.field(&field);
    let other = other
        .and_then(|text| Url::parse(std::ffi::OsStr::new(text)).ok())
        .filter(|url| url.scheme.is_http());
    let other = other.ok_or_else(|| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "a place of http: or https: is needed",
        )
    })?;
    let job = Job {
        host: Arc::clone(&asked.connection.host),
        path: asked.path.clone(),
        other: Target::from(&other),
        fields: passed_on(&asked.fields)?,
        pull,
        may_replace: asked.field(&OVERWRITE) != Some("F"),
        session: asked.connection.number,
        peer: asked.connection.peer,
        user: asked.user.clone(),
        start: asked.start,
    };
    let (sender, blocks) = mpsc::channel(BLOCKS);
    let pulse = Rc::clone(&asked.connection.pulse);
    tokio::task::spawn_local(tell(job, sender, pulse));
    let mut response = Response::new(Reply::Watched(
        Outgoing::Stream {
            blocks,
            left: None,
            gate: None,
        },
        asked.active,
    ));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// `TransferHeaderX: v` is sent as `X: v`; what says how a message is framed, or to whom it goes, is not.
fn passed_on(fields: &HeaderMap) -> Result<HeaderMap, Refusal> {
    let mut found = HeaderMap::new();
    for (name, value) in fields {
        let Some(name) = name.as_str().strip_prefix(PASSED_ON) else {
            continue;
        };
        let framing = [
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
            "te",
            "expect",
            "range",
        ];
        match name.parse::<HeaderName>() {
            Ok(name) if !framing.contains(&name.as_str()) && found.len() < MOST_PASSED_ON => {
                let mut value = value.clone();
                value.set_sensitive(name == AUTHORIZATION);
                found.insert(name, value);
            }
            _ => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "a TransferHeader that is not passed on",
                ));
            }
        }
    }
    Ok(found)
}

/// Carries it out and tells of it, as long as somebody listens.
async fn tell(
    job: Job,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    pulse: Rc<super::session::Pulse>,
) {
    let progress = Rc::new(std::cell::Cell::new(0_u64));
    let line = |text: String| sender.send(Ok(Bytes::from(text)));
    metrics::add(&job.host.metrics.transfers_active, 1);
    let result = {
        let mut work = std::pin::pin!(carry_out(&job, &progress));
        let (mut before, mut silent) = (0, Duration::ZERO);
        loop {
            match tokio::time::timeout(INTERVAL, work.as_mut()).await {
                Ok(result) => break result,
                Err(_) => {
                    pulse.beat();
                    silent = if progress.get() > before {
                        Duration::ZERO
                    } else {
                        silent + INTERVAL
                    };
                    before = progress.get();
                    if silent > job.host.settings.stall_time.max(INTERVAL) {
                        break Err(format!("no byte came for {} s", silent.as_secs()));
                    }
                    // Nobody is there who wants it any more.
                    if line(marker::marker(now_s(), progress.get(), &[]))
                        .await
                        .is_err()
                    {
                        break Err("the client went away".into());
                    }
                }
            }
        }
    };
    job.host
        .metrics
        .transfers_active
        .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    metrics::add(
        if result.is_ok() {
            &job.host.metrics.transfers_done
        } else {
            &job.host.metrics.transfers_failed
        },
        1,
    );
    job.host.log.transfer(&Transfer {
        session: job.session,
        peer: job.peer,
        user: job.user.as_bytes(),
        command: if job.pull { "PULL" } else { "PUSH" },
        path: &job.path,
        bytes: progress.get(),
        code: if result.is_ok() { 201 } else { 500 },
        start: job.start,
        streams: 1,
        peers: &[],
        block_bytes: 0,
        buffer_bytes: 0,
    });
    let last = match result {
        Ok(()) => format!(
            "{}{}",
            marker::marker(now_s(), progress.get(), &[]),
            marker::SUCCESS
        ),
        Err(reason) => marker::failure(&reason.chars().take(500).collect::<String>()),
    };
    let _ = line(last).await;
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

async fn carry_out(job: &Job, progress: &Rc<std::cell::Cell<u64>>) -> Result<(), String> {
    if job.other.server.tls && job.host.web.outwards.is_none() {
        return Err("this server trusts no certificates (X509_CERT_DIR, SSL_CERT_FILE)".into());
    }
    let exchange = Exchange::new(
        job.host.web.outwards.clone(),
        job.fields.get(AUTHORIZATION).cloned(),
        Tcp::default(),
        Stop::default(),
    );
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

async fn pull(
    job: &Job,
    exchange: &Rc<Exchange>,
    progress: &std::cell::Cell<u64>,
) -> Result<(), Fault> {
    let (host, path, may_replace) = (Arc::clone(&job.host), job.path.clone(), job.may_replace);
    let upload = aside(move || {
        if !may_replace && host.root.stat(&path).is_ok() {
            return Err(Refusal::new(
                StatusCode::PRECONDITION_FAILED,
                "it is there already",
            ));
        }
        host.root.upload(&path, Begin::New).map_err(within)
    });
    let upload = upload.await.map_err(refused)?;
    let mut fields = usual_fields();
    fields.extend(job.fields.clone());
    let mut answer = exchange
        .ask(&job.other, &Ask::plain(Method::GET, fields), &[])
        .await?;
    let (told, digests) = (answer.length(), Facts::of(&answer).digests);
    let (mut at, mut sum) = (0, Adler32::default());
    while let Some(bytes) = answer.bytes().await? {
        let file = upload.share().map_err(|errno| refused(errno.into()))?;
        let (length, place, mut running) = (bytes.len() as u64, at, sum);
        let written = aside(move || {
            running.update(&bytes);
            put_down(&file, &bytes, place)?;
            Ok(running)
        });
        sum = written.await.map_err(refused)?;
        at += length;
        progress.set(at);
        metrics::add(&job.host.metrics.received_bytes, length);
    }
    if told.is_some_and(|told| told != at) {
        return Err(Fault::Connection(format!(
            "{at} bytes of {}",
            told.unwrap_or(0)
        )));
    }
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
    let (host, sync) = (Arc::clone(&job.host), job.host.settings.sync);
    let kept = aside(move || {
        let facts = upload.facts()?;
        upload.commit(sync)?;
        host.web.known.keep(&facts, sum.value());
        Ok(())
    });
    kept.await.map_err(refused)
}

fn put_down(file: &OwnedFd, bytes: &[u8], at: u64) -> Result<(), Refusal> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file, &bytes[done..], at + done as u64) {
            Ok(0) => return Err(rustix::io::Errno::NOSPC.into()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

async fn push(
    job: &Job,
    exchange: &Rc<Exchange>,
    progress: &Rc<std::cell::Cell<u64>>,
) -> Result<(), Fault> {
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
    let mut fields = job.fields.clone();
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
            blocks,
            left: Some(size),
            gate: None,
        }
    };
    let ask = Ask {
        method: Method::PUT,
        fields,
        body: &body,
        expects: size > BLOCK_BYTES as u64,
    };
    let answer = exchange.ask(&job.other, &ask, &[]).await?;
    answer.finish().await;
    Ok(())
}

async fn feed(
    file: Arc<OwnedFd>,
    size: u64,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    progress: Rc<std::cell::Cell<u64>>,
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
                aside(move || {
                    let mut bytes = vec![0; most];
                    let count = rustix::io::pread(&file, &mut bytes, at)?;
                    bytes.truncate(count);
                    if count == 0 {
                        Err(rustix::io::Errno::IO.into())
                    } else {
                        Ok(bytes)
                    }
                })
                .await
            }
        };
        let Ok(bytes) = bytes else { return };
        let length = bytes.len() as u64;
        if sender.send(Ok(bytes.into())).await.is_err() {
            return;
        }
        at += length;
        progress.set(at);
        metrics::add(&host.metrics.sent_bytes, length);
    }
}
