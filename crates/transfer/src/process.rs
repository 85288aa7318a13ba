//! Properties of the process: limits and umask.

use rustix::process::{Resource, Rlimit};

/// Each directory level needs two open files, each worker two more.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // If the kernel rejects this, the old limit stays. A copy that reaches it reports an error.
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// Returns the umask. It can only be read by setting it, so call this before other threads start.
pub(crate) fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}
