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

use super::body::ResponseBody;
use super::conditions::Conditions;
use super::issuers::Operation;
use super::list::{DEPTH, request};
use super::response::{
    ErrorResponse, ParsedRequest, ResponseResult, empty, in_turn, is_local, parse_path, patient,
};
use super::third_party::CREDENTIAL;
use super::write::{unreplaced, within};
use crate::http::marker;
use crate::http::outgoing::OutgoingBody;
use crate::local::copy_bytes::{CACHED_BLOCK, CopyFault, CopyMethods, FileCopier, Pair};
use crate::options::Method;
use crate::serve::confined_root::listing::RootEntry;
use crate::serve::confined_root::upload::{UploadFile, UploadStart};
use crate::serve::confined_root::{ConfinedRoot, OpenedFile, ServedMetadata};
use crate::stop::CancelToken;
use crate::temporary::Token;

/// RFC 4918, section 10.3.
pub(crate) const DESTINATION: HeaderName = HeaderName::from_static("destination");
/// RFC 4918, section 10.6.
pub(crate) const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");
/// Maximum entries that one request may remove or copy; more need several requests.
const MAX_TREE_ENTRIES: usize = 1_000_000;

/// Depth of a request for a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Zero,
    Infinity,
    Other,
}

impl Depth {
    fn of(request: &ParsedRequest) -> Self {
        match request.fields.get(DEPTH).map(HeaderValue::as_bytes) {
            None => Self::Infinity,
            Some(text) if text.eq_ignore_ascii_case(b"infinity") => Self::Infinity,
            Some(b"0") => Self::Zero,
            Some(_) => Self::Other,
        }
    }

    /// Check that the request covers a complete directory (RFC 4918, sections 9.6.1, 9.8.3 and 9.9.2).
    fn whole(self, root: &ConfinedRoot, path: &[u8]) -> Result<(), ErrorResponse> {
        if self == Self::Infinity
            || !root
                .stat(path)
                .is_ok_and(|metadata| metadata.is_directory())
        {
            return Ok(());
        }
        Err(ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "expected Depth: infinity for a directory (or 0 to COPY it without its entries)",
        ))
    }
}

/// MKCOL.
pub(crate) async fn make(mut parsed: ParsedRequest) -> ResponseResult {
    parsed.may_write()?;
    if !request(&mut parsed).await?.is_empty() {
        // RFC 4918, section 9.3.
        return Err(ErrorResponse::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "expected MKCOL without a body",
        ));
    }
    let conditions = Conditions::of(&parsed)?;
    let (host, path) = (Arc::clone(&parsed.connection.host), parsed.path.clone());
    patient(&parsed.active, move || {
        if host.root.stat(&path).is_err() {
            conditions.check(&host.root)?;
        }
        match host.root.make_directory(&path) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(ErrorResponse::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the path exists already",
            )),
            // The root itself.
            Err(Errno::ACCESS) if path.iter().all(|byte| *byte == b'/') => Err(ErrorResponse::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the path exists already",
            )),
            Err(errno) => Err(within(errno)),
        }
    })
    .await?;
    Ok(empty(StatusCode::CREATED))
}

/// DELETE.
pub(crate) async fn delete(request: ParsedRequest) -> ResponseResult {
    request.may_write()?;
    let conditions = Conditions::of(&request)?;
    let (host, path) = (Arc::clone(&request.connection.host), request.path.clone());
    let depth = Depth::of(&request);
    patient(&request.active, move || {
        depth.whole(&host.root, &path)?;
        conditions.check_source(&host.root)?;
        remove(&host.root, &path)
    })
    .await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Remove a path and all entries below it.
fn remove(root: &ConfinedRoot, path: &[u8]) -> Result<(), ErrorResponse> {
    match root.remove_file(path) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    removable(root, path)?;
    clear(root, path)
}

/// Check in advance that a directory can be removed with all entries, as far as known: no running uploads, and
/// permission to remove entries in its directories.
fn removable(root: &ConfinedRoot, path: &[u8]) -> Result<(), ErrorResponse> {
    let check_stall = |directory: &[u8]| {
        root.check_idle(directory)?;
        let opened = root.read(directory)?;
        let how = AccessFlags::W_OK | AccessFlags::X_OK;
        let may = nix::unistd::faccessat(&opened.file, c".", how, nix::fcntl::AtFlags::AT_EACCESS);
        let mut first = Vec::new();
        if may.is_err() {
            root.list(directory, false)?.next(root, 1, &mut first)?;
        }
        if first.is_empty() {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&directory[path.len()..]);
        let text = format!("the entries of .{shown}/ cannot be removed, so nothing was removed");
        Err(ErrorResponse::new(StatusCode::FORBIDDEN, text))
    };
    check_stall(path)?;
    each(root, path, |below, entered| match entered {
        true => check_stall(below),
        false => Ok(()),
    })
}

/// Remove a directory with all entries.
fn clear(root: &ConfinedRoot, path: &[u8]) -> Result<(), ErrorResponse> {
    let mut directories = Vec::new();
    each(root, path, |below, _| {
        // A link to a directory is removed as a link.
        match root.remove_file(below) {
            Err(Errno::ISDIR) => directories.push(below.to_vec()),
            other => other?,
        }
        if directories.len() > MAX_TREE_ENTRIES {
            return Err(ErrorResponse::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "too many directories for one request",
            ));
        }
        Ok(())
    })?;
    // Deeper entries have longer paths.
    directories.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
    for directory in directories {
        root.remove_directory(&directory)?;
    }
    Ok(root.remove_directory(path)?)
}

/// Call `work` for all entries below a directory, with the path and whether its own entries follow.
fn each(
    root: &ConfinedRoot,
    path: &[u8],
    mut work: impl FnMut(&[u8], bool) -> Result<(), ErrorResponse>,
) -> Result<(), ErrorResponse> {
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

/// Return the destination on this server.
fn destination(request: &ParsedRequest) -> Result<Vec<u8>, ErrorResponse> {
    let bad = || {
        ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "expected a Destination on this server",
        )
    };
    let declared = request.field(&DESTINATION).ok_or_else(bad)?;
    if declared.contains('#') {
        // RFC 4918, section 8.3, has no fragments. The part before it is another path, which would be replaced.
        let text = "expected a Destination without a fragment; write # in a name as %23";
        return Err(ErrorResponse::new(StatusCode::BAD_REQUEST, text));
    }
    let uri: Uri = declared.parse().map_err(|_| bad())?;
    if !is_local(request, &uri) {
        return Err(ErrorResponse::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is on another server",
        ));
    }
    parse_path(uri.path()).ok_or_else(bad)
}

/// Return whether the destination may be replaced: not without the request, and not without a token scope.
pub(super) fn may_replace(request: &ParsedRequest, path: &[u8]) -> bool {
    request.field(&OVERWRITE) != Some("F") && request.may(Operation::Modify, path).is_ok()
}

/// MOVE.
pub(crate) async fn rename(request: ParsedRequest) -> ResponseResult {
    request.may_write()?;
    let (host, from, to) = (
        Arc::clone(&request.connection.host),
        request.path.clone(),
        destination(&request)?,
    );
    request.may(Operation::Modify, &to)?;
    let (conditions, may_replace) = (Conditions::of(&request)?, may_replace(&request, &to));
    let depth = Depth::of(&request);
    let status = patient(&request.active, move || {
        let existing = check_destination(&host.root, &from, &to, may_replace)?;
        depth.whole(&host.root, &from)?;
        conditions.check(&host.root)?;
        let is_directory = |path| {
            host.root
                .stat(path)
                .is_ok_and(|metadata| metadata.is_directory())
        };
        if existing && (is_directory(&to) || is_directory(&from)) {
            replace(&host.root, &from, &to)?;
        } else {
            let renamed = host.root.rename(&from, &to, may_replace);
            renamed.map_err(|errno| match errno {
                Errno::EXIST => unreplaced(errno),
                errno => moved(errno),
            })?;
        }
        Ok(if existing {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::CREATED
        })
    })
    .await?;
    Ok(empty(status))
}

/// Return the error of a failed rename.
fn moved(errno: Errno) -> ErrorResponse {
    match errno {
        // RFC 4918, section 9.9.4: another part of the names of a server.
        Errno::XDEV => ErrorResponse::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is on another file system of this server; COPY the path, then DELETE the source",
        ),
        errno => within(errno),
    }
}

/// Replace a path by another, if one of them is a directory. The replaced path is removed and not restored;
/// leftovers are reported.
fn replace(root: &ConfinedRoot, from: &[u8], to: &[u8]) -> Result<(), ErrorResponse> {
    if root.stat(to)?.is_directory() && !is_link(root, to) {
        removable(root, to)?;
    }
    let old = aside_path(from, to);
    let shown = String::from_utf8_lossy(&old);
    swap(root, from, to, &old).map_err(|errno| match errno {
        Errno::EXIST => {
            let text = format!("a backup of an earlier request exists; DELETE {shown}");
            ErrorResponse::new(StatusCode::LOCKED, text)
        }
        errno => moved(errno),
    })?;
    remove(root, &old).map_err(|rejection| {
        let reason = rejection.text;
        let text = format!(
            "the copy is complete, but a part of the replaced path remains in {shown}: {reason}"
        );
        ErrorResponse::new(rejection.status, text)
    })
}

/// Return whether a path is a link, as far as its directory is readable.
fn is_link(root: &ConfinedRoot, path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (directory, name) = path.split_at(cut);
    let name = name.strip_prefix(b"/").unwrap_or(name);
    let found = root
        .read(directory)
        .and_then(|directory| rustix::fs::statat(&directory.file, name, AtFlags::SYMLINK_NOFOLLOW));
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

/// Give a path the name of another one, and that one an unused name; atomically if the file system supports it.
fn swap(root: &ConfinedRoot, new: &[u8], path: &[u8], away: &[u8]) -> Result<(), Errno> {
    match root.exchange(new, path) {
        // Report the error and undo the step as far as possible.
        Ok(()) => root.rename(new, away, false).inspect_err(|_| {
            let _ = root.exchange(new, path);
        }),
        Err(Errno::INVAL | Errno::NOSYS) => {
            root.rename(path, away, false)?;
            root.rename(new, path, false).inspect_err(|_| {
                let _ = root.rename(away, path, false);
            })
        }
        Err(errno) => Err(errno),
    }
}

/// Check the existing destination, which may be replaced. Return whether there is one.
fn check_destination(
    root: &ConfinedRoot,
    from: &[u8],
    to: &[u8],
    may_replace: bool,
) -> Result<bool, ErrorResponse> {
    let source = root.stat(from)?;
    let existing = root.stat(to).ok();
    // RFC 4918, section 9.9.4: the destination is the source, below it, or above it, so that it would be removed
    // first.
    let same = existing.is_some_and(|existing| existing.identity == source.identity);
    let around = match &existing {
        Some(existing) => root.is_in(from, existing)?,
        None => false,
    };
    if same || around || root.is_in(to, &source).map_err(within)? {
        return Err(ErrorResponse::new(
            StatusCode::FORBIDDEN,
            "the Destination is the source, below it, or above it",
        ));
    }
    if existing.is_some() && !may_replace {
        return Err(unreplaced(Errno::EXIST));
    }
    Ok(existing.is_some())
}

/// COPY within the server.
pub(crate) async fn copy(request: ParsedRequest) -> ResponseResult {
    request.may_write()?;
    let (host, from, to) = (
        Arc::clone(&request.connection.host),
        request.path.clone(),
        destination(&request)?,
    );
    request.may(Operation::Create, &to)?;
    let (may_replace, sync) = (may_replace(&request, &to), host.settings.sync);
    let depth = Depth::of(&request);
    let conditions = Conditions::of(&request)?;
    let status = in_turn(&request, move || {
        let existing = check_destination(&host.root, &from, &to, may_replace)?;
        // Checked at the start, and again before a replacement.
        let check = || conditions.check(&host.root);
        check()?;
        let alone = depth == Depth::Zero;
        if !alone {
            depth.whole(&host.root, &from)?;
        }
        let is_directory = |path| {
            host.root
                .stat(path)
                .is_ok_and(|metadata| metadata.is_directory())
        };
        let whole = |aside: &[u8]| {
            let done = check().and_then(|()| replace(&host.root, aside, &to));
            done.inspect_err(|_| {
                let _ = remove(&host.root, aside);
            })
        };
        let source = host.root.stat(&from)?;
        if !source.is_directory() && existing && is_directory(&to) {
            let aside = aside_path(&from, &to);
            let upload = copied(&host.root, &methods(), host.root.read(&from)?, &aside)?;
            // A file of that name is the leftover of an interrupted copy.
            commit(upload, sync, true)?;
            whole(&aside)?;
        } else if !source.is_directory() {
            let upload = copied(&host.root, &methods(), host.root.read(&from)?, &to)?;
            check()?;
            commit(upload, sync, may_replace)?;
        } else if existing {
            whole(&copy_aside(&host.root, &from, &to, alone, sync)?)?;
        } else {
            host.root.make_directory(&to).map_err(within)?;
            if !alone {
                tree(&host.root, &from, &to, sync)?;
            }
        }
        Ok(if existing {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::CREATED
        })
    })
    .await;
    let mut response = empty(status?);
    if request.fields.contains_key(CREDENTIAL) {
        // Requested as a copy between servers, which ends with a line: `gfal-copy` waits for it.
        *response.status_mut() = StatusCode::CREATED;
        *response.body_mut() = ResponseBody::Plain(OutgoingBody::Whole(marker::SUCCESS.into()));
    }
    Ok(response)
}

/// Copy a directory to a temporary path and replace the destination when the copy is complete; otherwise the
/// destination stays.
fn copy_aside(
    root: &ConfinedRoot,
    from: &[u8],
    to: &[u8],
    alone: bool,
    sync: bool,
) -> Result<Vec<u8>, ErrorResponse> {
    let aside = aside_path(from, to);
    root.make_directory(&aside).map_err(|errno| match errno {
        Errno::EXIST => {
            let shown = String::from_utf8_lossy(&aside);
            let text = format!(
                "the same copy is running or was interrupted; if interrupted, DELETE {shown}"
            );
            ErrorResponse::new(StatusCode::LOCKED, text)
        }
        errno => within(errno),
    })?;
    if !alone && let Err(rejection) = tree(root, from, &aside, sync) {
        // The next request reports leftovers.
        let _ = remove(root, &aside);
        return Err(rejection);
    }
    Ok(aside)
}

/// Return the temporary path of a copy, in the directory of the destination.
fn aside_path(from: &[u8], to: &[u8]) -> Vec<u8> {
    let uri = |path| Path::new(OsStr::from_bytes(path));
    let name = Token::new(uri(from), uri(to)).tree();
    let to = to.strip_suffix(b"/").unwrap_or(to);
    let cut = to.iter().rposition(|byte| *byte == b'/');
    [&to[..cut.map_or(0, |at| at + 1)], name.to_bytes()].concat()
}

/// Copy the entries of a directory. Entries that cannot be copied are reported at the end.
fn tree(root: &ConfinedRoot, from: &[u8], to: &[u8], sync: bool) -> Result<(), ErrorResponse> {
    let mut listing = root.list(from, true)?;
    let methods = methods();
    let mut found = Vec::new();
    let mut count = 0;
    let mut left_out: Option<(usize, Vec<u8>)> = None;
    loop {
        let more = listing.next(root, 1024, &mut found)?;
        for entry in found.drain(..) {
            count += 1;
            if count > MAX_TREE_ENTRIES {
                return Err(ErrorResponse::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "too many entries for one request",
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
                commit(copied(root, &methods, source, &new)?, sync, true)?;
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

fn incomplete(number: usize, first: &[u8]) -> ErrorResponse {
    let first = String::from_utf8_lossy(first);
    let why = "a link to a directory, a special file, or an unreadable file";
    ErrorResponse::new(
        StatusCode::CONFLICT,
        format!("{number} entries were not copied, such as {first}: {why}"),
    )
}

/// Open a file of a tree; none if it is no file or is unreadable.
fn readable(
    root: &ConfinedRoot,
    entry: &RootEntry,
    path: &[u8],
) -> Result<Option<OpenedFile>, Errno> {
    if !entry.metadata.is_file() {
        return Ok(None);
    }
    match root.read(path) {
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Return the copy methods. A method that fails once, between two file systems or at all, is not tried again.
fn methods() -> CopyMethods {
    CopyMethods::new(Method::Auto, false, None)
}

/// Return an unnamed copy of a file that keeps its holes.
fn copied(
    root: &ConfinedRoot,
    methods: &CopyMethods,
    source: OpenedFile,
    to: &[u8],
) -> Result<UploadFile, ErrorResponse> {
    let upload = root.upload(to, UploadStart::New).map_err(within)?;
    let pair = Pair {
        source: source.file,
        sink: upload.duplicate()?,
        size: source.metadata.bytes,
        dense: false,
        direct: false,
        shared: false,
    };
    if !methods.clone(&pair) {
        let (stop, moved) = (CancelToken::default(), AtomicU64::new(0));
        FileCopier::new(CACHED_BLOCK, &stop, &moved).copy(methods, &pair, 0..pair.size)?;
        // The file may end in a hole.
        rustix::fs::ftruncate(&pair.sink, pair.size)?;
        // A file that was truncated during the copy looks the same.
        if ServedMetadata::of(&rustix::fs::fstat(&pair.source)?).bytes < pair.size {
            return Err(CopyFault::Short.into());
        }
    }
    Ok(upload)
}

impl From<CopyFault> for ErrorResponse {
    fn from(fault: CopyFault) -> Self {
        match fault {
            CopyFault::Source(errno) | CopyFault::Sink(errno) | CopyFault::Memory(errno) => {
                errno.into()
            }
            // The bytes of the source have changed.
            CopyFault::Short | CopyFault::Stopped => Errno::IO.into(),
        }
    }
}

fn commit(upload: UploadFile, sync: bool, replace: bool) -> Result<(), ErrorResponse> {
    upload.commit(sync, replace).map(drop).map_err(unreplaced)
}
