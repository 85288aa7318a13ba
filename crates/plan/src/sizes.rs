//! Sizes of the files of a dataset: all equal, or a repeated mix.

use std::num::NonZeroU64;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Consecutive files of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeGroup {
    /// Number of files.
    pub files: NonZeroU64,
    /// Size of each.
    pub size_bytes: Bytes,
}

/// Size of each file by its number; cheap to clone.
///
/// ```
/// # use venturi_plan::Sizes;
/// let sizes = Sizes::equal(10);
/// assert_eq!((sizes.of(7), sizes.sum(7, 3)), (10, 30));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<SizeGroup>", into = "Vec<SizeGroup>")]
#[schemars(with = "Vec<SizeGroup>")]
pub struct Sizes {
    groups: Arc<[(u64, u64)]>,
}

impl Sizes {
    /// All files of one size.
    #[must_use]
    pub fn equal(size_bytes: u64) -> Self {
        Self {
            groups: [(1, size_bytes)].into(),
        }
    }

    /// Create groups in sequence, repeated in a cycle.
    pub(crate) fn mixed(mix: &[SizeGroup]) -> Self {
        let groups = mix
            .iter()
            .map(|group| (group.files.get(), group.size_bytes.get()));
        Self {
            groups: groups.collect(),
        }
    }

    /// Return the size of this file.
    #[must_use]
    pub fn of(&self, index: u64) -> u64 {
        let mut left = index % self.round();
        for (files, size) in self.groups.iter() {
            if left < *files {
                return *size;
            }
            left -= files;
        }
        unreachable!(
            "the remainder of a division by the files of a round is in one of its size groups"
        )
    }

    /// Return the bytes of this number of files, starting with this one, at most 2⁶⁴ − 1.
    #[must_use]
    pub fn sum(&self, first: u64, files: u64) -> u64 {
        u64::try_from(self.below(first.saturating_add(files)) - self.below(first))
            .unwrap_or(u64::MAX)
    }

    /// Return the smallest size.
    #[must_use]
    pub fn smallest(&self) -> u64 {
        self.groups.iter().map(|(_, size)| *size).min().unwrap_or(0)
    }

    /// Return the largest size.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.groups.iter().map(|(_, size)| *size).max().unwrap_or(0)
    }

    fn round(&self) -> u64 {
        let files = self.groups.iter().map(|(files, _)| *files);
        files.fold(0, u64::saturating_add).max(1)
    }

    /// Return the bytes of all files before this one.
    fn below(&self, index: u64) -> u128 {
        let (rounds, mut left) = (index / self.round(), index % self.round());
        let mut bytes = 0;
        for (files, size) in self.groups.iter() {
            let all = u128::from(*files) * u128::from(*size);
            bytes += u128::from(rounds) * all + u128::from(left.min(*files)) * u128::from(*size);
            left = left.saturating_sub(*files);
        }
        bytes
    }
}

impl TryFrom<Vec<SizeGroup>> for Sizes {
    type Error = &'static str;

    fn try_from(groups: Vec<SizeGroup>) -> Result<Self, &'static str> {
        if groups.is_empty() {
            return Err("expected at least one group of file sizes, found none");
        }
        Ok(Self::mixed(&groups))
    }
}

impl From<Sizes> for Vec<SizeGroup> {
    fn from(sizes: Sizes) -> Self {
        let groups = sizes.groups.iter().map(|(files, size_bytes)| SizeGroup {
            files: NonZeroU64::new(*files).expect("no size group is empty"),
            size_bytes: Bytes::new(*size_bytes),
        });
        groups.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(groups: &[(u64, u64)]) -> Sizes {
        let mix: Vec<SizeGroup> = groups
            .iter()
            .map(|(files, size)| SizeGroup {
                files: NonZeroU64::new(*files).expect("not zero"),
                size_bytes: Bytes::new(*size),
            })
            .collect();
        Sizes::mixed(&mix)
    }

    #[test]
    fn a_mix_repeats_and_its_sum_is_the_sum_of_its_files() {
        let sizes = mixed(&[(4, 8), (2, 16), (1, 32)]);
        let each: Vec<u64> = (0..9).map(|index| sizes.of(index)).collect();
        assert_eq!(each, [8, 8, 8, 8, 16, 16, 32, 8, 8]);
        for first in 0..15 {
            for files in 0..15 {
                let expected: u64 = (first..first + files).map(|index| sizes.of(index)).sum();
                assert_eq!(sizes.sum(first, files), expected, "{files} from {first}");
            }
        }
        assert_eq!(sizes.smallest(), 8);
    }

    #[test]
    fn an_overflowing_sum_saturates_at_the_maximum() {
        assert_eq!(Sizes::equal(u64::MAX).sum(0, 3), u64::MAX);
        assert_eq!(mixed(&[(u64::MAX, 1), (u64::MAX, 2)]).of(u64::MAX - 1), 1);
    }

    #[test]
    fn a_size_group_without_files_is_rejected() {
        assert!(serde_json::from_str::<SizeGroup>(r#"{"files": 0, "size_bytes": 1}"#).is_err());
    }
}
