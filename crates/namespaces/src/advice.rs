//! Advice for failed system calls.

use std::fs;

use nix::errno::Errno;

/// Kernel settings that disable namespaces for ordinary users: file, disabling value, command that enables them.
const SWITCHES: [(&str, &str, &str); 3] = [
    // Patch of Debian; removed from its kernels in 2021, but still in some.
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    // Ubuntu since 23.10.
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    // Red Hat 7, and administrators who disable user namespaces.
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sysctl -w user.max_user_namespaces=10000",
    ),
];

/// Limits of the number of namespaces (namespaces(7)).
const LIMITS: [&str; 5] = ["user", "pid", "mnt", "net", "uts"];

/// Returns advice for `errno`.
pub(crate) fn advice(errno: Errno, user_namespace: bool) -> String {
    match errno {
        Errno::ENOSPC | Errno::EUSERS => limits(),
        Errno::EPERM | Errno::EACCES if user_namespace => permission(),
        Errno::EPERM | Errno::EACCES => {
            "Run it as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (a container needs `--privileged`).".to_owned()
        }
        Errno::EINVAL | Errno::ENOSYS => {
            "Check that the kernel has CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS and CONFIG_UTS_NS.".to_owned()
        }
        Errno::ENOMEM => "Memory is exhausted. Stop other programs, or use fewer hosts.".to_owned(),
        Errno::EAGAIN => "The process limit is reached. Raise `ulimit -u` or pids.max of the cgroup.".to_owned(),
        _ => "Run `venturi doctor` to list the features of this machine.".to_owned(),
    }
}

fn permission() -> String {
    let set = |(file, disabled, _): &&(&str, &str, &str)| {
        fs::read_to_string(file).is_ok_and(|text| text.trim() == *disabled)
    };
    SWITCHES.iter().find(set).map_or_else(
        || {
            "This process cannot create user namespaces (never in a chroot; in a container if its seccomp profile blocks them). \
             Run it as root, or outside of the container or chroot."
                .to_owned()
        },
        |(_, _, command)| format!("This machine does not allow namespaces for ordinary users. Allow them as root: `{command}`."),
    )
}

fn limits() -> String {
    let spent = |kind: &&&str| {
        let file = format!("/proc/sys/user/max_{kind}_namespaces");
        fs::read_to_string(file).is_ok_and(|text| text.trim() == "0")
    };
    LIMITS.iter().find(spent).map_or_else(
        || {
            "The namespace limit is reached. Raise user.max_{user,pid,mnt,net,uts}_namespaces with sysctl, or remove namespaces \
             that `lsns` lists."
                .to_owned()
        },
        |kind| format!("This machine allows no {kind} namespaces. Allow them as root: `sysctl -w user.max_{kind}_namespaces=10000`."),
    )
}
