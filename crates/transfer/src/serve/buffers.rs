//! Memory for received data: a fixed number of buffers, which are reused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a buffer: large enough for efficient system calls, small enough for a second-level
/// cache.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum number of free buffers that are kept.
const KEPT: usize = 64;

/// Buffers, shared by all clones.
#[derive(Debug, Clone)]
pub(crate) struct BufferPool(Arc<Mutex<PoolState>>);

#[derive(Debug)]
struct PoolState {
    free: Vec<Box<[u8]>>,
    /// Number of buffers that can still be allocated.
    remaining: usize,
}

/// Bytes of a small buffer, which is not part of the pool.
const SMALL_BYTES: usize = 4096;

/// Buffer that returns to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    pool: BufferPool,
    pooled: bool,
}

impl BufferPool {
    /// Create a pool that fits into this memory, with at least one buffer.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let count = memory_bytes / BUFFER_BYTES as u64;
        Self(Arc::new(Mutex::new(PoolState {
            free: Vec::new(),
            remaining: usize::try_from(count).unwrap_or(usize::MAX).max(1),
        })))
    }

    /// Return a pooled buffer, or a small one if all are in use, so that no connection waits for another.
    pub(crate) fn take(&self) -> Buffer {
        let mut pool = self.lock();
        let bytes = match pool.free.pop() {
            Some(bytes) => bytes,
            None if pool.remaining == 0 => {
                drop(pool);
                return self.small();
            }
            None => {
                pool.remaining -= 1;
                drop(pool);
                vec![0; BUFFER_BYTES].into_boxed_slice()
            }
        };
        Buffer {
            bytes,
            pool: self.clone(),
            pooled: true,
        }
    }

    /// Return a small buffer for early data; always available.
    pub(crate) fn small(&self) -> Buffer {
        Buffer {
            bytes: vec![0; SMALL_BYTES].into_boxed_slice(),
            pool: self.clone(),
            pooled: false,
        }
    }

    /// Return a separate buffer for bytes that must be kept.
    pub(crate) fn holding(&self, bytes: &[u8]) -> Buffer {
        let mut pending = vec![0; bytes.len() + SMALL_BYTES].into_boxed_slice();
        pending[..bytes.len()].copy_from_slice(bytes);
        Buffer {
            bytes: pending,
            pool: self.clone(),
            pooled: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if !self.pooled {
            return;
        }
        let mut pool = self.pool.lock();
        if pool.free.len() < KEPT {
            pool.free.push(bytes);
        } else {
            pool.remaining += 1;
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_limited_and_further_buffers_are_small() {
        let buffers = BufferPool::new(2 * BUFFER_BYTES as u64 + 1);
        let sizes = |pending: &[Buffer]| pending.iter().map(|it| it.len()).collect::<Vec<_>>();
        let mut pending: Vec<_> = (0..3).map(|_| buffers.take()).collect();
        assert_eq!(sizes(&pending), [BUFFER_BYTES, BUFFER_BYTES, SMALL_BYTES]);
        pending.remove(0);
        pending.push(buffers.take());
        assert_eq!(sizes(&pending), [BUFFER_BYTES, SMALL_BYTES, BUFFER_BYTES]);
        // A small buffer does not free a slot of a large one.
        pending.remove(1);
        assert_eq!(buffers.take().len(), SMALL_BYTES);
    }

    #[test]
    fn held_bytes_are_kept_with_capacity_for_more() {
        let pending = BufferPool::new(0).holding(b"tail");
        assert!(pending.starts_with(b"tail") && pending.len() > 4);
    }
}
