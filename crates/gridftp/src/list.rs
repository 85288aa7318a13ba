//! Lines of LIST, which no standard has: as `ls -l` writes them, or as servers of Windows do. They tell times by a clock of which nothing is said, so none is
//! taken from them.

use crate::{Entry, Kind, Path, number};

const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];
/// Between the name of a link and the path that it leads to.
const ARROW: &[u8] = b" -> ";

/// Reads a line without its end; nothing, if it is none of a file, such as `total 8`.
#[must_use]
pub fn parse_list(line: &[u8]) -> Option<Entry> {
    let entry = unix(line).or_else(|| windows(line))?;
    Path::new(entry.name.clone()).ok()?;
    Some(entry)
}

/// `-rw-r--r--   1 user group   3000 Feb  2  2020 name`. Owners may be missing, or have blanks: what counts is the date.
fn unix(line: &[u8]) -> Option<Entry> {
    let kind = match line.first()? {
        b'-' => Kind::File,
        b'd' => Kind::Directory,
        b'l' => Kind::Link,
        b'b' | b'c' | b'p' | b's' => Kind::Other("special".into()),
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
    // A name may begin with a blank.
    let mut name = line.get(words[date + 2].end + 1..)?;
    let mut target = None;
    if kind == Kind::Link {
        let cut = arrow(name, size_bytes)?;
        target = Some(name[cut + ARROW.len()..].to_vec());
        name = &name[..cut];
    }
    Some(Entry {
        kind: Some(kind),
        size_bytes,
        mode: Some(mode),
        target,
        ..Entry::named(name)
    })
}

/// `11-27-26  03:25PM       <DIR>          name`, with a size in place of `<DIR>` for a file.
fn windows(line: &[u8]) -> Option<Entry> {
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
        b"<DIR>" => (Kind::Directory, None),
        digits => (Kind::File, Some(number(digits)?)),
    };
    Some(Entry {
        kind: Some(kind),
        size_bytes,
        ..Entry::named(name)
    })
}

/// `rwxr-xr-x`.
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

/// `15:25`, or a year.
fn is_time(text: &[u8]) -> bool {
    let mut parts = text.splitn(2, |byte| *byte == b':');
    let mut part = || parts.next().map(number::<u16>);
    match (part(), part()) {
        (Some(Some(hours)), Some(Some(minutes))) => hours < 24 && minutes < 60,
        (Some(Some(year)), None) => text.len() == 4 && year >= 1970,
        _ => false,
    }
}

/// Where the name of a link ends: a link has as many bytes as its path. Where that is not so, at the first arrow.
fn arrow(text: &[u8], size_bytes: Option<u64>) -> Option<usize> {
    let told = size_bytes.and_then(|size| usize::try_from(size).ok());
    let at = told.and_then(|size| text.len().checked_sub(size)?.checked_sub(ARROW.len()));
    let first = || text.windows(ARROW.len()).position(|bytes| bytes == ARROW);
    at.filter(|&at| text[at..].starts_with(ARROW))
        .or_else(first)
}

/// Where the words of a line are.
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

    fn told(line: &str) -> Option<Entry> {
        parse_list(line.as_bytes())
    }

    fn known(kind: Kind, name: &str, size_bytes: Option<u64>, mode: Option<u32>) -> Entry {
        Entry {
            kind: Some(kind),
            size_bytes,
            mode,
            ..Entry::named(name)
        }
    }

    #[test]
    fn lines_of_servers_that_there_are() {
        let check = |line, name: &str, kind, size, mode| {
            assert_eq!(
                told(line),
                Some(known(kind, name, Some(size), mode)),
                "{line}"
            );
        };
        // vsftpd, Pure-FTPd, ProFTPD, pyftpdlib; one without a group, owners with blanks, names with blanks.
        check(
            "drwxr-xr-x    2 1001     0            4096 Nov 27 15:25 up",
            "up",
            Kind::Directory,
            4096,
            Some(0o755),
        );
        check(
            "-rw-r--r--    1 ftpu       ftpu             3000 Feb  2  2020 a",
            "a",
            Kind::File,
            3000,
            Some(0o644),
        );
        check(
            "-rw-------   1 ftpu     ftpu         3000 Nov 27 15:26 odd name #1%",
            "odd name #1%",
            Kind::File,
            3000,
            Some(0o600),
        );
        check(
            "-rwsr-sr-t   1 root root 0 Dec 31 23:59  blank",
            " blank",
            Kind::File,
            0,
            Some(0o755),
        );
        check(
            "-rw-rw-rw-   1 ftp 12345678901 Jan  1  1999 big",
            "big",
            Kind::File,
            12_345_678_901,
            Some(0o666),
        );
        check(
            "-rw-r--r--   1 domain users 22 May 5 09:07 May 5 09:07 x",
            "May 5 09:07 x",
            Kind::File,
            22,
            Some(0o644),
        );
        check(
            "02-25-97  04:53PM                  564 read me.txt",
            "read me.txt",
            Kind::File,
            564,
            None,
        );
        check("2026-11-27  16:53  1 y", "y", Kind::File, 1, None);
        let folder = known(Kind::Directory, "some dir", None, None);
        assert_eq!(
            told("11-27-2026  03:25am       <DIR>          some dir"),
            Some(folder)
        );
    }

    #[test]
    fn a_link_ends_where_its_size_says() {
        let link = |line| told(line).and_then(|entry| Some((entry.name, entry.target?)));
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
    fn what_is_no_entry_is_none() {
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
            assert_eq!(told(line), None, "{line}");
        }
    }
}
