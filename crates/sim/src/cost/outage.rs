//! Retransmission of TCP after an outage, and its timeout.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | T0 | first retransmission timeout: RTT + 0.2 | s |
//!
//! A segment that is lost in an outage is sent again after T0, then after twice the previous wait
//! each time, at most 120 s (RFC 6298, section 5). Only the next retransmission detects that a path
//! is up again, so an outage costs up to twice its length.

use super::congestion::timeout_s;

/// Maximum retransmission timeout of Linux (`TCP_RTO_MAX`).
const MAX_TIMEOUT_S: f64 = 120.0;
/// Number of timeouts until a connection is aborted (`tcp_retries2` = 15, plus the wait of the last
/// one).
const TIMEOUTS: u32 = 16;
/// Duration of these timeouts from the minimum timeout; Linux aborts no connection before.
const MIN_RETRY_S: f64 = 924.6;
/// Seconds between the first packets of a connection without a response: four waits of 1 s
/// (`tcp_syn_linear_timeouts`), then six waits of twice the previous one (`tcp_syn_retries`). After
/// the last wait the connection is aborted.
const CONNECTING_S: [f64; 11] = [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Return the time from the start of an outage of `outage_s` until a sending connection sends
/// again; `None` if it was aborted before.
///
/// Source: RFC 6298, sections 2.4 and 5.5, with the constants of Linux. Range: the sender has
/// unacknowledged data when the outage starts.
///
/// ```
/// use venturi_sim::cost::resumes_after_s;
/// // Retransmissions 0.2, 0.6, 1.4 and 3.0 s after a path of delay 0 broke.
/// ```
#[must_use]
pub fn resumes_after_s(outage_s: f64, rtt_s: f64) -> Option<f64> {
    let first_s = timeout_s(rtt_s);
    let timeouts =
        (0..TIMEOUTS - 1).map(|number| (first_s * 2.0_f64.powf(number.into())).min(MAX_TIMEOUT_S));
    next_after(outage_s, timeouts)
}

/// Return the time from the start of an outage until a sending connection is aborted.
#[must_use]
pub fn stall_timeout_s(rtt_s: f64) -> f64 {
    let first_s = timeout_s(rtt_s);
    let all =
        (0..TIMEOUTS).map(|number| (first_s * 2.0_f64.powf(number.into())).min(MAX_TIMEOUT_S));
    all.sum::<f64>().max(MIN_RETRY_S)
}

/// Return the time from the first packet of a connection, sent `outage_s` before the path is up,
/// until a packet gets through; `None` if the connection was aborted before, which happens after
/// 131 s.
///
/// Source: Linux 6.5 and later, `ip-sysctl` (`tcp_syn_retries`, `tcp_syn_linear_timeouts`).
///
/// ```
/// use venturi_sim::cost::connects_after_s;
/// assert_eq!([4.5, 12.0, 68.0].map(connects_after_s), [Some(5.0), Some(19.0), None]);
/// ```
#[must_use]
pub fn connects_after_s(outage_s: f64) -> Option<f64> {
    let [before @ .., _] = CONNECTING_S;
    next_after(outage_s, before.into_iter())
}

/// Return the time until a connection without a response is aborted.
#[must_use]
pub fn stops_connecting_after_s() -> f64 {
    CONNECTING_S.iter().sum()
}

/// Return the first partial sum of `steps` that is at least `least`.
fn next_after(least: f64, steps: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sums = steps.scan(0.0, |sum, step| {
        *sum += step;
        Some(*sum)
    });
    sums.find(|sum| *sum >= least)
}
