//! The bytes of one connection as blocks.

use super::header::{HEADER_BYTES, Header};
use crate::Error;

/// What a connection says next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// The consumed bytes belong here.
    Payload {
        /// Position of the first of them.
        offset: u64,
    },
    /// How many connections carry this file.
    EndOfFile {
        /// Their number.
        connections: u64,
    },
    /// This connection carries no more of this file.
    EndOfData,
    /// The sender closes the connection.
    Close,
}

/// One step of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are used up.
    pub consumed: usize,
    /// What they say; nothing where a header is not whole.
    pub item: Option<Item>,
}

/// Reads one connection. Holds a header, never payload: that stays where the driver has it.
#[derive(Debug, Default)]
pub struct Decoder {
    raw: [u8; HEADER_BYTES],
    have: usize,
    /// The block that is being read; its count and offset move on with the bytes.
    block: Option<Header>,
}

impl Decoder {
    /// Takes from `input` what belongs together. To be called again until it consumes nothing and says nothing.
    ///
    /// # Errors
    /// A header that cannot be, after which the connection is lost: where the next one begins is unknown.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Error> {
        let Some(block) = &mut self.block else {
            return self.read_header(input);
        };
        if let Some(connections) = block.end_of_file.take() {
            return Ok(said(Item::EndOfFile { connections }));
        }
        if block.count > 0 {
            let consumed =
                usize::try_from(block.count).map_or(input.len(), |count| count.min(input.len()));
            let offset = block.offset;
            block.offset += consumed as u64;
            block.count -= consumed as u64;
            let item = (consumed > 0).then_some(Item::Payload { offset });
            return Ok(Step { consumed, item });
        }
        if std::mem::take(&mut block.end_of_data) {
            return Ok(said(Item::EndOfData));
        }
        let close = block.close;
        self.block = None;
        if close {
            return Ok(said(Item::Close));
        }
        self.read_header(input)
    }

    /// Passes over payload that the driver moves without showing it, and tells the position of the first byte. Nothing: there is less.
    pub fn pass(&mut self, bytes: u64) -> Option<u64> {
        let block = self.block.as_mut()?;
        block.count = block.count.checked_sub(bytes)?;
        let offset = block.offset;
        block.offset += bytes;
        Some(offset)
    }

    /// Bytes that the current block still has, for a driver that moves them straight to where they belong.
    #[must_use]
    pub fn remaining_bytes(&self) -> u64 {
        self.block.map_or(0, |block| block.count)
    }

    /// Whether the connection may end here: between two blocks.
    #[must_use]
    pub fn is_between_blocks(&self) -> bool {
        let done = self
            .block
            .is_none_or(|block| block.count == 0 && !block.end_of_data);
        done && self.have == 0
    }

    fn read_header(&mut self, input: &[u8]) -> Result<Step, Error> {
        let consumed = input.len().min(HEADER_BYTES - self.have);
        self.raw[self.have..self.have + consumed].copy_from_slice(&input[..consumed]);
        self.have += consumed;
        if self.have == HEADER_BYTES {
            self.block = Some(Header::parse(&self.raw)?);
            self.have = 0;
        }
        Ok(Step {
            consumed,
            item: None,
        })
    }
}

fn said(item: Item) -> Step {
    Step {
        consumed: 0,
        item: Some(item),
    }
}
