//! What may be in flight, and the rate that this allows.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | W | window of one connection | bytes |
//! | n | connections that carry one file | – |
//! | RTT | round-trip time | s |

/// Half of a buffer is window: Linux counts the kernel's own overhead of a segment into buffers, and reckons with as much of it as of
/// data (`tcp_adv_win_scale` = 1, the default; since Linux 6.6 measured, and near to it for full segments).
const WINDOW_SHARE: f64 = 0.5;

/// The window that buffers of so many bytes give: W = ½ min(send buffer, receive buffer).
///
/// Range: Linux. A program that sets its buffers is told twice what it asked for: what it asked for is then the window.
///
/// ```
/// use venturi_sim::cost::window_of_buffers;
/// assert_eq!(window_of_buffers(4_194_304.0, 33_554_432.0), 2_097_152.0);
/// ```
#[must_use]
pub fn window_of_buffers(send_bytes: f64, receive_bytes: f64) -> f64 {
    WINDOW_SHARE * send_bytes.min(receive_bytes)
}

/// The rate that windows allow, n W / RTT, in bytes a second; no bound where there is no distance.
///
/// Source: RFC 7323, section 1.1. Range: any; without a queue on the path, for a queue adds to the RTT.
///
/// ```
/// use venturi_sim::cost::window_rate;
/// assert_eq!(window_rate(64_000.0, 4.0, 0.1), 2_560_000.0);
/// assert_eq!(window_rate(64_000.0, 1.0, 0.0), f64::INFINITY);
/// ```
#[must_use]
pub fn window_rate(window_bytes: f64, connections: f64, rtt_s: f64) -> f64 {
    if rtt_s > 0.0 {
        connections * window_bytes / rtt_s
    } else {
        f64::INFINITY
    }
}

/// The weight of a flow where it shares a link: n RTT^-a.
///
/// a = 1 for Reno (Mathis et al. 1997), about ¼ for CUBIC (by its law of loss), 0 or less for BBR; to be calibrated.
///
/// ```
/// use venturi_sim::cost::sharing_weight;
/// assert_eq!(sharing_weight(4.0, 0.01, 1.0) / sharing_weight(1.0, 0.02, 1.0), 8.0);
/// ```
#[must_use]
pub fn sharing_weight(connections: f64, rtt_s: f64, exponent: f64) -> f64 {
    connections * rtt_s.max(SHORTEST_RTT_S).powf(-exponent)
}

/// Two processes of one machine are some 20 µs apart: a weight is finite where a path is said to have no length at all.
pub const SHORTEST_RTT_S: f64 = 20e-6;
