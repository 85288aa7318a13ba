//! Content of written blocks.

use std::io;

use venturi_linux::{ALIGNMENT, AlignedBuffer};

use crate::random::SplitMix;

/// Blocks of incompressible data that differ from each other, at the cost of a few instructions per 4 KiB.
///
/// A disk or file system that compresses or removes duplicates gains nothing: no two 4 KiB have the same content.
#[derive(Debug)]
pub(super) struct Content {
    buffer: AlignedBuffer,
    stamp: u64,
}

impl Content {
    /// Content of blocks of `block_bytes`, a multiple of [`ALIGNMENT`].
    ///
    /// # Errors
    /// If the host has no memory for a block.
    pub(super) fn new(block_bytes: usize, seed: u64) -> io::Result<Self> {
        let mut buffer = AlignedBuffer::new(block_bytes)?;
        SplitMix::new(seed).fill(&mut buffer);
        Ok(Self {
            buffer,
            stamp: seed,
        })
    }

    /// The next block.
    pub(super) fn next(&mut self) -> &[u8] {
        for page in self.buffer.as_chunks_mut::<ALIGNMENT>().0 {
            self.stamp = self.stamp.wrapping_add(1);
            // Several places, so that no window of a compressor sees two equal pages.
            for word in page.as_chunks_mut::<512>().0 {
                let stamp = self.stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                word[..8].copy_from_slice(&stamp.to_ne_bytes());
            }
        }
        &self.buffer
    }
}
