//! Hit ratios of caches: exact solutions for small caches, the characteristic time for large ones,
//! and a list in order of use.

use proptest::prelude::*;

use super::super::*;
use super::che;

/// Return independent, reproducible requests (Lehmer's generator with the constants of Park and
/// Miller).
fn requests(weights: &[f64], count: usize) -> Vec<usize> {
    let total: f64 = weights.iter().sum();
    let mut state = 1_u64;
    let mut draw = || {
        state = state * 48_271 % 2_147_483_647;
        state as f64 / 2_147_483_647.0
    };
    (0..count)
        .map(|_| {
            let mut left = draw() * total;
            let chosen = weights.iter().position(|weight| {
                left -= weight;
                left < 0.0
            });
            chosen.unwrap_or(weights.len() - 1)
        })
        .collect()
}

fn hit_ratio(weights: &[f64], bytes: u64, capacity: u64, count: usize) -> f64 {
    let mut cache = Lru::new(capacity);
    let all = requests(weights, count);
    let hits = all
        .iter()
        .filter(|&&file| cache.request(file, bytes))
        .count();
    hits as f64 / all.len() as f64
}

/// Return the hit ratio of a cache for two of n files (King 1971), from the probabilities of the
/// last two different requested files.
fn king_two(weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    let p: Vec<f64> = weights.iter().map(|it| it / total).collect();
    let mut ratio = 0.0;
    for i in 0..p.len() {
        for j in 0..p.len() {
            if i != j {
                ratio += p[i] * p[j] / (1.0 - p[i]) * (p[i] + p[j]);
            }
        }
    }
    ratio
}

#[test]
fn a_small_cache_has_the_exact_hit_ratio() {
    let weights = [5.0, 3.0, 2.0, 1.0, 1.0];
    // 400,000 requests: the standard error is below 0.001.
    let found = hit_ratio(&weights, 10, 20, 400_000);
    assert!(
        (found - king_two(&weights)).abs() < 0.004,
        "{found} {}",
        king_two(&weights)
    );
}

#[test]
fn the_characteristic_time_predicts_the_hit_ratio_of_a_large_cache() {
    let weights: Vec<f64> = (1..=500).map(|rank| f64::powf(rank.into(), -0.8)).collect();
    let total: f64 = weights.iter().sum();
    for capacity_bytes in [25, 100, 300] {
        let files: Vec<_> = weights.iter().map(|weight| (weight / total, 1.0)).collect();
        let expected = che::hit_ratio(&files, f64::from(capacity_bytes));
        let found = hit_ratio(&weights, 1, u64::from(capacity_bytes as u32), 300_000);
        assert!(
            (found / expected - 1.0).abs() < 0.02,
            "{capacity_bytes}: {found} {expected}"
        );
    }
}

proptest! {
    #[test]
    fn a_cache_behaves_like_a_list_in_order_of_use(
        query in prop::collection::vec((0_u8..12, 1_u64..9), 0..300), capacity in 0_u64..30,
    ) {
        let (mut cache, mut list) = (Lru::new(capacity), Vec::<(u8, u64)>::new());
        for (file, bytes) in query {
            let hit = list.contains(&(file, bytes));
            list.retain(|it| it.0 != file);
            if bytes <= capacity {
                list.push((file, bytes));
                while list.iter().map(|it| it.1).sum::<u64>() > capacity {
                    list.remove(0);
                }
            }
            prop_assert_eq!(cache.request(file, bytes), hit);
            prop_assert_eq!(cache.used_bytes(), list.iter().map(|it| it.1).sum::<u64>());
        }
    }
}
