//! Super-packets and the runs of segments that the model moves.
//!
//! A sender with segmentation offload hands over up to 64 KiB as one *super-packet*: one header and the payload of
//! many segments. Its bytes stay in one buffer from end to end. What the links see are its segments, in runs: a
//! [`Chunk`] is a packet, the number of its first segment, and how many.

/// Names a packet that its owner (the driver) holds the bytes of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(pub u32);

/// How a packet falls into segments: `segments − 1` of `segment_bytes`, then one of `last_bytes`. Sizes are IP
/// packets', with headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of segments, at least 1.
    pub segments: u16,
    /// Size of each segment but the last.
    pub segment_bytes: u16,
    /// Size of the last segment.
    pub last_bytes: u16,
}

impl Shape {
    /// A packet that is its own only segment.
    #[must_use]
    pub const fn single(bytes: u16) -> Self {
        Self {
            segments: 1,
            segment_bytes: bytes,
            last_bytes: bytes,
        }
    }

    /// The longest segment.
    #[must_use]
    pub const fn longest_bytes(&self) -> u16 {
        if self.segments > 1 {
            self.segment_bytes
        } else {
            self.last_bytes
        }
    }
}

/// The interface that a packet is for, as routers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination(pub(crate) u16);

impl Destination {
    /// The number of the interface; the number of interfaces if it is none of them.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of segments of one packet. 20 bytes, as millions of them are on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The packet.
    pub packet: PacketId,
    /// Its first segment in this run, from 0.
    pub first: u16,
    /// How many segments, at least 1.
    pub count: u16,
    /// The packet's shape.
    pub shape: Shape,
    /// Where the packet goes.
    pub destination: Destination,
    /// How long a run of its segments may take to be sent, in µs: what is invisible on its way.
    pub grain_us: u8,
}

impl Chunk {
    /// All segments of a packet.
    #[must_use]
    pub const fn whole(
        packet: PacketId,
        shape: Shape,
        destination: Destination,
        grain_us: u8,
    ) -> Self {
        Self {
            packet,
            first: 0,
            count: shape.segments,
            shape,
            destination,
            grain_us,
        }
    }

    /// [`Chunk::grain_us`] in picoseconds.
    #[must_use]
    pub const fn grain_ps(&self) -> u64 {
        self.grain_us as u64 * 1_000_000
    }

    /// Whether this is the packet as it was sent.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.count == self.shape.segments
    }

    /// Whether the last segment of the packet is in it.
    #[must_use]
    pub const fn has_last(&self) -> bool {
        self.first + self.count == self.shape.segments
    }

    /// IP bytes of all its segments.
    #[must_use]
    pub const fn ip_bytes(&self) -> u64 {
        let full = self.count as u64 * self.shape.segment_bytes as u64;
        if self.has_last() {
            full - self.shape.segment_bytes as u64 + self.shape.last_bytes as u64
        } else {
            full
        }
    }

    /// Bytes that its segments take on a link with so many bytes of overhead a packet.
    #[must_use]
    pub const fn wire_bytes(&self, overhead_bytes: u32) -> u64 {
        self.ip_bytes() + self.count as u64 * overhead_bytes as u64
    }

    /// Wire bytes of the segment that is `index` behind the first of the run.
    pub(crate) const fn segment_wire_bytes(&self, index: u16, overhead_bytes: u32) -> u64 {
        let last = self.first + index + 1 == self.shape.segments;
        let ip = if last {
            self.shape.last_bytes
        } else {
            self.shape.segment_bytes
        };
        ip as u64 + overhead_bytes as u64
    }

    /// `count` segments from the one that is `skip` behind the first of the run.
    pub(crate) const fn part(&self, skip: u16, count: u16) -> Self {
        debug_assert!(count >= 1 && skip + count <= self.count);
        Self {
            first: self.first + skip,
            count,
            ..*self
        }
    }

    /// Takes `next` in if it continues this run.
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let continues = self.packet == next.packet && self.first + self.count == next.first;
        if continues {
            self.count += next.count;
        }
        continues
    }
}
