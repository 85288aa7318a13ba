//! What happened, for people and programs: a line a transfer as servers of the Globus toolkit write it, and events in JSON. A thread of
//! its own writes, so that no session waits for a disk or a pipe; what it cannot take in time, or write, is lost, and counted.

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

use super::arguments::Arguments;
use crate::error::{Error, said};
use crate::{talk, threads};

/// Lines that wait to be written.
const WAITING: usize = 16_384;
/// Bytes of lines that are written at a time.
const BATCH_BYTES: usize = 64 * 1024;

/// Where lines go to.
#[derive(Debug)]
pub(crate) struct Log {
    lines: SyncSender<Line>,
    transfers: bool,
    events: bool,
    host: String,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Line {
    Transfer(Vec<u8>),
    Event(String),
}

/// A transfer that is over.
#[derive(Debug, Clone)]
pub(crate) struct Transfer<'s> {
    /// Number of the session.
    pub(crate) session: u64,
    /// Who is at the control connection.
    pub(crate) peer: SocketAddr,
    /// Who asked for it.
    pub(crate) user: &'s [u8],
    /// The command.
    pub(crate) command: &'s str,
    /// As the client named it, from the root on.
    pub(crate) path: &'s [u8],
    /// Of the file, that moved.
    pub(crate) bytes: u64,
    /// What the client was told.
    pub(crate) code: u16,
    /// When it began.
    pub(crate) start: SystemTime,
    /// Data connections.
    pub(crate) streams: usize,
    /// Who was at the other end of them.
    pub(crate) peers: &'s [IpAddr],
    /// Of a block.
    pub(crate) block_bytes: u64,
    /// Of the buffer of a data connection; 0 where there was none.
    pub(crate) buffer_bytes: usize,
}

impl Log {
    /// Opens what is to be written, and starts the thread that writes. It ends when the log is dropped.
    ///
    /// # Errors
    /// If a file cannot be opened, or a thread not be started.
    pub(crate) fn open(arguments: &Arguments, host: &str) -> Result<(Self, JoinHandle<()>), Error> {
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
            .map_err(|error| threads::refusal(&error, threads::OF_SERVE))?;
        Ok((log, thread))
    }

    /// Tells an event, if anybody wants to know.
    pub(crate) fn event(&self, event: impl FnOnce() -> Value) {
        if self.events {
            self.send(Line::Event(event().to_string()));
        }
    }

    /// Tells a transfer that is over.
    pub(crate) fn transfer(&self, transfer: &Transfer<'_>) {
        let end = SystemTime::now();
        if self.transfers {
            self.send(Line::Transfer(line(transfer, &self.host, end)));
        }
        self.event(|| event(transfer, end));
    }

    /// Lines that nobody took in time, and those that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn send(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A file for lines. Where it is moved away, as programs that keep logs short do, another is begun.
#[derive(Debug)]
struct Appended {
    path: PathBuf,
    file: File,
}

impl Appended {
    fn open(path: &Path) -> Result<Self, Error> {
        let file = append(path).map_err(|error| Error::Place {
            place: path.to_owned(),
            expected: "a log that can be written to",
            found: said(&error),
            advice: "name another with --transfer-log",
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let identity = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
        let there = std::fs::metadata(&self.path).map(identity);
        if there.ok() != self.file.metadata().map(identity).ok() {
            // Where none can be begun, the lines go where those before are.
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

/// Where lines are written, for people.
struct Place {
    name: String,
    /// It was told that it takes none.
    refuses: bool,
}

impl Place {
    fn named(name: String) -> Self {
        Self {
            name,
            refuses: false,
        }
    }

    fn told(&mut self, written: io::Result<()>) {
        let refused = written.err();
        if let (Some(error), false) = (&refused, self.refuses) {
            let Self { name, .. } = self;
            let found = said(error);
            talk::say(
                "serve",
                format_args!(
                    "{name}: expected that lines can be written there, found {found}; make room: until then they are lost, and counted (--metrics)"
                ),
            );
        }
        self.refuses = refused.is_some();
    }
}

/// Lines that are written together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
}

impl Batch {
    fn add(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.lines += 1;
    }

    /// Those that could not be written count as lost, and the first are told of. A full disk or a closed pipe ends no server.
    fn write(&self, to: &mut Place, lost: &AtomicU64, write: impl FnOnce(&[u8]) -> io::Result<()>) {
        if self.lines == 0 {
            return;
        }
        let written = write(&self.bytes);
        if written.is_err() {
            lost.fetch_add(self.lines, Ordering::Relaxed);
        }
        to.told(written);
    }
}

/// Writes lines until there are no more senders.
fn write(lines: &Receiver<Line>, mut file: Option<Appended>, lost: &AtomicU64) {
    let name = |file: &Appended| file.path.display().to_string();
    let mut places = [
        Place::named(file.as_ref().map_or_else(String::new, name)),
        Place::named("standard output".into()),
    ];
    while let Ok(first) = lines.recv() {
        let (mut transfers, mut events) = (Batch::default(), Batch::default());
        let mut next = Some(first);
        while let Some(line) = next {
            match line {
                Line::Transfer(line) => transfers.add(&line),
                Line::Event(line) => events.add(format!("{line}\n").as_bytes()),
            }
            let full = transfers.bytes.len().max(events.bytes.len()) >= BATCH_BYTES;
            next = if full { None } else { lines.try_recv().ok() };
        }
        transfers.write(&mut places[0], lost, |bytes| {
            file.as_mut().map_or(Ok(()), |file| file.write(bytes))
        });
        events.write(&mut places[1], lost, |bytes| {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        });
    }
}

/// A line of the transfer log of globus-gridftp-server (`-Z`), with times in UTC.
fn line(transfer: &Transfer<'_>, host: &str, end: SystemTime) -> Vec<u8> {
    let peers: Vec<String> = transfer.peers.iter().map(IpAddr::to_string).collect();
    let mut line = format!(
        "DATE={} HOST={host} PROG=venturi-serve NL.EVNT=FTP_INFO START={} USER=",
        stamp(end),
        stamp(transfer.start)
    )
    .into_bytes();
    // A path may have blanks, as in logs of the toolkit; whose name it is, a token says, and it must not be taken for fields.
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

/// What cannot be another line.
fn printable(byte: &u8) -> u8 {
    if byte.is_ascii_control() { b'?' } else { *byte }
}

fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
    format!("{}.{:06}", write_timestamp(seconds), since.subsec_micros())
}

fn event(transfer: &Transfer<'_>, end: SystemTime) -> Value {
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
    fn a_line_is_of_the_form_of_the_globus_toolkit_and_a_name_cannot_make_two_of_it() {
        let start = UNIX_EPOCH + Duration::from_micros(1_481_145_928_292_057);
        let transfer = Transfer {
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
