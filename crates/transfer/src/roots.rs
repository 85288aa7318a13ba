//! Resolves sources and destination of a local copy to pairs of paths.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use crate::decision::Decision;
use crate::error::{CopyError, Failure};
use crate::inputs::CopyInputs;
use crate::journal::Journal;
use crate::options::CopyOptions;
use crate::temporary::Token;
use crate::{glob, local_path};

/// A source and the path of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) source: PathBuf,
    pub(crate) destination: PathBuf,
    /// Create missing parent directories of the copy.
    pub(crate) create_parents: bool,
    /// Follow a symbolic link at the source or at the destination directory, because the user named it.
    pub(crate) as_written: bool,
}

/// Returns the sources and the paths of their copies.
///
/// # Errors
/// Locations that do not fit together.
pub(crate) fn resolve(order: &CopyOptions, inputs: &CopyInputs) -> Result<Vec<Root>, CopyError> {
    match inputs {
        CopyInputs::Operands(sources, destination) => {
            let mut found = Vec::new();
            for source in sources {
                found.extend(expanded(source)?);
            }
            with_destinations(order, found, destination)
        }
        CopyInputs::Names(names, source, destination) => {
            let (source, destination) =
                (local_path::parse(source)?, local_path::parse(destination)?);
            let root = |name: &PathBuf| root(source.join(name), destination.join(name), true);
            Ok(names.iter().map(root).collect())
        }
        CopyInputs::Pairs(pairs) => pairs
            .iter()
            .map(|(source, destination)| {
                let (source, destination) =
                    (local_path::parse(source)?, local_path::parse(destination)?);
                Ok(listed(order, source, destination))
            })
            .collect(),
    }
}

/// Returns a pair of a list: the destination is the path of the copy, or, with a trailing slash, its directory.
fn listed(order: &CopyOptions, source: PathBuf, destination: PathBuf) -> Root {
    let contents = || is_contents(&source) && source.is_dir();
    let into = is_directory_as_written(order, destination.as_os_str().as_bytes()) && !contents();
    let copy = match source.file_name() {
        Some(name) if into => destination.join(name),
        _ => destination,
    };
    root(source, copy, order.mkpath || into)
}

/// True if the destination is written as a directory.
pub(crate) fn is_directory_as_written(order: &CopyOptions, destination: &[u8]) -> bool {
    destination.ends_with(b"/") && !order.no_target_directory
}

/// Checks that no two sources of a list have the same copy. Each item has the source, its copy, and
/// whether only its contents are copied. Local copies of a list run one after the other, and the
/// last one wins; with servers, the order is undefined.
///
/// # Errors
/// The first copy with two sources.
pub(crate) fn check_distinct<'p>(
    pairs: impl Iterator<Item = (Cow<'p, Path>, Cow<'p, Path>, bool)>,
) -> Result<(), CopyError> {
    let mut seen = HashMap::new();
    for (source, copy, _) in pairs.filter(|(_, _, contents)| !contents) {
        match seen.entry(copy) {
            Entry::Vacant(entry) => drop(entry.insert(source)),
            // The same line twice has no further effect.
            Entry::Occupied(entry) if *entry.get() == source => {}
            Entry::Occupied(entry) => {
                let (expected, found, advice) = DUPLICATE_NAME;
                return Err(CopyError::Location {
                    location: entry.key().to_path_buf(),
                    expected,
                    found: found.into(),
                    advice,
                });
            }
        }
    }
    Ok(())
}

/// Error: two sources have the same copy.
pub(crate) const DUPLICATE_NAME: (&str, &str, &str) = (
    "different names for all sources",
    "two sources with the same name",
    "copy them separately, to different names",
);

fn root(source: PathBuf, destination: PathBuf, create_parents: bool) -> Root {
    Root {
        source,
        destination,
        create_parents,
        as_written: false,
    }
}

fn expanded(source: &OsStr) -> Result<Vec<PathBuf>, CopyError> {
    let path = local_path::parse(source)?;
    let found = glob::expand(&path)?;
    if found.is_empty() {
        return Err(CopyError::Location {
            location: path,
            expected: "matches of the pattern",
            found: "none".into(),
            advice: "list the directory (`ls`)",
        });
    }
    Ok(found)
}

/// Applies the rules of `cp`, and the rule of `rsync` for a source with a trailing slash.
fn with_destinations(
    order: &CopyOptions,
    sources: Vec<PathBuf>,
    destination: &OsStr,
) -> Result<Vec<Root>, CopyError> {
    let destination = local_path::parse(destination)?;
    let slash = destination.as_os_str().as_bytes().ends_with(b"/");
    let several = sources.len() > 1;
    let rejected =
        |(expected, found, advice): (&'static str, &str, &'static str)| CopyError::Location {
            location: destination.clone(),
            expected,
            found: found.into(),
            advice,
        };
    let target = DestinationInfo {
        is_directory: destination.is_dir(),
        exists: without_slash(&destination).symlink_metadata().is_ok(),
        slash,
    };
    find_conflict(order, target, several).map_err(rejected)?;
    let into = !order.no_target_directory && (destination.is_dir() || slash);
    let (mut roots, mut names) = (Vec::new(), HashSet::new());
    for source in sources {
        let contents = is_contents(&source) && source.is_dir();
        let unfinished = into
            && !several
            && !slash
            && !contents
            && is_unfinished(&destination, token(&source, &destination));
        let inside = into && !contents && !unfinished;
        let copy = match source.file_name() {
            Some(name) if inside => destination.join(name),
            _ => destination.clone(),
        };
        if !names.insert(copy.clone()) && !contents {
            return Err(rejected(DUPLICATE_NAME));
        }
        let create_parents = order.mkpath || (slash && !contents);
        roots.push(Root {
            source,
            destination: copy,
            create_parents,
            as_written: !inside,
        });
    }
    Ok(roots)
}

/// State of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DestinationInfo {
    pub(crate) is_directory: bool,
    pub(crate) exists: bool,
    /// True if it was written with a trailing slash.
    pub(crate) slash: bool,
}

/// Returns an error (expected, found, advice) if the sources cannot be copied to this destination.
pub(crate) fn find_conflict(
    order: &CopyOptions,
    target: DestinationInfo,
    several: bool,
) -> Result<(), (&'static str, &'static str, &'static str)> {
    let DestinationInfo {
        is_directory,
        exists,
        slash,
    } = target;
    if order.no_target_directory && several {
        return Err((
            "one source for --no-target-directory",
            "several",
            "omit --no-target-directory",
        ));
    }
    if several && !is_directory && !slash {
        return Err((
            "a directory for several sources",
            "none",
            "create it, or end the destination with a slash",
        ));
    }
    if slash && !is_directory && exists {
        return Err((
            "a directory",
            "another file type",
            "remove the slash, or choose another destination",
        ));
    }
    Ok(())
}

fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// True if only the contents of a source are copied: `dir/`, `dir/.`, `.`, `..`.
pub(crate) fn is_contents(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    let last = bytes
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    last.is_empty() || last == b"." || last == b".."
}

/// True if a directory is the unfinished copy of this source, and not a directory for another copy.
pub(crate) fn is_unfinished(destination: &Path, token: Token) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(destination, flags, Mode::empty());
    directory.is_ok_and(|directory| Journal::is_in(directory.as_fd(), token))
}

/// Returns the decision to resume an unfinished copy, and how complete files are identified.
pub(crate) fn resumed(copy: &Path, journal: &Journal) -> Option<Decision> {
    let by = match journal.reliable {
        true => "size and time",
        false => "content, because the host restarted since then",
    };
    let copy = copy.display();
    journal.found.then(|| Decision {
        setting: "resumed",
        value: 1,
        reason: format!(
            "{copy}: resuming an interrupted copy; complete files are identified by {by}"
        ),
    })
}

pub(crate) fn token(source: &Path, destination: &Path) -> Token {
    // The same path for all spellings, if no link is in between.
    let same = |path: &Path| -> PathBuf {
        std::path::absolute(path)
            .unwrap_or_else(|_| path.to_owned())
            .components()
            .collect()
    };
    Token::new(&same(source), &same(destination))
}

/// Returns the name of a file type that no file replaces, because the user meant another type, and
/// a device can be shared (`/dev/null`). None for a file or a link, which is replaced.
pub(crate) fn obstacle(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a named pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => None,
    }
}

/// Relation of a path to another path on the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Containment {
    /// The same path.
    Same,
    /// A path below it.
    Below,
}

/// Returns the relation of two server paths, as they are written.
pub(crate) fn within(outer: &[u8], inner: &[u8]) -> Option<Containment> {
    let names = |path: &[u8]| {
        let mut names = Vec::new();
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                name => names.push(name.to_vec()),
            }
        }
        names
    };
    let (outer, inner) = (names(outer), names(inner));
    let which = match inner.len() == outer.len() {
        true => Containment::Same,
        false => Containment::Below,
    };
    inner.starts_with(&outer).then_some(which)
}

/// Returns the failure for a copy onto its source, or into its own source tree.
pub(crate) fn itself(copy: PathBuf, within: Containment, recursive: bool) -> Option<Failure> {
    let found = match within {
        Containment::Same => "the source itself",
        Containment::Below => "a path inside the source",
    };
    let expected = "a destination outside of the source";
    let rejected = recursive || within == Containment::Same;
    rejected.then(|| Failure::found(copy, expected, found, "choose another destination"))
}

/// Returns a source or destination for events, without a password.
pub(crate) fn shown(path: &OsString) -> String {
    crate::net::url::shown(path)
}

/// Creates a directory and its parents; with `sync`, their names are on stable storage.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn create_parents(path: &Path, sync: bool) -> io::Result<()> {
    let ancestors = || path.ancestors().filter(|path| !path.as_os_str().is_empty());
    let missing = ancestors().take_while(|path| !path.exists()).count();
    fs::create_dir_all(path)?;
    for created in ancestors().take(if sync { missing } else { 0 }) {
        fs::File::open(created.join(".."))?.sync_all()?;
    }
    Ok(())
}
