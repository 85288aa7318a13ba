//! Fixed number of blocks between network and disk, so that the slow side limits the fast one.

use std::ops::Deref;
use std::task::{Context, Poll};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Pool of blocks that return when their last reader drops them.
#[derive(Debug)]
pub(crate) struct Buffers {
    block_bytes: usize,
    /// Number of blocks that can still be allocated.
    left: usize,
    spare: Vec<Vec<u8>>,
    /// Small copies in use.
    little: usize,
    home: UnboundedSender<Vec<u8>>,
    returned: UnboundedReceiver<Vec<u8>>,
}

/// Data in a block. The block returns to the pool when this is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    length: usize,
    home: UnboundedSender<Vec<u8>>,
}

/// Data that fills less than this part of a block is copied, so that it does not occupy a block.
const BLOCK_FRACTION: usize = 4;
/// Maximum number of such copies: a slow disk must also limit a network that delivers little data at a time.
const MAX_SMALL_READS: usize = 256;

impl Buffers {
    pub(crate) fn new(block_bytes: usize, blocks: usize) -> Self {
        let (home, returned) = unbounded_channel();
        Self {
            block_bytes,
            left: blocks.max(1),
            spare: Vec::new(),
            little: 0,
            home,
            returned,
        }
    }

    /// Returns a free block as soon as there is one.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        while let Poll::Ready(Some(bytes)) = self.returned.poll_recv(cx) {
            if bytes.len() == self.block_bytes {
                self.spare.push(bytes);
            } else {
                self.little -= 1;
            }
        }
        // The last returned block is still in a cache of the CPU.
        if let Some(spare) = self.spare.pop() {
            return Poll::Ready(spare);
        }
        if self.left == 0 {
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(vec![0; self.block_bytes])
    }

    /// Returns an unused block to the pool.
    pub(crate) fn put_back(&mut self, block: Vec<u8>) {
        self.spare.push(block);
    }

    /// Returns the first `length` bytes of a block as data.
    pub(crate) fn filled(&mut self, block: Vec<u8>, length: usize) -> Block {
        let little = length < block.len() / BLOCK_FRACTION && self.little < MAX_SMALL_READS;
        let bytes = if little {
            self.little += 1;
            let bytes = block[..length].to_vec();
            self.spare.push(block);
            bytes
        } else {
            block
        };
        Block {
            bytes,
            length,
            home: self.home.clone(),
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // The pool can be gone already.
        let _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn no_more_blocks_are_lent_than_allowed_until_one_is_returned() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffers = Buffers::new(8, 2);
        let mut take = |buffers: &mut Buffers| match buffers.poll_take(&mut cx) {
            Poll::Ready(block) => Some(block),
            Poll::Pending => None,
        };
        let first = take(&mut buffers).expect("one");
        let second = take(&mut buffers).expect("another");
        assert!(take(&mut buffers).is_none());
        let first = buffers.filled(first, 8);
        assert_eq!(&first[..], [0; 8]);
        drop(first);
        assert!(take(&mut buffers).is_some());
        buffers.put_back(second);
        assert!(take(&mut buffers).is_some());
    }

    #[test]
    fn a_small_read_does_not_hold_a_block() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffers = Buffers::new(8, 1);
        let Poll::Ready(mut block) = buffers.poll_take(&mut cx) else {
            panic!("one is allowed");
        };
        block[0] = 7;
        let little = buffers.filled(block, 1);
        assert_eq!(&little[..], [7]);
        assert!(buffers.poll_take(&mut cx).is_ready());
    }

    #[test]
    fn the_number_of_small_reads_is_limited_too() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffers = Buffers::new(8, 2);
        let mut held = Vec::new();
        while let Poll::Ready(block) = buffers.poll_take(&mut cx) {
            held.push(buffers.filled(block, 1));
            assert!(held.len() <= MAX_SMALL_READS + 2);
        }
        assert_eq!(held.len(), MAX_SMALL_READS + 2);
        held.clear();
        assert!(buffers.poll_take(&mut cx).is_ready());
    }
}
