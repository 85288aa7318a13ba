//! Copies bytes between open files: cloned, copied by the kernel, or through a buffer; holes stay
//! holes.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use venturi_linux::{ALIGNMENT, AlignedBuffer};

use crate::bytes::{fill, put};
use crate::net::rate_limit;
use crate::options::Method;
use crate::stop::CancelToken;

/// Maximum bytes of one kernel copy, followed by a check for cancellation and a progress report.
const KERNEL_SLICE: u64 = 16 << 20;
/// Block size for copies in memory: source, buffer and copy of a block fit into the second-level
/// cache of a core. Blocks of 1 MiB took 2.5 times as long on the measured machine
/// (`bench/mover.py`); larger blocks are for devices.
pub(crate) const CACHED_BLOCK: usize = 256 << 10;

/// Open source and copy.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) source: OwnedFd,
    pub(crate) sink: OwnedFd,
    pub(crate) size: u64,
    /// True if the source has no holes.
    pub(crate) dense: bool,
    /// True if both avoid the page cache.
    pub(crate) direct: bool,
    /// True if several workers copy it.
    pub(crate) shared: bool,
}

/// Copy methods that work between the two file systems of a root; all are assumed until the kernel rejects one.
#[derive(Debug)]
pub(crate) struct CopyMethods {
    clone: AtomicBool,
    kernel: AtomicBool,
    /// True if the kernel also copies files of several workers.
    shared_by_kernel: bool,
    direct: AtomicBool,
    /// True if blocks of a large file are reserved before it is written.
    reserves: bool,
}

/// Reason for the end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFault {
    Source(Errno),
    Sink(Errno),
    /// The source ended before its size.
    Short,
    /// No memory for a block.
    Memory(Errno),
    /// The copy was stopped.
    Stopped,
}

/// Method that moved the bytes, as named in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyTechnique {
    Cloned,
    Kernel,
    Buffers,
}

impl CopyTechnique {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cloned => "clone",
            Self::Kernel => "kernel",
            Self::Buffers => "buffers",
        }
    }
}

/// Copier of one worker.
#[derive(Debug)]
pub(crate) struct FileCopier<'c> {
    memory: Option<AlignedBuffer>,
    block: usize,
    stop: &'c CancelToken,
    moved: &'c AtomicU64,
}

/// ext4, ext3 and ext2. With reserved blocks (`fallocate`), ext4 does less work per page: 0.89 of
/// the time of one worker, 0.97 of two; without the page cache 0.95 (`bench/mover.py`).
const EXT4: u64 = 0xef53;
/// File systems whose `copy_file_range` copies within the page cache if it cannot clone. For one
/// worker this is faster than a buffer (0.93 of its time). For two workers of one file it is
/// slower: one reads a block into the cache of its core while the other writes (0.6 of the time of
/// one worker on ext4, 0.8 on tmpfs; `bench/mover.py`). In other file systems (NFS, CIFS, Ceph,
/// Lustre …) a server may copy without network transfer.
const THROUGH_THE_CACHE: [u64; 3] = [
    EXT4,
    0x0102_1994, // tmpfs
    0x5846_5342, // XFS
];

/// Return the file system type of a file, as a number of the kernel.
#[allow(
    clippy::unnecessary_cast,
    clippy::cast_sign_loss,
    reason = "its type depends on the machine"
)]
pub(crate) fn file_system(file: &OwnedFd) -> Option<u64> {
    let decisions = rustix::fs::fstatfs(file).ok()?;
    Some(decisions.f_type as u64 & 0xffff_ffff)
}

impl CopyMethods {
    /// Return the methods to try into a file system.
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

    /// Set the size of a large file and reserve its blocks if useful.
    ///
    /// # Errors
    /// Kernel errors, such as no space.
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

    /// Return whether to avoid the page cache.
    pub(crate) fn direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Disable direct I/O; return true for the first caller.
    pub(crate) fn no_direct(&self) -> bool {
        self.direct.swap(false, Ordering::Relaxed)
    }

    fn by_kernel(&self, pair: &Pair) -> bool {
        !pair.direct
            && (self.shared_by_kernel || !pair.shared)
            && self.kernel.load(Ordering::Relaxed)
    }

    /// Clone a complete file. Return false if this is impossible here.
    pub(crate) fn clone(&self, pair: &Pair) -> bool {
        if pair.size == 0 || !self.clone.load(Ordering::Relaxed) {
            return false;
        }
        match rustix::fs::ioctl_ficlone(&pair.sink, &pair.source) {
            Ok(()) => true,
            // This concerns the pair of file systems, not the file.
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
                self.clone.store(false, Ordering::Relaxed);
                false
            }
            Err(_) => false,
        }
    }
}

impl<'c> FileCopier<'c> {
    pub(crate) fn new(block: usize, stop: &'c CancelToken, moved: &'c AtomicU64) -> Self {
        Self {
            memory: None,
            block,
            stop,
            moved,
        }
    }

    /// Copy a range. Holes stay holes in the sink, which must be new.
    ///
    /// # Errors
    /// The side that failed.
    pub(crate) fn copy(
        &mut self,
        methods: &CopyMethods,
        pair: &Pair,
        range: Range<u64>,
    ) -> Result<CopyTechnique, CopyFault> {
        let mut technique = CopyTechnique::Buffers;
        let mut at = range.start;
        while at < range.end {
            let extent = if pair.dense {
                Some(at..range.end)
            } else {
                data(&pair.source, at..range.end)?
            };
            let Some(extent) = extent else { break };
            at = extent.end;
            technique = self.copy_extent(methods, pair, extent)?;
        }
        Ok(technique)
    }

    fn copy_extent(
        &mut self,
        methods: &CopyMethods,
        pair: &Pair,
        mut extent: Range<u64>,
    ) -> Result<CopyTechnique, CopyFault> {
        while methods.by_kernel(pair) && extent.start < extent.end {
            self.check_cancelled()?;
            match copy_slice(pair, &extent) {
                // Some file systems return 0 without copying; a read shows the error.
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
                    methods.kernel.store(false, Ordering::Relaxed);
                }
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::ROFS)) => {
                    return Err(CopyFault::Sink(errno));
                }
                // The error does not name the side; read and write do.
                Err(_) => break,
            }
        }
        if extent.start == extent.end {
            return Ok(CopyTechnique::Kernel);
        }
        self.copy_through(pair, extent)?;
        Ok(CopyTechnique::Buffers)
    }

    /// Read and write. Without the page cache the last block is written completely and truncated later.
    fn copy_through(&mut self, pair: &Pair, extent: Range<u64>) -> Result<(), CopyFault> {
        let align = if pair.direct { ALIGNMENT } else { 1 };
        let mut at = extent.start - extent.start % align as u64;
        while at < extent.end {
            self.check_cancelled()?;
            let length = usize::try_from((extent.end - at).min(self.block as u64))
                .expect("a block is small");
            let length = length.next_multiple_of(align);
            let buffer = self.buffer()?;
            let read = retry_on_intr(|| rustix::io::pread(&pair.source, &mut buffer[..length], at))
                .map_err(CopyFault::Source)?;
            if read == 0 {
                return Err(CopyFault::Short);
            }
            let padded = read.next_multiple_of(align);
            buffer[read..padded].fill(0);
            write(&pair.sink, &buffer[..padded], at)?;
            self.count(read);
            at += read as u64;
            if read % align != 0 && at < extent.end {
                return Err(CopyFault::Short);
            }
        }
        Ok(())
    }

    /// Copy a file that reports size 0, as in `/proc`, and return its size.
    pub(crate) fn copy_unsized(&mut self, pair: &Pair) -> Result<u64, CopyFault> {
        let mut at = 0;
        loop {
            self.check_cancelled()?;
            let buffer = self.buffer()?;
            let read = retry_on_intr(|| rustix::io::pread(&pair.source, &mut **buffer, at))
                .map_err(CopyFault::Source)?;
            if read == 0 {
                return Ok(at);
            }
            write(&pair.sink, &buffer[..read], at)?;
            self.count(read);
            at += read as u64;
        }
    }

    /// Return whether two files of one size have the same content. Common holes are not read.
    pub(crate) fn same(&mut self, a: &OwnedFd, b: &OwnedFd, size: u64) -> Result<bool, CopyFault> {
        let mut other = allocate(self.block)?;
        let mut at = 0;
        while at < size {
            self.check_cancelled()?;
            let (in_a, in_b) = (data(a, at..size)?, data(b, at..size)?);
            let Some(start) = in_a.iter().chain(&in_b).map(|extent| extent.start).min() else {
                return Ok(true);
            };
            let length =
                usize::try_from((size - start).min(self.block as u64)).expect("a block is small");
            let buffer = self.buffer()?;
            let read = fill(a, &mut buffer[..length], start).map_err(CopyFault::Source)?;
            let written = fill(b, &mut other[..length], start).map_err(CopyFault::Sink)?;
            if read != length || written != length || buffer[..length] != other[..length] {
                return Ok(false);
            }
            at = start + length as u64;
        }
        Ok(true)
    }

    fn check_cancelled(&self) -> Result<(), CopyFault> {
        if self.stop.is_cancelled() {
            Err(CopyFault::Stopped)
        } else {
            Ok(())
        }
    }

    fn count(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        rate_limit::wait_after(bytes as u64);
    }

    /// Return the memory for a block, allocated on first use.
    fn buffer(&mut self) -> Result<&mut AlignedBuffer, CopyFault> {
        let made = match self.memory.take() {
            Some(made) => made,
            None => allocate(self.block)?,
        };
        Ok(self.memory.insert(made))
    }
}

fn allocate(bytes: usize) -> Result<AlignedBuffer, CopyFault> {
    AlignedBuffer::new(bytes)
        .map_err(|error| CopyFault::Memory(Errno::from_io_error(&error).unwrap_or(Errno::NOMEM)))
}

/// Return the first data range within a range; none if all of it is a hole.
pub(crate) fn data(file: &OwnedFd, range: Range<u64>) -> Result<Option<Range<u64>>, CopyFault> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(range.start)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system without holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
        Err(errno) => return Err(CopyFault::Source(errno)),
    };
    if start >= range.end {
        return Ok(None);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_err(CopyFault::Source)?;
    // If the file is truncated during the copy, the hole comes before the data.
    Ok((end > start).then(|| start..end.min(range.end)))
}

fn copy_slice(pair: &Pair, extent: &Range<u64>) -> Result<usize, Errno> {
    let (mut from, mut to) = (extent.start, extent.start);
    let length =
        usize::try_from((extent.end - extent.start).min(KERNEL_SLICE)).expect("a slice is small");
    rustix::fs::copy_file_range(
        &pair.source,
        Some(&mut from),
        &pair.sink,
        Some(&mut to),
        length,
    )
}

fn write(sink: &OwnedFd, bytes: &[u8], at: u64) -> Result<(), CopyFault> {
    put(sink, bytes, at).map_err(CopyFault::Sink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_gets_its_size_and_blocks_only_if_dense() {
        for dense in [true, false] {
            let [source, sink] =
                [(); 2].map(|()| OwnedFd::from(tempfile::tempfile().expect("a file")));
            let methods = CopyMethods::new(Method::Buffers, false, Some(&sink));
            let size = 1 << 20;
            let pair = Pair {
                source,
                sink,
                size,
                dense,
                direct: false,
                shared: true,
            };
            methods.reserve(&pair).expect("room");
            let made = rustix::fs::fstat(&pair.sink).expect("a file");
            assert_eq!(made.st_size, 1 << 20);
            assert_eq!(made.st_blocks > 0, dense && methods.reserves);
        }
    }
}
