//! Blocks of files that are distributed over several connections, each with its own slow start.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | n | connections that carry a file | – |
//! | b | bytes of a block, which goes over one of them | bytes |
//! | S | bytes of a file | bytes |
//! | u | connections that get a block of it: min(n, ⌈S/b⌉) | – |
//! | x | rate of all connections after slow start | bytes/s |
//!
//! A file ends when the connection that waits longest has its part: b or the rest of S if S ≤ n b,
//! otherwise S/n. Each of the u connections has the rate x/u. So a file of one block starts with
//! one window, for any number of connections. Connections that stay open get blocks in turn, and
//! each keeps the window that its own bytes have grown.
//!
//! Source: extended block mode (GFD.20) does not define which connection carries which block; the
//! behaviour of the Globus server is read from its log. In the lab (100 Mb/s, 53 ms, 8 files of 80
//! kB), the log shows the total waits in slow start. Files of one stream waited for 2 to 3 round
//! trips, of two streams for 6, of four for 9 to 11. This model gives 3, 6 and 12, because dealing
//! in turn uses every connection immediately.
//!
//! Range: no other flow, no loss. If the windows of all connections together fill the queue of the
//! path, they lose many segments of a burst, which the formula ignores.

use super::SlowStart;

/// Maximum number of individual connections; more connections change nothing in the first round trips.
const MAX_CONNECTIONS: u32 = 1024;
/// Maximum number of files before windows count as fully grown.
const MAX_FILES: u32 = 1024;

/// Distribution of files over the connections of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dealing {
    /// Slow start of one connection.
    pub start: SlowStart,
    /// Connections that carry one file.
    pub connections: u32,
    /// Bytes sent over one connection at a time; 0: each connection carries an equal part of a
    /// file.
    pub block_bytes: f64,
}

impl Dealing {
    /// Return the waiting time of one file of `bytes` on new connections that finally reach `rate`
    /// together.
    ///
    /// ```
    /// use venturi_sim::cost::{Dealing, SlowStart};
    /// let start = SlowStart { initial_window_bytes: 14_600.0, growth: 2.0, rtt_s: 0.1 };
    /// let four = Dealing { start, connections: 4, block_bytes: 262_144.0 };
    /// // One block uses one connection: 60,000 bytes have two pauses, shared by four about one.
    /// ```
    #[must_use]
    pub fn waiting_s(&self, bytes: f64, rate: f64) -> f64 {
        let used = self.used(bytes);
        self.start
            .waiting_s(self.session_bytes(bytes, 0, used), rate / f64::from(used))
    }

    /// Return the waiting time of consecutive files on open connections, given as runs of `(files,
    /// bytes)`; `lanes` sessions take them in turn.
    ///
    /// Range: pauses between files that are shorter than a retransmission timeout. After longer
    /// pauses, Linux restarts slow start (`tcp_slow_start_after_idle`).
    #[must_use]
    pub fn waiting_of_many_s(&self, runs: &[(u64, u64)], lanes: u64, rate: f64) -> f64 {
        let largest = runs.iter().map(|run| run.1).max().unwrap_or(0) as f64;
        let enough = self.session_bytes(largest, 0, self.used(largest));
        let enough = enough.min(rate * self.start.rtt_s);
        let mut windows = vec![self.start.initial_window_bytes; self.connections() as usize];
        let (mut next, mut waiting_s) = (0, 0.0);
        for (bytes, part) in turns(runs, lanes.max(1)).take(MAX_FILES as usize) {
            if windows.iter().all(|window| *window >= enough) {
                break;
            }
            waiting_s += part * self.deal(bytes, rate, &mut windows, &mut next);
        }
        waiting_s
    }

    /// Return the wait of one file with these `windows`, from connection `next`.
    fn deal(&self, bytes: f64, rate: f64, windows: &mut [f64], next: &mut usize) -> f64 {
        let used = self.used(bytes);
        let mut max_s = 0.0;
        for number in 0..used {
            let window = &mut windows[*next];
            *next = (*next + 1) % self.connections() as usize;
            let session_bytes = self.session_bytes(bytes, number, used);
            let (waited_s, grown) =
                self.start
                    .waiting_from(*window, session_bytes, rate / f64::from(used));
            (*window, max_s) = (grown, f64::max(max_s, waited_s));
        }
        max_s
    }

    fn connections(&self) -> u32 {
        self.connections.clamp(1, MAX_CONNECTIONS)
    }

    /// Return the number of connections that carry a block of a file.
    fn used(&self, bytes: f64) -> u32 {
        if self.block_bytes > 0.0 {
            // The cast saturates at the largest u32.
            ((bytes / self.block_bytes).ceil() as u32).clamp(1, self.connections())
        } else {
            self.connections()
        }
    }

    /// Return the bytes of a file on connection `number` of the `used` ones.
    fn session_bytes(&self, bytes: f64, number: u32, used: u32) -> f64 {
        if self.block_bytes > 0.0 && bytes <= self.block_bytes * f64::from(used) {
            (bytes - self.block_bytes * f64::from(number)).min(self.block_bytes)
        } else {
            bytes / f64::from(used)
        }
    }
}

/// Return the largest file of each turn of `lanes` sessions, and the fraction of sessions that are
/// busy in the turn.
fn turns(runs: &[(u64, u64)], lanes: u64) -> impl Iterator<Item = (f64, f64)> {
    let (mut storage, mut taken) = (0, 0);
    std::iter::from_fn(move || {
        let (mut largest, mut left) = (0, lanes);
        while left > 0 {
            let &(files, bytes) = runs.get(storage)?;
            let more = left.min(files - taken);
            (largest, left, taken) = (bytes.max(largest), left - more, taken + more);
            if taken == files {
                (storage, taken) = (storage + 1, 0);
            }
            if storage == runs.len() {
                break;
            }
        }
        (left < lanes).then(|| (largest as f64, (lanes - left) as f64 / lanes as f64))
    })
}
