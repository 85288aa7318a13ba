//! Symbolic links: those within a tree stay links, where the other side makes them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use venturi_gridftp::{Command, Entry, Kind, Path as There, Site};

use super::desk::{Desk, Gone};
use super::failures;
use super::names;
use super::shared::Shared;
use crate::error::{Failure, said};
use crate::order::Existing;
use crate::roots;
use crate::temporary::Token;

/// A link at a server that is to be one here.
pub(crate) struct Fetched<'f> {
    /// The first directory of the tree, within which it must lead.
    pub(crate) root: &'f [u8],
    /// The directory that it is in.
    pub(crate) folder: &'f There,
    pub(crate) from: &'f There,
    /// Where it leads, as the server tells it.
    pub(crate) target: Option<&'f [u8]>,
    pub(crate) to: PathBuf,
    pub(crate) token: Token,
}

/// Makes a link here. Where it leads is told from the root on, which is another one here.
pub(crate) fn fetch(shared: &Shared<'_>, link: Fetched<'_>) {
    let Fetched { root, folder, .. } = link;
    let Some(target) = link
        .target
        .and_then(|target| within(root, folder.as_bytes(), target))
    else {
        let reason = "a link out of the tree, or of which the server does not tell where it leads; --follow copies what is there";
        return shared.left_out(&shared.place(link.from), reason);
    };
    let to = link.to;
    let there = fs::symlink_metadata(&to);
    let same = fs::read_link(&to).is_ok_and(|there| there == target);
    if same || (there.is_ok() && shared.order.existing == Existing::Keep) {
        return shared.kept(|| to, 0);
    }
    let in_the_way = |there: fs::Metadata| roots::in_the_way(FileType::from_raw_mode(there.mode()));
    if let Some(found) = there.ok().and_then(in_the_way) {
        return shared.tell(&failures::in_the_way(to, found));
    }
    if !shared.order.dry_run
        && let Err(error) = make(&target, &to, link.token)
    {
        let advice = "mend that and run the same command again";
        let failure = Failure::found(to, "a place for a link", said(&error), advice);
        return shared.tell(&failure);
    }
    told(shared, &to);
}

/// Under a temporary name first: what is there goes in one step with the link's coming, or stays.
fn make(target: &Path, to: &Path, token: Token) -> io::Result<()> {
    let name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let part = token.part(name.as_bytes()).into_bytes();
    let part = to.with_file_name(OsString::from_vec(part));
    let link = || std::os::unix::fs::symlink(target, &part);
    link().or_else(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // One of a copy that was killed.
        fs::remove_file(&part)?;
        link()
    })?;
    fs::rename(&part, to).inspect_err(|_| drop(fs::remove_file(&part)))
}

fn told(shared: &Shared<'_>, copy: &Path) {
    shared.totals.count(&shared.totals.links);
    if shared.report.tells_files() {
        shared.report.file(copy, 0, "link", None);
    }
}

/// A link here that is to be one at the server.
pub(crate) struct Stored {
    pub(crate) from: PathBuf,
    pub(crate) to: There,
    pub(crate) token: Token,
}

/// Makes a link at the server, if it does that. Servers of the Globus toolkit make links to what is there alone, and have them lead from
/// the root on.
///
/// # Errors
/// If the session is lost.
pub(crate) fn store(shared: &Shared<'_>, desk: &Desk, link: &Stored) -> Result<(), Gone> {
    let target = fs::read_link(&link.from).ok();
    let target = target.and_then(|target| There::new(target.as_os_str().as_bytes()).ok());
    let target = target.and_then(|target| target.normalised(&link.to.split().0).ok());
    let there = desk.see(&link.to)?;
    let leads = there.as_ref().and_then(|there| there.target.as_deref());
    let same = leads.is_some() && leads == target.as_ref().map(There::as_bytes);
    if same || (there.is_some() && shared.order.existing == Existing::Keep) {
        shared.kept(|| shared.place(&link.to), 0);
        return Ok(());
    }
    if leads.is_none() && there.as_ref().is_some_and(is_directory) {
        shared.tell(&failures::in_the_way(shared.place(&link.to), "a directory"));
        return Ok(());
    }
    let made = match target {
        Some(target) => make_there(desk, target, link, there.is_some())?,
        None => false,
    };
    if made {
        told(shared, &shared.place(&link.to));
    } else {
        let reason = "a link, which the server does not make; --follow copies what it leads to";
        shared.left_out(&link.from, reason);
    }
    Ok(())
}

fn is_directory(entry: &Entry) -> bool {
    matches!(entry.kind, Some(Kind::Directory | Kind::Current))
}

/// Whether the server makes a link. What is there is replaced by it in one step, or stays.
fn make_there(desk: &Desk, target: There, link: &Stored, replaces: bool) -> Result<bool, Gone> {
    let Ok(part) = names::part(&link.to, link.token) else {
        return Ok(false);
    };
    let to = if replaces { &part } else { &link.to };
    if replaces {
        // One of a copy that was killed; else there is none, and that is well, too.
        desk.call(&Command::Dele(part.clone()))?;
    }
    let first = Command::Site(Site::SymlinkFrom(target));
    let second = Command::Site(Site::SymlinkTo(to.clone()));
    let linked = desk.call(&first)?.is_intermediate() && desk.call(&second)?.is_success();
    if !linked || !replaces {
        return Ok(linked);
    }
    let named = desk.call(&Command::Rnfr(part.clone()))?.is_intermediate()
        && desk.call(&Command::Rnto(link.to.clone()))?.is_success();
    if !named {
        desk.call(&Command::Dele(part))?;
    }
    Ok(named)
}

/// Where a link in `folder` leads, as seen from there; none if that is not below `root`. A target that is relative is taken as it is if it stays
/// below.
fn within(root: &[u8], folder: &[u8], target: &[u8]) -> Option<PathBuf> {
    let folder = There::new(folder).ok()?;
    let absolute = There::new(target).ok()?.normalised(&folder).ok()?;
    let root = There::new(root).ok()?.normalised(&There::root()).ok()?;
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    };
    let (root, at, goal) = (
        names(root.as_bytes()),
        names(folder.as_bytes()),
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
    fn a_link_within_a_tree_leads_to_the_same_place_of_the_copy() {
        let check = |root: &str, folder: &str, target: &str, expected: Option<&str>| {
            let found = within(root.as_bytes(), folder.as_bytes(), target.as_bytes());
            assert_eq!(found, expected.map(PathBuf::from), "{folder} {target}");
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
