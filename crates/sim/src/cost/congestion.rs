//! Rate that congestion control allows a connection on a path with random loss.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | MSS | payload of a full segment | bytes |
//! | p | probability that a segment is lost | – |
//! | b | segments per acknowledgement | – |
//! | T0 | first retransmission timeout | s |
//! | c, β | constants of CUBIC | segments/s³, – |

use serde::{Deserialize, Serialize};

/// Linux acknowledges large parts of the received data, and counts bytes, not acknowledgements: b = 1 fits (measured
/// in the lab).
const B: f64 = 1.0;
/// Minimum retransmission timeout of Linux (`TCP_RTO_MIN`).
const SHORTEST_TIMEOUT_S: f64 = 0.2;
/// RFC 9438, section 4.6.
const CUBIC_BETA: f64 = 0.7;
/// RFC 9438, section 5.
const CUBIC_C: f64 = 0.4;
/// RFC 5681, section 3.1: half of the bytes in flight.
const RENO_BETA: f64 = 0.5;
/// Fraction of time that BBR spends in ProbeRTT with minimal data in flight: 0.2 s in 10 s
/// (draft-ietf-ccwg-bbr).
const PROBE_RTT_FRACTION: f64 = 0.02;
/// Loss above which BBR reduces its rate. For version 1 this is in effect a fifth, because its gain
/// of 1.25 just compensates this loss.
const BBR1_LOSS: f64 = 0.2;

/// Reaction of a sender to loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// NewReno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR version 1, as implemented in Linux.
    Bbr,
}

impl CongestionControl {
    /// Return the exponent a of its weight n RTT^-a, without calibration.
    #[must_use]
    pub const fn rtt_exponent(self) -> f64 {
        match self {
            Self::Reno => 1.0,
            Self::Cubic => 0.25,
            Self::Bbr => 0.0,
        }
    }

    /// Return the fraction of a window that remains after a loss; `None` for BBR, which does not
    /// react to single losses.
    #[must_use]
    pub const fn beta(self) -> Option<f64> {
        match self {
            Self::Reno => Some(RENO_BETA),
            Self::Cubic => Some(CUBIC_BETA),
            Self::Bbr => None,
        }
    }

    /// Return the rate of one connection on a path of `link_bytes_per_s`, in bytes a second.
    ///
    /// Without loss, this is the rate of the link (for BBR, minus its probes). A loss of 1 is an
    /// outage: 0.
    #[must_use]
    pub fn rate(self, mss_bytes: f64, rtt_s: f64, loss: f64, link_bytes_per_s: f64) -> f64 {
        let bottleneck = match self {
            Self::Bbr => return bbr_rate(loss, link_bytes_per_s),
            _ if loss <= 0.0 => f64::INFINITY,
            _ if loss >= 1.0 => 0.0,
            Self::Reno => pftk_rate(mss_bytes, rtt_s, loss, B, timeout_s(rtt_s)),
            Self::Cubic => cubic_rate(mss_bytes, rtt_s, loss).min(timeouts_rate(
                mss_bytes,
                loss,
                timeout_s(rtt_s),
            )),
        };
        bottleneck.min(link_bytes_per_s)
    }
}

/// Return T0 of a steady path: the timeout of RFC 6298 with the minimum variance of Linux.
pub(super) fn timeout_s(rtt_s: f64) -> f64 {
    rtt_s + SHORTEST_TIMEOUT_S
}

/// Reno under random loss: x = (MSS/RTT) √(3/(2 b p)), in bytes a second.
///
/// Source: Mathis, Semke, Mahdavi, Ott, CCR 27(3), 1997 (b = 1: 1.22; b = 2: 0.87). Range: p below about 0.01, no timeouts, no other
/// bound.
///
/// ```
/// use venturi_sim::cost::mathis_rate;
/// let rate = mathis_rate(1460.0, 0.1, 1e-4, 1.0);
/// assert!((rate / (1460.0 / 0.1 * 1.2247 * 100.0) - 1.0).abs() < 1e-4);
/// ```
#[must_use]
pub fn mathis_rate(mss_bytes: f64, rtt_s: f64, loss: f64, b: f64) -> f64 {
    mss_bytes / rtt_s * (1.5 / (b * loss)).sqrt()
}

/// Reno with timeouts: x = MSS / (RTT √(2bp/3) + T0 min(1, 3 √(3bp/8)) p (1 + 32 p²)), in bytes a second.
///
/// Source: Padhye, Firoiu, Towsley, Kurose, SIGCOMM 1998, eq. 30. Range: p from 1e-4 to 0.3; without the bound by the window.
#[must_use]
pub fn pftk_rate(mss_bytes: f64, rtt_s: f64, loss: f64, b: f64, timeout_s: f64) -> f64 {
    let recovery_s = rtt_s * (2.0 * b * loss / 3.0).sqrt();
    mss_bytes / (recovery_s + timeouts_s(loss, b, timeout_s))
}

fn timeouts_s(loss: f64, b: f64, timeout_s: f64) -> f64 {
    let fraction = (3.0 * (3.0 * b * loss / 8.0).sqrt()).min(1.0);
    timeout_s * fraction * loss * (1.0 + 32.0 * loss * loss)
}

/// Return the limit by timeouts alone. RFC 9438 has no separate term for timeouts; they are the
/// same as for Reno.
fn timeouts_rate(mss_bytes: f64, loss: f64, timeout_s: f64) -> f64 {
    mss_bytes / timeouts_s(loss, B, timeout_s)
}

/// CUBIC under random loss, in bytes a second: x = MSS (c (3+β) / (4 (1−β)))^¼ / (RTT^¼ p^¾) = 1.054 MSS / (RTT^¼
/// p^¾), and at least the rate of Reno (its Reno-friendly region).
///
/// Source: RFC 9438, section 5, with section 4.3 for the floor. Range: p below about 0.01.
#[must_use]
pub fn cubic_rate(mss_bytes: f64, rtt_s: f64, loss: f64) -> f64 {
    let factor = (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25);
    let cubic = mss_bytes * factor / (rtt_s.powf(0.25) * loss.powf(0.75));
    cubic.max(mathis_rate(mss_bytes, rtt_s, loss, 1.0))
}

/// BBR alone on a path: C (1−p), minus its probes for the minimum RTT; 0 above its loss limit.
///
/// Source: draft-ietf-ccwg-bbr, with the limit of version 1. Range: no other flow. Its share of a
/// link with loss-based flows is not modelled, because the published formula (Ware et al., IMC
/// 2019) could not be checked.
///
/// ```
/// use venturi_sim::cost::bbr_rate;
/// assert_eq!(bbr_rate(0.0, 1e9), 0.98e9);
/// assert_eq!(bbr_rate(0.3, 1e9), 0.0);
/// ```
#[must_use]
pub fn bbr_rate(loss: f64, link_bytes_per_s: f64) -> f64 {
    if loss > BBR1_LOSS {
        return 0.0;
    }
    link_bytes_per_s * (1.0 - loss) * (1.0 - PROBE_RTT_FRACTION)
}
