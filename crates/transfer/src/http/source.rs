//! Source file of an upload: open, read ahead of the network, and compute the checksum.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as plain};

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags};
use tokio::sync::mpsc;

use super::outgoing::{Blocks, OutgoingBody};
use super::put::HttpUpload;
use super::request_error::RequestError;
use super::work::HttpContext;
use crate::attributes;
use crate::bytes::fill;
use crate::checksum::{Adler32, Algorithm, Checksum};
use crate::error::Failure;
use crate::net::rate_limit;

/// Bytes of a read.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS: usize = 4;

/// Open file and its metadata at that time.
pub(super) struct UploadSource {
    pub(super) file: Arc<OwnedFd>,
    pub(super) metadata: attributes::LocalMetadata,
    pub(super) path: PathBuf,
}

/// Open a source file.
///
/// # Errors
/// Not a file, or unreadable.
pub(super) fn open(cx: &HttpContext<'_>, job: &HttpUpload) -> Result<UploadSource, RequestError> {
    let path = job.directory.at(&job.name);
    let failed =
        |errno| RequestError::Local(Failure::kernel(path.clone(), "a readable file", errno));
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !cx.order.follow && cx.order.recursive {
        flags |= OFlags::NOFOLLOW;
    }
    let file =
        rustix::fs::openat(&job.directory.fd, &job.name, flags, Mode::empty()).map_err(failed)?;
    let metadata = attributes::LocalMetadata::from(rustix::fs::fstat(&file).map_err(failed)?);
    if metadata.kind != FileType::RegularFile {
        let found = if metadata.kind == FileType::Directory {
            "a directory; add --recursive to copy it"
        } else {
            "another type of file"
        };
        return Err(RequestError::Local(Failure::found(
            path,
            "a file",
            found,
            "choose another path",
        )));
    }
    Ok(UploadSource {
        file: Arc::new(file),
        metadata,
        path,
    })
}

/// Read a small file completely.
///
/// # Errors
/// Kernel errors.
pub(super) fn read(source: &UploadSource) -> Result<Bytes, Failure> {
    let size = usize::try_from(source.metadata.size).expect("a small file");
    let mut bytes = vec![0; size];
    let filled = fill(&source.file, &mut bytes, 0);
    let filled =
        filled.map_err(|errno| Failure::kernel(source.path.clone(), "to read bytes", errno))?;
    bytes.truncate(filled);
    rate_limit::wait_after(filled as u64);
    Ok(bytes.into())
}

/// Buffer that returns to its reader after use.
struct SourceBlock {
    bytes: Vec<u8>,
    filled: usize,
    home: plain::Sender<Vec<u8>>,
}

impl AsRef<[u8]> for SourceBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for SourceBlock {
    fn drop(&mut self) {
        // The file may be at its end.
        let _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

/// Return a file as a body. A separate thread reads it, so that the disk delays the network only if
/// all blocks are used up.
pub(super) fn stream(
    file: Arc<OwnedFd>,
    size: u64,
    sum: Arc<Mutex<Option<Adler32>>>,
    count: Arc<AtomicU64>,
) -> OutgoingBody {
    let (sender, blocks) = mpsc::channel(BLOCKS);
    let rejected = sender.clone();
    let read = move || {
        let (home, spare) = plain::channel();
        for _ in 0..BLOCKS + 2 {
            let _ = home.send(vec![0; BLOCK_BYTES]);
        }
        let (mut at, mut running) = (0, Adler32::default());
        while at < size {
            let Ok(mut bytes) = spare.recv() else { return };
            let max = usize::try_from(size - at)
                .unwrap_or(BLOCK_BYTES)
                .min(BLOCK_BYTES);
            let filled = match fill(&file, &mut bytes[..max], at) {
                Ok(filled) if filled == max => filled,
                Ok(_) => {
                    return drop(sender.blocking_send(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Err(errno) => return drop(sender.blocking_send(Err(errno.into()))),
            };
            running.update(&bytes[..filled]);
            at += filled as u64;
            count.fetch_add(filled as u64, Ordering::Relaxed);
            rate_limit::wait_after(filled as u64);
            if at == size {
                *sum.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            }
            let block = Bytes::from_owner(SourceBlock {
                bytes,
                filled,
                home: home.clone(),
            });
            if sender.blocking_send(Ok(block)).is_err() {
                return;
            }
        }
    };
    // Not a thread of the runtime, which panics if no thread is available.
    if let Err(error) = std::thread::Builder::new().spawn(read) {
        let _ = rejected.try_send(Err(error));
    }
    OutgoingBody::Stream {
        blocks: Blocks::Coming(blocks),
        remaining: Some(size),
        gate: None,
    }
}

/// Compute the checksum of a file.
///
/// # Errors
/// Kernel errors.
pub(super) fn compute_checksum(
    source: &UploadSource,
    algorithm: Algorithm,
) -> Result<Vec<u8>, RequestError> {
    let failed =
        |errno| RequestError::Local(Failure::kernel(source.path.clone(), "to read bytes", errno));
    let mut sum = Checksum::new(algorithm);
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < source.metadata.size {
        match fill(&source.file, &mut buffer, at).map_err(failed)? {
            0 => break,
            count => {
                sum.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
    Ok(sum.finish())
}
