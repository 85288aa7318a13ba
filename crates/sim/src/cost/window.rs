//! Windows of connections, and the rates that they allow.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | W | window of one connection | bytes |
//! | n | connections that carry one file | – |
//! | RTT | round-trip time | s |

/// Fraction of a buffer that is window. Linux counts the kernel's overhead of a segment as part of
/// the buffer, and assumes as much overhead as data (`tcp_adv_win_scale` = 1, the default). Since
/// Linux 6.6 the fraction is measured, and near to this for full segments.
const WINDOW_FRACTION: f64 = 0.5;

/// Return the window for these buffer sizes: W = ½ min(send buffer, receive buffer).
///
/// Range: Linux. If a program sets its buffers, Linux allocates twice the requested size, so the
/// window is the requested size.
///
/// ```
/// use venturi_sim::cost::window_of_buffers;
/// assert_eq!(window_of_buffers(4_194_304.0, 33_554_432.0), 2_097_152.0);
/// ```
#[must_use]
pub fn window_of_buffers(send_bytes: f64, receive_bytes: f64) -> f64 {
    WINDOW_FRACTION * send_bytes.min(receive_bytes)
}

/// Return the rate that windows allow, n W / RTT, in bytes a second; infinite if the RTT is 0.
///
/// Source: RFC 7323, section 1.1. Range: any; without a queue on the path, because a queue
/// increases the RTT.
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

/// Return the weight of a flow on a shared link: n RTT^-a.
///
/// a = 1 for Reno (Mathis et al. 1997), about ¼ for CUBIC (from its loss formula), 0 or less for
/// BBR. The value needs calibration.
///
/// ```
/// use venturi_sim::cost::sharing_weight;
/// assert_eq!(sharing_weight(4.0, 0.01, 1.0) / sharing_weight(1.0, 0.02, 1.0), 8.0);
/// ```
#[must_use]
pub fn sharing_weight(connections: f64, rtt_s: f64, exponent: f64) -> f64 {
    connections * rtt_s.max(SHORTEST_RTT_S).powf(-exponent)
}

/// Shortest RTT of a weight, so that the weight stays finite on a path with delay 0. Two processes
/// on one machine are some 20 µs apart.
pub const SHORTEST_RTT_S: f64 = 20e-6;
