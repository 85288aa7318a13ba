//! Detection of a host of a lab.

use std::fs;

/// Maximum length of a chain of parents. It can be longer only if PIDs are reused during the walk.
const ANCESTORS_LIMIT: usize = 100;

/// Return whether this network namespace differs from the namespace of the first process or of an
/// ancestor. This is true on a host of a lab and in a namespace that a user created.
pub(crate) fn in_a_network_of_its_own() -> bool {
    let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = network(std::process::id());
    // Some processes cannot be examined, such as the first process by an ordinary user.
    let other = |pid| network(pid).is_some_and(|theirs| Some(theirs) != own);
    own.is_some() && (other(1) || ancestors().into_iter().any(other))
}

/// Return the ancestors of this process within this PID namespace, the parent first.
fn ancestors() -> Vec<u32> {
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name can contain any characters, so the fields are counted from its end: state,
        // parent.
        let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?;
        parent.parse().ok().filter(|pid| *pid > 0)
    };
    let chain = std::iter::successors(parent(&std::process::id()), parent);
    chain.take(ANCESTORS_LIMIT).collect()
}
