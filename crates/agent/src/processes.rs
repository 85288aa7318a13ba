//! Processes of this host from `/proc`: descendants, open sockets, clock ticks.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// Larger than `stat`, `io` and `schedstat` of a process.
const SHORT_BYTES: usize = 2048;

/// Return all descendants of some processes, without these processes; none if the kernel does not report children
/// (`CONFIG_PROC_CHILDREN`).
pub(crate) fn descendants(roots: impl IntoIterator<Item = u32>) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    let mut open = Vec::new();
    let mut reported = false;
    for root in roots {
        if let Some(children) = children_of(root) {
            reported = true;
            open.extend(children);
        }
    }
    while let Some(pid) = open.pop() {
        // A repeated PID was visited already, so the walk always ends.
        if found.insert(pid) {
            open.extend(children_of(pid).unwrap_or_default());
        }
    }
    reported.then_some(found)
}

fn children_of(pid: u32) -> Option<Vec<u32>> {
    let mut children = None;
    let mut text = Vec::new();
    for thread in threads_of(pid)? {
        if read_whole(&format!("/proc/{pid}/task/{thread}/children"), &mut text).is_err() {
            continue; // the thread has ended, or the kernel does not report children
        }
        let numbers = text.split(u8::is_ascii_whitespace);
        let numbers =
            numbers.filter_map(|number| std::str::from_utf8(number).ok()?.parse::<u32>().ok());
        children.get_or_insert_with(Vec::new).extend(numbers);
    }
    children
}

/// Return the threads of a process; none if it has ended.
pub(crate) fn threads_of(pid: u32) -> Option<Vec<u32>> {
    /// Links of `/proc/PID/task` without a thread (proc_pid_task(5)).
    const EMPTY: u64 = 2;
    let directory = format!("/proc/{pid}/task");
    if fs::metadata(&directory).ok()?.nlink() == EMPTY + 1 {
        return Some(vec![pid]); // most processes, without a search of the directory
    }
    let entries = fs::read_dir(directory).ok()?.flatten();
    Some(
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect(),
    )
}

/// Read a file of `/proc` of any length in as few calls as possible.
fn read_whole(path: &str, text: &mut Vec<u8>) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = [0; SHORT_BYTES];
    text.clear();
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => text.extend(&buffer[..count]),
        }
    }
}

/// Return the inodes of the open sockets of a process; an empty list if this user cannot examine
/// the process.
pub(crate) fn sockets_of(pid: u32) -> Vec<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let inode = |file: fs::DirEntry| {
        let target = fs::read_link(file.path()).ok()?;
        let number = target.to_str()?.strip_prefix("socket:[")?;
        number.strip_suffix(']')?.parse().ok()
    };
    files.flatten().filter_map(inode).collect()
}

/// Read a short file of `/proc` with one call; longer files are truncated.
pub(crate) fn read_short(path: &str) -> Option<String> {
    let mut buffer = [0; SHORT_BYTES];
    let count = File::open(path).ok()?.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

/// Return all processes of this PID namespace.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Clock ticks per second, the unit of CPU times in `/proc`.
#[expect(clippy::cast_precision_loss, reason = "it is 100")]
pub(crate) fn ticks_per_s() -> f64 {
    // SAFETY: a query without arguments in memory.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as f64
}
