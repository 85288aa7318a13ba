//! Lines of LIST, which is not standardised: in the format of `ls -l` or of Windows servers. Their
//! times have no time zone and are ignored.

use crate::{EntryKind, ListEntry, Path, number};

const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];
/// Separator between the name and the target of a link.
const ARROW: &[u8] = b" -> ";

/// Parses a line; `None` for lines such as `total 8`.
#[must_use]
pub fn parse_list(line: &[u8]) -> Option<ListEntry> {
    let entry = unix(line).or_else(|| windows(line))?;
    Path::new(entry.name.clone()).ok()?;
    Some(entry)
}

/// Parses `-rw-r--r--   1 user group   3000 Feb  2  2020 name`. Owners can be missing or contain
/// blanks, so the parser searches for the date.
fn unix(line: &[u8]) -> Option<ListEntry> {
    let kind = match line.first()? {
        b'-' => EntryKind::File,
        b'd' => EntryKind::Directory,
        b'l' => EntryKind::Link,
        b'b' | b'c' | b'p' | b's' => EntryKind::Other("special".into()),
        _ => return None,
    };
    let mode = mode(line.get(1..10)?)?;
    let words = words(line);
    let date = (2..words.len().saturating_sub(2)).find(|&at| {
        let [month, day, time] = [0, 1, 2].map(|next| &line[words[at + next].clone()]);
        let known = MONTHS.iter().any(|name| name.eq_ignore_ascii_case(month));
        known && number::<u8>(day).is_some_and(|day| (1..=31).contains(&day)) && is_time(time)
    })?;
    let size_bytes = number(&line[words[date - 1].clone()]);
    // A name can start with a blank.
    let mut name = line.get(words[date + 2].end + 1..)?;
    let mut target = None;
    if kind == EntryKind::Link {
        let cut = arrow(name, size_bytes)?;
        target = Some(name[cut + ARROW.len()..].to_vec());
        name = &name[..cut];
    }
    Some(ListEntry {
        kind: Some(kind),
        size_bytes,
        mode: Some(mode),
        target,
        ..ListEntry::named(name)
    })
}

/// Parses `11-27-26  03:25PM       <DIR>          name`, with a size instead of `<DIR>` for a file.
fn windows(line: &[u8]) -> Option<ListEntry> {
    let words = words(line);
    let [date, time, size, ..] = &words[..] else {
        return None;
    };
    let is_date = line[date.clone()].split(|byte| *byte == b'-');
    let is_date = is_date.map(number::<u16>).collect::<Option<Vec<_>>>()?;
    let time = &line[time.clone()];
    let half = time.len().checked_sub(2).map(|cut| time.split_at(cut));
    let time = half.map_or(time, |(hours, half)| {
        let named = half.eq_ignore_ascii_case(b"am") || half.eq_ignore_ascii_case(b"pm");
        if named { hours } else { time }
    });
    if is_date.len() != 3 || !time.contains(&b':') || !is_time(time) {
        return None;
    }
    let name = line[size.end..].trim_ascii_start();
    let (kind, size_bytes) = match &line[size.clone()] {
        b"<DIR>" => (EntryKind::Directory, None),
        digits => (EntryKind::File, Some(number(digits)?)),
    };
    Some(ListEntry {
        kind: Some(kind),
        size_bytes,
        ..ListEntry::named(name)
    })
}

/// Parses `rwxr-xr-x`.
fn mode(letters: &[u8]) -> Option<u32> {
    letters
        .iter()
        .zip(b"rwxrwxrwx")
        .try_fold(0, |mode, (found, letter)| {
            let set = match found {
                b'-' | b'S' | b'T' => 0,
                b's' | b't' if *letter == b'x' => 1,
                found if found == letter => 1,
                _ => return None,
            };
            Some(mode << 1 | set)
        })
}

/// Returns `true` for a time such as `15:25`, and for a year.
fn is_time(text: &[u8]) -> bool {
    let mut parts = text.splitn(2, |byte| *byte == b':');
    let mut part = || parts.next().map(number::<u16>);
    match (part(), part()) {
        (Some(Some(hours)), Some(Some(minutes))) => hours < 24 && minutes < 60,
        (Some(Some(year)), None) => text.len() == 4 && year >= 1970,
        _ => false,
    }
}

/// Finds the arrow of a link. The size of a link is the length of its target; otherwise uses the
/// first arrow.
fn arrow(text: &[u8], size_bytes: Option<u64>) -> Option<usize> {
    let link_size = size_bytes.and_then(|size| usize::try_from(size).ok());
    let at = link_size.and_then(|size| text.len().checked_sub(size)?.checked_sub(ARROW.len()));
    let first = || text.windows(ARROW.len()).position(|bytes| bytes == ARROW);
    at.filter(|&at| text[at..].starts_with(ARROW))
        .or_else(first)
}

/// Positions of the words of a line.
fn words(line: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut words = Vec::new();
    let mut at = 0;
    for word in line.split(|byte| *byte == b' ') {
        if !word.is_empty() {
            words.push(at..at + word.len());
        }
        at += word.len() + 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link_size(line: &str) -> Option<ListEntry> {
        parse_list(line.as_bytes())
    }

    fn known(kind: EntryKind, name: &str, size_bytes: Option<u64>, mode: Option<u32>) -> ListEntry {
        ListEntry {
            kind: Some(kind),
            size_bytes,
            mode,
            ..ListEntry::named(name)
        }
    }

    #[test]
    fn lines_of_real_servers_are_parsed() {
        let check = |line, name: &str, kind, size, mode| {
            assert_eq!(
                link_size(line),
                Some(known(kind, name, Some(size), mode)),
                "{line}"
            );
        };
        // vsftpd, Pure-FTPd, ProFTPD, pyftpdlib; a line without a group, owners with blanks, names
        // with blanks.
        check(
            "drwxr-xr-x    2 1001     0            4096 Nov 27 15:25 up",
            "up",
            EntryKind::Directory,
            4096,
            Some(0o755),
        );
        check(
            "-rw-r--r--    1 ftpu       ftpu             3000 Feb  2  2020 a",
            "a",
            EntryKind::File,
            3000,
            Some(0o644),
        );
        check(
            "-rw-------   1 ftpu     ftpu         3000 Nov 27 15:26 odd name #1%",
            "odd name #1%",
            EntryKind::File,
            3000,
            Some(0o600),
        );
        check(
            "-rwsr-sr-t   1 root root 0 Dec 31 23:59  blank",
            " blank",
            EntryKind::File,
            0,
            Some(0o755),
        );
        check(
            "-rw-rw-rw-   1 ftp 12345678901 Jan  1  1999 big",
            "big",
            EntryKind::File,
            12_345_678_901,
            Some(0o666),
        );
        check(
            "-rw-r--r--   1 domain users 22 May 5 09:07 May 5 09:07 x",
            "May 5 09:07 x",
            EntryKind::File,
            22,
            Some(0o644),
        );
        check(
            "02-25-97  04:53PM                  564 read me.txt",
            "read me.txt",
            EntryKind::File,
            564,
            None,
        );
        check("2026-11-27  16:53  1 y", "y", EntryKind::File, 1, None);
        let directory = known(EntryKind::Directory, "some dir", None, None);
        assert_eq!(
            link_size("11-27-2026  03:25am       <DIR>          some dir"),
            Some(directory)
        );
    }

    #[test]
    fn the_size_of_a_link_determines_where_its_target_starts() {
        let link = |line| link_size(line).and_then(|entry| Some((entry.name, entry.target?)));
        let found = |name: &str, target: &str| Some((name.into(), target.into()));
        assert_eq!(
            link("lrwxrwxrwx 1 u g 1 Jan  1  2020 a -> b -> c"),
            found("a -> b", "c")
        );
        assert_eq!(
            link("lrwxrwxrwx 1 u g 6 Jan  1  2020 a -> b -> c"),
            found("a", "b -> c")
        );
        assert_eq!(
            link("lrwxrwxrwx 1 u g 99 Jan  1  2020 a -> b -> c"),
            found("a", "b -> c")
        );
        assert_eq!(link("lrwxrwxrwx 1 u g 1 Jan  1  2020 a"), None);
    }

    #[test]
    fn lines_without_an_entry_return_none() {
        for line in [
            "",
            "total 8",
            "-",
            "-rw-r--r--",
            "-rw-r--r-- 1 u g 3 Jan 1 2020",
            "-rw-r--r-- 1 u g 3 Jan 32 2020 x",
            "-rw-r--r-- 1 u g 3 Jan 1 24:00 x",
            "-rq-r--r-- 1 u g 3 Jan 1 2020 x",
            "11-27-26 03:25PM x y",
            "11-27-26 03:25PM <DIR>",
            "1-2 03:25PM 3 y",
            "type=file; x",
        ] {
            assert_eq!(link_size(line), None, "{line}");
        }
    }
}
