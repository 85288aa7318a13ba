//! Symbolic links: links within a tree stay links if the destination supports it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use venturi_gridftp::{EntryKind, FtpCommand, ListEntry, Path as RemotePath, SiteCommand};

use super::failures;
use super::names;
use super::session_handle::{SessionClosed, SessionHandle};
use super::shared::Shared;
use crate::error::{Failure, describe};
use crate::options::Existing;
use crate::roots;
use crate::temporary::Token;

/// Remote link that is created locally.
pub(crate) struct FetchedLink<'f> {
    /// Root directory of the tree, which the target must not leave.
    pub(crate) root: &'f [u8],
    /// Directory that contains the link.
    pub(crate) directory: &'f RemotePath,
    pub(crate) from: &'f RemotePath,
    /// Target as reported by the server.
    pub(crate) target: Option<&'f [u8]>,
    pub(crate) to: PathBuf,
    pub(crate) token: Token,
}

/// Creates a local link. The server reports an absolute target, which must be mapped to the local tree.
pub(crate) fn fetch(shared: &Shared<'_>, link: FetchedLink<'_>) {
    let FetchedLink {
        root, directory, ..
    } = link;
    let Some(target) = link
        .target
        .and_then(|target| within(root, directory.as_bytes(), target))
    else {
        let reason = "a symbolic link out of the tree, or with a target that the server does not report; --follow copies the target";
        return shared.left_out(&shared.display_url(link.from), reason);
    };
    let to = link.to;
    let existing = fs::symlink_metadata(&to);
    let same = fs::read_link(&to).is_ok_and(|existing| existing == target);
    if same || (existing.is_ok() && shared.options.existing == Existing::Keep) {
        return shared.kept(|| to, 0);
    }
    let obstacle_of =
        |existing: fs::Metadata| roots::obstacle(FileType::from_raw_mode(existing.mode()));
    if let Some(found) = existing.ok().and_then(obstacle_of) {
        return shared.report_failure(&failures::obstacle(to, found));
    }
    if !shared.options.dry_run
        && let Err(error) = make(&target, &to, link.token)
    {
        let advice = "fix the cause, then run the same command again";
        let failure = Failure::found(
            to,
            "permission to create a symbolic link",
            describe(&error),
            advice,
        );
        return shared.report_failure(&failure);
    }
    report_copied(shared, &to);
}

/// Creates the link under a temporary name and renames it: the existing file is replaced atomically, or stays.
fn make(target: &Path, to: &Path, token: Token) -> io::Result<()> {
    let name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let part = token.part(name.as_bytes()).into_bytes();
    let part = to.with_file_name(OsString::from_vec(part));
    let link = || std::os::unix::fs::symlink(target, &part);
    link().or_else(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // Left by a copy that was killed.
        fs::remove_file(&part)?;
        link()
    })?;
    fs::rename(&part, to).inspect_err(|_| drop(fs::remove_file(&part)))
}

fn report_copied(shared: &Shared<'_>, copy: &Path) {
    shared.totals.count(&shared.totals.links);
    if shared.report.logs_files() {
        shared.report.file(copy, 0, "link", None);
    }
}

/// Local link that is created at the server.
pub(crate) struct StoredLink {
    pub(crate) from: PathBuf,
    pub(crate) to: RemotePath,
    pub(crate) token: Token,
}

/// Creates a remote link, if supported. Globus servers create links only to existing files, with absolute
/// targets.
///
/// # Errors
/// The session is lost.
pub(crate) fn store(
    shared: &Shared<'_>,
    handle: &SessionHandle,
    link: &StoredLink,
) -> Result<(), SessionClosed> {
    let target = fs::read_link(&link.from).ok();
    let target = target.and_then(|target| RemotePath::new(target.as_os_str().as_bytes()).ok());
    let target = target.and_then(|target| target.normalised(&link.to.split().0).ok());
    let existing = handle.stat(&link.to)?;
    let leads = existing
        .as_ref()
        .and_then(|existing| existing.target.as_deref());
    let same = leads.is_some() && leads == target.as_ref().map(RemotePath::as_bytes);
    if same || (existing.is_some() && shared.options.existing == Existing::Keep) {
        shared.kept(|| shared.display_url(&link.to), 0);
        return Ok(());
    }
    if leads.is_none() && existing.as_ref().is_some_and(is_directory) {
        shared.report_failure(&failures::obstacle(
            shared.display_url(&link.to),
            "a directory",
        ));
        return Ok(());
    }
    let created = match target {
        Some(target) => create_remote(handle, target, link, existing.is_some())?,
        None => false,
    };
    if created {
        report_copied(shared, &shared.display_url(&link.to));
    } else {
        let reason = "a symbolic link, which the server cannot create; --follow copies the target";
        shared.left_out(&link.from, reason);
    }
    Ok(())
}

fn is_directory(entry: &ListEntry) -> bool {
    matches!(entry.kind, Some(EntryKind::Directory | EntryKind::Current))
}

/// Returns true if the server creates the link. An existing file is replaced atomically, or stays.
fn create_remote(
    handle: &SessionHandle,
    target: RemotePath,
    link: &StoredLink,
    replaces: bool,
) -> Result<bool, SessionClosed> {
    let Ok(part) = names::part(&link.to, link.token) else {
        return Ok(false);
    };
    let to = if replaces { &part } else { &link.to };
    if replaces {
        // Left by a copy that was killed; it is no error if it does not exist.
        handle.call(&FtpCommand::Dele(part.clone()))?;
    }
    let first = FtpCommand::Site(SiteCommand::SymlinkFrom(target));
    let second = FtpCommand::Site(SiteCommand::SymlinkTo(to.clone()));
    let linked = handle.call(&first)?.is_intermediate() && handle.call(&second)?.is_success();
    if !linked || !replaces {
        return Ok(linked);
    }
    let named = handle
        .call(&FtpCommand::Rnfr(part.clone()))?
        .is_intermediate()
        && handle
            .call(&FtpCommand::Rnto(link.to.clone()))?
            .is_success();
    if !named {
        handle.call(&FtpCommand::Dele(part))?;
    }
    Ok(named)
}

/// Returns the target relative to `directory`; none if it leaves `root`. A relative target is kept if it stays
/// below.
fn within(root: &[u8], directory: &[u8], target: &[u8]) -> Option<PathBuf> {
    let directory = RemotePath::new(directory).ok()?;
    let absolute = RemotePath::new(target).ok()?.normalised(&directory).ok()?;
    let root = RemotePath::new(root)
        .ok()?
        .normalised(&RemotePath::root())
        .ok()?;
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    };
    let (root, at, goal) = (
        names(root.as_bytes()),
        names(directory.as_bytes()),
        names(absolute.as_bytes()),
    );
    if !goal.starts_with(&root) {
        return None;
    }
    let same = at.iter().zip(&goal).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(OsString::from(".."), at.len() - same);
    let down = goal[same..].iter().cloned().map(OsString::from_vec);
    let path: PathBuf = up.chain(down).collect();
    Some(if path.as_os_str().is_empty() {
        ".".into()
    } else {
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_within_a_tree_points_to_the_same_path_of_the_copy() {
        let check = |root: &str, directory: &str, target: &str, expected: Option<&str>| {
            let found = within(root.as_bytes(), directory.as_bytes(), target.as_bytes());
            assert_eq!(found, expected.map(PathBuf::from), "{directory} {target}");
        };
        check("/r", "/r/a", "/r/b/c", Some("../b/c"));
        check("/r", "/r/a", "/r/a/c", Some("c"));
        check("/r", "/r/a/b", "/r", Some("../.."));
        check("/r", "/r", "/r", Some("."));
        check("/r", "/r/a", "../b", Some("../b"));
        check("/r", "/r/a", "../../etc/passwd", None);
        check("/r", "/r/a", "/etc/passwd", None);
        check("/r", "/r/a", "/root/b", None);
        check("/", "/a", "/etc", Some("../etc"));
    }
}
