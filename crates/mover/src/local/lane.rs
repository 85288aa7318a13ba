//! Bytes from one open file to another: cloned, copied by the kernel, or through a buffer; holes stay holes.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::block::Block;
use crate::bytes::{fill, put};
use crate::order::Method;
use crate::stop::Stop;

/// Bytes that the kernel is asked to copy at a time: after each it is seen whether to go on, and progress is told.
const KERNEL_SLICE: u64 = 16 << 20;
/// Source, buffer and copy of a block fit into the second cache of a core. Blocks of 1 MiB took 2.5 times as long on the machine
/// where this was measured (`bench/mover.py`), larger ones are for devices.
pub(crate) const CACHED_BLOCK: usize = 256 << 10;
/// What `O_DIRECT` asks of addresses, offsets and lengths at most, on the devices that there are: a page.
pub(crate) const ALIGNMENT: usize = 4096;

/// Two open files between which bytes move.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) source: OwnedFd,
    pub(crate) sink: OwnedFd,
    pub(crate) size: u64,
    /// Whether the source has no holes.
    pub(crate) dense: bool,
    /// Whether both avoid the page cache.
    pub(crate) direct: bool,
    /// Whether several workers copy it.
    pub(crate) shared: bool,
}

/// What was found possible between the two file systems of a root; all is, until the kernel says no.
#[derive(Debug)]
pub(crate) struct Ways {
    clone: AtomicBool,
    kernel: AtomicBool,
    /// Whether the kernel is to copy also what several workers copy.
    shared_by_kernel: bool,
    direct: AtomicBool,
    /// Whether a large file is to have its blocks before it is written.
    reserves: bool,
}

/// What stops bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Source(Errno),
    Sink(Errno),
    /// The source ended before its size.
    Short,
    /// There was none for a block.
    Memory(Errno),
    /// We were asked to.
    Stopped,
}

/// How bytes were moved, as events name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Cloned,
    Kernel,
    Buffers,
}

impl Moved {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cloned => "clone",
            Self::Kernel => "kernel",
            Self::Buffers => "buffers",
        }
    }
}

/// What a worker moves bytes with.
#[derive(Debug)]
pub(crate) struct Lane<'c> {
    memory: Option<Block>,
    block: usize,
    stop: &'c Stop,
    moved: &'c AtomicU64,
}

/// Also ext2 and ext3. Where a file has its blocks beforehand (`fallocate`) ext4 has less to do for each page: 0.89 of the time of one worker, 0.97 of
/// two; past the page cache 0.95 (`bench/mover.py`).
const EXT4: u64 = 0xef53;
/// File systems in which `copy_file_range` moves bytes from page cache to page cache, if it cannot clone. For one worker that is faster than a buffer
/// (0.93 of its time), for two of one file it is slower: one reads a block, which stays in the cache of its core, while the other writes (0.6 of the
/// time of one on ext4, 0.8 on tmpfs; `bench/mover.py`). In others (NFS, CIFS, Ceph, Lustre …) a server may copy, so that no byte travels.
const THROUGH_THE_CACHE: [u64; 3] = [
    EXT4,
    0x0102_1994, // tmpfs
    0x5846_5342, // XFS
];

/// Which file system a file is in, as the kernel calls it.
#[allow(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "its type depends on the machine"
)]
pub(crate) fn file_system(file: &OwnedFd) -> Option<u64> {
    let told = rustix::fs::fstatfs(file).ok()?;
    Some(told.f_type as u64 & 0xffff_ffff)
}

impl Ways {
    /// What is to be tried, into a file system.
    pub(crate) fn new(method: Method, direct: bool, sink: Option<&OwnedFd>) -> Self {
        let kind = sink.and_then(file_system);
        let through_the_cache = kind.is_some_and(|kind| THROUGH_THE_CACHE.contains(&kind));
        Self {
            clone: AtomicBool::new(method == Method::Auto),
            // The kernel copies through the page cache.
            kernel: AtomicBool::new(method != Method::Buffers && !direct),
            shared_by_kernel: method == Method::Kernel || !through_the_cache,
            direct: AtomicBool::new(direct),
            reserves: kind == Some(EXT4),
        }
    }

    /// Gives a large file its size, and its blocks if that is of use.
    ///
    /// # Errors
    /// What the kernel says; there may be no room.
    pub(crate) fn reserve(&self, pair: &Pair) -> Result<(), Errno> {
        if self.reserves && pair.dense {
            let at_once = FallocateFlags::empty();
            match retry_on_intr(|| rustix::fs::fallocate(&pair.sink, at_once, 0, pair.size)) {
                // Files of ext3 have no extents.
                Err(Errno::OPNOTSUPP) => {}
                reserved => return reserved,
            }
        }
        rustix::fs::ftruncate(&pair.sink, pair.size)
    }

    /// Whether to avoid the page cache.
    pub(crate) fn direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// The file system cannot; true for whom finds it first.
    pub(crate) fn no_direct(&self) -> bool {
        self.direct.swap(false, Ordering::Relaxed)
    }

    fn by_kernel(&self, pair: &Pair) -> bool {
        !pair.direct
            && (self.shared_by_kernel || !pair.shared)
            && self.kernel.load(Ordering::Relaxed)
    }

    /// Clones all of a file. False if that cannot be done here.
    pub(crate) fn clone(&self, pair: &Pair) -> bool {
        if pair.size == 0 || !self.clone.load(Ordering::Relaxed) {
            return false;
        }
        match rustix::fs::ioctl_ficlone(&pair.sink, &pair.source) {
            Ok(()) => true,
            // Of this pair of file systems, not of this file.
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
                self.clone.store(false, Ordering::Relaxed);
                false
            }
            Err(_) => false,
        }
    }
}

impl<'c> Lane<'c> {
    pub(crate) fn new(block: usize, stop: &'c Stop, moved: &'c AtomicU64) -> Self {
        Self {
            memory: None,
            block,
            stop,
            moved,
        }
    }

    /// Copies a range; what is a hole is left as it is in the sink, which must be new.
    ///
    /// # Errors
    /// With the side that is to blame.
    pub(crate) fn copy(
        &mut self,
        ways: &Ways,
        pair: &Pair,
        range: Range<u64>,
    ) -> Result<Moved, Fault> {
        let mut how = Moved::Buffers;
        let mut at = range.start;
        while at < range.end {
            let extent = if pair.dense {
                Some(at..range.end)
            } else {
                data(&pair.source, at..range.end)?
            };
            let Some(extent) = extent else { break };
            at = extent.end;
            how = self.copy_extent(ways, pair, extent)?;
        }
        Ok(how)
    }

    fn copy_extent(
        &mut self,
        ways: &Ways,
        pair: &Pair,
        mut extent: Range<u64>,
    ) -> Result<Moved, Fault> {
        while ways.by_kernel(pair) && extent.start < extent.end {
            self.go_on()?;
            match copy_slice(pair, &extent) {
                // Some file systems copy nothing and say so in this way; reading tells the truth.
                Ok(0) => break,
                Ok(copied) => {
                    self.count(copied);
                    extent.start += copied as u64;
                }
                Err(Errno::INTR) => {}
                Err(
                    Errno::XDEV
                    | Errno::INVAL
                    | Errno::OPNOTSUPP
                    | Errno::NOSYS
                    | Errno::PERM
                    | Errno::BADF,
                ) => {
                    ways.kernel.store(false, Ordering::Relaxed);
                }
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::ROFS)) => {
                    return Err(Fault::Sink(errno));
                }
                // It does not say whose fault it is; reading and writing do.
                Err(_) => break,
            }
        }
        if extent.start == extent.end {
            return Ok(Moved::Kernel);
        }
        self.copy_through(pair, extent)?;
        Ok(Moved::Buffers)
    }

    /// Reads and writes. Past the page cache the last block of a file is written whole: its end is cut off later.
    fn copy_through(&mut self, pair: &Pair, extent: Range<u64>) -> Result<(), Fault> {
        let align = if pair.direct { ALIGNMENT } else { 1 };
        let mut at = extent.start - extent.start % align as u64;
        while at < extent.end {
            self.go_on()?;
            let wanted = usize::try_from((extent.end - at).min(self.block as u64))
                .expect("a block is small");
            let wanted = wanted.next_multiple_of(align);
            let buffer = self.buffer()?;
            let read = retry_on_intr(|| rustix::io::pread(&pair.source, &mut buffer[..wanted], at))
                .map_err(Fault::Source)?;
            if read == 0 {
                return Err(Fault::Short);
            }
            let padded = read.next_multiple_of(align);
            buffer[read..padded].fill(0);
            write(&pair.sink, &buffer[..padded], at)?;
            self.count(read);
            at += read as u64;
            if read % align != 0 && at < extent.end {
                return Err(Fault::Short);
            }
        }
        Ok(())
    }

    /// Copies what a file has that says its size is 0, as those of `/proc` do. Returns how much that was.
    pub(crate) fn copy_unsized(&mut self, pair: &Pair) -> Result<u64, Fault> {
        let mut at = 0;
        loop {
            self.go_on()?;
            let buffer = self.buffer()?;
            let read = retry_on_intr(|| rustix::io::pread(&pair.source, &mut **buffer, at))
                .map_err(Fault::Source)?;
            if read == 0 {
                return Ok(at);
            }
            write(&pair.sink, &buffer[..read], at)?;
            self.count(read);
            at += read as u64;
        }
    }

    /// Whether two files of one size have the same content. What is a hole in both is not read.
    pub(crate) fn same(&mut self, a: &OwnedFd, b: &OwnedFd, size: u64) -> Result<bool, Fault> {
        let mut other = Block::new(self.block).map_err(Fault::Memory)?;
        let mut at = 0;
        while at < size {
            self.go_on()?;
            let (in_a, in_b) = (data(a, at..size)?, data(b, at..size)?);
            let Some(start) = in_a.iter().chain(&in_b).map(|extent| extent.start).min() else {
                return Ok(true);
            };
            let wanted =
                usize::try_from((size - start).min(self.block as u64)).expect("a block is small");
            let buffer = self.buffer()?;
            let read = fill(a, &mut buffer[..wanted], start).map_err(Fault::Source)?;
            let written = fill(b, &mut other[..wanted], start).map_err(Fault::Sink)?;
            if read != wanted || written != wanted || buffer[..wanted] != other[..wanted] {
                return Ok(false);
            }
            at = start + wanted as u64;
        }
        Ok(true)
    }

    fn go_on(&self) -> Result<(), Fault> {
        if self.stop.asked() {
            Err(Fault::Stopped)
        } else {
            Ok(())
        }
    }

    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Memory for a block; made when it is first needed.
    fn buffer(&mut self) -> Result<&mut Block, Fault> {
        let made = match self.memory.take() {
            Some(made) => made,
            None => Block::new(self.block).map_err(Fault::Memory)?,
        };
        Ok(self.memory.insert(made))
    }
}

/// The first stretch of data within a range; none if all of it is a hole.
pub(crate) fn data(file: &OwnedFd, range: Range<u64>) -> Result<Option<Range<u64>>, Fault> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(range.start)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
        Err(errno) => return Err(Fault::Source(errno)),
    };
    if start >= range.end {
        return Ok(None);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_err(Fault::Source)?;
    // A file that is cut short meanwhile has its hole before its data.
    Ok((end > start).then(|| start..end.min(range.end)))
}

fn copy_slice(pair: &Pair, extent: &Range<u64>) -> Result<usize, Errno> {
    let (mut from, mut to) = (extent.start, extent.start);
    let asked =
        usize::try_from((extent.end - extent.start).min(KERNEL_SLICE)).expect("a slice is small");
    rustix::fs::copy_file_range(
        &pair.source,
        Some(&mut from),
        &pair.sink,
        Some(&mut to),
        asked,
    )
}

fn write(sink: &OwnedFd, bytes: &[u8], at: u64) -> Result<(), Fault> {
    put(sink, bytes, at).map_err(Fault::Sink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_has_its_size_and_where_it_is_of_use_its_blocks() {
        for dense in [true, false] {
            let [source, sink] =
                [(); 2].map(|()| OwnedFd::from(tempfile::tempfile().expect("a file")));
            let ways = Ways::new(Method::Buffers, false, Some(&sink));
            let size = 1 << 20;
            let pair = Pair {
                source,
                sink,
                size,
                dense,
                direct: false,
                shared: true,
            };
            ways.reserve(&pair).expect("room");
            let made = rustix::fs::fstat(&pair.sink).expect("a file");
            assert_eq!(made.st_size, 1 << 20);
            assert_eq!(made.st_blocks > 0, dense && ways.reserves);
        }
    }
}
