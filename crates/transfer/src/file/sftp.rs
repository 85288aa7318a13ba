//! SFTP servers, through the subsystem of `ssh`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::content::{Checksums, NewFile};
use super::error::{ErrorKind, FileError};
use super::location::FileLocation;
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind};
use super::sftp_channel::{Attributes, Packet, SftpChannel, SftpReply};
use crate::checksum::Algorithm;
use crate::net::url::Url;

const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const WRITE: u8 = 6;
const OPENDIR: u8 = 11;
const READDIR: u8 = 12;
const REMOVE: u8 = 13;
const MKDIR: u8 = 14;
const RMDIR: u8 = 15;
const STAT: u8 = 17;

const FOR_READING: u32 = 0x01;
/// Write, create, and fail if the file exists.
const FOR_CREATION: u32 = 0x02 | 0x08 | 0x20;

/// Bytes of a read or write that every server accepts.
const BLOCK_BYTES: u32 = 32 << 10;
/// Requests in flight of one file.
const IN_FLIGHT: usize = 64;
/// Entries of a directory.
const MAX_ENTRIES: usize = 1_000_000;

/// Server with at most one connection.
pub(super) struct SftpFiles {
    server: Url,
    timeout: Duration,
    channel: Option<SftpChannel>,
}

impl SftpFiles {
    /// Return the server of a URL, without a connection.
    ///
    /// # Errors
    /// A password, which `ssh` does not accept without a prompt.
    pub(super) fn new(timeout: Duration, at: &FileLocation) -> Result<Self, FileError> {
        if at.url.password.is_some() {
            return Err(FileError::new(
                ErrorKind::Invalid,
                "expected no password in the URL of SFTP, found one; use a key (`ssh-keygen`, `ssh-copy-id`)",
            ));
        }
        Ok(Self {
            server: at.url.with_path(b"/".to_vec()),
            timeout,
            channel: None,
        })
    }

    /// Return the connection; open it if there is none.
    fn channel(&mut self) -> Result<&mut SftpChannel, FileError> {
        if self.channel.is_none() {
            self.channel = Some(SftpChannel::open(&self.server, self.timeout)?);
        }
        Ok(self.channel.as_mut().expect("it was just opened"))
    }

    /// Use the connection. After an error of the connection, a new one is opened next time.
    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut SftpChannel) -> Result<Result<T, FileError>, FileError>,
    ) -> Result<T, FileError> {
        let result = work(self.channel()?);
        if result.is_err() {
            self.channel = None;
        }
        result?
    }

    fn call(&mut self, packet: Packet) -> Result<SftpReply, FileError> {
        self.with(|channel| channel.call(packet))
    }

    fn open(&mut self, packet: Packet) -> Result<Vec<u8>, FileError> {
        match self.call(packet)? {
            SftpReply::Handle(handle) => Ok(handle),
            _ => Err(unexpected()),
        }
    }

    fn close(&mut self, handle: &[u8]) -> Result<(), FileError> {
        self.call(Packet::new(CLOSE).bytes(handle)).map(drop)
    }

    /// Read an open file.
    fn read_open(&mut self, handle: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        self.with(|channel| {
            let (mut sent, mut offset) = (VecDeque::new(), 0_u64);
            let mut early = BTreeMap::new();
            let mut result = Ok(());
            let (mut is_complete, mut window) = (false, 2);
            loop {
                while !is_complete && sent.len() < window {
                    let packet = Packet::new(READ)
                        .bytes(handle)
                        .long(offset)
                        .number(BLOCK_BYTES);
                    sent.push_back((channel.send(packet)?, offset, BLOCK_BYTES));
                    offset += u64::from(BLOCK_BYTES);
                }
                let Some(&(number, start, length)) = sent.front() else {
                    return Ok(result);
                };
                while !early.contains_key(&number) {
                    let (replied, reply) = channel.receive()?;
                    early.insert(replied, reply);
                }
                sent.pop_front();
                // A small file needs few requests.
                window = IN_FLIGHT.min(2 * window);
                let reply = early.remove(&number).expect("it was just inserted");
                match reply {
                    // Replies after the end only have to arrive.
                    _ if is_complete => {}
                    Ok(SftpReply::Data(bytes)) => {
                        sink(&bytes);
                        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                        if count < length {
                            // A short read: the rest comes next.
                            let (start, length) = (start + u64::from(count), length - count);
                            let packet = Packet::new(READ).bytes(handle).long(start).number(length);
                            sent.push_front((channel.send(packet)?, start, length));
                        }
                    }
                    Ok(SftpReply::End) => is_complete = true,
                    other => {
                        result = other.and(Err(unexpected()));
                        is_complete = true;
                    }
                }
            }
        })
    }

    /// Write an open file.
    fn write_open(
        &mut self,
        handle: &[u8],
        file: &NewFile,
    ) -> Result<Option<Checksums>, FileError> {
        self.with(|channel| {
            let (mut blocks, mut offset, mut in_flight) = (file.blocks(), 0_u64, 0);
            let mut result = Ok(());
            loop {
                while in_flight < IN_FLIGHT
                    && result.is_ok()
                    && let Some(block) = blocks.next(BLOCK_BYTES as usize)
                {
                    channel.send(Packet::new(WRITE).bytes(handle).long(offset).bytes(&block))?;
                    offset += block.len() as u64;
                    in_flight += 1;
                }
                if in_flight == 0 {
                    return Ok(result.map(|()| blocks.checksums()));
                }
                let (_, reply) = channel.receive()?;
                in_flight -= 1;
                result = result.and(reply.map(drop));
            }
        })
    }
}

impl FileServer for SftpFiles {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        let is_kept = self.channel.is_some();
        let packet = || Packet::new(STAT).bytes(path(at));
        let reply = match self.call(packet()) {
            // An idle connection may have been closed.
            Err(error) if is_kept && self.channel.is_none() && error.kind != ErrorKind::Timeout => {
                self.call(packet())?
            }
            reply => reply?,
        };
        match reply {
            SftpReply::Attributes(attributes) => Ok(metadata(&attributes)),
            _ => Err(unexpected()),
        }
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let handle = self.open(Packet::new(OPENDIR).bytes(path(at)))?;
        let mut entries = Vec::new();
        let read = loop {
            match self.call(Packet::new(READDIR).bytes(&handle)) {
                Ok(SftpReply::Names(names)) => {
                    let names = names
                        .into_iter()
                        .filter(|(name, _)| name != b"." && name != b"..");
                    entries.extend(names.map(|(name, attributes)| RemoteEntry {
                        name: String::from_utf8_lossy(&name).into_owned(),
                        metadata: metadata(&attributes),
                    }));
                }
                Ok(SftpReply::End) => break Ok(()),
                Ok(_) => break Err(unexpected()),
                Err(error) => break Err(error),
            }
            if entries.len() > MAX_ENTRIES {
                let message = format!("expected at most {MAX_ENTRIES} entries, found more");
                break Err(FileError::new(ErrorKind::Other, message));
            }
        };
        read.and(self.close(&handle)).map(|()| entries)
    }

    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError> {
        let packet = Packet::new(OPEN)
            .bytes(path(at))
            .number(FOR_CREATION)
            .number(0);
        let handle = self.open(packet)?;
        let written = self.write_open(&handle, file);
        if self.channel.is_none() {
            return written;
        }
        let closed = self.close(&handle);
        written.and_then(|checksums| closed.map(|()| checksums))
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        let packet = Packet::new(OPEN)
            .bytes(path(at))
            .number(FOR_READING)
            .number(0);
        let handle = self.open(packet)?;
        let read = self.read_open(&handle, sink);
        if self.channel.is_none() {
            return read;
        }
        read.and(self.close(&handle))
    }

    fn checksum(
        &mut self,
        _: &FileLocation,
        _: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        Ok(None)
    }

    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.call(Packet::new(REMOVE).bytes(path(at))).map(drop)
    }

    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.call(Packet::new(RMDIR).bytes(path(at))).map(drop)
    }

    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        self.call(Packet::new(MKDIR).bytes(path(at)).number(0))
            .map(|_| true)
    }
}

/// Return the path for the server: `/~/a` is relative to the home directory, as for curl.
fn path(at: &FileLocation) -> &[u8] {
    let path = at.trimmed();
    match path.strip_prefix(b"/~") {
        Some(b"") => b".",
        Some(rest) if rest.starts_with(b"/") => &rest[1..],
        _ if path.is_empty() => b"/",
        _ => path,
    }
}

fn metadata(attributes: &Attributes) -> Metadata {
    // Type bits of stat(2).
    let kind = match attributes.mode.map(|mode| mode & 0o170_000) {
        Some(0o040_000) => RemoteKind::Directory,
        Some(0o100_000) => RemoteKind::File,
        _ => RemoteKind::Other,
    };
    Metadata {
        kind,
        size_bytes: attributes
            .size_bytes
            .filter(|_| kind != RemoteKind::Directory),
        modified_s: attributes.modified_s.map(i64::from),
    }
}

fn unexpected() -> FileError {
    FileError::new(
        ErrorKind::Other,
        "expected a reply of SFTP to the request, found another",
    )
}
