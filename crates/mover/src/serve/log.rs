//! What happened, for people and programs: a line a transfer as servers of the Globus toolkit write it, and events in JSON. A thread of
//! its own writes, so that no session waits for a disk or a pipe; what it cannot take in time is lost, and counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use venturi_gridftp::write_timestamp;

use super::arguments::Arguments;
use crate::error::{Error, said};

/// Lines that wait to be written.
const WAITING: usize = 16_384;

/// Where lines go to.
#[derive(Debug)]
pub(crate) struct Log {
    lines: SyncSender<Line>,
    transfers: bool,
    events: bool,
    host: String,
    lost: AtomicU64,
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
        let file = arguments.transfer_log.as_deref().map(append).transpose()?;
        let (sender, receiver) = sync_channel(WAITING);
        let log = Self {
            lines: sender,
            transfers: file.is_some(),
            events: arguments.json,
            host: host.to_owned(),
            lost: AtomicU64::new(0),
        };
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write(&receiver, file))
            .map_err(|error| Error::System {
                what: "cannot start a thread",
                reason: said(&error),
            })?;
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

    /// Lines that nobody took in time.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn send(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn append(path: &Path) -> Result<File, Error> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map_err(|error| Error::Place {
        place: path.to_owned(),
        expected: "a log that can be written to",
        found: said(&error),
        advice: "name another with --transfer-log",
    })
}

/// Writes lines until there are no more senders. A full disk or a closed pipe ends no server.
fn write(lines: &Receiver<Line>, file: Option<File>) {
    let mut transfers = file.map(BufWriter::new);
    let mut events = BufWriter::new(io::stdout());
    while let Ok(first) = lines.recv() {
        let mut next = Ok(first);
        // All that wait, then what is buffered goes out.
        while let Ok(line) = next {
            let _ = match line {
                Line::Transfer(line) => transfers
                    .as_mut()
                    .map_or(Ok(()), |out| out.write_all(&line)),
                Line::Event(line) => writeln!(events, "{line}"),
            };
            next = lines.try_recv();
        }
        debug_assert!(matches!(
            next,
            Err(TryRecvError::Empty | TryRecvError::Disconnected)
        ));
        let _ = transfers.as_mut().map(Write::flush);
        let _ = events.flush();
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
    line.extend(transfer.user.iter().map(printable));
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
            user: b"anonymous",
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
             USER=anonymous FILE=/a?b c BUFFER=87040 BLOCK=262144 NBYTES=1048576 VOLUME=/ STREAMS=2 STRIPES=1 \
             DEST=[192.0.2.1] TYPE=RETR CODE=226\n"
        );
    }
}
