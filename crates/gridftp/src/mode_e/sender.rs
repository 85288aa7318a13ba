//! Files as blocks, over connections that take turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::header::{HEADER_BYTES, Header};
use crate::ByteRanges;

/// What a connection is to send next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// The header, then these bytes of the file.
    Block {
        /// The header.
        header: [u8; HEADER_BYTES],
        /// Number of the file, from 0, in the order of [`Sender::admit`].
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
        /// Number of the file that it ends here.
        file: u64,
    },
}

#[derive(Debug)]
struct Outgoing {
    pieces: VecDeque<Range<u64>>,
    /// Position that counts as 0 on the wire.
    base: u64,
    /// Whether more pieces may come.
    growing: bool,
    ends: usize,
    /// Stripes that were told how many ends there are.
    told: BTreeSet<u16>,
}

#[derive(Debug)]
struct Connection {
    stripe: u16,
    /// The file that it is at.
    file: u64,
}

/// All connections of a sender, from one PORT or PASV to the next. Every connection carries every file, if only its end.
#[derive(Debug)]
pub struct Sender {
    block_bytes: u64,
    connections: BTreeMap<u64, Connection>,
    /// Connections of each stripe.
    stripes: BTreeMap<u16, u64>,
    /// Files that not all connections have ended.
    files: BTreeMap<u64, Outgoing>,
    admitted: u64,
}

impl Sender {
    /// A sender over these connections, in blocks of at most `block_bytes`.
    #[must_use]
    pub fn new(connections: impl IntoIterator<Item = u64>, block_bytes: u64) -> Self {
        Self::striped(connections.into_iter().map(|one| (one, 0)), block_bytes)
    }

    /// A sender over connections to several receivers of one file, each with the number of its receiver: a stripe. Any stripe gets any
    /// block, and each is told how many connections it has.
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

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Adds a file, or those ranges of it that are missing. `base` is the position that counts as 0 on the wire.
    pub fn admit(&mut self, ranges: &ByteRanges, base: u64) -> u64 {
        self.add(ranges.iter().collect(), base, false)
    }

    /// Adds a file that grows while it is sent, such as a listing.
    pub fn admit_growing(&mut self) -> u64 {
        self.add(VecDeque::new(), 0, true)
    }

    /// Adds bytes to a growing file; nothing more comes where `last`.
    pub fn extend(&mut self, file: u64, range: Range<u64>, last: bool) {
        if let Some(outgoing) = self
            .files
            .get_mut(&file)
            .filter(|outgoing| outgoing.growing)
        {
            outgoing.pieces.push_back(range);
            outgoing.growing = !last;
        }
    }

    /// Whether all connections have been given the end of a file.
    #[must_use]
    pub fn is_sent(&self, file: u64) -> bool {
        file < self.admitted && !self.files.contains_key(&file)
    }

    /// What a connection sends next; nothing while there is nothing.
    pub fn poll(&mut self, connection: u64) -> Option<Chunk> {
        let count = self.connections.len();
        let state = self.connections.get_mut(&connection)?;
        let number = state.file;
        let outgoing = self.files.get_mut(&number)?;
        if let Some((offset, bytes)) = outgoing.next_block(self.block_bytes) {
            let header = Header {
                count: bytes,
                offset: offset.saturating_sub(outgoing.base),
                ..Header::default()
            };
            let header = header.write();
            return Some(Chunk::Block {
                header,
                file: number,
                offset,
                bytes,
            });
        }
        if outgoing.growing {
            return None;
        }
        let header = Header {
            end_of_data: true,
            end_of_file: outgoing
                .told
                .insert(state.stripe)
                .then(|| self.stripes[&state.stripe]),
            ..Header::default()
        };
        state.file += 1;
        outgoing.ends += 1;
        if outgoing.ends == count {
            self.files.remove(&number);
        }
        Some(Chunk::End {
            header: header.write(),
            file: number,
        })
    }

    fn add(&mut self, pieces: VecDeque<Range<u64>>, base: u64, growing: bool) -> u64 {
        let outgoing = Outgoing {
            pieces,
            base,
            growing,
            ends: 0,
            told: BTreeSet::new(),
        };
        self.files.insert(self.admitted, outgoing);
        self.admitted += 1;
        self.admitted - 1
    }
}

impl Outgoing {
    fn next_block(&mut self, most: u64) -> Option<(u64, u64)> {
        while self.pieces.front().is_some_and(Range::is_empty) {
            self.pieces.pop_front();
        }
        let piece = self.pieces.front_mut()?;
        let offset = piece.start;
        let bytes = (piece.end - offset).min(most);
        piece.start += bytes;
        Some((offset, bytes))
    }
}
