//! The receiver's side of a transfer: what it holds afterwards, and its removal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use venturi_plan::{Endpoint, Header, NULL, ZERO};

/// Where the places of a plan are, seen from one host.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    pub(crate) header: &'a Header,
    pub(crate) host: &'a str,
    pub(crate) scratch: &'a Path,
}

/// An endpoint on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    /// On this host, and not one of the devices.
    pub(crate) local: bool,
    /// Below the scratch directory, where everything is ours.
    pub(crate) in_scratch: bool,
}

impl Places<'_> {
    /// Where an endpoint is; none when the plan has no such place.
    pub(crate) fn locate(&self, endpoint: &Endpoint) -> Option<Location> {
        let device = match endpoint.place() {
            NULL => Some("/dev/null"),
            ZERO => Some("/dev/zero"),
            _ => None,
        };
        if let Some(device) = device {
            return Some(Location {
                path: device.into(),
                local: false,
                in_scratch: false,
            });
        }
        let place = self.header.places.get(endpoint.place())?;
        Some(Location {
            path: self.scratch.join(&place.path).join(endpoint.path()),
            local: &*place.host == self.host,
            in_scratch: Path::new(&place.path).is_relative(),
        })
    }

    /// The directory of a place.
    pub(crate) fn root(&self, place: &str) -> Option<PathBuf> {
        Some(self.scratch.join(&self.header.places.get(place)?.path))
    }
}

/// The destination of a transfer on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) path: PathBuf,
    /// Whether the bytes it holds prove the transfer.
    pub(crate) proves: bool,
    /// What may become of it after the trial.
    pub(crate) removal: Removal,
}

/// What may become of a destination after its trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The plan keeps it.
    Keep,
    /// It goes.
    Remove,
    /// The plan would have it removed, but it is a directory that was there before and is not ours.
    Refused,
}

/// Makes the way free for a destination, before the transfer is timed: its parent directories are made, a file that a
/// killed run has left is removed, which the tool would otherwise truncate in the measured time.
///
/// # Errors
/// When a directory cannot be made or the old file not be removed.
pub(crate) fn make_way(
    location: &Location,
    source: &Path,
    keep: bool,
    begun: bool,
) -> io::Result<Removal> {
    if let Some(parent) = location.path.parent() {
        fs::create_dir_all(parent)?;
    }
    if keep {
        return Ok(Removal::Keep);
    }
    match location.path.symlink_metadata() {
        Ok(found) if found.is_dir() && !begun && !location.in_scratch => {
            return Ok(Removal::Refused);
        }
        Ok(found) if !found.is_dir() && !begun && location.path != source => {
            fs::remove_file(&location.path)?
        }
        _ => {}
    }
    Ok(if location.path == source {
        Removal::Refused
    } else {
        Removal::Remove
    })
}

/// Bytes below a path: the size of a file, or the sum over the files of a directory; 0 when there is nothing.
///
/// # Errors
/// When a directory cannot be read.
pub(crate) fn held_bytes(path: &Path) -> io::Result<u64> {
    let found = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        return Ok(found.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A link inside is not followed: what it points to was not transferred.
        bytes += match entry.metadata()? {
            found if found.is_dir() => held_bytes(&entry.path())?,
            found if found.is_file() => found.len(),
            _ => 0,
        };
    }
    Ok(bytes)
}

/// Removes a file or a directory with all that is in it; it may be gone already.
///
/// # Errors
/// When something of it stays.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(path: PathBuf, in_scratch: bool) -> Location {
        Location {
            path,
            local: true,
            in_scratch,
        }
    }

    #[test]
    fn a_directory_holds_the_sum_of_its_files_and_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("inner")).expect("made");
        fs::write(folder.path().join("inner/a"), [0; 10]).expect("written");
        fs::write(folder.path().join("b"), [0; 5]).expect("written");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).expect("linked");
        assert_eq!(held_bytes(folder.path()).expect("readable"), 15);
        assert_eq!(
            held_bytes(&folder.path().join("absent")).expect("nothing"),
            0
        );
    }

    #[test]
    fn a_foreign_directory_that_was_there_is_never_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new("/dev/zero");
        let there = location(folder.path().to_owned(), false);
        assert_eq!(
            make_way(&there, source, false, false).expect("free"),
            Removal::Refused
        );
        let ours = location(folder.path().to_owned(), true);
        assert_eq!(
            make_way(&ours, source, false, false).expect("free"),
            Removal::Remove
        );
        let new = location(folder.path().join("new"), false);
        assert_eq!(
            make_way(&new, source, false, false).expect("free"),
            Removal::Remove
        );
    }

    #[test]
    fn what_a_killed_run_left_is_gone_before_the_transfer_but_a_kept_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b/left");
        let there = location(path.clone(), false);
        assert_eq!(
            make_way(&there, Path::new("/x"), true, false).expect("free"),
            Removal::Keep
        );
        fs::write(&path, "old").expect("its parents were made");
        assert_eq!(
            make_way(&there, Path::new("/x"), true, false).expect("free"),
            Removal::Keep
        );
        assert!(path.exists());
        assert_eq!(
            make_way(&there, Path::new("/x"), false, false).expect("free"),
            Removal::Remove
        );
        assert!(!path.exists());
    }

    #[test]
    fn a_source_is_never_taken_for_a_destination_to_remove() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data");
        fs::write(&path, "precious").expect("written");
        let both = location(path.clone(), true);
        assert_eq!(
            make_way(&both, &path, false, false).expect("free"),
            Removal::Refused
        );
        assert!(path.exists());
    }

    #[test]
    fn an_endpoint_lies_below_its_place_on_the_host_of_the_place() {
        let header = crate::testing::header(
            r#"{"disk": {"host": "me", "path": "data"}, "far": {"host": "you", "path": "/mnt"}}"#,
        );
        let places = Places {
            header: &header,
            host: "me",
            scratch: Path::new("/scratch"),
        };
        let check = |endpoint: &str, path: &str, local: bool, in_scratch: bool| {
            let found = places.locate(&endpoint.parse().expect("an endpoint"));
            let expected = Location {
                path: path.into(),
                local,
                in_scratch,
            };
            assert_eq!(found, Some(expected), "{endpoint}");
        };
        check("disk:a/b", "/scratch/data/a/b", true, true);
        check("far:x", "/mnt/x", false, false);
        check("null:", "/dev/null", false, false);
        check("zero:", "/dev/zero", false, false);
        assert_eq!(
            places.locate(&"nowhere:x".parse().expect("an endpoint")),
            None
        );
    }
}
