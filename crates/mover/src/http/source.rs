//! A file of ours that goes out: opened, read ahead of the network, its checksum taken on the way.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc as plain};

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags};
use tokio::sync::mpsc;

use super::fault::Fault;
use super::outgoing::{Blocks, Outgoing};
use super::put::Store;
use super::work::Context;
use crate::attributes;
use crate::bytes::fill;
use crate::checksum::{Adler32, Algorithm, Checksum};
use crate::error::Failure;

/// Bytes that are read at a time, and such blocks between disk and network.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS: usize = 4;

/// A file that is open, and what it was then.
pub(super) struct Source {
    pub(super) file: Arc<OwnedFd>,
    pub(super) facts: attributes::Facts,
    pub(super) path: PathBuf,
}

/// Opens a file that is to go out.
///
/// # Errors
/// If it is none, or cannot be read.
pub(super) fn open(cx: &Context<'_>, job: &Store) -> Result<Source, Fault> {
    let path = job.folder.at(&job.name);
    let failed = |errno| {
        Fault::Local(Failure::kernel(
            path.clone(),
            "a file that can be read",
            errno,
        ))
    };
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !cx.order.follow && cx.order.recursive {
        flags |= OFlags::NOFOLLOW;
    }
    let file =
        rustix::fs::openat(&job.folder.fd, &job.name, flags, Mode::empty()).map_err(failed)?;
    let facts = attributes::Facts::from(rustix::fs::fstat(&file).map_err(failed)?);
    if facts.kind != FileType::RegularFile {
        let found = if facts.kind == FileType::Directory {
            "a directory: say --recursive to copy it"
        } else {
            "something else"
        };
        return Err(Fault::Local(Failure::found(
            path,
            "a file",
            found,
            "name another",
        )));
    }
    Ok(Source {
        file: Arc::new(file),
        facts,
        path,
    })
}

/// All of a small file.
///
/// # Errors
/// As the kernel says.
pub(super) fn read(source: &Source) -> Result<Bytes, Failure> {
    let size = usize::try_from(source.facts.size).expect("a small file");
    let mut bytes = vec![0; size];
    let filled = fill(&source.file, &mut bytes, 0);
    let filled =
        filled.map_err(|errno| Failure::kernel(source.path.clone(), "bytes to be read", errno))?;
    bytes.truncate(filled);
    Ok(bytes.into())
}

/// Memory that goes back to where it is filled, when nobody reads it any more.
struct Block {
    bytes: Vec<u8>,
    filled: usize,
    home: plain::Sender<Vec<u8>>,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // The file may be at its end.
        let _ = self.home.send(std::mem::take(&mut self.bytes));
    }
}

/// A file as a body: read by a thread of its own, so that no disk holds the network back before the blocks are used up.
pub(super) fn stream(
    file: Arc<OwnedFd>,
    size: u64,
    sum: Arc<Mutex<Option<Adler32>>>,
    count: Arc<AtomicU64>,
) -> Outgoing {
    let (sender, blocks) = mpsc::channel(BLOCKS);
    let refused = sender.clone();
    let read = move || {
        let (home, spare) = plain::channel();
        for _ in 0..BLOCKS + 2 {
            let _ = home.send(vec![0; BLOCK_BYTES]);
        }
        let (mut at, mut running) = (0, Adler32::default());
        while at < size {
            let Ok(mut bytes) = spare.recv() else { return };
            let most = usize::try_from(size - at)
                .unwrap_or(BLOCK_BYTES)
                .min(BLOCK_BYTES);
            let filled = match fill(&file, &mut bytes[..most], at) {
                Ok(filled) if filled == most => filled,
                Ok(_) => {
                    return drop(sender.blocking_send(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Err(errno) => return drop(sender.blocking_send(Err(errno.into()))),
            };
            running.update(&bytes[..filled]);
            at += filled as u64;
            count.fetch_add(filled as u64, Ordering::Relaxed);
            if at == size {
                *sum.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            }
            let block = Bytes::from_owner(Block {
                bytes,
                filled,
                home: home.clone(),
            });
            if sender.blocking_send(Ok(block)).is_err() {
                return;
            }
        }
    };
    // One of the runtime's is not asked for: where there is none to be had, that panics.
    if let Err(error) = std::thread::Builder::new().spawn(read) {
        let _ = refused.try_send(Err(error));
    }
    Outgoing::Stream {
        blocks: Blocks::Coming(blocks),
        left: Some(size),
        gate: None,
    }
}

/// The checksum of a file.
///
/// # Errors
/// As the kernel says.
pub(super) fn sum_of(source: &Source, algorithm: Algorithm) -> Result<Vec<u8>, Fault> {
    let failed = |errno| {
        Fault::Local(Failure::kernel(
            source.path.clone(),
            "bytes to be read",
            errno,
        ))
    };
    let mut sum = Checksum::new(algorithm);
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < source.facts.size {
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
