//! Sets of byte ranges of a file.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::FtpError;

/// Maximum ranges in one set, so that a peer cannot fill the memory with scattered bytes.
pub const MAX_RANGES: usize = 65_536;

/// Disjoint, ordered ranges that do not touch; ends are exclusive, as in the markers of Globus
/// servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByteRanges {
    /// Start → end.
    ranges: BTreeMap<u64, u64>,
}

impl ByteRanges {
    /// Creates a set of one range.
    #[must_use]
    pub fn from_range(range: Range<u64>) -> Self {
        let mut ranges = BTreeMap::new();
        if !range.is_empty() {
            ranges.insert(range.start, range.end);
        }
        Self { ranges }
    }

    /// Adds a range and merges it with overlapping and adjacent ranges.
    ///
    /// # Errors
    /// If the set would have more than [`MAX_RANGES`] ranges.
    pub fn insert(&mut self, range: Range<u64>) -> Result<(), FtpError> {
        if range.is_empty() {
            return Ok(());
        }
        let Range { mut start, mut end } = range;
        // Check the left neighbour first: bytes of a file mostly arrive in order, so usually no
        // other range is affected.
        if let Some((&left, &left_end)) = self.ranges.range(..=start).next_back()
            && left_end >= start
        {
            start = left;
            end = end.max(left_end);
        }
        while let Some((&right, &right_end)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&right);
            end = end.max(right_end);
        }
        if self.ranges.len() >= MAX_RANGES {
            return Err(FtpError::Limit {
                context: "separate ranges of a file",
                limit: MAX_RANGES as u64,
            });
        }
        self.ranges.insert(start, end);
        Ok(())
    }

    /// Adds all ranges of another set.
    ///
    /// # Errors
    /// Like [`insert`](Self::insert).
    pub fn merge(&mut self, other: &Self) -> Result<(), FtpError> {
        other.iter().try_for_each(|range| self.insert(range))
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Returns `true` if the set contains a byte of this range.
    #[must_use]
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..range.end).next_back();
        !range.is_empty() && before.is_some_and(|(_, &end)| end > range.start)
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of bytes in the set.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the position after the last byte; 0 for an empty set.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Returns the number of contiguous bytes from position 0.
    #[must_use]
    pub fn prefix_bytes(&self) -> u64 {
        self.ranges.get(&0).copied().unwrap_or(0)
    }

    /// Returns the missing ranges of a file of `size_bytes`.
    #[must_use]
    pub fn missing(&self, size_bytes: u64) -> Self {
        let mut ranges = BTreeMap::new();
        let mut position = 0;
        for range in self.iter().take_while(|range| range.start < size_bytes) {
            if position < range.start {
                ranges.insert(position, range.start);
            }
            position = range.end;
        }
        if position < size_bytes {
            ranges.insert(position, size_bytes);
        }
        Self { ranges }
    }

    /// Returns the set with each range one byte shorter at its end.
    ///
    /// Servers read restart markers with inclusive or exclusive ends. With shortened ranges, either
    /// kind of server sends at most one byte twice and omits none.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let ranges = self
            .iter()
            .filter(|range| range.end - range.start > 1)
            .map(|range| (range.start, range.end - 1))
            .collect();
        Self { ranges }
    }

    /// Parses `0-10,20-30`.
    ///
    /// # Errors
    /// If the text is not a list of ranges, or has more than [`MAX_RANGES`].
    pub fn parse(text: &[u8]) -> Result<Self, FtpError> {
        let mut ranges = Self::default();
        for item in text.split(|&byte| byte == b',') {
            let range = parse_range(item.trim_ascii())
                .ok_or_else(|| FtpError::malformed("ranges", "`START-END,START-END`", text))?;
            ranges.insert(range)?;
        }
        Ok(ranges)
    }
}

impl std::fmt::Display for ByteRanges {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            // An empty list cannot be parsed.
            return formatter.write_str("0-0");
        }
        for (index, range) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(formatter, "{comma}{}-{}", range.start, range.end)?;
        }
        Ok(())
    }
}

fn parse_range(item: &[u8]) -> Option<Range<u64>> {
    let text = std::str::from_utf8(item).ok()?;
    let (start, end) = text.split_once('-')?;
    let range = crate::number(start.as_bytes())?..crate::number(end.as_bytes())?;
    (range.start <= range.end).then_some(range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn positions(ranges: &ByteRanges) -> Vec<u64> {
        ranges.iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn byte_ranges_behave_like_a_set_of_positions(
            items in prop::collection::vec((0_u64..60, 0_u64..20), 0..20), size in 0_u64..90,
        ) {
            let mut ranges = ByteRanges::default();
            let mut expected = std::collections::BTreeSet::new();
            for (start, length) in items {
                ranges.insert(start..start + length).unwrap();
                expected.extend(start..start + length);
            }
            prop_assert_eq!(positions(&ranges), expected.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.total_bytes(), expected.len() as u64);
            for start in 0..size {
                let range = start..start + size / 10;
                let overlaps = range.clone().any(|position| expected.contains(&position));
                prop_assert_eq!(ranges.overlaps(&range), overlaps);
            }
            let touching = ranges.iter().zip(ranges.iter().skip(1)).any(|(a, b)| a.end >= b.start);
            prop_assert!(!touching);
            let missing = (0..size).filter(|position| !expected.contains(position));
            prop_assert_eq!(positions(&ranges.missing(size)), missing.collect::<Vec<_>>());
            prop_assert_eq!(&ByteRanges::parse(ranges.to_string().as_bytes()).unwrap(), &ranges);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: Vec<u8>) {
            let _ = ByteRanges::parse(&text);
        }
    }

    #[test]
    fn the_number_of_separate_ranges_is_limited() {
        let mut ranges = ByteRanges::default();
        let rejected = (0..=MAX_RANGES as u64).find(|n| ranges.insert(2 * n..2 * n + 1).is_err());
        assert_eq!(rejected, Some(MAX_RANGES as u64));
    }

    #[test]
    fn shortened_ranges_omit_the_last_byte_of_each_range() {
        let ranges = ByteRanges::parse(b"0-10,20-21,30-40").unwrap();
        assert_eq!(ranges.shortened().to_string(), "0-9,30-39");
    }
}
