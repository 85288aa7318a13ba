//! Blocks of a file system against those of a tool.

/// The time that a byte waits for blocks to be found, where a tool asks for b bytes and goes on when it has them: t / max(b, B).
///
/// `B` is the block of the file system (`block_bytes`), t the time until one has been found (`block_s`). Of a smaller request, each block is
/// found once and the next requests have it from the cache of the file system; of a larger one, its blocks are looked for together. Bytes then
/// take their time at the rate of the path besides: 1/x = 1/r + t / max(b, B).
///
/// Source: the sum of times. Range: one request at a time, blocks that stay in the cache until they are used up, as many disks as a request
/// has blocks. What reads ahead hides this.
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
