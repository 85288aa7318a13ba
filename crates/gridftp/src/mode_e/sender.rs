//! Files as blocks, distributed over connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::header::{BlockHeader, HEADER_BYTES};
use crate::ByteRanges;

/// Next block of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutgoingBlock {
    /// The header, then these bytes of the file.
    Block {
        /// The header.
        header: [u8; HEADER_BYTES],
        /// Number of the file, from 0, in the order of [`BlockSender::admit`].
        file: u64,
        /// Position of the first byte in the file.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A header without bytes.
    End {
        /// The header.
        header: [u8; HEADER_BYTES],
        /// Number of the file that ends on this connection.
        file: u64,
    },
}

#[derive(Debug)]
struct Outgoing {
    ranges: VecDeque<Range<u64>>,
    /// File position of offset 0 on the wire.
    base: u64,
    /// `true` if more ranges can follow.
    growing: bool,
    ends: usize,
    /// Stripes that received the number of ends of data.
    announced_stripes: BTreeSet<u16>,
}

#[derive(Debug)]
struct Connection {
    stripe: u16,
    /// Current file.
    file: u64,
}

/// All connections of a sender, between two PORT or PASV commands. Every connection carries at
/// least the end of every file.
#[derive(Debug)]
pub struct BlockSender {
    block_bytes: u64,
    connections: BTreeMap<u64, Connection>,
    /// Number of connections of each stripe.
    stripes: BTreeMap<u16, u64>,
    /// Files that have not ended on all connections.
    files: BTreeMap<u64, Outgoing>,
    admitted: u64,
}

impl BlockSender {
    /// Creates a sender over these connections, with blocks of at most `block_bytes`.
    #[must_use]
    pub fn new(connections: impl IntoIterator<Item = u64>, block_bytes: u64) -> Self {
        Self::striped(connections.into_iter().map(|one| (one, 0)), block_bytes)
    }

    /// Creates a sender over connections to several receivers of one file, each with the stripe
    /// number of its receiver. Any stripe can get any block. Each stripe receives its number of
    /// connections.
    #[must_use]
    pub fn striped(connections: impl IntoIterator<Item = (u64, u16)>, block_bytes: u64) -> Self {
        let mut sender = Self {
            block_bytes: block_bytes.max(1),
            connections: BTreeMap::new(),
            stripes: BTreeMap::new(),
            files: BTreeMap::new(),
            admitted: 0,
        };
        for (connection, stripe) in connections {
            *sender.stripes.entry(stripe).or_default() += 1;
            let state = Connection { stripe, file: 0 };
            sender.connections.insert(connection, state);
        }
        sender
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Adds a file, or only its missing ranges, and returns its number. `base` is the file position
    /// of offset 0 on the wire.
    pub fn admit(&mut self, ranges: &ByteRanges, base: u64) -> u64 {
        self.add(ranges.iter().collect(), base, false)
    }

    /// Adds a file that grows while it is sent, such as a listing. Returns its number.
    pub fn admit_growing(&mut self) -> u64 {
        self.add(VecDeque::new(), 0, true)
    }

    /// Adds bytes to a growing file; `last` completes it.
    pub fn extend(&mut self, file: u64, range: Range<u64>, last: bool) {
        if let Some(outgoing) = self
            .files
            .get_mut(&file)
            .filter(|outgoing| outgoing.growing)
        {
            outgoing.ranges.push_back(range);
            outgoing.growing = !last;
        }
    }

    /// Returns `true` if the file has ended on all connections.
    #[must_use]
    pub fn is_sent(&self, file: u64) -> bool {
        file < self.admitted && !self.files.contains_key(&file)
    }

    /// Returns the next block to send on a connection; `None` if there is none yet.
    pub fn poll(&mut self, connection: u64) -> Option<OutgoingBlock> {
        let count = self.connections.len();
        let state = self.connections.get_mut(&connection)?;
        let number = state.file;
        let outgoing = self.files.get_mut(&number)?;
        if let Some((offset, bytes)) = outgoing.next_block(self.block_bytes) {
            let header = BlockHeader {
                count: bytes,
                offset: offset.saturating_sub(outgoing.base),
                ..BlockHeader::default()
            };
            let header = header.write();
            return Some(OutgoingBlock::Block {
                header,
                file: number,
                offset,
                bytes,
            });
        }
        if outgoing.growing {
            return None;
        }
        let header = BlockHeader {
            end_of_data: true,
            end_of_file: outgoing
                .announced_stripes
                .insert(state.stripe)
                .then(|| self.stripes[&state.stripe]),
            ..BlockHeader::default()
        };
        state.file += 1;
        outgoing.ends += 1;
        if outgoing.ends == count {
            self.files.remove(&number);
        }
        Some(OutgoingBlock::End {
            header: header.write(),
            file: number,
        })
    }

    fn add(&mut self, ranges: VecDeque<Range<u64>>, base: u64, growing: bool) -> u64 {
        let outgoing = Outgoing {
            ranges,
            base,
            growing,
            ends: 0,
            announced_stripes: BTreeSet::new(),
        };
        self.files.insert(self.admitted, outgoing);
        self.admitted += 1;
        self.admitted - 1
    }
}

impl Outgoing {
    fn next_block(&mut self, max_bytes: u64) -> Option<(u64, u64)> {
        while self.ranges.front().is_some_and(Range::is_empty) {
            self.ranges.pop_front();
        }
        let range = self.ranges.front_mut()?;
        let offset = range.start;
        let bytes = (range.end - offset).min(max_bytes);
        range.start += bytes;
        Some((offset, bytes))
    }
}
