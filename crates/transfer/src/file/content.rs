//! Content of a new file: generated, with checksums of the sent bytes, or from a reader.

use std::io::Read;
use std::sync::Arc;

use md5::Md5;
use serde::Serialize;
use sha2::{Digest, Sha256};
use venturi_plan::FileContent;

use crate::checksum::Adler32;
use crate::http::digest::to_hex;

/// Bytes of a block: a multiple of the word of the generator, within the cache of a core.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

/// A file that is to be written.
#[derive(Clone)]
pub(super) struct NewFile {
    pub(super) size_bytes: u64,
    pub(super) content: NewContent,
}

/// Content of a new file.
#[derive(Clone)]
pub(super) enum NewContent {
    /// A file of a dataset.
    Generated { seed: u64, index: u64 },
    /// Bytes of a reader. Each call starts at the first byte: a request can be repeated.
    Reader(Arc<dyn Fn() -> Box<dyn Read + Send> + Send + Sync>),
}

/// Checksums of a file, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Checksums {
    pub(super) adler32: String,
    pub(super) md5: String,
    pub(super) sha256: String,
}

/// Content of a file that is being written, from its start to its end.
pub(super) struct NewFileBlocks {
    source: Source,
    remaining: u64,
}

enum Source {
    Generated(Box<(FileContent, Hashes)>),
    Reader(Box<dyn Read + Send>),
}

#[derive(Default)]
struct Hashes {
    adler32: Adler32,
    md5: Md5,
    sha256: Sha256,
}

impl NewFile {
    /// Start at the first byte.
    pub(super) fn blocks(&self) -> NewFileBlocks {
        NewFileBlocks {
            source: match &self.content {
                NewContent::Generated { seed, index } => Source::Generated(Box::new((
                    FileContent::new(*seed, *index),
                    Hashes::default(),
                ))),
                NewContent::Reader(open) => Source::Reader(open()),
            },
            remaining: self.size_bytes,
        }
    }
}

impl NewFileBlocks {
    /// Return the next block of at most `most` bytes, a multiple of 4; none at the end.
    ///
    /// If a reader fails, the rest of the file is zeros: its owner knows the error and removes the file.
    pub(super) fn next(&mut self, most: usize) -> Option<Vec<u8>> {
        if self.remaining == 0 {
            return None;
        }
        let length = usize::try_from(self.remaining).map_or(most, |remaining| remaining.min(most));
        let mut block = vec![0; length];
        match &mut self.source {
            Source::Generated(generated) => {
                let (content, hashes) = &mut **generated;
                content.fill(&mut block);
                hashes.adler32.update(&block);
                hashes.md5.update(&block);
                hashes.sha256.update(&block);
            }
            Source::Reader(reader) => {
                let _ = reader.read_exact(&mut block);
            }
        }
        self.remaining -= length as u64;
        Some(block)
    }

    /// Return the checksums of all blocks of a generated file.
    pub(super) fn checksums(self) -> Option<Checksums> {
        let Source::Generated(generated) = self.source else {
            return None;
        };
        let (_, hashes) = *generated;
        Some(Checksums {
            adler32: to_hex(&hashes.adler32.value().to_be_bytes()),
            md5: to_hex(&hashes.md5.finalize()),
            sha256: to_hex(&hashes.sha256.finalize()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_independent_of_the_block_size() {
        let file = NewFile {
            size_bytes: 1_000_003,
            content: NewContent::Generated { seed: 7, index: 3 },
        };
        let read = |most| {
            let mut blocks = file.blocks();
            let mut content = Vec::new();
            while let Some(block) = blocks.next(most) {
                content.extend(block);
            }
            (content, blocks.checksums())
        };
        let whole = read(1 << 20);
        assert_eq!(whole.0.len(), 1_000_003);
        assert_eq!(read(4096), whole);
        assert_eq!(read(BLOCK_BYTES), whole);
        assert_eq!(
            whole.1.expect("checksums").adler32,
            format!("{:08x}", Adler32::of(&whole.0).value())
        );
    }
}
