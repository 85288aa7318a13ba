//! Disk operations of a session: on the session's thread if they cannot block, otherwise on another
//! thread.

mod jobs;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use tokio::task::{JoinHandle, spawn_blocking};
use venturi_gridftp::Path;
use venturi_gridftp::server::{DriverRequest, DriverResponse, GlobusError, WriteMode};

use jobs::{alone, finish, more, name, rejected, sent, sum};

use super::entry::{CHECKSUMS, algorithm, entry, hexadecimal};
use super::file_reader::FileReader;
use super::file_writer::{FileWriter, Filled};
use crate::serve::confined_root::listing::RootListing;
use crate::serve::confined_root::upload::{self, UploadFile};
use crate::serve::confined_root::{OpenedFile, ServedMetadata};
use crate::serve::state::{Permissions, ServerState};

/// Directory entries per request.
const ENTRIES: usize = 500;
/// Maximum size of a sent file that is checked without another thread.
const AT_ONCE_BYTES: u64 = 1 << 20;
/// Delay of the reply to a wrong password.
const PAUSE: Duration = Duration::from_secs(1);

/// Open file and running operation.
#[derive(Debug)]
pub(super) struct Disk {
    host: Arc<ServerState>,
    open: OpenFile,
    job: Option<JoinHandle<DiskResult>>,
    listing: Option<RootListing>,
    /// Operation after all bytes are written.
    completion: Option<(Completion, Vec<Filled>)>,
    /// True if the checksum of the open file was requested. If the session then aborts, the client does not have a
    /// valid file.
    verified: bool,
    /// Permissions of the user.
    permissions: Permissions,
    /// Lives as long as the session, so that long operations can detect its end.
    requested: Arc<()>,
}

#[derive(Debug)]
enum OpenFile {
    Nothing,
    /// Sent file, and its metadata at opening.
    FileReader(FileReader, ServedMetadata),
    FileWriter(FileWriter),
}

/// Operation after all received bytes are written.
#[derive(Debug, PartialEq, Eq)]
enum Completion {
    Finish,
    Verify(String),
}

/// Result of a thread.
#[derive(Debug)]
enum DiskResult {
    Response(DriverResponse),
    OpenedFile(OpenedFile),
    Started(UploadFile, bool, DriverResponse),
    RootEntry(Option<RootListing>, DriverResponse),
    Login(Option<Permissions>),
}

impl Disk {
    pub(super) fn new(host: Arc<ServerState>) -> Self {
        let permissions = Permissions {
            write: host.settings.write,
            third_party: false,
        };
        Self {
            host,
            open: OpenFile::Nothing,
            job: None,
            listing: None,
            completion: None,
            verified: false,
            permissions,
            requested: Arc::default(),
        }
    }

    /// Return the sent file.
    pub(super) fn reader(&mut self) -> Option<&mut FileReader> {
        match &mut self.open {
            OpenFile::FileReader(reader, _) => Some(reader),
            _ => None,
        }
    }

    /// Return the received file.
    pub(super) fn writer(&mut self) -> Option<&mut FileWriter> {
        match &mut self.open {
            OpenFile::FileWriter(writer) => Some(writer),
            _ => None,
        }
    }

    /// Close the file. A reliable partial file stays for a client that resumes, with all pending
    /// buffers, because without them it could have a hole.
    pub(super) fn close(&mut self, any_bytes: bool, pending: Vec<Filled>) {
        if let OpenFile::FileWriter(writer) = &mut self.open
            && any_bytes
            && !self.verified
        {
            pending.into_iter().for_each(|filled| writer.write(filled));
            if writer.failed().is_none() {
                writer.upload().keep();
            }
        }
        self.open = OpenFile::Nothing;
        self.completion = None;
    }

    /// Handle a request. Return the response, or none if it follows later.
    pub(super) fn handle(&mut self, request: DriverRequest) -> Option<DriverResponse> {
        let host = Arc::clone(&self.host);
        match request {
            DriverRequest::Stat(path) => self.stat(path),
            DriverRequest::Read(path) => match host.root.read_at_once(path.as_bytes()) {
                Ok(Some(opened)) => Some(self.opened(opened)),
                Ok(None) => self.spawn(move || match host.root.read(path.as_bytes()) {
                    Ok(opened) => DiskResult::OpenedFile(opened),
                    Err(errno) => DiskResult::Response(rejected(errno)),
                }),
                Err(errno) => Some(rejected(errno)),
            },
            DriverRequest::Write {
                path,
                mode: start,
                checksum,
            } => self.start_upload(path, start, checksum),
            DriverRequest::List { path, recursive } => {
                let writes = self.permissions.write;
                self.spawn(move || match host.root.list(path.as_bytes(), recursive) {
                    Ok(listing) => more(&host, listing, writes),
                    // LIST of a file lists the file.
                    Err(Errno::NOTDIR) if !recursive => {
                        DiskResult::Response(alone(&host, &path, writes))
                    }
                    Err(errno) => DiskResult::Response(rejected(errno)),
                })
            }
            DriverRequest::More => match self.listing.take() {
                Some(listing) => {
                    let writes = self.permissions.write;
                    self.spawn(move || more(&host, listing, writes))
                }
                None => Some(DriverResponse::Failed(GlobusError::Internal)),
            },
            DriverRequest::Sent => self.sent(),
            request => self.change(request),
        }
    }

    fn stat(&mut self, path: Path) -> Option<DriverResponse> {
        let writes = self.permissions.write;
        let response = move |path: &Path, found: Result<ServedMetadata, Errno>| match found {
            Ok(metadata) => DriverResponse::Entry(entry(name(path), &metadata, writes)),
            Err(errno) => rejected(errno),
        };
        match self.host.root.stat_at_once(path.as_bytes()).transpose() {
            Some(found) => Some(response(&path, found)),
            None => self.later(move |host| response(&path, host.root.stat(path.as_bytes()))),
        }
    }

    /// Check that the sent file is unchanged. A small file was read on this thread, so it is checked here.
    fn sent(&mut self) -> Option<DriverResponse> {
        let OpenFile::FileReader(reader, before) = &self.open else {
            return Some(DriverResponse::Failed(GlobusError::Internal));
        };
        let (file, before) = (reader.file(), *before);
        if before.bytes <= AT_ONCE_BYTES {
            return Some(sent(&file, &before));
        }
        self.later(move |_| sent(&file, &before))
    }

    /// Return the error of a sent file that cannot be read to its end; it may have been truncated.
    pub(super) fn unread(&self) -> GlobusError {
        match &self.open {
            OpenFile::FileReader(reader, before) => match sent(&reader.file(), before) {
                DriverResponse::Failed(rejection) => rejection,
                _ => GlobusError::Internal,
            },
            _ => GlobusError::Internal,
        }
    }

    fn change(&mut self, request: DriverRequest) -> Option<DriverResponse> {
        let slow = matches!(request, DriverRequest::Checksum { .. });
        let requested = self.requested();
        let work = move |host: &ServerState| {
            let root = &host.root;
            let changed = match request {
                DriverRequest::MakeDirectory(path) => root.make_directory(path.as_bytes()),
                DriverRequest::RemoveDirectory(path) => root.remove_directory(path.as_bytes()),
                DriverRequest::Delete(path) => root.remove_file(path.as_bytes()),
                DriverRequest::Rename { from, to } => {
                    root.rename(from.as_bytes(), to.as_bytes(), true)
                }
                DriverRequest::SetModified { path, time_s } => {
                    root.set_modified(path.as_bytes(), time_s)
                }
                DriverRequest::SetMode { path, mode } => root.set_mode(path.as_bytes(), mode),
                DriverRequest::Truncate { path, length } => root.truncate(path.as_bytes(), length),
                DriverRequest::Checksum {
                    algorithm: name,
                    offset,
                    length,
                    path,
                } => {
                    let algorithm = algorithm(&name).ok_or(Errno::INVAL);
                    let sum = algorithm.and_then(|it| {
                        root.checksum(path.as_bytes(), it, offset, length, requested)
                    });
                    return sum
                        .map_or_else(rejected, |sum| DriverResponse::Checksum(hexadecimal(&sum)));
                }
                _ => Err(Errno::INVAL),
            };
            changed.map_or_else(rejected, |()| DriverResponse::Done)
        };
        if slow {
            self.in_turn(work)
        } else {
            self.later(work)
        }
    }

    /// Authenticate a user. `known` means that a certificate maps to this user.
    pub(super) fn login(
        &mut self,
        user: Vec<u8>,
        password: Vec<u8>,
        known: bool,
    ) -> Option<DriverResponse> {
        if known {
            let permissions = self.host.known();
            return Some(self.admitted(Some(permissions)));
        }
        if let Some(permissions) = self.host.anonymous(&user) {
            return Some(self.admitted(Some(permissions)));
        }
        let host = Arc::clone(&self.host);
        self.job = Some(tokio::task::spawn_local(async move {
            let checked = spawn_blocking(move || host.user(&user, &password)).await;
            let permissions = checked.ok().flatten();
            if permissions.is_none() {
                tokio::time::sleep(PAUSE).await;
            }
            DiskResult::Login(permissions)
        }));
        None
    }

    fn admitted(&mut self, permissions: Option<Permissions>) -> DriverResponse {
        let Some(permissions) = permissions else {
            return DriverResponse::Failed(GlobusError::LoginDenied);
        };
        self.permissions = permissions;
        DriverResponse::Admitted {
            writes: permissions.write,
            third_party: permissions.third_party,
        }
    }

    fn start_upload(
        &mut self,
        path: Path,
        start: WriteMode,
        checksum: Option<String>,
    ) -> Option<DriverResponse> {
        let host = Arc::clone(&self.host);
        let mode = match start {
            WriteMode::New => upload::UploadStart::New,
            WriteMode::Restart { bytes } => upload::UploadStart::Behind { bytes },
            WriteMode::Marked { bytes } => upload::UploadStart::Kept { bytes },
            WriteMode::Region => upload::UploadStart::InPlace,
            WriteMode::Append => upload::UploadStart::AtEnd,
        };
        // The cheapest checksum is computed during the upload; for others the file is read again.
        let sums = checksum.as_deref() == Some(CHECKSUMS[0]) && start == WriteMode::New;
        self.spawn(move || {
            let started = host.root.upload(path.as_bytes(), mode).and_then(|upload| {
                let response = match start {
                    WriteMode::Append => DriverResponse::Size(upload.metadata()?.bytes),
                    _ => DriverResponse::Done,
                };
                Ok((upload, response))
            });
            match started {
                Ok((upload, response)) => DiskResult::Started(upload, sums, response),
                Err(errno) => DiskResult::Response(rejected(errno)),
            }
        })
    }

    /// Finish a completely received file; `pending` are unwritten buffers. The response comes from
    /// [`poll`](Self::poll).
    pub(super) fn finish(&mut self, request: DriverRequest, pending: Vec<Filled>) {
        let completion = match request {
            DriverRequest::Verify { algorithm } => Completion::Verify(algorithm),
            _ => Completion::Finish,
        };
        match (&completion, self.writer()) {
            (Completion::Verify(_), Some(writer)) => {
                pending.into_iter().for_each(|filled| writer.write(filled));
                self.completion = Some((completion, Vec::new()));
            }
            _ => self.completion = Some((completion, pending)),
        }
    }

    /// Return a finished response, and whether there was progress.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> (Option<DriverResponse>, bool) {
        let moved = self.writer().is_some_and(|writer| writer.poll(cx));
        if let Some(response) = self.poll_completion() {
            return (Some(response), true);
        }
        let Some(job) = &mut self.job else {
            return (None, moved);
        };
        let Poll::Ready(done) = Pin::new(job).poll(cx) else {
            return (None, moved);
        };
        self.job = None;
        let response = match done {
            Ok(DiskResult::Response(response)) => response,
            Ok(DiskResult::OpenedFile(opened)) => self.opened(opened),
            Ok(DiskResult::Started(upload, sums, response)) => {
                self.open =
                    OpenFile::FileWriter(FileWriter::new(upload, sums, Arc::clone(&self.host)));
                self.verified = false;
                response
            }
            Ok(DiskResult::RootEntry(listing, response)) => {
                self.listing = listing;
                response
            }
            Ok(DiskResult::Login(permissions)) => self.admitted(permissions),
            // The thread panicked.
            Err(_) => DriverResponse::Failed(GlobusError::Internal),
        };
        (Some(response), true)
    }

    /// Continue the completion of a file when all buffers are written.
    fn poll_completion(&mut self) -> Option<DriverResponse> {
        if self.job.is_some() || !self.writer().is_none_or(|writer| writer.is_written()) {
            return None;
        }
        let (completion, pending) = self.completion.take()?;
        let OpenFile::FileWriter(writer) = &mut self.open else {
            return Some(DriverResponse::Failed(GlobusError::Internal));
        };
        if let Some(errno) = writer.failed() {
            self.open = OpenFile::Nothing;
            return Some(rejected(errno));
        }
        match completion {
            Completion::Verify(name) => {
                let known = writer.checksum().filter(|_| name == CHECKSUMS[0]);
                let upload = writer.upload();
                let requested = self.requested();
                self.verified = true;
                match known {
                    Some(sum) => Some(DriverResponse::Checksum(format!("{sum:08x}"))),
                    None => self.in_turn(move |_| {
                        sum(&upload, &name, requested)
                            .map_or_else(rejected, DriverResponse::Checksum)
                    }),
                }
            }
            Completion::Finish => {
                let OpenFile::FileWriter(writer) =
                    std::mem::replace(&mut self.open, OpenFile::Nothing)
                else {
                    return Some(DriverResponse::Failed(GlobusError::Internal));
                };
                let sync = self.host.settings.sync;
                self.later(move |_| {
                    finish(writer, &pending, sync).map_or_else(rejected, |()| DriverResponse::Done)
                })
            }
        }
    }

    /// Return a function that checks whether the session still exists.
    fn requested(&self) -> impl Fn() -> bool + Send + 'static {
        let session = Arc::downgrade(&self.requested);
        move || session.strong_count() > 0
    }

    fn opened(&mut self, opened: OpenedFile) -> DriverResponse {
        if !opened.metadata.is_file() {
            return DriverResponse::Failed(GlobusError::IsDirectory);
        }
        self.open = OpenFile::FileReader(FileReader::new(opened.file), opened.metadata);
        DriverResponse::Size(opened.metadata.bytes)
    }

    fn later(
        &mut self,
        work: impl FnOnce(&ServerState) -> DriverResponse + Send + 'static,
    ) -> Option<DriverResponse> {
        let host = Arc::clone(&self.host);
        self.spawn(move || DiskResult::Response(work(&host)))
    }

    /// Run a long operation when a slot is free.
    fn in_turn(
        &mut self,
        work: impl FnOnce(&ServerState) -> DriverResponse + Send + 'static,
    ) -> Option<DriverResponse> {
        let host = Arc::clone(&self.host);
        self.job = Some(tokio::task::spawn_local(async move {
            let _slot = host.slow.acquire().await;
            let shared = Arc::clone(&host);
            let done = spawn_blocking(move || work(&shared)).await;
            // Otherwise the thread panicked.
            DiskResult::Response(done.unwrap_or(DriverResponse::Failed(GlobusError::Internal)))
        }));
        None
    }

    fn spawn(
        &mut self,
        work: impl FnOnce() -> DiskResult + Send + 'static,
    ) -> Option<DriverResponse> {
        self.job = Some(spawn_blocking(work));
        None
    }
}
