//! Receiver side of a transfer: the received bytes, and their removal.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use venturi_plan::{
    Bytes, CheckedDestination, ChecksumCheck, ClearOperation, FileSet, LateBytes, ReceivedBytes,
    Removal, RemovedDestination, Seconds, file_name,
};

use crate::partial_files;
use crate::storages::Location;

/// Time for a server to complete a file after its client has exited successfully. Replies before
/// the write are rare (the 226 of GridFTP and the reply to a close of XRootD follow it) and cause a
/// finding.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// First pause between two checks; each further pause is twice as long, up to the end.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of names of a directory in a response: about 200 kB.
const MAX_SIBLINGS: usize = 10_000;

/// The destination of a transfer, if operations on it are possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceiverDestination {
    pub(crate) location: Location,
    /// The files in the directory; none for a single file, or for a directory with arbitrary files of the tool.
    pub(crate) files: Option<FileSet>,
    /// Whether the received bytes prove the transfer.
    pub(crate) proves: bool,
    /// Whether a server writes it, instead of the tool.
    pub(crate) served: bool,
    /// Rule for the destination after the trial.
    pub(crate) removal: Removal,
    /// The checksum to compare with the source; none for destinations without checksums.
    pub(crate) checksum: Option<ChecksumCheck>,
}

/// Check a destination. If it may be late, repeat the check while bytes are missing, until `end`.
///
/// # Errors
/// If a directory or file cannot be read.
pub(crate) fn check(destination: &CheckedDestination, end: Instant) -> io::Result<ReceivedBytes> {
    if destination.late {
        until_whole(|| check_once(destination), end)
    } else {
        check_once(destination)
    }
}

fn check_once(destination: &CheckedDestination) -> io::Result<ReceivedBytes> {
    let (path, requested_bytes) = (
        Path::new(&destination.path),
        destination.requested_bytes.get(),
    );
    match &destination.files {
        None => {
            let bytes = stored_bytes(path)?;
            let lacking = (bytes < requested_bytes).then(|| {
                format!("expected {requested_bytes} bytes at the receiver, found {bytes}")
            });
            Ok(ReceivedBytes {
                bytes: Bytes::new(bytes),
                lacking,
                more: bytes > requested_bytes,
                ..ReceivedBytes::default()
            })
        }
        Some(files) => check_many(path, files, requested_bytes),
    }
}

/// Repeat the check while bytes are missing, until `end`. Also report late bytes.
fn until_whole(
    mut check: impl FnMut() -> io::Result<ReceivedBytes>,
    end: Instant,
) -> io::Result<ReceivedBytes> {
    let started = Instant::now();
    let mut received = check()?;
    let first_bytes = received.bytes;
    if received.lacking.is_none() {
        return Ok(received);
    }
    let mut pause = FIRST_PAUSE;
    while received.lacking.is_some() && Instant::now() < end {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
        received = check()?;
    }
    received.late = received.lacking.is_none().then(|| LateBytes {
        first_bytes,
        wait_s: Seconds::new(started.elapsed().as_secs_f64()),
    });
    Ok(received)
}

fn check_many(
    directory: &Path,
    files: &FileSet,
    requested_bytes: u64,
) -> io::Result<ReceivedBytes> {
    let (mut bytes, mut existing, mut more, mut wrong) = (0, 0, false, None);
    for number in files.numbers() {
        let name = file_name(number);
        let each = files.sizes.as_ref().map(|sizes| sizes.of(number));
        let found = match directory.join(&name).metadata() {
            Ok(found) => Some(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        bytes += found.unwrap_or(0);
        let whole = found.is_some() && each.is_none_or(|each| found >= Some(each));
        existing += u64::from(whole);
        more |= each.is_some_and(|each| found > Some(each));
        if !whole {
            wrong = wrong.or(Some((name, found)));
        }
    }
    let lacking = match wrong {
        None if bytes >= requested_bytes => None,
        None => Some(format!(
            "expected {requested_bytes} bytes at the receiver, found {bytes}"
        )),
        Some((name, found)) => {
            let found = found.map_or("is not there".into(), |bytes| format!("has {bytes} bytes"));
            Some(format!(
                "expected {} files and {requested_bytes} bytes at the receiver, found {existing} \
                 complete files and {bytes} bytes; the first incomplete file, `{name}`, {found}",
                files.files
            ))
        }
    };
    Ok(ReceivedBytes {
        bytes: Bytes::new(bytes),
        lacking,
        more: more || bytes > requested_bytes,
        ..ReceivedBytes::default()
    })
}

/// Remove the files of a transfer.
///
/// # Errors
/// A message if a file cannot be removed.
pub(crate) fn remove_destination(destination: &RemovedDestination) -> Result<(), String> {
    let path = Path::new(&destination.path);
    let removed = match (destination.removal, &destination.files) {
        (Removal::Keep, _) => Ok(()),
        (Removal::Rejected, _) => {
            return Err("it is the source, or a directory that existed before".into());
        }
        (Removal::Files, Some(files)) => remove_files(path, files, destination.failed),
        (Removal::Remove | Removal::Files, _) => remove(path).and_then(|()| {
            match (destination.failed, path.parent(), path.file_name()) {
                (true, Some(directory), Some(name)) => partial_files::remove(directory, [name]),
                _ => Ok(()),
            }
        }),
    };
    removed.map_err(|error| error.to_string())
}

fn remove_files(directory: &Path, files: &FileSet, failed: bool) -> io::Result<()> {
    files
        .names()
        .try_for_each(|name| remove(&directory.join(name)))?;
    if failed {
        let names: Vec<String> = files.names().collect();
        partial_files::remove(directory, names.iter().map(OsStr::new))?;
    }
    Ok(())
}

/// Prepare a destination before the transfer is timed: create its parent directories and remove the remains of a killed run. The
/// tool would otherwise truncate an old file in the measured time.
///
/// # Errors
/// A message if a directory cannot be created or an old file cannot be removed.
pub(crate) fn clear_destination(operation: &ClearOperation) -> Result<Removal, String> {
    let cleared = match &operation.files {
        None => clear_one(operation),
        Some(_) if operation.source.as_ref() == Some(&operation.path) => {
            let path = &operation.path;
            return Err(format!(
                "destination `{path}`: expected a directory other than the source directory"
            ));
        }
        Some(files) => clear_many(operation, files),
    };
    cleared.map_err(|error| format!("destination `{}`: {error}", operation.path))
}

/// Return the names of all entries in the directory of a path; none if there are too many, or it is unreadable.
pub(crate) fn siblings(path: &Path) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path.parent()?).ok()? {
        if names.len() >= MAX_SIBLINGS {
            return None;
        }
        names.push(entry.ok()?.file_name().into_string().ok()?);
    }
    Some(names)
}

fn clear_one(operation: &ClearOperation) -> io::Result<Removal> {
    let path = Path::new(&operation.path);
    let is_source = operation.source.as_ref() == Some(&operation.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    if operation.keep {
        return Ok(Removal::Keep);
    }
    if !operation.started && !is_source {
        partial_files::remove_earlier(path)?;
    }
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() && !operation.started && !operation.in_scratch => {
            return Ok(Removal::Rejected);
        }
        Ok(found) if !found.is_dir() && !operation.started && !is_source => fs::remove_file(path)?,
        _ => {}
    }
    Ok(if is_source {
        Removal::Rejected
    } else {
        Removal::Remove
    })
}

fn clear_many(operation: &ClearOperation, files: &FileSet) -> io::Result<Removal> {
    let path = Path::new(&operation.path);
    let existed = path.symlink_metadata().is_ok();
    fs::create_dir_all(path)?;
    if operation.keep {
        return Ok(Removal::Keep);
    }
    if existed && !operation.started {
        remove_files(path, files, true)?;
        if !operation.in_scratch {
            return Ok(Removal::Files);
        }
    }
    Ok(Removal::Remove)
}

/// Return the bytes below a path: the size of a file, or the sum over the files of a directory; 0
/// if it does not exist.
///
/// # Errors
/// If a directory cannot be read.
pub(crate) fn stored_bytes(path: &Path) -> io::Result<u64> {
    let found = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        return Ok(found.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A link inside is not followed: its target was not transferred.
        bytes += match entry.metadata()? {
            found if found.is_dir() => stored_bytes(&entry.path())?,
            found if found.is_file() => found.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

/// Remove a file or a directory with its contents, if it exists.
///
/// # Errors
/// If it cannot be removed completely.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}

#[cfg(test)]
mod tests;
