//! What the places of an order mean: each source and the name of its copy.

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
use crate::error::{Error, Failure};
use crate::given::Given;
use crate::journal::Journal;
use crate::order::Order;
use crate::temporary::Token;
use crate::{glob, place};

/// A source and the name of its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) source: PathBuf,
    pub(crate) destination: PathBuf,
    /// Whether directories that lead to the copy are made.
    pub(crate) make_way: bool,
    /// Whether a link in the place of the source, or of the copy of a directory, is followed: where that is what was written.
    pub(crate) as_written: bool,
}

/// Sources and the names of their copies.
///
/// # Errors
/// If the places do not fit together.
pub(crate) fn resolve(order: &Order, given: &Given) -> Result<Vec<Root>, Error> {
    match given {
        Given::Places(sources, destination) => {
            let mut found = Vec::new();
            for source in sources {
                found.extend(expanded(source)?);
            }
            placed(order, found, destination)
        }
        Given::Names(names, source, destination) => {
            let (source, destination) = (place::local(source)?, place::local(destination)?);
            let root = |name: &PathBuf| root(source.join(name), destination.join(name), true);
            Ok(names.iter().map(root).collect())
        }
        Given::Pairs(pairs) => pairs
            .iter()
            .map(|(source, destination)| {
                let (source, destination) = (place::local(source)?, place::local(destination)?);
                Ok(listed(order, source, destination))
            })
            .collect(),
    }
}

/// One of a list: its destination is the name of the copy, or, written with a slash at its end, the directory that it comes into.
fn listed(order: &Order, source: PathBuf, destination: PathBuf) -> Root {
    let contents = || is_contents(&source) && source.is_dir();
    let into = is_directory_as_written(order, destination.as_os_str().as_bytes()) && !contents();
    let copy = match source.file_name() {
        Some(name) if into => destination.join(name),
        _ => destination,
    };
    root(source, copy, order.mkpath || into)
}

/// Whether a destination is written as a directory that copies come into.
pub(crate) fn is_directory_as_written(order: &Order, destination: &[u8]) -> bool {
    destination.ends_with(b"/") && !order.no_target_directory
}

/// Sees that no two sources of a list have the same copy: each source, its copy, and whether it stands for what is in it. On one host they come one
/// after the other, and the last wins; with servers nobody knows which is the last.
///
/// # Errors
/// The first copy that two have.
pub(crate) fn see_apart<'p>(
    pairs: impl Iterator<Item = (Cow<'p, Path>, Cow<'p, Path>, bool)>,
) -> Result<(), Error> {
    let mut seen = HashMap::new();
    for (source, copy, _) in pairs.filter(|(_, _, contents)| !contents) {
        match seen.entry(copy) {
            Entry::Vacant(entry) => drop(entry.insert(source)),
            // The same line twice does what it says.
            Entry::Occupied(entry) if *entry.get() == source => {}
            Entry::Occupied(entry) => {
                let (expected, found, advice) = TWO_OF_ONE_NAME;
                return Err(Error::Place {
                    place: entry.key().to_path_buf(),
                    expected,
                    found: found.into(),
                    advice,
                });
            }
        }
    }
    Ok(())
}

/// Two sources would have the same copy.
pub(crate) const TWO_OF_ONE_NAME: (&str, &str, &str) = (
    "a name for each source",
    "two of the same name",
    "copy them one after the other, to other names",
);

fn root(source: PathBuf, destination: PathBuf, make_way: bool) -> Root {
    Root {
        source,
        destination,
        make_way,
        as_written: false,
    }
}

fn expanded(source: &OsStr) -> Result<Vec<PathBuf>, Error> {
    let place = place::local(source)?;
    let found = glob::expand(&place)?;
    if found.is_empty() {
        return Err(Error::Place {
            place,
            expected: "something of that pattern",
            found: "nothing".into(),
            advice: "see what is there (`ls`)",
        });
    }
    Ok(found)
}

/// The rules of `cp`, with that of `rsync` for a source with a trailing slash.
fn placed(order: &Order, sources: Vec<PathBuf>, destination: &OsStr) -> Result<Vec<Root>, Error> {
    let destination = place::local(destination)?;
    let slash = destination.as_os_str().as_bytes().ends_with(b"/");
    let many = sources.len() > 1;
    let refused = |(expected, found, advice): (&'static str, &str, &'static str)| Error::Place {
        place: destination.clone(),
        expected,
        found: found.into(),
        advice,
    };
    let target = Target {
        is_directory: destination.is_dir(),
        is_there: without_slash(&destination).symlink_metadata().is_ok(),
        slash,
    };
    refusal(order, target, many).map_err(refused)?;
    let into = !order.no_target_directory && (destination.is_dir() || slash);
    let (mut roots, mut names) = (Vec::new(), HashSet::new());
    for source in sources {
        let contents = is_contents(&source) && source.is_dir();
        let unfinished = into
            && !many
            && !slash
            && !contents
            && is_unfinished(&destination, token(&source, &destination));
        let inside = into && !contents && !unfinished;
        let copy = match source.file_name() {
            Some(name) if inside => destination.join(name),
            _ => destination.clone(),
        };
        if !names.insert(copy.clone()) && !contents {
            return Err(refused(TWO_OF_ONE_NAME));
        }
        let make_way = order.mkpath || (slash && !contents);
        roots.push(Root {
            source,
            destination: copy,
            make_way,
            as_written: !inside,
        });
    }
    Ok(roots)
}

/// What is known of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) is_directory: bool,
    pub(crate) is_there: bool,
    /// Whether it was written with a slash at its end.
    pub(crate) slash: bool,
}

/// What keeps sources from being copied to a destination: expected, found, advice.
pub(crate) fn refusal(
    order: &Order,
    target: Target,
    many: bool,
) -> Result<(), (&'static str, &'static str, &'static str)> {
    let Target {
        is_directory,
        is_there,
        slash,
    } = target;
    if order.no_target_directory && many {
        return Err((
            "one source for one name",
            "several",
            "leave --no-target-directory out",
        ));
    }
    if many && !is_directory && !slash {
        return Err((
            "a directory for several sources",
            "none",
            "make it, or end the destination with a slash",
        ));
    }
    if slash && !is_directory && is_there {
        return Err((
            "a directory",
            "something else",
            "leave the slash out, or name another",
        ));
    }
    Ok(())
}

fn without_slash(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Whether a source stands for what is in it: `dir/`, `dir/.`, `.`, `..`.
pub(crate) fn is_contents(source: &Path) -> bool {
    let bytes = source.as_os_str().as_bytes();
    let last = bytes
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    last.is_empty() || last == b"." || last == b".."
}

/// Whether a directory is the unfinished copy of a source under this very name: then it is no directory to put another copy into.
pub(crate) fn is_unfinished(destination: &Path, token: Token) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(destination, flags, Mode::empty());
    folder.is_ok_and(|folder| Journal::is_in(folder.as_fd(), token))
}

/// What is told of a tree that a copy has left: that it goes on, and by what it is seen what is whole.
pub(crate) fn going_on(copy: &Path, journal: &Journal) -> Option<Decision> {
    let by = match journal.reliable {
        true => "size and time",
        false => "content, since the machine was started anew meanwhile",
    };
    let copy = copy.display();
    journal.found.then(|| Decision {
        what: "resumed",
        value: 1,
        reason: format!("{copy}: an earlier copy was stopped; what is whole is told by {by}"),
    })
}

pub(crate) fn token(source: &Path, destination: &Path) -> Token {
    // The same place however it is written, as long as no link is in between.
    let same = |path: &Path| -> PathBuf {
        std::path::absolute(path)
            .unwrap_or_else(|_| path.to_owned())
            .components()
            .collect()
    };
    Token::new(&same(source), &same(destination))
}

/// What under the name of a copy no file takes the place of: who named it meant something else, and a device may be one for all (`/dev/null`).
/// None: a file, or a link, which is replaced.
pub(crate) fn in_the_way(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a named pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        _ => None,
    }
}

/// Where a place is, seen from another of the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// It is the same.
    Same,
    /// Below it.
    Below,
}

/// Whether a path of a server is another, or below it, as they are written.
pub(crate) fn within(outer: &[u8], inner: &[u8]) -> Option<Within> {
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
        true => Within::Same,
        false => Within::Below,
    };
    inner.starts_with(&outer).then_some(which)
}

/// What keeps something of a server from its place: nothing is copied onto itself, and the copy of a tree in it would be copied, too, without end.
pub(crate) fn itself(copy: PathBuf, within: Within, recursive: bool) -> Option<Failure> {
    let found = match within {
        Within::Same => "the source itself",
        Within::Below => "one in the source",
    };
    let expected = "another place than the source";
    let refused = recursive || within == Within::Same;
    refused.then(|| Failure::found(copy, expected, found, "name another destination"))
}

/// A place as it was written, for events: without a password.
pub(crate) fn shown(place: &OsString) -> String {
    crate::net::url::shown(place)
}

/// Makes a directory and those that it is in; if it is asked for, with their names on stable storage.
///
/// # Errors
/// As the kernel says.
pub(crate) fn make_way(path: &Path, sync: bool) -> io::Result<()> {
    let ancestors = || path.ancestors().filter(|path| !path.as_os_str().is_empty());
    let missing = ancestors().take_while(|path| !path.exists()).count();
    fs::create_dir_all(path)?;
    for made in ancestors().take(if sync { missing } else { 0 }) {
        fs::File::open(made.join(".."))?.sync_all()?;
    }
    Ok(())
}
