//! Temporary names of unfinished files and directories.
//!
//! The names depend on source and destination, so the same command finds its own files, and another copy to the same directory
//! has other names.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FlockOperation, RenameFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use sha2::{Digest, Sha256};

/// Prefix of all temporary names.
pub(crate) const PREFIX: &str = ".venturi-";

/// Token of a copy in its temporary names: equal for the same source and destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    pub(crate) fn new(source: &Path, destination: &Path) -> Self {
        let parts = [
            source.as_os_str().as_bytes(),
            b"\0",
            destination.as_os_str().as_bytes(),
        ];
        Self(digest(&parts))
    }

    /// Returns the temporary name of a file.
    pub(crate) fn part(self, name: &[u8]) -> CString {
        self.named(&format!("-{:016x}.part", digest(&[name])))
    }

    /// Returns the name of the chunk map of a large file.
    pub(crate) fn progress(self, name: &[u8]) -> CString {
        self.named(&format!("-{:016x}.progress", digest(&[name])))
    }

    /// Returns the name of the journal in the copy of a directory.
    pub(crate) fn journal(self) -> CString {
        self.named(".journal")
    }

    /// Returns the name of a directory that has no journal yet.
    pub(crate) fn tree(self) -> CString {
        self.named(".tree")
    }

    /// True if this copy uses the name for a file or its chunk map.
    pub(crate) fn owns(self, name: &[u8]) -> bool {
        name.starts_with(format!("{PREFIX}{:016x}-", self.0).as_bytes())
    }

    fn named(self, end: &str) -> CString {
        CString::new(format!("{PREFIX}{:016x}{end}", self.0))
            .expect("no zero byte in digits and these ends")
    }
}

/// Returns the digest of the destination in the temporary name of a file.
pub(crate) fn destination(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
    let (_, digest) = name.strip_suffix(".part")?.rsplit_once('-')?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (digest.len() == 16 && digest.bytes().all(is_digit)).then_some(digest)
}

fn digest(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let bytes = hash.finalize();
    u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes of 32"))
}

/// Locks a file under its temporary name, so that two copies of the same source do not mix. On a file system without locks (Lustre, NFS without its
/// daemon), concurrent copies are not detected.
///
/// # Errors
/// `WOULDBLOCK`: another copy has the lock, or had it and renamed the complete file between open and lock.
pub(crate) fn lock(file: &OwnedFd, directory: BorrowedFd<'_>, name: impl Arg) -> Result<(), Errno> {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(Errno::WOULDBLOCK) || !has_name(file, directory, name) {
        return Err(Errno::WOULDBLOCK);
    }
    Ok(())
}

/// True if an open file still has this name. Without locks, or after an action of another user, the name can belong to another file
/// by now.
pub(crate) fn has_name(file: &OwnedFd, directory: BorrowedFd<'_>, name: impl Arg) -> bool {
    let own = rustix::fs::fstat(file);
    let exists = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((own, exists), (Ok(own), Ok(exists)) if (own.st_dev, own.st_ino) == (exists.st_dev, exists.st_ino))
}

/// Renames a file; an existing target is an error unless `replace`. If the file system cannot check this atomically (NFS, Lustre, some
/// FUSE), the check is done as late as possible.
///
/// # Errors
/// `EXIST` if the target exists and must not be replaced; the error of the kernel.
pub(crate) fn rename(
    (from, old): (impl AsFd, impl Arg + Copy),
    (to, new): (impl AsFd, impl Arg + Copy),
    replace: bool,
) -> Result<(), Errno> {
    if replace {
        return rustix::fs::renameat(from, old, to, new);
    }
    match rustix::fs::renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        other => return other,
    }
    match rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(from, old, to, new),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_the_locations_and_belong_to_one_copy_only() {
        let token = |a: &str, b: &str| Token::new(Path::new(a), Path::new(b));
        let ours = token("/a", "/b");
        assert_eq!(ours.part(b"x"), token("/a", "/b").part(b"x"));
        for other in [token("/b", "/a"), token("/a/b", ""), token("", "/a/b")] {
            assert!(!other.owns(ours.part(b"x").as_bytes()));
        }
        assert!(ours.owns(ours.part(b"x").as_bytes()) && ours.owns(ours.progress(b"x").as_bytes()));
        assert!(!ours.owns(ours.journal().as_bytes()) && !ours.owns(b"x"));
        assert_ne!(ours.part(b"x"), ours.part(b"y"));
        // Agents find the files of a destination by this end of their names.
        for (name, end) in [(ours.part(b"x"), "part"), (ours.progress(b"x"), "progress")] {
            let end = format!("-2d711642b726b044.{end}");
            assert!(name.to_str().expect("text").ends_with(&end));
        }
        let end = |name: CString| destination(name.as_bytes()).map(str::to_owned);
        assert_eq!(end(ours.part(b"x")).as_deref(), Some("2d711642b726b044"));
        assert_eq!(end(ours.journal()), None);
        // The maximum length of a file name.
        assert!(ours.progress(&[b'n'; 255]).as_bytes().len() < 64);
    }

    #[test]
    fn a_file_renamed_before_it_was_locked_is_not_taken_for_a_leftover() {
        let directory = tempfile::tempdir().expect("a folder");
        let (part, name) = (directory.path().join("part"), directory.path().join("name"));
        let file = OwnedFd::from(std::fs::File::create(&part).expect("a file"));
        assert_eq!(lock(&file, rustix::fs::CWD, &part), Ok(()));
        std::fs::rename(&part, &name).expect("a name");
        for exists in [false, true] {
            assert_eq!(lock(&file, rustix::fs::CWD, &part), Err(Errno::WOULDBLOCK));
            if !exists {
                std::fs::write(&part, "another").expect("a file");
            }
        }
    }

    #[test]
    fn a_rename_does_not_replace_an_existing_file() {
        let directory = tempfile::tempdir().expect("a folder");
        let directory_fd = OwnedFd::from(std::fs::File::open(directory.path()).expect("a folder"));
        for name in ["old", "taken"] {
            std::fs::write(directory.path().join(name), name).expect("a file");
        }
        let rename = |new: &str| rename((&directory_fd, "old"), (&directory_fd, new), false);
        assert_eq!(rename("taken"), Err(Errno::EXIST));
        assert_eq!(rename("new"), Ok(()));
        assert_eq!(rename("new"), Err(Errno::NOENT));
        let exists = |name| std::fs::read_to_string(directory.path().join(name)).ok();
        assert_eq!(exists("taken").as_deref(), Some("taken"));
        assert_eq!(exists("new").as_deref(), Some("old"));
    }
}
