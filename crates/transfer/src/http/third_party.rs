//! Copies between servers (HTTP-TPC): the destination pulls; otherwise the source pushes; otherwise
//! this host relays the bytes.

mod copy;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use http::StatusCode;

use super::exchange::HttpClient;
use super::list::{self, ChecksumTrust, RemoteMetadata};
use super::put::{check_size_after, is_kept};
use super::relay::through;
use super::request_error::{RequestError, no_digest};
use super::retry::RetryState;
use super::target::HttpTarget;
use super::work::HttpContext;
use crate::options::Existing;
use copy::{ActiveParty, CopyCompletion, copy};

/// Copy of one file between two servers.
#[derive(Debug)]
pub(crate) struct ThirdPartyCopy {
    pub(crate) from: HttpTarget,
    pub(crate) metadata: Option<RemoteMetadata>,
    pub(crate) to: HttpTarget,
    /// Existing metadata from a listing; none if a request is necessary.
    pub(crate) existing: Option<Option<RemoteMetadata>>,
}

impl ThirdPartyCopy {
    /// Return the destination as the source server may misinterpret it: nginx ignores the port of a
    /// URL with its own host name.
    fn mistaken(&self) -> Option<HttpTarget> {
        let same_name = (self.from.server.host).eq_ignore_ascii_case(&self.to.server.host);
        (same_name && self.from.server != self.to.server).then(|| HttpTarget {
            server: self.from.server.clone(),
            path: self.to.path.clone(),
        })
    }

    fn is_pushed_by(&self, active: ActiveParty) -> bool {
        active == ActiveParty::UploadSource && self.from.server != self.to.server
    }
}

/// Copy a file.
pub(crate) async fn pass(cx: &HttpContext<'_>, exchange: &Rc<HttpClient>, job: ThirdPartyCopy) {
    if let Err(fault) = try_pass(cx, exchange, &job).await {
        cx.report_failure(&fault.at(&job.to));
    }
}

async fn try_pass(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
) -> Result<(), RequestError> {
    let shown = PathBuf::from(job.to.to_string());
    let worth = ChecksumTrust::of(cx.order.verify || cx.order.checksum);
    let source = match &job.metadata {
        Some(metadata) if !(cx.order.verify || cx.order.checksum) => metadata.clone(),
        _ => list::head(exchange, &job.from, worth)
            .await
            .map_err(|fault| RequestError::Local(fault.at(&job.from)))?,
    };
    let size = source.size.unwrap_or(0);
    if exists(cx, exchange, job, &source).await? {
        cx.skipped_file(&shown, size);
        return Ok(());
    }
    if cx.order.dry_run {
        cx.copied(&shown, size, "would copy", None);
        return Ok(());
    }
    let attempts = Cell::new(0);
    let flags = match relay_or_delegate(cx, exchange, job, source.size, &attempts).await {
        Err(fault) if is_kept(cx.order, &fault) => {
            check_size_after(exchange, &job.to, size, &attempts).await?;
            cx.skipped_file(&shown, size);
            return Ok(());
        }
        other => other?,
    };
    if let Err(fault) = verify(cx, exchange, job, &source).await {
        // The destination does not have the expected content.
        list::remove(exchange, &job.to).await;
        return Err(fault);
    }
    cx.copied(&shown, size, "copied", Some(flags));
    Ok(())
}

async fn relay_or_delegate(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    size: Option<u64>,
    attempts: &Cell<u32>,
) -> Result<&'static str, RequestError> {
    if size == Some(0) {
        // An empty file needs no data, and XRootD 5 cannot pull it ("Internal state error in libcurl").
        return through(cx, exchange, job, size, attempts)
            .await
            .map(|()| "through the client");
    }
    let mut options = [
        (ActiveParty::Destination, "pulled"),
        (ActiveParty::UploadSource, "pushed"),
    ];
    if job.from.server == job.to.server {
        // Within a server this is COPY of plain WebDAV, without network transfer.
        options = [
            (ActiveParty::UploadSource, "by the server"),
            (ActiveParty::Destination, "pulled"),
        ];
    }
    for (active, flags) in options {
        let pushes = job.is_pushed_by(active);
        let mistaken = job.mistaken().filter(|_| pushes);
        if let Some(target) = &mistaken
            && !is_free(exchange, target).await
        {
            continue;
        }
        match retry_while_occupied(cx, exchange, job, active, size.unwrap_or(0), attempts).await {
            Ok(CopyCompletion::Silently) if pushes && !has_arrived(exchange, job, size).await? => {
                // The file did not exist before.
                if let Some(target) = mistaken {
                    list::remove(exchange, &target).await;
                }
            }
            Ok(done) => {
                // For servers that report progress, bytes are already counted.
                let silent = if done == CopyCompletion::Silently {
                    size
                } else {
                    None
                };
                let moved = &cx.totals.moved_bytes;
                moved.fetch_add(silent.unwrap_or(0), Ordering::Relaxed);
                return Ok(flags);
            }
            Err(fault) if is_unable(&fault) || (pushes && is_occupied(&fault)) => {}
            Err(fault) => return Err(fault),
        }
    }
    through(cx, exchange, job, size, attempts)
        .await
        .map(|()| "through the client")
}

/// Return whether a server does not copy to or from other servers, or not for this user or request.
fn is_unable(fault: &RequestError) -> bool {
    matches!(fault, RequestError::Status { status, .. } if matches!(status.as_u16(), 400 | 403 | 405 | 415 | 501 | 502))
}

/// Return whether an existing file blocked a copy that may not replace files.
fn is_occupied(fault: &RequestError) -> bool {
    matches!(fault, RequestError::Status { status, .. } if *status == StatusCode::PRECONDITION_FAILED)
}

/// Return whether the destination has the size that the server reported.
async fn has_arrived(
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    size: Option<u64>,
) -> Result<bool, RequestError> {
    match list::head(exchange, &job.to, ChecksumTrust::Nothing).await {
        Ok(metadata) => Ok(metadata.size == size),
        Err(RequestError::Status { .. }) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Return whether no file exists at this URL according to its server.
async fn is_free(exchange: &Rc<HttpClient>, target: &HttpTarget) -> bool {
    let existing = list::head(exchange, target, ChecksumTrust::Nothing).await;
    matches!(existing, Err(RequestError::Status { status, .. }) if status == StatusCode::NOT_FOUND)
}

/// Copy, and retry after an interruption, or when the destination is free: an earlier, killed copy
/// may still be active on the server.
async fn retry_while_occupied(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    active: ActiveParty,
    size: u64,
    attempts: &Cell<u32>,
) -> Result<CopyCompletion, RequestError> {
    let failed = &mut RetryState::default();
    loop {
        match copy(cx, exchange, job, active, size, (failed, attempts)).await {
            Ok(done) => return Ok(done),
            Err(fault @ RequestError::Silence(_)) => return Err(fault),
            Err(fault) => failed.again(exchange, fault).await?,
        }
    }
}

async fn verify(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    source: &RemoteMetadata,
) -> Result<(), RequestError> {
    if !cx.order.verify {
        return Ok(());
    }
    let existing = list::head(exchange, &job.to, ChecksumTrust::Waiting).await?;
    match common(source, &existing) {
        Some(true) => Ok(()),
        Some(false) => Err(RequestError::UnexpectedResponse {
            expected: "the checksum of the source",
            found: "another".into(),
        }),
        None => Err(no_digest()),
    }
}

/// Return whether a common checksum of both is equal; none without a common algorithm.
fn common(a: &RemoteMetadata, b: &RemoteMetadata) -> Option<bool> {
    a.digests.iter().find_map(|(algorithm, ours)| {
        let theirs = b.digests.iter().find(|(other, _)| other == algorithm)?;
        Some(theirs.1 == *ours)
    })
}

async fn exists(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &ThirdPartyCopy,
    source: &RemoteMetadata,
) -> Result<bool, RequestError> {
    if cx.order.existing == Existing::Replace {
        return Ok(false);
    }
    let existing = match &job.existing {
        Some(existing) if !cx.order.checksum => existing.clone(),
        _ => match list::head(exchange, &job.to, ChecksumTrust::of(cx.order.checksum)).await {
            Ok(metadata) => Some(metadata),
            Err(RequestError::Status {
                status: StatusCode::NOT_FOUND | StatusCode::CONFLICT,
                ..
            }) => None,
            Err(fault) => return Err(fault),
        },
    };
    let Some(existing) = existing else {
        return Ok(false);
    };
    if cx.order.existing == Existing::Keep {
        return Ok(true);
    }
    if existing.size.is_none() || existing.size != source.size {
        return Ok(false);
    }
    if cx.order.checksum {
        return Ok(common(source, &existing) == Some(true));
    }
    Ok(existing
        .modified
        .zip(source.modified)
        .is_some_and(|(existing, source)| existing >= source))
}
