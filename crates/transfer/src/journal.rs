//! Journal of an unfinished directory copy: the same command recognises the copy, and whether it can trust size and time of existing files.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::attributes::LocalMetadata;
use crate::error::Failure;
use crate::temporary::{self, Token};

/// Size of the buffer for directory entries, bytes.
pub(crate) const NAMES_BYTES: usize = 1 << 16;
const LENGTH_LIMIT: usize = 4096;

/// Journal of a directory copy, locked until it is dropped if the file system supports locks.
#[derive(Debug)]
pub(crate) struct Journal {
    _lock: OwnedFd,
    token: Token,
    /// True if no earlier copy left the journal.
    new: bool,
    /// True if an earlier copy left the journal.
    pub(crate) found: bool,
    /// True if files with their final names are complete if size and time match: the host has not restarted since then, or each
    /// file was synchronised.
    pub(crate) reliable: bool,
}

impl Journal {
    /// Opens or creates the journal in the copy of a directory. A `fresh` directory was created by this copy.
    ///
    /// # Errors
    /// `WOULDBLOCK` if another copy uses the journal, or used it until now.
    pub(crate) fn open(
        directory: BorrowedFd<'_>,
        token: Token,
        sync: bool,
        fresh: bool,
    ) -> Result<Self, Errno> {
        let name = token.journal();
        let (file, new) = create_or_open(directory, &name)?;
        temporary::lock(&file, directory, &name)?;
        let mut before = vec![0; LENGTH_LIMIT];
        let length = rustix::io::pread(&file, &mut before, 0)?;
        let now = text(&reliance(sync));
        let reliable = new || before[..length] == *now.as_bytes();
        // Without reliance now, the files stay unreliable until all of them were checked and the journal is deleted.
        let now = if reliable { now } else { text(NO_RELIANCE) };
        if before[..length] != *now.as_bytes() {
            rustix::io::pwrite(&file, now.as_bytes(), 0)?;
            rustix::fs::ftruncate(&file, now.len() as u64)?;
        }
        if !reliable {
            // Before any further write: the old text must not remain valid.
            rustix::fs::fsync(&file)?;
        }
        Ok(Self {
            _lock: file,
            token,
            new,
            found: !new && !fresh,
            reliable,
        })
    }

    /// True if a directory is the unfinished copy with this token.
    pub(crate) fn is_in(directory: BorrowedFd<'_>, token: Token) -> bool {
        rustix::fs::statat(directory, token.journal(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Deletes a new journal: nothing was copied.
    pub(crate) fn discard(self, directory: BorrowedFd<'_>) {
        if self.new {
            // If it remains, the same command resumes an empty copy.
            let _ = rustix::fs::unlinkat(directory, self.token.journal(), AtFlags::empty());
        }
    }

    /// Deletes the journal, and the temporary files of earlier runs that were killed.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn close(self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.found {
            sweep(directory, self.token)?;
        }
        rustix::fs::unlinkat(directory, self.token.journal(), AtFlags::empty())
    }
}

/// Origin of a file: its copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Token for its temporary names.
    pub(crate) token: Token,
    /// True if existing files with the same size and time are complete.
    pub(crate) reliable: bool,
}

impl Origin {
    /// Returns the origin of a file without a journal.
    pub(crate) fn of(token: Token) -> Self {
        let reliable = true;
        Self { token, reliable }
    }
}

/// Returns the failure to create a journal.
pub(crate) fn none(copy: PathBuf, errno: Errno) -> Failure {
    if errno == Errno::WOULDBLOCK {
        return Failure::found(
            copy,
            "a copy that no other process writes",
            "another running copy of the same source",
            "wait until it ends",
        );
    }
    Failure::kernel(copy, "a writable directory", errno)
}

/// Returns the failure to delete the journal of a complete copy.
pub(crate) fn stays(copy: PathBuf, errno: Errno) -> Failure {
    Failure::kernel(copy, "to remove the journal of the copy", errno)
}

/// Opens or creates a journal. Returns true if it is new.
fn create_or_open(directory: BorrowedFd<'_>, name: &CStr) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::openat(directory, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        // Another copy can end at the same time and delete it.
        Err(Errno::EXIST) => rustix::fs::openat(directory, name, flags | OFlags::CREATE, mode)
            .map(|file| (file, false)),
        created => created.map(|file| (file, true)),
    }
}

/// Returns the text of a journal: format, reliance and a note to the reader.
fn text(reliance: &str) -> String {
    format!(
        "venturi copy 1\n{reliance}\nAn unfinished copy: run the same command again. To abandon it, delete this file.\n"
    )
}

/// Text of a journal instead of [`reliance`] if size and time are not reliable.
const NO_RELIANCE: &str = "complete files are identified by content";

/// Returns the condition under which written files are reliable later: the text must be the same. Without `--sync`, data can be
/// in memory only, so the text contains the boot ID of the host.
pub(crate) fn reliance(sync: bool) -> String {
    if sync {
        return "every file is synchronised".into();
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // A unique text if the kernel does not report the boot ID.
    boot.map_or_else(
        |_| format!("{:?}", std::time::SystemTime::now()),
        |boot| boot.trim().to_owned(),
    )
}

/// Deletes temporary files of a killed copy below a directory, and restores the times of the directories.
fn sweep(directory: BorrowedFd<'_>, token: Token) -> Result<(), Errno> {
    let metadata = LocalMetadata::from(rustix::fs::fstat(directory)?);
    let (directories, leftovers) = names(directory, token)?;
    for name in &leftovers {
        rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
    }
    if !leftovers.is_empty() {
        rustix::fs::futimens(directory, &metadata.times())?;
    }
    for name in directories {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, &name, flags, Mode::empty()) {
            Ok(inner) => sweep(inner.as_fd(), token)?,
            // The copy cannot have written to a directory that it cannot read.
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Returns the subdirectories and the temporary files of a directory.
fn names(directory: BorrowedFd<'_>, token: Token) -> Result<(Vec<CString>, Vec<CString>), Errno> {
    let (mut directories, mut leftovers) = (Vec::new(), Vec::new());
    // A separate file description, because reading continues at the position of the last reader.
    let directory = rustix::fs::openat(
        directory,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if token.owns(name.to_bytes()) {
            leftovers.push(name.to_owned());
        } else if name != c"."
            && name != c".."
            && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
        {
            directories.push(name.to_owned());
        }
    }
    Ok((directories, leftovers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Checks the reliance of successive killed copies, with the journal text that each one finds, if not the text of the previous copy.
    fn reliable(copies: &[(bool, Option<&str>)]) -> Vec<bool> {
        let directory = tempfile::tempdir().expect("a folder");
        let token = Token::new(Path::new("/a"), Path::new("/b"));
        let journal = directory
            .path()
            .join(token.journal().to_str().expect("letters"));
        let opened = OwnedFd::from(std::fs::File::open(directory.path()).expect("a folder"));
        let open = |(sync, found): &(bool, Option<&str>)| {
            if let Some(found) = found {
                std::fs::write(&journal, found).expect("a journal");
            }
            Journal::open(opened.as_fd(), token, *sync, false).expect("a journal")
        };
        copies.iter().map(|copy| open(copy).reliable).collect()
    }

    #[test]
    fn size_and_time_are_trusted_until_a_copy_of_another_kind_ran() {
        let boot = text("another boot");
        assert_eq!(reliable(&[(false, None), (false, None)]), [true, true]);
        assert_eq!(reliable(&[(true, None), (true, None)]), [true, true]);
        let later = [(false, Some(&*boot)), (false, None), (false, None)];
        assert_eq!(reliable(&later), [false; 3]);
        let mixed = [(false, None), (true, None), (true, None), (false, None)];
        assert_eq!(reliable(&mixed), [true, false, false, false]);
        let synced = [(true, None), (false, None), (true, None)];
        assert_eq!(reliable(&synced), [true, false, false]);
        // State after a power cut.
        assert_eq!(reliable(&[(false, Some(""))]), [false]);
    }

    #[test]
    fn an_existing_journal_is_reported() {
        let directory = tempfile::tempdir().expect("a folder");
        let token = Token::new(Path::new("/a"), Path::new("/b"));
        let opened = OwnedFd::from(std::fs::File::open(directory.path()).expect("a folder"));
        let open = |fresh| Journal::open(opened.as_fd(), token, false, fresh);
        let found = [false, false, true].map(|fresh| open(fresh).expect("a journal").found);
        assert_eq!(found, [false, true, false]);
        let _lock = open(false).expect("a journal");
        assert_eq!(open(false).err(), Some(Errno::WOULDBLOCK));
    }
}
