//! How far a connection comes before random loss first holds it back, and how fast it is until the law of its congestion control holds.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | d | segments that a connection has to send | – |
//! | p | probability that a segment is lost | – |
//! | β | share of the window that a loss leaves | – |
//! | x0 | rate before the first loss | bytes/s |
//!
//! The laws of congestion control under loss tell of a connection that has lost many segments. Until the first one it is only in its
//! slow start, or as fast as its windows and the path let it: a short transfer may end before it meets a loss at all. Each loss then leaves β of
//! the window, until that is what the law says in the mean.

use super::phase::Bound;

/// Losses after which the law holds, whatever the rate was: 0.7^64 is 1e-10.
const MOST_LOSSES: u32 = 64;

/// What holds before the law of loss does, of one session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeforeLoss {
    /// The fastest that it is until the first loss.
    pub cap: f64,
    /// What bounds it.
    pub bound: Bound,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Payload of a full segment.
    pub segment_bytes: f64,
    /// Connections that carry one file; each has losses of its own.
    pub connections: f64,
    /// β of its congestion control.
    pub beta: f64,
    /// x0: what of `cap` the path lets it have.
    pub first_rate: f64,
    /// What the law says.
    pub last_rate: f64,
    /// Window of all connections of a file as they begin, in bytes.
    pub initial_window_bytes: f64,
    /// Round trip of the path.
    pub rtt_s: f64,
}

impl BeforeLoss {
    /// Of so many bytes those that have been sent when the first loss happens, in the mean.
    #[must_use]
    pub fn bytes(&self, bytes: f64) -> f64 {
        let all = self.segment_bytes * self.connections;
        (all * segments_after(0, bytes / all, self.loss)).min(bytes)
    }

    /// Time for the others of so many bytes: after the k-th loss at x0 β^k, in the end at the rate of the law. A first loss within slow start
    /// finds a window that is as large as what has been sent by then, at most.
    ///
    /// Source: the multiplicative decrease of RFC 5681, section 3.1, and RFC 9438, section 4.6. Range: windows so large that they grow little
    /// from one loss to the next (there the law holds, which is the least).
    #[must_use]
    pub fn later_s(&self, bytes: f64) -> f64 {
        let all = self.segment_bytes * self.connections;
        let early = self.bytes(bytes);
        let grown = (self.initial_window_bytes + early) / self.rtt_s;
        let (mut left, mut rate, mut later_s) = (bytes - early, self.first_rate.min(grown), 0.0);
        for losses in 1..=MOST_LOSSES {
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

/// Segments that a connection sends after so many losses and before the next, in the mean: P(N > losses) / p, where N of its d segments are
/// lost.
///
/// Before the first loss this is (1 − (1−p)^d) / p. Source: Cardwell, Savage, Anderson, INFOCOM 2000, E[d_ss] = (1 − (1−p)^d)(1−p)/p + 1;
/// theirs is (1−p)^d more, for it counts a lost segment where none is lost, too. N is taken as of Poisson's distribution with the same
/// chance of no loss. Range: each segment is lost by itself; p below 0.1 for losses after the first.
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
    // ln(1 − 1) is −∞, and of that −∞ · 0 no number.
    let none_lost = if loss < 1.0 {
        segments * (-loss).ln_1p()
    } else {
        f64::NEG_INFINITY
    };
    let mut term = none_lost.exp();
    // 1 − e^λ without what is lost where it is near 0.
    let mut more = -none_lost.exp_m1();
    for number in 1..=losses {
        // Where the exponential is nothing any more, so many losses are certain.
        term = if term > 0.0 {
            term * -none_lost / f64::from(number)
        } else {
            0.0
        };
        more -= term;
    }
    (more.max(0.0) / loss).min(segments)
}
