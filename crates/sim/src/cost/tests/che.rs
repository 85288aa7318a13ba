//! Mean hit ratio of an LRU cache, without simulating requests (Che, Tung, Wang, IEEE JSAC 20(7),
//! 2002).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | λi | independent requests for file i | 1/s |
//! | si | size of file i, small compared with the cache | bytes |
//! | C | size of the cache | bytes |
//! | T | characteristic time: how long a file stays without another request | s |

/// Maximum number of halvings of an interval in `f64`.
const MAX_HALVINGS: u32 = 2200;

/// Return the fraction of requests that are hits: Σ λi hi / Σ λi with hi = 1 − e^(−λi T). `files`
/// are pairs of λi and si that do not all fit.
pub(crate) fn hit_ratio(files: &[(f64, f64)], capacity_bytes: f64) -> f64 {
    let time_s = characteristic_time_s(files, capacity_bytes);
    let all: f64 = files.iter().map(|it| it.0).sum();
    let hits = files.iter().map(|it| it.0 * found(it.0, time_s));
    hits.sum::<f64>() / all
}

fn found(requests_per_s: f64, time_s: f64) -> f64 {
    -(-requests_per_s * time_s).exp_m1()
}

/// Return T, the root of Σ si (1 − e^(−λi T)) = C.
fn characteristic_time_s(files: &[(f64, f64)], capacity_bytes: f64) -> f64 {
    let fits = |time_s: f64| {
        let held: f64 = files.iter().map(|it| it.1 * found(it.0, time_s)).sum();
        held < capacity_bytes
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..MAX_HALVINGS {
        if fits(high) {
            (low, high) = (high, high * 2.0);
            continue;
        }
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return high;
        }
        (low, high) = if fits(middle) {
            (middle, high)
        } else {
            (low, middle)
        };
    }
    panic!("all files fit into {capacity_bytes} bytes");
}

#[test]
fn half_of_the_requests_for_equal_files_are_hits_where_half_of_them_fit() {
    let found = hit_ratio(&vec![(1.0, 1e6); 100], 50e6);
    assert!((found - 0.5).abs() < 1e-12, "{found}");
}
