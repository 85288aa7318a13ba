//! The page cache: removing files from it, reading files into it, and measuring the result.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use venturi_linux::Residency;

use crate::activity::ActivityMonitor;

/// Below this fraction of resident pages, files count as cold. Not 0, because the kernel can keep
/// or prefetch single pages.
pub(crate) const COLD_RATIO: f64 = 0.01;

/// From this fraction on, files count as warm.
pub(crate) const WARM_RATIO: f64 = 0.99;

/// Method that emptied the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropMethod {
    /// All clean pages of the host, through `/proc/sys/vm/drop_caches`.
    DropCaches,
    /// The pages of these files, by advice to the kernel.
    Fadvise,
}

impl DropMethod {
    /// Returns its name in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DropCaches => "drop_caches",
            Self::Fadvise => "fadvise",
        }
    }
}

/// Write dirty pages back and remove the pages of these files from the cache. The kernel can keep
/// pages: [`residency`] counts them.
///
/// # Errors
/// If a file cannot be opened.
pub(crate) fn drop_files(files: &[PathBuf], activity: &ActivityMonitor) -> io::Result<DropMethod> {
    if let Some(first) = files.first() {
        let file = File::open(first)?;
        // SAFETY: the descriptor is open for the length of the call. Only clean pages can be dropped.
        Errno::result(unsafe { libc::syncfs(file.as_raw_fd()) })?;
    }
    // 3: pages and also directory entries and inodes, like on a client that never accessed the
    // files.
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok(DropMethod::DropCaches);
    }
    for path in files {
        if !activity.beat() {
            break;
        }
        let file = File::open(path)?;
        // This is only advice; remaining pages are counted afterwards.
        let _ = venturi_linux::discard(&file);
    }
    Ok(DropMethod::Fadvise)
}

/// Reads all of these files with several threads, which leaves them in the cache if they fit.
///
/// # Errors
/// The first error of a thread.
pub(crate) fn read_files(
    files: &[PathBuf],
    threads: usize,
    activity: &ActivityMonitor,
) -> io::Result<()> {
    const BLOCK_BYTES: usize = 1 << 20;
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut file = File::open(path)?;
            while file.read(&mut block)? > 0 {
                if !activity.beat() {
                    return Ok(());
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.clamp(1, files.len().max(1)))
            .map(|_| scope.spawn(work))
            .collect();
        running.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
        })
    })
}

/// Counts the pages of the files in the page cache; `None` if a file cannot be opened or the kernel does not report them.
pub(crate) fn residency(files: &[PathBuf]) -> Option<Residency> {
    let mut total = Residency::default();
    for path in files {
        total += Residency::of(&open_quietly(path).ok()?)?;
    }
    Some(total)
}

/// Open without an update of the access time, if the owner may request that: reading must not change the file system.
fn open_quietly(path: &Path) -> io::Result<File> {
    let quiet = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOATIME)
        .open(path);
    quiet.or_else(|_| File::open(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_several_files_are_added() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = [1, 3_000_001].map(|bytes| {
            let path = directory.path().join(bytes.to_string());
            std::fs::write(&path, vec![1; bytes]).expect("a file");
            path
        });
        let [one, other] = files
            .each_ref()
            .map(|path| residency(std::slice::from_ref(path)).expect("the kernel counts"));
        let both = residency(&files).expect("the kernel counts");
        assert_eq!(both.pages, one.pages + other.pages);
        assert_eq!(both.ratio(), Some(1.0));
    }

    #[test]
    fn empty_files_have_no_ratio_and_missing_files_no_residency() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("empty");
        std::fs::write(&path, "").expect("a file");
        assert_eq!(residency(&[path]).map(Residency::ratio), Some(None));
        assert_eq!(residency(&[directory.path().join("absent")]), None);
    }
}
