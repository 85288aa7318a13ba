//! Starts a source: for a tree, opens its first directory and journal; copies other types directly.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::context::LocalContext;
use super::copy_bytes::{CopyMethods, FileCopier};
use super::directory::{DIRECTORY, Dir, DirEnding, FILLING, LocalTree};
use super::walk::{LocalTask, SourceEntry};
use super::{skip_check, special, walk};
use crate::attributes::LocalMetadata;
use crate::error::{Failure, describe};
use crate::journal::{self, Journal};
use crate::roots::{Root, create_parents, is_contents, token};
use crate::temporary::Token;

/// Start a source: open the first directory of a tree, or copy another type directly.
pub(crate) fn start<'c>(cx: &LocalContext<'c>, copier: &mut FileCopier<'c>, root: &Root) {
    if let Err(failure) = try_start(cx, copier, root) {
        cx.report_failure(&failure);
    }
}

fn try_start<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    root: &Root,
) -> Result<(), Failure> {
    let at_source = |error: std::io::Error| {
        let advice = "name an existing path";
        Failure::found(
            root.source.clone(),
            "a file or directory",
            describe(&error),
            advice,
        )
    };
    let followed = cx.order.follow || is_contents(&root.source) || !cx.order.recursive;
    let found = if followed {
        fs::metadata(&root.source)
    } else {
        fs::symlink_metadata(&root.source)
    };
    let kind = FileType::from_raw_mode(found.map_err(at_source)?.mode());
    let is_directory = kind == FileType::Directory;
    let content = matches!(kind, FileType::RegularFile | FileType::Symlink);
    if !is_directory && !content && !cx.order.preserve.special {
        // In a tree it would be skipped, but here the user named it.
        return Err(Failure::found(
            root.source.clone(),
            "a file or directory",
            skip_check::special(kind),
            "add --preserve special to recreate it, or read it with another program (`cat`)",
        ));
    }
    if is_directory && !cx.order.recursive {
        let advice = "add --recursive to copy directories";
        return Err(Failure::found(
            root.source.clone(),
            "a file",
            "a directory",
            advice,
        ));
    }
    let parent = parent_dir(&root.destination);
    if root.create_parents && !cx.order.dry_run && !parent.as_os_str().is_empty() {
        create_parents(parent, cx.order.sync).map_err(|error| {
            Failure::found(
                parent.to_owned(),
                "a directory or a free name",
                describe(&error),
                "fix the cause, then run the same command again",
            )
        })?;
    }
    if is_directory {
        start_tree(cx, root)
    } else {
        start_file(cx, copier, root, followed)
    }
}

/// Return the parent directory of a path for messages; empty for the current directory.
fn parent_dir(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Return the parent directory and the name of a path.
fn split(path: &Path, expected: &'static str) -> Result<(PathBuf, CString), Failure> {
    let name = path
        .file_name()
        .and_then(|name| CString::new(name.as_bytes()).ok());
    let name =
        name.ok_or_else(|| Failure::found(path.to_owned(), expected, "none", "add a file name"))?;
    Ok((parent_dir(path).to_owned(), name))
}

fn open_directory(path: &Path, expected: &'static str) -> Result<OwnedFd, Failure> {
    let opened = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    rustix::fs::open(opened, DIRECTORY, Mode::empty()).map_err(|errno| Failure {
        advice: if errno == Errno::NOENT {
            "create it, or add --mkpath"
        } else {
            "choose another path"
        },
        ..Failure::kernel(path.to_owned(), expected, errno)
    })
}

fn methods(cx: &LocalContext<'_>, copy: Option<&OwnedFd>) -> CopyMethods {
    CopyMethods::new(cx.order.method, cx.order.direct, copy)
}

/// Start a single file, in two directories that are not copied.
fn start_file<'c>(
    cx: &LocalContext<'c>,
    copier: &mut FileCopier<'c>,
    root: &Root,
    named: bool,
) -> Result<(), Failure> {
    let (source_directory, source_name) = split(&root.source, "a file name")?;
    let (copy_directory, copy_name) = split(&root.destination, "a file name for the copy")?;
    let source = open_directory(&source_directory, "the directory of a source")?;
    let copy = match open_directory(&copy_directory, "a directory to copy into") {
        Err(_) if cx.order.dry_run && root.create_parents => None,
        other => Some(other?),
    };
    let at_source =
        |errno| Failure::kernel(source_directory.clone(), "a directory to copy from", errno);
    let metadata = LocalMetadata::from(rustix::fs::fstat(&source).map_err(at_source)?);
    let tree = LocalTree::new(
        token(&root.source, &root.destination),
        source_directory.clone(),
        copy_directory,
        methods(cx, copy.as_ref()),
    );
    let dir = Arc::new(Dir {
        tree: Arc::new(tree),
        parent: None,
        name: c"".into(),
        source,
        copy,
        metadata,
        fresh: false,
        ending: DirEnding::Nothing,
    });
    let other = (copy_name != source_name).then(|| copy_name.into_boxed_c_str());
    let entry = SourceEntry {
        name: source_name.into_boxed_c_str(),
        other,
        kind: FileType::Unknown,
        named,
        linked: false,
    };
    let result = special::copy(cx, copier, &dir, &entry);
    Dir::release(cx, dir);
    result
}

fn start_tree(cx: &LocalContext<'_>, root: &Root) -> Result<(), Failure> {
    let at_source = |errno| Failure::kernel(root.source.clone(), "a readable directory", errno);
    let source = rustix::fs::open(&root.source, DIRECTORY, Mode::empty()).map_err(at_source)?;
    let metadata = LocalMetadata::from(rustix::fs::fstat(&source).map_err(at_source)?);
    let token = token(&root.source, &root.destination);
    let OpenedRoot {
        copy,
        fresh,
        mode,
        journal,
    } = open_root_copy(cx, root, token, metadata.mode)?;
    let methods = methods(cx, copy.as_ref());
    let mut tree = LocalTree::new(
        token,
        root.source.clone(),
        root.destination.clone(),
        methods,
    );
    let mut ending = DirEnding::Nothing;
    if let Some(copy) = &copy {
        let at_copy =
            |errno| Failure::kernel(root.destination.clone(), "a directory to copy into", errno);
        let existing = LocalMetadata::from(rustix::fs::fstat(copy).map_err(at_copy)?);
        tree.copy = Some(existing.id);
        if tree.copy == Some(metadata.id) {
            return Err(Failure::found(
                root.destination.clone(),
                "a directory other than the source",
                "the source itself",
                "choose another destination",
            ));
        }
        if !cx.order.dry_run {
            walk::make_writable(copy, &existing).map_err(at_copy)?;
            let journal = match journal {
                Some(journal) => journal,
                None => Journal::open(copy.as_fd(), token, cx.order.sync, fresh)
                    .map_err(|errno| journal::none(root.destination.clone(), errno))?,
            };
            tree.reliable = journal.reliable;
            cx.resuming(root, &journal);
            tree.journal = Mutex::new(Some(journal));
            ending = DirEnding::Finish { mode };
        }
    }
    cx.totals.count(&cx.totals.directories);
    let dir = Dir {
        tree: Arc::new(tree),
        parent: None,
        name: c"".into(),
        source,
        copy,
        metadata,
        fresh,
        ending,
    };
    cx.pool.push([LocalTask::Read(Arc::new(dir))]);
    Ok(())
}

/// Copy of the first directory of a tree.
struct OpenedRoot {
    /// Open directory; none in a dry run that would create it.
    copy: Option<OwnedFd>,
    fresh: bool,
    /// Final mode of the copy.
    mode: u32,
    /// Journal of a new directory. It is created before the directory gets its final name, so the
    /// directory never exists without it.
    journal: Option<Journal>,
}

fn open_root_copy(
    cx: &LocalContext<'_>,
    root: &Root,
    token: Token,
    mode: u32,
) -> Result<OpenedRoot, Failure> {
    if root.as_written && root.destination.is_dir() {
        let copy = open_directory(&root.destination, "a directory to copy into")?;
        let existing = rustix::fs::fstat(&copy).map_err(|errno| {
            Failure::kernel(root.destination.clone(), "a directory to copy into", errno)
        })?;
        return Ok(OpenedRoot {
            copy: Some(copy),
            fresh: false,
            mode: LocalMetadata::from(existing).mode,
            journal: None,
        });
    }
    let (directory, name) = split(&root.destination, "a file name for the copy")?;
    let within = match open_directory(&directory, "a directory to copy into") {
        Err(_) if cx.order.dry_run && root.create_parents => {
            return Ok(OpenedRoot {
                copy: None,
                fresh: true,
                mode: 0,
                journal: None,
            });
        }
        other => other?,
    };
    let at_copy = |errno| {
        Failure::kernel(
            root.destination.clone(),
            "a directory or a free name",
            errno,
        )
    };
    let is_new = rustix::fs::statat(&within, &name, AtFlags::SYMLINK_NOFOLLOW).is_err();
    if is_new && !cx.order.dry_run {
        let made = make_with_journal(cx, &within, &name, token);
        let (copy, journal) = made.map_err(|errno| match errno {
            Errno::WOULDBLOCK => journal::none(root.destination.clone(), errno),
            errno => at_copy(errno),
        })?;
        return Ok(OpenedRoot {
            copy: Some(copy),
            fresh: true,
            mode: mode & 0o777 & !cx.umask,
            journal: Some(journal),
        });
    }
    let (copy, fresh, mode) = walk::open_copy(cx, &within, &name, mode).map_err(at_copy)?;
    Ok(OpenedRoot {
        copy,
        fresh,
        mode,
        journal: None,
    })
}

/// Create the copy of the first directory of a tree. Its journal is locked before other programs
/// see its name.
///
/// # Errors
/// `WOULDBLOCK`: another copy of the same source creates it, or has created it.
fn make_with_journal(
    cx: &LocalContext<'_>,
    within: &OwnedFd,
    name: &CStr,
    token: Token,
) -> Result<(OwnedFd, Journal), Errno> {
    let part = token.tree();
    match rustix::fs::mkdirat(within, &part, FILLING) {
        Err(Errno::EXIST) => {} // a killed copy got no further
        other => other?,
    }
    let flags = DIRECTORY | OFlags::NOFOLLOW;
    let directory = match rustix::fs::openat(within, &part, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Err(Errno::WOULDBLOCK),
        other => other?,
    };
    let journal = Journal::open(directory.as_fd(), token, cx.order.sync, true)?;
    match rustix::fs::renameat(within, &part, within, name) {
        Ok(()) => Ok((directory, journal)),
        // The other copy has renamed this directory, or another one.
        Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {
            journal.discard(directory.as_fd());
            let _ = rustix::fs::unlinkat(within, &part, AtFlags::REMOVEDIR);
            Err(Errno::WOULDBLOCK)
        }
        Err(errno) => Err(errno),
    }
}
