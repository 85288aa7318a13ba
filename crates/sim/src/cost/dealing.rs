//! Blocks of files that are dealt to several connections, each of which begins slowly by itself.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | n | connections that carry a file | – |
//! | b | bytes of a block, which goes over one of them | bytes |
//! | S | bytes of a file | bytes |
//! | u | connections that get a block of it: min(n, ⌈S/b⌉) | – |
//! | x | rate of all when their starts are over | bytes/s |
//!
//! A file ends when the connection that waits longest has its share of it: b or what is left of S where S ≤ n b, else S/n; each of u has the rate
//! x/u. So a file of one block begins with one window, however many connections there are. Connections that stay are dealt to in turn, and
//! each keeps the window that its own bytes have made.
//!
//! Source: extended block mode (GFD.20) leaves open which connection has which block, and what the Globus server takes is read from its log. In
//! the lab (100 Mb/s, 53 ms, 8 files of 80 kB) files of one stream waited in their slow starts for 2 to 3 round trips in all, of two for 6, of four
//! for 9 to 11, by the log of the server; here 3, 6, 12, as dealing in turn uses every connection at once.
//!
//! Range: no other flow, no loss. Windows of all that together fill the path's queue lose much of a burst, which is not in it.

use super::SlowStart;

/// Connections that are told apart; what more there are changes nothing in the first round trips.
const MOST_CONNECTIONS: u32 = 1024;
/// Files until windows are taken as grown.
const MOST_FILES: u32 = 1024;

/// How files come to the connections of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dealing {
    /// How one connection begins.
    pub start: SlowStart,
    /// Connections that carry one file.
    pub connections: u32,
    /// Bytes that go over one of them at a time; 0: each has the same share of a file.
    pub block_bytes: f64,
}

impl Dealing {
    /// Waiting time of one file of `bytes` on new connections that have `rate` together at last.
    ///
    /// ```
    /// use venturi_sim::cost::{Dealing, SlowStart};
    /// let start = SlowStart { initial_window_bytes: 14_600.0, growth: 2.0, rtt_s: 0.1 };
    /// let four = Dealing { start, connections: 4, block_bytes: 262_144.0 };
    /// // One block goes over one connection: 60,000 bytes leave two pauses, where four that share it would have one and a bit.
    /// assert!((four.waiting_s(60_000.0, f64::INFINITY) - 0.2).abs() < 1e-12);
    /// ```
    #[must_use]
    pub fn waiting_s(&self, bytes: f64, rate: f64) -> f64 {
        let used = self.used(bytes);
        self.start
            .waiting_s(self.share(bytes, 0, used), rate / f64::from(used))
    }

    /// Waiting time of files one after the other on connections that stay, of runs of `(files, bytes)`; `lanes` sessions take them in turn.
    ///
    /// Range: pauses between files that are shorter than a retransmission timeout; after longer ones Linux begins anew
    /// (`tcp_slow_start_after_idle`).
    #[must_use]
    pub fn waiting_of_many_s(&self, runs: &[(u64, u64)], lanes: u64, rate: f64) -> f64 {
        let largest = runs.iter().map(|run| run.1).max().unwrap_or(0) as f64;
        let enough = self.share(largest, 0, self.used(largest));
        let enough = enough.min(rate * self.start.rtt_s);
        let mut windows = vec![self.start.initial_window_bytes; self.connections() as usize];
        let (mut next, mut waiting_s) = (0, 0.0);
        for (bytes, part) in turns(runs, lanes.max(1)).take(MOST_FILES as usize) {
            if windows.iter().all(|window| *window >= enough) {
                break;
            }
            waiting_s += part * self.deal(bytes, rate, &mut windows, &mut next);
        }
        waiting_s
    }

    /// What one file waits that comes to `windows` from the `next` on.
    fn deal(&self, bytes: f64, rate: f64, windows: &mut [f64], next: &mut usize) -> f64 {
        let used = self.used(bytes);
        let mut longest_s = 0.0;
        for number in 0..used {
            let window = &mut windows[*next];
            *next = (*next + 1) % self.connections() as usize;
            let share = self.share(bytes, number, used);
            let (waited_s, grown) = self
                .start
                .waiting_from(*window, share, rate / f64::from(used));
            (*window, longest_s) = (grown, f64::max(longest_s, waited_s));
        }
        longest_s
    }

    fn connections(&self) -> u32 {
        self.connections.clamp(1, MOST_CONNECTIONS)
    }

    /// Connections that get a block of a file.
    fn used(&self, bytes: f64) -> u32 {
        if self.block_bytes > 0.0 {
            // A number beyond u32 becomes the largest one.
            ((bytes / self.block_bytes).ceil() as u32).clamp(1, self.connections())
        } else {
            self.connections()
        }
    }

    /// Bytes of a file that go over the connection of this number among those `used`.
    fn share(&self, bytes: f64, number: u32, used: u32) -> f64 {
        if self.block_bytes > 0.0 && bytes <= self.block_bytes * f64::from(used) {
            (bytes - self.block_bytes * f64::from(number)).min(self.block_bytes)
        } else {
            bytes / f64::from(used)
        }
    }
}

/// The largest file of each turn of `lanes` sessions, and how much of the sessions is busy with the turn.
fn turns(runs: &[(u64, u64)], lanes: u64) -> impl Iterator<Item = (f64, f64)> {
    let (mut place, mut taken) = (0, 0);
    std::iter::from_fn(move || {
        let (mut largest, mut left) = (0, lanes);
        while left > 0 {
            let &(files, bytes) = runs.get(place)?;
            let more = left.min(files - taken);
            (largest, left, taken) = (bytes.max(largest), left - more, taken + more);
            if taken == files {
                (place, taken) = (place + 1, 0);
            }
            if place == runs.len() {
                break;
            }
        }
        (left < lanes).then(|| (largest as f64, (lanes - left) as f64 / lanes as f64))
    })
}
