//! Progress of a connection until random loss first limits it, and its rate until the formula of
//! its congestion control applies.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | d | segments that a connection has to send | – |
//! | p | probability that a segment is lost | – |
//! | β | fraction of the window that remains after a loss | – |
//! | x0 | rate before the first loss | bytes/s |
//!
//! The formulas of congestion control under loss describe a connection that has lost many segments.
//! Before its first loss, a connection is limited only by slow start, its windows and the path, and
//! a short transfer may end without a loss. Each loss then reduces the window to the fraction β,
//! until the mean rate of the formula is reached.

use super::phase::TransferLimit;

/// Maximum number of losses before the formula applies, for any initial rate: 0.7^64 is 1e-10.
const MAX_LOSSES: u32 = 64;

/// Rates of one session before the loss formula applies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeforeLoss {
    /// Maximum rate until the first loss, in bytes/s.
    pub cap: f64,
    /// Limit that causes `cap`.
    pub bottleneck: TransferLimit,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Payload of a full segment.
    pub segment_bytes: f64,
    /// Connections of one file; each has its own losses.
    pub connections: f64,
    /// β of its congestion control.
    pub beta: f64,
    /// x0: the part of `cap` that the path allows.
    pub first_rate: f64,
    /// Rate of the loss formula, in bytes/s.
    pub last_rate: f64,
    /// Initial window of all connections of a file together, in bytes.
    pub initial_window_bytes: f64,
    /// Round trip of the path.
    pub rtt_s: f64,
}

impl BeforeLoss {
    /// Return the mean number of these bytes that are sent before the first loss.
    #[must_use]
    pub fn bytes(&self, bytes: f64) -> f64 {
        let all = self.segment_bytes * self.connections;
        (all * segments_after(0, bytes / all, self.loss)).min(bytes)
    }

    /// Return the time for the remaining bytes: after the k-th loss at x0 β^k, finally at the rate
    /// of the formula. At a first loss within slow start, the window is at most as large as the
    /// bytes sent so far.
    ///
    /// Source: the multiplicative decrease of RFC 5681, section 3.1, and RFC 9438, section 4.6.
    /// Range: windows so large that they grow little from one loss to the next. For smaller windows
    /// the formula applies, as the minimum.
    #[must_use]
    pub fn later_s(&self, bytes: f64) -> f64 {
        let all = self.segment_bytes * self.connections;
        let early = self.bytes(bytes);
        let grown = (self.initial_window_bytes + early) / self.rtt_s;
        let (mut left, mut rate, mut later_s) = (bytes - early, self.first_rate.min(grown), 0.0);
        for losses in 1..=MAX_LOSSES {
            rate *= self.beta;
            if rate <= self.last_rate || left <= 0.0 {
                break;
            }
            let sent = (all * segments_after(losses, bytes / all, self.loss)).min(left);
            later_s += sent / rate;
            left -= sent;
        }
        if left > 0.0 {
            later_s + left / self.last_rate
        } else {
            later_s
        }
    }
}

/// Return the mean number of segments that a connection sends after this number of losses and
/// before the next: P(N > losses) / p, where N of its d segments are lost.
///
/// Before the first loss this is (1 − (1−p)^d) / p. Source: Cardwell, Savage, Anderson, INFOCOM
/// 2000, `E[d_ss]` = (1 − (1−p)^d)(1−p)/p + 1. Their value is larger by (1−p)^d, because it counts
/// a lost segment even if no segment is lost. N is assumed to be Poisson with the same probability
/// of no loss. Range: independent losses of segments; p below 0.1 for losses after the first.
///
/// ```
/// use venturi_sim::cost::segments_after;
/// assert_eq!((segments_after(0, 50.0, 0.0), segments_after(0, 50.0, 1.0)), (50.0, 1.0));
/// // One in 10,000: of 6,906 segments (10 MB) nearly 5,000 are sent before the first is lost.
/// assert!((segments_after(0, 6906.0, 1e-4) - 4987.4).abs() < 0.1);
/// ```
#[must_use]
pub fn segments_after(losses: u32, segments: f64, loss: f64) -> f64 {
    if loss <= 0.0 {
        return if losses == 0 { segments } else { 0.0 };
    }
    // ln(1 − 1) is −∞, and −∞ · 0 would be NaN.
    let none_lost = if loss < 1.0 {
        segments * (-loss).ln_1p()
    } else {
        f64::NEG_INFINITY
    };
    let mut term = none_lost.exp();
    // 1 − e^λ without cancellation near 0.
    let mut more = -none_lost.exp_m1();
    for number in 1..=losses {
        // If the exponential underflows, that number of losses is certain.
        term = if term > 0.0 {
            term * -none_lost / f64::from(number)
        } else {
            0.0
        };
        more -= term;
    }
    (more.max(0.0) / loss).min(segments)
}
