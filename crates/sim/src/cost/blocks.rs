//! Waits for blocks of a file system.

/// Return the wait per byte for blocks, if a tool requests b bytes at a time and continues when it
/// has them: t / max(b, B).
///
/// `B` is the block size of the file system (`block_bytes`), t the time to find a block
/// (`block_s`). For smaller requests, each block is found once, and the next requests get it from
/// the cache of the file system. For larger requests, the blocks are looked up together. Bytes take
/// additional time at the rate of the path: 1/x = 1/r + t / max(b, B).
///
/// Source: the sum of times. Range: one request at a time, blocks that stay in the cache until they
/// are used, and as many disks as a request has blocks. Read-ahead hides this wait.
///
/// ```
/// use venturi_sim::cost::block_wait_s;
/// assert_eq!(block_wait_s(64e3, 1e6, 0.005), 5e-9);
/// assert_eq!(block_wait_s(4e6, 1e6, 0.005), 1.25e-9);
/// ```
#[must_use]
pub fn block_wait_s(request_bytes: f64, block_bytes: f64, block_s: f64) -> f64 {
    block_s / request_bytes.max(block_bytes)
}
