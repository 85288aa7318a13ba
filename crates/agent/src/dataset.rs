//! Datasets: files of incompressible bytes that are equal on all hosts, created fast and only once.
//!
//! File *i* has the content [`FileContent`] of number *i*. A manifest in the directory
//! lists the complete files with their checksums, so that a later run uses them immediately.

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
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use venturi_plan::{Bytes, FileContent, Sizes, file_name};

use crate::activity::ActivityMonitor;

/// Name of the manifest in the directory of the dataset.
pub(crate) const MANIFEST: &str = ".venturi-dataset.json";

/// Name of the lock file in the directory of the dataset.
pub(crate) const LOCK: &str = ".venturi-dataset.lock";

/// Bytes generated, hashed and written at a time: large for the disk, small enough for the cache of
/// a core.
const BLOCK_BYTES: usize = 1 << 20;

/// Below this size, one `syncfs` for all files takes less time than one `fdatasync` per file.
const OWN_SYNC_BYTES: u64 = 1 << 20;

/// Minimum time between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Interval between saves of the manifest, which limits the work that is lost after a kill.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between checks whether another agent has finished with the directory.
const TURN_PAUSE: Duration = Duration::from_millis(10);

/// The required files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestedFiles {
    pub(crate) directory: PathBuf,
    pub(crate) seed: u64,
    pub(crate) sizes: Sizes,
    pub(crate) first: u64,
    pub(crate) files: u64,
    /// Paths below the directory of files of the user, which are never written; empty: numbered files.
    pub(crate) names: Vec<String>,
}

/// Files and bytes created, and the time used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrepareStats {
    /// Files written now.
    pub(crate) files: u64,
    /// Existing files.
    pub(crate) reused: u64,
}

/// Progress of the writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteProgress {
    pub(crate) files: u64,
    pub(crate) of_files: u64,
    pub(crate) bytes: u64,
    pub(crate) of_bytes: u64,
}

/// Reason why a dataset could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatasetError {
    #[error("expected {needed} free bytes below `{}`, found {free}; delete files or choose another storage", .directory.display())]
    NoSpace {
        directory: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("`{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}`: expected a file of at most {limit_bytes} bytes (size of the plan), found {found}; raise the size, or remove it from the list", .path.display())]
    Unsuitable {
        path: PathBuf,
        limit_bytes: u64,
        found: String,
    },
    #[error("the run was stopped")]
    Stopped,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    seed: u64,
    /// Size of the largest file; a smaller file has the first bytes of a larger file.
    size_bytes: u64,
    /// File name → SHA-256 of its content.
    files: BTreeMap<String, String>,
}

impl RequestedFiles {
    /// Returns the paths of the files, in order.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        if !self.names.is_empty() {
            let names = self.names.iter();
            return names.map(|name| self.directory.join(name)).collect();
        }
        (self.first..self.first + self.files)
            .map(|index| self.directory.join(file_name(index)))
            .collect()
    }

    /// Return the sizes of files of the user by name; empty for numbered files.
    ///
    /// # Errors
    /// If a path is not a file, or a file is larger than the plan allows.
    pub(crate) fn existing_sizes(&self) -> Result<BTreeMap<String, Bytes>, DatasetError> {
        let sizes = (self.first..).zip(&self.names).map(|(index, name)| {
            let path = self.directory.join(name);
            let found = path
                .metadata()
                .map_err(|source| self.error(&path, source))?;
            let limit_bytes = self.sizes.of(index);
            if !found.is_file() || found.len() > limit_bytes {
                let found = if found.is_file() {
                    format!("{} bytes", found.len())
                } else {
                    "no file".into()
                };
                return Err(DatasetError::Unsuitable {
                    path,
                    limit_bytes,
                    found,
                });
            }
            Ok((name.clone(), Bytes::new(found.len())))
        });
        sizes.collect()
    }

    /// Create missing files, with several threads; keep correct files.
    ///
    /// # Errors
    /// If the disk is full, a file cannot be written, or the work must stop.
    pub(crate) fn ensure(
        &self,
        threads: usize,
        activity: &ActivityMonitor,
        report: &dyn Fn(WriteProgress),
    ) -> Result<PrepareStats, DatasetError> {
        if !self.names.is_empty() {
            return Ok(PrepareStats {
                files: 0,
                reused: self.files,
            });
        }
        std::fs::create_dir_all(&self.directory)
            .map_err(|source| self.error(&self.directory, source))?;
        let _turn = self.wait_turn(activity)?;
        let mut manifest = self.read_manifest();
        let missing: Vec<u64> = (self.first..self.first + self.files)
            .inspect(|_| _ = activity.beat())
            .filter(|index| !self.is_whole(&manifest, *index))
            .collect();
        if !missing.is_empty() {
            self.check_space(&missing)?;
            self.make(&missing, &mut manifest, threads, activity, report)?;
        }
        let files = missing.len() as u64;
        Ok(PrepareStats {
            files,
            reused: self.files - files,
        })
    }

    /// Keep other agents and shells out of the directory: each would create all files and save a manifest that lacks the
    /// files of the other. None if the directory is read-only, or the file system has no locks.
    fn wait_turn(&self, activity: &ActivityMonitor) -> Result<Option<Flock<File>>, DatasetError> {
        // NFS locks only files that are open for writing, and no directories.
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.directory.join(LOCK));
        let Ok(mut lock) = opened else {
            return Ok(None);
        };
        loop {
            match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(turn) => return Ok(Some(turn)),
                // The size of the dataset limits the time that the other agent needs.
                Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => {
                    if !activity.beat() {
                        return Err(DatasetError::Stopped);
                    }
                    std::thread::sleep(TURN_PAUSE);
                    lock = back;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// Returns the manifest in the directory. It is empty if the manifest is missing, unreadable or
    /// of other content; then all files are created again.
    fn read_manifest(&self) -> Manifest {
        let read = std::fs::read(self.directory.join(MANIFEST)).ok();
        let manifest: Option<Manifest> = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        manifest
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
        manifest.files.contains_key(&name) && right_size(self.directory.join(name))
    }

    fn check_space(&self, missing: &[u64]) -> Result<(), DatasetError> {
        let needed = self.bytes_of(missing);
        let free =
            free_bytes(&self.directory).map_err(|source| self.error(&self.directory, source))?;
        if needed > free {
            return Err(DatasetError::NoSpace {
                directory: self.directory.clone(),
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
        activity: &ActivityMonitor,
        report: &dyn Fn(WriteProgress),
    ) -> Result<(), DatasetError> {
        let (next, bytes, failed) = (
            AtomicUsize::new(0),
            AtomicU64::new(0),
            AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..threads.clamp(1, missing.len()) {
                let (sender, next, bytes, failed) = (sender.clone(), &next, &bytes, &failed);
                let halt = move || !activity.beat() || failed.load(Ordering::Relaxed);
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
            self.collect(&receiver, missing, &bytes, manifest, report)
        })?;
        if activity.is_stopped() {
            Err(DatasetError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Add the checksums of finished files to the manifest, save it from time to time, report progress.
    fn collect(
        &self,
        finished: &mpsc::Receiver<(u64, Result<String, DatasetError>)>,
        missing: &[u64],
        bytes: &AtomicU64,
        manifest: &mut Manifest,
        report: &dyn Fn(WriteProgress),
    ) -> Result<(), DatasetError> {
        let (mut files, mut outcome) = (0, Ok(()));
        let (mut reported, mut saved) = (Instant::now(), Instant::now());
        loop {
            match finished.recv_timeout(PROGRESS_INTERVAL) {
                Ok((index, Ok(checksum))) => {
                    files += 1;
                    manifest.files.insert(file_name(index), checksum);
                }
                Ok((_, Err(error))) => {
                    // The first error has the reason; errors that follow from it are `Stopped`.
                    if outcome.is_ok() || matches!(outcome, Err(DatasetError::Stopped)) {
                        outcome = Err(error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                report(WriteProgress {
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

    /// Writes one file under a temporary name, and renames it when it is complete. Returns its
    /// checksum.
    fn write_file(
        &self,
        index: u64,
        bytes: &AtomicU64,
        halt: &dyn Fn() -> bool,
    ) -> Result<String, DatasetError> {
        let name = file_name(index);
        let (path, partial) = (
            self.directory.join(&name),
            self.directory.join(format!(".{name}.partial")),
        );
        let fail = |source| self.error(&partial, source);
        // Do not truncate: another host on the same file system may write the same bytes to the
        // same offsets, and must not lose them.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&partial)
            .map_err(fail)?;
        let mut content = FileContent::new(self.seed, index);
        let (mut hash, mut block) = (Sha256::new(), vec![0; BLOCK_BYTES]);
        let (mut offset, size_bytes) = (0, self.sizes.of(index));
        while offset < size_bytes {
            if halt() {
                return Err(DatasetError::Stopped);
            }
            let length = usize::try_from(size_bytes - offset)
                .map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
            content.fill(&mut block[..length]);
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
            // The other host has renamed it first.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.exists() => {}
            renamed => renamed.map_err(fail)?,
        }
        Ok(format!("{:x}", hash.finalize()))
    }

    /// Save the manifest after all its files are on the disk, so that the write-back is complete
    /// and does not disturb a trial.
    fn save(&self, manifest: &Manifest) -> Result<(), DatasetError> {
        let (path, partial) = (
            self.directory.join(MANIFEST),
            self.directory.join(format!("{MANIFEST}.partial")),
        );
        let write = || -> io::Result<()> {
            let directory = File::open(&self.directory)?;
            if self.sizes.smallest() < OWN_SYNC_BYTES {
                // SAFETY: the descriptor is open for the length of the call.
                unsafe { libc::syncfs(directory.as_raw_fd()) };
            }
            let mut file = File::create(&partial)?;
            file.write_all(&serde_json::to_vec(manifest)?)?;
            file.sync_data()?;
            std::fs::rename(&partial, &path)?;
            directory.sync_all()
        };
        write().map_err(|source| self.error(&path, source))
    }

    fn bytes_of(&self, files: &[u64]) -> u64 {
        let sizes = files.iter().map(|index| self.sizes.of(*index));
        sizes.fold(0, u64::saturating_add)
    }

    fn error(&self, path: &Path, source: io::Error) -> DatasetError {
        if source.kind() == io::ErrorKind::StorageFull {
            let free = free_bytes(&self.directory).unwrap_or(0);
            return DatasetError::NoSpace {
                directory: self.directory.clone(),
                needed: self.sizes.sum(self.first, self.files),
                free,
            };
        }
        DatasetError::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// Returns the bytes that an ordinary user can still write below a directory.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let found = nix::sys::statvfs::statvfs(directory)?;
    Ok(found.blocks_available() as u64 * found.fragment_size() as u64)
}

#[cfg(test)]
mod tests;
