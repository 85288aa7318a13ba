//! Output of a copy: JSON events, messages and a progress bar.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::decision::Decision;
use crate::error::{Failure, describe};
use crate::options::{CopyOptions, CopySources, OutputMode};
use crate::roots;
use crate::stop::CancelToken;
use crate::threads;
use crate::totals::CopyTotals;

const BAR_INTERVAL: Duration = Duration::from_millis(200);
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Output of a copy, shared by all workers.
#[derive(Debug)]
pub(crate) struct Report {
    output: OutputMode,
    bar: bool,
    started: Instant,
    out: Mutex<BufWriter<io::Stdout>>,
    stop: CancelToken,
    /// First error of writing events.
    unwritten: OnceLock<io::Error>,
    ended: Mutex<bool>,
    wake: Condvar,
}

/// Path in an event: as text, and also as hexadecimal bytes if it is not valid text.
#[derive(Serialize)]
struct EventPath<'p> {
    path: Cow<'p, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'p> EventPath<'p> {
    fn of(path: &'p Path) -> Self {
        let text = path.to_string_lossy();
        let hex = || {
            path.as_os_str()
                .as_bytes()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        };
        let path_hex = matches!(text, Cow::Owned(_)).then(hex);
        Self {
            path: text,
            path_hex,
        }
    }
}

/// Stops the periodic output when it is dropped, also after a panic.
#[derive(Debug)]
pub(crate) struct Ticking<'r>(&'r Report);

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.stop_ticking();
    }
}

/// Prints the last event of a copy that was rejected, with the reason.
pub(crate) fn print_rejection(reason: impl fmt::Display) {
    let mut event = CopyTotals::default().event("end", Duration::ZERO);
    event["outcome"] = "rejected".into();
    event["reason"] = reason.to_string().into();
    // A closed standard output is no error here.
    let _ = writeln!(io::stdout().lock(), "{event}");
}

impl Report {
    /// Returns the report of a copy that ends if its events cannot be written.
    pub(crate) fn new(output: OutputMode, stop: &CancelToken) -> Self {
        Self {
            output,
            bar: matches!(output, OutputMode::Usual | OutputMode::Verbose)
                && io::stderr().is_terminal(),
            started: Instant::now(),
            out: Mutex::new(BufWriter::new(io::stdout())),
            stop: stop.clone(),
            unwritten: OnceLock::new(),
            ended: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Reports sources and destination.
    pub(crate) fn start(&self, options: &CopyOptions) {
        if self.output != OutputMode::Json {
            return;
        }
        let (sources, destination) = match &options.sources {
            CopySources::Operands {
                sources,
                destination,
            } => (
                sources.iter().map(roots::shown).collect(),
                roots::shown(destination),
            ),
            CopySources::Names {
                source,
                destination,
                ..
            } => (vec![roots::shown(source)], roots::shown(destination)),
            CopySources::Pairs { list, .. } => (vec![], list.display().to_string()),
        };
        self.event(&json!({"event": "start", "format": "venturi-copy", "version": 2, "sources": sources, "destination": destination}));
    }

    /// True if single files are reported, so that their names are needed.
    pub(crate) fn logs_files(&self) -> bool {
        matches!(self.output, OutputMode::Json | OutputMode::Verbose)
    }

    pub(crate) fn decision(&self, decision: &Decision) {
        let Decision {
            setting,
            value,
            reason,
        } = decision;
        match self.output {
            OutputMode::Json => self.event(
                &json!({"event": "decision", "setting": setting, "value": value, "reason": reason}),
            ),
            OutputMode::Verbose => self.print(&format!("{setting} = {value}: {reason}")),
            _ => {}
        }
    }

    /// Reports a decision that all users must know.
    pub(crate) fn warning(&self, decision: &Decision) {
        self.decision(decision);
        if matches!(self.output, OutputMode::Usual | OutputMode::Json) {
            self.print(&decision.reason);
        }
    }

    pub(crate) fn file(&self, path: &Path, bytes: u64, outcome: &str, method: Option<&str>) {
        #[derive(Serialize)]
        struct File<'p> {
            event: &'static str,
            #[serde(flatten)]
            name: EventPath<'p>,
            bytes: u64,
            outcome: &'p str,
            #[serde(skip_serializing_if = "Option::is_none")]
            method: Option<&'p str>,
        }
        match self.output {
            OutputMode::Json => self.event(&File {
                event: "file",
                name: EventPath::of(path),
                bytes,
                outcome,
                method,
            }),
            OutputMode::Verbose => self.print(&format!("{outcome}: {}", path.display())),
            _ => {}
        }
    }

    pub(crate) fn skipped(&self, path: &Path, reason: &str) {
        match self.output {
            OutputMode::Json => {
                let EventPath { path, path_hex } = EventPath::of(path);
                self.event(&json!({"event": "skipped", "path": path, "path_hex": path_hex, "reason": reason}));
            }
            OutputMode::Quiet => {}
            _ => self.print(&format!("skipped: {}: {reason}", path.display())),
        }
    }

    /// Reports the complete chunks of a large file from an earlier copy.
    pub(crate) fn chunks_kept(&self, copy: &Path, complete: u64, chunks: u64) {
        let reason = format!(
            "{}: {complete} of {chunks} chunks complete from an earlier copy",
            copy.display()
        );
        self.decision(&Decision {
            setting: "chunks_kept",
            value: complete,
            reason,
        });
    }

    /// Reports the complete bytes of a large file from an earlier copy.
    pub(crate) fn bytes_kept(&self, copy: &Path, complete: u64, size: u64) {
        let reason = format!(
            "{}: {complete} of {size} bytes complete from an earlier copy",
            copy.display()
        );
        self.decision(&Decision {
            setting: "bytes_kept",
            value: complete,
            reason,
        });
    }

    /// Reports a failure. A failure that would affect all files ends the copy. After an interrupt, failures are not reported.
    pub(crate) fn failure(&self, failure: &Failure, totals: &CopyTotals, stop: &CancelToken) {
        // Only the first of several such failures is reported.
        if stop.is_cancelled() || (failure.ends_all && !stop.abort()) {
            return;
        }
        totals.count(&totals.failed);
        if self.output == OutputMode::Json {
            let EventPath { path, path_hex } = EventPath::of(&failure.path);
            let Failure {
                expected,
                found,
                advice,
                ..
            } = failure;
            self.event(&json!({"event": "error", "path": path, "path_hex": path_hex, "expected": expected, "found": found, "advice": advice}));
        }
        self.print(&failure.to_string());
    }

    /// Prints a message to standard error.
    pub(crate) fn print(&self, text: &str) {
        let clear = if self.bar { "\r\x1b[K" } else { "" };
        // A closed standard error is no error here.
        let _ = writeln!(io::stderr().lock(), "{clear}venturi copy: {text}");
    }

    /// Prints progress on a separate thread until the result is dropped. Without a thread, no
    /// progress is printed.
    pub(crate) fn ticking<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        totals: &'s CopyTotals,
    ) -> Ticking<'s> {
        if self.output != OutputMode::Quiet {
            let _ = threads::start(scope, || self.tick(totals));
        }
        Ticking(self)
    }

    fn tick(&self, totals: &CopyTotals) {
        let tick = match (self.output, self.bar) {
            (OutputMode::Json, _) => EVENT_INTERVAL,
            (_, true) => BAR_INTERVAL,
            _ => return,
        };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let waited = self.wake.wait_timeout_while(ended, tick, |ended| !*ended);
            let result;
            (ended, result) = waited.unwrap_or_else(PoisonError::into_inner);
            if !result.timed_out() {
                return;
            }
            if self.bar {
                let _ = write!(io::stderr().lock(), "\r\x1b[K{}", self.summary(totals));
            } else {
                self.event(&totals.event("progress", self.started.elapsed()));
                self.flush();
            }
        }
    }

    fn stop_ticking(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Reports the end of the copy.
    pub(crate) fn end(&self, totals: &CopyTotals, outcome: &str) {
        if self.output == OutputMode::Json {
            let mut event = totals.event("end", self.started.elapsed());
            event["outcome"] = outcome.into();
            self.event(&event);
            self.flush();
        } else if self.bar || self.output == OutputMode::Verbose {
            self.print(&self.summary(totals));
        }
    }

    /// Reports whether events could not be written although a reader expects them.
    pub(crate) fn reports_missing_events(&self) -> bool {
        let missing = self.unwritten.get().filter(|error| !is_hang_up(error));
        if let Some(error) = missing {
            self.print(&format!(
                "standard output: cannot write events: {}; free some space or redirect to another file, then run the same command again",
                describe(error)
            ));
        }
        missing.is_some()
    }

    pub(crate) fn event(&self, event: &impl Serialize) {
        let mut out = self.out();
        let written = serde_json::to_writer(&mut *out, event)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n"));
        self.check_write(written);
    }

    fn flush(&self) {
        let flushed = self.out().flush();
        self.check_write(flushed);
    }

    /// Ends the copy if events cannot be written. A closed pipe counts as an interrupt, because readers can stop early.
    fn check_write(&self, result: io::Result<()>) {
        if let Err(error) = result {
            if is_hang_up(&error) {
                self.stop.stop();
            } else {
                self.stop.abort();
            }
            let _ = self.unwritten.set(error);
        }
    }

    fn out(&self) -> MutexGuard<'_, BufWriter<io::Stdout>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summary(&self, totals: &CopyTotals) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        let files = totals.files.load(Ordering::Relaxed);
        let moved = totals.moved_bytes.load(Ordering::Relaxed);
        #[allow(clippy::cast_precision_loss, reason = "display only")]
        let moved = moved as f64;
        format!(
            "{files} files, {} moved, {}/s, {seconds:.1} s",
            amount(moved),
            amount(moved / seconds.max(1e-9))
        )
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Formats bytes with three digits.
fn amount(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_a_suitable_unit() {
        let check = |bytes, expected: &str| assert_eq!(amount(bytes), expected);
        check(0.0, "0 B");
        check(999.0, "999 B");
        check(1234.0, "1.2 kB");
        check(999_999.0, "1.0 MB");
        check(2.5e9, "2.5 GB");
        check(1e20, "100000 PB");
    }
}
