//! Totals of a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

/// Totals of a copy so far.
#[derive(Debug, Default)]
pub struct CopyTotals {
    /// Files that were created or replaced.
    pub files: AtomicU64,
    /// Sizes of these files, bytes.
    pub bytes: AtomicU64,
    /// Bytes that were read and written, or copied by the kernel; without holes and clones.
    pub moved_bytes: Arc<AtomicU64>,
    /// Existing files that were kept.
    pub kept: AtomicU64,
    /// Directories.
    pub directories: AtomicU64,
    /// Symbolic links, pipes, sockets, devices.
    pub links: AtomicU64,
    /// Names that became hard links to a copied file.
    pub hard_links: AtomicU64,
    /// Names of hard-linked files that became separate copies.
    pub hard_links_copied: AtomicU64,
    /// Files that cannot be copied, or were not requested.
    pub skipped: AtomicU64,
    /// Errors.
    pub failed: AtomicU64,
}

impl CopyTotals {
    pub(crate) fn count(&self, what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
    }

    /// True if at least one file was copied or kept.
    pub(crate) fn has_any(&self) -> bool {
        let all = [
            &self.files,
            &self.kept,
            &self.directories,
            &self.links,
            &self.hard_links,
        ];
        all.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn event(&self, event: &str, elapsed: Duration) -> serde_json::Value {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let elapsed_s = elapsed.as_secs_f64();
        #[allow(
            clippy::cast_precision_loss,
            reason = "a rate needs no more than 15 digits"
        )]
        let rate = if elapsed_s > 0.0 {
            Some(read(&self.moved_bytes) as f64 / elapsed_s)
        } else {
            None
        };
        json!({
            "event": event, "files": read(&self.files), "bytes": read(&self.bytes), "moved_bytes": read(&self.moved_bytes),
            "kept": read(&self.kept), "directories": read(&self.directories), "links": read(&self.links),
            "hard_links": read(&self.hard_links), "hard_links_copied_apart": read(&self.hard_links_copied),
            "skipped": read(&self.skipped), "errors": read(&self.failed), "duration_s": elapsed_s, "rate_bytes_per_s": rate,
        })
    }
}
