//! Requests from standard input: executed by some threads, with results in order.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::arguments::{BatchArgs, FileCommand};
use super::error::{ErrorKind, FileError};
use super::execute::FileResult;
use super::line;
use super::servers::FileServers;

/// Maximum bytes of a request.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Requests per thread that are read before their results are printed.
const READ_AHEAD: u64 = 16;
/// Exit code: standard input or output has failed.
const FAILED: u8 = 1;

/// A request with its position in the input.
type NumberedRequest = (u64, Value, Result<FileCommand, FileError>);
/// A line of the output with the position of its request.
type NumberedLine = (u64, String);

/// Result of a request, with its `id`.
#[derive(Serialize)]
struct ResultLine<'a> {
    id: Value,
    #[serde(flatten)]
    outcome: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Result(&'a FileResult),
    Error { error: &'a FileError },
}

/// Execute requests until the end of standard input.
pub(super) fn execute(arguments: &BatchArgs, timeout: Duration) -> ExitCode {
    let threads = arguments.concurrency;
    let (requests, waiting) = sync_channel::<NumberedRequest>(threads as usize);
    let (results, done) = sync_channel::<NumberedLine>(threads as usize);
    let waiting = Mutex::new(waiting);
    let printed = &Printed::default();
    let ended = std::thread::scope(|scope| {
        for _ in 0..threads {
            let results = results.clone();
            let waiting = &waiting;
            scope.spawn(move || work(waiting, &results, timeout));
        }
        drop(results);
        let printing = scope.spawn(move || {
            let result = print(&done, printed);
            // After an error, the reader must not wait.
            printed.set(u64::MAX);
            result
        });
        let ahead = READ_AHEAD * u64::from(threads);
        let read = read(&mut io::stdin().lock(), &requests, |number| {
            printed.wait(number.saturating_sub(ahead));
        });
        drop(requests);
        let result = printing.join();
        read.and(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => FAILED.into(),
        Err(error) => {
            crate::stderr::print("file", format!("standard input or output: {error}"));
            FAILED.into()
        }
    }
}

/// Number of printed results.
#[derive(Default)]
struct Printed {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Printed {
    fn set(&self, count: u64) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) = count;
        self.changed.notify_all();
    }

    /// Wait until this number of results is printed.
    fn wait(&self, count: u64) {
        let printed = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(printed, |printed| *printed < count);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Execute requests of the queue until its end.
fn work(
    waiting: &Mutex<Receiver<NumberedRequest>>,
    results: &SyncSender<NumberedLine>,
    timeout: Duration,
) {
    let mut servers = FileServers::new(timeout);
    loop {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok((number, id, command)) = next else {
            return;
        };
        let result = match (&mut servers, command) {
            (Ok(servers), Ok(command)) => servers.execute(&command),
            (Err(error), Ok(_)) => Err(error.clone()),
            (_, Err(error)) => Err(error),
        };
        let outcome = match &result {
            Ok(result) => Outcome::Result(result),
            Err(error) => Outcome::Error { error },
        };
        if results
            .send((number, line(&ResultLine { id, outcome })))
            .is_err()
        {
            return;
        }
    }
}

/// Read requests until the end of the input, or of the output. Call `wait` before each.
fn read(
    input: &mut dyn BufRead,
    requests: &SyncSender<NumberedRequest>,
    wait: impl Fn(u64),
) -> io::Result<()> {
    for number in 0.. {
        wait(number);
        let mut line = Vec::new();
        let count = io::Read::take(&mut *input, MAX_LINE_BYTES + 1).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(());
        }
        let too_long = count as u64 > MAX_LINE_BYTES && line.last() != Some(&b'\n');
        if too_long {
            skip_line(input)?;
        }
        let (id, command) = match too_long {
            true => (Value::Null, Err(invalid("at most 1 MiB in a line", "more"))),
            false => parse(&line),
        };
        if requests.send((number, id, command)).is_err() {
            // All threads have ended because the output is closed.
            return Ok(());
        }
    }
    Ok(())
}

/// Skip the rest of a line.
fn skip_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let block = input.fill_buf()?;
        let end = block.iter().position(|byte| *byte == b'\n');
        let (count, done) = match end {
            Some(end) => (end + 1, true),
            None => (block.len(), block.is_empty()),
        };
        input.consume(count);
        if done {
            return Ok(());
        }
    }
}

/// Parse a request. Return its `id`, if it has one.
fn parse(line: &[u8]) -> (Value, Result<FileCommand, FileError>) {
    let mut keys: Map<String, Value> = match serde_json::from_slice(line) {
        Ok(keys) => keys,
        Err(error) => {
            return (
                Value::Null,
                Err(invalid("a JSON object", &error.to_string())),
            );
        }
    };
    let id = keys.remove("id").unwrap_or(Value::Null);
    let command = serde_json::from_value(Value::Object(keys));
    let command = command.map_err(|error| invalid("a request", &error.to_string()));
    (id, command)
}

fn invalid(expected: &str, found: &str) -> FileError {
    let message = format!("batch: expected {expected}, found {found}; see docs/reference/file.md");
    FileError::new(ErrorKind::Invalid, message)
}

/// Print results in the order of their requests.
fn print(done: &Receiver<NumberedLine>, printed: &Printed) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (mut next, mut early) = (0, BTreeMap::new());
    for (number, line) in done {
        early.insert(number, line);
        while let Some(line) = early.remove(&next) {
            writeln!(out, "{line}")?;
            next += 1;
        }
        out.flush()?;
        printed.set(next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_and_an_invalid_one_is_rejected() {
        let (id, command) = parse(
            br#"{"id": [1], "command": "create", "url": "ftp://h/a", "size_bytes": 5, "seed": 2}"#,
        );
        assert_eq!(id, serde_json::json!([1]));
        let Ok(FileCommand::Create(create)) = command else {
            panic!("{command:?}");
        };
        assert_eq!((create.size_bytes, create.seed, create.index), (5, 2, 0));
        for wrong in [
            "",
            "[]",
            "{}",
            r#"{"command": "stat"}"#,
            r#"{"command": "stat", "url": "ftp://h/", "recursive": true}"#,
            r#"{"command": "erase", "url": "ftp://h/"}"#,
            r#"{"command": "checksum", "url": "ftp://h/", "algorithm": "crc32"}"#,
        ] {
            let (_, command) = parse(wrong.as_bytes());
            let error = command.expect_err(wrong);
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
    }

    #[test]
    fn reading_continues_after_an_overlong_line() {
        let mut input =
            io::Cursor::new([vec![b'x'; 1 << 21], b"\n{\"id\": 7}\n".to_vec()].concat());
        let (requests, waiting) = sync_channel(4);
        read(&mut input, &requests, |_| ()).expect("memory");
        drop(requests);
        let found: Vec<_> = waiting.iter().map(|(number, id, _)| (number, id)).collect();
        assert_eq!(found, [(0, Value::Null), (1, serde_json::json!(7))]);
    }
}
