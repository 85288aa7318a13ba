//! File systems of the sandbox: the mounts of the machine, with private mounts on top.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::config::SandboxConfig;
use crate::detach::to_errno;
use crate::error::SandboxError;

/// Maximum depth of symbolic links, like in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Directories with the sticky bit.
const STICKY: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

const NOTHING: Option<&Path> = None;

/// Creates a mount namespace and mounts all file systems of the sandbox.
pub(crate) fn mount_all(config: &SandboxConfig, user_namespace: bool) -> Result<(), SandboxError> {
    let mounts = Mounts { user_namespace };
    mounts.check("create a mount namespace", unshare(CloneFlags::CLONE_NEWNS))?;
    // Separate the mounts of the sandbox from the mounts of the machine, in both directions.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mounts.check(
        "make all mounts private",
        mount(NOTHING, "/", NOTHING, private, NOTHING),
    )?;
    mounts.proc()?;
    // Open each source before a tmpfs can hide it.
    let sources = config.binds.iter().map(|(from, to)| mounts.open(from, to));
    let sources = sources.collect::<Result<Vec<File>, SandboxError>>()?;
    for path in &config.tmpfs {
        mounts.tmpfs(&resolve_links(path), config)?;
    }
    for (source, (from, to)) in sources.iter().zip(&config.binds) {
        mounts.bind(source, from, to, config)?;
    }
    Ok(())
}

struct Mounts {
    user_namespace: bool,
}

impl Mounts {
    fn check<T>(
        &self,
        action: impl Into<String>,
        result: Result<T, Errno>,
    ) -> Result<T, SandboxError> {
        result.map_err(|errno| SandboxError::Kernel {
            action: action.into(),
            errno,
            user_namespace: self.user_namespace,
        })
    }

    /// Mounts a /proc with the processes of the sandbox.
    fn proc(&self) -> Result<(), SandboxError> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        self.check(
            "mount /proc (in a container that hides parts of /proc, only root can)",
            mount(Some("proc"), "/proc", Some("proc"), flags, NOTHING),
        )
    }

    fn tmpfs(&self, path: &Path, config: &SandboxConfig) -> Result<(), SandboxError> {
        // A link can lead into another, empty tmpfs.
        if within(path, &config.tmpfs) && !path.exists() {
            self.check(
                format!("create the directory {}", path.display()),
                fs::create_dir_all(path).map_err(|error| to_errno(&error)),
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

    fn open(&self, from: &Path, to: &Path) -> Result<File, SandboxError> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(from);
        opened.map_err(|error| self.absent_or(to_errno(&error), from, from, to))
    }

    fn bind(
        &self,
        source: &File,
        from: &Path,
        to: &Path,
        config: &SandboxConfig,
    ) -> Result<(), SandboxError> {
        let target = resolve_links(to);
        if !target.exists() && within(&target, &config.tmpfs) {
            self.check(
                format!("create {}", target.display()),
                make_like(source, &target).map_err(|error| to_errno(&error)),
            )?;
        }
        let opened = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
        // Recursive: an ordinary user must not uncover files below a mount.
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&opened), &target, NOTHING, flags, NOTHING)
            .map_err(|errno| self.absent_or(errno, to, from, to))
    }

    fn absent_or(&self, errno: Errno, absent: &Path, from: &Path, to: &Path) -> SandboxError {
        if errno == Errno::ENOENT {
            return SandboxError::Absent {
                from: from.into(),
                to: to.into(),
                absent: absent.into(),
            };
        }
        SandboxError::Kernel {
            action: format!("bind {} over {}", from.display(), to.display()),
            errno,
            user_namespace: self.user_namespace,
        }
    }
}

/// Resolves symbolic links, also dangling ones: on many machines /etc/resolv.conf is a link into /run, where a tmpfs
/// hides its target.
fn resolve_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&path) else {
            break;
        };
        path = normal(&path.parent().unwrap_or(Path::new("/")).join(next));
    }
    path
}

/// Returns the path without `..`, from its text alone.
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

fn within(path: &Path, directories: &[PathBuf]) -> bool {
    directories
        .iter()
        .any(|directory| path.starts_with(directory) && path != directory)
}

/// Creates an empty file or directory, like the source.
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
    fn dot_segments_of_paths_are_resolved() {
        check("/etc/../run/systemd/x", "/run/systemd/x");
        check("/etc/./x", "/etc/x");
        check("/../../x", "/x");
    }

    #[test]
    fn mount_points_are_created_only_inside_a_tmpfs() {
        let directories = [PathBuf::from("/run")];
        assert!(within(Path::new("/run/a/b"), &directories));
        assert!(
            !within(Path::new("/run"), &directories),
            "it is mounted on itself"
        );
        assert!(!within(Path::new("/runner"), &directories));
    }
}
