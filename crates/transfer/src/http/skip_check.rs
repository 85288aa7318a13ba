//! Skip check of downloads and its requests.

use std::rc::Rc;
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::exchange::HttpClient;
use super::get::HttpDownload;
use super::list::{self, ChecksumTrust, RemoteMetadata};
use super::request_error::{RequestError, no_digest};
use super::work::HttpContext;
use crate::attributes;
use crate::error::Failure;
use crate::options::Existing;
use crate::roots;

/// Return whether the local copy is up to date.
pub(super) async fn is_up_to_date(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    job: &mut HttpDownload,
) -> Result<bool, RequestError> {
    let path = job.directory.at(&job.name);
    let failed =
        |errno| RequestError::Local(Failure::kernel(path.clone(), "to read its metadata", errno));
    let local = match rustix::fs::statat(&job.directory.fd, &job.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(local) => attributes::LocalMetadata::from(local),
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed(errno)),
    };
    let rejected = |found: &str| {
        Err(RequestError::Local(Failure::found(
            path.clone(),
            "a file or a free name",
            found,
            "delete it, or choose another destination",
        )))
    };
    match (local.kind, cx.order.existing) {
        (FileType::Directory, _) => return rejected("a directory"),
        (_, Existing::Keep) => return Ok(true),
        (kind, _) if let Some(found) = roots::obstacle(kind) => return rejected(found),
        (FileType::RegularFile, Existing::Update) => {}
        _ => return Ok(false),
    }
    let by_content = cx.order.checksum || !job.origin.reliable;
    if job.metadata.is_none()
        || (by_content
            && job
                .metadata
                .as_ref()
                .is_some_and(|metadata| metadata.digests.is_empty()))
    {
        stat(exchange, job, ChecksumTrust::of(by_content)).await?;
    }
    let metadata = job.metadata.as_mut().expect("just seen");
    if metadata.size != Some(local.size) {
        return Ok(false);
    }
    if by_content {
        let Some((algorithm, reported)) = metadata.digests.first() else {
            return Ok(false);
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&job.directory.fd, &job.name, flags, Mode::empty())
            .map_err(failed)?;
        let found = crate::serve::confined_root::compute_checksum(
            std::os::fd::AsFd::as_fd(&file),
            *algorithm,
            0,
            None,
        )
        .map_err(failed)?;
        return Ok(found == *reported);
    }
    if metadata.modified.is_none() {
        metadata.modified = list::changed(exchange, &job.from, local.size).await;
    }
    // Servers report seconds only.
    let seconds = metadata
        .modified
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(seconds.is_some_and(|time| i64::try_from(time.as_secs()) == Ok(local.modified.0)))
}

/// Request the checksum, which must exist.
pub(super) async fn fetch_digests(
    exchange: &Rc<HttpClient>,
    job: &mut HttpDownload,
) -> Result<(), RequestError> {
    let has_checksum = |metadata: &RemoteMetadata| !metadata.digests.is_empty();
    if !job.metadata.as_ref().is_some_and(has_checksum) {
        stat(exchange, job, ChecksumTrust::Waiting).await?;
    }
    let reported = job.metadata.as_ref().is_some_and(has_checksum);
    reported.then_some(()).ok_or_else(no_digest)
}

/// Update the metadata from a listing; keep the checksums.
pub(super) async fn fetch_listed(exchange: &Rc<HttpClient>, job: &mut HttpDownload) {
    let digests = job
        .metadata
        .take()
        .map_or_else(Vec::new, |metadata| metadata.digests);
    let listed = list::entry(exchange, &job.from).await.unwrap_or_default();
    job.metadata = Some(RemoteMetadata { digests, ..listed });
}

/// Update the metadata from the server; keep values that only a listing has.
async fn stat(
    exchange: &Rc<HttpClient>,
    job: &mut HttpDownload,
    worth: ChecksumTrust,
) -> Result<(), RequestError> {
    let reported = list::head(exchange, &job.from, worth).await?;
    let modified = reported.modified.or_else(|| job.changed(reported.size?));
    job.metadata = Some(RemoteMetadata {
        modified,
        ..reported
    });
    Ok(())
}
