//! Decoder of the blocks of one connection.

use super::header::{BlockHeader, HEADER_BYTES};
use crate::FtpError;

/// Next item of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodedItem {
    /// Payload, in the consumed bytes.
    Payload {
        /// File offset of the first byte.
        offset: u64,
    },
    /// End of the file.
    EndOfFile {
        /// Number of connections that carry this file.
        connections: u64,
    },
    /// End of this file on this connection.
    EndOfData,
    /// The sender closes the connection.
    Close,
}

/// Result of one decoding step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeStep {
    /// Consumed bytes of the input.
    pub consumed: usize,
    /// Decoded item; `None` for an incomplete header.
    pub item: Option<DecodedItem>,
}

/// Decodes one connection. Stores a header but no payload, which stays with the driver.
#[derive(Debug, Default)]
pub struct Decoder {
    raw: [u8; HEADER_BYTES],
    have: usize,
    /// Current block; its count and offset advance with the bytes.
    block: Option<BlockHeader>,
}

impl Decoder {
    /// Decodes one item from the start of `input`. Call it until it consumes nothing and returns no
    /// item.
    ///
    /// # Errors
    /// If a header is invalid. The connection is then lost, because the start of the next header is
    /// unknown.
    pub fn step(&mut self, input: &[u8]) -> Result<DecodeStep, FtpError> {
        let Some(block) = &mut self.block else {
            return self.read_header(input);
        };
        if let Some(connections) = block.end_of_file.take() {
            return Ok(item_step(DecodedItem::EndOfFile { connections }));
        }
        if block.count > 0 {
            let consumed =
                usize::try_from(block.count).map_or(input.len(), |count| count.min(input.len()));
            let offset = block.offset;
            block.offset += consumed as u64;
            block.count -= consumed as u64;
            let item = (consumed > 0).then_some(DecodedItem::Payload { offset });
            return Ok(DecodeStep { consumed, item });
        }
        if std::mem::take(&mut block.end_of_data) {
            return Ok(item_step(DecodedItem::EndOfData));
        }
        let close = block.close;
        self.block = None;
        if close {
            return Ok(item_step(DecodedItem::Close));
        }
        self.read_header(input)
    }

    /// Skips payload that the driver moves directly, and returns the offset of its first byte.
    /// `None`: the block has fewer bytes.
    pub fn pass(&mut self, bytes: u64) -> Option<u64> {
        let block = self.block.as_mut()?;
        block.count = block.count.checked_sub(bytes)?;
        let offset = block.offset;
        block.offset += bytes;
        Some(offset)
    }

    /// Returns the remaining bytes of the current block, for a driver that moves them directly to
    /// the file.
    #[must_use]
    pub fn remaining_bytes(&self) -> u64 {
        self.block.map_or(0, |block| block.count)
    }

    /// Returns `true` between two blocks, where the connection is allowed to end.
    #[must_use]
    pub fn is_between_blocks(&self) -> bool {
        let done = self
            .block
            .is_none_or(|block| block.count == 0 && !block.end_of_data);
        done && self.have == 0
    }

    fn read_header(&mut self, input: &[u8]) -> Result<DecodeStep, FtpError> {
        let consumed = input.len().min(HEADER_BYTES - self.have);
        self.raw[self.have..self.have + consumed].copy_from_slice(&input[..consumed]);
        self.have += consumed;
        if self.have == HEADER_BYTES {
            self.block = Some(BlockHeader::parse(&self.raw)?);
            self.have = 0;
        }
        Ok(DecodeStep {
            consumed,
            item: None,
        })
    }
}

fn item_step(item: DecodedItem) -> DecodeStep {
    DecodeStep {
        consumed: 0,
        item: Some(item),
    }
}
