//! Lists of names and pairs in files: `--files-from` and `--list`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::CopyError;

/// Opens a list; `-` is standard input.
pub(crate) fn open(list: &Path) -> Result<Box<dyn BufRead>, CopyError> {
    if list.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(list).map_err(|error| unreadable(list, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Reads names below a directory. A CR at the end of a line is not part of the name.
///
/// # Errors
/// Rejects absolute names and names that leave the directory: the copy would be outside of the destination.
pub(crate) fn names(
    list: &Path,
    input: &mut dyn BufRead,
    null: bool,
) -> Result<Vec<PathBuf>, CopyError> {
    let mut names = Vec::new();
    for (line, entry) in entries(list, input, null)?.into_iter().enumerate() {
        let mut entry = entry.into_vec();
        if !null && entry.ends_with(b"\r") {
            entry.pop();
        }
        let entry = OsString::from_vec(entry);
        if entry.is_empty() {
            continue;
        }
        let name = PathBuf::from(entry);
        let inside = name.components().all(|part| {
            matches!(
                part,
                std::path::Component::Normal(_) | std::path::Component::CurDir
            )
        });
        if !inside || name.file_name().is_none() {
            return Err(CopyError::List {
                list: list.to_owned(),
                line: line + 1,
                expected: "a name below the source, without `..`",
                found: name.display().to_string(),
            });
        }
        names.push(name);
    }
    Ok(names)
}

/// Reads pairs of sources and destinations: one pair per line, separated by a blank, or with a zero byte after each name.
pub(crate) fn pairs(
    list: &Path,
    input: &mut dyn BufRead,
    null: bool,
) -> Result<Vec<(OsString, OsString)>, CopyError> {
    let error = |line: usize, found: String| CopyError::List {
        list: list.to_owned(),
        line: line + 1,
        expected: "SOURCE DESTINATION (for names with spaces, end each name with a zero byte and add --null)",
        found,
    };
    let entries = entries(list, input, null)?;
    let split_words: Vec<Vec<OsString>> = if null {
        entries.chunks(2).map(<[_]>::to_vec).collect()
    } else {
        entries.into_iter().map(split_words).collect()
    };
    let pair = |(line, split_words): (usize, Vec<OsString>)| match &split_words[..] {
        // An empty name between zero bytes would shift all later pairs.
        [] => None,
        [source, destination] if !source.is_empty() && !destination.is_empty() => {
            Some(Ok((source.clone(), destination.clone())))
        }
        [_, _] => Some(Err(error(line, "an empty name".into()))),
        others => Some(Err(error(line, format!("{} words", others.len())))),
    };
    let pairs = split_words.into_iter().enumerate().filter_map(pair);
    pairs.collect::<Result<_, _>>().map(without_repeats)
}

/// Removes repeated pairs and keeps the last one: two copies to one destination would conflict.
fn without_repeats(mut pairs: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut seen = HashSet::with_capacity(pairs.len());
    let last: Vec<bool> = pairs.iter().rev().map(|pair| seen.insert(pair)).collect();
    let mut last = last.into_iter().rev();
    pairs.retain(|_| last.next() == Some(true));
    pairs
}

fn split_words(line: OsString) -> Vec<OsString> {
    let line = line.into_vec();
    let split_words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    split_words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

fn entries(list: &Path, input: &mut dyn BufRead, null: bool) -> Result<Vec<OsString>, CopyError> {
    let found: io::Result<Vec<_>> = input.split(if null { 0 } else { b'\n' }).collect();
    let found = found.map_err(|error| unreadable(list, &error))?;
    Ok(found.into_iter().map(OsString::from_vec).collect())
}

fn unreadable(list: &Path, error: &io::Error) -> CopyError {
    CopyError::Location {
        location: list.to_owned(),
        expected: "a readable list",
        found: crate::error::describe(error),
        advice: "check the path of the list",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_lines_or_zero_bytes_and_must_be_below_the_source() {
        let read = |text: &[u8], null| names(Path::new("l"), &mut &*text, null);
        assert_eq!(
            read(b"a\n\nb c/d\n", false).expect("names"),
            [PathBuf::from("a"), "b c/d".into()]
        );
        assert_eq!(
            read(b"a\r\n\r\nb\r\r\n", false).expect("names"),
            [PathBuf::from("a"), "b\r".into()]
        );
        assert_eq!(read(b"a\r\0", true).expect("names"), [PathBuf::from("a\r")]);
        assert_eq!(
            read(b"a\nb\0c", true).expect("names"),
            [PathBuf::from("a\nb"), "c".into()]
        );
        for bad in ["../x", "/x", "a/../../x", "."] {
            let error = read(bad.as_bytes(), false).expect_err(bad).to_string();
            assert!(
                error.starts_with("l, line 1: expected a name below the source"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_repeated_pair_is_used_at_its_last_position() {
        let found = pairs(Path::new("l"), &mut &b"a x\nb x\na x\nb y\n"[..], false);
        let pair = |from: &str, to: &str| (OsString::from(from), OsString::from(to));
        let expected = [pair("b", "x"), pair("a", "x"), pair("b", "y")];
        assert_eq!(found.expect("pairs"), expected);
    }

    #[test]
    fn pairs_are_two_words_or_two_names() {
        let read = |text: &[u8], null| pairs(Path::new("l"), &mut &*text, null);
        assert_eq!(
            read(b"a b\n c\td \n", false).expect("pairs"),
            [("a".into(), "b".into()), ("c".into(), "d".into())]
        );
        assert_eq!(
            read(b"a b\0c\0", true).expect("pairs"),
            [("a b".into(), "c".into())]
        );
        assert!(
            read(b"a b\nc\n", false)
                .expect_err("one word")
                .to_string()
                .contains("l, line 2")
        );
        assert!(read(b"a b c\n", false).is_err());
        assert!(read(b"a\0b\0c\0", true).is_err());
        // The pair `a` and `b` is missing.
        let error = read(b"a\0\0b\0c\0", true).expect_err("an empty name");
        assert!(error.to_string().contains("an empty name"), "{error}");
    }

    #[test]
    fn blank_lines_are_skipped_but_counted() {
        let error = names(Path::new("l"), &mut &b"a\n\n\n/x\n"[..], false).expect_err("absolute");
        assert!(error.to_string().starts_with("l, line 4:"), "{error}");
        let error = pairs(Path::new("l"), &mut &b"a b\n\nc\n"[..], false).expect_err("one word");
        assert!(error.to_string().starts_with("l, line 3:"), "{error}");
    }
}
