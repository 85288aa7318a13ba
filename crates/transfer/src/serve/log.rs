//! Transfer log in the format of Globus servers, and JSON events. A separate thread writes, so that no session
//! waits for a disk or a pipe. Lines that it cannot write in time are dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use venturi_gridftp::write_timestamp;

use super::arguments::ServeArgs;
use crate::error::{CopyError, describe};
use crate::{stderr, threads};

/// Maximum number of unwritten lines.
const WAITING: usize = 16_384;
/// Bytes of lines per write.
const BATCH_BYTES: usize = 64 * 1024;

/// Transfer log and event output.
#[derive(Debug)]
pub(crate) struct Log {
    lines: SyncSender<LogLine>,
    transfers: bool,
    events: bool,
    host: String,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum LogLine {
    LoggedTransfer(Vec<u8>),
    Event(String),
}

/// Completed transfer.
#[derive(Debug, Clone)]
pub(crate) struct LoggedTransfer<'s> {
    /// Number of the session.
    pub(crate) session: u64,
    /// Peer of the control connection.
    pub(crate) peer: SocketAddr,
    /// User of the transfer.
    pub(crate) user: &'s [u8],
    /// Command of the transfer.
    pub(crate) command: &'s str,
    /// Path as named by the client, from the root.
    pub(crate) path: &'s [u8],
    /// Moved bytes of the file.
    pub(crate) bytes: u64,
    /// Final reply code.
    pub(crate) code: u16,
    /// Start time.
    pub(crate) start: SystemTime,
    /// Number of data connections.
    pub(crate) streams: usize,
    /// Peers of the data connections.
    pub(crate) peers: &'s [IpAddr],
    /// Bytes of a block.
    pub(crate) block_bytes: u64,
    /// Bytes of the buffer of a data connection; 0 without one.
    pub(crate) buffer_bytes: usize,
}

impl Log {
    /// Open the logs and start the writer thread, which ends when the log is dropped.
    ///
    /// # Errors
    /// A file that cannot be opened, or a thread that cannot start.
    pub(crate) fn open(
        arguments: &ServeArgs,
        host: &str,
    ) -> Result<(Self, JoinHandle<()>), CopyError> {
        let file = arguments
            .transfer_log
            .as_deref()
            .map(Appended::open)
            .transpose()?;
        let (sender, receiver) = sync_channel(WAITING);
        let log = Self {
            lines: sender,
            transfers: file.is_some(),
            events: arguments.json,
            host: host.to_owned(),
            lost: Arc::default(),
        };
        let lost = Arc::clone(&log.lost);
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write(&receiver, file, &lost))
            .map_err(|error| threads::start_error(&error, threads::SERVE_OPTION))?;
        Ok((log, thread))
    }

    /// Write an event, if events are enabled.
    pub(crate) fn event(&self, event: impl FnOnce() -> Value) {
        if self.events {
            self.send(LogLine::Event(event().to_string()));
        }
    }

    /// Log a finished transfer.
    pub(crate) fn transfer(&self, transfer: &LoggedTransfer<'_>) {
        let end = SystemTime::now();
        if self.transfers {
            self.send(LogLine::LoggedTransfer(line(transfer, &self.host, end)));
        }
        self.event(|| event(transfer, end));
    }

    /// Return the number of dropped lines.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn send(&self, line: LogLine) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Log file. After a rotation the file is created again.
#[derive(Debug)]
struct Appended {
    path: PathBuf,
    file: File,
}

impl Appended {
    fn open(path: &Path) -> Result<Self, CopyError> {
        let file = append(path).map_err(|error| CopyError::Location {
            location: path.to_owned(),
            expected: "a writable log file",
            found: describe(&error),
            advice: "choose another with --transfer-log",
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let identity =
            |file_metadata: std::fs::Metadata| (file_metadata.dev(), file_metadata.ino());
        let current = std::fs::metadata(&self.path).map(identity);
        if current.ok() != self.file.metadata().map(identity).ok() {
            // If no new file can be created, the old one stays in use.
            if let Ok(file) = append(&self.path) {
                self.file = file;
            }
        }
        self.file.write_all(lines)
    }
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// Output file, with its name for messages.
struct LogDestination {
    name: String,
    /// True if a write error was reported.
    failing: bool,
}

impl LogDestination {
    fn named(name: String) -> Self {
        Self {
            name,
            failing: false,
        }
    }

    fn record_result(&mut self, written: io::Result<()>) {
        let rejected = written.err();
        if let (Some(error), false) = (&rejected, self.failing) {
            let Self { name, .. } = self;
            let found = describe(error);
            stderr::print(
                "serve",
                format_args!(
                    "{name}: cannot write log lines: {found}. Free some space; until then the server drops lines and counts them (--metrics)"
                ),
            );
        }
        self.failing = rejected.is_some();
    }
}

/// Lines that are written together.
#[derive(Debug, Default)]
struct LineBatch {
    bytes: Vec<u8>,
    lines: u64,
}

impl LineBatch {
    fn add(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.lines += 1;
    }

    /// Write the lines. Lines that fail are counted as dropped, and the first error is reported. A full disk or a
    /// closed pipe does not stop the server.
    fn write(
        &self,
        to: &mut LogDestination,
        lost: &AtomicU64,
        write: impl FnOnce(&[u8]) -> io::Result<()>,
    ) {
        if self.lines == 0 {
            return;
        }
        let written = write(&self.bytes);
        if written.is_err() {
            lost.fetch_add(self.lines, Ordering::Relaxed);
        }
        to.record_result(written);
    }
}

/// Write lines until no sender is left.
fn write(lines: &Receiver<LogLine>, mut file: Option<Appended>, lost: &AtomicU64) {
    let name = |file: &Appended| file.path.display().to_string();
    let mut destinations = [
        LogDestination::named(file.as_ref().map_or_else(String::new, name)),
        LogDestination::named("standard output".into()),
    ];
    while let Ok(first) = lines.recv() {
        let (mut transfers, mut events) = (LineBatch::default(), LineBatch::default());
        let mut next = Some(first);
        while let Some(line) = next {
            match line {
                LogLine::LoggedTransfer(line) => transfers.add(&line),
                LogLine::Event(line) => events.add(format!("{line}\n").as_bytes()),
            }
            let full = transfers.bytes.len().max(events.bytes.len()) >= BATCH_BYTES;
            next = if full { None } else { lines.try_recv().ok() };
        }
        transfers.write(&mut destinations[0], lost, |bytes| {
            file.as_mut().map_or(Ok(()), |file| file.write(bytes))
        });
        events.write(&mut destinations[1], lost, |bytes| {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        });
    }
}

/// Return a line of the transfer log of globus-gridftp-server (`-Z`), with times in UTC.
fn line(transfer: &LoggedTransfer<'_>, host: &str, end: SystemTime) -> Vec<u8> {
    let peers: Vec<String> = transfer.peers.iter().map(IpAddr::to_string).collect();
    let mut line = format!(
        "DATE={} HOST={host} PROG=venturi-serve NL.EVNT=FTP_INFO START={} USER=",
        stamp(end),
        stamp(transfer.start)
    )
    .into_bytes();
    // A path may contain blanks, as in Globus logs; a user name comes from a token and must not look like fields.
    let joined = |byte: &u8| if *byte == b' ' { b'_' } else { printable(byte) };
    line.extend(transfer.user.iter().map(joined));
    line.extend(b" FILE=");
    line.extend(transfer.path.iter().map(printable));
    line.extend(
        format!(
            " BUFFER={} BLOCK={} NBYTES={} VOLUME=/ STREAMS={} STRIPES=1 DEST=[{}] TYPE={} CODE={}\n",
            transfer.buffer_bytes,
            transfer.block_bytes,
            transfer.bytes,
            transfer.streams,
            peers.join(","),
            transfer.command,
            transfer.code,
        )
        .into_bytes(),
    );
    line
}

/// Escape line breaks.
fn printable(byte: &u8) -> u8 {
    if byte.is_ascii_control() { b'?' } else { *byte }
}

fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    format!("{}.{:06}", write_timestamp(seconds), since.subsec_micros())
}

fn event(transfer: &LoggedTransfer<'_>, end: SystemTime) -> Value {
    let unix = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
    };
    let duration = end.duration_since(transfer.start).unwrap_or_default();
    let mut event = json!({
        "event": "transfer",
        "session": transfer.session,
        "peer": transfer.peer.to_string(),
        "user": String::from_utf8_lossy(transfer.user),
        "command": transfer.command,
        "path": String::from_utf8_lossy(transfer.path),
        "bytes": transfer.bytes,
        "code": transfer.code,
        "start_unix_s": unix(transfer.start),
        "end_unix_s": unix(end),
        "duration_s": duration.as_secs_f64(),
        "streams": transfer.streams,
        "block_bytes": transfer.block_bytes,
    });
    if std::str::from_utf8(transfer.path).is_err() {
        let hex: String = transfer
            .path
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        event["path_hex"] = hex.into();
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_has_the_format_of_the_globus_toolkit_and_a_name_cannot_split_it() {
        let start = UNIX_EPOCH + Duration::from_micros(1_481_145_928_292_057);
        let transfer = LoggedTransfer {
            session: 1,
            peer: "192.0.2.1:5".parse().unwrap(),
            user: b"ann CODE=226",
            command: "RETR",
            path: b"/a\nb c",
            bytes: 1_048_576,
            code: 226,
            start,
            streams: 2,
            peers: &["192.0.2.1".parse().unwrap()],
            block_bytes: 262_144,
            buffer_bytes: 87_040,
        };
        let found = line(&transfer, "h.example", start + Duration::from_millis(140));
        assert_eq!(
            String::from_utf8(found).unwrap(),
            "DATE=20161207212528.432057 HOST=h.example PROG=venturi-serve NL.EVNT=FTP_INFO START=20161207212528.292057 \
             USER=ann_CODE=226 FILE=/a?b c BUFFER=87040 BLOCK=262144 NBYTES=1048576 VOLUME=/ STREAMS=2 STRIPES=1 \
             DEST=[192.0.2.1] TYPE=RETR CODE=226\n"
        );
    }
}
