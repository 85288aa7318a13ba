//! Rules of all protocols: no overwriting, parents first, no remains of a failed file, no recursive removal.

use serde::Serialize;

use super::access::{self, AccessReport};
use super::arguments::{AlgorithmName, ChecksumArgs, ChecksumBy, CreateArgs, FileCommand};
use super::content::{Checksums, NewContent, NewFile};
use super::error::{ErrorKind, FileError};
use super::location::FileLocation;
use super::server::{Metadata, RemoteEntry, RemoteKind};
use super::servers::FileServers;
use crate::checksum::{Algorithm, Checksum};
use crate::http::digest::to_hex;

/// Result of a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum FileResult {
    Metadata(Metadata),
    Listed {
        entries: Vec<RemoteEntry>,
    },
    Created {
        size_bytes: u64,
        checksums: Checksums,
    },
    Checksum {
        algorithm: AlgorithmName,
        value: String,
        by: ChecksumBy,
        /// Bytes that were read; none for a checksum of the server.
        size_bytes: Option<u64>,
    },
    Removed {
        removed: bool,
    },
    Made {
        created: bool,
    },
    Access(AccessReport),
}

impl FileServers {
    /// Execute a request.
    ///
    /// # Errors
    /// Location, action and reason.
    pub(super) fn execute(&mut self, command: &FileCommand) -> Result<FileResult, FileError> {
        let at = &FileLocation::parse(command.url())?;
        let result = match command {
            FileCommand::Stat(_) => self.stat(at).map(FileResult::Metadata),
            FileCommand::List(_) => self.list(at).map(|entries| FileResult::Listed { entries }),
            FileCommand::Create(request) => self.create(at, request),
            FileCommand::Checksum(request) => self.checksum(at, request),
            FileCommand::Remove(_) => self.remove(at),
            FileCommand::Mkdir(_) => self
                .make_directory(at)
                .map(|created| FileResult::Made { created }),
            FileCommand::Access(request) => {
                access::check(self, at, !request.no_probe).map(FileResult::Access)
            }
        };
        result.map_err(|error| error.at(at, command.action()))
    }

    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        self.server(at)?.stat(at)
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        if self.stat(at)?.kind != RemoteKind::Directory {
            let message = "expected a directory, found a file; use `stat` for a file";
            return Err(FileError::new(ErrorKind::Invalid, message));
        }
        let mut entries = self.server(at)?.list(at)?;
        entries.sort_by(|first, second| first.name.cmp(&second.name));
        Ok(entries)
    }

    fn create(&mut self, at: &FileLocation, request: &CreateArgs) -> Result<FileResult, FileError> {
        let size_bytes = request.size_bytes;
        let file = NewFile {
            size_bytes,
            content: NewContent::Generated {
                seed: request.seed,
                index: request.index,
            },
        };
        let checksums = self
            .write_new(at, &file)?
            .expect("a generated file has checksums");
        Ok(FileResult::Created {
            size_bytes,
            checksums,
        })
    }

    /// Write a file that does not exist, with its parents. After a failure, remove its part.
    pub(super) fn write_new(
        &mut self,
        at: &FileLocation,
        file: &NewFile,
    ) -> Result<Option<Checksums>, FileError> {
        self.check_absent(at)?;
        self.write_checked(at, file)
    }

    /// Check that a file can be new, and create its parents.
    pub(super) fn check_destination(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.check_absent(at)?;
        self.ensure_parent(at)
    }

    /// Check that nothing exists at a path.
    fn check_absent(&mut self, at: &FileLocation) -> Result<(), FileError> {
        match self.stat(at) {
            Ok(_) => Err(FileError::new(
                ErrorKind::Exists,
                "it exists already; choose another name",
            )),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind == ErrorKind::Permission => {
                let message = format!(
                    "{}; reading the metadata is necessary, so that no file is overwritten",
                    error.message
                );
                Err(FileError { message, ..error })
            }
            Err(error) => Err(error),
        }
    }

    /// Write a file after the check that it does not exist.
    pub(super) fn write_checked(
        &mut self,
        at: &FileLocation,
        file: &NewFile,
    ) -> Result<Option<Checksums>, FileError> {
        let known = at
            .parent()
            .is_none_or(|parent| self.knows_directory(&parent));
        self.ensure_parent(at)?;
        let mut written = self.server(at)?.write(at, file);
        if known
            && written
                .as_ref()
                .is_err_and(|error| error.kind == ErrorKind::NotFound)
        {
            // Another client has removed the directory.
            self.forget_directories();
            self.ensure_parent(at)?;
            written = self.server(at)?.write(at, file);
        }
        written.map_err(|error| self.remove_part(at, error))
    }

    /// Remove the part of a file after an error, if the server has started to write it.
    pub(super) fn remove_part(&mut self, at: &FileLocation, error: FileError) -> FileError {
        use ErrorKind as K;
        let never_started = matches!(
            error.kind,
            K::Exists | K::Permission | K::NotFound | K::Unsupported | K::Invalid | K::NoListener
        );
        if never_started {
            return error;
        }
        let removed = self.server(at).and_then(|server| server.remove_file(at));
        match removed {
            Err(left) if left.kind != K::NotFound && self.stat(at).is_ok() => FileError {
                message: format!(
                    "{}; remove the incomplete file {at} yourself: {}",
                    error.message, left.message
                ),
                ..error
            },
            _ => error,
        }
    }

    /// Create the missing parent directories of a path.
    fn ensure_parent(&mut self, at: &FileLocation) -> Result<(), FileError> {
        match at.parent() {
            Some(parent) if self.server(at)?.needs_parents() => {
                match self.ensure_directory(&parent) {
                    // A server of HTTP without WebDAV creates directories with their files.
                    Err(error) if error.kind == ErrorKind::Unsupported => Ok(()),
                    ensured => ensured.map(drop),
                }
            }
            _ => Ok(()),
        }
    }

    /// Create a missing directory with its parents. Return whether it was missing.
    fn ensure_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        if self.knows_directory(at) || at.is_root() {
            return Ok(false);
        }
        match self.stat(at) {
            Ok(Metadata {
                kind: RemoteKind::Directory,
                ..
            }) => {
                self.remember_directory(at);
                return Ok(false);
            }
            Ok(_) => {
                return Err(FileError::new(
                    ErrorKind::Exists,
                    format!("{at} is a file; choose another directory"),
                ));
            }
            // A user may lack permission for the parents of the own directory.
            Err(error) if error.kind == ErrorKind::Permission => return Ok(false),
            Err(error) if error.kind == ErrorKind::Unsupported => return Ok(false),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.ensure_parent(at)?;
        let made = self.server(at)?.make_directory(at);
        let created = match made {
            Ok(created) => created,
            // Another client was faster. Servers report this with various errors.
            Err(error) => match self.stat(at) {
                Ok(found) if found.kind == RemoteKind::Directory => false,
                _ => return Err(error),
            },
        };
        self.remember_directory(at);
        Ok(created)
    }

    /// Create a directory with its parents. Return whether it was missing.
    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        self.forget_directories();
        match self.stat(at) {
            Ok(Metadata {
                kind: RemoteKind::Directory,
                ..
            }) => Ok(false),
            Ok(_) => Err(FileError::new(
                ErrorKind::Exists,
                "a file has this name; choose another name",
            )),
            Err(error) if error.kind == ErrorKind::NotFound => self.ensure_directory(at),
            Err(error) => Err(error),
        }
    }

    /// Remove a file or an empty directory.
    fn remove(&mut self, at: &FileLocation) -> Result<FileResult, FileError> {
        let found = match self.stat(at) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.server(at)?.remove_unfinished(at)?;
                return Err(error);
            }
            found => found?,
        };
        if found.kind == RemoteKind::Directory {
            if !self.server(at)?.list(at)?.is_empty() {
                return Err(FileError::new(
                    ErrorKind::Exists,
                    "the directory is not empty; remove its entries first",
                ));
            }
            self.forget_directories();
            self.server(at)?.remove_directory(at)?;
        } else {
            self.server(at)?.remove_file(at)?;
        }
        Ok(FileResult::Removed { removed: true })
    }

    fn checksum(
        &mut self,
        at: &FileLocation,
        request: &ChecksumArgs,
    ) -> Result<FileResult, FileError> {
        let algorithm = request.algorithm.map(Algorithm::from);
        if request.by != Some(ChecksumBy::Reading) {
            let found = match self.server(at)?.checksum(at, algorithm) {
                Err(error) if error.kind == ErrorKind::Unsupported => None,
                found => found?,
            };
            if let Some((algorithm, value)) = found {
                return Ok(FileResult::Checksum {
                    algorithm: algorithm.into(),
                    value: to_hex(&value),
                    by: ChecksumBy::Server,
                    size_bytes: None,
                });
            }
        }
        if request.by == Some(ChecksumBy::Server) {
            return Err(FileError::unsupported(
                "the server has no such checksum; choose another algorithm, or omit `by`",
            ));
        }
        let algorithm = algorithm.unwrap_or(Algorithm::Adler32);
        let (mut checksum, mut size_bytes) = (Checksum::new(algorithm), 0);
        self.server(at)?.read(at, &mut |bytes| {
            checksum.update(bytes);
            size_bytes += bytes.len() as u64;
        })?;
        Ok(FileResult::Checksum {
            algorithm: algorithm.into(),
            value: to_hex(&checksum.finish()),
            by: ChecksumBy::Reading,
            size_bytes: Some(size_bytes),
        })
    }
}
