//! Queue of records for the controller, and the thread that writes them.
//!
//! The event loop never waits for the controller while it measures. Records are queued in memory,
//! so a slow reader extends the queue and not the trial.

use std::io::{ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Maximum of queued bytes for a slow controller: about 50 000 transfers. Above it, the agent must
/// wait, because a lost trial record would be a lost trial.
pub(crate) const QUEUE_BYTES: usize = 64 << 20;

/// Above this limit, samples and progress are dropped, so that the remaining capacity belongs to trials.
pub(crate) const YIELDING_BYTES: usize = QUEUE_BYTES / 2;

/// Sender of records; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    queue: Arc<Queue>,
}

/// Owns the writing thread.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// Bytes that the thread has taken and not yet written.
    in_flight: usize,
    /// No more records follow.
    closed: bool,
    /// The reader has closed the pipe.
    broken: bool,
}

impl Writer {
    /// Start the thread that writes to `sink`; it calls `on_broken` once if the reader has closed
    /// the pipe.
    pub(crate) fn start(
        sink: impl Write + Send + 'static,
        on_broken: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let theirs = Arc::clone(&queue);
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || write_all(&theirs, sink, &on_broken))?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Return a sender of records.
    pub(crate) fn sender(&self) -> Sender {
        Sender {
            queue: Arc::clone(&self.queue),
        }
    }

    /// Write the queued records, for at most `limit`. Returns whether all were written.
    pub(crate) fn finish(mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.queue.lock();
        state.closed = true;
        self.queue.changed.notify_all();
        while !state.broken && (state.in_flight > 0 || !state.lines.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false; // the thread may block in a write forever; the process exits without it
            }
            state = self
                .queue
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let complete = !state.broken;
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        complete
    }
}

impl Sender {
    /// Sends a record that must not be lost; waits only if the queue is full.
    pub(crate) fn send(&self, record: &impl Serialize) {
        let line = line_of(record);
        let mut state = self.queue.lock();
        while !state.broken && state.queued_bytes() >= QUEUE_BYTES {
            state = self
                .queue
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.push(&line);
        drop(state);
        self.queue.changed.notify_all();
    }

    /// Sends a small record without waiting, even if the queue is full, for a loop that must never
    /// block.
    pub(crate) fn push(&self, record: &impl Serialize) {
        let line = line_of(record);
        self.queue.lock().push(&line);
        self.queue.changed.notify_all();
    }

    /// Sends a record of low priority. Returns whether it was queued.
    pub(crate) fn offer(&self, record: &impl Serialize) -> bool {
        let line = line_of(record);
        let mut state = self.queue.lock();
        if state.queued_bytes() >= YIELDING_BYTES {
            return false;
        }
        state.push(&line);
        drop(state);
        self.queue.changed.notify_all();
        true
    }
}

impl Queue {
    /// Locks the state. A panic of another thread leaves it consistent, because every change is one
    /// assignment or one append.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the bytes of queued records and of the record being written.
    fn queued_bytes(&self) -> usize {
        self.lines.len() + self.in_flight
    }

    fn push(&mut self, line: &[u8]) {
        if !self.broken {
            self.lines.extend_from_slice(line);
        }
    }
}

fn line_of(record: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(record)
        .expect("records contain only texts, numbers and maps with text keys");
    line.push(b'\n');
    line
}

fn write_all(queue: &Queue, mut sink: impl Write, on_broken: &impl Fn()) {
    loop {
        let batch = {
            let mut state = queue.lock();
            while state.lines.is_empty() && !state.closed {
                state = queue
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state.in_flight = state.lines.len();
            std::mem::take(&mut state.lines)
        };
        if batch.is_empty() {
            return;
        }
        let written = write_patiently(&mut sink, &batch);
        let mut state = queue.lock();
        state.in_flight = 0;
        if written.is_err() {
            state.broken = true;
            state.lines = Vec::new();
        }
        drop(state);
        queue.changed.notify_all();
        if written.is_err() {
            on_broken();
            return;
        }
    }
}

/// `write_all` that also works with a non-blocking descriptor: a terminal or an `ssh` can make it non-blocking.
fn write_patiently(sink: &mut impl Write, mut bytes: &[u8]) -> std::io::Result<()> {
    const PAUSE: Duration = Duration::from_millis(1);
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn records_are_written_completely_and_in_order() {
        let (mut reader, pipe) = std::io::pipe().expect("a pipe");
        let writer = Writer::start(pipe, || {}).expect("a thread");
        let sender = writer.sender();
        for number in 0..1000 {
            sender.send(&number);
        }
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        assert!(writer.finish(Duration::from_secs(10)));
        let text = reading.join().expect("no panic").expect("readable");
        assert!(
            text.lines()
                .map(|line| line.parse::<i32>().expect("a number"))
                .eq(0..1000)
        );
    }

    #[test]
    fn a_controller_that_does_not_read_loses_samples_without_blocking_the_sender() {
        let (_reader, pipe) = std::io::pipe().expect("a pipe");
        let writer = Writer::start(pipe, || {}).expect("a thread");
        let sender = writer.sender();
        let megabyte = "x".repeat(1 << 20);
        let mut taken = 0;
        while sender.offer(&megabyte) {
            taken += 1;
            assert!(
                taken <= 1 + YIELDING_BYTES / megabyte.len(),
                "the bound holds"
            );
        }
        sender.send(&"the queue accepts a trial record");
        assert!(
            !writer.finish(Duration::from_millis(1)),
            "nobody has read it"
        );
    }

    #[test]
    fn a_disconnected_controller_is_detected() {
        let (reader, pipe) = std::io::pipe().expect("a pipe");
        let noticed = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&noticed);
        let writer =
            Writer::start(pipe, move || theirs.store(true, Ordering::SeqCst)).expect("a thread");
        drop(reader);
        writer.sender().send(&1);
        assert!(!writer.finish(Duration::from_secs(10)));
        // `finish` detected the broken pipe under the lock and has joined the thread, so the call
        // has ended.
        assert!(noticed.load(Ordering::SeqCst));
    }
}
