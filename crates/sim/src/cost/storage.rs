//! Total capacity of storage and servers for each number of users.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | n | users | – |
//! | B | rate for one user, or for many | bytes/s |
//! | q | bytes read between two seeks | bytes |
//! | σ, κ | contention, coherency | – |

use venturi_plan::{Amount, ServiceCost, StorageCost};

use super::{CostError, Direction};

/// Maximum number of users with a separate capacity; the last value holds for more.
pub const MAX_USERS: usize = 1024;

/// Return the rate of a single head that reads for n users: B for one user, q / (q/B + t_seek) for
/// more, because each read of q bytes starts with a seek.
///
/// Source: the arithmetic of a disk arm; measured as linear in n for few users by Lebre et al.,
/// CCGrid 2015. Range: reads longer than q in a fair order. For large n, an elevator shortens
/// seeks.
///
/// ```
/// use venturi_sim::cost::head_rate;
/// assert_eq!(head_rate(1, 200e6, 0.008, 1e6), 200e6);
/// assert!((head_rate(2, 200e6, 0.008, 1e6) / 77e6 - 1.0).abs() < 0.002);
/// ```
#[must_use]
pub fn head_rate(users: usize, rate: f64, seek_s: f64, read_ahead_bytes: f64) -> f64 {
    if users <= 1 {
        rate
    } else {
        read_ahead_bytes / (read_ahead_bytes / rate + seek_s)
    }
}

/// Return the rate of an array or an SSD with n users: Bmax n / (n + n_half).
///
/// Source: saturation with service time and queue depth (the form of Michaelis and Menten). Range:
/// independent requests.
///
/// ```
/// use venturi_sim::cost::array_rate;
/// assert_eq!(array_rate(3, 1e9, 3.0), 0.5e9);
/// ```
#[must_use]
pub fn array_rate(users: usize, most: f64, half_users: f64) -> f64 {
    let users = users as f64;
    most * users / (users + half_users)
}

/// Return the capacity for n users relative to one user: n / (1 + σ (n−1) + κ n (n−1)). For one
/// user it is 1.
///
/// Source: Gunther, the universal scalability law. Range: σ in 0 to 1, κ small; the peak is at √((1−σ)/κ) users.
///
/// ```
/// use venturi_sim::cost::usl_speedup;
/// assert_eq!(usl_speedup(1.0, 0.1, 0.01), 1.0);
/// assert!((usl_speedup(10.0, 0.0, 0.0) - 10.0).abs() < 1e-12);
/// ```
#[must_use]
pub fn usl_speedup(users: f64, contention: f64, coherency: f64) -> f64 {
    users / (1.0 + contention * (users - 1.0) + coherency * users * (users - 1.0))
}

/// Return the total rates of a storage for 1, 2, … users, in bytes a second; a single rate if their
/// number does not matter.
///
/// # Errors
/// If no rate is known, or if more than one model is configured: a single head (`seek_s`), an array
/// (`half_users`), the scalability law (`contention`, `coherency`).
pub fn storage_rates(cost: &StorageCost, direction: Direction) -> Result<Vec<f64>, CostError> {
    let rate = match direction {
        Direction::Read => known(cost.read_bytes_per_s, "read_bytes_per_s of a storage")?,
        Direction::Write => known(cost.write_bytes_per_s, "write_bytes_per_s of a storage")?,
    };
    let scales = cost.contention.is_some() || cost.coherency.is_some();
    match (cost.seek_s, cost.half_users, scales) {
        (None, None, false) => Ok(vec![rate]),
        (Some(seek_s), None, false) => {
            let ahead = known(cost.read_ahead_bytes, "read_ahead_bytes of a storage")?;
            // The rate for more than two users is the same as for two.
            Ok((1..=2)
                .map(|n| head_rate(n, rate, seek_s.get(), ahead))
                .collect())
        }
        (None, Some(half), false) => Ok(each(|n| array_rate(n, rate, half.get()))),
        (None, None, true) => Ok(scaled(rate, cost.contention, cost.coherency)),
        _ => Err(CostError::Models),
    }
}

/// Return the total rates of a server for 1, 2, … sessions, in bytes a second; `None` if sessions
/// do not slow each other down.
///
/// # Errors
/// If they do (`contention`, `coherency`), and the rate of one session is unknown.
pub fn service_rates(cost: &ServiceCost) -> Result<Option<Vec<f64>>, CostError> {
    if cost.contention.is_none() && cost.coherency.is_none() {
        return Ok(None);
    }
    let rate = known(cost.process_bytes_per_s, "process_bytes_per_s of a service")?;
    Ok(Some(scaled(rate, cost.contention, cost.coherency)))
}

fn scaled(rate: f64, contention: Option<Amount>, coherency: Option<Amount>) -> Vec<f64> {
    let (sigma, kappa) = (
        contention.unwrap_or_default().get(),
        coherency.unwrap_or_default().get(),
    );
    each(|n| rate * usl_speedup(n as f64, sigma, kappa))
}

fn each(rate: impl Fn(usize) -> f64) -> Vec<f64> {
    (1..=MAX_USERS).map(rate).collect()
}

fn known(amount: Option<Amount>, what: &'static str) -> Result<f64, CostError> {
    amount.map(Amount::get).ok_or(CostError::Unknown { what })
}
