//! Memory that a block of a file passes through.

use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};
use rustix::io::Errno;

/// What a processor maps at once, on the machines that there are. Where memory lies in such pieces, what goes past the page cache becomes requests of
/// megabytes: in pages of 4 KiB a request has room for some hundreds, and a copy took 1.8 times as long (`bench/mover.py`).
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory, as `O_DIRECT` asks for it: it begins with a page, and has whole ones. Pages that nobody writes to cost nothing.
#[derive(Debug)]
pub(crate) struct Block {
    mapping: MmapMut,
    start: usize,
    length: usize,
}

impl Block {
    /// Memory for so many bytes, or some more.
    ///
    /// # Errors
    /// What the kernel says; there may be no such memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        let length = bytes.next_multiple_of(super::lane::ALIGNMENT);
        let huge = length >= HUGE_PAGE;
        let margin = if huge { HUGE_PAGE } else { 0 };
        let mapping = MmapMut::map_anon(length + margin);
        let mapping =
            mapping.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
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

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.mapping[self.start..self.start + self.length]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.mapping[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::lane::ALIGNMENT;

    #[test]
    fn a_block_has_the_room_and_the_alignment_that_were_asked_for() {
        for (bytes, room) in [
            (1, ALIGNMENT),
            (256 << 10, 256 << 10),
            (HUGE_PAGE - 1, HUGE_PAGE),
            ((4 << 20) + 1, (4 << 20) + ALIGNMENT),
        ] {
            let mut block = Block::new(bytes).expect("memory");
            let aligned = if room < HUGE_PAGE {
                ALIGNMENT
            } else {
                HUGE_PAGE
            };
            assert_eq!(block.as_ptr().align_offset(aligned), 0);
            assert_eq!(block.len(), room);
            block.fill(1);
        }
    }

    #[test]
    fn memory_that_nobody_has_is_an_error() {
        assert_eq!(Block::new(1 << 60).err(), Some(Errno::NOMEM));
    }
}
