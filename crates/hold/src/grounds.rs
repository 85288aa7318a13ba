//! How the process outside takes leave of the machine's namespaces.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::error::Error;

/// Lets the next child be PID 1 of a new namespace; in a user namespace of its own where this process may not do that.
/// Tells whether there is one.
pub(crate) fn leave() -> Result<bool, Error> {
    let refused = |what: &str, user_namespace| {
        let what = what.to_owned();
        move |errno| Error::Refused {
            what,
            errno,
            user_namespace,
        }
    };
    if geteuid().is_root() {
        match unshare(CloneFlags::CLONE_NEWPID) {
            // Root of a container that took the capability away: as good as an ordinary user.
            Err(Errno::EPERM) => {}
            other => {
                return other
                    .map(|()| false)
                    .map_err(refused("make a PID namespace as root", false));
            }
        }
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(refused("make a user namespace", true))?;
    // user_namespaces(7): without privileges outside only one's own ids can be mapped, and only once groups are fixed.
    map("setgroups", "deny")?;
    map("uid_map", &format!("0 {uid} 1"))?;
    map("gid_map", &format!("0 {gid} 1"))?;
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(refused("make a PID namespace in a user namespace", true))?;
    Ok(true)
}

fn map(file: &str, text: &str) -> Result<(), Error> {
    let path = format!("/proc/self/{file}");
    fs::write(&path, text).map_err(|error| Error::Refused {
        what: format!("write `{text}` to {path}"),
        errno: errno_of(&error),
        user_namespace: true,
    })
}

/// The number behind an error of the standard library.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
