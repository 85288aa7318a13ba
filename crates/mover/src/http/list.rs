//! What is there at a server, and directories that are made there.

use std::rc::Rc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::answer::Answer;
use super::dav::{self, Entry};
use super::digest::{self, Digest};
use super::exchange::{Ask, Exchange};
use super::fault::Fault;
use super::outgoing::Outgoing;
use super::target::Target;

/// Bytes of one listing: about a quarter of a million names.
const LARGEST_LISTING: usize = 256 << 20;
/// Directories of one path that are made.
const DEEPEST: usize = 256;
/// RFC 4918, section 10.2.
const DEPTH: HeaderName = HeaderName::from_static("depth");

/// What a server says of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) etag: Option<String>,
    pub(crate) digests: Vec<Digest>,
}

impl From<Entry> for Facts {
    fn from(entry: Entry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
            etag: entry.etag,
            digests: Vec::new(),
        }
    }
}

impl Facts {
    /// Of an answer: what its head says, the size aside, which depends on what was asked for.
    pub(crate) fn of(answer: &Answer) -> Self {
        Self {
            size: None,
            modified: answer
                .field(&LAST_MODIFIED)
                .and_then(|text| httpdate::parse_http_date(text).ok()),
            etag: answer.field(&ETAG).map(str::to_owned),
            digests: digest::found(&answer.head.headers),
        }
    }

    /// What tells this version from another: a strong tag, else the time. None where the server says neither.
    pub(crate) fn identity(&self) -> Option<String> {
        let strong = self.etag.as_ref().filter(|tag| !tag.starts_with("W/"));
        strong
            .cloned()
            .or_else(|| self.modified.map(httpdate::fmt_http_date))
    }
}

/// Fields that every request for a file has: its bytes as they are, and its checksum if it is at hand.
pub(crate) fn usual_fields() -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    digest::ask(&mut fields);
    fields
}

/// What a server says of a file, with its checksum if it has one.
///
/// # Errors
/// If it says nothing.
pub(crate) async fn head(exchange: &Rc<Exchange>, place: &Target) -> Result<Facts, Fault> {
    let answer = exchange
        .ask(place, &Ask::plain(Method::HEAD, usual_fields()), &[])
        .await?;
    let facts = Facts {
        size: answer.length(),
        ..Facts::of(&answer)
    };
    answer.finish().await;
    Ok(facts)
}

/// What is at a place: `None` is nothing, else a collection or a file.
///
/// # Errors
/// If the server does not say.
pub(crate) async fn kind(exchange: &Rc<Exchange>, place: &Target) -> Result<Option<bool>, Fault> {
    match propfind(exchange, place, "0").await {
        Ok(entries) => Ok(Some(entries.first().is_some_and(|entry| entry.directory))),
        Err(Fault::Status {
            status: StatusCode::NOT_FOUND,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// What is in a collection, by name; none if it is a file.
///
/// # Errors
/// If the server does not say, or names what is not in it.
pub(crate) async fn list(
    exchange: &Rc<Exchange>,
    place: &Target,
) -> Result<Option<Vec<(Vec<u8>, Entry)>>, Fault> {
    let entries = propfind(exchange, &place.collection(), "1").await?;
    let own = place.collection().decoded_path();
    if let [only] = &entries[..]
        && !only.directory
    {
        return Ok(None);
    }
    let found = dav::children(&own, entries);
    found.map(Some).map_err(|found| Fault::Answer {
        expected: "names of what is in the directory",
        found,
    })
}

async fn propfind(
    exchange: &Rc<Exchange>,
    place: &Target,
    depth: &'static str,
) -> Result<Vec<Entry>, Fault> {
    let mut fields = HeaderMap::new();
    fields.insert(DEPTH, HeaderValue::from_static(depth));
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let body = || Outgoing::Whole(Bytes::from_static(dav::PROPFIND.as_bytes()));
    let method = Method::from_bytes(b"PROPFIND").expect("letters");
    let ask = Ask {
        method,
        fields,
        body: &body,
        expects: false,
    };
    let answer = exchange.ask(place, &ask, &[]).await?;
    if answer.head.status != StatusCode::MULTI_STATUS {
        let found = format!("{}, as of a server without WebDAV", answer.head.status);
        return Err(Fault::Answer {
            expected: "a listing (207)",
            found,
        });
    }
    let text = answer.text(LARGEST_LISTING).await?;
    dav::entries(&text).map_err(|found| Fault::Answer {
        expected: "a listing of WebDAV",
        found,
    })
}

/// Makes a collection. True if it is new, false if it was there.
///
/// # Errors
/// If the server does not.
pub(crate) async fn make(
    exchange: &Rc<Exchange>,
    place: &Target,
    with_parents: bool,
) -> Result<bool, Fault> {
    match make_one(exchange, place).await {
        Err(Fault::Status {
            status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
            ..
        }) if with_parents => {
            make_parents(exchange, place).await?;
            make_one(exchange, place).await
        }
        other => other,
    }
}

/// Makes the collections that lead to a place.
///
/// # Errors
/// If the server does not.
pub(crate) async fn make_parents(exchange: &Rc<Exchange>, place: &Target) -> Result<(), Fault> {
    let mut missing = Vec::new();
    let mut at = place.parent();
    // Upwards until one is there, then down again: a token may not reach as far up as the root.
    while let Some(folder) = at.filter(|_| missing.len() < DEEPEST) {
        match make_one(exchange, &folder).await {
            Ok(_) => break,
            Err(Fault::Status {
                status: StatusCode::CONFLICT | StatusCode::NOT_FOUND,
                ..
            }) => {
                at = folder.parent();
                missing.push(folder);
            }
            Err(fault) => return Err(fault),
        }
    }
    for folder in missing.into_iter().rev() {
        make_one(exchange, &folder).await?;
    }
    Ok(())
}

async fn make_one(exchange: &Rc<Exchange>, place: &Target) -> Result<bool, Fault> {
    let method = Method::from_bytes(b"MKCOL").expect("letters");
    let asked = exchange
        .ask(
            &place.collection(),
            &Ask::plain(method, HeaderMap::new()),
            &[StatusCode::METHOD_NOT_ALLOWED],
        )
        .await;
    let answer = asked?;
    // RFC 4918, section 9.3.1: what is there already is 405.
    let is_new = answer.head.status != StatusCode::METHOD_NOT_ALLOWED;
    answer.finish().await;
    Ok(is_new)
}
