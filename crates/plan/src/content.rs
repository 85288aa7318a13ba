//! Content of generated files: incompressible bytes that are equal on all hosts.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Bytes of file number `index` of a dataset: the ChaCha8 stream `index` with the seed of the dataset in its key. No two
/// files have equal parts, and no compression or deduplication helps.
///
/// ```
/// # use venturi_plan::FileContent;
/// let (mut whole, mut parts) = ([0; 100], [0; 100]);
/// FileContent::new(1, 0).fill(&mut whole);
/// let mut content = FileContent::new(1, 0);
/// let (first, second) = parts.split_at_mut(64);
/// content.fill(first);
/// content.fill(second);
/// assert_eq!(whole, parts);
/// ```
#[derive(Debug, Clone)]
pub struct FileContent(ChaCha8Rng);

impl FileContent {
    /// Start at the first byte of a file. Part of the format: another stream would invalidate all existing datasets.
    #[must_use]
    pub fn new(seed: u64, index: u64) -> Self {
        let mut key = *b"--------venturi data set, v. 1--";
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut content = ChaCha8Rng::from_seed(key);
        content.set_stream(index);
        Self(content)
    }

    /// Fill a block with the next bytes. The length of each block except the last must be a multiple of 4: the generator
    /// discards the rest of a word.
    pub fn fill(&mut self, block: &mut [u8]) {
        self.0.fill_bytes(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_part_of_the_format() {
        let mut bytes = [0; 8];
        FileContent::new(1, 0).fill(&mut bytes);
        assert_eq!(u64::from_le_bytes(bytes), CONTENT_OF_SEED_1);
    }

    /// Pinned: a change of the generator would silently invalidate every dataset on every disk.
    const CONTENT_OF_SEED_1: u64 = 16_901_398_052_079_749_393;
}
