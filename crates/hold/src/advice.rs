//! What to do when the kernel refuses.

use std::fs;

use nix::errno::Errno;

/// Settings by which an administrator takes namespaces away from ordinary users: file, the value that does, what puts it right.
const SWITCHES: [(&str, &str, &str); 3] = [
    // Debian's own patch; gone from its kernels since 2021, still there in some.
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
    // Red Hat 7, and whoever wants no user namespaces at all.
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sysctl -w user.max_user_namespaces=10000",
    ),
];

/// Limits of the number of namespaces (namespaces(7)).
const LIMITS: [&str; 5] = ["user", "pid", "mnt", "net", "uts"];

/// A sentence for a person who reads that `errno` came back.
pub(crate) fn advice(errno: Errno, user_namespace: bool) -> String {
    match errno {
        Errno::ENOSPC | Errno::EUSERS => limits(),
        Errno::EPERM | Errno::EACCES if user_namespace => permission(),
        Errno::EPERM | Errno::EACCES => {
            "Run it as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (a container needs `--privileged`)".to_owned()
        }
        Errno::EINVAL | Errno::ENOSYS => {
            "This kernel may lack namespaces: it needs CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_UTS_NS".to_owned()
        }
        Errno::ENOMEM => "Memory is short: end other programs, or ask for fewer hosts".to_owned(),
        Errno::EAGAIN => "The limit of processes is reached: see `ulimit -u` and pids.max of the cgroup".to_owned(),
        _ => "`venturi doctor` tells what this machine can offer".to_owned(),
    }
}

fn permission() -> String {
    let set = |(file, bad, _): &&(&str, &str, &str)| {
        fs::read_to_string(file).is_ok_and(|text| text.trim() == *bad)
    };
    SWITCHES.iter().find(set).map_or_else(
        || {
            "User namespaces are refused to this process (in a chroot always, in a container by its seccomp profile): \
             run it as root, or outside"
                .to_owned()
        },
        |(_, _, cure)| format!("This machine takes namespaces away from ordinary users; root can allow them: `{cure}`"),
    )
}

fn limits() -> String {
    let spent = |kind: &&&str| {
        let file = format!("/proc/sys/user/max_{kind}_namespaces");
        fs::read_to_string(file).is_ok_and(|text| text.trim() == "0")
    };
    LIMITS.iter().find(spent).map_or_else(
        || {
            "The limit of namespaces is reached: see user.max_{user,pid,mnt,net,uts}_namespaces in sysctl, and what \
             `lsns` lists"
                .to_owned()
        },
        |kind| format!("This machine permits none of this kind; root can: `sysctl -w user.max_{kind}_namespaces=10000`"),
    )
}
