//! Data sets: files of incompressible bytes that are the same everywhere, made fast and made once.
//!
//! File *i* holds the ChaCha8 stream whose key is the seed of the set and whose stream number is *i*: no two files are
//! alike, no compression or deduplication helps, and a second host makes the same bytes. A manifest in the folder
//! lists the files that are whole, with their checksums, so that a later run uses them at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use venturi_plan::{Sizes, file_name};

use crate::pulse::Pulse;

/// Name of the manifest in the folder of the set.
pub(crate) const MANIFEST: &str = ".venturi-dataset.json";

/// Bytes made, hashed and written at a time: large for the disk, small enough for the cache of a core.
const BLOCK_BYTES: usize = 1 << 20;

/// Below this size one `syncfs` for all files costs less than one `fdatasync` for each.
const OWN_SYNC_BYTES: u64 = 1 << 20;

/// The least time between two tellings of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// How much work a kill can cost: the manifest is saved so often.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is looked whether another agent has done with the folder.
const TURN_PAUSE: Duration = Duration::from_millis(10);

/// The files that shall be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    pub(crate) sizes: Sizes,
    pub(crate) first: u64,
    pub(crate) files: u64,
}

/// What it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// Files written now.
    pub(crate) files: u64,
    /// Files that were there.
    pub(crate) reused: u64,
}

/// How far the writing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) files: u64,
    pub(crate) of_files: u64,
    pub(crate) bytes: u64,
    pub(crate) of_bytes: u64,
}

/// Why a data set is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("expected room for {needed} bytes below `{}`, found {free} free; free some or choose another place", .folder.display())]
    NoRoom {
        folder: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("`{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the run was stopped")]
    Stopped,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    seed: u64,
    /// Of the largest one: what a smaller one holds is the beginning of what a larger one would.
    size_bytes: u64,
    /// File name → SHA-256 of its content.
    files: BTreeMap<String, String>,
}

impl Wanted {
    /// The paths of the files, in order.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        (self.first..self.first + self.files)
            .map(|index| self.folder.join(file_name(index)))
            .collect()
    }

    /// Makes what is missing, with several threads; leaves what is right.
    ///
    /// # Errors
    /// When there is no room, a file cannot be written, or the work is to end.
    pub(crate) fn ensure(
        &self,
        threads: usize,
        pulse: &Pulse,
        tell: &dyn Fn(Progress),
    ) -> Result<Made, Error> {
        std::fs::create_dir_all(&self.folder).map_err(|source| self.error(&self.folder, source))?;
        let _turn = self.take_turn(pulse)?;
        let mut manifest = self.read_manifest();
        let missing: Vec<u64> = (self.first..self.first + self.files)
            .inspect(|_| _ = pulse.beat())
            .filter(|index| !self.is_whole(&manifest, *index))
            .collect();
        if !missing.is_empty() {
            self.check_room(&missing)?;
            self.make(&missing, &mut manifest, threads, pulse, tell)?;
        }
        let files = missing.len() as u64;
        Ok(Made {
            files,
            reused: self.files - files,
        })
    }

    /// Keeps other agents of this machine out of the folder: several may see it, and each would make all files and save a
    /// manifest that forgets the other's. None where the file system knows no locks.
    fn take_turn(&self, pulse: &Pulse) -> Result<Option<Flock<File>>, Error> {
        let mut folder =
            File::open(&self.folder).map_err(|source| self.error(&self.folder, source))?;
        loop {
            match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
                Ok(turn) => return Ok(Some(turn)),
                // How long the other takes only the size of the set says.
                Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => {
                    if !pulse.beat() {
                        return Err(Error::Stopped);
                    }
                    std::thread::sleep(TURN_PAUSE);
                    folder = back;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// The manifest in the folder, or an empty one when it is not there, not readable or of another content: then all
    /// files are made again.
    fn read_manifest(&self) -> Manifest {
        let read = std::fs::read(self.folder.join(MANIFEST)).ok();
        let known: Option<Manifest> = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        known
            .filter(|found| {
                (found.version, found.seed, found.size_bytes)
                    == (1, self.seed, self.sizes.largest())
            })
            .unwrap_or_else(|| Manifest {
                format: "venturi-dataset".into(),
                version: 1,
                seed: self.seed,
                size_bytes: self.sizes.largest(),
                files: BTreeMap::new(),
            })
    }

    fn is_whole(&self, manifest: &Manifest, index: u64) -> bool {
        let name = file_name(index);
        let right_size = |path: PathBuf| {
            path.metadata()
                .is_ok_and(|found| found.is_file() && found.len() == self.sizes.of(index))
        };
        manifest.files.contains_key(&name) && right_size(self.folder.join(name))
    }

    fn check_room(&self, missing: &[u64]) -> Result<(), Error> {
        let needed = self.bytes_of(missing);
        let free = free_bytes(&self.folder).map_err(|source| self.error(&self.folder, source))?;
        if needed > free {
            return Err(Error::NoRoom {
                folder: self.folder.clone(),
                needed,
                free,
            });
        }
        Ok(())
    }

    fn make(
        &self,
        missing: &[u64],
        manifest: &mut Manifest,
        threads: usize,
        pulse: &Pulse,
        tell: &dyn Fn(Progress),
    ) -> Result<(), Error> {
        let (next, bytes, failed) = (
            AtomicUsize::new(0),
            AtomicU64::new(0),
            AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..threads.clamp(1, missing.len()) {
                let (sender, next, bytes, failed) = (sender.clone(), &next, &bytes, &failed);
                let halt = move || !pulse.beat() || failed.load(Ordering::Relaxed);
                scope.spawn(move || {
                    while let Some(index) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let written = self.write_file(*index, bytes, &halt);
                        failed.fetch_or(written.is_err(), Ordering::Relaxed);
                        if sender.send((*index, written)).is_err() || halt() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.collect(&receiver, missing, &bytes, manifest, tell)
        })?;
        if pulse.is_stopped() {
            Err(Error::Stopped)
        } else {
            Ok(())
        }
    }

    /// Takes the checksums of finished files into the manifest, saves it from time to time, tells of the progress.
    fn collect(
        &self,
        finished: &mpsc::Receiver<(u64, Result<String, Error>)>,
        missing: &[u64],
        bytes: &AtomicU64,
        manifest: &mut Manifest,
        tell: &dyn Fn(Progress),
    ) -> Result<(), Error> {
        let (mut files, mut outcome) = (0, Ok(()));
        let (mut told, mut saved) = (Instant::now(), Instant::now());
        loop {
            match finished.recv_timeout(PROGRESS_INTERVAL) {
                Ok((index, Ok(checksum))) => {
                    files += 1;
                    manifest.files.insert(file_name(index), checksum);
                }
                Ok((_, Err(error))) => {
                    // The first error tells why; those that follow from it are `Stopped`.
                    if outcome.is_ok() || matches!(outcome, Err(Error::Stopped)) {
                        outcome = Err(error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                tell(Progress {
                    files,
                    of_files: missing.len() as u64,
                    bytes: bytes.load(Ordering::Relaxed),
                    of_bytes: self.bytes_of(missing),
                });
            }
            if saved.elapsed() >= SAVE_INTERVAL {
                self.save(manifest)?;
                saved = Instant::now();
            }
        }
        self.save(manifest)?;
        outcome
    }

    /// Writes one file under another name, and gives it its own when it is whole. Returns its checksum.
    fn write_file(
        &self,
        index: u64,
        bytes: &AtomicU64,
        halt: &dyn Fn() -> bool,
    ) -> Result<String, Error> {
        let name = file_name(index);
        let (path, partial) = (
            self.folder.join(&name),
            self.folder.join(format!(".{name}.partial")),
        );
        let fail = |source| self.error(&partial, source);
        // Not truncated: another host that shares the file system may be writing it too, the same bytes to the same
        // places, and must not lose what it has written.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&partial)
            .map_err(fail)?;
        let mut content = content(self.seed, index);
        let (mut hash, mut block) = (Sha256::new(), vec![0; BLOCK_BYTES]);
        let (mut offset, size_bytes) = (0, self.sizes.of(index));
        while offset < size_bytes {
            if halt() {
                return Err(Error::Stopped);
            }
            let length = usize::try_from(size_bytes - offset)
                .map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
            content.fill_bytes(&mut block[..length]);
            hash.update(&block[..length]);
            file.write_all_at(&block[..length], offset).map_err(fail)?;
            offset += length as u64;
            bytes.fetch_add(length as u64, Ordering::Relaxed);
        }
        file.set_len(size_bytes).map_err(fail)?;
        if size_bytes >= OWN_SYNC_BYTES {
            file.sync_data().map_err(fail)?;
        }
        match std::fs::rename(&partial, &path) {
            // The other host was first.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.exists() => {}
            renamed => renamed.map_err(fail)?,
        }
        Ok(format!("{:x}", hash.finalize()))
    }

    /// Saves the manifest, after all that it vouches for is on the disk: so the write-back is over as well, and does not
    /// run into a trial.
    fn save(&self, manifest: &Manifest) -> Result<(), Error> {
        let (path, partial) = (
            self.folder.join(MANIFEST),
            self.folder.join(format!("{MANIFEST}.partial")),
        );
        let write = || -> io::Result<()> {
            let folder = File::open(&self.folder)?;
            if self.sizes.smallest() < OWN_SYNC_BYTES {
                // SAFETY: the descriptor is open for the length of the call.
                unsafe { libc::syncfs(folder.as_raw_fd()) };
            }
            let mut file = File::create(&partial)?;
            file.write_all(&serde_json::to_vec(manifest)?)?;
            file.sync_data()?;
            std::fs::rename(&partial, &path)?;
            folder.sync_all()
        };
        write().map_err(|source| self.error(&path, source))
    }

    fn bytes_of(&self, files: &[u64]) -> u64 {
        let sizes = files.iter().map(|index| self.sizes.of(*index));
        sizes.fold(0, u64::saturating_add)
    }

    fn error(&self, path: &Path, source: io::Error) -> Error {
        if source.kind() == io::ErrorKind::StorageFull {
            let free = free_bytes(&self.folder).unwrap_or(0);
            return Error::NoRoom {
                folder: self.folder.clone(),
                needed: self.sizes.sum(self.first, self.files),
                free,
            };
        }
        Error::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// Bytes that an ordinary user can still write below a folder.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = nix::sys::statvfs::statvfs(folder)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
}

/// The content of a file. Part of the format: another stream here makes every existing data set a wrong one.
fn content(seed: u64, index: u64) -> ChaCha8Rng {
    let mut key = *b"--------venturi data set, v. 1--";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut content = ChaCha8Rng::from_seed(key);
    content.set_stream(index);
    content
}

#[cfg(test)]
mod tests;
