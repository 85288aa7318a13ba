//! What is in a directory: PROPFIND, and a page for people; and PROPPATCH.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::answer::{Answer, Asked, Refusal, aside, empty};
use super::body::Reply;
use super::conditions::{Conditions, etag, modified};
use super::properties::{self, Changes, Wanted};
use crate::http::dav::Entry;
use crate::http::outgoing::{Blocks, Outgoing};
use crate::net::url::encoded;
use crate::serve::host::Host;
use crate::serve::root::Facts;

/// Entries that are listed at a time.
const LISTED: usize = 512;
/// Bytes of a question of PROPFIND, and of the like.
const MAX_QUESTION_BYTES: usize = 64 << 10;
pub(super) const DEPTH: HeaderName = HeaderName::from_static("depth");

/// A directory for people with a browser, and for clients that read links.
pub(super) async fn index(asked: &Asked) -> Answer {
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

/// A listing as it is read, between a begin and an end. A reader that is slow keeps no thread of the disks: one is asked for some entries at a time.
fn listed(
    host: Arc<Host>,
    path: Vec<u8>,
    begin: String,
    mut end: String,
    line: impl Fn(&[u8], &[u8], &Facts) -> String + Clone + Send + 'static,
) -> Outgoing {
    let (sender, blocks) = mpsc::channel(2);
    tokio::task::spawn_local(async move {
        let (mut text, mut listing, mut more) = (begin, None, true);
        while more {
            let (host, path, line) = (Arc::clone(&host), path.clone(), line.clone());
            let begun = listing.take();
            let read = aside(move || {
                let mut listing = match begun {
                    Some(listing) => listing,
                    None => host.root.list(&path, false)?,
                };
                let mut entries = Vec::new();
                let more = listing.next(&host.root, LISTED, &mut entries)?;
                let lines = entries.iter();
                let lines = lines.map(|entry| line(&path, &entry.name, &entry.facts));
                Ok((lines.collect::<String>(), listing, more))
            });
            let block = read.await.map(|(lines, read, goes_on)| {
                (listing, more) = (Some(read), goes_on);
                Bytes::from(std::mem::take(&mut text) + &lines)
            });
            // The head has gone: all that can be said is that it is not whole.
            let block = block.map_err(|refusal| std::io::Error::other(refusal.text));
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
    Outgoing::Stream {
        blocks: Blocks::Coming(blocks),
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

/// PROPFIND.
pub(crate) async fn propfind(mut asked: Asked) -> Answer {
    let body = question(&mut asked).await?;
    let wanted = Arc::new(Wanted::read(&body).map_err(wrong)?);
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
    let own = properties::response(&entry(asked.path.clone(), &facts), &wanted);
    let begin = format!("{}{own}", properties::BEGIN);
    let body = if depth == "1" && facts.is_directory() {
        listed(
            host,
            asked.path,
            begin,
            properties::END.into(),
            move |path, name, facts| {
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                if facts.is_file() || facts.is_directory() {
                    properties::response(&entry([path, slash, name].concat(), facts), &wanted)
                } else {
                    String::new()
                }
            },
        )
    } else {
        Outgoing::Whole((begin + properties::END).into())
    };
    Ok(multistatus(Reply::Watched(body, asked.active)))
}

/// PROPPATCH: nothing is kept that clients make up, and each is told so.
pub(crate) async fn proppatch(mut asked: Asked) -> Answer {
    asked.may_write()?;
    let body = question(&mut asked).await?;
    let changes = Changes::read(&body).map_err(wrong)?;
    let (host, path) = (Arc::clone(&asked.connection.host), asked.path.clone());
    let conditions = Conditions::of(&asked)?;
    let facts = aside(move || {
        let facts = host.root.stat(&path)?;
        conditions.hold(&host.root)?;
        Ok(facts)
    });
    let answer = changes.answer(&entry(asked.path.clone(), &facts.await?));
    let text = [properties::BEGIN, &answer, properties::END].concat();
    Ok(multistatus(Reply::Plain(Outgoing::Whole(text.into()))))
}

fn wrong(found: String) -> Refusal {
    let text = format!("a body of RFC 4918 is expected, found {found}");
    Refusal::new(StatusCode::BAD_REQUEST, text)
}

fn multistatus(body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/xml; charset=utf-8"),
    );
    response
}

/// Reads a body, up to a bound.
pub(crate) async fn question(asked: &mut Asked) -> Result<Vec<u8>, Refusal> {
    let mut body = Vec::new();
    while let Some(frame) = asked.body.frame().await {
        let frame =
            frame.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
        if let Ok(data) = frame.into_data() {
            body.extend(data);
        }
        if body.len() > MAX_QUESTION_BYTES {
            return Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "a question of at most 64 KiB is expected",
            ));
        }
    }
    Ok(body)
}
