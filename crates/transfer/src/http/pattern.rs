//! Wildcards `*` and `[a-z]` in the path of a source URL, expanded with listings of the server. A `?` starts the
//! query; `%3F` is a literal character.

use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::stream;
use http::StatusCode;

use super::dav::DavEntry;
use super::exchange::HttpClient;
use super::list;
use super::request_error::RequestError;
use super::target::HttpTarget;
use crate::error::Failure;
use crate::glob;
use crate::net::url::Url;

/// Maximum concurrent requests of one pattern.
const AT_ONCE: usize = 8;

/// Return the source itself, or all paths that match it, in order.
///
/// An existing path is never a pattern, and neither is a path on a server without listings.
///
/// # Errors
/// No match, too many matches, or an error of the server.
pub(super) async fn expand(exchange: &Rc<HttpClient>, source: Url) -> Result<Vec<Url>, Failure> {
    if !wild(&source.path) {
        return Ok(vec![source]);
    }
    match list::kind(exchange, &HttpTarget::from(&source)).await {
        Ok(None) => {}
        Ok(Some(_))
        | Err(RequestError::Status { .. } | RequestError::UnexpectedResponse { .. }) => {
            return Ok(vec![source]);
        }
        Err(fault) => return Err(fault.at(&HttpTarget::from(&source))),
    }
    let rejected = |expected, found: &str, advice| {
        Failure::found(source.to_string().into(), expected, found, advice)
    };
    let names: Vec<&[u8]> = source.path.split(|byte| *byte == b'/').skip(1).collect();
    let mut found = vec![Vec::new()];
    for (nth, name) in names.iter().enumerate() {
        if !wild(name) {
            found.iter_mut().for_each(|path| join(path, name));
            continue;
        }
        let is_last = names[nth + 1..].iter().all(|name| name.is_empty());
        let step = |path| matches_in(exchange, &source, path, name, is_last);
        let mut steps = stream::iter(found).map(step).buffered(AT_ONCE);
        let mut next = Vec::new();
        while let Some(paths) = steps.next().await {
            next.extend(paths?);
            if next.len() > glob::MAX_PATHS {
                return Err(rejected(
                    glob::EXPECTED_PATHS,
                    "one for more",
                    glob::ADVICE_FEWER_PATHS,
                ));
            }
        }
        found = next;
    }
    let mut urls = stream::iter(found)
        .map(|path| existing_url(exchange, at(&source, path), &names))
        .buffered(AT_ONCE);
    let mut found = Vec::new();
    while let Some(target) = urls.next().await {
        found.extend(target?);
    }
    if found.is_empty() {
        return Err(rejected(
            "a path that matches the pattern",
            "nothing",
            "list the directory with --recursive --dry-run",
        ));
    }
    Ok(found)
}

/// Return whether a path, or a name of one, has wildcards.
pub(super) fn wild(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*[".contains(byte))
}

fn at(source: &Url, path: Vec<u8>) -> Url {
    Url {
        path,
        ..source.clone()
    }
}

fn join(path: &mut Vec<u8>, name: &[u8]) {
    path.push(b'/');
    path.extend_from_slice(name);
}

/// Return the matching entries of a directory; only directories if more path components follow.
async fn matches_in(
    exchange: &Rc<HttpClient>,
    source: &Url,
    path: Vec<u8>,
    pattern: &[u8],
    is_last: bool,
) -> Result<Vec<Vec<u8>>, Failure> {
    let root = || b"/".to_vec();
    let directory = if path.is_empty() {
        root()
    } else {
        path.clone()
    };
    let directory = HttpTarget::from(&at(source, directory));
    let entries = match list::as_written(exchange, &directory, |_| ()).await {
        // A file has no entries.
        Ok(entries) => entries.unwrap_or_default(),
        // A matched directory may have no entry with this name.
        Err(fault) if is_missing(&fault) => return Ok(Vec::new()),
        Err(fault) => return Err(fault.at(&directory)),
    };
    let fits = |(name, entry): (Vec<u8>, DavEntry)| {
        ((is_last || entry.directory) && glob::fits(pattern, &name)).then_some(name)
    };
    let mut names: Vec<_> = entries.into_iter().filter_map(fits).collect();
    names.sort_unstable();
    let below = |name: Vec<u8>| [&path[..], b"/", &name].concat();
    Ok(names.into_iter().map(below).collect())
}

/// Return the URL if it exists. Only a last component without wildcards needs a request.
async fn existing_url(
    exchange: &Rc<HttpClient>,
    location: Url,
    names: &[&[u8]],
) -> Result<Option<Url>, Failure> {
    let last = names.iter().rfind(|name| !name.is_empty());
    if last.is_some_and(|name| wild(name)) {
        return Ok(Some(location));
    }
    let target = HttpTarget::from(&location);
    match list::kind(exchange, &target).await {
        Ok(kind) => Ok(kind.map(|_| location)),
        Err(fault) => Err(fault.at(&target)),
    }
}

fn is_missing(fault: &RequestError) -> bool {
    matches!(
        fault,
        RequestError::Status {
            status: StatusCode::NOT_FOUND,
            ..
        }
    )
}
