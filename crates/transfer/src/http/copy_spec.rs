//! Sources as written on the command line: their type and their destinations.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::OpenDirectory;
use super::exchange::HttpClient;
use super::get::HttpDownload;
use super::list::{self, RemoteMetadata};
use super::pattern;
use super::put::{self, HttpUpload};
use super::request_error::RequestError;
use super::target::{HttpServer, HttpTarget};
use super::third_party::{self, ThirdPartyCopy};
use super::tree;
use super::tree_journals;
use super::work::{HttpContext, HttpTask};
use crate::error::Failure;
use crate::inputs::CopyLocation;
use crate::journal::Origin;
use crate::net::url::Url;
use crate::options::CopyOptions;
use crate::roots;

/// Source and destination as written.
#[derive(Debug, Clone)]
pub(crate) struct CopySpec {
    pub(crate) from: CopyLocation,
    pub(crate) to: CopyLocation,
    /// True if it is from a list: the destination is then the exact name of the copy.
    pub(crate) listed: bool,
    /// True if the destination of a list entry is a directory for the copy.
    pub(crate) into: bool,
    /// True if missing parent directories of the copy are created.
    pub(crate) create_parents: bool,
    /// True for the only source, whose destination may be its unfinished copy.
    pub(crate) alone: bool,
    /// True if wildcards of the source were not expanded yet.
    pub(crate) may_be_pattern: bool,
}

/// Options of a copy without its locations.
#[derive(Debug, Clone, Copy)]
struct CopyFlags {
    listed: bool,
    exact: bool,
    create_parents: bool,
    alone: bool,
}

impl CopySpec {
    /// Return the servers of this copy.
    pub(crate) fn servers(&self) -> impl Iterator<Item = HttpServer> {
        [&self.from, &self.to]
            .into_iter()
            .filter_map(|target| match target {
                CopyLocation::Remote(url) => Some(HttpTarget::from(url).server),
                CopyLocation::Local(_) => None,
            })
    }

    /// Return the destination directory, if the written URL determines it.
    pub(super) fn directory_url(&self, order: &CopyOptions) -> Option<HttpTarget> {
        let CopyLocation::Remote(to) = &self.to else {
            return None;
        };
        let to = HttpTarget::from(to);
        if self.is_exact(order) {
            return to.parent();
        }
        let into = to.decoded_path().ends_with(b"/");
        into.then(|| to.directory_url())
    }

    /// Return whether the destination is the name of the copy in any case.
    fn is_exact(&self, order: &CopyOptions) -> bool {
        (self.listed && !self.into) || order.no_target_directory
    }
}

/// Start a source.
pub(crate) async fn start(cx: &HttpContext<'_>, exchange: &Rc<HttpClient>, start: CopySpec) {
    let flags = CopyFlags {
        listed: start.listed,
        exact: start.is_exact(cx.order),
        create_parents: start.create_parents,
        alone: start.alone,
    };
    let result = match (start.from, start.to) {
        (CopyLocation::Remote(from), to) if start.may_be_pattern && pattern::wild(&from.path) => {
            start_matches(cx, exchange, from, to, flags).await
        }
        (CopyLocation::Remote(from), CopyLocation::Local(to)) => {
            start_fetch(cx, exchange, HttpTarget::from(&from), &to, flags).await
        }
        (CopyLocation::Local(from), CopyLocation::Remote(to)) => {
            start_upload(cx, exchange, &from, HttpTarget::from(&to), flags).await
        }
        (CopyLocation::Remote(from), CopyLocation::Remote(to)) => {
            start_third_party(
                cx,
                exchange,
                HttpTarget::from(&from),
                HttpTarget::from(&to),
                flags,
            )
            .await
        }
        (CopyLocation::Local(from), CopyLocation::Local(_)) => Err(Failure::found(
            from,
            "an HTTP URL",
            "none",
            "copy it with a separate command",
        )),
    };
    if let Err(failure) = result {
        cx.report_failure(&failure);
    }
}

/// Start all matches of a source with wildcards.
async fn start_matches(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    source: Url,
    to: CopyLocation,
    flags: CopyFlags,
) -> Result<(), Failure> {
    let shown = source.to_string();
    let found = pattern::expand(exchange, source).await?;
    if found.len() > 1 {
        reject_several(cx.order, &to).map_err(|(expected, _, advice)| {
            let several = format!("{} matches of {shown}", found.len());
            Failure::found(to.shown(), expected, several, advice)
        })?;
    }
    cx.expect(found.len() as u64);
    let alone = flags.alone && found.len() == 1;
    let start = |from| {
        HttpTask::Start(CopySpec {
            from: CopyLocation::Remote(from),
            to: to.clone(),
            listed: false,
            into: false,
            create_parents: flags.create_parents,
            alone,
            may_be_pattern: false,
        })
    };
    cx.pool.push(found.into_iter().rev().map(start));
    Ok(())
}

/// Return the reason against several sources for one destination: expected, found, advice.
pub(super) fn reject_several(
    order: &CopyOptions,
    to: &CopyLocation,
) -> Result<(), (&'static str, &'static str, &'static str)> {
    let slash = to.bytes().ends_with(b"/");
    let is_directory = match to {
        CopyLocation::Local(path) => path.is_dir(),
        // Decided without a request.
        CopyLocation::Remote(_) if slash || order.no_target_directory => false,
        CopyLocation::Remote(_) => {
            let found = "a URL without a trailing slash";
            return Err((
                "a directory as destination of several sources",
                found,
                "add a trailing slash",
            ));
        }
    };
    let target = roots::DestinationInfo {
        is_directory,
        exists: is_directory,
        slash,
    };
    roots::find_conflict(order, target, true)
}

async fn start_fetch(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    from: HttpTarget,
    to: &Path,
    flags: CopyFlags,
) -> Result<(), Failure> {
    check_not_directory(cx, exchange, &from).await?;
    let contents = cx.order.recursive && from.decoded_path().ends_with(b"/");
    let local = local_copy(cx, &from, to, flags, contents)?;
    if !flags.exact && !flags.listed && !contents {
        cx.claim(local.copy.clone())?;
    }
    let parent = local.copy.parent().unwrap_or(Path::new(""));
    let makes_parents = is_slashed(to) || flags.create_parents;
    if makes_parents && !cx.order.dry_run {
        roots::create_parents(parent, cx.order.sync).map_err(|error| {
            Failure::found(
                parent.to_owned(),
                "a directory or a free name",
                crate::error::describe(&error),
                "fix the cause, then run the same command again",
            )
        })?;
    }
    let would_make = cx.order.dry_run && makes_parents && !parent.exists();
    let directory = Arc::new(match would_make && !parent.as_os_str().is_empty() {
        true => OpenDirectory::absent(parent.to_owned())?,
        false => OpenDirectory::open(parent)?,
    });
    if cx.order.recursive {
        let (_ahead, mut requested) = (cx.prepare_tree(&from.server), None);
        let listed = list::as_written(exchange, &from, |files| {
            requested = Some(cx.prepare(&from.server, files));
        });
        if let Some(entries) = listed.await.map_err(|fault| fault.at(&from))? {
            let (inner, fresh) = match local.is_itself(flags) {
                true => (OpenDirectory::open(&local.copy)?, false),
                false => tree::made(cx, &directory, &local.name()?)?,
            };
            let token = tree_journals::token(&from, &local.copy);
            let origin = cx.trees.start(cx, token, &inner, fresh)?;
            tree::fill(cx, &from, (inner, fresh), origin, entries);
            OpenDirectory::release(cx, directory);
            return Ok(());
        }
    }
    let (origin, fresh) = (
        Origin::of(tree_journals::token(&from, &local.copy)),
        !directory.exists,
    );
    cx.pool.push([HttpTask::HttpDownload(Box::new(HttpDownload {
        from,
        metadata: None,
        directory,
        name: local.name()?,
        fresh,
        origin,
    }))]);
    Ok(())
}

/// Local destination of a copy.
struct LocalCopy {
    copy: PathBuf,
    /// True if the copy is inside the written directory, under the name of the source.
    inside: bool,
}

impl LocalCopy {
    /// Return whether the copy is the written directory itself, which may be a link, or have no
    /// name (`.`).
    fn is_itself(&self, flags: CopyFlags) -> bool {
        !self.inside && !flags.listed && self.copy.is_dir()
    }

    fn name(&self) -> Result<CString, Failure> {
        let name = self.copy.file_name().map(OsStr::as_bytes);
        let name = name.and_then(|name| CString::new(name).ok());
        let lacks = || {
            Failure::found(
                self.copy.clone(),
                "a file name for the copy",
                "none",
                "add a file name",
            )
        };
        name.ok_or_else(lacks)
    }
}

fn is_slashed(to: &Path) -> bool {
    to.as_os_str().as_bytes().ends_with(b"/")
}

/// Return the local destination: inside a directory, unless the directory is the unfinished copy or the contents of
/// the source are copied.
fn local_copy(
    cx: &HttpContext<'_>,
    from: &HttpTarget,
    to: &Path,
    flags: CopyFlags,
    contents: bool,
) -> Result<LocalCopy, Failure> {
    let slash = is_slashed(to);
    let into = !flags.exact && !contents && (slash || to.is_dir());
    let resumes = || {
        let may = cx.order.recursive && flags.alone && !slash;
        may && roots::is_unfinished(to, tree_journals::token(from, to))
    };
    let inside = into && !resumes();
    let name = from.name();
    if inside && name.is_empty() {
        return Err(Failure::found(
            PathBuf::from(from.to_string()),
            "a file name",
            "none",
            "add a file name, or add --recursive to copy a directory",
        ));
    }
    let copy = match inside {
        true => to.join(OsStr::from_bytes(&name)),
        false => to.to_owned(),
    };
    Ok(LocalCopy { copy, inside })
}

/// Check that a URL written as a directory is not a directory, unless directories are copied. Its index page is not
/// its content.
async fn check_not_directory(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    from: &HttpTarget,
) -> Result<(), Failure> {
    if cx.order.recursive || !from.decoded_path().ends_with(b"/") {
        return Ok(());
    }
    match list::kind(exchange, from).await {
        Ok(Some(true)) => Err(Failure::found(
            PathBuf::from(from.to_string()),
            "a file",
            "a directory",
            "add --recursive (-r) to copy its contents",
        )),
        Err(fault) if fault.is_of_connection() => Err(fault.at(from)),
        // A server without WebDAV has pages at such paths, which are files like others.
        _ => Ok(()),
    }
}

async fn start_upload(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    from: &Path,
    to: HttpTarget,
    flags: CopyFlags,
) -> Result<(), Failure> {
    let at_source = |error: std::io::Error| {
        Failure::found(
            from.to_owned(),
            "a file or directory",
            crate::error::describe(&error),
            "name an existing path",
        )
    };
    let order = cx.order;
    if order.recursive && !order.follow && !roots::is_contents(from) && from.is_symlink() {
        cx.skipped(
            from,
            "HTTP supports only files and directories; --follow copies the target of a link",
        );
        return Ok(());
    }
    let is_directory = std::fs::metadata(from).map_err(at_source)?.is_dir();
    let contents = is_directory && roots::is_contents(from);
    let resolved = if contents {
        std::fs::canonicalize(from).map_err(at_source)?
    } else {
        from.to_owned()
    };
    let name = resolved
        .file_name()
        .and_then(|name| CString::new(name.as_bytes()).ok());
    let name = name.ok_or_else(|| {
        Failure::found(
            from.to_owned(),
            "a path with a file name",
            "none",
            "choose another path",
        )
    })?;
    if is_directory && !cx.order.recursive {
        return Err(Failure::found(
            from.to_owned(),
            "a file",
            "a directory",
            "add --recursive to copy directories",
        ));
    }
    let target = if contents {
        ResolvedCopy::unseen(to)
    } else {
        checked_target(cx, exchange, to, name.to_bytes(), flags, is_directory).await?
    };
    let directory = Arc::new(OpenDirectory::open(
        resolved.parent().unwrap_or(Path::new("")),
    )?);
    let task = if is_directory {
        let to = target.to;
        HttpTask::StoreTree {
            directory,
            name,
            to,
        }
    } else {
        let existing = target.existing(cx, exchange).await;
        let job = HttpUpload {
            directory,
            name,
            to: target.to,
            existing,
            create_parents: flags.create_parents,
        };
        if cx.is_one {
            // The open connections belong to this thread.
            put::store(cx, exchange, job).await;
            return Ok(());
        }
        HttpTask::HttpUpload(Box::new(job))
    };
    cx.pool.push([task]);
    Ok(())
}

async fn start_third_party(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    from: HttpTarget,
    to: HttpTarget,
    flags: CopyFlags,
) -> Result<(), Failure> {
    check_apart(cx, &from, &to)?;
    check_not_directory(cx, exchange, &from).await?;
    let is_directory = cx.order.recursive
        && list::kind(exchange, &from)
            .await
            .map_err(|fault| fault.at(&from))?
            == Some(true);
    let contents = is_directory && from.decoded_path().ends_with(b"/");
    let target = if contents {
        ResolvedCopy::unseen(to)
    } else {
        checked_target(cx, exchange, to, &from.name(), flags, is_directory).await?
    };
    check_apart(cx, &from, &target.to)?;
    let task = if is_directory {
        let to = target.to;
        HttpTask::PassTree { from, to }
    } else {
        let existing = target.existing(cx, exchange).await;
        let job = ThirdPartyCopy {
            from,
            metadata: None,
            to: target.to,
            existing,
        };
        if cx.is_one {
            third_party::pass(cx, exchange, job).await;
            return Ok(());
        }
        HttpTask::Pass(Box::new(job))
    };
    cx.pool.push([task]);
    Ok(())
}

/// Check that a copy within a server has separate source and destination.
fn check_apart(cx: &HttpContext<'_>, from: &HttpTarget, to: &HttpTarget) -> Result<(), Failure> {
    let server = |target: &HttpTarget| {
        let server = &target.server;
        (server.host.to_ascii_lowercase(), server.port)
    };
    if server(from) != server(to) {
        return Ok(());
    }
    // A query may select another version of the same file.
    if !cx.order.recursive && from.path != to.path {
        return Ok(());
    }
    let within = roots::within(&from.decoded_path(), &to.decoded_path());
    let found =
        within.and_then(|within| roots::itself(to.to_string().into(), within, cx.order.recursive));
    found.map_or(Ok(()), Err)
}

/// Resolved destination of a source.
struct ResolvedCopy {
    to: HttpTarget,
    /// Existing metadata from a listing; none if unknown or not trusted.
    existing: Option<Option<RemoteMetadata>>,
}

impl ResolvedCopy {
    fn unseen(to: HttpTarget) -> Self {
        Self { to, existing: None }
    }

    /// Return the existing metadata; none if a request is necessary.
    async fn existing(
        &self,
        cx: &HttpContext<'_>,
        exchange: &Rc<HttpClient>,
    ) -> Option<Option<RemoteMetadata>> {
        match &self.existing {
            Some(existing) => Some(existing.clone()),
            None => {
                cx.destination_dirs
                    .existing(cx.order, exchange, &self.to)
                    .await
            }
        }
    }
}

/// Return a destination for this name that no other source of this copy uses.
async fn checked_target(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    to: HttpTarget,
    name: &[u8],
    flags: CopyFlags,
    is_directory: bool,
) -> Result<ResolvedCopy, Failure> {
    if flags.exact {
        return Ok(ResolvedCopy::unseen(to));
    }
    let server = to.server.clone();
    let requested = resolve_target(cx, exchange, to, name, flags, is_directory);
    let target = match cx.is_one {
        true => exchange.with_spare(&server, requested).await?,
        false => requested.await?,
    };
    if !flags.listed {
        cx.claim(target.to.to_string().into())?;
    }
    Ok(target)
}

/// Return the destination. If it is a directory, or is written as one, the copy is inside.
async fn resolve_target(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    to: HttpTarget,
    name: &[u8],
    flags: CopyFlags,
    is_directory: bool,
) -> Result<ResolvedCopy, Failure> {
    if to.decoded_path().ends_with(b"/") {
        let target = to.child(name);
        if cx.order.dry_run || to.decoded_path() == b"/" {
            return Ok(ResolvedCopy::unseen(target));
        }
        // As with `cp DIR/`, a missing directory is created. The server may not permit to list it.
        let made = cx
            .destination_dirs
            .make(exchange, &to, flags.create_parents);
        // Several sources share one listing.
        let (made, existing) = if cx.is_one && list::is_listing_trusted(cx.order) {
            let (made, found) = tokio::join!(made, list::entry_of(exchange, &target));
            (
                made,
                found.ok().map(|found| found.map(RemoteMetadata::from)),
            )
        } else {
            (made.await, None)
        };
        if let Some(fault) = made.err().filter(RequestError::is_of_connection) {
            return Err(fault.at(&to));
        }
        return Ok(ResolvedCopy {
            to: target,
            existing,
        });
    }
    // Use a clear file name as it is. A check costs a round trip, and a directory rejects the upload anyway.
    match list::entry_of(exchange, &to).await {
        Ok(Some(entry)) if entry.directory => Ok(ResolvedCopy::unseen(to.child(name))),
        Err(fault) if fault.is_of_connection() => Err(fault.at(&to)),
        // A server without WebDAV cannot list directories.
        _ if is_directory => {
            cx.nests.store(!cx.order.dry_run, Ordering::Relaxed);
            Ok(ResolvedCopy::unseen(to.directory_url()))
        }
        Ok(found) => Ok(ResolvedCopy {
            to,
            existing: list::trusted_listing(cx.order, found.map(RemoteMetadata::from)),
        }),
        Err(_) => Ok(ResolvedCopy::unseen(to)),
    }
}
