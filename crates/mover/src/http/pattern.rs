//! Wildcards in the path of a source at a server, by its listings: `*` and `[a-z]`. A `?` begins a query; one that is written `%3F` makes no pattern by itself.

use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::stream;
use http::StatusCode;

use super::dav::Entry;
use super::exchange::Exchange;
use super::fault::Fault;
use super::list;
use super::target::Target;
use crate::error::Failure;
use crate::glob;
use crate::net::url::Url;

/// Questions of one pattern that are under way at a time.
const AT_ONCE: usize = 8;

/// What a source stands for: itself, or all places that match it, in order.
///
/// What is there is never a pattern, whatever letters it has; nor is anything at a server that has no listings.
///
/// # Errors
/// If nothing matches, too much does, or the server does not say.
pub(super) async fn expand(exchange: &Rc<Exchange>, source: Url) -> Result<Vec<Url>, Failure> {
    if !wild(&source.path) {
        return Ok(vec![source]);
    }
    match list::kind(exchange, &Target::from(&source)).await {
        Ok(None) => {}
        Ok(Some(_)) | Err(Fault::Status { .. } | Fault::Answer { .. }) => return Ok(vec![source]),
        Err(fault) => return Err(fault.at(&Target::from(&source))),
    }
    let refused = |expected, found: &str, advice| {
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
            if next.len() > glob::MOST_PATHS {
                return Err(refused(glob::FEW_ENOUGH, "one for more", glob::NAME_FEWER));
            }
        }
        found = next;
    }
    let mut places = stream::iter(found)
        .map(|path| that_is_there(exchange, at(&source, path), &names))
        .buffered(AT_ONCE);
    let mut found = Vec::new();
    while let Some(place) = places.next().await {
        found.extend(place?);
    }
    if found.is_empty() {
        return Err(refused(
            "something of that pattern",
            "nothing",
            "see what is there: --recursive --dry-run of the directory lists it",
        ));
    }
    Ok(found)
}

/// Whether a path, or a name of one, has wildcards.
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

/// What is in a directory by that pattern; of a name that more follow, directories alone.
async fn matches_in(
    exchange: &Rc<Exchange>,
    source: &Url,
    path: Vec<u8>,
    pattern: &[u8],
    is_last: bool,
) -> Result<Vec<Vec<u8>>, Failure> {
    let root = || b"/".to_vec();
    let folder = if path.is_empty() {
        root()
    } else {
        path.clone()
    };
    let folder = Target::from(&at(source, folder));
    let entries = match list::as_written(exchange, &folder, |_| ()).await {
        // A file has nothing in it.
        Ok(entries) => entries.unwrap_or_default(),
        // Behind a pattern it need not be there.
        Err(fault) if is_missing(&fault) => return Ok(Vec::new()),
        Err(fault) => return Err(fault.at(&folder)),
    };
    let fits = |(name, entry): (Vec<u8>, Entry)| {
        ((is_last || entry.directory) && glob::fits(pattern, &name)).then_some(name)
    };
    let mut names: Vec<_> = entries.into_iter().filter_map(fits).collect();
    names.sort_unstable();
    let below = |name: Vec<u8>| [&path[..], b"/", &name].concat();
    Ok(names.into_iter().map(below).collect())
}

/// A place that was found, if its last name is no pattern and may be missing: it is asked for.
async fn that_is_there(
    exchange: &Rc<Exchange>,
    place: Url,
    names: &[&[u8]],
) -> Result<Option<Url>, Failure> {
    let last = names.iter().rfind(|name| !name.is_empty());
    if last.is_some_and(|name| wild(name)) {
        return Ok(Some(place));
    }
    let target = Target::from(&place);
    match list::kind(exchange, &target).await {
        Ok(kind) => Ok(kind.map(|_| place)),
        Err(fault) => Err(fault.at(&target)),
    }
}

fn is_missing(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Status {
            status: StatusCode::NOT_FOUND,
            ..
        }
    )
}
