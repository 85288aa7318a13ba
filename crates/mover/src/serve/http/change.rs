//! MKCOL, DELETE, MOVE, and COPY within the server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::header::HeaderName;
use http::{HeaderValue, StatusCode, Uri};
use nix::unistd::AccessFlags;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::answer::{Answer, Asked, Refusal, empty, in_turn, is_here, path_of, patient};
use super::body::Reply;
use super::conditions::Conditions;
use super::issuers::Deed;
use super::list::{DEPTH, question};
use super::third::CREDENTIAL;
use super::write::{unreplaced, within};
use crate::http::marker;
use crate::http::outgoing::Outgoing;
use crate::local::lane::{CACHED_BLOCK, Fault, Lane, Pair, Ways};
use crate::order::Method;
use crate::serve::root::listing::Listed;
use crate::serve::root::upload::{Begin, Upload};
use crate::serve::root::{Facts, Opened, Root};
use crate::stop::Stop;
use crate::temporary::Token;

/// RFC 4918, section 10.3.
pub(crate) const DESTINATION: HeaderName = HeaderName::from_static("destination");
/// RFC 4918, section 10.6.
pub(crate) const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");
/// Things that one request may remove or copy: more are left to several.
const MOST_THINGS: usize = 1_000_000;

/// How much of a directory is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Zero,
    Infinity,
    Other,
}

impl Depth {
    fn of(asked: &Asked) -> Self {
        match asked.fields.get(DEPTH).map(HeaderValue::as_bytes) {
            None => Self::Infinity,
            Some(text) if text.eq_ignore_ascii_case(b"infinity") => Self::Infinity,
            Some(b"0") => Self::Zero,
            Some(_) => Self::Other,
        }
    }

    /// Sees that all of what is at a path is meant, if that is a directory (RFC 4918, sections 9.6.1, 9.8.3 and 9.9.2).
    fn whole(self, root: &Root, path: &[u8]) -> Result<(), Refusal> {
        if self == Self::Infinity || !root.stat(path).is_ok_and(|facts| facts.is_directory()) {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "of a directory, Depth: infinity is needed; or, for a COPY without what is in it, 0",
        ))
    }
}

/// MKCOL.
pub(crate) async fn make(mut asked: Asked) -> Answer {
    asked.may_write()?;
    if !question(&mut asked).await?.is_empty() {
        // RFC 4918, section 9.3.
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a directory is made without a body",
        ));
    }
    let conditions = Conditions::of(&asked)?;
    let (host, path) = (Arc::clone(&asked.connection.host), asked.path.clone());
    patient(&asked.active, move || {
        if host.root.stat(&path).is_err() {
            conditions.hold(&host.root)?;
        }
        match host.root.make_directory(&path) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "it is there already",
            )),
            // The root itself.
            Err(Errno::ACCESS) if path.iter().all(|byte| *byte == b'/') => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "it is there already",
            )),
            Err(errno) => Err(within(errno)),
        }
    })
    .await?;
    Ok(empty(StatusCode::CREATED))
}

/// DELETE.
pub(crate) async fn delete(asked: Asked) -> Answer {
    asked.may_write()?;
    let conditions = Conditions::of(&asked)?;
    let (host, path) = (Arc::clone(&asked.connection.host), asked.path.clone());
    let depth = Depth::of(&asked);
    patient(&asked.active, move || {
        depth.whole(&host.root, &path)?;
        conditions.hold_of_source(&host.root)?;
        remove(&host.root, &path)
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Removes a thing, and all that is in it.
fn remove(root: &Root, path: &[u8]) -> Result<(), Refusal> {
    match root.remove_file(path) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    removable(root, path)?;
    clear(root, path)
}

/// Sees that a directory can be removed with all in it, as far as that is known before any of it is: nothing in it is being written, and what is in its
/// directories may be removed from them.
fn removable(root: &Root, path: &[u8]) -> Result<(), Refusal> {
    let look = |folder: &[u8]| {
        root.at_rest(folder)?;
        let opened = root.read(folder)?;
        let how = AccessFlags::W_OK | AccessFlags::X_OK;
        let may = nix::unistd::faccessat(&opened.file, c".", how, nix::fcntl::AtFlags::AT_EACCESS);
        let mut first = Vec::new();
        if may.is_err() {
            root.list(folder, false)?.next(root, 1, &mut first)?;
        }
        if first.is_empty() {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&folder[path.len()..]);
        let text = format!("what is in it in .{shown}/ may not be removed: all stays");
        Err(Refusal::new(StatusCode::FORBIDDEN, text))
    };
    look(path)?;
    each(root, path, |below, entered| match entered {
        true => look(below),
        false => Ok(()),
    })
}

/// Removes a directory, and all that is in it.
fn clear(root: &Root, path: &[u8]) -> Result<(), Refusal> {
    let mut folders = Vec::new();
    each(root, path, |below, _| {
        // A link to a directory is a link.
        match root.remove_file(below) {
            Err(Errno::ISDIR) => folders.push(below.to_vec()),
            other => other?,
        }
        if folders.len() > MOST_THINGS {
            return Err(Refusal::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "too many directories for one request",
            ));
        }
        Ok(())
    })?;
    // What is deeper has a longer path.
    folders.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
    for folder in folders {
        root.remove_directory(&folder)?;
    }
    Ok(root.remove_directory(path)?)
}

/// Has something done with all that is below a directory, by its path and whether it is a directory that is looked into.
fn each(
    root: &Root,
    path: &[u8],
    mut work: impl FnMut(&[u8], bool) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut listing = root.list(path, true)?;
    let mut found = Vec::new();
    loop {
        let more = listing.next(root, 1024, &mut found)?;
        for entry in found.drain(..) {
            work(&[path, b"/", &entry.name].concat(), entry.entered)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Where a thing is to go, of this server.
fn destination(asked: &Asked) -> Result<Vec<u8>, Refusal> {
    let bad = || {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "a Destination of this server is needed",
        )
    };
    let told = asked.field(&DESTINATION).ok_or_else(bad)?;
    if told.contains('#') {
        // RFC 4918, section 8.3, has none. What is before it is another place, which would be replaced.
        let text = "a Destination without a fragment is needed: # in a name is written %23";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    }
    let uri: Uri = told.parse().map_err(|_| bad())?;
    if !is_here(asked, &uri) {
        return Err(Refusal::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is another server",
        ));
    }
    path_of(uri.path()).ok_or_else(bad)
}

/// Whether what is at a path may be replaced: it is not asked for, or a token does not allow it.
pub(super) fn may_replace(asked: &Asked, path: &[u8]) -> bool {
    asked.field(&OVERWRITE) != Some("F") && asked.may(Deed::Modify, path).is_ok()
}

/// MOVE.
pub(crate) async fn rename(asked: Asked) -> Answer {
    asked.may_write()?;
    let (host, from, to) = (
        Arc::clone(&asked.connection.host),
        asked.path.clone(),
        destination(&asked)?,
    );
    asked.may(Deed::Modify, &to)?;
    let (conditions, may_replace) = (Conditions::of(&asked)?, may_replace(&asked, &to));
    let depth = Depth::of(&asked);
    let status = patient(&asked.active, move || {
        let there = see(&host.root, &from, &to, may_replace)?;
        depth.whole(&host.root, &from)?;
        conditions.hold(&host.root)?;
        let is_directory = |path| host.root.stat(path).is_ok_and(|facts| facts.is_directory());
        if there && (is_directory(&to) || is_directory(&from)) {
            replace(&host.root, &from, &to)?;
        } else {
            let renamed = host.root.rename(&from, &to, may_replace);
            renamed.map_err(|errno| match errno {
                Errno::EXIST => unreplaced(errno),
                errno => moved(errno),
            })?;
        }
        Ok(if there {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::CREATED
        })
    })
    .await?;
    Ok(empty(status))
}

/// Why a thing does not get another name.
fn moved(errno: Errno) -> Refusal {
    match errno {
        // RFC 4918, section 9.9.4: another part of the names of a server.
        Errno::XDEV => Refusal::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is in another file system of this server: COPY it there, and DELETE it here",
        ),
        errno => within(errno),
    }
}

/// Puts a thing in the place of another, of which one is a directory; that is removed then. It does not come back: what is left of it is told.
fn replace(root: &Root, from: &[u8], to: &[u8]) -> Result<(), Refusal> {
    if root.stat(to)?.is_directory() && !is_link(root, to) {
        removable(root, to)?;
    }
    let old = beside(from, to);
    let shown = String::from_utf8_lossy(&old);
    swap(root, from, to, &old).map_err(|errno| match errno {
        Errno::EXIST => {
            let text =
                format!("what was here before an earlier request is there still: DELETE {shown}");
            Refusal::new(StatusCode::LOCKED, text)
        }
        errno => moved(errno),
    })?;
    remove(root, &old).map_err(|refusal| {
        let reason = refusal.text;
        let text = format!(
            "it is there; of what was there before, something is left in {shown}: {reason}"
        );
        Refusal::new(refusal.status, text)
    })
}

/// Whether what is at a path is a link, as far as its directory may be read.
fn is_link(root: &Root, path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (folder, name) = path.split_at(cut);
    let name = name.strip_prefix(b"/").unwrap_or(name);
    let found = root
        .read(folder)
        .and_then(|folder| rustix::fs::statat(&folder.file, name, AtFlags::SYMLINK_NOFOLLOW));
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

/// Gives a thing the name of another, and that a third name, which nothing has. At once, where the file system can.
fn swap(root: &Root, new: &[u8], place: &[u8], away: &[u8]) -> Result<(), Errno> {
    match root.exchange(new, place) {
        // What fails is told; back it goes as far as it can.
        Ok(()) => root.rename(new, away, false).inspect_err(|_| {
            let _ = root.exchange(new, place);
        }),
        Err(Errno::INVAL | Errno::NOSYS) => {
            root.rename(place, away, false)?;
            root.rename(new, place, false).inspect_err(|_| {
                let _ = root.rename(away, place, false);
            })
        }
        Err(errno) => Err(errno),
    }
}

/// Whether something is at the destination, which may be replaced.
fn see(root: &Root, from: &[u8], to: &[u8], may_replace: bool) -> Result<bool, Refusal> {
    let source = root.stat(from)?;
    let there = root.stat(to).ok();
    // RFC 4918, section 9.9.4: the source itself, or in it; or it is what the source is in, and would go before it is moved.
    let same = there.is_some_and(|there| there.identity == source.identity);
    let around = match &there {
        Some(there) => root.is_in(from, there)?,
        None => false,
    };
    if same || around || root.is_in(to, &source).map_err(within)? {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "the Destination is the source, in it, or what it is in",
        ));
    }
    if there.is_some() && !may_replace {
        return Err(unreplaced(Errno::EXIST));
    }
    Ok(there.is_some())
}

/// COPY within the server.
pub(crate) async fn copy(asked: Asked) -> Answer {
    asked.may_write()?;
    let (host, from, to) = (
        Arc::clone(&asked.connection.host),
        asked.path.clone(),
        destination(&asked)?,
    );
    asked.may(Deed::Create, &to)?;
    let (may_replace, sync) = (may_replace(&asked, &to), host.settings.sync);
    let depth = Depth::of(&asked);
    let conditions = Conditions::of(&asked)?;
    let status = in_turn(&asked, move || {
        let there = see(&host.root, &from, &to, may_replace)?;
        // Before it begins, and once more before anything is replaced.
        let hold = || conditions.hold(&host.root);
        hold()?;
        let alone = depth == Depth::Zero;
        if !alone {
            depth.whole(&host.root, &from)?;
        }
        let is_directory = |path| host.root.stat(path).is_ok_and(|facts| facts.is_directory());
        let whole = |aside: &[u8]| {
            let done = hold().and_then(|()| replace(&host.root, aside, &to));
            done.inspect_err(|_| {
                let _ = remove(&host.root, aside);
            })
        };
        let source = host.root.stat(&from)?;
        if !source.is_directory() && there && is_directory(&to) {
            let aside = beside(&from, &to);
            let upload = copied(&host.root, &ways(), host.root.read(&from)?, &aside)?;
            // A file of that name is what a copy that was cut off has left.
            put_in_place(upload, sync, true)?;
            whole(&aside)?;
        } else if !source.is_directory() {
            let upload = copied(&host.root, &ways(), host.root.read(&from)?, &to)?;
            hold()?;
            put_in_place(upload, sync, may_replace)?;
        } else if there {
            whole(&copy_aside(&host.root, &from, &to, alone, sync)?)?;
        } else {
            host.root.make_directory(&to).map_err(within)?;
            if !alone {
                tree(&host.root, &from, &to, sync)?;
            }
        }
        Ok(if there {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::CREATED
        })
    })
    .await;
    let mut response = empty(status?);
    if asked.fields.contains_key(CREDENTIAL) {
        // Asked for as one between servers, which ends with a line: `gfal-copy` waits for it.
        *response.status_mut() = StatusCode::CREATED;
        *response.body_mut() = Reply::Plain(Outgoing::Whole(marker::SUCCESS.into()));
    }
    Ok(response)
}

/// Copies a directory beside what is there, which it is to replace when it is whole: what is there stays if it cannot be.
fn copy_aside(
    root: &Root,
    from: &[u8],
    to: &[u8],
    alone: bool,
    sync: bool,
) -> Result<Vec<u8>, Refusal> {
    let aside = beside(from, to);
    root.make_directory(&aside).map_err(|errno| match errno {
        Errno::EXIST => {
            let shown = String::from_utf8_lossy(&aside);
            let text = format!("such a copy goes on, or was cut off: then DELETE {shown}");
            Refusal::new(StatusCode::LOCKED, text)
        }
        errno => within(errno),
    })?;
    if !alone && let Err(refusal) = tree(root, from, &aside, sync) {
        // What stays is told to who asks again.
        let _ = remove(root, &aside);
        return Err(refusal);
    }
    Ok(aside)
}

/// Where a copy is until it is whole: in the directory that it goes to.
fn beside(from: &[u8], to: &[u8]) -> Vec<u8> {
    let place = |path| Path::new(OsStr::from_bytes(path));
    let name = Token::new(place(from), place(to)).tree();
    let to = to.strip_suffix(b"/").unwrap_or(to);
    let cut = to.iter().rposition(|byte| *byte == b'/');
    [&to[..cut.map_or(0, |at| at + 1)], name.to_bytes()].concat()
}

/// Copies what is in a directory. What cannot be copied is told when all else is there.
fn tree(root: &Root, from: &[u8], to: &[u8], sync: bool) -> Result<(), Refusal> {
    let mut listing = root.list(from, true)?;
    let ways = ways();
    let mut found = Vec::new();
    let mut count = 0;
    let mut left_out: Option<(usize, Vec<u8>)> = None;
    loop {
        let more = listing.next(root, 1024, &mut found)?;
        for entry in found.drain(..) {
            count += 1;
            if count > MOST_THINGS {
                return Err(Refusal::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "too much for one request",
                ));
            }
            let (old, new) = (
                [from, b"/", &entry.name].concat(),
                [to, b"/", &entry.name].concat(),
            );
            if entry.entered {
                match root.make_directory(&new) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
            } else if let Some(source) = readable(root, &entry, &old)? {
                put_in_place(copied(root, &ways, source, &new)?, sync, true)?;
            } else {
                left_out.get_or_insert((0, entry.name)).0 += 1;
            }
        }
        if !more {
            break;
        }
    }
    left_out.map_or(Ok(()), |(number, first)| Err(incomplete(number, &first)))
}

fn incomplete(number: usize, first: &[u8]) -> Refusal {
    let first = String::from_utf8_lossy(first);
    let why = "a link to a directory, no file, or not readable";
    Refusal::new(
        StatusCode::CONFLICT,
        format!("{number} things were not copied, such as {first}: {why}"),
    )
}

/// Opens a file of a tree; none, if it is none or may not be read.
fn readable(root: &Root, entry: &Listed, path: &[u8]) -> Result<Option<Opened>, Errno> {
    if !entry.facts.is_file() {
        return Ok(None);
    }
    match root.read(path) {
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        opened => opened.map(Some),
    }
}

/// How files are copied: what the kernel cannot do for one, between two file systems or at all, it is not asked for the next.
fn ways() -> Ways {
    Ways::new(Method::Auto, false, None)
}

/// A copy of a file, which has no name yet. What is a hole stays one.
fn copied(root: &Root, ways: &Ways, source: Opened, to: &[u8]) -> Result<Upload, Refusal> {
    let upload = root.upload(to, Begin::New).map_err(within)?;
    let pair = Pair {
        source: source.file,
        sink: upload.share()?,
        size: source.facts.bytes,
        dense: false,
        direct: false,
        shared: false,
    };
    if !ways.clone(&pair) {
        let (stop, moved) = (Stop::default(), AtomicU64::new(0));
        Lane::new(CACHED_BLOCK, &stop, &moved).copy(ways, &pair, 0..pair.size)?;
        // It may end in a hole.
        rustix::fs::ftruncate(&pair.sink, pair.size)?;
        // What was cut off meanwhile looks like one.
        if Facts::of(&rustix::fs::fstat(&pair.source)?).bytes < pair.size {
            return Err(Fault::Short.into());
        }
    }
    Ok(upload)
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Source(errno) | Fault::Sink(errno) | Fault::Memory(errno) => errno.into(),
            // What is there of it is not what was to be copied.
            Fault::Short | Fault::Stopped => Errno::IO.into(),
        }
    }
}

fn put_in_place(upload: Upload, sync: bool, replace: bool) -> Result<(), Refusal> {
    upload.commit(sync, replace).map(drop).map_err(unreplaced)
}
