//! Work that takes another time each time, such as a search for primes, without noise: the numbers of transfers spread evenly over
//! its distribution.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | c | standard deviation over mean | – |
//! | u | where in the distribution: share of draws that are less | – |
//!
//! A logarithm of the factor is normal with σ² = ln(1 + c²) and mean −σ²/2, so that the mean of factors is 1.

/// The factor of draw `number` on one of two independent axes (0 or 1); the first is the median. 1 without scatter.
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
    // Halton's sequence (1960), of bases 2 and 3: any first points of it are spread evenly, three of them at quarters or thirds. Both axes
    // begin with the median, which a single transfer has; and where the first is small the second is not.
    let share = match axis % 2 {
        0 => radical_inverse(number.wrapping_add(1), 2),
        _ => (0.5 + radical_inverse(number, 3)).rem_euclid(1.0),
    };
    (variance.sqrt() * normal_quantile(share) - variance / 2.0).exp()
}

/// The digits of a number, mirrored at the point: 1, 2, 3, … in base 2 become 1/2, 1/4, 3/4, …
fn radical_inverse(mut number: u32, base: u32) -> f64 {
    let (mut inverse, mut place) = (0.0, 1.0);
    while number > 0 {
        place /= f64::from(base);
        inverse += place * f64::from(number % base);
        number /= base;
    }
    inverse
}

/// The normal quantile; error below 4.5e-4.
///
/// Source: Abramowitz and Stegun, 26.2.23. Range: u above 0 and below 1; nearer to an end than 1e-9 counts as that.
fn normal_quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share).max(1e-9);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let size = t - above / below;
    if share < 0.5 { -size } else { size }
}
