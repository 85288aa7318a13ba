//! Lock of the scratch directory for one agent at a time, because two runs would remove each
//! other's destinations.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

const LOCK: &str = ".venturi-lock";

/// A killed agent has exited and released its lock within this time.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Keeps the lock while the value exists. The kernel releases the lock at the end of the process.
#[derive(Debug)]
pub(crate) struct ScratchLock(#[expect(dead_code, reason = "held, never read")] Flock<File>);

/// Reason why a scratch directory cannot be used, as a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimError {
    /// Another agent uses it.
    InUse(String),
    /// It cannot be created, written or locked.
    Unusable(String),
}

/// Creates and locks the directory.
///
/// # Errors
/// If it cannot be created or written, or another agent uses it.
pub(crate) fn claim(scratch: &Path) -> Result<ScratchLock, ClaimError> {
    let shown = scratch.display();
    std::fs::create_dir_all(scratch).map_err(|error| {
        ClaimError::Unusable(format!(
            "cannot create the scratch directory `{shown}`: {error}"
        ))
    })?;
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(scratch.join(LOCK))
        .map_err(|error| {
            ClaimError::Unusable(format!(
                "cannot write in the scratch directory `{shown}`: {error}"
            ))
        })?;
    let end = Instant::now() + TIMEOUT;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // The PID in the file only informs users about the other run; the lock is in the
                // kernel.
                let _ = lock.set_len(0);
                let _ = write!(lock, "{}", std::process::id());
                return Ok(ScratchLock(lock));
            }
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < end => {
                file = back;
                std::thread::sleep(PAUSE);
            }
            Err((mut back, Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let _ = back.rewind();
                let _ = back.read_to_string(&mut holder);
                return Err(ClaimError::InUse(format!(
                    "the scratch directory `{shown}` is in use by another run (process {holder}); wait \
                     until that run has ended, or set another --scratch"
                )));
            }
            Err((_, error)) => {
                return Err(ClaimError::Unusable(format!(
                    "cannot lock the scratch directory `{shown}`: {error}; set --scratch to a directory \
                     on a file system with locks"
                )));
            }
        }
    }
}
