//! Memory between the network and the disk: a fixed number of blocks, so that a slow side holds the fast one back.

use std::ops::Deref;
use std::task::{Context, Poll};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Blocks that come back when nobody reads them any more.
#[derive(Debug)]
pub(crate) struct Buffers {
    block_bytes: usize,
    /// Blocks that may still be made.
    left: usize,
    spare: Vec<Vec<u8>>,
    /// Small copies that nobody has let go yet.
    little: usize,
    home: UnboundedSender<Vec<u8>>,
    returned: UnboundedReceiver<Vec<u8>>,
}

/// What was read into a block. It goes home when it is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    length: usize,
    home: UnboundedSender<Vec<u8>>,
}

/// What fills less of a block than this part is copied out, for the block would hold much memory for little.
const WORTH_A_BLOCK: usize = 4;
/// Most such copies: a slow disk must hold back a network that brings a little at a time, too.
const MOST_LITTLE: usize = 256;

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

    /// A block to be written to, as soon as there is one.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        while let Poll::Ready(Some(bytes)) = self.returned.poll_recv(cx) {
            if bytes.len() == self.block_bytes {
                self.spare.push(bytes);
            } else {
                self.little -= 1;
            }
        }
        // The last that came back: it is still in a cache of the processor.
        if let Some(spare) = self.spare.pop() {
            return Poll::Ready(spare);
        }
        if self.left == 0 {
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(vec![0; self.block_bytes])
    }

    /// Gives back one that was not used.
    pub(crate) fn put_back(&mut self, block: Vec<u8>) {
        self.spare.push(block);
    }

    /// What was read: `length` bytes of a block.
    pub(crate) fn filled(&mut self, block: Vec<u8>, length: usize) -> Block {
        let little = length < block.len() / WORTH_A_BLOCK && self.little < MOST_LITTLE;
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
        // Whose blocks they were may be gone.
        let _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn there_are_no_more_blocks_than_were_allowed_until_one_comes_back() {
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
    fn little_does_not_hold_a_block() {
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
    fn a_network_that_brings_little_at_a_time_is_held_back_too() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffers = Buffers::new(8, 2);
        let mut held = Vec::new();
        while let Poll::Ready(block) = buffers.poll_take(&mut cx) {
            held.push(buffers.filled(block, 1));
            assert!(held.len() <= MOST_LITTLE + 2);
        }
        assert_eq!(held.len(), MOST_LITTLE + 2);
        held.clear();
        assert!(buffers.poll_take(&mut cx).is_ready());
    }
}
