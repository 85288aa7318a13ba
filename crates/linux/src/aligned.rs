//! Memory for blocks of a file that bypass the page cache (`O_DIRECT`).

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// Alignment of memory, offsets and lengths for `O_DIRECT`: that of all common disks.
pub const ALIGNMENT: usize = 4096;

/// Huge page size of common CPUs. In huge pages, direct I/O becomes requests of megabytes. With pages of 4 KiB a
/// request holds some hundreds, and a copy took 1.8 times as long (`bench/mover.py`).
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed, page-aligned memory of complete pages for `O_DIRECT`. Unwritten pages use no memory.
#[derive(Debug)]
pub struct AlignedBuffer {
    mapping: MmapMut,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Allocates at least this many bytes.
    ///
    /// # Errors
    /// Kernel errors, such as no memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let length = bytes.max(1).next_multiple_of(ALIGNMENT);
        let huge = length >= HUGE_PAGE;
        let margin = if huge { HUGE_PAGE } else { 0 };
        let mapping = MmapMut::map_anon(length + margin)?;
        let mut start = 0;
        if huge {
            // Advice: a kernel that does not take it has small pages, and no other loss.
            let _ = mapping.advise(Advice::HugePage);
            start = mapping.as_ptr().align_offset(HUGE_PAGE);
        }
        Ok(Self {
            mapping,
            start,
            length,
        })
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.mapping[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.mapping[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_requested_size_and_alignment() {
        for (bytes, space) in [
            (1, ALIGNMENT),
            (256 << 10, 256 << 10),
            (HUGE_PAGE - 1, HUGE_PAGE),
            ((4 << 20) + 1, (4 << 20) + ALIGNMENT),
        ] {
            let mut block = AlignedBuffer::new(bytes).expect("memory");
            let aligned = if space < HUGE_PAGE {
                ALIGNMENT
            } else {
                HUGE_PAGE
            };
            assert_eq!(block.as_ptr().align_offset(aligned), 0);
            assert_eq!(block.len(), space);
            block.fill(1);
        }
    }

    #[test]
    fn an_impossible_allocation_is_an_error() {
        let error = AlignedBuffer::new(1 << 60).expect_err("no host has it");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }
}
