//! Timeouts of active transfers: one queue per timeout, in order of start.

use std::collections::VecDeque;

/// One queue for each timeout, in seconds.
#[derive(Debug, Default)]
pub(super) struct Limits(Vec<(f64, VecDeque<Due>)>);

/// End of the timeout of a transfer, with its slot and its number there.
#[derive(Debug, Clone, Copy)]
struct Due {
    at_s: f64,
    index: u32,
    number: u32,
}

impl Limits {
    /// Return the number of a timeout.
    pub fn number_of(&mut self, timeout_s: f64) -> usize {
        let known = self.0.iter().position(|(limit, _)| *limit == timeout_s);
        known.unwrap_or_else(|| {
            self.0.push((timeout_s, VecDeque::new()));
            self.0.len() - 1
        })
    }

    /// Add a transfer that starts.
    pub fn start_entry(&mut self, limit: usize, now: f64, index: u32, number: u32) {
        let (timeout_s, line) = &mut self.0[limit];
        let at_s = now + *timeout_s;
        line.push_back(Due {
            at_s,
            index,
            number,
        });
    }

    /// Return the next timeout of an active transfer, and its slot.
    pub fn next(&mut self, exists: impl Fn(u32, u32) -> bool) -> Option<(f64, u32)> {
        let first = |(_, line): &mut (f64, VecDeque<Due>)| {
            while let Some(due) = line.front() {
                if exists(due.index, due.number) {
                    return Some((due.at_s, due.index));
                }
                line.pop_front();
            }
            None
        };
        let sooner = |one: (f64, u32), other: (f64, u32)| if other.0 < one.0 { other } else { one };
        self.0.iter_mut().filter_map(first).reduce(sooner)
    }
}
