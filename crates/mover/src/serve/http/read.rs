//! GET, HEAD and PROPFIND.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, LOCATION,
    RANGE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::answer::{Answer, Asked, Refusal, aside, empty, patient};
use super::body::{FileBody, Part, Reply};
use crate::checksum::Algorithm;
use crate::http::dav::{self, Entry};
use crate::http::digest;
use crate::http::outgoing::Outgoing;
use crate::http::range::{self, Asked as Ranges};
use crate::net::url::encoded;
use crate::serve::host::Host;
use crate::serve::log::Transfer;
use crate::serve::metrics;
use crate::serve::root::{Facts, Opened, checksum_of};

/// Entries that are listed at a time.
const LISTED: usize = 512;
/// Bytes of a question of PROPFIND.
const MAX_QUESTION_BYTES: usize = 64 << 10;
const DEPTH: HeaderName = HeaderName::from_static("depth");

/// The tag of a version: another one after each change.
pub(crate) fn etag(facts: &Facts) -> String {
    let (device, inode) = facts.identity;
    format!(
        "\"{device:x}-{inode:x}-{:x}-{:x}.{:x}\"",
        facts.bytes, facts.modified_s, facts.modified_ns
    )
}

pub(crate) fn modified(facts: &Facts) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(facts.modified_s).unwrap_or(0))
}

/// GET and HEAD.
pub(crate) async fn get(asked: Asked) -> Answer {
    let host = Arc::clone(&asked.connection.host);
    let opened = match host.root.read_at_once(&asked.path)? {
        Some(opened) => opened,
        None => {
            let (host, path) = (Arc::clone(&host), asked.path.clone());
            aside(move || Ok(host.root.read(&path)?)).await?
        }
    };
    if opened.facts.is_directory() {
        return index(&asked).await;
    }
    if !opened.facts.is_file() {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "no file"));
    }
    if let Some(status) = condition(&asked.fields, &opened.facts) {
        let mut response = empty(status);
        mark(response.headers_mut(), &opened.facts);
        return Ok(response);
    }
    let digest = checksum(&asked, &host, &opened).await?;
    let mut response = ranges(asked, host, opened);
    if let (Some((digest, wanted)), Ok(response)) = (digest, &mut response) {
        digest::tell(response.headers_mut(), &wanted, &digest);
    }
    response
}

/// The checksum, where one is wanted: of HEAD in any case, of GET only if it is known, since a client that wants the bytes would wait for two readings.
async fn checksum(
    asked: &Asked,
    host: &Arc<Host>,
    opened: &Opened,
) -> Result<Option<(digest::Digest, HeaderMap)>, Refusal> {
    let Some(algorithm) = digest::wanted(&asked.fields) else {
        return Ok(None);
    };
    let facts = opened.facts;
    let known = if algorithm == Algorithm::Adler32 {
        host.web.known.find(&facts)
    } else {
        None
    };
    let value = match known {
        Some(known) => known.to_be_bytes().to_vec(),
        None if asked.method == Method::HEAD => {
            let file = opened.file.try_clone().map_err(|_| {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many open files")
            })?;
            let value = patient(&asked.active, move || {
                Ok(checksum_of(file.as_fd(), algorithm, 0, None)?)
            })
            .await?;
            if let (Algorithm::Adler32, Ok(bytes)) = (algorithm, <[u8; 4]>::try_from(&value[..])) {
                host.web.known.keep(&facts, u32::from_be_bytes(bytes));
            }
            value
        }
        None => return Ok(None),
    };
    Ok(Some(((algorithm, value), asked.fields.clone())))
}

/// What conditions say (RFC 9110, section 13.2.2): none, go on.
pub(crate) fn condition(fields: &HeaderMap, facts: &Facts) -> Option<StatusCode> {
    let text = |name: &HeaderName| fields.get(name).and_then(|value| value.to_str().ok());
    let has =
        |list: &str| list.trim() == "*" || list.split(',').any(|tag| tag.trim() == etag(facts));
    let date = |name: &HeaderName| text(name).and_then(|text| httpdate::parse_http_date(text).ok());
    if let Some(list) = text(&IF_MATCH) {
        if !has(list) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if date(&IF_UNMODIFIED_SINCE).is_some_and(|since| modified(facts) > since) {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    if let Some(list) = text(&IF_NONE_MATCH) {
        if has(&list.replace("W/", "")) {
            return Some(StatusCode::NOT_MODIFIED);
        }
    } else if date(&IF_MODIFIED_SINCE).is_some_and(|since| modified(facts) <= since) {
        return Some(StatusCode::NOT_MODIFIED);
    }
    None
}

fn mark(fields: &mut HeaderMap, facts: &Facts) {
    fields.insert(ETAG, HeaderValue::try_from(etag(facts)).expect("digits"));
    let date = httpdate::fmt_http_date(modified(facts));
    fields.insert(
        LAST_MODIFIED,
        HeaderValue::try_from(date).expect("letters and digits"),
    );
    fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

fn ranges(asked: Asked, host: Arc<Host>, opened: Opened) -> Answer {
    let facts = opened.facts;
    let fresh = asked.field(&IF_RANGE).is_none_or(|tag| {
        tag == etag(&facts)
            || httpdate::parse_http_date(tag).is_ok_and(|date| date == modified(&facts))
    });
    let field = asked
        .field(&RANGE)
        .filter(|_| fresh && asked.method == Method::GET);
    let size = facts.bytes;
    let mut fields = HeaderMap::new();
    mark(&mut fields, &facts);
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    let (status, parts) = match range::asked(field, size) {
        Ranges::Whole => (StatusCode::OK, vec![Part::Range(0..size)]),
        Ranges::Nothing => {
            let mut refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "no such bytes");
            refusal.fields.insert(
                CONTENT_RANGE,
                HeaderValue::try_from(format!("bytes */{size}")).expect("digits"),
            );
            return Err(refusal);
        }
        Ranges::Ranges(ranges) => match &ranges[..] {
            [one] => {
                fields.insert(
                    CONTENT_RANGE,
                    HeaderValue::try_from(range::content_range(one, size)).expect("digits"),
                );
                (StatusCode::PARTIAL_CONTENT, vec![Part::Range(one.clone())])
            }
            several => {
                let (parts, kind) = multipart(several, &facts);
                fields.insert(
                    CONTENT_TYPE,
                    HeaderValue::try_from(kind).expect("letters and digits"),
                );
                (StatusCode::PARTIAL_CONTENT, parts)
            }
        },
    };
    let body = if asked.method == Method::HEAD {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(size));
        Reply::Plain(Outgoing::Empty)
    } else {
        sent(asked, host, opened, parts, status)
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    Ok(response)
}

/// RFC 9110, section 14.6.
fn multipart(ranges: &[std::ops::Range<u64>], facts: &Facts) -> (Vec<Part>, String) {
    let (device, inode) = facts.identity;
    // Whoever makes a file that has this line in it only confuses who reads that file.
    let boundary = format!("venturi-{device:x}-{inode:x}-{:x}", facts.modified_ns);
    let mut parts = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        let begin = if index == 0 { "" } else { "\r\n" };
        let content = range::content_range(range, facts.bytes);
        let text = format!(
            "{begin}--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: {content}\r\n\r\n"
        );
        parts.extend([Part::Text(text.into()), Part::Range(range.clone())]);
    }
    parts.push(Part::Text(format!("\r\n--{boundary}--\r\n").into()));
    (parts, format!("multipart/byteranges; boundary={boundary}"))
}

fn sent(
    asked: Asked,
    host: Arc<Host>,
    opened: Opened,
    parts: Vec<Part>,
    status: StatusCode,
) -> Reply {
    let Asked {
        connection,
        path,
        user,
        start,
        active,
        ..
    } = asked;
    metrics::add(&host.metrics.transfers_active, 1);
    let shared = Arc::clone(&host);
    let passing = connection.passing.clone();
    let told = move |bytes, whole| {
        shared
            .metrics
            .transfers_active
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        metrics::add(
            if whole {
                &shared.metrics.transfers_done
            } else {
                &shared.metrics.transfers_failed
            },
            1,
        );
        shared.log.transfer(&Transfer {
            session: connection.number,
            peer: connection.peer,
            user: user.as_bytes(),
            command: "GET",
            path: &path,
            bytes,
            // 499: the client went away, as nginx writes it.
            code: if whole { status.as_u16() } else { 499 },
            start,
            streams: 1,
            peers: &[connection.peer.ip()],
            block_bytes: 0,
            buffer_bytes: 0,
        });
    };
    Reply::File(FileBody::new(
        host,
        Arc::new(opened.file),
        parts,
        (active, passing),
        Box::new(told),
    ))
}

/// A directory for people with a browser, and for clients that read links.
async fn index(asked: &Asked) -> Answer {
    if !asked.path.ends_with(b"/") {
        let mut response = empty(StatusCode::MOVED_PERMANENTLY);
        let place = HeaderValue::try_from(encoded(&asked.path) + "/").expect("encoded");
        response.headers_mut().insert(LOCATION, place);
        return Ok(response);
    }
    let (host, path, active) = (
        Arc::clone(&asked.connection.host),
        asked.path.clone(),
        super::session::Active::new(&asked.connection.pulse),
    );
    let body = listed(
        host,
        path,
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n".into(),
        "".into(),
        |_, name, facts| {
            let slash = if facts.is_directory() { "/" } else { "" };
            let shown = String::from_utf8_lossy(name);
            // The `./` keeps a name with a colon from being a scheme.
            format!(
                "<a href=\"./{}{slash}\">{}{slash}</a><br>\n",
                encoded(name),
                quick_xml::escape::escape(&*shown)
            )
        },
    );
    let mut response = Response::new(Reply::Watched(body, active));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    Ok(response)
}

/// A listing as it is read, between a begin and an end.
fn listed(
    host: Arc<Host>,
    path: Vec<u8>,
    begin: String,
    end: String,
    line: impl Fn(&[u8], &[u8], &Facts) -> String + Send + 'static,
) -> Outgoing {
    let (sender, blocks) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        let send =
            |text: String| text.is_empty() || sender.blocking_send(Ok(Bytes::from(text))).is_ok();
        let Ok(mut listing) = host.root.list(&path, false) else {
            let _ = sender.blocking_send(Err(std::io::ErrorKind::NotFound.into()));
            return;
        };
        if !send(begin) {
            return;
        }
        let mut entries = Vec::new();
        loop {
            entries.clear();
            match listing.next(&host.root, LISTED, &mut entries) {
                Ok(more) => {
                    let text = entries
                        .iter()
                        .map(|entry| line(&path, &entry.name, &entry.facts))
                        .collect();
                    if !send(text) {
                        return;
                    }
                    if !more {
                        break;
                    }
                }
                Err(errno) => {
                    let _ = sender.blocking_send(Err(errno.into()));
                    return;
                }
            }
        }
        send(end);
    });
    Outgoing::Stream {
        blocks,
        left: None,
        gate: None,
    }
}

fn entry(path: Vec<u8>, facts: &Facts) -> Entry {
    Entry {
        path,
        directory: facts.is_directory(),
        size: facts.is_file().then_some(facts.bytes),
        modified: Some(modified(facts)),
        etag: facts.is_file().then(|| etag(facts)),
    }
}

/// PROPFIND, with the properties that there are, whichever are asked for.
pub(crate) async fn propfind(mut asked: Asked) -> Answer {
    question(&mut asked).await?;
    let depth = asked.field(&DEPTH).unwrap_or("infinity").to_owned();
    if depth != "0" && depth != "1" {
        // RFC 4918, section 9.1.1.
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "Depth: 0 or 1 is needed (propfind-finite-depth)",
        ));
    }
    let (host, path) = (Arc::clone(&asked.connection.host), asked.path.clone());
    let shared = Arc::clone(&host);
    let facts = aside(move || Ok(shared.root.stat(&path)?)).await?;
    let own = dav::response(&entry(asked.path.clone(), &facts));
    let begin = format!("{}{own}", dav::BEGIN);
    let body = if depth == "1" && facts.is_directory() {
        listed(
            host,
            asked.path,
            begin,
            dav::END.into(),
            |path, name, facts| {
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                if facts.is_file() || facts.is_directory() {
                    dav::response(&entry([path, slash, name].concat(), facts))
                } else {
                    String::new()
                }
            },
        )
    } else {
        Outgoing::Whole((begin + dav::END).into())
    };
    let mut response = Response::new(Reply::Watched(body, asked.active));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/xml; charset=utf-8"),
    );
    Ok(response)
}

/// Reads a body that does not matter, up to a bound.
pub(crate) async fn question(asked: &mut Asked) -> Result<(), Refusal> {
    let mut bytes = 0;
    while let Some(frame) = asked.body.frame().await {
        let frame =
            frame.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MAX_QUESTION_BYTES {
            return Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "a question of at most 64 KiB is expected",
            ));
        }
    }
    Ok(())
}
