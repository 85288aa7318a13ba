//! Wildcards in sources, for places that no shell has expanded: `*`, `?`, `[a-z]`, `[!a-z]`, in any part of the path.
//!
//! A path that is there is never a pattern, whatever letters it has. `*` and `?` do not match a dot at the beginning of a name.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::error::Error;

/// The most paths that a pattern may stand for.
pub(crate) const MOST_PATHS: usize = 1_000_000;
/// What is said of one that stands for more.
pub(crate) const FEW_ENOUGH: &str = "a pattern that stands for 1,000,000 paths at most";
pub(crate) const NAME_FEWER: &str =
    "copy the directory that they are in with --recursive, or name fewer";

/// Returns what a source stands for: itself, or all paths that match it, in order; none where nothing does.
///
/// # Errors
/// If there are too many.
pub(crate) fn expand(source: &Path) -> Result<Vec<PathBuf>, Error> {
    up_to(MOST_PATHS, source).ok_or_else(|| Error::Place {
        place: source.to_owned(),
        expected: FEW_ENOUGH,
        found: "one for more".into(),
        advice: NAME_FEWER,
    })
}

fn up_to(most: usize, source: &Path) -> Option<Vec<PathBuf>> {
    if !wild(source.as_os_str().as_bytes()) || source.symlink_metadata().is_ok() {
        return Some(vec![source.to_owned()]);
    }
    let mut found = vec![PathBuf::new()];
    for part in source.components() {
        let name = part.as_os_str().as_bytes();
        if matches!(part, Component::Normal(_)) && wild(name) {
            found = found
                .iter()
                .flat_map(|folder| matches_in(folder, name))
                .take(most + 1)
                .collect();
            if found.len() > most {
                return None;
            }
        } else {
            found.iter_mut().for_each(|path| path.push(part));
        }
    }
    // Parts of a path do not tell it; with it only directories are there.
    if let Some(end) = end_of_contents(source.as_os_str().as_bytes()) {
        found.iter_mut().for_each(|path| path.push(end));
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    Some(found)
}

/// What a path ends with that stands for what is in a directory: `dir/`, `dir/.`.
fn end_of_contents(path: &[u8]) -> Option<&'static str> {
    match path {
        [.., b'/'] => Some(""),
        [.., b'/', b'.'] => Some("."),
        _ => None,
    }
}

pub(crate) fn wild(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

fn matches_in(folder: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let names = fs::read_dir(here)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().into_vec());
    let mut names: Vec<_> = names.filter(|name| fits(pattern, name)).collect();
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| folder.join(OsString::from_vec(name)))
        .collect()
}

/// Whether a pattern stands for a name.
pub(crate) fn fits(pattern: &[u8], name: &[u8]) -> bool {
    (!name.starts_with(b".") || pattern.starts_with(b".")) && matches(pattern, name)
}

/// Whether a name matches a pattern, byte by byte. A `*` that failed is tried once more one byte later, so that time is at most
/// the product of the two lengths.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => class(&pattern[at..], name[seen]),
            Some(byte) => (*byte == name[seen]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => (at, seen) = (at + length, seen + 1),
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                (at, seen) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The length of the class at the beginning of `pattern` if `byte` is in it; a `[` that nothing closes is itself.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if negated { 2 } else { 1 };
    let Some(end) = pattern
        .iter()
        .skip(first + 1)
        .position(|found| *found == b']')
        .map(|at| at + first + 1)
    else {
        return (byte == b'[').then_some(1);
    };
    let (mut at, mut inside) = (first, false);
    while at < end {
        if pattern.get(at + 1) == Some(&b'-') && at + 2 < end {
            inside |= (pattern[at]..=pattern[at + 2]).contains(&byte);
            at += 3;
        } else {
            inside |= pattern[at] == byte;
            at += 1;
        }
    }
    (inside != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_those_of_a_shell_do() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("*.root", "a.root", true),
            ("*.root", "a.roo", false),
            ("a*b*c", "aXbXXbc", true),
            ("a*b*c", "aXbXXb", false),
            ("?", "", false),
            ("??", "ab", true),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("", "", true),
            ("a", "ab", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn a_path_that_is_there_is_no_pattern_and_dots_are_not_matched() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["[a]", "a", "b", ".hidden"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let expand = |pattern| {
            let found = up_to(3, &folder.path().join(pattern));
            found
                .expect("no more than asked for")
                .iter()
                .map(|path| {
                    path.file_name()
                        .expect("a name")
                        .to_owned()
                        .into_string()
                        .expect("text")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(expand("[a]"), ["[a]"]);
        assert_eq!(expand("*"), ["[a]", "a", "b"]);
        assert_eq!(expand(".h*"), [".hidden"]);
        assert_eq!(expand("[x-z]"), [""; 0]);
        assert_eq!(expand("none"), ["none"]);
        let few = up_to(2, &folder.path().join("*"));
        assert_eq!(few, None, "three names, and two asked for");
    }

    #[test]
    fn a_slash_at_the_end_stays_and_stands_for_directories() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["r1", "r2"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        fs::write(folder.path().join("r3"), "").expect("a file");
        std::os::unix::fs::symlink("r2", folder.path().join("r4")).expect("a link");
        let expand = |pattern: &str| {
            let source = PathBuf::from(format!("{}/{pattern}", folder.path().display()));
            let text = |path: PathBuf| path.into_os_string().into_string().expect("text");
            let found = up_to(9, &source).expect("no more than asked for");
            let below = folder.path().display().to_string();
            found
                .into_iter()
                .map(|path| text(path).replace(&below, ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(expand("r*/"), ["/r1/", "/r2/", "/r4/"]);
        assert_eq!(expand("r*//"), ["/r1/", "/r2/", "/r4/"]);
        assert_eq!(expand("r[12]/."), ["/r1/.", "/r2/."]);
        assert_eq!(expand("r*"), ["/r1", "/r2", "/r3", "/r4"]);
        assert_eq!(expand("r*/.."), ["/r1/..", "/r2/..", "/r4/.."]);
    }

    proptest! {
        #[test]
        fn a_pattern_without_wildcards_matches_itself_alone(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            prop_assert_eq!(matches(a.as_bytes(), b.as_bytes()), a == b);
        }

        #[test]
        fn no_pattern_panics_nor_hangs(pattern in proptest::collection::vec(proptest::sample::select(b"*?[]!-ab".to_vec()), 0..40),
                                       name in proptest::collection::vec(proptest::sample::select(b"ab-]".to_vec()), 0..60)) {
            let _ = matches(&pattern, &name);
        }
    }
}
