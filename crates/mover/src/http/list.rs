//! What is there at a server, and directories that are made there.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::answer::Answer;
use super::connect::Manner;
use super::dav::{self, Entry};
use super::digest::{self, Digest};
use super::exchange::{Ask, Exchange, PATIENCE};
use super::fault::Fault;
use super::outgoing::Outgoing;
use super::target::Target;
use super::tries::Tries;
use super::wait::within;
use crate::order::{Existing, Order};

/// Bytes of one listing: about a quarter of a million names.
const LARGEST_LISTING: usize = 256 << 20;
/// Bytes that a listing has of a file: 500 (XRootD) to 1000 (Apache).
const ENTRY_BYTES: usize = 600;
/// Bytes of a listing that does not say how long it is, as far as one has to guess.
const USUAL_LISTING: u64 = 64 * ENTRY_BYTES as u64;
/// Directories of one path that are made.
const DEEPEST: usize = 256;
/// How long a server may take that is asked for a checksum that is worth little.
const MOST_FOR_LITTLE: Duration = Duration::from_secs(5);
/// How long XRootD (5.5) is waited for first: it leaves one of some hundred requests for a checksum without an answer. What it computes for longer, it
/// goes on with, and has at hand when it is asked again.
const MOST_FOR_FORGOTTEN: Duration = Duration::from_secs(10);
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

/// How much a checksum is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Nothing.
    Nothing,
    /// A line in the head of an answer, if the server has it at hand. One that has not answered yet, and may compute it first, is asked by the new
    /// field alone: what it does not tell then, [`digests`] asks for.
    Little,
    /// As long as the server takes to compute it.
    Waiting,
}

impl Worth {
    /// For who needs it, or does not.
    pub(crate) fn of(needed: bool) -> Self {
        if needed { Self::Waiting } else { Self::Nothing }
    }
}

/// Asks for a file, its bytes as they are.
///
/// XRootD (5.5) computes a checksum that it is asked for before it sends the first byte, some at a time, and refuses a file whose checksum it cannot
/// tell: with 405 where it may compute none, with 500 where a name is in the way. One of some hundred such requests ends it: it goes on with a
/// connection that it has given back (a SIGSEGV, also by curl). So it is asked only where that is worth waiting for, and a server that turns out
/// to be like that, for nothing more than bytes.
///
/// # Errors
/// If the server does not give it.
pub(crate) async fn file(
    exchange: &Rc<Exchange>,
    tries: &mut Tries,
    place: &Target,
    method: Method,
    mut fields: HeaderMap,
    worth: Worth,
) -> Result<Answer, Fault> {
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let shorter = [StatusCode::RANGE_NOT_SATISFIABLE];
    let mut plain = Ask::plain(method, fields);
    let mut with = Ask::plain(plain.method.clone(), plain.fields.clone());
    match (worth, exchange.manner(place)) {
        (Worth::Little, None) => digest::ask_anew(&mut with.fields),
        _ => digest::ask(&mut with.fields),
    }
    match worth {
        Worth::Nothing => {}
        Worth::Waiting => {
            if exchange.manner(place) == Some(Manner::Listed) {
                with.patience = MOST_FOR_FORGOTTEN;
                match exchange.ask_as(tries, place, &with, &shorter).await {
                    Err(Fault::Silence(_)) => with.patience = PATIENCE,
                    other => return other,
                }
            }
            plain = with;
        }
        Worth::Little => {
            with.patience = MOST_FOR_LITTLE;
            loop {
                match at_hand(exchange, place, &with).await {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => break,
                    Err(fault) => tries.again(exchange, fault).await?,
                }
            }
        }
    }
    let mut answer = exchange.ask_as(tries, place, &plain, &shorter).await?;
    digest::forget(&mut answer.head.headers, &plain.fields);
    Ok(answer)
}

/// Asks for what has a checksum in its head; none of a server that is better asked for nothing but bytes.
async fn at_hand(
    exchange: &Rc<Exchange>,
    place: &Target,
    with: &Ask<'_>,
) -> Result<Option<Answer>, Fault> {
    if exchange.manner(place) > Some(Manner::Full) {
        return Ok(None);
    }
    let mut answer = exchange.try_once(place, with).await?;
    if let Some(answer) = &mut answer {
        digest::forget(&mut answer.head.headers, &with.fields);
    }
    Ok(answer)
}

/// The checksums of a file that is being fetched, and whose first answer did not tell them since they were not asked for by the old field: those of
/// the same version, that the server has at hand. A byte is asked for with them: of `HEAD` some compute them.
///
/// All of it takes no longer than it is worth; who lets that pass is asked for bytes alone from then on.
pub(crate) async fn digests(exchange: &Rc<Exchange>, place: &Target, of: &Facts) -> Vec<Digest> {
    let mut fields = HeaderMap::new();
    fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    fields.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
    digest::ask(&mut fields);
    let ask = Ask::plain(Method::GET, fields);
    let asked = async {
        let answer = at_hand(exchange, place, &ask).await.ok()??;
        let told = Facts::of(&answer);
        answer.finish().await;
        Some(told)
    };
    match within(exchange.connections.stop(), MOST_FOR_LITTLE, asked).await {
        Ok(Some(told)) if told.identity() == of.identity() => told.digests,
        Err(Fault::Silence(_)) => {
            exchange.connections.remember(&place.server, Manner::Plain);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// What a server says of a file.
///
/// # Errors
/// If it says nothing.
pub(crate) async fn head(
    exchange: &Rc<Exchange>,
    place: &Target,
    worth: Worth,
) -> Result<Facts, Fault> {
    let (mut tries, fields) = (Tries::default(), HeaderMap::new());
    let answer = file(exchange, &mut tries, place, Method::HEAD, fields, worth).await?;
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
    let seen = seen(exchange, place).await?;
    Ok(seen.map(|entry| entry.directory))
}

/// The same with what a listing has of it.
///
/// # Errors
/// If the server does not say.
pub(crate) async fn seen(exchange: &Rc<Exchange>, place: &Target) -> Result<Option<Entry>, Fault> {
    match propfind(exchange, place, "0", LARGEST_LISTING, |_| ()).await {
        Ok(entries) => match entries.into_iter().next() {
            None => Err(Fault::Answer {
                expected: "a listing with what is there",
                found: "nothing".into(),
            }),
            entry => Ok(entry),
        },
        Err(Fault::Status {
            status: StatusCode::NOT_FOUND,
            ..
        }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A file as a listing has it; none if there are no listings, or of a directory.
pub(crate) async fn entry(exchange: &Rc<Exchange>, place: &Target) -> Option<Facts> {
    let entry = seen(exchange, place).await.ok()??;
    (!entry.directory).then(|| Facts::from(entry))
}

/// What is at the place of a copy of this name, if anything, in a collection that was listed; none if the server has to be asked.
pub(crate) fn there(order: &Order, names: Option<&Names>, name: &[u8]) -> Option<Option<Facts>> {
    believed(order, names?.get(name).cloned())
}

/// The same of what a listing has of it.
pub(crate) fn believed(order: &Order, found: Option<Facts>) -> Option<Option<Facts>> {
    (found.is_some() || is_believed(order)).then_some(found)
}

/// Whether a listing is believed that lacks what would be at the place of a copy. It may lack what is there: that of a server of a cluster what others have, and
/// 404 is also the answer of one without WebDAV. So it is where that costs an upload, and not where what is there is to be kept.
pub(crate) fn is_believed(order: &Order) -> bool {
    order.existing == Existing::Update
}

/// When a listing has it that a file of this size was changed last.
pub(crate) async fn changed(
    exchange: &Rc<Exchange>,
    place: &Target,
    size: u64,
) -> Option<SystemTime> {
    let entry = entry(exchange, place).await;
    entry.filter(|entry| entry.size == Some(size))?.modified
}

/// What is in a collection, by name.
pub(crate) type Listing = Vec<(Vec<u8>, Entry)>;

/// What is in a collection, to be looked up.
pub(crate) type Names = HashMap<Vec<u8>, Facts>;

/// What is in a collection, by name; none if it is a file.
///
/// # Errors
/// If the server does not say, or names what is not in it.
pub(crate) async fn list(
    exchange: &Rc<Exchange>,
    place: &Target,
) -> Result<Option<Listing>, Fault> {
    as_written(exchange, &place.collection(), |_| ()).await
}

/// The same by name, if it has not many more than so many names.
///
/// # Errors
/// As of [`list`], of a file or of more names, too.
pub(crate) async fn names(
    exchange: &Rc<Exchange>,
    place: &Target,
    most: usize,
) -> Result<Names, Fault> {
    let most_bytes = (most + 1).saturating_mul(ENTRY_BYTES);
    match listed(exchange, place, most_bytes.min(LARGEST_LISTING), |_| ()).await {
        Ok(Some(listing)) => Ok(by_name(listing)),
        Ok(None) => Err(Fault::Answer {
            expected: "a directory",
            found: "a file".into(),
        }),
        Err(fault) => Err(fault),
    }
}

/// A listing by name.
pub(crate) fn by_name(listing: Listing) -> Names {
    let facts = |(name, entry)| (name, Facts::from(entry));
    listing.into_iter().map(facts).collect()
}

/// The same of a place that may as well be a file's; what comes is told beforehand, as a number of files that is not exact.
///
/// # Errors
/// As of [`list`].
pub(crate) async fn as_written(
    exchange: &Rc<Exchange>,
    place: &Target,
    about: impl FnOnce(u64),
) -> Result<Option<Listing>, Fault> {
    listed(exchange, place, LARGEST_LISTING, about).await
}

async fn listed(
    exchange: &Rc<Exchange>,
    place: &Target,
    most_bytes: usize,
    about: impl FnOnce(u64),
) -> Result<Option<Listing>, Fault> {
    let entries = propfind(exchange, place, "1", most_bytes, about).await?;
    let own = place.collection().decoded_path();
    match &entries[..] {
        [only] if !only.directory => return Ok(None),
        // The directory itself is missing: a listing of nothing is none of an empty directory.
        [] => {
            return Err(Fault::Answer {
                expected: "a listing with the directory itself",
                found: "nothing".into(),
            });
        }
        _ => {}
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
    most_bytes: usize,
    about: impl FnOnce(u64),
) -> Result<Vec<Entry>, Fault> {
    let mut fields = HeaderMap::new();
    fields.insert(DEPTH, HeaderValue::from_static(depth));
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let body = || Outgoing::Whole(Bytes::from_static(dav::PROPFIND.as_bytes()));
    let method = Method::from_bytes(b"PROPFIND").expect("letters");
    let ask = Ask {
        body: &body,
        ..Ask::plain(method, fields)
    };
    let (mut tries, mut about) = (Tries::default(), Some(about));
    let text = loop {
        let answer = exchange.ask_as(&mut tries, place, &ask, &[]).await?;
        if answer.head.status != StatusCode::MULTI_STATUS {
            let found = format!("{}, as of a server without WebDAV", answer.head.status);
            return Err(Fault::Answer {
                expected: "a listing (207)",
                found,
            });
        }
        if let Some(about) = about.take() {
            about(answer.length().unwrap_or(USUAL_LISTING) / ENTRY_BYTES as u64);
        }
        match answer.text(most_bytes).await {
            Ok(text) => break text,
            Err(fault) => tries.again(exchange, fault).await?,
        }
    };
    dav::entries(&text).map_err(|found| Fault::Answer {
        expected: "a listing of WebDAV",
        found,
    })
}

/// Makes a collection, if it is not there.
///
/// # Errors
/// If the server does not.
pub(crate) async fn make(
    exchange: &Rc<Exchange>,
    place: &Target,
    with_parents: bool,
) -> Result<(), Fault> {
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
            Ok(()) => break,
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

async fn make_one(exchange: &Rc<Exchange>, place: &Target) -> Result<(), Fault> {
    let method = Method::from_bytes(b"MKCOL").expect("letters");
    let asked = exchange
        .ask(
            &place.collection(),
            &Ask::plain(method, HeaderMap::new()),
            // What is there already, as RFC 4918, section 9.3.1, has it; XRootD (5.5) says 201 of that, too.
            &[StatusCode::METHOD_NOT_ALLOWED],
        )
        .await;
    asked?.finish().await;
    Ok(())
}

/// Removes a file that must not stay; where the server does not let us, it stays.
pub(crate) async fn remove(exchange: &Rc<Exchange>, place: &Target) {
    let ask = Ask::plain(Method::DELETE, HeaderMap::new());
    if let Ok(answer) = exchange.ask(place, &ask, &[]).await {
        answer.finish().await;
    }
}
