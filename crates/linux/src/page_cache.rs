//! The page cache: the pages of a file in it, and their removal.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Pages of files in the page cache, and all their pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages in the cache.
    pub resident: u64,
    /// All pages of the files.
    pub pages: u64,
}

impl std::ops::AddAssign for Residency {
    fn add_assign(&mut self, other: Self) {
        self.resident += other.resident;
        self.pages += other.pages;
    }
}

impl Residency {
    /// Counts the pages of an open file; `None` if the kernel does not report them.
    ///
    /// It covers the cache of the kernel only: GPFS, for example, has its own, which no system call shows.
    #[must_use]
    pub fn of(file: &File) -> Option<Self> {
        let size = file.metadata().ok()?.len();
        Some(Self {
            resident: resident_pages(file, size)?,
            pages: size.div_ceil(page_bytes()),
        })
    }

    /// Fraction of resident pages, from 0 to 1; `None` for files without a page.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a fraction needs no more than 53 bits"
    )]
    #[must_use]
    pub fn ratio(self) -> Option<f64> {
        (self.pages > 0).then(|| self.resident as f64 / self.pages as f64)
    }
}

/// Removes the clean pages of a file from the cache. Dirty pages stay: write them back first.
///
/// # Errors
/// Of the kernel. Without an error pages can stay, too: check with [`Residency::of`].
pub fn discard(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open through the call; a length of 0 means up to the end.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// `size` is that of the file; a file without a page has nothing to count.
fn resident_pages(file: &File, size: u64) -> Option<u64> {
    if size == 0 {
        return Some(0);
    }
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
    // SAFETY: both structures have the layout of linux/mman.h and live through the call; an older kernel returns
    // ENOSYS.
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
    // SAFETY: the mapping made above, without other references.
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
    fn both_counting_methods_agree_on_a_newly_written_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        std::fs::write(&path, vec![1; 3_000_001]).expect("a file");
        let file = File::open(&path).expect("the file");
        let pages = 3_000_001_u64.div_ceil(page_bytes());
        assert_eq!(mincore(&file, 3_000_001), Some(pages));
        assert!(cachestat(&file).is_none_or(|cached| cached == pages));
        let all = Residency {
            resident: pages,
            pages,
        };
        assert_eq!(Residency::of(&file), Some(all));
        assert_eq!(all.ratio(), Some(1.0));
    }

    #[test]
    fn an_empty_file_has_no_page_and_no_ratio() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("empty");
        let file = File::create_new(&path).expect("a file");
        assert_eq!(Residency::of(&file), Some(Residency::default()));
        assert_eq!(Residency::default().ratio(), None);
    }
}
