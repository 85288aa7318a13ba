//! The page cache: emptying it of some files, filling it with them, and measuring which of the two was achieved.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;

use crate::pulse::Pulse;

/// Below this share of resident pages the files count as cold. Not 0: the kernel may keep or prefetch a stray page.
pub(crate) const COLD_RATIO: f64 = 0.01;

/// From this share on the files count as warm.
pub(crate) const WARM_RATIO: f64 = 0.99;

/// How the cache was emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropMethod {
    /// All clean pages of the host, through `/proc/sys/vm/drop_caches`.
    DropCaches,
    /// The pages of these files, by advice to the kernel.
    Fadvise,
}

impl DropMethod {
    /// The word for it in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DropCaches => "drop_caches",
            Self::Fadvise => "fadvise",
        }
    }
}

/// Writes back what is dirty and empties the cache of these files. Only the order is given; [`residency`] tells
/// what came of it.
///
/// # Errors
/// When a file cannot be opened.
pub(crate) fn drop_files(files: &[PathBuf], pulse: &Pulse) -> io::Result<DropMethod> {
    if let Some(first) = files.first() {
        let file = File::open(first)?;
        // SAFETY: the descriptor is open for the length of the call. Only clean pages can be dropped.
        Errno::result(unsafe { libc::syncfs(file.as_raw_fd()) })?;
    }
    // 3: pages and also directory entries and inodes, as a client that never saw the files would have it.
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok(DropMethod::DropCaches);
    }
    for path in files {
        if !pulse.beat() {
            break;
        }
        let file = File::open(path)?;
        // SAFETY: the descriptor is open for the length of the call; a length of 0 means up to the end.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(DropMethod::Fadvise)
}

/// Reads all of these files with several threads, which leaves them in the cache if they fit.
///
/// # Errors
/// The first that a thread met.
pub(crate) fn read_files(files: &[PathBuf], threads: usize, pulse: &Pulse) -> io::Result<()> {
    const BLOCK_BYTES: usize = 1 << 20;
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut file = File::open(path)?;
            while file.read(&mut block)? > 0 {
                if !pulse.beat() {
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

/// How much of some files is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Residency {
    /// Pages in the cache.
    pub(crate) resident: u64,
    /// Pages that the files have.
    pub(crate) pages: u64,
}

impl Residency {
    /// The share from 0 to 1; none for files without a page.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share needs no more than 53 bits"
    )]
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.pages > 0).then(|| self.resident as f64 / self.pages as f64)
    }
}

/// Counts which pages of the files are in the page cache; none when the kernel does not tell.
///
/// It sees the kernel's cache only: GPFS, for one, keeps its own, which no system call shows.
pub(crate) fn residency(files: &[PathBuf]) -> Option<Residency> {
    let page_bytes = page_bytes();
    let mut told = Residency {
        resident: 0,
        pages: 0,
    };
    for path in files {
        let file = open_quietly(path).ok()?;
        let size = file.metadata().ok()?.len();
        if size > 0 {
            told.resident += resident_pages(&file, size)?;
            told.pages += size.div_ceil(page_bytes);
        }
    }
    Some(told)
}

/// Opens without touching the access time, where the owner may ask for that: looking must not change the file system.
fn open_quietly(path: &Path) -> io::Result<File> {
    let quiet = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOATIME)
        .open(path);
    quiet.or_else(|_| File::open(path))
}

fn resident_pages(file: &File, size: u64) -> Option<u64> {
    cachestat(file).or_else(|| mincore(file, size))
}

/// `cachestat` of Linux 6.5 and later: counts without a mapping.
fn cachestat(file: &File) -> Option<u64> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same number on every architecture
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let range = Range {
        offset: 0,
        length: 0,
    }; // 0: up to the end
    let mut counts = Counts::default();
    // SAFETY: both structures have the layout of linux/mman.h and live through the call; an older kernel says ENOSYS.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0_u32,
        )
    };
    (result == 0).then_some(counts.cached)
}

/// `mincore` over a mapping that is never touched, in windows so that a file of many TB needs no huge table.
fn mincore(file: &File, size: u64) -> Option<u64> {
    const WINDOW_BYTES: u64 = 1 << 30;
    let mut resident = 0;
    let mut offset = 0;
    while offset < size {
        let length = usize::try_from(WINDOW_BYTES.min(size - offset)).ok()?;
        resident += mincore_window(file, offset, length)?;
        offset += WINDOW_BYTES;
    }
    Some(resident)
}

fn mincore_window(file: &File, offset: u64, length: usize) -> Option<u64> {
    let offset = libc::off_t::try_from(offset).ok()?;
    // SAFETY: a new read-only mapping at an address of the kernel's choice; nothing reads through it.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    let mut table = vec![0_u8; length.div_ceil(usize::try_from(page_bytes()).ok()?)];
    // SAFETY: the mapping spans `length` bytes and the table has one byte for each of its pages.
    let result = unsafe { libc::mincore(address, length, table.as_mut_ptr()) };
    // SAFETY: the mapping made above, which nobody else knows of.
    unsafe { libc::munmap(address, length) };
    (result == 0).then(|| table.iter().map(|page| u64::from(page & 1)).sum())
}

fn page_bytes() -> u64 {
    // SAFETY: a query without arguments in memory.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_counting_agree_on_a_file_that_was_just_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data");
        std::fs::write(&path, vec![1; 3_000_001]).expect("a file");
        let file = File::open(&path).expect("the file");
        let pages = 3_000_001_u64.div_ceil(page_bytes());
        assert_eq!(mincore(&file, 3_000_001), Some(pages));
        assert!(cachestat(&file).is_none_or(|cached| cached == pages));
        assert_eq!(
            residency(&[path]),
            Some(Residency {
                resident: pages,
                pages
            })
        );
    }

    #[test]
    fn nothing_to_look_at_is_told_as_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("empty");
        std::fs::write(&path, "").expect("a file");
        assert_eq!(residency(&[path]).map(Residency::ratio), Some(None));
        assert_eq!(residency(&[folder.path().join("absent")]), None);
    }
}
