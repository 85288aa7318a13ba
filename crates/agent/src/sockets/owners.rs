//! Which sockets belong to what the agent has started.

use std::collections::BTreeSet;
use std::fs;

/// A chain of parents is no longer than this, unless numbers are used again while it is followed.
const ANCESTORS_LIMIT: usize = 100;

/// Inodes of all sockets that processes started by this one, and by those, have open. `None`: the kernel does not tell
/// (`CONFIG_PROC_CHILDREN`). A process that has become another user's is left out, as it does not let itself be looked at.
pub(crate) fn sockets_of_descendants() -> Option<BTreeSet<u32>> {
    let mut inodes = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open = children_of(std::process::id())?;
    while let Some(pid) = open.pop() {
        // A number that has come back is a process that was met already: the walk ends for sure.
        if seen.insert(pid) {
            inodes.extend(sockets_of(pid));
            open.extend(children_of(pid).unwrap_or_default());
        }
    }
    Some(inodes)
}

/// Whether this network namespace is another than that of the first process, or of one that this one descends from: a host
/// of a lab, or one that somebody made.
pub(crate) fn in_a_network_of_its_own() -> bool {
    let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = network(std::process::id());
    // Some do not let themselves be looked at: the first process by an ordinary user, for one.
    let other = |pid| network(pid).is_some_and(|theirs| Some(theirs) != own);
    own.is_some() && (other(1) || ancestors().into_iter().any(other))
}

/// The parent of this process, its parent, and so on, as far as this PID namespace goes.
fn ancestors() -> Vec<u32> {
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, so the fields are counted from behind it: state, parent.
        let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?;
        parent.parse().ok().filter(|pid| *pid > 0)
    };
    let chain = std::iter::successors(parent(&std::process::id()), parent);
    chain.take(ANCESTORS_LIMIT).collect()
}

fn children_of(pid: u32) -> Option<Vec<u32>> {
    let mut children = None;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(thread.path().join("children")) else {
            continue; // it has ended meanwhile, or the kernel does not tell
        };
        let numbers = text.split_ascii_whitespace();
        let known: &mut Vec<u32> = children.get_or_insert_default();
        known.extend(numbers.filter_map(|number| number.parse::<u32>().ok()));
    }
    children
}

fn sockets_of(pid: u32) -> Vec<u32> {
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
