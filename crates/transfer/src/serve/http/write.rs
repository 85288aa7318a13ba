//! PUT: write a temporary file, compute its checksum and rename it into place.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;

use super::conditions::{Conditions, etag};
use super::issuers::Operation;
use super::response::{ErrorResponse, ParsedRequest, ResponseResult, aside, empty, patient};
use super::transfer_guard::TransferGuard;
use crate::checksum::{Adler32, Algorithm};
use crate::error::is_unsupported;
use crate::http::digest;
use crate::http::put::MTIME;
use crate::serve::buffers::{Buffer, BufferPool};
use crate::serve::confined_root::upload::{UploadFile, UploadStart};
use crate::serve::metrics;
use crate::serve::state::ServerState;

/// Upload with its position and checksum.
struct ReceivedUpload {
    upload: UploadFile,
    at: u64,
    sum: Adler32,
}

/// Received, unwritten bytes in a buffer, pooled if possible.
struct GatheredBuffer {
    buffers: BufferPool,
    buffer: Option<Buffer>,
    bytes: usize,
}

impl GatheredBuffer {
    fn new(buffers: &BufferPool) -> Self {
        Self {
            buffers: buffers.clone(),
            buffer: None,
            bytes: 0,
        }
    }

    /// Take bytes that fit into the buffer and return the rest.
    fn take<'d>(&mut self, data: &'d [u8]) -> &'d [u8] {
        let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
        let (now, later) = data.split_at(data.len().min(buffer.len() - self.bytes));
        buffer[self.bytes..][..now.len()].copy_from_slice(now);
        self.bytes += now.len();
        later
    }

    fn is_full(&self) -> bool {
        let buffer = self.buffer.as_ref();
        buffer.is_some_and(|buffer| self.bytes == buffer.len())
    }

    /// Return whether the data is better written directly: as much as a buffer, or more than a small buffer when
    /// the pool is empty.
    fn is_worth_less_than(&mut self, data: &[u8]) -> bool {
        let buffer = self.buffer.get_or_insert_with(|| self.buffers.take());
        self.bytes == 0 && data.len() >= buffer.len() / 2
    }
}

impl AsRef<[u8]> for GatheredBuffer {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_deref();
        buffer.map_or(&[], |buffer| &buffer[..self.bytes])
    }
}

/// PUT.
pub(crate) async fn put(mut request: ParsedRequest) -> ResponseResult {
    request.may_write()?;
    if request.fields.contains_key(CONTENT_RANGE) {
        // RFC 9110, section 14.5: a server that ignores the range would replace the file by a part.
        return Err(ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "PUT of a range is not supported; send the complete file",
        ));
    }
    if request.path.ends_with(b"/") {
        return Err(ErrorResponse::new(
            StatusCode::CONFLICT,
            "use MKCOL to create a directory",
        ));
    }
    let conditions = Arc::new(Conditions::of(&request)?);
    let host = Arc::clone(&request.connection.host);
    let (shared, path, shared_conditions) = (
        Arc::clone(&host),
        request.path.clone(),
        Arc::clone(&conditions),
    );
    let may_replace = request.may(Operation::Modify, &request.path);
    // A file created in the meantime is not replaced either.
    let replace = may_replace.is_ok() && !conditions.only_new();
    let (mut received, is_new) = aside(move || {
        let existing = shared.root.stat(&path).ok();
        shared_conditions.check(&shared.root)?;
        if existing.is_some() {
            may_replace?;
        }
        // 409, not 404: the parent directory is missing (RFC 4918, section 9.7.1).
        let upload = shared
            .root
            .upload(&path, UploadStart::New)
            .map_err(within)?;
        Ok((
            ReceivedUpload {
                upload,
                at: 0,
                sum: Adler32::default(),
            },
            existing.is_none(),
        ))
    })
    .await?;
    let mut guard = TransferGuard::new(&request, "PUT");
    let result = receive(&mut request, &mut guard, &mut received).await;
    let result = match result {
        Ok(()) => finish(&request, &host, received, (conditions, replace)).await,
        Err(rejection) => Err(rejection),
    };
    let status = match &result {
        Ok(_) if is_new => StatusCode::CREATED,
        Ok(_) => StatusCode::NO_CONTENT,
        Err(rejection) => rejection.status,
    };
    guard.ended(status);
    let (metadata, sum) = result?;
    let mut response = empty(status);
    let fields = response.headers_mut();
    fields.insert(
        ETAG,
        HeaderValue::try_from(etag(&metadata)).expect("digits"),
    );
    if digest::preferred(&request.fields).is_some() {
        digest::set(
            fields,
            &request.fields,
            &(Algorithm::Adler32, sum.value().to_be_bytes().to_vec()),
        );
    }
    // Some file systems store the nearest time that they support.
    if mtime(&request) == Some(metadata.modified_s) {
        fields.insert(MTIME, HeaderValue::from_static("accepted"));
    }
    Ok(response)
}

/// Convert an error of the parent directory.
pub(crate) fn within(errno: Errno) -> ErrorResponse {
    match errno {
        Errno::NOENT | Errno::NOTDIR => {
            ErrorResponse::new(StatusCode::CONFLICT, "the parent directory does not exist")
        }
        errno => errno.into(),
    }
}

/// Convert the error of a file that may not be replaced.
pub(super) fn unreplaced(errno: Errno) -> ErrorResponse {
    match errno {
        Errno::EXIST => {
            ErrorResponse::new(StatusCode::PRECONDITION_FAILED, "the path exists already")
        }
        errno => errno.into(),
    }
}

async fn receive(
    request: &mut ParsedRequest,
    guard: &mut TransferGuard,
    received: &mut ReceivedUpload,
) -> Result<(), ErrorResponse> {
    let declared = request
        .field(&CONTENT_LENGTH)
        .and_then(|text| text.parse::<u64>().ok());
    let buffers = guard.host.buffers.clone();
    let mut gathered = GatheredBuffer::new(&buffers);
    loop {
        let frame = request.body.frame().await;
        let ended = frame.is_none();
        if let Some(frame) = frame {
            let frame = frame.map_err(|_| {
                ErrorResponse::new(StatusCode::BAD_REQUEST, "the request body is incomplete")
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            request.connection.activity.moved(data.len() as u64);
            metrics::add(&guard.host.metrics.received_bytes, data.len() as u64);
            if gathered.is_worth_less_than(&data) {
                write(received, data).await?;
                continue;
            }
            let mut rest = &data[..];
            while !rest.is_empty() {
                rest = gathered.take(rest);
                if gathered.is_full() {
                    let full = std::mem::replace(&mut gathered, GatheredBuffer::new(&buffers));
                    write(received, Bytes::from_owner(full)).await?;
                }
            }
        }
        if ended && gathered.bytes > 0 {
            let rest = std::mem::replace(&mut gathered, GatheredBuffer::new(&buffers));
            write(received, Bytes::from_owner(rest)).await?;
        }
        guard.moved(received.at);
        if ended {
            break;
        }
    }
    match declared {
        Some(declared) if declared != received.at => Err(ErrorResponse::new(
            StatusCode::BAD_REQUEST,
            "fewer bytes than the announced length",
        )),
        _ => Ok(()),
    }
}

/// Write on a thread that may block.
async fn write(received: &mut ReceivedUpload, bytes: Bytes) -> Result<(), ErrorResponse> {
    let (at, mut sum) = (received.at, received.sum);
    let upload = received.upload.duplicate().map_err(ErrorResponse::from)?;
    let length = bytes.len() as u64;
    let written = aside(move || {
        sum.update(&bytes);
        crate::bytes::put(&upload, &bytes, at)?;
        Ok(sum)
    });
    received.sum = written.await?;
    received.at += length;
    Ok(())
}

async fn finish(
    request: &ParsedRequest,
    host: &Arc<ServerState>,
    received: ReceivedUpload,
    (conditions, replace): (Arc<Conditions>, bool),
) -> Result<(crate::serve::confined_root::ServedMetadata, Adler32), ErrorResponse> {
    let time = mtime(request);
    let (host, sync) = (Arc::clone(host), request.connection.host.settings.sync);
    let ReceivedUpload { upload, sum, .. } = received;
    patient(&request.active, move || {
        if let Some(seconds) = time {
            match rustix::fs::futimens(upload.file(), &at_time(seconds)) {
                // Not all file systems have times; the response states whether it was set.
                Err(errno) if is_unsupported(errno) => {}
                set => set?,
            }
        }
        if sync {
            // A slow operation; the file is checked after it.
            rustix::fs::fsync(upload.file())?;
        }
        conditions.check(&host.root)?;
        let metadata = upload.commit(sync, replace).map_err(unreplaced)?;
        host.web.known.keep(&metadata, sum.value());
        Ok((metadata, sum))
    })
    .await
}

/// Return the modification time that the client requests.
fn mtime(request: &ParsedRequest) -> Option<i64> {
    request.field(&MTIME)?.parse().ok()
}

fn at_time(seconds: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT as _,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        },
    }
}
