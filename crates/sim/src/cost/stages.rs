//! Rate of a chain of stages (read, send, write; checksums and ciphers on a core).

/// Return the rate of stages that alternate on blocks of b bytes, with an additional time t per
/// block: 1/x = t/b + Σ 1/x_i.
///
/// Source: the sum of times. Range: one thread, one block; a block of the whole file is store and forward.
///
/// ```
/// use venturi_sim::cost::alternating_rate;
/// assert_eq!(alternating_rate(&[100e6, 100e6], 1e6, 0.0), 50e6);
/// assert_eq!(alternating_rate(&[100e6, 100e6], 1e6, 0.02), 25e6);
/// ```
#[must_use]
pub fn alternating_rate(stages: &[f64], block_bytes: f64, block_s: f64) -> f64 {
    let byte_s: f64 = stages.iter().map(|rate| rate.recip()).sum();
    (byte_s + block_s / block_bytes).recip()
}

/// Return the rate of work with this CPU time per byte, on this number of threads: checksums, ciphers, copies.
///
/// Range: threads that each have a core.
///
/// ```
/// use venturi_sim::cost::core_rate;
/// assert_eq!(core_rate(4.0, 0.5, 2.0), 16.0);
/// ```
#[must_use]
pub fn core_rate(threads: f64, byte_core_s: f64, core_speed: f64) -> f64 {
    if byte_core_s > 0.0 {
        threads * core_speed / byte_core_s
    } else {
        f64::INFINITY
    }
}
