//! When transfers are overdue that have not ended: a line for each limit of time, in which they stand as they began.

use std::collections::VecDeque;

/// A line for each limit, in seconds.
#[derive(Debug, Default)]
pub(super) struct Limits(Vec<(f64, VecDeque<Due>)>);

/// When a transfer is overdue, and who it is: its place, and its number there.
#[derive(Debug, Clone, Copy)]
struct Due {
    at_s: f64,
    place: u32,
    number: u32,
}

impl Limits {
    /// The number of a limit.
    pub fn number_of(&mut self, timeout_s: f64) -> usize {
        let known = self.0.iter().position(|(limit, _)| *limit == timeout_s);
        known.unwrap_or_else(|| {
            self.0.push((timeout_s, VecDeque::new()));
            self.0.len() - 1
        })
    }

    /// A transfer begins.
    pub fn begin(&mut self, limit: usize, now: f64, place: u32, number: u32) {
        let (timeout_s, line) = &mut self.0[limit];
        let at_s = now + *timeout_s;
        line.push_back(Due {
            at_s,
            place,
            number,
        });
    }

    /// When the next one is overdue of those that are still there, and its place.
    pub fn next(&mut self, is_there: impl Fn(u32, u32) -> bool) -> Option<(f64, u32)> {
        let first = |(_, line): &mut (f64, VecDeque<Due>)| {
            while let Some(due) = line.front() {
                if is_there(due.place, due.number) {
                    return Some((due.at_s, due.place));
                }
                line.pop_front();
            }
            None
        };
        let sooner = |one: (f64, u32), other: (f64, u32)| if other.0 < one.0 { other } else { one };
        self.0.iter_mut().filter_map(first).reduce(sooner)
    }
}
