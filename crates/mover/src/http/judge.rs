//! Whether a file of a server is here already, and what the server is asked of it to know that.

use std::rc::Rc;
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::exchange::Exchange;
use super::fault::{Fault, no_digest};
use super::get::Fetch;
use super::list::{self, Facts, Worth};
use super::work::Context;
use crate::attributes;
use crate::error::Failure;
use crate::order::Existing;
use crate::roots;

/// Whether the copy is there already, by the rules of the order.
pub(super) async fn is_there(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    job: &mut Fetch,
) -> Result<bool, Fault> {
    let path = job.folder.at(&job.name);
    let failed = |errno| Fault::Local(Failure::kernel(path.clone(), "to see what is there", errno));
    let there = match rustix::fs::statat(&job.folder.fd, &job.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => attributes::Facts::from(there),
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed(errno)),
    };
    let refused = |found: &str| {
        Err(Fault::Local(Failure::found(
            path.clone(),
            "a file or nothing",
            found,
            "remove it, or name another destination",
        )))
    };
    match (there.kind, cx.order.existing) {
        (FileType::Directory, _) => return refused("a directory"),
        (_, Existing::Keep) => return Ok(true),
        (kind, _) if let Some(found) = roots::in_the_way(kind) => return refused(found),
        (FileType::RegularFile, Existing::Update) => {}
        _ => return Ok(false),
    }
    let by_content = cx.order.checksum || !job.origin.reliable;
    if job.facts.is_none()
        || (by_content
            && job
                .facts
                .as_ref()
                .is_some_and(|facts| facts.digests.is_empty()))
    {
        see(exchange, job, Worth::of(by_content)).await?;
    }
    let facts = job.facts.as_mut().expect("just seen");
    if facts.size != Some(there.size) {
        return Ok(false);
    }
    if by_content {
        let Some((algorithm, told)) = facts.digests.first() else {
            return Ok(false);
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file =
            rustix::fs::openat(&job.folder.fd, &job.name, flags, Mode::empty()).map_err(failed)?;
        let found =
            crate::serve::root::checksum_of(std::os::fd::AsFd::as_fd(&file), *algorithm, 0, None)
                .map_err(failed)?;
        return Ok(found == *told);
    }
    if facts.modified.is_none() {
        facts.modified = list::changed(exchange, &job.from, there.size).await;
    }
    // A server tells whole seconds.
    let seconds = facts
        .modified
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    Ok(seconds.is_some_and(|time| i64::try_from(time.as_secs()) == Ok(there.modified.0)))
}

/// Asks for the checksum, which must be there.
pub(super) async fn see_digests(exchange: &Rc<Exchange>, job: &mut Fetch) -> Result<(), Fault> {
    let tells = |facts: &Facts| !facts.digests.is_empty();
    if !job.facts.as_ref().is_some_and(tells) {
        see(exchange, job, Worth::Waiting).await?;
    }
    let told = job.facts.as_ref().is_some_and(tells);
    told.then_some(()).ok_or_else(no_digest)
}

/// Has a listing of now say what a file is; checksums stay.
pub(super) async fn see_listed(exchange: &Rc<Exchange>, job: &mut Fetch) {
    let digests = job
        .facts
        .take()
        .map_or_else(Vec::new, |facts| facts.digests);
    let listed = list::entry(exchange, &job.from).await.unwrap_or_default();
    job.facts = Some(Facts { digests, ..listed });
}

/// Has the server say what a file is; what a listing alone tells stays.
async fn see(exchange: &Rc<Exchange>, job: &mut Fetch, worth: Worth) -> Result<(), Fault> {
    let told = list::head(exchange, &job.from, worth).await?;
    let modified = told.modified.or_else(|| job.changed(told.size?));
    job.facts = Some(Facts { modified, ..told });
    Ok(())
}
