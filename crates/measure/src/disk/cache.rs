//! The page cache: removing a file from it, and counting its pages there.

use std::fs::File;
use std::io;

use venturi_linux::{Residency, discard};

/// Above this share of resident pages a buffered read counts as cached: the kernel can prefetch or keep a few pages.
pub(super) const CACHED_RATIO: f64 = 0.01;

/// Writes a file back and removes its pages from the cache.
pub(super) fn evict(file: &File) -> io::Result<()> {
    file.sync_data()?;
    discard(file)
}

/// Fraction of a file's pages in the page cache; `None` for an empty file, or if the kernel does not report it.
pub(super) fn resident_ratio(file: &File) -> Option<f64> {
    Residency::of(file)?.ratio()
}
