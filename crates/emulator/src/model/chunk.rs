//! Super-packets and the runs of segments that the model moves.
//!
//! A sender with segmentation offload sends up to 64 KiB as one *super-packet*: one header and the
//! payload of many segments. Its bytes stay in one buffer on the whole route. Links handle runs of
//! its segments: a [`Chunk`] is a packet, the number of its first segment, and the number of
//! segments.

/// Identifier of a packet; its owner (the driver) has the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketId(pub u32);

/// Split of a packet into segments: `segments − 1` of `segment_bytes`, then one of `last_bytes`.
/// Sizes are of IP packets with headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketShape {
    /// Number of segments, at least 1.
    pub segments: u16,
    /// Size of each segment except the last.
    pub segment_bytes: u16,
    /// Size of the last segment.
    pub last_bytes: u16,
}

impl PacketShape {
    /// Return the shape of a packet with a single segment.
    #[must_use]
    pub const fn single(bytes: u16) -> Self {
        Self {
            segments: 1,
            segment_bytes: bytes,
            last_bytes: bytes,
        }
    }

    /// Return the size of the longest segment.
    #[must_use]
    pub const fn max_bytes(&self) -> u16 {
        if self.segments > 1 {
            self.segment_bytes
        } else {
            self.last_bytes
        }
    }
}

/// Destination interface of a packet, as routers distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkDestination(pub(crate) u16);

impl ChunkDestination {
    /// Return the number of the interface; for other destinations, the number of interfaces.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of segments of one packet. It has only 20 bytes, because millions of runs can be in
/// flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The packet.
    pub packet: PacketId,
    /// Its first segment in this run, from 0.
    pub first: u16,
    /// Number of segments, at least 1.
    pub count: u16,
    /// The packet's shape.
    pub shape: PacketShape,
    /// Destination of the packet.
    pub destination: ChunkDestination,
    /// Maximum transmission time of a run of its segments, in µs: invisible on its route.
    pub grain_us: u8,
}

impl Chunk {
    /// Return a run of all segments of a packet.
    #[must_use]
    pub const fn whole(
        packet: PacketId,
        shape: PacketShape,
        destination: ChunkDestination,
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

    /// Return [`Chunk::grain_us`] in picoseconds.
    #[must_use]
    pub const fn grain_ps(&self) -> u64 {
        self.grain_us as u64 * 1_000_000
    }

    /// Return whether the run is the complete packet.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.count == self.shape.segments
    }

    /// Return whether the run has the last segment of the packet.
    #[must_use]
    pub const fn has_last(&self) -> bool {
        self.first + self.count == self.shape.segments
    }

    /// Return the IP bytes of all its segments.
    #[must_use]
    pub const fn ip_bytes(&self) -> u64 {
        let full = self.count as u64 * self.shape.segment_bytes as u64;
        if self.has_last() {
            full - self.shape.segment_bytes as u64 + self.shape.last_bytes as u64
        } else {
            full
        }
    }

    /// Return the bytes of its segments on a link with this overhead per packet.
    #[must_use]
    pub const fn wire_bytes(&self, overhead_bytes: u32) -> u64 {
        self.ip_bytes() + self.count as u64 * overhead_bytes as u64
    }

    /// Return the link bytes of segment `index` of the run.
    pub(crate) const fn segment_wire_bytes(&self, index: u16, overhead_bytes: u32) -> u64 {
        let last = self.first + index + 1 == self.shape.segments;
        let ip = if last {
            self.shape.last_bytes
        } else {
            self.shape.segment_bytes
        };
        ip as u64 + overhead_bytes as u64
    }

    /// Return `count` segments of the run, after the first `skip`.
    pub(crate) const fn part(&self, skip: u16, count: u16) -> Self {
        debug_assert!(count >= 1 && skip + count <= self.count);
        Self {
            first: self.first + skip,
            count,
            ..*self
        }
    }

    /// Append `next` if it continues this run; return whether it does.
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let continues = self.packet == next.packet && self.first + self.count == next.first;
        if continues {
            self.count += next.count;
        }
        continues
    }
}
