//! What a copy has to know of its own process, or changes in it.

use rustix::process::{Resource, Rlimit};

/// Every directory on the way down takes two, every worker two more.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Where that is refused, the limit that there is has to do; who meets it is told.
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// The bits that new files do not get. It can only be read by setting it, so this is done before there are other threads of ours.
pub(crate) fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}
