//! Result of an exited process: its exit status, resource usage, and bytes read and written.

use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Exit status and resource usage of a process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exit {
    /// Exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// From `wait4`: usage of the process and of its reaped children.
    pub(crate) usage: Usage,
    /// From `/proc/PID/io`; none if it is not readable.
    pub(crate) io: Option<Io>,
}

/// The fields of `rusage` that Linux fills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
    pub(crate) max_rss_bytes: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
}

/// Bytes of a process by `/proc/PID/io`: through `read` and `write` calls, and from and to disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) read_call_bytes: u64,
    pub(crate) write_call_bytes: u64,
    pub(crate) read_disk_bytes: u64,
    pub(crate) write_disk_bytes: u64,
}

/// Makes this process the parent of all orphans of its children. PID 1 of a container can reap them
/// late or never, and until then their process group would exist.
pub(crate) fn adopt_orphans() {
    // SAFETY: sets an attribute of this process, by numbers. All supported kernels have it.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Return whether this child has exited. It stays a zombie, so that its `/proc` files can still be read.
pub(crate) fn has_ended(pid: Pid) -> bool {
    check(Some(pid), libc::WNOHANG).is_some()
}

/// Returns any exited child, including adopted ones; it stays a zombie.
pub(crate) fn any_ended() -> Option<Pid> {
    check(None, libc::WNOHANG)
}

/// Checks one child or all children, without reaping; without `WNOHANG` it waits for an exit.
fn check(pid: Option<Pid>, flags: libc::c_int) -> Option<Pid> {
    let (kind, id) = pid.map_or((libc::P_ALL, 0), |pid| {
        (libc::P_PID, pid.as_raw().unsigned_abs())
    });
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is writable and of the right type; zeroed, it is a valid siginfo of no child.
    let result = unsafe {
        libc::waitid(
            kind,
            id,
            info.as_mut_ptr(),
            flags | libc::WEXITED | libc::WNOWAIT | libc::__WALL,
        )
    };
    // SAFETY: waitid has filled it or left it zeroed; `si_pid` is 0 if no child was in this state.
    let found = unsafe { info.assume_init().si_pid() };
    (result == 0 && found != 0).then(|| Pid::from_raw(found))
}

/// Reads the status and resource usage of a child, and reaps it. Waits for its exit if necessary.
///
/// # Errors
/// The error number of `wait4`, if the process is not a child of this process.
pub(crate) fn reap(pid: Pid) -> Result<Exit, Errno> {
    // The counters are complete when the process is a zombie, and lost when it is reaped.
    while check(Some(pid), 0).is_none() && Errno::last() == Errno::EINTR {}
    let io = read_io(pid);
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to writable objects of the right types.
        let result = unsafe {
            libc::wait4(
                pid.as_raw(),
                &raw mut status,
                libc::__WALL,
                usage.as_mut_ptr(),
            )
        };
        match Errno::result(result) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: zeroed is a valid rusage, and wait4 has filled it.
    let usage = unsafe { usage.assume_init() };
    Ok(Exit {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        usage: Usage::from(&usage),
        io,
    })
}

/// Reap an exited child whose result is not needed.
pub(crate) fn forget(pid: Pid) -> bool {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    matches!(
        waitpid(pid, Some(flags)),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    )
}

/// Return whether any process of the group remains, after reaping exited members that are children
/// of this process. Reap the leader before this call, because its counters would be lost.
pub(crate) fn group_is_alive(group: Pid) -> bool {
    while forget(Pid::from_raw(-group.as_raw())) {}
    nix::sys::signal::killpg(group, None) != Err(Errno::ESRCH)
}

/// Return whether a process of the group can still run. This is slow, because it checks all
/// processes of the host, but it detects zombies of other parents.
pub(crate) fn group_can_run(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    let runs = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (state, of_group) = parse_stat(&stat)?;
        Some(of_group == group && !matches!(state, "Z" | "X" | "x"))
    };
    processes.flatten().filter_map(runs).any(|runs| runs)
}

/// Returns state and process group. The name before them can contain any characters, so the fields
/// are counted from its end.
fn parse_stat(stat: &str) -> Option<(&str, Pid)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    Some((state, Pid::from_raw(fields.nth(1)?.parse().ok()?)))
}

impl From<&libc::rusage> for Usage {
    fn from(usage: &libc::rusage) -> Self {
        const BYTES_PER_KIB: u64 = 1024;
        Self {
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            max_rss_bytes: usage.ru_maxrss.unsigned_abs() * BYTES_PER_KIB,
            minor_faults: usage.ru_minflt.unsigned_abs(),
            major_faults: usage.ru_majflt.unsigned_abs(),
            voluntary_switches: usage.ru_nvcsw.unsigned_abs(),
            involuntary_switches: usage.ru_nivcsw.unsigned_abs(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "CPU seconds are far below 2^53")]
fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 * 1e-6
}

fn read_io(pid: Pid) -> Option<Io> {
    parse_io(&std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

fn parse_io(text: &str) -> Option<Io> {
    let field = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line?.trim().parse().ok()
    };
    Some(Io {
        read_call_bytes: field("rchar")?,
        write_call_bytes: field("wchar")?,
        read_disk_bytes: field("read_bytes")?,
        write_disk_bytes: field("write_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_zombies_cannot_run_but_exists_until_it_is_reaped() {
        use std::os::unix::process::CommandExt;
        let mut sleeper = std::process::Command::new("sleep");
        let mut child = sleeper.arg("1000").process_group(0).spawn().expect("runs");
        let group = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        assert!(group_can_run(group) && !has_ended(group));
        child.kill().expect("our child");
        check(Some(group), 0).expect("it ends");
        assert!(!group_can_run(group));
        assert_eq!(nix::sys::signal::killpg(group, None), Ok(()), "a zombie");
        assert!(!group_is_alive(group), "reaped");
        child.wait().expect_err("reaped already");
    }

    #[test]
    fn the_fields_of_a_process_are_counted_after_its_name() {
        let stat = "12 (a) R 1 2 (b)) S 1 345 345 0 -1";
        assert_eq!(parse_stat(stat), Some(("S", Pid::from_raw(345))));
        assert_eq!(parse_stat("12 (cut"), None);
    }

    #[test]
    fn the_io_file_of_a_process_is_read_by_name_not_by_position() {
        let text = "rchar: 10\nwchar: 20\nsyscr: 1\nsyscw: 2\nread_bytes: 30\nwrite_bytes: 40\ncancelled_write_bytes: 5\n";
        let expected = Io {
            read_call_bytes: 10,
            write_call_bytes: 20,
            read_disk_bytes: 30,
            write_disk_bytes: 40,
        };
        assert_eq!(parse_io(text), Some(expected));
        assert_eq!(parse_io("rchar: 10\n"), None);
    }
}
