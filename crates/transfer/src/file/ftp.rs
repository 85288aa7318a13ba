//! FTP and GridFTP servers.

use venturi_gridftp::client::{Get, GetSource, Put, TransferJob};
use venturi_gridftp::{
    ByteRanges, EntryKind as FtpKind, FtpCommand, FtpReply, ListEntry, Path, parse_list,
};

use super::content::{Checksums, NewFile, NewFileBlocks};
use super::credentials;
use super::error::{ErrorKind, FileError};
use super::ftp_session::{SingleFtpSession, TransferBytes};
use super::location::FileLocation;
use super::server::{FileServer, Metadata, RemoteEntry, RemoteKind};
use super::servers::Context;
use crate::checksum::Algorithm;
use crate::ftp::session_handle::parse_entry;
use crate::net::url::{Scheme, Url};

/// Maximum bytes of a listing.
const MAX_LISTING_BYTES: usize = 256 << 20;
/// Algorithms of servers, the preferred first.
const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("ADLER32", Algorithm::Adler32),
    ("MD5", Algorithm::Md5),
    ("SHA256", Algorithm::Sha256),
];

/// Server with at most one session.
pub(super) struct FtpFiles {
    context: Context,
    server: Url,
    session: Option<SingleFtpSession>,
}

/// Bytes of an upload.
struct Upload(NewFileBlocks);

/// Bytes of a download.
struct Download<'s>(&'s mut dyn FnMut(&[u8]));

/// Bytes of a listing.
#[derive(Default)]
struct Listing {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl TransferBytes for Upload {
    fn send(&mut self, _: u64, bytes: u64, into: &mut Vec<u8>) {
        let most = usize::try_from(bytes).expect("a block fits into memory");
        into.extend(self.0.next(most).unwrap_or_default());
    }

    fn receive(&mut self, _: u64, _: &[u8]) {}
}

impl TransferBytes for Download<'_> {
    fn send(&mut self, _: u64, _: u64, _: &mut Vec<u8>) {}

    fn receive(&mut self, _: u64, bytes: &[u8]) {
        (self.0)(bytes);
    }
}

impl TransferBytes for Listing {
    fn send(&mut self, _: u64, _: u64, _: &mut Vec<u8>) {}

    fn receive(&mut self, _: u64, bytes: &[u8]) {
        self.is_too_long |= self.bytes.len() + bytes.len() > MAX_LISTING_BYTES;
        if !self.is_too_long {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

impl FtpFiles {
    /// Return the server of a URL, without a session.
    ///
    /// # Errors
    /// A missing or unusable credential.
    pub(super) fn new(context: Context, at: &FileLocation) -> Result<Self, FileError> {
        let mut server = at.url.with_path(b"/".to_vec());
        if server.scheme == Scheme::Gsiftp {
            context.grid()?;
        } else if server.password.is_none()
            && let Some((user, password)) =
                credentials::netrc(&server.host, server.user.as_deref())?
        {
            (server.user, server.password) = (Some(user), Some(password));
        }
        Ok(Self {
            context,
            server,
            session: None,
        })
    }

    /// Return the session; open it if there is none.
    fn session(&mut self) -> Result<&mut SingleFtpSession, FileError> {
        if self.session.is_none() {
            let grid = match self.server.scheme {
                Scheme::Gsiftp => Some(self.context.grid()?),
                _ => None,
            };
            let opening = SingleFtpSession::open(&self.server, grid, self.context.timeout);
            self.session = Some(self.context.runtime.run(opening)?);
        }
        Ok(self.session.as_mut().expect("it was just opened"))
    }

    /// Send a command. A lost session is not used again.
    fn request(&mut self, command: FtpCommand) -> Result<FtpReply, FileError> {
        let context = self.context.clone();
        let session = self.session()?;
        let result = context.runtime.run(session.request(command));
        if result.is_err() {
            self.session = None;
        }
        result
    }

    /// Send a command that can be repeated: an idle session may have been closed.
    fn query(&mut self, command: FtpCommand) -> Result<FtpReply, FileError> {
        let is_kept = self.session.is_some();
        match self.request(command.clone()) {
            Err(error) if is_kept && error.kind != ErrorKind::Timeout => self.request(command),
            result => result,
        }
    }

    /// Send a command that must succeed. `usual` is the kind of an error without a known text.
    fn command(&mut self, command: FtpCommand, usual: ErrorKind) -> Result<FtpReply, FileError> {
        let reply = self.request(command)?;
        if reply.is_success() {
            return Ok(reply);
        }
        Err(FileError::reply(&reply, usual))
    }

    fn transfer(
        &mut self,
        job: impl FnOnce(u64) -> TransferJob,
        bytes: &mut dyn TransferBytes,
        usual: ErrorKind,
    ) -> Result<(), FileError> {
        let context = self.context.clone();
        let session = self.session()?;
        let result = context.runtime.run(session.transfer(job, bytes));
        if result.is_err() {
            self.session = None;
        }
        result?.map_err(|(reason, started)| match started {
            true => FileError::rejection(&reason, ErrorKind::Other),
            false => FileError::rejection(&reason, usual),
        })
    }
}

impl FileServer for FtpFiles {
    fn stat(&mut self, at: &FileLocation) -> Result<Metadata, FileError> {
        let reply = self.query(FtpCommand::Mlst(Some(path(at)?)))?;
        if !reply.is_success() {
            return Err(FileError::reply(&reply, ErrorKind::NotFound));
        }
        let entry = parse_entry(&reply).ok_or_else(|| {
            FileError::new(
                ErrorKind::Other,
                format!("expected metadata (MLST), found `{reply}`"),
            )
        })?;
        Ok(metadata(&entry))
    }

    fn list(&mut self, at: &FileLocation) -> Result<Vec<RemoteEntry>, FileError> {
        let directory = path(at)?;
        let mut listing = Listing::default();
        let job = |transfer| {
            TransferJob::Get(Get {
                transfer,
                source: GetSource::Directory,
                path: directory,
                size_bytes: None,
                present: ByteRanges::default(),
                stat_after: false,
            })
        };
        self.transfer(job, &mut listing, ErrorKind::NotFound)?;
        if listing.is_too_long {
            let message =
                format!("expected a listing of at most {MAX_LISTING_BYTES} bytes, found more");
            return Err(FileError::new(ErrorKind::Other, message));
        }
        let is_machine_readable = self.session()?.client.features().lists();
        let lines = listing.bytes.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let entries = lines.filter_map(|line| match is_machine_readable {
            true => ListEntry::parse(line).ok(),
            false => parse_list(line),
        });
        Ok(entries
            .filter(ListEntry::is_inside)
            .map(|entry| RemoteEntry {
                metadata: metadata(&entry),
                name: String::from_utf8_lossy(&entry.name).into_owned(),
            })
            .collect())
    }

    fn write(&mut self, at: &FileLocation, file: &NewFile) -> Result<Option<Checksums>, FileError> {
        let path = path(at)?;
        let mut upload = Upload(file.blocks());
        let job = |transfer| {
            TransferJob::Put(Put {
                transfer,
                path,
                temporary: None,
                size_bytes: file.size_bytes,
                checksum: None,
                modify_s: None,
                present: ByteRanges::default(),
                part: None,
                resumable: false,
            })
        };
        self.transfer(job, &mut upload, ErrorKind::Permission)?;
        Ok(upload.0.checksums())
    }

    fn read(&mut self, at: &FileLocation, sink: &mut dyn FnMut(&[u8])) -> Result<(), FileError> {
        let path = path(at)?;
        // In MODE S, only the size distinguishes a complete file from a truncated one.
        let size_bytes = self.stat(at)?.size_bytes;
        let job = |transfer| {
            TransferJob::Get(Get {
                transfer,
                source: GetSource::File,
                path,
                size_bytes,
                present: ByteRanges::default(),
                stat_after: false,
            })
        };
        self.transfer(job, &mut Download(sink), ErrorKind::Permission)
    }

    fn checksum(
        &mut self,
        at: &FileLocation,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<(Algorithm, Vec<u8>)>, FileError> {
        let path = path(at)?;
        let offered = self.session()?.client.features().checksums();
        let mut known = ALGORITHMS.iter();
        let Some(&(name, algorithm)) = known.find(|(name, known)| {
            algorithm.is_none_or(|algorithm| algorithm == *known)
                && offered.iter().any(|offered| offered == name)
        }) else {
            return Ok(None);
        };
        let reply = self.query(FtpCommand::Cksm {
            algorithm: name.into(),
            offset: 0,
            length: None,
            path,
        })?;
        if !reply.is_success() {
            return Err(FileError::reply(&reply, ErrorKind::NotFound));
        }
        let text = reply.lines.last().map(|line| line.trim_ascii());
        let value = text.and_then(|text| super::server::from_hex(std::str::from_utf8(text).ok()?));
        let value = value.ok_or_else(|| {
            FileError::new(
                ErrorKind::Other,
                format!("expected a checksum, found `{reply}`"),
            )
        })?;
        Ok(Some((algorithm, value)))
    }

    fn remove_file(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.command(FtpCommand::Dele(path(at)?), ErrorKind::Permission)
            .map(drop)
    }

    fn remove_directory(&mut self, at: &FileLocation) -> Result<(), FileError> {
        self.command(FtpCommand::Rmd(path(at)?), ErrorKind::Permission)
            .map(drop)
    }

    fn make_directory(&mut self, at: &FileLocation) -> Result<bool, FileError> {
        self.command(FtpCommand::Mkd(path(at)?), ErrorKind::Permission)
            .map(|_| true)
    }
}

/// Return the path for commands.
fn path(at: &FileLocation) -> Result<Path, FileError> {
    let bytes = if at.is_root() { b"/" } else { at.trimmed() };
    Path::new(bytes).map_err(|error| FileError::new(ErrorKind::Invalid, error.to_string()))
}

fn metadata(entry: &ListEntry) -> Metadata {
    let kind = match entry.kind {
        Some(FtpKind::File) => RemoteKind::File,
        Some(FtpKind::Directory | FtpKind::Current | FtpKind::Parent) => RemoteKind::Directory,
        _ => RemoteKind::Other,
    };
    Metadata {
        kind,
        size_bytes: entry.size_bytes.filter(|_| kind != RemoteKind::Directory),
        modified_s: entry.modify_s,
    }
}
