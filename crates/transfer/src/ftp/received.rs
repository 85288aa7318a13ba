//! Local files of downloads: temporary file, verification, and rename.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::files::Fetch;
use super::verify;
use crate::error::Failure;
use crate::options::{CopyOptions, Existing};
use crate::temporary;

/// Time for the writer of another session to close a file that was requeued.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of checks for that.
pub(super) const GLANCE: Duration = Duration::from_millis(5);

/// Sets mode and time of a complete file, and renames it. Returns its size.
pub(super) fn name(fetch: &Fetch, file: &File, options: &CopyOptions) -> Result<u64, Failure> {
    let failed = |expected| move |errno| Failure::kernel(fetch.to.clone(), expected, errno);
    let unset = |what| move |errno| Failure::unset(fetch.to.clone(), (what, errno));
    let found = rustix::fs::fstat(file).map_err(failed("to read its metadata"))?;
    let size = u64::try_from(found.st_size).unwrap_or_default();
    if let Some(mode) = fetch.known.mode.filter(|_| options.preserve.mode) {
        // Set-user-ID and set-group-ID bits are not preserved, because the owner can differ.
        let mode = Mode::from_raw_mode(mode & 0o1777);
        if Mode::from_raw_mode(found.st_mode & 0o7777) != mode {
            rustix::fs::fchmod(file, mode).map_err(unset("to set the mode"))?;
        }
    }
    if let Some(modify_s) = fetch.known.modify_s.filter(|_| options.preserve.times) {
        rustix::fs::futimens(file, &times(modify_s)).map_err(unset("to set the times"))?;
    }
    if options.sync {
        rustix::fs::fsync(file).map_err(failed("to sync it to stable storage"))?;
    }
    rename(&fetch.part, &fetch.to, options.existing).map_err(failed("an unused name"))?;
    Ok(size)
}

/// Compares the checksum of the written file with the checksum of the server.
pub(super) fn compare(
    fetch: &Fetch,
    file: &File,
    range: Option<Range<u64>>,
    checksum: Option<u32>,
) -> Result<(), Failure> {
    let Some(checksum) = checksum else {
        return Ok(());
    };
    let range = range.map_or_else(|| Ok(0..file.metadata()?.len()), Ok);
    let found = range.and_then(|range| verify::of_file(file, range));
    let advice = "run the same command again; if the error remains, test memory and disk";
    match found {
        Ok(found) if found == checksum => Ok(()),
        Ok(_) => {
            let expected = "the checksum of the server";
            Err(Failure::found(fetch.to.clone(), expected, "others", advice))
        }
        Err(error) => {
            let (to, found) = (fetch.to.clone(), crate::error::describe(&error));
            Err(Failure::found(to, "to read it again", found, advice))
        }
    }
}

/// Returns a modification time for `futimens`; the access time stays.
pub(crate) fn times(modify_s: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: modify_s,
            tv_nsec: 0,
        },
    }
}

/// Creates and locks the temporary file, so that two copies of the same source do not mix. For a requeued item, the writer of the
/// previous session can still have the lock for a short time.
pub(super) fn create(fetch: &Fetch, again: bool) -> Result<File, Failure> {
    let failed = |errno| match errno {
        Errno::WOULDBLOCK => Failure::found(
            fetch.to.clone(),
            "a file that no other process writes",
            "another running copy of the same source",
            "wait until it ends",
        ),
        errno => Failure::kernel(fetch.to.clone(), "a writable location", errno),
    };
    let started = Instant::now();
    let file = loop {
        match locked(fetch) {
            Err(Errno::WOULDBLOCK) if again && started.elapsed() < RELEASE_TIMEOUT => {
                std::thread::sleep(GLANCE);
            }
            file => break file.map_err(failed)?,
        }
    };
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if stat.st_size > 0 {
        rustix::fs::ftruncate(&file, 0).map_err(failed)?;
    }
    Ok(file.into())
}

fn locked(fetch: &Fetch) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(fetch.known.mode.unwrap_or(0o666) & 0o777 | 0o600);
    let file = rustix::fs::open(&fetch.part, flags, mode)?;
    temporary::lock(&file, rustix::fs::CWD, &fetch.part)?;
    Ok(file)
}

fn rename(from: &Path, to: &Path, existing: Existing) -> Result<(), Errno> {
    let cwd = rustix::fs::CWD;
    let renamed = temporary::rename((cwd, from), (cwd, to), existing != Existing::Keep);
    renamed.inspect_err(|_| {
        // The file is of no use, because its source cannot be transferred.
        let _ = std::fs::remove_file(from);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftp::files::FtpMetadata;

    fn fetch(directory: &Path) -> Fetch {
        Fetch {
            from: venturi_gridftp::Path::new("/a").expect("a path"),
            to: directory.join("a"),
            part: directory.join("part"),
            known: FtpMetadata::default(),
            changes: 0,
        }
    }

    #[test]
    fn a_file_returned_by_a_session_is_waited_for_and_one_of_another_copy_is_rejected() {
        let directory = tempfile::tempdir().expect("a folder");
        let fetch = fetch(directory.path());
        let assigned = create(&fetch, false).expect("a file");
        let error = create(&fetch, false).expect_err("locked").to_string();
        assert!(error.contains("another running copy"), "{error}");
        std::thread::scope(|scope| {
            let again = scope.spawn(|| create(&fetch, true).map(drop));
            std::thread::sleep(10 * GLANCE);
            assert!(!again.is_finished());
            drop(assigned);
            assert!(again.join().expect("an end").is_ok());
        });
    }

    #[test]
    fn a_file_renamed_while_it_was_waited_for_stays_complete() {
        let directory = tempfile::tempdir().expect("a folder");
        let fetch = fetch(directory.path());
        let assigned = create(&fetch, false).expect("a file");
        rustix::io::write(&assigned, b"whole").expect("a disk");
        let stat = |path: &Path| rustix::fs::stat(path).expect("a file").st_ino;
        std::thread::scope(|scope| {
            let again = scope.spawn(|| create(&fetch, true).expect("another file"));
            std::thread::sleep(10 * GLANCE);
            rustix::fs::rename(&fetch.part, &fetch.to).expect("a name");
            drop(assigned);
            let other = again.join().expect("an end");
            let other = rustix::fs::fstat(&other).expect("a file").st_ino;
            assert_eq!(other, stat(&fetch.part));
            assert_ne!(other, stat(&fetch.to));
        });
        assert_eq!(std::fs::read(&fetch.to).expect("a file"), b"whole");
    }
}
