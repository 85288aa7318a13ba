//! Complete reads and writes of blocks at offsets of a file.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};

/// Writes the complete block.
pub(crate) fn put(sink: impl AsFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::pwrite(&sink, bytes, at))?;
        if written == 0 {
            return Err(Errno::NOSPC);
        }
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn fill(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match retry_on_intr(|| rustix::io::pread(file, &mut buffer[filled..], at + filled as u64))?
        {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
