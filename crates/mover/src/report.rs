//! What is told while and after: events for programs, sentences and a bar for people.

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
use crate::error::{Failure, said};
use crate::order::{Order, Output, What};
use crate::roots;
use crate::stop::Stop;
use crate::threads;
use crate::totals::Totals;

const TICK_OF_BAR: Duration = Duration::from_millis(200);
const TICK_OF_EVENTS: Duration = Duration::from_secs(1);

/// Tells what happens. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Report {
    output: Output,
    bar: bool,
    begin: Instant,
    out: Mutex<BufWriter<io::Stdout>>,
    stop: Stop,
    /// Why events could not be written.
    unwritten: OnceLock<io::Error>,
    ended: Mutex<bool>,
    wake: Condvar,
}

/// A name in an event: as text, and, where it is not one, its bytes as well.
#[derive(Serialize)]
struct Name<'p> {
    path: Cow<'p, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'p> Name<'p> {
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

/// Has the ticking end when it is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Ticking<'r>(&'r Report);

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.stop_ticking();
    }
}

/// Tells programs that an order was refused, and why: the last event tells what came of it in any case.
pub(crate) fn refused(reason: impl fmt::Display) {
    let mut event = Totals::default().event("end", Duration::ZERO);
    event["outcome"] = "refused".into();
    event["reason"] = reason.to_string().into();
    // Whoever does not read need not be told.
    let _ = writeln!(io::stdout().lock(), "{event}");
}

impl Report {
    /// A report of a copy that ends where its events cannot be written.
    pub(crate) fn new(output: Output, stop: &Stop) -> Self {
        Self {
            output,
            bar: matches!(output, Output::Usual | Output::Verbose) && io::stderr().is_terminal(),
            begin: Instant::now(),
            out: Mutex::new(BufWriter::new(io::stdout())),
            stop: stop.clone(),
            unwritten: OnceLock::new(),
            ended: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Tells what is going to be copied.
    pub(crate) fn start(&self, order: &Order) {
        if self.output != Output::Json {
            return;
        }
        let (sources, destination) = match &order.what {
            What::Places {
                sources,
                destination,
            } => (
                sources.iter().map(roots::shown).collect(),
                roots::shown(destination),
            ),
            What::Names {
                source,
                destination,
                ..
            } => (vec![roots::shown(source)], roots::shown(destination)),
            What::Pairs { list, .. } => (vec![], list.display().to_string()),
        };
        self.event(&json!({"event": "start", "format": "venturi-copy", "version": 1, "sources": sources, "destination": destination}));
    }

    /// Whether single files are told, so that their names are worth putting together.
    pub(crate) fn tells_files(&self) -> bool {
        matches!(self.output, Output::Json | Output::Verbose)
    }

    pub(crate) fn decision(&self, decision: &Decision) {
        let Decision {
            what,
            value,
            reason,
        } = decision;
        match self.output {
            Output::Json => self.event(
                &json!({"event": "decision", "what": what, "value": value, "reason": reason}),
            ),
            Output::Verbose => self.talk(&format!("{what} = {value}: {reason}")),
            _ => {}
        }
    }

    /// Tells what people are to know who have not asked for what was decided.
    pub(crate) fn warning(&self, decision: &Decision) {
        self.decision(decision);
        if matches!(self.output, Output::Usual | Output::Json) {
            self.talk(&decision.reason);
        }
    }

    pub(crate) fn file(&self, path: &Path, bytes: u64, outcome: &str, how: Option<&str>) {
        #[derive(Serialize)]
        struct File<'p> {
            event: &'static str,
            #[serde(flatten)]
            name: Name<'p>,
            bytes: u64,
            outcome: &'p str,
            #[serde(skip_serializing_if = "Option::is_none")]
            how: Option<&'p str>,
        }
        match self.output {
            Output::Json => self.event(&File {
                event: "file",
                name: Name::of(path),
                bytes,
                outcome,
                how,
            }),
            Output::Verbose => self.talk(&format!("{outcome}: {}", path.display())),
            _ => {}
        }
    }

    pub(crate) fn skipped(&self, path: &Path, reason: &str) {
        match self.output {
            Output::Json => {
                let Name { path, path_hex } = Name::of(path);
                self.event(&json!({"event": "skipped", "path": path, "path_hex": path_hex, "reason": reason}));
            }
            Output::Quiet => {}
            _ => self.talk(&format!("left out: {}: {reason}", path.display())),
        }
    }

    /// Tells that a large file goes on.
    pub(crate) fn chunks_kept(&self, copy: &Path, there: u64, chunks: u64) {
        let reason = format!(
            "{}: an earlier copy was stopped after {there} of {chunks} chunks",
            copy.display()
        );
        self.decision(&Decision {
            what: "chunks_kept",
            value: there,
            reason,
        });
    }

    /// Tells that a large file goes on behind what is there.
    pub(crate) fn bytes_kept(&self, copy: &Path, there: u64, size: u64) {
        let reason = format!(
            "{}: {there} of {size} bytes are there from before",
            copy.display()
        );
        self.decision(&Decision {
            what: "bytes_kept",
            value: there,
            reason,
        });
    }

    /// Tells a failure; one that no file can fare better than ends all. That we were stopped is told once, at the end.
    pub(crate) fn failure(&self, failure: &Failure, totals: &Totals, stop: &Stop) {
        // Of several that end all, the first is told.
        if stop.asked() || (failure.ends_all && !stop.give_up()) {
            return;
        }
        totals.count(&totals.failed);
        if self.output == Output::Json {
            let Name { path, path_hex } = Name::of(&failure.path);
            let Failure {
                expected,
                found,
                advice,
                ..
            } = failure;
            self.event(&json!({"event": "error", "path": path, "path_hex": path_hex, "expected": expected, "found": found, "advice": advice}));
        }
        self.talk(&failure.to_string());
    }

    /// Says a line to people.
    pub(crate) fn talk(&self, text: &str) {
        let clear = if self.bar { "\r\x1b[K" } else { "" };
        // Whoever does not listen need not be told.
        let _ = writeln!(io::stderr().lock(), "{clear}venturi copy: {text}");
    }

    /// Tells progress for as long as what it gives is there, on a thread of its own; without one nobody is told.
    pub(crate) fn ticking<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        totals: &'s Totals,
    ) -> Ticking<'s> {
        if self.output != Output::Quiet {
            let _ = threads::start(scope, || self.tick(totals));
        }
        Ticking(self)
    }

    fn tick(&self, totals: &Totals) {
        let tick = match (self.output, self.bar) {
            (Output::Json, _) => TICK_OF_EVENTS,
            (_, true) => TICK_OF_BAR,
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
                let _ = write!(io::stderr().lock(), "\r\x1b[K{}", self.sentence(totals));
            } else {
                self.event(&totals.event("progress", self.begin.elapsed()));
                self.flush();
            }
        }
    }

    fn stop_ticking(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Tells what came of it.
    pub(crate) fn end(&self, totals: &Totals, outcome: &str) {
        if self.output == Output::Json {
            let mut event = totals.event("end", self.begin.elapsed());
            event["outcome"] = outcome.into();
            self.event(&event);
            self.flush();
        } else if self.bar || self.output == Output::Verbose {
            self.talk(&self.sentence(totals));
        }
    }

    /// Whether events are missing that somebody waits for, which is told.
    pub(crate) fn tells_of_missing_events(&self) -> bool {
        let missing = self.unwritten.get().filter(|error| !is_hang_up(error));
        if let Some(error) = missing {
            self.talk(&format!(
                "standard output: expected that events can be written there, found {}; make room or name another place, and run the same command again",
                said(error)
            ));
        }
        missing.is_some()
    }

    pub(crate) fn event(&self, event: &impl Serialize) {
        let mut out = self.out();
        let written = serde_json::to_writer(&mut *out, event)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n"));
        self.heard(written);
    }

    fn flush(&self) {
        let flushed = self.out().flush();
        self.heard(flushed);
    }

    /// Ends the copy if events cannot be written: as a signal does where whoever read them has gone, which is what some do who have seen enough.
    fn heard(&self, result: io::Result<()>) {
        if let Err(error) = result {
            if is_hang_up(&error) {
                self.stop.stop();
            } else {
                self.stop.give_up();
            }
            let _ = self.unwritten.set(error);
        }
    }

    fn out(&self) -> MutexGuard<'_, BufWriter<io::Stdout>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sentence(&self, totals: &Totals) -> String {
        let seconds = self.begin.elapsed().as_secs_f64();
        let files = totals.files.load(Ordering::Relaxed);
        let moved = totals.moved_bytes.load(Ordering::Relaxed);
        #[allow(clippy::cast_precision_loss, reason = "for people")]
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

/// Bytes for people, with three digits.
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
    fn amounts_have_their_unit() {
        let check = |bytes, expected: &str| assert_eq!(amount(bytes), expected);
        check(0.0, "0 B");
        check(999.0, "999 B");
        check(1234.0, "1.2 kB");
        check(999_999.0, "1.0 MB");
        check(2.5e9, "2.5 GB");
        check(1e20, "100000 PB");
    }
}
