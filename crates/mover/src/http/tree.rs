//! Trees: directories of either side, what is in them, and what becomes of it.

use std::ffi::{CStr, CString};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::exchange::Exchange;
use super::fault::Fault;
use super::folder::Folder;
use super::get::Fetch;
use super::list::{self, Facts, Listing, Names};
use super::put::Store;
use super::target::Target;
use super::third::Pass;
use super::work::{Context, Task};
use crate::error::Failure;
use crate::journal::{NAMES_BYTES, Origin};
use crate::order::Existing;
use crate::temporary::PREFIX;

/// Directories within each other of a server: one whose directories contain themselves does not end otherwise.
const DEEPEST: usize = 512;

/// Makes a directory here and lists that of a server.
pub(crate) async fn fetch(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    from: &Target,
    (folder, name): (&Folder, &CStr),
    origin: Origin,
) {
    let (inner, fresh) = match made(cx, folder, name) {
        Ok(made) => made,
        Err(failure) => return cx.tell(&failure),
    };
    match listed(exchange, from).await {
        Ok(entries) => fill(cx, from, (inner, fresh), origin, entries),
        Err(fault) => cx.tell(&fault.at(from)),
    }
}

/// Makes a directory here, or finds it. Whether it is new, or would be.
pub(super) fn made(
    cx: &Context<'_>,
    folder: &Folder,
    name: &CStr,
) -> Result<(Folder, bool), Failure> {
    let path = || folder.at(name);
    let made = match cx.order.dry_run {
        true => Err(Errno::EXIST),
        false => rustix::fs::mkdirat(&folder.fd, name, Mode::from_raw_mode(0o777)),
    };
    let fresh = match made {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => {
            let expected = "a directory, or a place for one";
            return Err(Failure::kernel(path(), expected, errno));
        }
    };
    match folder.enter(name, OFlags::NOFOLLOW) {
        Ok(inner) => Ok((inner, fresh)),
        Err(Errno::NOENT) if cx.order.dry_run => Ok((Folder::absent(path())?, true)),
        Err(errno) => Err(Failure::kernel(path(), "a directory to copy into", errno)),
    }
}

/// Has all that is in a directory of a server come into one here.
pub(super) fn fill(
    cx: &Context<'_>,
    from: &Target,
    (inner, fresh): (Folder, bool),
    origin: Origin,
    entries: Listing,
) {
    let inner = Arc::new(inner);
    cx.totals.count(&cx.totals.directories);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for (name, entry) in entries {
        let c_name = CString::new(name.clone()).expect("`children` lets no zero byte pass");
        if name.starts_with(PREFIX.as_bytes()) {
            cx.left_out(
                &inner.at(&c_name),
                "it has a name of ours for what is not whole",
            );
            continue;
        }
        let from = from.child(&name);
        if entry.directory {
            folders.push(Task::FetchTree {
                from: from.collection(),
                folder: Arc::clone(&inner),
                name: c_name,
                origin,
            });
        } else {
            let facts = Some(Facts::from(entry));
            files.push(Task::Fetch(Box::new(Fetch {
                from,
                facts,
                folder: Arc::clone(&inner),
                name: c_name,
                fresh,
                origin,
            })));
        }
    }
    cx.expect(files.len() as u64);
    // What is pushed last is done first: files, so that directories do not pile up.
    cx.pool
        .push(folders.into_iter().chain(files.into_iter().rev()));
    Folder::release(cx, inner);
}

async fn listed(exchange: &Rc<Exchange>, place: &Target) -> Result<Listing, Fault> {
    if place.path.bytes().filter(|byte| *byte == b'/').count() > DEEPEST {
        return Err(Fault::Answer {
            expected: "a tree",
            found: format!("more than {DEEPEST} directories within each other"),
        });
    }
    let found = list::list(exchange, place).await?;
    found.ok_or_else(|| Fault::Answer {
        expected: "a directory",
        found: "a file".into(),
    })
}

/// Makes a directory at a server and lists ours.
pub(crate) async fn store(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    folder: &Folder,
    name: &CStr,
    to: &Target,
) {
    let path = folder.at(name);
    let flags = if cx.order.follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let inner = match folder.enter(name, flags) {
        Ok(inner) => Arc::new(inner),
        Err(errno) => {
            return cx.tell(&Failure::kernel(
                path,
                "a directory that can be read",
                errno,
            ));
        }
    };
    let names = match names(&inner) {
        Ok(names) => names,
        Err(errno) => {
            return cx.tell(&Failure::kernel(
                path,
                "a directory that can be read",
                errno,
            ));
        }
    };
    // Connections are opened while the directory is made.
    let wanted = cx.prepare(&to.server, names.len() as u64);
    let there = match arrived(cx, exchange, to).await {
        Ok(there) => there,
        Err(fault) => return cx.tell(&fault.at(to)),
    };
    drop(wanted);
    cx.totals.count(&cx.totals.directories);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for (name, kind) in names {
        let kind = if kind == FileType::Unknown || (kind == FileType::Symlink && cx.order.follow) {
            match kind_of(&inner, &name, cx.order.follow) {
                Ok(kind) => kind,
                Err(errno) => {
                    cx.tell(&unseen(&inner, &name, kind, errno));
                    continue;
                }
            }
        } else {
            kind
        };
        let to = to.child(name.to_bytes());
        match kind {
            FileType::Directory => folders.push(Task::StoreTree {
                folder: Arc::clone(&inner),
                name,
                to: to.collection(),
            }),
            FileType::RegularFile => {
                let there = list::there(cx.order, there.as_ref(), name.to_bytes());
                files.push(Task::Store(Box::new(Store {
                    folder: Arc::clone(&inner),
                    name,
                    to,
                    there,
                    make_way: false,
                })));
            }
            _ => cx.left_out(
                &inner.at(&name),
                "no file or directory: HTTP has nothing else",
            ),
        }
    }
    cx.pool
        .push(folders.into_iter().chain(files.into_iter().rev()));
}

/// Makes a collection; what is in it, as far as that matters: none if each file has to be asked for, of a server that makes directories and lists none.
async fn arrived(
    cx: &Context<'_>,
    exchange: &Rc<Exchange>,
    to: &Target,
) -> Result<Option<Names>, Fault> {
    if !cx.order.dry_run {
        list::make(exchange, to, cx.order.mkpath).await?;
    }
    // Whether it was there is not believed: a server may call new what was not.
    if cx.order.existing == Existing::Replace {
        return Ok(Some(Names::new()));
    }
    match list::list(exchange, to).await {
        Ok(Some(listing)) => Ok(Some(list::by_name(listing))),
        Ok(None) => Err(Fault::Answer {
            expected: "a directory, or a place for one",
            found: "a file".into(),
        }),
        Err(Fault::Status {
            status: http::StatusCode::NOT_FOUND,
            ..
        }) if cx.order.dry_run => Ok(Some(Names::new())),
        Err(Fault::Status {
            status: http::StatusCode::METHOD_NOT_ALLOWED | http::StatusCode::NOT_IMPLEMENTED,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Makes a directory at a server and lists that of another.
pub(crate) async fn pass(cx: &Context<'_>, exchange: &Rc<Exchange>, from: &Target, to: &Target) {
    let entries = match listed(exchange, from).await {
        Ok(entries) => entries,
        Err(fault) => return cx.tell(&fault.at(from)),
    };
    let there = match arrived(cx, exchange, to).await {
        Ok(there) => there,
        Err(fault) => return cx.tell(&fault.at(to)),
    };
    cx.totals.count(&cx.totals.directories);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for (name, entry) in entries {
        let (from, to) = (from.child(&name), to.child(&name));
        if entry.directory {
            folders.push(Task::PassTree {
                from: from.collection(),
                to: to.collection(),
            });
        } else {
            let there = list::there(cx.order, there.as_ref(), &name);
            files.push(Task::Pass(Box::new(Pass {
                from,
                facts: Some(entry.into()),
                to,
                there,
            })));
        }
    }
    cx.pool
        .push(folders.into_iter().chain(files.into_iter().rev()));
}

fn kind_of(folder: &Folder, name: &CStr, follow: bool) -> Result<FileType, Errno> {
    let flags = if follow {
        AtFlags::empty()
    } else {
        AtFlags::SYMLINK_NOFOLLOW
    };
    let found = rustix::fs::statat(&folder.fd, name, flags)?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

fn unseen(folder: &Folder, name: &CStr, kind: FileType, errno: Errno) -> Failure {
    let failure = Failure::kernel(folder.at(name), "to see what it is", errno);
    if kind == FileType::Symlink {
        let advice = "mend the link, or leave --follow out";
        return Failure { advice, ..failure };
    }
    failure
}

fn names(folder: &Folder) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut entries = RawDir::new(&folder.fd, buffer.spare_capacity_mut());
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
