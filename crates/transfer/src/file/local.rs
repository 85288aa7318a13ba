//! Files of this host, to compare them with files on servers: metadata, listings and content. They never change.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::content::{Checksums, NewFile};
use super::error::FileError;
use super::location::FileLocation;
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind};
use crate::checksum::Algorithm;

/// Bytes of a read.
const BLOCK_BYTES: usize = 1 << 20;

/// The file system of this host.
pub(super) struct LocalFiles;

impl FileServer for LocalFiles {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        path(at)
            .metadata()
            .map(|found| metadata(&found))
            .map_err(failed)
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let entries = fs::read_dir(path(at)).map_err(failed)?;
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok(RemoteEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                metadata: metadata(&entry.metadata()?),
            })
        };
        entries
            .map(entry)
            .collect::<io::Result<_>>()
            .map_err(failed)
    }

    fn write(&mut self, _: &FileLocation, _: &NewFile) -> Result<Option<Checksums>, FileError> {
        Err(read_only())
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        let mut file = fs::File::open(path(at)).map_err(failed)?;
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            match file.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(count) => sink(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn checksum(
        &mut self,
        _: &FileLocation,
        _: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        Ok(None)
    }

    fn remove_file(&mut self, _: &FileLocation) -> Result<(), FileError> {
        Err(read_only())
    }

    fn remove_directory(&mut self, _: &FileLocation) -> Result<(), FileError> {
        Err(read_only())
    }

    fn make_directory(&mut self, _: &FileLocation) -> Result<bool, FileError> {
        Err(read_only())
    }
}

fn path(at: &FileLocation) -> &Path {
    Path::new(OsStr::from_bytes(&at.url.path))
}

fn metadata(found: &fs::Metadata) -> Metadata {
    let modified = found.modified().ok();
    let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let kind = if found.is_dir() {
        RemoteKind::Directory
    } else if found.is_file() {
        RemoteKind::File
    } else {
        RemoteKind::Other
    };
    Metadata {
        kind,
        size_bytes: found.is_file().then_some(found.len()),
        modified_s: modified.and_then(|time| i64::try_from(time.as_secs()).ok()),
    }
}

fn failed(error: io::Error) -> FileError {
    FileError::system("cannot access the file", &error)
}

fn read_only() -> FileError {
    FileError::unsupported(
        "expected the URL of a server, because local files are only read; use the tools of the host",
    )
}
