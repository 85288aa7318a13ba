//! Costs of the first round trips of a connection.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | IW | window at the start | bytes |
//! | g | growth of the window a round trip: 2; 1.5 with delayed acknowledgements that are not counted in bytes | – |
//! | x | rate after slow start | bytes/s |
//! | B | x RTT | bytes |
//! | S | bytes to send | bytes |
//!
//! In round j the sender has a window of IW g^j and sends it in IW g^j / x. It then waits for the
//! rest of the round trip, until the window fills the path. The cost is the sum of these waits. The
//! bytes take S/x in addition.

/// Maximum number of growing rounds: a window of 2^64 bytes is longer than any path.
const MAX_ROUNDS: u32 = 64;

/// Growth of a window in slow start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowStart {
    /// Window at the start in bytes.
    pub initial_window_bytes: f64,
    /// Growth factor per round trip, more than 1.
    pub growth: f64,
    /// Round-trip time.
    pub rtt_s: f64,
}

impl SlowStart {
    /// Return the waiting time of a connection that sends `bytes` and finally reaches `rate`,
    /// summed over rounds.
    ///
    /// Source: Cardwell, Savage, Anderson, INFOCOM 2000, without losses, which end a slow start
    /// early. Range: no other flow, and no loss before the path is full. A later file benefits from
    /// the grown window only if it reuses the connection ([`Dealing`](super::Dealing)).
    ///
    /// ```
    /// use venturi_sim::cost::SlowStart;
    /// let start = SlowStart { initial_window_bytes: 14_600.0, growth: 2.0, rtt_s: 0.1 };
    /// // Three windows (14,600, 29,200 and what is left) leave two pauses.
    /// let waits_s = start.waiting_s(60_000.0, f64::INFINITY);
    /// assert!((waits_s - 0.2).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn waiting_s(&self, bytes: f64, rate: f64) -> f64 {
        self.waiting_from(self.initial_window_bytes, bytes, rate).0
    }

    /// Return the waiting time and the window afterwards.
    pub(super) fn waiting_from(&self, first_window: f64, bytes: f64, rate: f64) -> (f64, f64) {
        let (mut window, mut left, mut waiting_s) = (first_window, bytes, 0.0);
        for _ in 0..MAX_ROUNDS {
            if window >= left || window >= rate * self.rtt_s {
                break;
            }
            waiting_s += self.rtt_s - window / rate;
            left -= window;
            window *= self.growth;
        }
        // Each acknowledged byte adds g − 1 bytes to the window. Linux does not grow a window
        // beyond twice the bytes in flight (`tcp_is_cwnd_limited`), so a last round that does not
        // fill the window limits it to g times that round.
        (waiting_s, window.max(self.growth * left.min(window)))
    }

    /// Return the number of round trips to send `bytes` on a path that never fills: ⌈log_g(1 + S
    /// (g−1)/IW)⌉.
    ///
    /// Source: Cardwell, Savage, Anderson, INFOCOM 2000, eq. 15 (RFC 6928 for IW). The first round
    /// trip carries the request.
    ///
    /// ```
    /// use venturi_sim::cost::SlowStart;
    /// let start = SlowStart { initial_window_bytes: 10.0 * 1460.0, growth: 2.0, rtt_s: 0.1 };
    /// assert_eq!((start.rounds(14_600.0), start.rounds(14_601.0), start.rounds(1e6)), (1.0, 2.0, 7.0));
    /// ```
    #[must_use]
    pub fn rounds(&self, bytes: f64) -> f64 {
        let (mut window, mut sent, mut rounds) = (self.initial_window_bytes, 0.0, 0.0);
        for _ in 0..MAX_ROUNDS {
            if sent >= bytes {
                break;
            }
            sent += window;
            window *= self.growth;
            rounds += 1.0;
        }
        rounds
    }
}
