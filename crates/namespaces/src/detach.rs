//! Creates the PID namespace of the sandbox, in a user namespace if needed.

use std::fs;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::error::SandboxError;

/// Makes the next child PID 1 of a new namespace. Creates a user namespace if this process lacks the permission.
/// Returns whether it did.
pub(crate) fn create_pid_namespace() -> Result<bool, SandboxError> {
    let kernel_error = |action: &str, user_namespace| {
        let action = action.to_owned();
        move |errno| SandboxError::Kernel {
            action,
            errno,
            user_namespace,
        }
    };
    if geteuid().is_root() {
        match unshare(CloneFlags::CLONE_NEWPID) {
            // Root in a container without the capability: handled like an ordinary user.
            Err(Errno::EPERM) => {}
            other => {
                return other
                    .map(|()| false)
                    .map_err(kernel_error("create a PID namespace as root", false));
            }
        }
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(kernel_error("create a user namespace", true))?;
    // user_namespaces(7): without outside privileges, a process can map only its own ids, and only
    // after `setgroups` is denied.
    map("setgroups", "deny")?;
    map("uid_map", &format!("0 {uid} 1"))?;
    map("gid_map", &format!("0 {gid} 1"))?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(kernel_error(
        "create a PID namespace in a user namespace",
        true,
    ))?;
    Ok(true)
}

fn map(file: &str, text: &str) -> Result<(), SandboxError> {
    let path = format!("/proc/self/{file}");
    fs::write(&path, text).map_err(|error| SandboxError::Kernel {
        action: format!("write `{text}` to {path}"),
        errno: to_errno(&error),
        user_namespace: true,
    })
}

/// Returns the errno of an I/O error.
pub(crate) fn to_errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
