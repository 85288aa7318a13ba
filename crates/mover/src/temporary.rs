//! Names under which things are while they are not whole.
//!
//! They follow from the two places of a copy, so that the same command finds what it has left; and another copy into the same directory
//! has others.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FlockOperation, RenameFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use sha2::{Digest, Sha256};

/// How all of them begin.
pub(crate) const PREFIX: &str = ".venturi-";

/// What a copy from one place to another is called: the same for the same places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    pub(crate) fn new(source: &Path, destination: &Path) -> Self {
        let places = [
            source.as_os_str().as_bytes(),
            b"\0",
            destination.as_os_str().as_bytes(),
        ];
        Self(digest(&places))
    }

    /// The temporary name of a file.
    pub(crate) fn part(self, name: &[u8]) -> CString {
        self.named(&format!("-{:016x}.part", digest(&[name])))
    }

    /// The name of the record of a large file's chunks.
    pub(crate) fn progress(self, name: &[u8]) -> CString {
        self.named(&format!("-{:016x}.progress", digest(&[name])))
    }

    /// The name of a tree's journal, in the copy of the tree.
    pub(crate) fn journal(self) -> CString {
        self.named(".journal")
    }

    /// The name of a tree while it has no journal.
    pub(crate) fn tree(self) -> CString {
        self.named(".tree")
    }

    /// Whether a name is one of this copy's for a file or its record.
    pub(crate) fn owns(self, name: &[u8]) -> bool {
        name.starts_with(format!("{PREFIX}{:016x}-", self.0).as_bytes())
    }

    fn named(self, end: &str) -> CString {
        CString::new(format!("{PREFIX}{:016x}{end}", self.0))
            .expect("no zero byte in digits and these ends")
    }
}

fn digest(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let bytes = hash.finalize();
    u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes of 32"))
}

/// Locks a file under its temporary name, so that two copies of the same do not mix. On a file system without locks (Lustre, NFS without its
/// daemon) two at the same time are not told apart.
///
/// # Errors
/// `WOULDBLOCK`: another copy has it; or it had it, and between its opening and its lock gave it its own name, under which it is whole.
pub(crate) fn lock(file: &OwnedFd, folder: BorrowedFd<'_>, name: impl Arg) -> Result<(), Errno> {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(Errno::WOULDBLOCK) || !has_name(file, folder, name) {
        return Err(Errno::WOULDBLOCK);
    }
    Ok(())
}

/// Whether an open file still has a name. Where there are no locks, or by who is at home on this host, that may be another's
/// by now.
pub(crate) fn has_name(file: &OwnedFd, folder: BorrowedFd<'_>, name: impl Arg) -> bool {
    let own = rustix::fs::fstat(file);
    let there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    matches!((own, there), (Ok(own), Ok(there)) if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
}

/// Gives something another name, which nothing else may have unless `replace`. Where the file system cannot see to that at once (NFS, Lustre, some
/// FUSE) it is looked at as late as possible.
///
/// # Errors
/// `EXIST` where something has it that may not be replaced; as the kernel says.
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
    fn names_follow_from_the_places_and_belong_to_one_copy_only() {
        let token = |a: &str, b: &str| Token::new(Path::new(a), Path::new(b));
        let ours = token("/a", "/b");
        assert_eq!(ours.part(b"x"), token("/a", "/b").part(b"x"));
        for other in [token("/b", "/a"), token("/a/b", ""), token("", "/a/b")] {
            assert!(!other.owns(ours.part(b"x").as_bytes()));
        }
        assert!(ours.owns(ours.part(b"x").as_bytes()) && ours.owns(ours.progress(b"x").as_bytes()));
        assert!(!ours.owns(ours.journal().as_bytes()) && !ours.owns(b"x"));
        assert_ne!(ours.part(b"x"), ours.part(b"y"));
        // As long as the longest name may be.
        assert!(ours.progress(&[b'n'; 255]).as_bytes().len() < 64);
    }

    #[test]
    fn a_file_that_got_its_name_before_it_was_locked_is_not_taken_for_a_leftover() {
        let folder = tempfile::tempdir().expect("a folder");
        let (part, name) = (folder.path().join("part"), folder.path().join("name"));
        let file = OwnedFd::from(std::fs::File::create(&part).expect("a file"));
        assert_eq!(lock(&file, rustix::fs::CWD, &part), Ok(()));
        std::fs::rename(&part, &name).expect("a name");
        for there in [false, true] {
            assert_eq!(lock(&file, rustix::fs::CWD, &part), Err(Errno::WOULDBLOCK));
            if !there {
                std::fs::write(&part, "another").expect("a file");
            }
        }
    }

    #[test]
    fn a_new_name_is_one_that_nothing_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = OwnedFd::from(std::fs::File::open(folder.path()).expect("a folder"));
        for name in ["old", "taken"] {
            std::fs::write(folder.path().join(name), name).expect("a file");
        }
        let rename = |new: &str| rename((&here, "old"), (&here, new), false);
        assert_eq!(rename("taken"), Err(Errno::EXIST));
        assert_eq!(rename("new"), Ok(()));
        assert_eq!(rename("new"), Err(Errno::NOENT));
        let there = |name| std::fs::read_to_string(folder.path().join(name)).ok();
        assert_eq!(there("taken").as_deref(), Some("taken"));
        assert_eq!(there("new").as_deref(), Some("old"));
    }
}
