//! Names and pairs in files: `--files-from` and `--list`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Opens a list; `-` is stdin.
pub(crate) fn open(list: &Path) -> Result<Box<dyn BufRead>, Error> {
    if list.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(list).map_err(|error| refused(list, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Names below a directory. Of a line the CR that other systems end it with is none of the name.
///
/// # Errors
/// One that is absolute or leads out of the directory is refused: its copy would be outside of the destination.
pub(crate) fn names(
    list: &Path,
    input: &mut dyn BufRead,
    null: bool,
) -> Result<Vec<PathBuf>, Error> {
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
            return Err(Error::List {
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

/// Pairs of places, as they were written: on a line, with a blank between, or one after the other with a zero byte after each.
pub(crate) fn pairs(
    list: &Path,
    input: &mut dyn BufRead,
    null: bool,
) -> Result<Vec<(OsString, OsString)>, Error> {
    let error = |line: usize, found: String| Error::List {
        list: list.to_owned(),
        line: line + 1,
        expected: "SOURCE DESTINATION (names with blanks: end each with a zero byte and say --null)",
        found,
    };
    let entries = entries(list, input, null)?;
    let words: Vec<Vec<OsString>> = if null {
        entries.chunks(2).map(<[_]>::to_vec).collect()
    } else {
        entries.into_iter().map(words).collect()
    };
    let pair = |(line, words): (usize, Vec<OsString>)| match &words[..] {
        // A blank line; between zero bytes it would shift all that follow.
        [] => None,
        [source, destination] if !source.is_empty() && !destination.is_empty() => {
            Some(Ok((source.clone(), destination.clone())))
        }
        [_, _] => Some(Err(error(line, "an empty name".into()))),
        others => Some(Err(error(line, format!("{} words", others.len())))),
    };
    let pairs = words.into_iter().enumerate().filter_map(pair);
    pairs.collect::<Result<_, _>>().map(without_repeats)
}

/// A pair that is there several times is one copy, where it comes last: two at once would be in each other's way.
fn without_repeats(mut pairs: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut seen = HashSet::with_capacity(pairs.len());
    let last: Vec<bool> = pairs.iter().rev().map(|pair| seen.insert(pair)).collect();
    let mut last = last.into_iter().rev();
    pairs.retain(|_| last.next() == Some(true));
    pairs
}

fn words(line: OsString) -> Vec<OsString> {
    let line = line.into_vec();
    let words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

fn entries(list: &Path, input: &mut dyn BufRead, null: bool) -> Result<Vec<OsString>, Error> {
    let found: io::Result<Vec<_>> = input.split(if null { 0 } else { b'\n' }).collect();
    let found = found.map_err(|error| refused(list, &error))?;
    Ok(found.into_iter().map(OsString::from_vec).collect())
}

fn refused(list: &Path, error: &io::Error) -> Error {
    Error::Place {
        place: list.to_owned(),
        expected: "a list that can be read",
        found: crate::error::said(error),
        advice: "name another",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_lines_or_zero_bytes_and_stay_below_the_source() {
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
            let told = read(bad.as_bytes(), false).expect_err(bad).to_string();
            assert!(
                told.starts_with("l, line 1: expected a name below the source"),
                "{told}"
            );
        }
    }

    #[test]
    fn a_pair_that_comes_again_is_the_last_of_them() {
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
        // The pair `a` and `b` is not in it.
        let told = read(b"a\0\0b\0c\0", true).expect_err("an empty name");
        assert!(told.to_string().contains("an empty name"), "{told}");
    }

    #[test]
    fn blank_lines_are_passed_over_and_counted() {
        let told = names(Path::new("l"), &mut &b"a\n\n\n/x\n"[..], false).expect_err("absolute");
        assert!(told.to_string().starts_with("l, line 4:"), "{told}");
        let told = pairs(Path::new("l"), &mut &b"a b\n\nc\n"[..], false).expect_err("one word");
        assert!(told.to_string().starts_with("l, line 3:"), "{told}");
    }
}
