//! Work of varying duration, such as a search for primes, without noise: the numbers of transfers
//! spread evenly over its distribution.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | c | standard deviation over mean | – |
//! | u | position in the distribution: fraction of smaller draws | – |
//!
//! The logarithm of the factor is normal with σ² = ln(1 + c²) and mean −σ²/2, so that the mean of
//! factors is 1.

/// Return the factor of draw `number` on one of two independent axes (0 or 1). The first is the
/// median. Without scatter the factor is 1.
///
/// ```
/// use venturi_sim::cost::scatter_factor;
/// let mean = (0..1000).map(|number| scatter_factor(0.5, number, 0)).sum::<f64>() / 1000.0;
/// assert!((mean - 1.0).abs() < 0.01);
/// assert!((scatter_factor(0.5, 0, 1) - 1.25_f64.sqrt().recip()).abs() < 1e-3);
/// ```
#[must_use]
pub fn scatter_factor(scatter: f64, number: u32, axis: usize) -> f64 {
    if scatter <= 0.0 {
        return 1.0;
    }
    let variance = (scatter * scatter).ln_1p();
    // Halton's sequence (1960) with bases 2 and 3: its first points are always spread evenly, three
    // of them at quarters or thirds. Both axes start with the median, which a single transfer uses.
    // If the value on the first axis is small, that on the second is not.
    let fraction = match axis % 2 {
        0 => radical_inverse(number.wrapping_add(1), 2),
        _ => (0.5 + radical_inverse(number, 3)).rem_euclid(1.0),
    };
    (variance.sqrt() * normal_quantile(fraction) - variance / 2.0).exp()
}

/// Return the digits of a number, mirrored at the point: 1, 2, 3, … in base 2 become 1/2, 1/4, 3/4,
/// …
fn radical_inverse(mut number: u32, base: u32) -> f64 {
    let (mut inverse, mut storage) = (0.0, 1.0);
    while number > 0 {
        storage /= f64::from(base);
        inverse += storage * f64::from(number % base);
        number /= base;
    }
    inverse
}

/// Return the normal quantile; error below 4.5e-4.
///
/// Source: Abramowitz and Stegun, 26.2.23. Range: u above 0 and below 1; values closer than 1e-9 to
/// a bound are moved to that distance.
fn normal_quantile(fraction: f64) -> f64 {
    let tail = fraction.min(1.0 - fraction).max(1e-9);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let size = t - above / below;
    if fraction < 0.5 { -size } else { size }
}
