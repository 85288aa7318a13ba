//! Ranges of bytes: what is asked for, and what is in an answer (RFC 9110, section 14).

use std::ops::Range;

/// Ranges of one request that are answered; a request for more is one for the whole (section 14.2 allows that, section 17.15 says why).
pub(crate) const MOST_RANGES: usize = 64;

/// What a `Range` field asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of it: no field, or one that is to be ignored.
    Whole,
    /// These, in the order they are asked for; none is empty.
    Ranges(Vec<Range<u64>>),
    /// Nothing that is there: 416.
    Nothing,
}

/// Reads a `Range` field for a file of so many bytes.
pub(crate) fn asked(field: Option<&str>, size: u64) -> Asked {
    let Some(specs) = field.and_then(|field| unit(field.trim(), "=")) else {
        return Asked::Whole;
    };
    let mut ranges = Vec::new();
    let mut valid = 0;
    for spec in specs
        .split(',')
        .map(str::trim)
        .filter(|spec| !spec.is_empty())
    {
        valid += 1;
        match one(spec, size) {
            Err(()) => return Asked::Whole,
            Ok(range) => ranges.extend(range),
        }
    }
    let bytes = ranges
        .iter()
        .try_fold(0_u64, |sum, range| sum.checked_add(range.end - range.start));
    if valid == 0 || valid > MOST_RANGES {
        Asked::Whole
    } else if ranges.is_empty() {
        Asked::Nothing
    } else if bytes.is_none_or(|bytes| bytes > size) {
        // Ranges that overlap: more bytes than the file has are not asked for in earnest.
        Asked::Whole
    } else {
        Asked::Ranges(ranges)
    }
}

/// One range, cut to the file; none if it is beyond its end.
fn one(spec: &str, size: u64) -> Result<Option<Range<u64>>, ()> {
    let (first, last) = spec.split_once('-').ok_or(())?;
    let range = match (first.is_empty(), last.is_empty()) {
        (true, true) => return Err(()),
        (true, false) => size.saturating_sub(number(last).ok_or(())?)..size,
        (false, true) => number(first).ok_or(())?..size,
        (false, false) => {
            let (first, last) = (number(first).ok_or(())?, number(last).ok_or(())?);
            if last < first {
                return Err(());
            }
            first..last.saturating_add(1).min(size)
        }
    };
    Ok((range.start < range.end).then_some(range))
}

/// The range of an answer, and the size of the whole where that is known.
///
/// The range is none in an answer that has no bytes (416).
pub(crate) fn answered(field: &str) -> Option<(Option<Range<u64>>, Option<u64>)> {
    let (range, size) = unit(field.trim(), " ")?.trim().split_once('/')?;
    let size = match size {
        "*" => None,
        size => Some(number(size)?),
    };
    if range == "*" {
        return size.map(|size| (None, Some(size)));
    }
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let sound = first <= last && size.is_none_or(|size| last < size) && last < u64::MAX;
    sound.then(|| (Some(first..last + 1), size))
}

/// The value of a `Content-Range` field.
pub(crate) fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// The value of a `Range` field.
///
/// # Panics
/// If the range is empty, which cannot be said in HTTP.
pub(crate) fn range(range: &Range<u64>) -> String {
    assert!(
        range.start < range.end,
        "an empty range cannot be asked for"
    );
    format!("bytes={}-{}", range.start, range.end - 1)
}

fn unit<'t>(field: &'t str, mark: &str) -> Option<&'t str> {
    let (unit, rest) = field.split_once(mark)?;
    unit.trim_end()
        .eq_ignore_ascii_case("bytes")
        .then_some(rest)
}

/// Digits and nothing else; more than 64 bits have is all there is.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is what is meant"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9110_for_a_file_of_10000_bytes() {
        let check = |field: &str, expected: &[Range<u64>]| {
            assert_eq!(
                asked(Some(field), 10_000),
                Asked::Ranges(expected.to_vec()),
                "{field}"
            );
        };
        check("bytes=0-499", &[0..500]);
        check("bytes=500-999", &[500..1000]);
        check("bytes=-500", &[9500..10_000]);
        check("bytes=9500-", &[9500..10_000]);
        check("bytes=0-0,-1", &[0..1, 9999..10_000]);
        check(
            "bytes= 0-999, 4500-5499, -1000",
            &[0..1000, 4500..5500, 9000..10_000],
        );
        check("Bytes=9999-99999999999999999999", &[9999..10_000]);
    }

    #[test]
    fn what_is_no_range_is_ignored_and_what_is_not_there_is_refused() {
        for field in [
            "bytes=",
            "bytes=a-b",
            "bytes=5-4",
            "lines=1-2",
            "bytes=-",
            "bytes=0-9,0-9",
            "bytes=+1-2",
        ] {
            assert_eq!(asked(Some(field), 10), Asked::Whole, "{field}");
        }
        assert_eq!(asked(None, 10), Asked::Whole);
        let many = format!("bytes={}", "0-0,".repeat(MOST_RANGES + 1));
        assert_eq!(asked(Some(&many), 1 << 40), Asked::Whole);
        for field in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(asked(Some(field), 10), Asked::Nothing, "{field}");
        }
        assert_eq!(asked(Some("bytes=-5"), 0), Asked::Nothing);
    }

    #[test]
    fn answers_say_their_range_and_the_size() {
        assert_eq!(answered("bytes 0-4/10"), Some((Some(0..5), Some(10))));
        assert_eq!(answered("bytes 0-4/*"), Some((Some(0..5), None)));
        assert_eq!(answered("bytes */10"), Some((None, Some(10))));
        for field in [
            "bytes 4-0/10",
            "bytes 0-10/10",
            "bytes */*",
            "0-4/10",
            "bytes 0-4",
        ] {
            assert_eq!(answered(field), None, "{field}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_every_range_lies_in_the_file(field: String, digits in "bytes=[0-9,-]{0,40}", size: u64) {
            for field in [field, digits] {
                if let Asked::Ranges(ranges) = asked(Some(&field), size) {
                    prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
                }
                let _ = answered(&field);
            }
        }

        #[test]
        fn what_is_said_is_read_as_it_was_meant(start in 0..u64::MAX / 2, length in 1..u64::MAX / 4, more in 0..1000_u64) {
            let (asked_for, size) = (start..start + length, start + length + more);
            prop_assert_eq!(asked(Some(&range(&asked_for)), size), Asked::Ranges(vec![asked_for.clone()]));
            prop_assert_eq!(answered(&content_range(&asked_for, size)), Some((Some(asked_for), Some(size))));
        }
    }
}
