//! What a copy of a tree leaves in it while it is not done: so that the same command knows that it goes on, and what it can rely on.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::attributes::Facts;
use crate::error::Failure;
use crate::temporary::{self, Token};

/// Bytes of names that are read at a time.
pub(crate) const NAMES_BYTES: usize = 1 << 16;
const LENGTH_LIMIT: usize = 4096;

/// The journal of a tree, locked as long as this is there, where the file system has locks.
#[derive(Debug)]
pub(crate) struct Journal {
    _lock: OwnedFd,
    token: Token,
    /// Whether nobody has left it.
    new: bool,
    /// Whether an earlier copy left it.
    pub(crate) found: bool,
    /// Whether what is in the tree under its own name is whole if size and time say so: the machine has not gone down since, or each file was
    /// synchronised.
    pub(crate) reliable: bool,
}

impl Journal {
    /// Opens the journal in the copy of a tree, or makes it. In a `fresh` one we have just made it ourselves.
    ///
    /// # Errors
    /// `WOULDBLOCK` where another copy has it, or had until now.
    pub(crate) fn open(
        folder: BorrowedFd<'_>,
        token: Token,
        sync: bool,
        fresh: bool,
    ) -> Result<Self, Errno> {
        let name = token.journal();
        let (file, new) = made_or_opened(folder, &name)?;
        temporary::lock(&file, folder, &name)?;
        let mut before = vec![0; LENGTH_LIMIT];
        let length = rustix::io::pread(&file, &mut before, 0)?;
        let now = text(&reliance(sync));
        let reliable = new || before[..length] == *now.as_bytes();
        // What cannot be relied on now cannot later either, until all of it was judged: then this file goes.
        let now = if reliable { now } else { text(NO_RELIANCE) };
        if before[..length] != *now.as_bytes() {
            rustix::io::pwrite(&file, now.as_bytes(), 0)?;
            rustix::fs::ftruncate(&file, now.len() as u64)?;
        }
        if !reliable {
            // Before anything that is written from here on: the old text must not outlast it.
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

    /// Whether a directory is the unfinished copy of that name.
    pub(crate) fn is_in(folder: BorrowedFd<'_>, token: Token) -> bool {
        rustix::fs::statat(folder, token.journal(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Takes the journal away if nobody had left it: nothing was copied.
    pub(crate) fn give_up(self, folder: BorrowedFd<'_>) {
        if self.new {
            // Where it stays the same command goes on with nothing.
            let _ = rustix::fs::unlinkat(folder, self.token.journal(), AtFlags::empty());
        }
    }

    /// Takes the journal away, and, where an earlier copy has been killed, what it has left.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn close(self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.found {
            sweep(folder, self.token)?;
        }
        rustix::fs::unlinkat(folder, self.token.journal(), AtFlags::empty())
    }
}

/// The copy that a file or directory belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// What its temporary names follow from.
    pub(crate) token: Token,
    /// Whether what is there under its own name is whole if size and time say so.
    pub(crate) reliable: bool,
}

impl Origin {
    /// One of which no journal says anything.
    pub(crate) fn of(token: Token) -> Self {
        let reliable = true;
        Self { token, reliable }
    }
}

/// Why the copy of a tree has no journal.
pub(crate) fn none(copy: PathBuf, errno: Errno) -> Failure {
    if errno == Errno::WOULDBLOCK {
        return Failure::found(
            copy,
            "a copy that nobody works on",
            "another copy of the same that goes on",
            "wait for it to end",
        );
    }
    Failure::kernel(copy, "a directory that can be written to", errno)
}

/// Why a journal is there still, of a copy that is done.
pub(crate) fn stays(copy: PathBuf, errno: Errno) -> Failure {
    Failure::kernel(copy, "to remove the journal of the copy", errno)
}

/// Opens a journal; whether it is new.
fn made_or_opened(folder: BorrowedFd<'_>, name: &CStr) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::openat(folder, name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        // Also if its copy ends meanwhile, and takes it away.
        Err(Errno::EXIST) => {
            rustix::fs::openat(folder, name, flags | OFlags::CREATE, mode).map(|file| (file, false))
        }
        made => made.map(|file| (file, true)),
    }
}

/// What a journal says: a format, and what its reader has to know.
fn text(reliance: &str) -> String {
    format!(
        "venturi copy 1\n{reliance}\nAn unfinished copy: run the same command again. To give it up, remove this file.\n"
    )
}

/// What a journal says instead of [`reliance`] if size and time say nothing.
const NO_RELIANCE: &str = "the content of files tells which are whole";

/// Why what was written can be relied on later: the same text then. Without synchronising, bytes are in memory alone for a while, so it
/// names the boot of the machine.
pub(crate) fn reliance(sync: bool) -> String {
    if sync {
        return "every file is synchronised".into();
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // A text that never comes again where the kernel does not tell.
    boot.map_or_else(
        |_| format!("{:?}", std::time::SystemTime::now()),
        |boot| boot.trim().to_owned(),
    )
}

/// Removes what a killed copy left below a directory, and has the directories keep their times.
fn sweep(folder: BorrowedFd<'_>, token: Token) -> Result<(), Errno> {
    let facts = Facts::from(rustix::fs::fstat(folder)?);
    let (folders, left) = names(folder, token)?;
    for name in &left {
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    }
    if !left.is_empty() {
        rustix::fs::futimens(folder, &facts.times())?;
    }
    for name in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, &name, flags, Mode::empty()) {
            Ok(inner) => sweep(inner.as_fd(), token)?,
            // What we may not look into we have not written to.
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The directories in a directory, and what is left of a copy.
fn names(folder: BorrowedFd<'_>, token: Token) -> Result<(Vec<CString>, Vec<CString>), Errno> {
    let (mut folders, mut left) = (Vec::new(), Vec::new());
    // Another description of it: reading goes on where the last reader of this one was.
    let folder = rustix::fs::openat(
        folder,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut entries = RawDir::new(&folder, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if token.owns(name.to_bytes()) {
            left.push(name.to_owned());
        } else if name != c"."
            && name != c".."
            && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
        {
            folders.push(name.to_owned());
        }
    }
    Ok((folders, left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What copies one after the other, each killed, may rely on: with the text of the journal that they find, if it is another than the one left.
    fn reliable(copies: &[(bool, Option<&str>)]) -> Vec<bool> {
        let folder = tempfile::tempdir().expect("a folder");
        let token = Token::new(Path::new("/a"), Path::new("/b"));
        let journal = folder
            .path()
            .join(token.journal().to_str().expect("letters"));
        let opened = OwnedFd::from(std::fs::File::open(folder.path()).expect("a folder"));
        let open = |(sync, found): &(bool, Option<&str>)| {
            if let Some(found) = found {
                std::fs::write(&journal, found).expect("a journal");
            }
            Journal::open(opened.as_fd(), token, *sync, false).expect("a journal")
        };
        copies.iter().map(|copy| open(copy).reliable).collect()
    }

    #[test]
    fn size_and_time_are_relied_on_while_no_copy_of_another_kind_was_there() {
        let boot = text("another boot");
        assert_eq!(reliable(&[(false, None), (false, None)]), [true, true]);
        assert_eq!(reliable(&[(true, None), (true, None)]), [true, true]);
        let later = [(false, Some(&*boot)), (false, None), (false, None)];
        assert_eq!(reliable(&later), [false; 3]);
        let mixed = [(false, None), (true, None), (true, None), (false, None)];
        assert_eq!(reliable(&mixed), [true, false, false, false]);
        let synced = [(true, None), (false, None), (true, None)];
        assert_eq!(reliable(&synced), [true, false, false]);
        // As a power cut may leave it.
        assert_eq!(reliable(&[(false, Some(""))]), [false]);
    }

    #[test]
    fn a_journal_that_was_there_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = Token::new(Path::new("/a"), Path::new("/b"));
        let opened = OwnedFd::from(std::fs::File::open(folder.path()).expect("a folder"));
        let open = |fresh| Journal::open(opened.as_fd(), token, false, fresh);
        let found = [false, false, true].map(|fresh| open(fresh).expect("a journal").found);
        assert_eq!(found, [false, true, false]);
        let _held = open(false).expect("a journal");
        assert_eq!(open(false).err(), Some(Errno::WOULDBLOCK));
    }
}
