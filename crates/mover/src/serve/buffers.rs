//! Memory for data that are on their way to a disk: so many buffers and no more, used again and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a buffer: large enough that a write is worth its system call, small enough for a second-level cache.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;
/// Free buffers that are kept.
const KEPT: usize = 64;

/// Buffers. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Buffers(Arc<Mutex<Pool>>);

#[derive(Debug)]
struct Pool {
    free: Vec<Box<[u8]>>,
    /// That may still be made.
    left: usize,
}

/// Bytes of a small buffer, which is no part of the pool.
const SMALL_BYTES: usize = 4096;

/// A buffer, which goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    pool: Buffers,
    pooled: bool,
}

impl Buffers {
    /// As many as fit into so many bytes; at least one.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let count = memory_bytes / BUFFER_BYTES as u64;
        Self(Arc::new(Mutex::new(Pool {
            free: Vec::new(),
            left: usize::try_from(count).unwrap_or(usize::MAX).max(1),
        })))
    }

    /// A buffer of the pool; a small one where all are in use. Whoever holds them, and however long, nobody waits for them: he moves less at a time.
    pub(crate) fn take(&self) -> Buffer {
        let mut pool = self.lock();
        let bytes = match pool.free.pop() {
            Some(bytes) => bytes,
            None if pool.left == 0 => {
                drop(pool);
                return self.small();
            }
            None => {
                pool.left -= 1;
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

    /// A small buffer, for what comes before it is wanted; always there.
    pub(crate) fn small(&self) -> Buffer {
        Buffer {
            bytes: vec![0; SMALL_BYTES].into_boxed_slice(),
            pool: self.clone(),
            pooled: false,
        }
    }

    /// A buffer of its own beside the pool, for bytes that are there already and have to stay somewhere.
    pub(crate) fn holding(&self, bytes: &[u8]) -> Buffer {
        let mut held = vec![0; bytes.len() + SMALL_BYTES].into_boxed_slice();
        held[..bytes.len()].copy_from_slice(bytes);
        Buffer {
            bytes: held,
            pool: self.clone(),
            pooled: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
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
            pool.left += 1;
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
    fn there_are_so_many_large_buffers_and_beyond_them_small_ones() {
        let buffers = Buffers::new(2 * BUFFER_BYTES as u64 + 1);
        let sizes = |held: &[Buffer]| held.iter().map(|it| it.len()).collect::<Vec<_>>();
        let mut held: Vec<_> = (0..3).map(|_| buffers.take()).collect();
        assert_eq!(sizes(&held), [BUFFER_BYTES, BUFFER_BYTES, SMALL_BYTES]);
        held.remove(0);
        held.push(buffers.take());
        assert_eq!(sizes(&held), [BUFFER_BYTES, SMALL_BYTES, BUFFER_BYTES]);
        // Small ones that go make no room for large ones.
        held.remove(1);
        assert_eq!(buffers.take().len(), SMALL_BYTES);
    }

    #[test]
    fn what_has_to_stay_is_held_with_room_for_more() {
        let held = Buffers::new(0).holding(b"tail");
        assert!(held.starts_with(b"tail") && held.len() > 4);
    }
}
