//! Attempts until one succeeds.

/// Number of attempts in the mean if each fails with probability f by itself, and `most` are made: (1 − f^most) / (1 − f).
///
/// Source: the geometric distribution, cut off. Range: attempts that fail independently.
///
/// ```
/// use venturi_sim::cost::attempts;
/// assert_eq!((attempts(0.5, 1), attempts(0.5, 3), attempts(1.0, 3)), (1.0, 1.75, 3.0));
/// ```
#[must_use]
pub fn attempts(failure: f64, most: u32) -> f64 {
    if failure >= 1.0 {
        f64::from(most)
    } else {
        (1.0 - failure.powf(f64::from(most))) / (1.0 - failure)
    }
}

/// Mean time until success or until `most` attempts have failed: successes take `good_s`, failures `bad_s`, and `pause_s` is between
/// two attempts.
///
/// For `good_s = bad_s` = T and any number of attempts this is T/(1−f) + pause f/(1−f).
///
/// ```
/// use venturi_sim::cost::mean_time_with_retries_s;
/// let time_s = mean_time_with_retries_s(10.0, 10.0, 1.0, 0.2, 1000);
/// assert!((time_s - (12.5 + 0.25)).abs() < 1e-9);
/// ```
#[must_use]
pub fn mean_time_with_retries_s(
    good_s: f64,
    bad_s: f64,
    pause_s: f64,
    failure: f64,
    most: u32,
) -> f64 {
    let made = attempts(failure, most);
    let succeeds = 1.0 - failure.powf(f64::from(most));
    // Of the attempts made, one is good if any is; all others are bad, and there is a pause before each but the first.
    succeeds * good_s + (made - succeeds) * bad_s + (made - 1.0) * pause_s
}
