//! What the first round trips of a connection cost.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | IW | window at the start | bytes |
//! | g | growth of the window a round trip: 2; 1.5 with delayed acknowledgements that are not counted in bytes | – |
//! | x | rate when the start is over | bytes/s |
//! | B | x RTT | bytes |
//! | S | bytes to send | bytes |
//!
//! In round j the sender has a window of IW g^j, sends it in IW g^j / x, and waits for the rest of the round trip until that fills the
//! path. What it waits in all is the cost: the bytes themselves take S/x besides.

/// A window that grows so often is longer than any path: 2^64 bytes.
const MOST_ROUNDS: u32 = 64;

/// How a window grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowStart {
    /// Window at the start in bytes.
    pub initial_window_bytes: f64,
    /// Growth a round trip, more than 1.
    pub growth: f64,
    /// Round-trip time.
    pub rtt_s: f64,
}

impl SlowStart {
    /// Waiting time of a connection that sends `bytes` at last at `rate`, round by round.
    ///
    /// Source: Cardwell, Savage, Anderson, INFOCOM 2000, without losses, which end a slow start early. Range: no other flow, no loss
    /// before the path is full; the window keeps what it has grown to only if the connection is used again ([`Dealing`](super::Dealing)).
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

    /// The waiting time, and the window afterwards.
    pub(super) fn waiting_from(&self, first_window: f64, bytes: f64, rate: f64) -> (f64, f64) {
        let (mut window, mut left, mut waiting_s) = (first_window, bytes, 0.0);
        for _ in 0..MOST_ROUNDS {
            if window >= left || window >= rate * self.rtt_s {
                break;
            }
            waiting_s += self.rtt_s - window / rate;
            left -= window;
            window *= self.growth;
        }
        // Each acknowledged byte makes room for g − 1 more, but Linux lets no window grow beyond twice what has been in flight of it
        // (`tcp_is_cwnd_limited`): of a last round that does not fill the window, beyond g times that.
        (waiting_s, window.max(self.growth * left.min(window)))
    }

    /// Round trips until `bytes` have been sent on a path that nothing fills: ⌈log_g(1 + S (g−1)/IW)⌉.
    ///
    /// Source: Cardwell, Savage, Anderson, INFOCOM 2000, eq. 15 (RFC 6928 for IW). The first of them is the request's own.
    ///
    /// ```
    /// use venturi_sim::cost::SlowStart;
    /// let start = SlowStart { initial_window_bytes: 10.0 * 1460.0, growth: 2.0, rtt_s: 0.1 };
    /// assert_eq!((start.rounds(14_600.0), start.rounds(14_601.0), start.rounds(1e6)), (1.0, 2.0, 7.0));
    /// ```
    #[must_use]
    pub fn rounds(&self, bytes: f64) -> f64 {
        let (mut window, mut sent, mut rounds) = (self.initial_window_bytes, 0.0, 0.0);
        for _ in 0..MOST_ROUNDS {
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
