//! The rate that congestion control allows a connection on a path with random loss.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | MSS | payload of a full segment | bytes |
//! | p | probability that a segment is lost | – |
//! | b | segments an acknowledgement is for | – |
//! | T0 | first retransmission timeout | s |
//! | c, β | constants of CUBIC | segments/s³, – |

use serde::{Deserialize, Serialize};

/// Linux acknowledges what it receives in large pieces, and counts bytes, not acknowledgements: b = 1 fits (measured in the lab).
const B: f64 = 1.0;
/// The shortest timeout of Linux (`TCP_RTO_MIN`).
const SHORTEST_TIMEOUT_S: f64 = 0.2;
/// RFC 9438, section 4.6.
const CUBIC_BETA: f64 = 0.7;
/// RFC 9438, section 5.
const CUBIC_C: f64 = 0.4;
/// RFC 5681, section 3.1: half of what was in flight.
const RENO_BETA: f64 = 0.5;
/// BBR is at its least inflight for 0.2 s in 10 s (draft-ietf-ccwg-bbr, ProbeRTT).
const PROBE_RTT_SHARE: f64 = 0.02;
/// Loss above which BBR gives way: version 1 in effect a fifth, since its gain of 1.25 just makes up for it.
const BBR1_LOSS: f64 = 0.2;

/// How a sender reacts to loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// NewReno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR version 1, as Linux has it.
    Bbr,
}

impl CongestionControl {
    /// The exponent a of its weight n RTT^-a, where nobody has calibrated it.
    #[must_use]
    pub const fn rtt_exponent(self) -> f64 {
        match self {
            Self::Reno => 1.0,
            Self::Cubic => 0.25,
            Self::Bbr => 0.0,
        }
    }

    /// The share of a window that is left after a loss; `None` for BBR, which does not go by single losses.
    #[must_use]
    pub const fn beta(self) -> Option<f64> {
        match self {
            Self::Reno => Some(RENO_BETA),
            Self::Cubic => Some(CUBIC_BETA),
            Self::Bbr => None,
        }
    }

    /// The rate in bytes a second that one connection can have on a path of `link_bytes_per_s`.
    ///
    /// Without loss that of the link (BBR: less what it probes). Loss 1 is an outage: 0.
    #[must_use]
    pub fn rate(self, mss_bytes: f64, rtt_s: f64, loss: f64, link_bytes_per_s: f64) -> f64 {
        let bound = match self {
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
        bound.min(link_bytes_per_s)
    }
}

/// T0 of a steady path: the timeout of RFC 6298 with Linux' least variance.
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
    let share = (3.0 * (3.0 * b * loss / 8.0).sqrt()).min(1.0);
    timeout_s * share * loss * (1.0 + 32.0 * loss * loss)
}

/// What timeouts alone allow: RFC 9438 has no term of its own for them, and they are the same as Reno's.
fn timeouts_rate(mss_bytes: f64, loss: f64, timeout_s: f64) -> f64 {
    mss_bytes / timeouts_s(loss, B, timeout_s)
}

/// CUBIC under random loss, in bytes a second: x = MSS (c (3+β) / (4 (1−β)))^¼ / (RTT^¼ p^¾) = 1.054 MSS / (RTT^¼ p^¾), and never
/// below what Reno has (its Reno-friendly region).
///
/// Source: RFC 9438, section 5, with section 4.3 for the floor. Range: p below about 0.01.
#[must_use]
pub fn cubic_rate(mss_bytes: f64, rtt_s: f64, loss: f64) -> f64 {
    let factor = (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25);
    let cubic = mss_bytes * factor / (rtt_s.powf(0.25) * loss.powf(0.75));
    cubic.max(mathis_rate(mss_bytes, rtt_s, loss, 1.0))
}

/// BBR alone on a path: C (1−p), less what it gives up while it looks for the shortest RTT; nothing beyond its limit of loss.
///
/// Source: draft-ietf-ccwg-bbr; the limit is that of version 1. Range: alone. Its share beside flows that go by loss is not
/// modelled: the published formula (Ware et al., IMC 2019) could not be checked.
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
    link_bytes_per_s * (1.0 - loss) * (1.0 - PROBE_RTT_SHARE)
}
