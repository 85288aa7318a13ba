//! The last events of a driver, to diagnose a stall.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Maximum stored events: two round trips of a deep pipeline.
const MAX_EVENTS: usize = 300;
/// Maximum characters of an event.
const MAX_CHARACTERS: usize = 300;

#[derive(Default)]
pub struct Trace {
    events: VecDeque<(Duration, String)>,
    forgotten: usize,
}

impl Trace {
    pub fn note(&mut self, now: Duration, event: &str) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
            self.forgotten += 1;
        }
        let short = event.chars().take(MAX_CHARACTERS).collect();
        self.events.push_back((now, short));
    }

    /// Records each line of the control connection as an event.
    pub fn note_lines(&mut self, now: Duration, mark: &str, bytes: &[u8]) {
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            self.note(now, &format!("{mark} {}", text.trim_end()));
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} events before", self.forgotten)?;
        self.events
            .iter()
            .try_for_each(|(now, event)| writeln!(f, "{:10.6} {event}", now.as_secs_f64()))
    }
}
