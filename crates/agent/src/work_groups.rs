//! Control groups that limit the CPU of a lab host. Its movers and CPU phases join them, but not
//! the agent, because a throttled agent would measure late.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

/// Files of a group (versions 1 and 2); a thread whose number is written to them joins the group.
/// With the file for processes, the kernel would wait for all cores, about 10 ms.
const FILES: [&str; 2] = ["tasks", "cgroup.threads"];

/// Groups to join, each with its open file.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkGroups(Arc<[File]>);

impl WorkGroups {
    /// Open the files of these directories.
    ///
    /// # Errors
    /// A message with the directory that is not a control group, or that this user cannot use.
    pub(crate) fn open(directories: &[String]) -> Result<Self, String> {
        let files = directories.iter().map(|directory| {
            let directory = Path::new(directory);
            let name = FILES.iter().find(|name| directory.join(name).exists());
            let file = directory.join(name.unwrap_or(&FILES[1]));
            OpenOptions::new().write(true).open(&file).map_err(|error| {
                format!("{}: cannot open the control group: {error}", file.display())
            })
        });
        Ok(Self(files.collect::<Result<_, _>>()?))
    }

    /// Return the descriptors; a child writes [`THIS_THREAD`] to them before its `execve`.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.0.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Move this thread into the groups, until its end.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub(crate) fn join(&self) -> io::Result<()> {
        for file in self.0.iter() {
            // The kernel treats each write as one request.
            io::Write::write_all(&mut &*file, THIS_THREAD)?;
        }
        Ok(())
    }
}

/// Text that moves the writing thread (Documentation/admin-guide/cgroup-v1/cgroups.rst).
pub(crate) const THIS_THREAD: &[u8] = b"0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_group_is_reported_with_its_path() {
        let error = WorkGroups::open(&["/no/such/group".into()]).expect_err("it is missing");
        assert!(error.contains("/no/such/group/cgroup.threads"), "{error}");
        assert!(
            WorkGroups::open(&[])
                .expect("no group")
                .descriptors()
                .is_empty()
        );
    }

    #[test]
    fn only_the_joining_thread_is_added_to_the_group() {
        let group =
            Path::new("/sys/fs/cgroup/cpu").join(format!("venturi-test-{}", std::process::id()));
        if std::fs::create_dir(&group).is_err() {
            eprintln!("skipped: no writable cgroup controller `cpu` of version 1");
            return;
        }
        let groups = WorkGroups::open(&[group.display().to_string()]).expect("a group");
        let own_group = || {
            let text = std::fs::read_to_string("/proc/thread-self/cgroup").expect("a text");
            text.lines()
                .any(|line| line.ends_with(&format!("venturi-test-{}", std::process::id())))
        };
        let joined = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                groups.join().expect("it is allowed");
                own_group()
            });
            thread.join().expect("no panic")
        });
        assert!(joined, "the thread is in the group");
        assert!(!own_group(), "the others are not");
        std::fs::remove_dir(&group).expect("it is empty");
    }
}
