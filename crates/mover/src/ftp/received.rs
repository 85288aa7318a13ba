//! A file that a server sends: made under its temporary name, held against what the server says of it, and named.

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
use crate::order::{Existing, Order};
use crate::temporary;

/// How long a writer may have to do with other files before it lets go of one that its session has given back.
const LETTING_GO: Duration = Duration::from_secs(2);
/// How often it is seen whether it has.
pub(super) const GLANCE: Duration = Duration::from_millis(5);

/// Gives a whole file its mode, its time and its name. Returns its size.
pub(super) fn name(fetch: &Fetch, file: &File, order: &Order) -> Result<u64, Failure> {
    let failed = |expected| move |errno| Failure::kernel(fetch.to.clone(), expected, errno);
    let unset = |what| move |errno| Failure::unset(fetch.to.clone(), (what, errno));
    let found = rustix::fs::fstat(file).map_err(failed("to see it"))?;
    let size = u64::try_from(found.st_size).unwrap_or_default();
    if let Some(mode) = fetch.known.mode.filter(|_| order.preserve.mode) {
        // Whose file it was is another one's question: bits that lend an identity are not kept.
        let mode = Mode::from_raw_mode(mode & 0o1777);
        if Mode::from_raw_mode(found.st_mode & 0o7777) != mode {
            rustix::fs::fchmod(file, mode).map_err(unset("to set the mode"))?;
        }
    }
    if let Some(modify_s) = fetch.known.modify_s.filter(|_| order.preserve.times) {
        rustix::fs::futimens(file, &times(modify_s)).map_err(unset("to set the times"))?;
    }
    if order.sync {
        rustix::fs::fsync(file).map_err(failed("to have it on stable storage"))?;
    }
    rename(&fetch.part, &fetch.to, order.existing).map_err(failed("a name that it can have"))?;
    Ok(size)
}

/// Sees that what is on the disk is what the server has.
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
    let advice = "run the same command again; if it stays so, test memory and disk";
    match found {
        Ok(found) if found == checksum => Ok(()),
        Ok(_) => {
            let expected = "the bytes of the server";
            Err(Failure::found(fetch.to.clone(), expected, "others", advice))
        }
        Err(error) => {
            let (to, found) = (fetch.to.clone(), crate::error::said(&error));
            Err(Failure::found(to, "to read it again", found, advice))
        }
    }
}

/// The time of change of a file, and that of access as it is.
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

/// Makes a file under its temporary name, locked, so that two copies of the same do not mix. Where it was begun before, the writer of the
/// session that gave it back may be about to let go of it.
pub(super) fn create(fetch: &Fetch, again: bool) -> Result<File, Failure> {
    let failed = |errno| match errno {
        Errno::WOULDBLOCK => Failure::found(
            fetch.to.clone(),
            "a file that nobody writes to",
            "another copy of the same that is writing it",
            "wait for it to end",
        ),
        errno => Failure::kernel(fetch.to.clone(), "a place that can be written to", errno),
    };
    let begin = Instant::now();
    let file = loop {
        match locked(fetch) {
            Err(Errno::WOULDBLOCK) if again && begin.elapsed() < LETTING_GO => {
                std::thread::sleep(GLANCE);
            }
            file => break file.map_err(failed)?,
        }
    };
    let there = rustix::fs::fstat(&file).map_err(failed)?;
    if there.st_size > 0 {
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
    let here = rustix::fs::CWD;
    let renamed = temporary::rename((here, from), (here, to), existing != Existing::Keep);
    renamed.inspect_err(|_| {
        // It cannot be of use: what it was made for is not to be had.
        let _ = std::fs::remove_file(from);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftp::files::Known;

    fn fetch(folder: &Path) -> Fetch {
        Fetch {
            from: venturi_gridftp::Path::new("/a").expect("a path"),
            to: folder.join("a"),
            part: folder.join("part"),
            known: Known::default(),
            changes: 0,
        }
    }

    #[test]
    fn a_file_that_another_session_gave_back_is_waited_for_and_one_of_another_copy_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let fetch = fetch(folder.path());
        let held = create(&fetch, false).expect("a file");
        let error = create(&fetch, false).expect_err("locked").to_string();
        assert!(error.contains("another copy"), "{error}");
        std::thread::scope(|scope| {
            let again = scope.spawn(|| create(&fetch, true).map(drop));
            std::thread::sleep(10 * GLANCE);
            assert!(!again.is_finished());
            drop(held);
            assert!(again.join().expect("an end").is_ok());
        });
    }

    #[test]
    fn a_file_that_got_its_name_while_it_was_waited_for_stays_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let fetch = fetch(folder.path());
        let held = create(&fetch, false).expect("a file");
        rustix::io::write(&held, b"whole").expect("a disk");
        let stat = |path: &Path| rustix::fs::stat(path).expect("a file").st_ino;
        std::thread::scope(|scope| {
            let again = scope.spawn(|| create(&fetch, true).expect("another file"));
            std::thread::sleep(10 * GLANCE);
            rustix::fs::rename(&fetch.part, &fetch.to).expect("a name");
            drop(held);
            let other = again.join().expect("an end");
            let other = rustix::fs::fstat(&other).expect("a file").st_ino;
            assert_eq!(other, stat(&fetch.part));
            assert_ne!(other, stat(&fetch.to));
        });
        assert_eq!(std::fs::read(&fetch.to).expect("a file"), b"whole");
    }
}
