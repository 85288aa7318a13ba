//! The scratch directory belongs to one agent at a time: two runs would remove each other's destinations.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

const LOCK: &str = ".venturi-lock";

/// An agent that was just killed is gone within this; its lock goes with it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Holds the directory as long as it lives. The kernel lets go of it whatever ends the process.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "held, never read")] Flock<File>);

/// Makes the directory and takes it for this process.
///
/// # Errors
/// In words, if it cannot be made or written, or another agent holds it.
pub(crate) fn claim(scratch: &Path) -> Result<Claim, String> {
    let shown = scratch.display();
    std::fs::create_dir_all(scratch)
        .map_err(|error| format!("cannot make the scratch directory `{shown}`: {error}"))?;
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(scratch.join(LOCK))
        .map_err(|error| format!("cannot write in the scratch directory `{shown}`: {error}"))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // For people: the number helps whoever looks for the other run; the lock itself is the kernel's.
                let _ = lock.set_len(0);
                let _ = write!(lock, "{}", std::process::id());
                return Ok(Claim(lock));
            }
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < end => {
                file = back;
                std::thread::sleep(PAUSE);
            }
            Err((mut back, Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let _ = back.rewind();
                let _ = back.read_to_string(&mut holder);
                return Err(format!(
                    "expected the scratch directory `{shown}` to be free, found it in use by another run (process \
                     {holder}); wait until that has ended, or give this run another --scratch"
                ));
            }
            Err((_, error)) => {
                return Err(format!(
                    "cannot lock the scratch directory `{shown}`: {error}; give another --scratch, on a file system \
                     that knows locks"
                ));
            }
        }
    }
}
