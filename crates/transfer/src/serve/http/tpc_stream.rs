//! Bytes of a copy between servers: pulled from another server, or pushed to it.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::mpsc;

use super::body::at_once;
use super::response::{ErrorResponse, aside};
use super::third_party::{TpcJob, TpcProgress};
use super::write::{unreplaced, within};
use crate::checksum::Adler32;
use crate::http::connect::Dialer;
use crate::http::digest;
use crate::http::exchange::{HttpClient, HttpRequest};
use crate::http::list::{self, ChecksumTrust, RemoteMetadata};
use crate::http::outgoing::{Blocks, OutgoingBody};
use crate::http::request_error::RequestError;
use crate::http::retry::RetryState;
use crate::net::sockets::Tcp;
use crate::serve::confined_root::upload::UploadStart;
use crate::serve::metrics;
use crate::serve::state::ServerState;
use crate::stop::CancelToken;

/// Bytes of a block between disk and network.
const BLOCK_BYTES: usize = 512 << 10;
const BLOCKS: usize = 4;

/// Execute a copy between servers.
///
/// # Errors
/// A line for the client.
pub(super) async fn execute(job: &TpcJob, progress: &Rc<TpcProgress>) -> Result<(), String> {
    if job.other.server.tls && job.host.web.outwards.is_none() {
        return Err("this server has no trusted CAs (X509_CERT_DIR, SSL_CERT_FILE)".into());
    }
    let tcp = Tcp {
        pacing_bytes_per_s: job.host.settings.pacing_bytes_per_s,
        ..Tcp::default()
    };
    let dialer = Dialer::new(job.host.web.outwards.clone(), tcp, CancelToken::default());
    let exchange = HttpClient::new(dialer, job.fields.clone());
    let reported = |fault: RequestError| {
        let failure = fault.at(&job.other);
        format!(
            "{}: expected {}, found {}",
            failure.path.display(),
            failure.expected,
            failure.found
        )
    };
    if job.pull {
        pull(job, &exchange, progress).await.map_err(reported)
    } else {
        push(job, &exchange, progress).await.map_err(reported)
    }
}

fn rejected(rejection: ErrorResponse) -> RequestError {
    RequestError::Status {
        status: rejection.status,
        message: rejection.text,
        after: None,
    }
}

async fn pull(
    job: &TpcJob,
    exchange: &Rc<HttpClient>,
    progress: &TpcProgress,
) -> Result<(), RequestError> {
    let (host, path, may_replace) = (Arc::clone(&job.host), job.path.clone(), job.may_replace);
    let upload = aside(move || {
        if !may_replace && host.root.stat(&path).is_ok() {
            return Err(unreplaced(rustix::io::Errno::EXIST));
        }
        host.root.upload(&path, UploadStart::New).map_err(within)
    });
    let upload = progress.wait_for_disk(upload).await.map_err(rejected)?;
    let none = HeaderMap::new();
    let attempts = &mut RetryState::default();
    let request = list::file(
        exchange,
        attempts,
        &job.other,
        Method::GET,
        none,
        ChecksumTrust::Little,
    );
    let mut response = request.await?;
    if response.head.status != StatusCode::OK {
        // 206 and 416 are responses to a range, which was not requested.
        return Err(RequestError::UnexpectedResponse {
            expected: "the complete file (200)",
            found: response.head.status.to_string(),
        });
    }
    let (reported, metadata) = (response.file_length()?, RemoteMetadata::of(&response));
    let (mut at, mut sum) = (0, Adler32::default());
    while let Some(bytes) = response.bytes().await? {
        let file = upload.duplicate().map_err(|errno| rejected(errno.into()))?;
        let (length, uri, mut running) = (bytes.len() as u64, at, sum);
        let written = aside(move || {
            running.update(&bytes);
            crate::bytes::put(&file, &bytes, uri)?;
            Ok(running)
        });
        sum = progress.wait_for_disk(written).await.map_err(rejected)?;
        at += length;
        progress.bytes.set(at);
        metrics::add(&job.host.metrics.received_bytes, length);
    }
    if reported.is_some_and(|reported| reported != at) {
        return Err(RequestError::Connection(format!(
            "{at} bytes of {}",
            reported.unwrap_or(0)
        )));
    }
    response.finish().await;
    let late = metadata.digests.is_empty() && at > 0;
    let digests = if late {
        list::digests(exchange, &job.other, &metadata).await
    } else {
        metadata.digests
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
            return Err(RequestError::UnexpectedResponse {
                expected: "bytes with the checksum of the source",
                found,
            });
        }
    }
    let (host, conditions) = (Arc::clone(&job.host), Arc::clone(&job.conditions));
    let kept = aside(move || {
        conditions.check(&host.root)?;
        let sync = host.settings.sync;
        let metadata = upload.commit(sync, may_replace).map_err(unreplaced)?;
        host.web.known.keep(&metadata, sum.value());
        Ok(())
    });
    progress.wait_for_disk(kept).await.map_err(rejected)
}

async fn push(
    job: &TpcJob,
    exchange: &Rc<HttpClient>,
    progress: &Rc<TpcProgress>,
) -> Result<(), RequestError> {
    let (host, path) = (Arc::clone(&job.host), job.path.clone());
    let opened = aside(move || Ok(host.root.read(&path)?))
        .await
        .map_err(rejected)?;
    if !opened.metadata.is_file() {
        return Err(rejected(ErrorResponse::new(
            StatusCode::CONFLICT,
            "only files can be pushed",
        )));
    }
    let (file, size) = (Arc::new(opened.file), opened.metadata.bytes);
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
        OutgoingBody::Stream {
            blocks: Blocks::Coming(blocks),
            remaining: Some(size),
            gate: None,
        }
    };
    let request = HttpRequest {
        body: &body,
        expects: size > BLOCK_BYTES as u64,
        ..HttpRequest::plain(Method::PUT, fields)
    };
    let response = exchange.send(&job.other, &request, &[]).await?;
    response.finish().await;
    Ok(())
}

async fn feed(
    file: Arc<OwnedFd>,
    size: u64,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    progress: Rc<TpcProgress>,
    host: Arc<ServerState>,
) {
    let mut at = 0;
    while at < size {
        let max = usize::try_from(size - at)
            .unwrap_or(BLOCK_BYTES)
            .min(BLOCK_BYTES);
        let bytes = match at_once(&file, max, at) {
            Some(bytes) => Ok(bytes),
            None => {
                let file = Arc::clone(&file);
                let read = aside(move || {
                    let mut bytes = vec![0; max];
                    let count = rustix::io::pread(&file, &mut bytes, at)?;
                    bytes.truncate(count);
                    if count == 0 {
                        Err(rustix::io::Errno::IO.into())
                    } else {
                        Ok(bytes)
                    }
                });
                progress.wait_for_disk(read).await
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
