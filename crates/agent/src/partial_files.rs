//! Partial files that `venturi copy` and `venturi serve` keep next to a destination after a failed transfer, so that a user can
//! resume it.
//!
//! A later transfer of a plan cannot resume it, because its source has another URL: servers get new
//! ports. So the agent removes these files with their destination. Their names end with a digest of
//! the name of the destination: `.venturi-*-DIGEST.part` and `.venturi-*-DIGEST.progress` (see
//! `temporary.rs` in the crate of the copy engines).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

const PREFIX: &str = ".venturi-";
const SUFFIXES: [&str; 2] = [".part", ".progress"];

/// Partial files by the digest of their destination.
type Partial = BTreeMap<u64, BTreeSet<OsString>>;

/// Partial files of earlier processes, by directory. Each directory is read once: clients of this process leave files only after
/// failures, and [`remove`] removes those.
static EARLIER: Mutex<BTreeMap<PathBuf, Partial>> = Mutex::new(BTreeMap::new());

/// Remove the partial files of destinations in a directory. In a directory without read permission, they stay.
///
/// # Errors
/// If a file cannot be removed.
pub(crate) fn remove<'a>(
    directory: &Path,
    names: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<()> {
    let mut partial = read(directory)?;
    if partial.is_empty() {
        return Ok(());
    }
    names
        .into_iter()
        .filter_map(|name| partial.remove(&digest(name)))
        .try_for_each(|found| remove_all(directory, &found))
}

/// Remove the partial files that earlier processes have left of a destination. Takes no time that depends on the number of files in
/// the directory, except for the first destination there.
///
/// # Errors
/// If a file cannot be removed.
pub(crate) fn remove_earlier(destination: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (destination.parent(), destination.file_name()) else {
        return Ok(());
    };
    let digest = digest(name);
    let mut all = EARLIER.lock().expect("no thread panics here");
    let earlier = match all.get_mut(directory) {
        Some(earlier) => earlier,
        None => {
            let found = read(directory)?;
            all.entry(directory.to_owned()).or_insert(found)
        }
    };
    let mut found = earlier.remove(&digest).unwrap_or_default();
    drop(all);
    // A server leaves its file when a client on another host fails.
    found.insert(format!("{PREFIX}served-{digest:016x}.part").into());
    remove_all(directory, &found)
}

/// Return whether some of these names are partial files of a destination.
pub(crate) fn any(names: &BTreeSet<String>, destination: &str) -> bool {
    let digest = Some(digest(OsStr::new(destination)));
    names
        .range(PREFIX.to_owned()..)
        .take_while(|name| name.starts_with(PREFIX))
        .any(|name| destination_of(OsStr::new(name)) == digest)
}

fn remove_all(directory: &Path, names: &BTreeSet<OsString>) -> io::Result<()> {
    names
        .iter()
        .try_for_each(|name| match fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
}

fn read(directory: &Path) -> io::Result<Partial> {
    let mut partial = Partial::new();
    let entries = match fs::read_dir(directory) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            return Ok(partial);
        }
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if let Some(digest) = destination_of(&name) {
            partial.entry(digest).or_default().insert(name);
        }
    }
    Ok(partial)
}

/// Return the digest of the destination in the name of a partial file; none for other files.
fn destination_of(name: &OsStr) -> Option<u64> {
    let name = name.to_str()?.strip_prefix(PREFIX)?;
    let name = SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))?;
    let (_, digest) = name.rsplit_once('-')?;
    u64::from_str_radix(digest, 16)
        .ok()
        .filter(|_| digest.len() == 16)
}

fn digest(name: &OsStr) -> u64 {
    let bytes = Sha256::digest(name.as_bytes());
    u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes of 32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The digest of `x`, here and in the tests of the crate of the copy engines.
    const PARTS_OF_X: [&str; 3] = [
        ".venturi-0123456789abcdef-2d711642b726b044.part",
        ".venturi-0123456789abcdef-2d711642b726b044.progress",
        ".venturi-served-2d711642b726b044.part",
    ];
    const OTHERS: [&str; 6] = [
        "x",
        ".venturi-0123456789abcdef-a1fce4363854ff88.part",
        ".venturi-0123456789abcdef.journal",
        ".venturi-2d711642b726b044.part",
        "venturi-0-2d711642b726b044.part",
        ".venturi-lock",
    ];

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for name in PARTS_OF_X.iter().chain(&OTHERS) {
            fs::write(directory.path().join(name), name).expect("a file");
        }
        directory
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries
            .map(|entry| name(entry).into_string().expect("text"))
            .collect()
    }

    #[test]
    fn only_the_partial_files_of_the_named_destinations_are_removed() {
        let others = OTHERS.map(str::to_owned).into();
        let directory = directory();
        let path = directory.path();
        remove(path, [OsStr::new("z")]).expect("nothing to remove");
        assert_eq!(names(path).len(), PARTS_OF_X.len() + OTHERS.len());
        remove(path, [OsStr::new("z"), OsStr::new("x")]).expect("removed");
        assert_eq!(names(path), others);
        remove(&path.join("missing"), [OsStr::new("x")]).expect("nothing to remove");
    }

    #[test]
    fn files_of_earlier_processes_are_removed_once_and_those_of_servers_always() {
        let others = OTHERS.map(str::to_owned).into();
        let directory = directory();
        let path = directory.path();
        remove_earlier(&path.join("x")).expect("removed");
        assert_eq!(names(path), others);
        for name in PARTS_OF_X {
            fs::write(path.join(name), name).expect("a file");
        }
        remove_earlier(&path.join("x")).expect("removed");
        assert_eq!(names(path).len(), OTHERS.len() + 2);
        remove_earlier(&path.join("missing/x")).expect("nothing to remove");
    }
}
