//! Copies of trees: directories of both sides and their entries.

use std::ffi::{CStr, CString};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::directory::OpenDirectory;
use super::exchange::HttpClient;
use super::get::HttpDownload;
use super::list::{self, DavListing, MetadataByName, RemoteMetadata};
use super::put::HttpUpload;
use super::request_error::RequestError;
use super::target::HttpTarget;
use super::third_party::ThirdPartyCopy;
use super::work::{HttpContext, HttpTask};
use crate::error::Failure;
use crate::journal::{NAMES_BYTES, Origin};
use crate::options::Existing;
use crate::temporary::PREFIX;

/// Maximum depth of directories on a server, because a directory may contain itself.
const DEEPEST: usize = 512;

/// Create a local directory and list the one on the server.
pub(crate) async fn download(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    from: &HttpTarget,
    (directory, name): (&OpenDirectory, &CStr),
    origin: Origin,
) {
    let (inner, fresh) = match made(cx, directory, name) {
        Ok(made) => made,
        Err(failure) => return cx.report_failure(&failure),
    };
    match listed(exchange, from).await {
        Ok(entries) => fill(cx, from, (inner, fresh), origin, entries),
        Err(fault) => cx.report_failure(&fault.at(from)),
    }
}

/// Create or open a local directory. Return whether it is new, or would be in a dry run.
pub(super) fn made(
    cx: &HttpContext<'_>,
    directory: &OpenDirectory,
    name: &CStr,
) -> Result<(OpenDirectory, bool), Failure> {
    let path = || directory.at(name);
    let made = match cx.order.dry_run {
        true => Err(Errno::EXIST),
        false => rustix::fs::mkdirat(&directory.fd, name, Mode::from_raw_mode(0o777)),
    };
    let fresh = match made {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => {
            let expected = "a directory or a free name";
            return Err(Failure::kernel(path(), expected, errno));
        }
    };
    match directory.enter(name, OFlags::NOFOLLOW) {
        Ok(inner) => Ok((inner, fresh)),
        Err(Errno::NOENT) if cx.order.dry_run => Ok((OpenDirectory::absent(path())?, true)),
        Err(errno) => Err(Failure::kernel(path(), "a directory to copy into", errno)),
    }
}

/// Add tasks for all entries of a server directory.
pub(super) fn fill(
    cx: &HttpContext<'_>,
    from: &HttpTarget,
    (inner, fresh): (OpenDirectory, bool),
    origin: Origin,
    entries: DavListing,
) {
    let inner = Arc::new(inner);
    cx.totals.count(&cx.totals.directories);
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for (name, entry) in entries {
        let c_name = CString::new(name.clone()).expect("`children` lets no zero byte pass");
        if name.starts_with(PREFIX.as_bytes()) {
            cx.skipped(
                &inner.at(&c_name),
                "its name is reserved for temporary files of venturi",
            );
            continue;
        }
        let from = from.child(&name);
        if entry.directory {
            directories.push(HttpTask::DownloadTree {
                from: from.directory_url(),
                directory: Arc::clone(&inner),
                name: c_name,
                origin,
            });
        } else {
            let metadata = Some(RemoteMetadata::from(entry));
            files.push(HttpTask::HttpDownload(Box::new(HttpDownload {
                from,
                metadata,
                directory: Arc::clone(&inner),
                name: c_name,
                fresh,
                origin,
            })));
        }
    }
    cx.expect(files.len() as u64);
    // The last pushed task runs first: files before directories, so that directories do not pile up.
    cx.pool
        .push(directories.into_iter().chain(files.into_iter().rev()));
    OpenDirectory::release(cx, inner);
}

async fn listed(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Result<DavListing, RequestError> {
    if target.path.bytes().filter(|byte| *byte == b'/').count() > DEEPEST {
        return Err(RequestError::UnexpectedResponse {
            expected: "a tree",
            found: format!("more than {DEEPEST} levels of directories"),
        });
    }
    let found = list::list(exchange, target).await?;
    found.ok_or_else(|| RequestError::UnexpectedResponse {
        expected: "a directory",
        found: "a file".into(),
    })
}

/// Create a directory on a server and list the local one.
pub(crate) async fn store(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    directory: &OpenDirectory,
    name: &CStr,
    to: &HttpTarget,
) {
    let path = directory.at(name);
    let flags = if cx.order.follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let inner = match directory.enter(name, flags) {
        Ok(inner) => Arc::new(inner),
        Err(errno) => {
            return cx.report_failure(&Failure::kernel(path, "a readable directory", errno));
        }
    };
    let names = match names(&inner) {
        Ok(names) => names,
        Err(errno) => {
            return cx.report_failure(&Failure::kernel(path, "a readable directory", errno));
        }
    };
    // Connections are opened while the directory is created.
    let requested = cx.prepare(&to.server, names.len() as u64);
    let existing = match arrived(cx, exchange, to).await {
        Ok(existing) => existing,
        Err(fault) => return cx.report_failure(&fault.at(to)),
    };
    drop(requested);
    cx.totals.count(&cx.totals.directories);
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for (name, kind) in names {
        let kind = if kind == FileType::Unknown || (kind == FileType::Symlink && cx.order.follow) {
            match entry_kind(&inner, &name, cx.order.follow) {
                Ok(kind) => kind,
                Err(errno) => {
                    cx.report_failure(&unseen(&inner, &name, kind, errno));
                    continue;
                }
            }
        } else {
            kind
        };
        let to = to.child(name.to_bytes());
        match kind {
            FileType::Directory => directories.push(HttpTask::StoreTree {
                directory: Arc::clone(&inner),
                name,
                to: to.directory_url(),
            }),
            FileType::RegularFile => {
                let existing = list::existing(cx.order, existing.as_ref(), name.to_bytes());
                files.push(HttpTask::HttpUpload(Box::new(HttpUpload {
                    directory: Arc::clone(&inner),
                    name,
                    to,
                    existing,
                    create_parents: false,
                })));
            }
            _ => cx.skipped(&inner.at(&name), "HTTP supports only files and directories"),
        }
    }
    cx.pool
        .push(directories.into_iter().chain(files.into_iter().rev()));
}

/// Create a directory and return its existing entries; none if the server does not list directories, so each file
/// needs a request.
async fn arrived(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    to: &HttpTarget,
) -> Result<Option<MetadataByName>, RequestError> {
    if !cx.order.dry_run {
        list::make(exchange, to, cx.order.mkpath).await?;
    }
    // The status of MKCOL does not prove that the directory is new.
    if cx.order.existing == Existing::Replace {
        return Ok(Some(MetadataByName::new()));
    }
    match list::list(exchange, to).await {
        Ok(Some(listing)) => Ok(Some(list::by_name(listing))),
        Ok(None) => Err(RequestError::UnexpectedResponse {
            expected: "a directory or a free name",
            found: "a file".into(),
        }),
        Err(RequestError::Status {
            status: http::StatusCode::NOT_FOUND,
            ..
        }) if cx.order.dry_run => Ok(Some(MetadataByName::new())),
        Err(RequestError::Status {
            status: http::StatusCode::METHOD_NOT_ALLOWED | http::StatusCode::NOT_IMPLEMENTED,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Create a directory on a server and list the one on the other server.
pub(crate) async fn pass(
    cx: &HttpContext<'_>,
    exchange: &Rc<HttpClient>,
    from: &HttpTarget,
    to: &HttpTarget,
) {
    let entries = match listed(exchange, from).await {
        Ok(entries) => entries,
        Err(fault) => return cx.report_failure(&fault.at(from)),
    };
    let existing = match arrived(cx, exchange, to).await {
        Ok(existing) => existing,
        Err(fault) => return cx.report_failure(&fault.at(to)),
    };
    cx.totals.count(&cx.totals.directories);
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for (name, entry) in entries {
        let (from, to) = (from.child(&name), to.child(&name));
        if entry.directory {
            directories.push(HttpTask::PassTree {
                from: from.directory_url(),
                to: to.directory_url(),
            });
        } else {
            let existing = list::existing(cx.order, existing.as_ref(), &name);
            files.push(HttpTask::Pass(Box::new(ThirdPartyCopy {
                from,
                metadata: Some(entry.into()),
                to,
                existing,
            })));
        }
    }
    cx.pool
        .push(directories.into_iter().chain(files.into_iter().rev()));
}

fn entry_kind(directory: &OpenDirectory, name: &CStr, follow: bool) -> Result<FileType, Errno> {
    let flags = if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    };
    let found = rustix::fs::statat(&directory.fd, name, flags)?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

fn unseen(directory: &OpenDirectory, name: &CStr, kind: FileType, errno: Errno) -> Failure {
    let failure = Failure::kernel(directory.at(name), "to read its type", errno);
    if kind == FileType::Symlink {
        let advice = "fix the link, or remove --follow";
        return Failure { advice, ..failure };
    }
    failure
}

fn names(directory: &OpenDirectory) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut entries = RawDir::new(&directory.fd, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let ours = name.to_bytes().starts_with(PREFIX.as_bytes());
        if name != c"." && name != c".." && !ours {
            names.push((name.to_owned(), entry.file_type()));
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}
