//! Commands on files: `put`, `get`, `stat`, `make_directory`, `remove` and `list`.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::unistd::AccessFlags;
use venturi_gridftp::base64;

use super::failure::{FailureKind, ShellFailure, at_path};
use super::protocol::{
    Entry, GET_LIMIT_BYTES, GetCommand, MakeDirectoryCommand, PathCommand, PathKind, PutCommand,
    RemoveCommand, ShellResult, StatResult,
};
use super::session::{Ownership, remove_tree};
use crate::properties;

/// Maximum entries of one directory in a result.
const LIST_LIMIT: usize = 100_000;

/// Permission bits, set-user-ID, set-group-ID and sticky bits.
const MODE_BITS: u32 = 0o7777;

/// Writes a file. Readers see the old or the new content, except with `append`.
///
/// # Errors
/// If the content is not base 64, or the file cannot be written; then no temporary file remains.
pub(crate) fn put(command: &PutCommand) -> Result<ShellResult, ShellFailure> {
    let path = absolute(&command.path)?;
    let mode = checked_mode(command.mode)?;
    let content = base64::decode(command.content.as_bytes())
        .map_err(|_| ShellFailure::invalid("`content`: expected base 64".into()))?;
    let failed = at_path("write the file", &path);
    make_parents(&path)?;
    if command.append {
        append(&path, mode, &content).map_err(failed)?;
    } else {
        let temporary = temporary_name(&path)?;
        let written =
            write_new(&temporary, mode, &content).and_then(|()| std::fs::rename(&temporary, &path));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&temporary);
            return Err(failed(error));
        }
    }
    Ok(ShellResult::Nothing {})
}

fn write_new(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))
}

fn append(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    // Without O_NONBLOCK, a named pipe without a reader would block this thread.
    let mut file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if is_new {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(content)
}

fn temporary_name(path: &Path) -> Result<PathBuf, ShellFailure> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(ShellFailure::invalid(format!(
            "`path`: expected a file, found {}",
            path.display()
        )));
    };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Truncate a long name, because names have at most 255 bytes.
    let shown: String = name.to_string_lossy().chars().take(40).collect();
    let temporary = format!(".{shown}.venturi-{}-{number}", std::process::id());
    Ok(path.with_file_name(temporary))
}

/// Reads a part of a file.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn get(command: &GetCommand) -> Result<ShellResult, ShellFailure> {
    let path = absolute(&command.path)?;
    let read = || -> io::Result<(Vec<u8>, u64)> {
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)?;
        if command.offset > 0 {
            file.seek(SeekFrom::Start(command.offset))?;
        }
        let size_bytes = file.metadata()?.len();
        let mut content = Vec::new();
        file.take(command.max_bytes.min(GET_LIMIT_BYTES))
            .read_to_end(&mut content)?;
        Ok((content, size_bytes))
    };
    let (content, size_bytes) = read().map_err(at_path("read the file", &path))?;
    Ok(ShellResult::Get {
        content: base64::encode(&content),
        size_bytes,
    })
}

/// Returns the metadata of a path, and properties of its file system.
///
/// # Errors
/// If the path cannot be examined. A missing file is not an error.
pub(crate) fn stat(command: &PathCommand) -> Result<ShellResult, ShellFailure> {
    let path = absolute(&command.path)?;
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => None,
        Err(error) => return Err(at_path("examine the path", &path)(error)),
    };
    // A path that does not exist would be created in the file system of its nearest ancestor.
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    let system = nix::sys::statvfs::statvfs(existing).ok();
    let flags = system.map(|system| system.flags());
    let result = StatResult {
        kind: metadata.as_ref().map_or(PathKind::Absent, kind_of),
        size_bytes: metadata.as_ref().map(Metadata::len),
        mode: metadata.as_ref().map(|found| found.mode() & MODE_BITS),
        owner_uid: metadata.as_ref().map(Metadata::uid),
        free_bytes: crate::dataset::free_bytes(existing).ok(),
        writable: nix::unistd::eaccess(existing, AccessFlags::W_OK).is_ok(),
        noexec: flags.map(|flags| flags.contains(nix::sys::statvfs::FsFlags::ST_NOEXEC)),
        file_system: properties::storage(existing).remove("type"),
    };
    Ok(ShellResult::Stat(result))
}

fn kind_of(metadata: &Metadata) -> PathKind {
    let kind = metadata.file_type();
    if kind.is_dir() {
        PathKind::Directory
    } else if kind.is_file() {
        PathKind::File
    } else {
        PathKind::Other
    }
}

/// Creates a directory and its parents. A directory that the session owns is recorded in the
/// session directory first.
///
/// # Errors
/// If it cannot be created, a file has its name, or it exists although the session must own it.
pub(crate) fn make_directory(
    session: &Path,
    command: &MakeDirectoryCommand,
) -> Result<ShellResult, ShellFailure> {
    let path = absolute(&command.path)?;
    let mode = checked_mode(command.mode)?;
    let failed = at_path("create the directory", &path);
    let ownership = command
        .owned
        .then(|| Ownership::announce(session, &path))
        .transpose()
        .map_err(&failed)?;
    let made = make_parents(&path).map(|()| DirBuilder::new().mode(0o700).create(&path));
    if let (Some(ownership), Ok(Err(_)) | Err(_)) = (&ownership, &made) {
        ownership.retract(&path);
    }
    match made? {
        Ok(()) => {}
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() && !command.owned =>
        {
            return Ok(ShellResult::MakeDirectory { created: false });
        }
        Err(error) => return Err(failed(error)),
    }
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(&failed)?;
    if let Some(ownership) = ownership {
        ownership.confirm(&path).map_err(&failed)?;
    }
    Ok(ShellResult::MakeDirectory { created: true })
}

/// Removes a file, a link or a directory.
///
/// # Errors
/// If it cannot be removed. A missing file is not an error.
pub(crate) fn remove(command: &RemoveCommand) -> Result<ShellResult, ShellFailure> {
    let path = absolute(&command.path)?;
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !is_plain || path.file_name().is_none() {
        return Err(ShellFailure::invalid(format!(
            "`path`: expected an absolute path without `..` below the root directory, found {}",
            path.display()
        )));
    }
    let metadata = match std::fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ENOTDIR) =>
        {
            return Ok(ShellResult::Remove { removed: false });
        }
        Err(error) => return Err(at_path("remove", &path)(error)),
    };
    let removed = match (metadata.is_dir(), command.recursive) {
        (true, true) => remove_tree(&path),
        (true, false) => std::fs::remove_dir(&path),
        (false, _) => std::fs::remove_file(&path),
    };
    removed.map_err(at_path("remove", &path))?;
    Ok(ShellResult::Remove { removed: true })
}

/// Returns the entries of a directory, sorted by name.
///
/// # Errors
/// If it cannot be read, or has too many entries.
pub(crate) fn list(command: &PathCommand) -> Result<ShellResult, ShellFailure> {
    let path = absolute(&command.path)?;
    let failed = at_path("list the directory", &path);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        if entries.len() == LIST_LIMIT {
            return Err(ShellFailure {
                kind: FailureKind::Other,
                message: format!(
                    "{}: cannot list the directory: it has more than {LIST_LIMIT} entries",
                    path.display()
                ),
            });
        }
        // Skip an entry that was just removed.
        if let Ok(metadata) = entry.metadata() {
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                kind: kind_of(&metadata),
                size_bytes: metadata.len(),
            });
        }
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(ShellResult::List { entries })
}

/// Creates the parents of a path with the mode 0700.
///
/// # Errors
/// If they cannot be created.
pub(crate) fn make_parents(path: &Path) -> Result<(), ShellFailure> {
    let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) else {
        return Ok(());
    };
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(parent)
        .map_err(at_path("create the directory", parent))
}

/// Returns the path of a command.
///
/// # Errors
/// If the path is relative, because the controller does not know the working directory of the
/// shell.
pub(crate) fn absolute(path: &str) -> Result<PathBuf, ShellFailure> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(path.into());
    }
    Err(ShellFailure::invalid(format!(
        "expected an absolute path, found {path:?}"
    )))
}

fn checked_mode(mode: u32) -> Result<u32, ShellFailure> {
    if mode <= MODE_BITS {
        return Ok(mode);
    }
    Err(ShellFailure::invalid(format!(
        "`mode`: expected permission bits of at most {MODE_BITS}, found {mode}"
    )))
}
