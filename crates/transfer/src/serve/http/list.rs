//! Directory listings: PROPFIND, an HTML page, and PROPPATCH.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::body::ResponseBody;
use super::conditions::{Conditions, etag, modified};
use super::properties::{self, PropertyChanges, PropfindRequest};
use super::response::{ErrorResponse, ParsedRequest, ResponseResult, aside, empty};
use crate::http::dav::DavEntry;
use crate::http::outgoing::{Blocks, OutgoingBody};
use crate::net::url::encoded;
use crate::serve::confined_root::ServedMetadata;
use crate::serve::confined_root::listing::RootListing;
use crate::serve::state::ServerState;

/// Number of entries per read.
const LISTED: usize = 512;
/// Maximum bytes of a PROPFIND or PROPPATCH body.
const MAX_REQUEST_BYTES: usize = 64 << 10;
pub(super) const DEPTH: HeaderName = HeaderName::from_static("depth");

/// Return an HTML page of a directory for browsers, and for clients that read links.
pub(super) async fn index(request: &ParsedRequest) -> ResponseResult {
    if !request.path.ends_with(b"/") {
        let mut response = empty(StatusCode::MOVED_PERMANENTLY);
        let uri = HeaderValue::try_from(encoded(&request.path) + "/").expect("encoded");
        response.headers_mut().insert(LOCATION, uri);
        return Ok(response);
    }
    let (host, path, active) = (
        Arc::clone(&request.connection.host),
        request.path.clone(),
        super::session::RequestGuard::new(&request.connection.activity),
    );
    let body = listed(
        host,
        path,
        None,
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n".into(),
        "".into(),
        |_, name, metadata| {
            let slash = if metadata.is_directory() { "/" } else { "" };
            let shown = String::from_utf8_lossy(name);
            // The `./` keeps a name with a colon from being a scheme.
            format!(
                "<a href=\"./{}{slash}\">{}{slash}</a><br>\n",
                encoded(name),
                quick_xml::escape::escape(&*shown)
            )
        },
    );
    let mut response = Response::new(ResponseBody::Watched(body, active));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    Ok(response)
}

/// Stream of a listing between a start and an end. Some entries are read at a time, so a slow client does not block
/// a disk thread. Without a listing, it is opened with the first entries.
fn listed(
    host: Arc<ServerState>,
    path: Vec<u8>,
    mut listing: Option<RootListing>,
    start: String,
    mut end: String,
    line: impl Fn(&[u8], &[u8], &ServedMetadata) -> String + Clone + Send + 'static,
) -> OutgoingBody {
    let (sender, blocks) = mpsc::channel(2);
    tokio::task::spawn_local(async move {
        let (mut text, mut more) = (start, true);
        while more {
            let (host, path, line) = (Arc::clone(&host), path.clone(), line.clone());
            let started = listing.take();
            let read = aside(move || {
                let mut listing = match started {
                    Some(listing) => listing,
                    None => host.root.list(&path, false)?,
                };
                let mut entries = Vec::new();
                let more = listing.next(&host.root, LISTED, &mut entries)?;
                let lines = entries.iter();
                let lines = lines.map(|entry| line(&path, &entry.name, &entry.metadata));
                Ok((lines.collect::<String>(), listing, more))
            });
            let block = read.await.map(|(lines, read, goes_on)| {
                (listing, more) = (Some(read), goes_on);
                Bytes::from(std::mem::take(&mut text) + &lines)
            });
            // The head was sent; the body can only be left incomplete.
            let block = block.map_err(|rejection| std::io::Error::other(rejection.text));
            if block.is_err() {
                more = false;
                end.clear();
            }
            if sender.send(block).await.is_err() {
                return;
            }
        }
        let _ = sender.send(Ok(end.into())).await;
    });
    OutgoingBody::Stream {
        blocks: Blocks::Coming(blocks),
        remaining: None,
        gate: None,
    }
}

fn entry(path: Vec<u8>, metadata: &ServedMetadata) -> DavEntry {
    DavEntry {
        path,
        directory: metadata.is_directory(),
        size: metadata.is_file().then_some(metadata.bytes),
        modified: Some(modified(metadata)),
        etag: metadata.is_file().then(|| etag(metadata)),
    }
}

/// PROPFIND.
pub(crate) async fn propfind(mut parsed: ParsedRequest) -> ResponseResult {
    let body = request(&mut parsed).await?;
    let requested = Arc::new(PropfindRequest::read(&body).map_err(wrong)?);
    let depth = parsed.field(&DEPTH).unwrap_or("infinity").to_owned();
    if depth != "0" && depth != "1" {
        // RFC 4918, section 9.1.1.
        return Err(ErrorResponse::new(
            StatusCode::FORBIDDEN,
            "expected Depth: 0 or 1 (propfind-finite-depth)",
        ));
    }
    let (host, path) = (Arc::clone(&parsed.connection.host), parsed.path.clone());
    let shared = Arc::clone(&host);
    let listed_too = depth == "1";
    let (metadata, listing) = aside(move || {
        let metadata = shared.root.stat(&path)?;
        // An unreadable directory is rejected before the head is sent.
        let listing = (listed_too && metadata.is_directory())
            .then(|| shared.root.list(&path, false))
            .transpose()?;
        Ok((metadata, listing))
    })
    .await?;
    let own = properties::response(&entry(parsed.path.clone(), &metadata), &requested);
    let start = format!("{}{own}", properties::START);
    let body = if listing.is_some() {
        listed(
            host,
            parsed.path,
            listing,
            start,
            properties::END.into(),
            move |path, name, metadata| {
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                if metadata.is_file() || metadata.is_directory() {
                    properties::response(&entry([path, slash, name].concat(), metadata), &requested)
                } else {
                    String::new()
                }
            },
        )
    } else {
        OutgoingBody::Whole((start + properties::END).into())
    };
    Ok(multistatus(ResponseBody::Watched(body, parsed.active)))
}

/// PROPPATCH: reject changes of properties, because client properties are not stored.
pub(crate) async fn proppatch(mut parsed: ParsedRequest) -> ResponseResult {
    parsed.may_write()?;
    let body = request(&mut parsed).await?;
    let changes = PropertyChanges::read(&body).map_err(wrong)?;
    let (host, path) = (Arc::clone(&parsed.connection.host), parsed.path.clone());
    let conditions = Conditions::of(&parsed)?;
    let metadata = aside(move || {
        let metadata = host.root.stat(&path)?;
        conditions.check(&host.root)?;
        Ok(metadata)
    });
    let fields = changes.fields(&entry(parsed.path.clone(), &metadata.await?));
    let text = [properties::START, &fields, properties::END].concat();
    Ok(multistatus(ResponseBody::Plain(OutgoingBody::Whole(
        text.into(),
    ))))
}

fn wrong(found: String) -> ErrorResponse {
    let text = format!("expected a request body as in RFC 4918, found {found}");
    ErrorResponse::new(StatusCode::BAD_REQUEST, text)
}

fn multistatus(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/xml; charset=utf-8"),
    );
    response
}

/// Read a body up to the limit.
pub(crate) async fn request(parsed: &mut ParsedRequest) -> Result<Vec<u8>, ErrorResponse> {
    let mut body = Vec::new();
    while let Some(frame) = parsed.body.frame().await {
        let frame = frame.map_err(|_| {
            ErrorResponse::new(StatusCode::BAD_REQUEST, "the request body is incomplete")
        })?;
        if let Ok(data) = frame.into_data() {
            body.extend(data);
        }
        if body.len() > MAX_REQUEST_BYTES {
            return Err(ErrorResponse::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "expected a request body of at most 64 KiB",
            ));
        }
    }
    Ok(body)
}
