//! Metadata and listings of servers, and creation of directories.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::connect::ServerProfile;
use super::dav::{self, DavEntry};
use super::digest::{self, Digest};
use super::exchange::{HttpClient, HttpRequest, TIMEOUT};
use super::outgoing::OutgoingBody;
use super::request_error::RequestError;
use super::response::HttpResponse;
use super::retry::RetryState;
use super::target::HttpTarget;
use super::wait::within;
use crate::options::{CopyOptions, Existing};

/// Maximum bytes of one listing: about a quarter of a million names.
const LARGEST_LISTING: usize = 256 << 20;
/// Bytes of one file in a listing: 500 (XRootD) to 1000 (Apache).
const ENTRY_BYTES: usize = 600;
/// Estimated bytes of a listing of unknown length, per entry.
const USUAL_LISTING: u64 = 64 * ENTRY_BYTES as u64;
/// Maximum number of directories that are created for one path.
const DEEPEST: usize = 256;
/// Timeout of an optional checksum.
const OPTIONAL_CHECKSUM_TIMEOUT: Duration = Duration::from_secs(5);
/// First timeout for a checksum of XRootD 5.5, which does not respond to about one of some hundred checksum
/// requests. A longer computation continues and its result is ready for the next request.
const XROOTD_CHECKSUM_TIMEOUT: Duration = Duration::from_secs(10);
/// RFC 4918, section 10.2.
const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Metadata of a file on a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RemoteMetadata {
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) etag: Option<String>,
    pub(crate) digests: Vec<Digest>,
}

impl From<DavEntry> for RemoteMetadata {
    fn from(entry: DavEntry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
            etag: entry.etag,
            digests: Vec::new(),
        }
    }
}

impl RemoteMetadata {
    /// Return the metadata of a response head without the size, which depends on the request.
    pub(crate) fn of(response: &HttpResponse) -> Self {
        Self {
            size: None,
            modified: response
                .field(&LAST_MODIFIED)
                .and_then(|text| httpdate::parse_http_date(text).ok()),
            etag: response.field(&ETAG).map(str::to_owned),
            digests: digest::found(&response.head.headers),
        }
    }

    /// Return the identity of this version: a strong entity tag, otherwise the time; none if the
    /// server has neither.
    pub(crate) fn identity(&self) -> Option<String> {
        let strong = self.etag.as_ref().filter(|tag| !tag.starts_with("W/"));
        strong
            .cloned()
            .or_else(|| self.modified.map(httpdate::fmt_http_date))
    }
}

/// Effort for a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChecksumTrust {
    /// No checksum.
    Nothing,
    /// A header line, if the server has the checksum ready. Before the first response of a server,
    /// only the new field is used; [`digests`] requests the rest later.
    Little,
    /// A wait while the server computes the checksum.
    Waiting,
}

impl ChecksumTrust {
    /// Return the effort for a caller that needs a checksum, or does not.
    pub(crate) fn of(needed: bool) -> Self {
        if needed { Self::Waiting } else { Self::Nothing }
    }
}

/// Request a file with unchanged bytes.
///
/// XRootD 5.5 computes a requested checksum before the first byte, for a limited number of requests
/// at a time. It rejects a file without a checksum: with 405 if it may not compute one, with 500 if
/// a name blocks it. About one of some hundred such requests crashes it (SIGSEGV after a returned
/// connection, also with curl). So the client requests a checksum only if it is worth a wait, and
/// requests only bytes from this server.
///
/// # Errors
/// The server does not return the file.
pub(crate) async fn file(
    exchange: &Rc<HttpClient>,
    attempts: &mut RetryState,
    target: &HttpTarget,
    method: Method,
    mut fields: HeaderMap,
    worth: ChecksumTrust,
) -> Result<HttpResponse, RequestError> {
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let shorter = [StatusCode::RANGE_NOT_SATISFIABLE];
    let mut plain_request = HttpRequest::plain(method, fields);
    let mut digest_request =
        HttpRequest::plain(plain_request.method.clone(), plain_request.fields.clone());
    match (worth, exchange.manner(target)) {
        (ChecksumTrust::Little, None) => digest::request_again(&mut digest_request.fields),
        _ => digest::request_digest(&mut digest_request.fields),
    }
    match worth {
        ChecksumTrust::Nothing => {}
        ChecksumTrust::Waiting => {
            if exchange.manner(target) == Some(ServerProfile::Listed) {
                digest_request.timeout = XROOTD_CHECKSUM_TIMEOUT;
                match exchange
                    .send_with(attempts, target, &digest_request, &shorter)
                    .await
                {
                    Err(RequestError::Silence(_)) => digest_request.timeout = TIMEOUT,
                    other => return other,
                }
            }
            plain_request = digest_request;
        }
        ChecksumTrust::Little => {
            digest_request.timeout = OPTIONAL_CHECKSUM_TIMEOUT;
            loop {
                match try_digest(exchange, target, &digest_request).await {
                    Ok(Some(response)) => return Ok(response),
                    Ok(None) => break,
                    Err(fault) => attempts.again(exchange, fault).await?,
                }
            }
        }
    }
    let mut response = exchange
        .send_with(attempts, target, &plain_request, &shorter)
        .await?;
    digest::forget(&mut response.head.headers, &plain_request.fields);
    Ok(response)
}

/// Request a response with a checksum in its head; none from a server of profile `Plain`.
async fn try_digest(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    digest_request: &HttpRequest<'_>,
) -> Result<Option<HttpResponse>, RequestError> {
    if exchange.manner(target) > Some(ServerProfile::Full) {
        return Ok(None);
    }
    let mut response = exchange.try_once(target, digest_request).await?;
    if let Some(response) = &mut response {
        digest::forget(&mut response.head.headers, &digest_request.fields);
    }
    Ok(response)
}

/// Return the checksums of a file whose first response had none because the old field was not sent. They must
/// belong to the same version and be ready. The request is for one byte, because some servers compute checksums for
/// `HEAD`.
///
/// A server that exceeds the timeout gets only requests for bytes from then on.
pub(crate) async fn digests(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    of: &RemoteMetadata,
) -> Vec<Digest> {
    let mut fields = HeaderMap::new();
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    fields.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
    digest::request_digest(&mut fields);
    let request = HttpRequest::plain(Method::GET, fields);
    let pending = async {
        let response = try_digest(exchange, target, &request).await.ok()??;
        let reported = RemoteMetadata::of(&response);
        response.finish().await;
        Some(reported)
    };
    match within(
        exchange.connections.stop(),
        OPTIONAL_CHECKSUM_TIMEOUT,
        pending,
    )
    .await
    {
        Ok(Some(reported)) if reported.identity() == of.identity() => reported.digests,
        Err(RequestError::Silence(_)) => {
            exchange
                .connections
                .remember(&target.server, ServerProfile::Plain);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// Return the metadata of a file.
///
/// # Errors
/// Error of the server.
pub(crate) async fn head(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    worth: ChecksumTrust,
) -> Result<RemoteMetadata, RequestError> {
    let (mut attempts, fields) = (RetryState::default(), HeaderMap::new());
    let response = file(exchange, &mut attempts, target, Method::HEAD, fields, worth).await?;
    let metadata = RemoteMetadata {
        size: response.length(),
        ..RemoteMetadata::of(&response)
    };
    response.finish().await;
    Ok(metadata)
}

/// Return the type of a path: `None` if it does not exist, otherwise true for a directory.
///
/// # Errors
/// Error of the server.
pub(crate) async fn kind(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Result<Option<bool>, RequestError> {
    let entry_of = entry_of(exchange, target).await?;
    Ok(entry_of.map(|entry| entry.directory))
}

/// Return the listing entry of a path.
///
/// # Errors
/// Error of the server.
pub(crate) async fn entry_of(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Result<Option<DavEntry>, RequestError> {
    match propfind(exchange, target, "0", LARGEST_LISTING, |_| ()).await {
        Ok(entries) => match entries.into_iter().next() {
            None => Err(RequestError::UnexpectedResponse {
                expected: "a listing with at least one entry",
                found: "nothing".into(),
            }),
            entry => Ok(entry),
        },
        Err(RequestError::Status {
            status: StatusCode::NOT_FOUND,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Return a file as in a listing; none without listings, or for a directory.
pub(crate) async fn entry(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Option<RemoteMetadata> {
    let entry = entry_of(exchange, target).await.ok()??;
    (!entry.directory).then(|| RemoteMetadata::from(entry))
}

/// Return the existing metadata of a name in a listed directory; none if a request is necessary.
pub(crate) fn existing(
    order: &CopyOptions,
    names: Option<&MetadataByName>,
    name: &[u8],
) -> Option<Option<RemoteMetadata>> {
    trusted_listing(order, names?.get(name).cloned())
}

/// Return the existing metadata from a listing.
pub(crate) fn trusted_listing(
    order: &CopyOptions,
    found: Option<RemoteMetadata>,
) -> Option<Option<RemoteMetadata>> {
    (found.is_some() || is_listing_trusted(order)).then_some(found)
}

/// Return whether a listing without the destination proves that it does not exist. The listing of a cluster may
/// lack files of other servers, and a server without WebDAV returns 404. So it counts only if a mistake costs one
/// upload, and not if existing files must be kept.
pub(crate) fn is_listing_trusted(order: &CopyOptions) -> bool {
    order.existing == Existing::Update
}

/// Return the modification time from a listing, if the listing has this size.
pub(crate) async fn changed(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    size: u64,
) -> Option<SystemTime> {
    let entry = entry(exchange, target).await;
    entry.filter(|entry| entry.size == Some(size))?.modified
}

/// Entries of a directory by name.
pub(crate) type DavListing = Vec<(Vec<u8>, DavEntry)>;

/// Entries of a directory for lookups.
pub(crate) type MetadataByName = HashMap<Vec<u8>, RemoteMetadata>;

/// Return the entries of a directory by name; none if the path is a file.
///
/// # Errors
/// Error of the server, or entries outside of the directory.
pub(crate) async fn list(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Result<Option<DavListing>, RequestError> {
    as_written(exchange, &target.directory_url(), |_| ()).await
}

/// Return the entries of a directory by name, if it has about `max` names or fewer.
///
/// # Errors
/// As for [`list`], and for a file or too many names.
pub(crate) async fn names(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    max: usize,
) -> Result<MetadataByName, RequestError> {
    let max_bytes = (max + 1).saturating_mul(ENTRY_BYTES);
    match listed(exchange, target, max_bytes.min(LARGEST_LISTING), |_| ()).await {
        Ok(Some(listing)) => Ok(by_name(listing)),
        Ok(None) => Err(RequestError::UnexpectedResponse {
            expected: "a directory",
            found: "a file".into(),
        }),
        Err(fault) => Err(fault),
    }
}

/// Convert a listing to a map by name.
pub(crate) fn by_name(listing: DavListing) -> MetadataByName {
    let metadata = |(name, entry)| (name, RemoteMetadata::from(entry));
    listing.into_iter().map(metadata).collect()
}

/// Return the entries of a path that may be a file. `about` receives an estimated number of files first.
///
/// # Errors
/// As [`list`].
pub(crate) async fn as_written(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    about: impl FnOnce(u64),
) -> Result<Option<DavListing>, RequestError> {
    listed(exchange, target, LARGEST_LISTING, about).await
}

async fn listed(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    max_bytes: usize,
    about: impl FnOnce(u64),
) -> Result<Option<DavListing>, RequestError> {
    let entries = propfind(exchange, target, "1", max_bytes, about).await?;
    let own = target.directory_url().decoded_path();
    match &entries[..] {
        [only] if !only.directory => return Ok(None),
        // The directory itself is missing; an empty listing is not a listing of an empty directory.
        [] => {
            return Err(RequestError::UnexpectedResponse {
                expected: "a listing that contains the directory itself",
                found: "nothing".into(),
            });
        }
        _ => {}
    }
    let found = dav::children(&own, entries);
    found
        .map(Some)
        .map_err(|found| RequestError::UnexpectedResponse {
            expected: "names of entries in the directory",
            found,
        })
}

async fn propfind(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    depth: &'static str,
    max_bytes: usize,
    about: impl FnOnce(u64),
) -> Result<Vec<DavEntry>, RequestError> {
    let mut fields = HeaderMap::new();
    fields.insert(DEPTH, HeaderValue::from_static(depth));
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let body = || OutgoingBody::Whole(Bytes::from_static(dav::PROPFIND.as_bytes()));
    let method = Method::from_bytes(b"PROPFIND").expect("letters");
    let request = HttpRequest {
        body: &body,
        ..HttpRequest::plain(method, fields)
    };
    let (mut attempts, mut about) = (RetryState::default(), Some(about));
    let text = loop {
        let response = exchange
            .send_with(&mut attempts, target, &request, &[])
            .await?;
        if response.head.status != StatusCode::MULTI_STATUS {
            let found = format!(
                "{}, so the server does not support WebDAV",
                response.head.status
            );
            return Err(RequestError::UnexpectedResponse {
                expected: "a listing (207)",
                found,
            });
        }
        if let Some(about) = about.take() {
            about(response.length().unwrap_or(USUAL_LISTING) / ENTRY_BYTES as u64);
        }
        match response.text(max_bytes).await {
            Ok(text) => break text,
            Err(fault) => attempts.again(exchange, fault).await?,
        }
    };
    dav::entries(&text).map_err(|found| RequestError::UnexpectedResponse {
        expected: "a WebDAV listing",
        found,
    })
}

/// Create a directory if it does not exist.
///
/// # Errors
/// Error of the server.
pub(crate) async fn make(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
    with_parents: bool,
) -> Result<(), RequestError> {
    match make_one(exchange, target).await {
        Err(RequestError::Status {
            status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
            ..
        }) if with_parents => {
            make_parents(exchange, target).await?;
            make_one(exchange, target).await
        }
        other => other,
    }
}

/// Create the parent directories of a URL.
///
/// # Errors
/// Error of the server.
pub(crate) async fn make_parents(
    exchange: &Rc<HttpClient>,
    target: &HttpTarget,
) -> Result<(), RequestError> {
    let mut missing = Vec::new();
    let mut at = target.parent();
    // Go up to the first existing directory, then down again: a token may not permit access to the root.
    while let Some(directory) = at.filter(|_| missing.len() < DEEPEST) {
        match make_one(exchange, &directory).await {
            Ok(()) => break,
            Err(RequestError::Status {
                status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
                ..
            }) => {
                at = directory.parent();
                missing.push(directory);
            }
            Err(fault) => return Err(fault),
        }
    }
    for directory in missing.into_iter().rev() {
        make_one(exchange, &directory).await?;
    }
    Ok(())
}

async fn make_one(exchange: &Rc<HttpClient>, target: &HttpTarget) -> Result<(), RequestError> {
    let method = Method::from_bytes(b"MKCOL").expect("letters");
    let result = exchange
        .send(
            &target.directory_url(),
            &HttpRequest::plain(method, HeaderMap::new()),
            // The directory exists already (RFC 4918, section 9.3.1); XRootD 5.5 returns 201 for that too.
            &[StatusCode::METHOD_NOT_ALLOWED],
        )
        .await;
    result?.finish().await;
    Ok(())
}

/// Remove a file that must not stay; it stays if the server rejects this.
pub(crate) async fn remove(exchange: &Rc<HttpClient>, target: &HttpTarget) {
    let request = HttpRequest::plain(Method::DELETE, HeaderMap::new());
    if let Ok(response) = exchange.send(target, &request, &[]).await {
        response.finish().await;
    }
}
