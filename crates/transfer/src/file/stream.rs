//! Transfers at the same time, timed together, for `venturi measure`: from a server, a file or memory to a server, a file or nothing.
//!
//! Sessions are opened, and sources and destinations are checked, before the clock starts. Each transfer has a thread. A second thread
//! reads a source that is written to a server: it hands over blocks through a bounded channel.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use venturi_plan::FileContent;

use super::arguments::StreamArgs;
use super::content::{BLOCK_BYTES, NewContent, NewFile};
use super::error::{ErrorKind, FileError};
use super::location::{FileLocation, Protocol};
use super::server::RemoteKind;
use super::servers::FileServers;
use super::{FAILED, Rejected, line};
use crate::net::rate_limit;
use crate::stop::CancelToken;

/// Maximum number of transfers.
const MAX_TRANSFERS: usize = 128;
/// Maximum bytes of standard input.
const MAX_INPUT_BYTES: u64 = 1 << 20;
/// Blocks between the two threads of a transfer.
const BLOCKS: usize = 8;
/// Bytes of memory that are sent repeatedly: not compressible within the window of usual methods.
const MEMORY_BYTES: usize = 1 << 20;

/// A transfer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    /// None: from memory.
    #[serde(default)]
    from: Option<String>,
    /// None: the bytes are counted only.
    #[serde(default)]
    to: Option<String>,
    size_bytes: u64,
}

/// Result of all transfers.
#[derive(Debug, Serialize)]
struct StreamResult {
    bytes: u64,
    /// From the start of all transfers to the end of the last one.
    duration_s: f64,
}

/// First error of a source.
type SourceError = Arc<Mutex<Option<FileError>>>;

/// Execute the transfers of standard input.
pub(super) fn execute(arguments: &StreamArgs, timeout: Duration) -> ExitCode {
    if let Some(bytes_per_s) = arguments.max_rate {
        rate_limit::set(bytes_per_s, &CancelToken::default());
    }
    let result =
        parse(&mut io::stdin().lock()).and_then(|transfers| transfer_all(transfers, timeout));
    let (text, code) = match &result {
        Ok(result) => (line(result), ExitCode::SUCCESS),
        Err(error) => (line(&Rejected { error }), FAILED.into()),
    };
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => code,
        Err(error) => {
            crate::stderr::print("file", format!("cannot write to standard output: {error}"));
            FAILED.into()
        }
    }
}

/// Parse one transfer per line.
fn parse(input: &mut dyn BufRead) -> Result<Vec<Transfer>, FileError> {
    let invalid = |found: String| {
        let message = format!(
            "stream: expected 1 to {MAX_TRANSFERS} lines such as {{\"from\": URL, \"size_bytes\": 1000}}, found {found};\
             see docs/reference/file.md"
        );
        FileError::new(ErrorKind::Invalid, message)
    };
    let mut text = String::new();
    input
        .take(MAX_INPUT_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| invalid(error.to_string()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let transfers: Vec<Transfer> = lines
        .map(|line| serde_json::from_str(line).map_err(|error| invalid(error.to_string())))
        .collect::<Result<_, _>>()?;
    match transfers.len() {
        1..=MAX_TRANSFERS => Ok(transfers),
        count => Err(invalid(format!("{count} lines"))),
    }
}

/// Execute concurrent transfers. Return the error of the first failed transfer.
fn transfer_all(transfers: Vec<Transfer>, timeout: Duration) -> Result<StreamResult, FileError> {
    let bytes = transfers.iter().map(|transfer| transfer.size_bytes).sum();
    let shared = Arc::new(Shared {
        start: Barrier::new(transfers.len()),
        not_ready: Mutex::new(false),
    });
    let threads: Vec<_> = transfers
        .into_iter()
        .map(|transfer| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.execute(&transfer, timeout))
        })
        .collect();
    let ends: Vec<_> = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .collect();
    // A transfer that was stopped by another failure has no error itself.
    let mut times = Vec::new();
    for end in ends {
        times.extend(end?);
    }
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    let duration = start
        .zip(end)
        .map_or(Duration::ZERO, |(start, end)| end - start);
    Ok(StreamResult {
        bytes,
        duration_s: duration.as_secs_f64(),
    })
}

/// State of all transfers.
struct Shared {
    start: Barrier,
    /// True if a transfer cannot start.
    not_ready: Mutex<bool>,
}

impl Shared {
    /// Execute a transfer together with the others. Return its start and end, or none if another one cannot start.
    fn execute(
        &self,
        transfer: &Transfer,
        timeout: Duration,
    ) -> Result<Option<(Instant, Instant)>, FileError> {
        let ready = FileServers::new(timeout)
            .and_then(|servers| Ready::prepare(servers, transfer, timeout));
        if ready.is_err() {
            *self
                .not_ready
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = true;
        }
        self.start.wait();
        let stopped = *self
            .not_ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let ready = ready?;
        if stopped {
            ready.undo();
            return Ok(None);
        }
        let start = Instant::now();
        ready.transfer()?;
        Ok(Some((start, Instant::now())))
    }
}

/// A transfer whose sessions are open.
struct Ready {
    servers: FileServers,
    size_bytes: u64,
    kind: Kind,
}

enum Kind {
    /// From a server to nothing.
    Read(FileLocation),
    /// From a server to a new file of this host.
    Download(FileLocation, PathBuf, File),
    /// From memory or a source to a server.
    Upload(FileLocation, NewContent, SourceError),
}

impl Ready {
    fn prepare(
        mut servers: FileServers,
        transfer: &Transfer,
        timeout: Duration,
    ) -> Result<Self, FileError> {
        let from = transfer
            .from
            .as_deref()
            .map(FileLocation::parse)
            .transpose()?;
        let to = transfer
            .to
            .as_deref()
            .map(FileLocation::parse)
            .transpose()?;
        let kind = match (from, to) {
            (Some(from), Some(to)) if is_local(&to) && !is_local(&from) => {
                servers.check_source(&from, transfer.size_bytes)?;
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(&to.url.path));
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                let file = file.map_err(|error| {
                    FileError::system("cannot create the file", &error).at(&to, "write")
                })?;
                Kind::Download(from, path, file)
            }
            (Some(from), None) => {
                servers.check_source(&from, transfer.size_bytes)?;
                Kind::Read(from)
            }
            (from, Some(to)) if !is_local(&to) => {
                servers
                    .check_destination(&to)
                    .map_err(|error| error.at(&to, "create the file"))?;
                let error = SourceError::default();
                let content = match from {
                    Some(from) => source_content(from, transfer.size_bytes, timeout, &error)?,
                    None => {
                        let _ = Memory::new();
                        NewContent::Reader(Arc::new(|| Box::new(Memory::new())))
                    }
                };
                Kind::Upload(to, content, error)
            }
            _ => {
                return Err(FileError::new(
                    ErrorKind::Invalid,
                    "stream: expected a server as source or destination, found none; use `venturi copy` for local files",
                ));
            }
        };
        Ok(Self {
            servers,
            size_bytes: transfer.size_bytes,
            kind,
        })
    }

    /// Remove the empty destination of a transfer that does not start.
    fn undo(self) {
        if let Kind::Download(_, path, _) = self.kind {
            let _ = std::fs::remove_file(path);
        }
    }

    fn transfer(mut self) -> Result<(), FileError> {
        match self.kind {
            Kind::Read(from) => self
                .servers
                .receive(&from, self.size_bytes, &mut |_| Ok(()))
                .map_err(|error| error.at(&from, "read the file")),
            Kind::Download(from, path, mut file) => {
                let received = self
                    .servers
                    .receive(&from, self.size_bytes, &mut |bytes| file.write_all(bytes))
                    .map_err(|error| error.at(&from, "copy the file"));
                let synced = received.and_then(|()| {
                    let failed = |error| FileError::system("cannot write the file", &error);
                    file.sync_all()
                        .map_err(|error| failed(error).at(path.display(), "write"))
                });
                if synced.is_err() {
                    let _ = std::fs::remove_file(&path);
                }
                synced
            }
            Kind::Upload(to, content, source_error) => {
                let file = NewFile {
                    size_bytes: self.size_bytes,
                    content,
                };
                let written = self.servers.write_checked(&to, &file);
                let failure = source_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                match (written, failure) {
                    (Ok(_), None) => Ok(()),
                    (Err(error), None) => Err(error.at(&to, "create the file")),
                    (written, Some(failure)) => Err(match written {
                        // The rest of the file is zeros.
                        Ok(_) => self.servers.remove_part(&to, failure),
                        Err(_) => failure,
                    }),
                }
            }
        }
    }
}

impl FileServers {
    /// Check that a source is a file of this size.
    fn check_source(&mut self, from: &FileLocation, size_bytes: u64) -> Result<(), FileError> {
        let found = self
            .server(from)
            .and_then(|server| server.stat(from))
            .map_err(|error| error.at(from, "read the metadata"))?;
        if found.kind == RemoteKind::File && found.size_bytes.is_none_or(|size| size == size_bytes)
        {
            return Ok(());
        }
        let found = match found.size_bytes {
            Some(size) => format!("{size} bytes"),
            None => "no file".into(),
        };
        let message = format!("expected a file of {size_bytes} bytes, found {found}; use its size");
        Err(FileError::new(ErrorKind::Invalid, message).at(from, "read the file"))
    }

    /// Read a file, and check its size.
    fn receive(
        &mut self,
        from: &FileLocation,
        size_bytes: u64,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), FileError> {
        let (mut received, mut written) = (0, Ok(()));
        self.server(from)?.read(from, &mut |bytes| {
            received += bytes.len() as u64;
            if written.is_ok() {
                written = sink(bytes);
            }
            rate_limit::wait_after(bytes.len() as u64);
        })?;
        written.map_err(|error| FileError::system("cannot write the bytes", &error))?;
        if received != size_bytes {
            let message =
                format!("expected {size_bytes} bytes, found {received}; the file has changed");
            return Err(FileError::new(ErrorKind::Other, message));
        }
        Ok(())
    }
}

/// Return the content of a source, which a thread reads with its own session.
fn source_content(
    from: FileLocation,
    size_bytes: u64,
    timeout: Duration,
    error: &SourceError,
) -> Result<NewContent, FileError> {
    let (opened, result) = channel();
    let (requests, waiting) = channel::<SyncSender<Vec<u8>>>();
    let error = Arc::clone(error);
    // It ends with the process, even if it waits for a server.
    thread::spawn(move || {
        let servers = FileServers::new(timeout).and_then(|mut servers| {
            servers.check_source(&from, size_bytes)?;
            Ok(servers)
        });
        match servers {
            Ok(servers) => {
                let _ = opened.send(Ok(()));
                read_source(servers, &from, size_bytes, &waiting, &error);
            }
            Err(failure) => {
                let _ = opened.send(Err(failure));
            }
        }
    });
    result.recv().expect("the thread sends a result")?;
    Ok(NewContent::Reader(Arc::new(move || {
        Box::new(SourceReader::open(&requests))
    })))
}

/// Read the source from its start for each request.
fn read_source(
    mut servers: FileServers,
    from: &FileLocation,
    size_bytes: u64,
    waiting: &Receiver<SyncSender<Vec<u8>>>,
    error: &SourceError,
) {
    for blocks in waiting {
        let mut has_reader = true;
        let read = servers.receive(from, size_bytes, &mut |bytes| {
            // The writer drops the channel after an error, and its message is reported.
            has_reader = has_reader && blocks.send(bytes.to_vec()).is_ok();
            Ok(())
        });
        if let Err(failure) = read {
            let mut first = error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(failure.at(from, "read the file"));
        }
    }
}

/// Bytes of a source from its start.
struct SourceReader {
    blocks: Receiver<Vec<u8>>,
    block: Vec<u8>,
    position: usize,
}

impl SourceReader {
    fn open(requests: &Sender<SyncSender<Vec<u8>>>) -> Self {
        let (sender, blocks) = sync_channel(BLOCKS);
        // Without its thread, the reader is at its end: the error of the source is known.
        let _ = requests.send(sender);
        Self {
            blocks,
            block: Vec::new(),
            position: 0,
        }
    }
}

impl Read for SourceReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.position == self.block.len() {
            match self.blocks.recv() {
                Ok(block) => (self.block, self.position) = (block, 0),
                Err(_) => return Ok(0),
            }
        }
        let count = into.len().min(self.block.len() - self.position);
        into[..count].copy_from_slice(&self.block[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}

/// Endless bytes of memory, generated before the clock starts.
struct Memory {
    bytes: &'static [u8],
    position: usize,
}

impl Memory {
    fn new() -> Self {
        static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| {
            let mut bytes = vec![0; MEMORY_BYTES];
            FileContent::new(0, 0).fill(&mut bytes);
            bytes
        });
        Self { bytes, position: 0 }
    }
}

impl Read for Memory {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into
            .len()
            .min(MEMORY_BYTES - self.position)
            .min(BLOCK_BYTES);
        into[..count].copy_from_slice(&self.bytes[self.position..self.position + count]);
        self.position = (self.position + count) % MEMORY_BYTES;
        rate_limit::wait_after(count as u64);
        Ok(count)
    }
}

fn is_local(at: &FileLocation) -> bool {
    at.protocol == Protocol::Local
}
