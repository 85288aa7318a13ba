//! Wildcards in sources that no shell has expanded: `*`, `?`, `[a-z]`, `[!a-z]`, in any part of the path.
//!
//! An existing path is never a pattern. `*` and `?` do not match a dot at the start of a name.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::error::CopyError;

/// Maximum matches of a pattern.
pub(crate) const MAX_PATHS: usize = 1_000_000;
/// Parts of the error for too many matches.
pub(crate) const EXPECTED_PATHS: &str = "a pattern with at most 1,000,000 matching paths";
pub(crate) const ADVICE_FEWER_PATHS: &str =
    "copy the parent directory with --recursive, or use a narrower pattern";

/// Returns the source itself, or all matching paths in order.
///
/// # Errors
/// Too many matches.
pub(crate) fn expand(source: &Path) -> Result<Vec<PathBuf>, CopyError> {
    up_to(MAX_PATHS, source).ok_or_else(|| CopyError::Location {
        location: source.to_owned(),
        expected: EXPECTED_PATHS,
        found: "more matches".into(),
        advice: ADVICE_FEWER_PATHS,
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
                .flat_map(|directory| matches_in(directory, name))
                .take(most + 1)
                .collect();
            if found.len() > most {
                return None;
            }
        } else {
            found.iter_mut().for_each(|path| path.push(part));
        }
    }
    // Path components drop the suffix; with it, only directories match.
    if let Some(end) = contents_suffix(source.as_os_str().as_bytes()) {
        found.iter_mut().for_each(|path| path.push(end));
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    Some(found)
}

/// Returns the suffix that selects the contents of a directory: `dir/`, `dir/.`.
fn contents_suffix(path: &[u8]) -> Option<&'static str> {
    match path {
        [.., b'/'] => Some(""),
        [.., b'/', b'.'] => Some("."),
        _ => None,
    }
}

pub(crate) fn wild(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

fn matches_in(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let parent = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let names = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().into_vec());
    let mut names: Vec<_> = names.filter(|name| fits(pattern, name)).collect();
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| directory.join(OsString::from_vec(name)))
        .collect()
}

/// True if a pattern matches a name; a wildcard does not match a leading dot.
pub(crate) fn fits(pattern: &[u8], name: &[u8]) -> bool {
    (!name.starts_with(b".") || pattern.starts_with(b".")) && matches(pattern, name)
}

/// True if a name matches a pattern, byte by byte. After a mismatch, a `*` is tried one byte later, so the time is at most
/// proportional to the product of both lengths.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut matched) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while matched < name.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, matched));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => class(&pattern[at..], name[matched]),
            Some(byte) => (*byte == name[matched]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => (at, matched) = (at + length, matched + 1),
            (None, Some((after, from))) => {
                star = Some((after, from + 1));
                (at, matched) = (after, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the length of the class at the start of `pattern` if it contains `byte`; `[` without `]` is a literal.
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
    fn patterns_match_like_those_of_a_shell() {
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
    fn an_existing_path_is_not_a_pattern_and_dot_files_are_not_matched() {
        let directory = tempfile::tempdir().expect("a folder");
        for name in ["[a]", "a", "b", ".hidden"] {
            fs::write(directory.path().join(name), "").expect("a file");
        }
        let expand = |pattern| {
            let found = up_to(3, &directory.path().join(pattern));
            found
                .expect("no more than the limit")
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
        let few = up_to(2, &directory.path().join("*"));
        assert_eq!(few, None, "three names, and a limit of two");
    }

    #[test]
    fn a_trailing_slash_is_kept_and_matches_only_directories() {
        let directory = tempfile::tempdir().expect("a folder");
        for name in ["r1", "r2"] {
            fs::create_dir(directory.path().join(name)).expect("a folder");
        }
        fs::write(directory.path().join("r3"), "").expect("a file");
        std::os::unix::fs::symlink("r2", directory.path().join("r4")).expect("a link");
        let expand = |pattern: &str| {
            let source = PathBuf::from(format!("{}/{pattern}", directory.path().display()));
            let text = |path: PathBuf| path.into_os_string().into_string().expect("text");
            let found = up_to(9, &source).expect("no more than the limit");
            let below = directory.path().display().to_string();
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
        fn a_pattern_without_wildcards_matches_only_itself(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            prop_assert_eq!(matches(a.as_bytes(), b.as_bytes()), a == b);
        }

        #[test]
        fn no_pattern_panics_nor_hangs(pattern in proptest::collection::vec(proptest::sample::select(b"*?[]!-ab".to_vec()), 0..40),
                                       name in proptest::collection::vec(proptest::sample::select(b"ab-]".to_vec()), 0..60)) {
            let _ = matches(&pattern, &name);
        }
    }
}
