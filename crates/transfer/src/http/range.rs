//! Byte ranges of requests and responses (RFC 9110, section 14).

use std::ops::Range;

/// Maximum number of ranges in one request. A request with more ranges gets the complete file (sections 14.2 and
/// 17.15).
pub(crate) const MAX_RANGES: usize = 64;

/// Parsed `Range` field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// Complete file: no field, or a field to ignore.
    Whole,
    /// These ranges in request order; none is empty.
    Ranges(Vec<Range<u64>>),
    /// No range inside the file: status 416.
    Nothing,
}

/// Parse a `Range` field for a file of `size` bytes.
pub(crate) fn requested(field: Option<&str>, size: u64) -> RequestedRange {
    let Some(specs) = field.and_then(|field| unit(field.trim(), "=")) else {
        return RequestedRange::Whole;
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
            Err(()) => return RequestedRange::Whole,
            Ok(range) => ranges.extend(range),
        }
    }
    let bytes = ranges
        .iter()
        .try_fold(0_u64, |sum, range| sum.checked_add(range.end - range.start));
    if valid == 0 || valid > MAX_RANGES {
        RequestedRange::Whole
    } else if ranges.is_empty() {
        RequestedRange::Nothing
    } else if bytes.is_none_or(|bytes| bytes > size) {
        // Overlapping ranges: a sensible client does not request more bytes than the file has.
        RequestedRange::Whole
    } else {
        RequestedRange::Ranges(ranges)
    }
}

/// Return one range, cut to the file; none if it starts beyond the end.
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

/// Return the range of a response and the complete size, if known.
///
/// The range is none in a response without bytes (416).
pub(crate) fn parse_content_range(field: &str) -> Option<(Option<Range<u64>>, Option<u64>)> {
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

/// Return the value of a `Content-Range` field.
pub(crate) fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Return the value of a `Range` field.
///
/// # Panics
/// If the range is empty, because HTTP cannot express it.
pub(crate) fn range(range: &Range<u64>) -> String {
    assert!(
        range.start < range.end,
        "an empty range cannot be requested"
    );
    format!("bytes={}-{}", range.start, range.end - 1)
}

fn unit<'t>(field: &'t str, mark: &str) -> Option<&'t str> {
    let (unit, rest) = field.split_once(mark)?;
    unit.trim_end()
        .eq_ignore_ascii_case("bytes")
        .then_some(rest)
}

/// Parse a number of digits only; values above 64 bits saturate.
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
    fn the_examples_of_rfc_9110_are_parsed_for_a_file_of_10000_bytes() {
        let check = |field: &str, expected: &[Range<u64>]| {
            assert_eq!(
                requested(Some(field), 10_000),
                RequestedRange::Ranges(expected.to_vec()),
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
    fn invalid_ranges_are_ignored_and_unsatisfiable_ranges_are_rejected() {
        for field in [
            "bytes=",
            "bytes=a-b",
            "bytes=5-4",
            "lines=1-2",
            "bytes=-",
            "bytes=0-9,0-9",
            "bytes=+1-2",
        ] {
            assert_eq!(requested(Some(field), 10), RequestedRange::Whole, "{field}");
        }
        assert_eq!(requested(None, 10), RequestedRange::Whole);
        let many = format!("bytes={}", "0-0,".repeat(MAX_RANGES + 1));
        assert_eq!(requested(Some(&many), 1 << 40), RequestedRange::Whole);
        for field in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(
                requested(Some(field), 10),
                RequestedRange::Nothing,
                "{field}"
            );
        }
        assert_eq!(requested(Some("bytes=-5"), 0), RequestedRange::Nothing);
    }

    #[test]
    fn replies_contain_their_range_and_the_size() {
        assert_eq!(
            parse_content_range("bytes 0-4/10"),
            Some((Some(0..5), Some(10)))
        );
        assert_eq!(parse_content_range("bytes 0-4/*"), Some((Some(0..5), None)));
        assert_eq!(parse_content_range("bytes */10"), Some((None, Some(10))));
        for field in [
            "bytes 4-0/10",
            "bytes 0-10/10",
            "bytes */*",
            "0-4/10",
            "bytes 0-4",
        ] {
            assert_eq!(parse_content_range(field), None, "{field}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_every_range_lies_in_the_file(field: String, digits in "bytes=[0-9,-]{0,40}", size: u64) {
            for field in [field, digits] {
                if let RequestedRange::Ranges(ranges) = requested(Some(&field), size) {
                    prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= size));
                }
                let _ = parse_content_range(&field);
            }
        }

        #[test]
        fn range_headers_round_trip(start in 0..u64::MAX / 2, length in 1..u64::MAX / 4, more in 0..1000_u64) {
            let (byte_range, size) = (start..start + length, start + length + more);
            prop_assert_eq!(requested(Some(&range(&byte_range)), size), RequestedRange::Ranges(vec![byte_range.clone()]));
            prop_assert_eq!(parse_content_range(&content_range(&byte_range, size)), Some((Some(byte_range), Some(size))));
        }
    }
}
