//! Memory for packets: three arenas of equal buffers, allocated and released in constant time.
//!
//! This is the data path. An allocator would update its metadata at every packet. Here the last
//! released buffer is the next one, so that used memory stays in the cache. Address space is
//! reserved; the kernel allocates memory at its first use, in huge pages if possible. At 10 Gb/s
//! and 140 ms about 350 MB are in use.

use std::io;
use std::ptr::NonNull;

use crate::model::PacketId;

/// Sizes and numbers of buffers: for ACKs and single segments; jumbo frames and short
/// super-packets; whole super-packets. The numbers limit the address space (1.1, 1.3 and 9.1 GB),
/// not the used memory. A packet starts at the start of its buffer. With headers of virtio-net, IP
/// and TCP of 12, 20 and 32 bytes, the payload then starts on a cache line.
const ARENAS: [(usize, u32); 3] = [(2048, 1 << 19), (10_240, 1 << 17), (69_632, 1 << 17)];
const LARGE: usize = ARENAS.len() - 1;
/// Bits of a packet's number that are the index of its buffer in the arena.
const INDEX_BITS: u32 = 24;
/// Minimum and maximum of buffers per arena that are touched before the first packet, because its
/// page faults took 5 ms. More buffers would only delay the start.
const READY_BUFFERS: std::ops::RangeInclusive<u32> = 64..=1024;
/// Size of a large packet of a busy stream.
const SUPER_PACKET_BYTES: f64 = 65_536.0;

#[derive(Debug)]
pub(crate) struct PacketBuffers {
    arenas: [Arena; 3],
    /// Large buffer for the next packet.
    spare: Option<u32>,
}

#[derive(Debug)]
struct Arena {
    base: NonNull<u8>,
    stride: usize,
    capacity: u32,
    /// Released buffers; the last one is most likely in the cache.
    free: Vec<u32>,
    /// First buffer that was never used.
    fresh: u32,
    packets: Vec<Packet>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Packet {
    length: u32,
    /// Segments that have not left the network.
    remaining: u32,
}

impl PacketBuffers {
    /// Create buffers for a network that contains this number of bytes when it is full.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of buffers, and the cast saturates"
    )]
    pub(crate) fn new(held_bytes: f64) -> io::Result<Self> {
        let [small, middle, large] = ARENAS.map(|(stride, capacity)| Arena::new(stride, capacity));
        let mut buffers = Self {
            arenas: [small?, middle?, large?],
            spare: None,
        };
        let (min, max) = READY_BUFFERS.into_inner();
        let full = (held_bytes / SUPER_PACKET_BYTES) as u32;
        for arena in &mut buffers.arenas {
            arena.touch(full.clamp(min, max));
        }
        Ok(buffers)
    }

    /// Return the memory for the next packet; none if no memory is left.
    #[inline]
    pub(crate) fn spare(&mut self) -> Option<&mut [u8]> {
        let arena = &mut self.arenas[LARGE];
        let index = match self.spare {
            Some(index) => index,
            None => {
                let index = arena.take()?;
                self.spare = Some(index);
                index
            }
        };
        Some(arena.buffer_mut(index))
    }

    /// Return the contents of the spare buffer.
    #[inline]
    pub(crate) fn read(&self, length: usize) -> &[u8] {
        let index = self.spare.expect("`spare` was called before the read");
        &self.arenas[LARGE].buffer(index)[..length]
    }

    /// Keep the packet of `length` bytes in the spare buffer until this number of its segments have
    /// been released. A short packet is copied to a smaller buffer to save memory.
    #[inline]
    pub(crate) fn keep(&mut self, length: usize, segments: u16) -> PacketId {
        let [short @ .., large] = &mut self.arenas;
        let spare = self.spare.expect("`spare` was called before the read");
        let source = &large.buffer(spare)[..length];
        for (number, arena) in short.iter_mut().enumerate() {
            if source.len() <= arena.stride
                && let Some(index) = arena.take()
            {
                arena.buffer_mut(index)[..source.len()].copy_from_slice(source);
                return arena.name(number, index, length, segments);
            }
        }
        self.spare = None;
        large.name(LARGE, spare, length, segments)
    }

    /// Return the bytes of a packet, virtio-net header first.
    #[inline]
    pub(crate) fn bytes(&self, packet: PacketId) -> &[u8] {
        let (arena, index) = split(packet);
        let arena = &self.arenas[arena];
        let length = arena.packets[index as usize].length as usize;
        &arena.buffer(index)[..length]
    }

    /// Release some segments of a packet; after the last segment, its buffer is free.
    #[inline]
    pub(crate) fn release(&mut self, packet: PacketId, segments: u16) {
        let (arena, index) = split(packet);
        let arena = &mut self.arenas[arena];
        let held = &mut arena.packets[index as usize];
        held.remaining -= u32::from(segments);
        if held.remaining == 0 {
            arena.free.push(index);
        }
    }

    /// Return the number of packets in the network.
    pub(crate) fn in_use(&self) -> u64 {
        let used = |arena: &Arena| u64::from(arena.fresh) - arena.free.len() as u64;
        self.arenas.iter().map(used).sum::<u64>() - u64::from(self.spare.is_some())
    }
}

#[inline]
fn split(packet: PacketId) -> (usize, u32) {
    let index = packet.0 & ((1 << INDEX_BITS) - 1);
    ((packet.0 >> INDEX_BITS) as usize, index)
}

impl Arena {
    fn new(stride: usize, capacity: u32) -> io::Result<Self> {
        let length = stride * capacity as usize;
        // SAFETY: a new private mapping at an address that the kernel chooses, without other references.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was mapped just now. This is only advice; without it, access is a
        // little slower.
        unsafe { libc::madvise(base, length, libc::MADV_HUGEPAGE) };
        Ok(Self {
            base: NonNull::new(base.cast()).expect("a mapping is not at address 0"),
            stride,
            capacity,
            free: Vec::new(),
            fresh: 0,
            packets: Vec::new(),
        })
    }

    #[inline]
    fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.fresh == self.capacity {
            return None;
        }
        self.fresh += 1;
        self.packets.push(Packet::default());
        Some(self.fresh - 1)
    }

    fn touch(&mut self, buffers: u32) {
        const PAGE_BYTES: usize = 4096;
        let taken: Vec<u32> = (0..buffers).filter_map(|_| self.take()).collect();
        for &index in &taken {
            self.buffer_mut(index)
                .iter_mut()
                .step_by(PAGE_BYTES)
                .for_each(|byte| *byte = 0);
        }
        self.free.extend(taken.into_iter().rev());
    }

    #[inline]
    fn name(&mut self, arena: usize, index: u32, length: usize, segments: u16) -> PacketId {
        self.packets[index as usize] = Packet {
            length: u32::try_from(length).expect("a packet is shorter than a buffer"),
            remaining: u32::from(segments),
        };
        let arena = u32::try_from(arena).expect("three arenas");
        PacketId(arena << INDEX_BITS | index)
    }

    #[inline]
    fn buffer(&self, index: u32) -> &[u8] {
        assert!(index < self.fresh);
        // SAFETY: `fresh` is at most `capacity`, so the buffer lies inside the mapping, which lives as long as
        // `self`; memory of an anonymous mapping is initialised (zero). Writing needs `&mut self`.
        unsafe {
            std::slice::from_raw_parts(
                self.base.as_ptr().add(index as usize * self.stride),
                self.stride,
            )
        }
    }

    #[inline]
    fn buffer_mut(&mut self, index: u32) -> &mut [u8] {
        assert!(index < self.fresh);
        // SAFETY: as in `buffer`, and `&mut self` is the only reference to it.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.base.as_ptr().add(index as usize * self.stride),
                self.stride,
            )
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, without other references.
        unsafe {
            libc::munmap(
                self.base.as_ptr().cast(),
                self.stride * self.capacity as usize,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_keeps_its_bytes_until_its_last_segment_is_released() {
        let mut buffers = PacketBuffers::new(0.0).expect("memory");
        let mut kept = Vec::new();
        for (fill, length) in [(1_u8, 60), (2, 5000), (3, 65_000), (4, 60)] {
            buffers.spare().expect("memory")[..length].fill(fill);
            kept.push((buffers.keep(length, 3), fill, length));
        }
        for (packet, fill, length) in &kept {
            assert_eq!(buffers.bytes(*packet), vec![*fill; *length]);
        }
        assert_eq!(buffers.in_use(), 4);
        let (first, ..) = kept[0];
        buffers.release(first, 2);
        assert_eq!(buffers.in_use(), 4);
        buffers.release(first, 1);
        assert_eq!(buffers.in_use(), 3);
        buffers.spare().expect("memory")[..60].fill(9);
        assert_eq!(
            buffers.keep(60, 1),
            first,
            "the buffer used last is used next"
        );
    }
}
