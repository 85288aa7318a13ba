//! Sets of byte positions of a file: what is there, what is missing.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Error;

/// Most separate ranges in one set. A peer that scatters single bytes over a file would otherwise fill the memory.
pub const MAX_RANGES: usize = 65_536;

/// Disjoint, ordered, never touching ranges; ends are exclusive, as in the markers of Globus servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByteRanges {
    /// Start → end.
    ranges: BTreeMap<u64, u64>,
}

impl ByteRanges {
    /// The set of one range.
    #[must_use]
    pub fn of(range: Range<u64>) -> Self {
        let mut ranges = BTreeMap::new();
        if !range.is_empty() {
            ranges.insert(range.start, range.end);
        }
        Self { ranges }
    }

    /// Adds a range and merges it with those that it touches.
    ///
    /// # Errors
    /// More than [`MAX_RANGES`] ranges.
    pub fn insert(&mut self, range: Range<u64>) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let Range { mut start, mut end } = range;
        // From the left: bytes of a file mostly come in order, so this is the only range that is met.
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
            return Err(Error::Limit {
                place: "separate ranges of a file",
                limit: MAX_RANGES as u64,
            });
        }
        self.ranges.insert(start, end);
        Ok(())
    }

    /// Adds all ranges of another set.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        other.iter().try_for_each(|range| self.insert(range))
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Whether a byte of this range is in it.
    #[must_use]
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..range.end).next_back();
        !range.is_empty() && before.is_some_and(|(_, &end)| end > range.start)
    }

    /// Whether no byte is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of bytes in it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Position after its last byte; 0 of an empty set.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Length of the part that begins at 0 without a hole.
    #[must_use]
    pub fn prefix_bytes(&self) -> u64 {
        self.ranges.get(&0).copied().unwrap_or(0)
    }

    /// What a file of `size_bytes` has besides these ranges.
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

    /// The same set with each range one byte shorter at its end.
    ///
    /// A restart marker may be read with its ends inclusive or exclusive. Handed back like this, a server of either
    /// habit sends at most one byte twice and leaves none out.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let ranges = self
            .iter()
            .filter(|range| range.end - range.start > 1)
            .map(|range| (range.start, range.end - 1))
            .collect();
        Self { ranges }
    }

    /// Reads `0-10,20-30`.
    ///
    /// # Errors
    /// What is not such a list, or longer than [`MAX_RANGES`].
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let mut ranges = Self::default();
        for item in text.split(|&byte| byte == b',') {
            let range = parse_range(item.trim_ascii())
                .ok_or_else(|| Error::malformed("ranges", "`START-END,START-END`", text))?;
            ranges.insert(range)?;
        }
        Ok(ranges)
    }
}

impl std::fmt::Display for ByteRanges {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            // A list of no range cannot be read.
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
        fn a_set_of_ranges_holds_what_a_set_of_positions_holds(
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
    fn scattered_bytes_end_at_the_limit() {
        let mut ranges = ByteRanges::default();
        let refused = (0..=MAX_RANGES as u64).find(|n| ranges.insert(2 * n..2 * n + 1).is_err());
        assert_eq!(refused, Some(MAX_RANGES as u64));
    }

    #[test]
    fn a_shortened_set_leaves_no_byte_out_whatever_the_habit_of_the_server() {
        let ranges = ByteRanges::parse(b"0-10,20-21,30-40").unwrap();
        assert_eq!(ranges.shortened().to_string(), "0-9,30-39");
    }
}
