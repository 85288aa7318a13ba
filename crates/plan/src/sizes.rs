//! Sizes of the files of a data set: all the same, or a mix that repeats.

use std::num::NonZeroU64;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// So many files in sequence of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Portion {
    /// How many.
    pub files: NonZeroU64,
    /// Size of each.
    pub size_bytes: Bytes,
}

/// The size of each file by its number, cheap to copy around.
///
/// ```
/// # use venturi_plan::Sizes;
/// let sizes = Sizes::equal(10);
/// assert_eq!((sizes.of(7), sizes.sum(7, 3)), (10, 30));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    portions: Arc<[(u64, u64)]>,
}

impl Sizes {
    /// All files of one size.
    #[must_use]
    pub fn equal(size_bytes: u64) -> Self {
        Self {
            portions: [(1, size_bytes)].into(),
        }
    }

    /// Portions one after the other, and again from the first.
    pub(crate) fn mixed(mix: &[Portion]) -> Self {
        let portions = mix
            .iter()
            .map(|portion| (portion.files.get(), portion.size_bytes.get()));
        Self {
            portions: portions.collect(),
        }
    }

    /// The size of this file.
    #[must_use]
    pub fn of(&self, index: u64) -> u64 {
        let mut left = index % self.round();
        for (files, size) in self.portions.iter() {
            if left < *files {
                return *size;
            }
            left -= files;
        }
        unreachable!("the rest of a division by the files of a round lies in one of its portions")
    }

    /// Bytes of so many files from this one on, at most 2⁶⁴ − 1.
    #[must_use]
    pub fn sum(&self, first: u64, files: u64) -> u64 {
        u64::try_from(self.below(first.saturating_add(files)) - self.below(first))
            .unwrap_or(u64::MAX)
    }

    /// The smallest size that there is.
    #[must_use]
    pub fn smallest(&self) -> u64 {
        self.portions
            .iter()
            .map(|(_, size)| *size)
            .min()
            .unwrap_or(0)
    }

    /// The largest size that there is.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.portions
            .iter()
            .map(|(_, size)| *size)
            .max()
            .unwrap_or(0)
    }

    fn round(&self) -> u64 {
        let files = self.portions.iter().map(|(files, _)| *files);
        files.fold(0, u64::saturating_add).max(1)
    }

    /// Bytes of all files before this one.
    fn below(&self, index: u64) -> u128 {
        let (rounds, mut left) = (index / self.round(), index % self.round());
        let mut bytes = 0;
        for (files, size) in self.portions.iter() {
            let all = u128::from(*files) * u128::from(*size);
            bytes += u128::from(rounds) * all + u128::from(left.min(*files)) * u128::from(*size);
            left = left.saturating_sub(*files);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(portions: &[(u64, u64)]) -> Sizes {
        let mix: Vec<Portion> = portions
            .iter()
            .map(|(files, size)| Portion {
                files: NonZeroU64::new(*files).expect("not zero"),
                size_bytes: Bytes::new(*size),
            })
            .collect();
        Sizes::mixed(&mix)
    }

    #[test]
    fn a_mix_repeats_and_the_sum_is_that_of_its_files() {
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
    fn a_sum_beyond_what_can_be_counted_stays_at_the_most() {
        assert_eq!(Sizes::equal(u64::MAX).sum(0, 3), u64::MAX);
        assert_eq!(mixed(&[(u64::MAX, 1), (u64::MAX, 2)]).of(u64::MAX - 1), 1);
    }

    #[test]
    fn a_portion_of_no_files_is_refused() {
        assert!(serde_json::from_str::<Portion>(r#"{"files": 0, "size_bytes": 1}"#).is_err());
    }
}
