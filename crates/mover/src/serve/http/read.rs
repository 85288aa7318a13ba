//! GET and HEAD.

use std::os::fd::AsFd;
use std::sync::Arc;

use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LAST_MODIFIED,
    RANGE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::answer::{Answer, Asked, Refusal, aside, empty, in_turn};
use super::body::{FileBody, Part, Reply};
use super::conditions::{etag, modified, of_reading};
use super::going::Going;
use super::list;
use crate::checksum::Algorithm;
use crate::http::digest;
use crate::http::outgoing::Outgoing;
use crate::http::range::{self, Asked as Ranges};
use crate::serve::host::Host;
use crate::serve::root::{Facts, Opened, checksum_while};

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
        return list::index(&asked).await;
    }
    if !opened.facts.is_file() {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "no file"));
    }
    if let Some(status) = of_reading(&asked.fields, &opened.facts) {
        let mut response = empty(status);
        mark(response.headers_mut(), &opened.facts);
        return Ok(response);
    }
    let digest = checksum(&asked, &host, &opened).await?;
    let mut response = ranges(asked, opened);
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
            // Gone with this request: nobody reads on for a client that is.
            let wanted = Arc::new(());
            let request = Arc::downgrade(&wanted);
            let value = in_turn(asked, move || {
                let wanted = || request.strong_count() > 0;
                Ok(checksum_while(wanted, file.as_fd(), algorithm, 0, None)?)
            })
            .await?;
            drop(wanted);
            if let (Algorithm::Adler32, Ok(bytes)) = (algorithm, <[u8; 4]>::try_from(&value[..])) {
                host.web.known.keep(&facts, u32::from_be_bytes(bytes));
            }
            value
        }
        None => return Ok(None),
    };
    Ok(Some(((algorithm, value), asked.fields.clone())))
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

fn ranges(asked: Asked, opened: Opened) -> Answer {
    let facts = opened.facts;
    let fresh = asked.fields.get(IF_RANGE).is_none_or(|tag| {
        let date = tag.to_str().ok().map(httpdate::parse_http_date);
        *tag == etag(&facts)
            || date.is_some_and(|date| date.is_ok_and(|date| date == modified(&facts)))
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
        Reply::Plain(Outgoing::EMPTY)
    } else {
        sent(asked, opened, parts, status)
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

fn sent(asked: Asked, opened: Opened, parts: Vec<Part>, status: StatusCode) -> Reply {
    let going = Going::new(&asked, "GET");
    let passing = asked.connection.passing.clone();
    Reply::File(FileBody::new(
        (going, status),
        Arc::new(opened.file),
        parts,
        (asked.active, passing),
    ))
}
