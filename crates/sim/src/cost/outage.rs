//! When TCP goes on after an outage, and when it gives up.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | T0 | first retransmission timeout: RTT + 0.2 | s |
//!
//! What is lost in an outage is sent again after T0, and each time after twice as long, 120 s at most (RFC 6298, section 5). A path that is
//! whole again is only found out by the next of these: an outage costs up to twice its length.

use super::congestion::timeout_s;

/// The longest timeout of Linux (`TCP_RTO_MAX`).
const LONGEST_TIMEOUT_S: f64 = 120.0;
/// Timeouts of a connection until it is given up (`tcp_retries2` = 15, and the last is waited for).
const TIMEOUTS: u32 = 16;
/// The time that these take with the least timeout, before which Linux gives no connection up.
const LEAST_TRYING_S: f64 = 924.6;
/// Seconds between the first packets of a connection that nobody answers: four times one (`tcp_syn_linear_timeouts`), then six times twice as
/// long as before (`tcp_syn_retries`); after the last one it is given up.
const CONNECTING_S: [f64; 11] = [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Time from the beginning of an outage of `outage_s` until a connection that was sending sends again; `None` if it has been given up by then.
///
/// Source: RFC 6298, sections 2.4 and 5.5, with the constants of Linux. Range: the sender has something unacknowledged as the outage begins.
///
/// ```
/// use venturi_sim::cost::resumes_after_s;
/// // Sent again 0.2, 0.6, 1.4 and 3.0 s after a path of no length broke.
/// assert_eq!(resumes_after_s(1.0, 0.0).map(|s| (s * 10.0).round()), Some(14.0));
/// assert_eq!(resumes_after_s(1000.0, 0.0), None);
/// ```
#[must_use]
pub fn resumes_after_s(outage_s: f64, rtt_s: f64) -> Option<f64> {
    let first_s = timeout_s(rtt_s);
    let timeouts = (0..TIMEOUTS - 1)
        .map(|number| (first_s * 2.0_f64.powf(number.into())).min(LONGEST_TIMEOUT_S));
    next_after(outage_s, timeouts)
}

/// Time from the beginning of an outage until a connection that was sending is given up.
#[must_use]
pub fn gives_up_after_s(rtt_s: f64) -> f64 {
    let first_s = timeout_s(rtt_s);
    let all =
        (0..TIMEOUTS).map(|number| (first_s * 2.0_f64.powf(number.into())).min(LONGEST_TIMEOUT_S));
    all.sum::<f64>().max(LEAST_TRYING_S)
}

/// Time from the first packet of a connection, sent `outage_s` before the path is whole, until one is sent that gets through; `None` if it has
/// been given up by then, which is after 131 s.
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

/// Time until a connection that nobody answers is given up.
#[must_use]
pub fn stops_connecting_after_s() -> f64 {
    CONNECTING_S.iter().sum()
}

/// The first sum of the first few that is not before `least`.
fn next_after(least: f64, steps: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sums = steps.scan(0.0, |sum, step| {
        *sum += step;
        Some(*sum)
    });
    sums.find(|sum| *sum >= least)
}
