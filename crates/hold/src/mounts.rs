//! The file systems of the ground: all of the machine's, with some things over it that nobody outside sees.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::error::Error;
use crate::grounds::errno_of;
use crate::order::Order;

/// Links that lead to links, at most: as many as the kernel follows (path_resolution(7)).
const LINK_LIMIT: usize = 40;

/// Folders that everybody writes to and where nobody may remove what is another's.
const STICKY: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

const NOTHING: Option<&Path> = None;

/// Makes a mount namespace for this process, and furnishes it.
pub(crate) fn furnish(order: &Order, user_namespace: bool) -> Result<(), Error> {
    let mounts = Mounts { user_namespace };
    mounts.check("make a mount namespace", unshare(CloneFlags::CLONE_NEWNS))?;
    // Nothing that is mounted in here reaches the machine, and nothing of the machine's later mounts comes in.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mounts.check(
        "make all mounts private",
        mount(NOTHING, "/", NOTHING, private, NOTHING),
    )?;
    mounts.proc()?;
    // Before a tmpfs can hide it, each source is opened.
    let sources = order.binds.iter().map(|(from, to)| mounts.open(from, to));
    let sources = sources.collect::<Result<Vec<File>, Error>>()?;
    for path in &order.tmpfs {
        mounts.tmpfs(&landing(path), order)?;
    }
    for (source, (from, to)) in sources.iter().zip(&order.binds) {
        mounts.bind(source, from, to, order)?;
    }
    Ok(())
}

struct Mounts {
    user_namespace: bool,
}

impl Mounts {
    fn check<T>(&self, what: impl Into<String>, result: Result<T, Errno>) -> Result<T, Error> {
        result.map_err(|errno| Error::Refused {
            what: what.into(),
            errno,
            user_namespace: self.user_namespace,
        })
    }

    /// A /proc that shows the processes of the ground.
    fn proc(&self) -> Result<(), Error> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        self.check(
            "mount a /proc (in a container whose own /proc is partly hidden the kernel refuses this to all but root)",
            mount(Some("proc"), "/proc", Some("proc"), flags, NOTHING),
        )
    }

    fn tmpfs(&self, path: &Path, order: &Order) -> Result<(), Error> {
        // A link may have led into another tmpfs, which is empty.
        if within(path, &order.tmpfs) && !path.exists() {
            self.check(
                format!("make the folder {}", path.display()),
                fs::create_dir_all(path).map_err(|error| errno_of(&error)),
            )?;
        }
        let mode = if STICKY.iter().any(|sticky| path == Path::new(sticky)) {
            "mode=1777"
        } else {
            "mode=0777"
        };
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        self.check(
            format!("mount a tmpfs on {}", path.display()),
            mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(mode)),
        )
    }

    fn open(&self, from: &Path, to: &Path) -> Result<File, Error> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(from);
        opened.map_err(|error| self.absent_or(errno_of(&error), from, from, to))
    }

    fn bind(&self, source: &File, from: &Path, to: &Path, order: &Order) -> Result<(), Error> {
        let target = landing(to);
        if !target.exists() && within(&target, &order.tmpfs) {
            self.check(
                format!("make {}", target.display()),
                make_like(source, &target).map_err(|error| errno_of(&error)),
            )?;
        }
        let opened = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
        // Recursive: the kernel refuses to an ordinary user to lay bare what a mount covers.
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&opened), &target, NOTHING, flags, NOTHING)
            .map_err(|errno| self.absent_or(errno, to, from, to))
    }

    fn absent_or(&self, errno: Errno, absent: &Path, from: &Path, to: &Path) -> Error {
        if errno == Errno::ENOENT {
            return Error::Absent {
                from: from.into(),
                to: to.into(),
                absent: absent.into(),
            };
        }
        Error::Refused {
            what: format!("bind {} over {}", from.display(), to.display()),
            errno,
            user_namespace: self.user_namespace,
        }
    }
}

/// Where a path leads, though it lead to nothing: /etc/resolv.conf is a link into /run on many machines, and there a tmpfs
/// hides its end.
fn landing(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINK_LIMIT {
        let Ok(next) = fs::read_link(&path) else {
            break;
        };
        path = normal(&path.parent().unwrap_or(Path::new("/")).join(next));
    }
    path
}

/// The path without `..`, by its text alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

fn within(path: &Path, folders: &[PathBuf]) -> bool {
    folders
        .iter()
        .any(|folder| path.starts_with(folder) && path != folder)
}

/// An empty file or folder, whichever the source is.
fn make_like(source: &File, target: &Path) -> std::io::Result<()> {
    if source.metadata()?.is_dir() {
        return fs::create_dir_all(target);
    }
    fs::create_dir_all(target.parent().unwrap_or(Path::new("/")))?;
    File::create(target).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &str) {
        assert_eq!(normal(Path::new(path)), Path::new(expected));
    }

    #[test]
    fn paths_lose_their_detours() {
        check("/etc/../run/systemd/x", "/run/systemd/x");
        check("/etc/./x", "/etc/x");
        check("/../../x", "/x");
    }

    #[test]
    fn only_what_is_in_a_tmpfs_may_be_made() {
        let folders = [PathBuf::from("/run")];
        assert!(within(Path::new("/run/a/b"), &folders));
        assert!(
            !within(Path::new("/run"), &folders),
            "it is mounted on itself"
        );
        assert!(!within(Path::new("/runner"), &folders));
    }
}
