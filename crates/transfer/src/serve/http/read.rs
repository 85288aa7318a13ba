//! GET and HEAD.

use std::os::fd::AsFd;
use std::sync::Arc;

use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED,
    RANGE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::body::{FileBody, MultipartSection, ResponseBody};
use super::conditions::{etag, for_read, modified};
use super::list;
use super::response::{ErrorResponse, ParsedRequest, ResponseResult, aside, empty, in_turn};
use super::transfer_guard::TransferGuard;
use crate::checksum::Algorithm;
use crate::http::digest;
use crate::http::outgoing::OutgoingBody;
use crate::http::range::{self, RequestedRange as Ranges};
use crate::serve::confined_root::{OpenedFile, ServedMetadata, checksum_while};
use crate::serve::state::ServerState;

/// GET and HEAD.
pub(crate) async fn get(request: ParsedRequest) -> ResponseResult {
    let host = Arc::clone(&request.connection.host);
    let opened = match host.root.read_at_once(&request.path)? {
        Some(opened) => opened,
        None => {
            let (host, path) = (Arc::clone(&host), request.path.clone());
            aside(move || Ok(host.root.read(&path)?)).await?
        }
    };
    if opened.metadata.is_directory() {
        return list::index(&request).await;
    }
    if !opened.metadata.is_file() {
        return Err(ErrorResponse::new(
            StatusCode::FORBIDDEN,
            "the path is not a file",
        ));
    }
    if let Some(status) = for_read(&request.fields, &opened.metadata) {
        let mut response = empty(status);
        mark(response.headers_mut(), &opened.metadata);
        return Ok(response);
    }
    let digest = checksum(&request, &host, &opened).await?;
    let mut response = ranges(request, opened);
    if let (Some((digest, requested)), Ok(response)) = (digest, &mut response) {
        digest::set(response.headers_mut(), &requested, &digest);
    }
    response
}

/// Return the requested checksum. For HEAD it is computed if necessary. For GET it must be known,
/// because a client that requests the bytes would wait for two reads.
async fn checksum(
    parsed: &ParsedRequest,
    host: &Arc<ServerState>,
    opened: &OpenedFile,
) -> Result<Option<(digest::Digest, HeaderMap)>, ErrorResponse> {
    let Some(algorithm) = digest::preferred(&parsed.fields) else {
        return Ok(None);
    };
    let metadata = opened.metadata;
    let known = if algorithm == Algorithm::Adler32 {
        host.web.known.find(&metadata)
    } else {
        None
    };
    let value = match known {
        Some(known) => known.to_be_bytes().to_vec(),
        None if parsed.method == Method::HEAD => {
            let file = opened.file.try_clone().map_err(|_| {
                ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, "too many open files")
            })?;
            // Dropped with this request: no read continues for a disconnected client.
            let requested = Arc::new(());
            let request = Arc::downgrade(&requested);
            let value = in_turn(parsed, move || {
                let requested = || request.strong_count() > 0;
                Ok(checksum_while(requested, file.as_fd(), algorithm, 0, None)?)
            })
            .await?;
            drop(requested);
            if let (Algorithm::Adler32, Ok(bytes)) = (algorithm, <[u8; 4]>::try_from(&value[..])) {
                host.web.known.keep(&metadata, u32::from_be_bytes(bytes));
            }
            value
        }
        None => return Ok(None),
    };
    Ok(Some(((algorithm, value), parsed.fields.clone())))
}

fn mark(fields: &mut HeaderMap, metadata: &ServedMetadata) {
    fields.insert(ETAG, HeaderValue::try_from(etag(metadata)).expect("digits"));
    let date = httpdate::fmt_http_date(modified(metadata));
    fields.insert(
        LAST_MODIFIED,
        HeaderValue::try_from(date).expect("letters and digits"),
    );
    fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

fn ranges(request: ParsedRequest, opened: OpenedFile) -> ResponseResult {
    let metadata = opened.metadata;
    let fresh = request.fields.get(IF_RANGE).is_none_or(|tag| {
        let date = tag.to_str().ok().map(httpdate::parse_http_date);
        *tag == etag(&metadata)
            || date.is_some_and(|date| date.is_ok_and(|date| date == modified(&metadata)))
    });
    let field = request
        .field(&RANGE)
        .filter(|_| fresh && request.method == Method::GET);
    let size = metadata.bytes;
    let mut fields = HeaderMap::new();
    mark(&mut fields, &metadata);
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    let (status, parts) = match range::requested(field, size) {
        Ranges::Whole => (StatusCode::OK, vec![MultipartSection::Range(0..size)]),
        Ranges::Nothing => {
            let mut rejection = ErrorResponse::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "the file does not have the requested bytes",
            );
            rejection.fields.insert(
                CONTENT_RANGE,
                HeaderValue::try_from(format!("bytes */{size}")).expect("digits"),
            );
            return Err(rejection);
        }
        Ranges::Ranges(ranges) => match &ranges[..] {
            [one] => {
                fields.insert(
                    CONTENT_RANGE,
                    HeaderValue::try_from(range::content_range(one, size)).expect("digits"),
                );
                (
                    StatusCode::PARTIAL_CONTENT,
                    vec![MultipartSection::Range(one.clone())],
                )
            }
            several => {
                let (parts, kind) = multipart(several, &metadata);
                fields.insert(
                    CONTENT_TYPE,
                    HeaderValue::try_from(kind).expect("letters and digits"),
                );
                (StatusCode::PARTIAL_CONTENT, parts)
            }
        },
    };
    let body = if request.method == Method::HEAD {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(size));
        ResponseBody::Plain(OutgoingBody::EMPTY)
    } else {
        sent(request, opened, parts, status)
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    Ok(response)
}

/// RFC 9110, section 14.6.
fn multipart(
    ranges: &[std::ops::Range<u64>],
    metadata: &ServedMetadata,
) -> (Vec<MultipartSection>, String) {
    let (device, inode) = metadata.identity;
    // A file that contains this line only confuses its own readers.
    let boundary = format!("venturi-{device:x}-{inode:x}-{:x}", metadata.modified_ns);
    let mut parts = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        let start = if index == 0 { "" } else { "\r\n" };
        let content = range::content_range(range, metadata.bytes);
        let text = format!(
            "{start}--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: {content}\r\n\r\n"
        );
        parts.extend([
            MultipartSection::Text(text.into()),
            MultipartSection::Range(range.clone()),
        ]);
    }
    parts.push(MultipartSection::Text(
        format!("\r\n--{boundary}--\r\n").into(),
    ));
    (parts, format!("multipart/byteranges; boundary={boundary}"))
}

fn sent(
    request: ParsedRequest,
    opened: OpenedFile,
    parts: Vec<MultipartSection>,
    status: StatusCode,
) -> ResponseBody {
    let guard = TransferGuard::new(&request, "GET");
    let pending = request.connection.pending.clone();
    ResponseBody::File(FileBody::new(
        (guard, status),
        Arc::new(opened.file),
        parts,
        (request.active, pending),
    ))
}
