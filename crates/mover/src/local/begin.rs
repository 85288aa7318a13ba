//! How a source is begun: a tree with its first directory and its journal, anything else at once.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::context::Context;
use super::directory::{Dir, Ending, FILLING, FOLDER, Tree};
use super::lane::{Lane, Ways};
use super::walk::{Entry, Task};
use super::{judge, thing, walk};
use crate::attributes::Facts;
use crate::error::{Failure, said};
use crate::journal::{self, Journal};
use crate::roots::{Root, is_contents, make_way, token};
use crate::temporary::Token;

/// Begins a source: a tree with its first directory, anything else at once.
pub(crate) fn begin<'c>(cx: &Context<'c>, lane: &mut Lane<'c>, root: &Root) {
    if let Err(failure) = try_begin(cx, lane, root) {
        cx.tell(&failure);
    }
}

fn try_begin<'c>(cx: &Context<'c>, lane: &mut Lane<'c>, root: &Root) -> Result<(), Failure> {
    let at_source = |error: std::io::Error| {
        let advice = "name one that is there";
        Failure::found(
            root.source.clone(),
            "a file or directory",
            said(&error),
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
        // In a tree it would be left out; nobody names one for that.
        return Err(Failure::found(
            root.source.clone(),
            "a file or directory",
            judge::special(kind),
            "say --preserve special to make one like it, or read it by another program (`cat`)",
        ));
    }
    if is_directory && !cx.order.recursive {
        let advice = "say --recursive to copy directories";
        return Err(Failure::found(
            root.source.clone(),
            "a file",
            "a directory",
            advice,
        ));
    }
    let parent = parent_of(&root.destination);
    if root.make_way && !cx.order.dry_run && !parent.as_os_str().is_empty() {
        make_way(parent, cx.order.sync).map_err(|error| {
            Failure::found(
                parent.to_owned(),
                "a directory, or a place for one",
                said(&error),
                "mend that and run the same command again",
            )
        })?;
    }
    if is_directory {
        begin_tree(cx, root)
    } else {
        begin_file(cx, lane, root, followed)
    }
}

/// The directory that a path is in, as messages have it; empty for the one we are in.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The directory that a path is in, and its name there.
fn split(path: &Path, expected: &'static str) -> Result<(PathBuf, CString), Failure> {
    let name = path
        .file_name()
        .and_then(|name| CString::new(name.as_bytes()).ok());
    let name = name.ok_or_else(|| Failure::found(path.to_owned(), expected, "none", "name one"))?;
    Ok((parent_of(path).to_owned(), name))
}

fn open_directory(path: &Path, expected: &'static str) -> Result<OwnedFd, Failure> {
    let opened = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    rustix::fs::open(opened, FOLDER, Mode::empty()).map_err(|errno| Failure {
        advice: if errno == Errno::NOENT {
            "make it, or say --mkpath"
        } else {
            "name another"
        },
        ..Failure::kernel(path.to_owned(), expected, errno)
    })
}

fn ways(cx: &Context<'_>, copy: Option<&OwnedFd>) -> Ways {
    Ways::new(cx.order.method, cx.order.direct, copy)
}

/// A single file: it is in two directories that are not copied.
fn begin_file<'c>(
    cx: &Context<'c>,
    lane: &mut Lane<'c>,
    root: &Root,
    named: bool,
) -> Result<(), Failure> {
    let (source_folder, source_name) = split(&root.source, "the name of a file")?;
    let (copy_folder, copy_name) = split(&root.destination, "the name of a copy")?;
    let source = open_directory(&source_folder, "the directory of a source")?;
    let copy = match open_directory(&copy_folder, "a directory to copy into") {
        Err(_) if cx.order.dry_run && root.make_way => None,
        other => Some(other?),
    };
    let at_source =
        |errno| Failure::kernel(source_folder.clone(), "a directory to copy from", errno);
    let facts = Facts::from(rustix::fs::fstat(&source).map_err(at_source)?);
    let tree = Tree::new(
        token(&root.source, &root.destination),
        source_folder.clone(),
        copy_folder,
        ways(cx, copy.as_ref()),
    );
    let dir = Arc::new(Dir {
        tree: Arc::new(tree),
        parent: None,
        name: c"".into(),
        source,
        copy,
        facts,
        fresh: false,
        ending: Ending::Nothing,
    });
    let other = (copy_name != source_name).then(|| copy_name.into_boxed_c_str());
    let entry = Entry {
        name: source_name.into_boxed_c_str(),
        other,
        kind: FileType::Unknown,
        named,
        linked: false,
    };
    let result = thing::copy(cx, lane, &dir, &entry);
    Dir::release(cx, dir);
    result
}

fn begin_tree(cx: &Context<'_>, root: &Root) -> Result<(), Failure> {
    let at_source =
        |errno| Failure::kernel(root.source.clone(), "a directory that can be read", errno);
    let source = rustix::fs::open(&root.source, FOLDER, Mode::empty()).map_err(at_source)?;
    let facts = Facts::from(rustix::fs::fstat(&source).map_err(at_source)?);
    let token = token(&root.source, &root.destination);
    let Opened {
        copy,
        fresh,
        mode,
        journal,
    } = copy_of_root(cx, root, token, facts.mode)?;
    let ways = ways(cx, copy.as_ref());
    let mut tree = Tree::new(token, root.source.clone(), root.destination.clone(), ways);
    let mut ending = Ending::Nothing;
    if let Some(copy) = &copy {
        let at_copy =
            |errno| Failure::kernel(root.destination.clone(), "a directory to copy into", errno);
        let there = Facts::from(rustix::fs::fstat(copy).map_err(at_copy)?);
        tree.copy = Some(there.id);
        if tree.copy == Some(facts.id) {
            return Err(Failure::found(
                root.destination.clone(),
                "another directory than the source",
                "the source itself",
                "name another destination",
            ));
        }
        if !cx.order.dry_run {
            walk::open_up(copy, &there).map_err(at_copy)?;
            let journal = match journal {
                Some(journal) => journal,
                None => Journal::open(copy.as_fd(), token, cx.order.sync, fresh)
                    .map_err(|errno| journal::none(root.destination.clone(), errno))?,
            };
            tree.reliable = journal.reliable;
            cx.going_on(root, &journal);
            tree.journal = Mutex::new(Some(journal));
            ending = Ending::Finish { mode };
        }
    }
    cx.totals.count(&cx.totals.directories);
    let dir = Dir {
        tree: Arc::new(tree),
        parent: None,
        name: c"".into(),
        source,
        copy,
        facts,
        fresh,
        ending,
    };
    cx.pool.push([Task::Read(Arc::new(dir))]);
    Ok(())
}

/// The copy of a tree's first directory.
struct Opened {
    /// None in a dry run that would make it.
    copy: Option<OwnedFd>,
    fresh: bool,
    /// That it would have without ours.
    mode: u32,
    /// That of a new one, which has it before its name, so that no moment is without either.
    journal: Option<Journal>,
}

fn copy_of_root(cx: &Context<'_>, root: &Root, token: Token, mode: u32) -> Result<Opened, Failure> {
    if root.as_written && root.destination.is_dir() {
        let copy = open_directory(&root.destination, "a directory to copy into")?;
        let there = rustix::fs::fstat(&copy).map_err(|errno| {
            Failure::kernel(root.destination.clone(), "a directory to copy into", errno)
        })?;
        return Ok(Opened {
            copy: Some(copy),
            fresh: false,
            mode: Facts::from(there).mode,
            journal: None,
        });
    }
    let (folder, name) = split(&root.destination, "the name of a copy")?;
    let within = match open_directory(&folder, "a directory to copy into") {
        Err(_) if cx.order.dry_run && root.make_way => {
            return Ok(Opened {
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
            "a directory, or a place for one",
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
        return Ok(Opened {
            copy: Some(copy),
            fresh: true,
            mode: mode & 0o777 & !cx.umask,
            journal: Some(journal),
        });
    }
    let (copy, fresh, mode) = walk::copy_of(cx, &within, &name, mode).map_err(at_copy)?;
    Ok(Opened {
        copy,
        fresh,
        mode,
        journal: None,
    })
}

/// Makes the copy of a tree's first directory with its journal in it, which is locked before anybody sees its name.
///
/// # Errors
/// `WOULDBLOCK`: another copy of the same is about to do so, or has.
fn make_with_journal(
    cx: &Context<'_>,
    within: &OwnedFd,
    name: &CStr,
    token: Token,
) -> Result<(OwnedFd, Journal), Errno> {
    let part = token.tree();
    match rustix::fs::mkdirat(within, &part, FILLING) {
        Err(Errno::EXIST) => {} // a killed copy got no further
        other => other?,
    }
    let flags = FOLDER | OFlags::NOFOLLOW;
    let folder = match rustix::fs::openat(within, &part, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Err(Errno::WOULDBLOCK),
        other => other?,
    };
    let journal = Journal::open(folder.as_fd(), token, cx.order.sync, true)?;
    match rustix::fs::renameat(within, &part, within, name) {
        Ok(()) => Ok((folder, journal)),
        // It has given this directory its name, or another one.
        Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {
            journal.give_up(folder.as_fd());
            let _ = rustix::fs::unlinkat(within, &part, AtFlags::REMOVEDIR);
            Err(Errno::WOULDBLOCK)
        }
        Err(errno) => Err(errno),
    }
}
