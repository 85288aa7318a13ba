//! MKCOL, DELETE, MOVE, and COPY within the server.

use std::sync::Arc;

use http::header::{HOST, HeaderName};
use http::{StatusCode, Uri};
use rustix::io::Errno;

use super::answer::{Answer, Asked, Refusal, empty, patient};
use super::read::question;
use super::write::within;
use crate::net::url::decoded;
use crate::serve::root::Root;
use crate::serve::root::upload::Begin;

/// RFC 4918, section 10.3.
pub(crate) const DESTINATION: HeaderName = HeaderName::from_static("destination");
/// RFC 4918, section 10.6.
pub(crate) const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");
/// Things that one request may remove or copy: more are left to several.
const MOST_THINGS: usize = 1_000_000;
/// Bytes that the kernel copies at a time.
const SLICE: usize = 64 << 20;

/// MKCOL.
pub(crate) async fn make(mut asked: Asked) -> Answer {
    asked.may_write()?;
    if asked
        .fields
        .get(http::header::CONTENT_LENGTH)
        .is_some_and(|length| length != "0")
    {
        // RFC 4918, section 9.3.
        question(&mut asked).await?;
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a directory is made without a body",
        ));
    }
    let (host, path) = (Arc::clone(&asked.connection.host), asked.path.clone());
    patient(&asked.active, move || {
        match host.root.make_directory(&path) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "it is there already",
            )),
            // The root itself.
            Err(Errno::ACCESS) if path.iter().all(|byte| *byte == b'/') => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "it is there already",
            )),
            Err(errno) => Err(within(errno)),
        }
    })
    .await?;
    Ok(empty(StatusCode::CREATED))
}

/// DELETE.
pub(crate) async fn delete(asked: Asked) -> Answer {
    asked.may_write()?;
    let (host, path) = (Arc::clone(&asked.connection.host), asked.path.clone());
    patient(&asked.active, move || remove(&host.root, &path)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

fn remove(root: &Root, path: &[u8]) -> Result<(), Refusal> {
    match root.remove_file(path) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    let mut listing = root.list(path, true)?;
    let (mut found, mut folders) = (Vec::new(), Vec::new());
    loop {
        let more = listing.next(root, 1024, &mut found)?;
        for entry in found.drain(..) {
            let below = [path, b"/", &entry.name].concat();
            // A link to a directory is a link.
            match root.remove_file(&below) {
                Err(Errno::ISDIR) => folders.push(below),
                other => other?,
            }
        }
        if folders.len() > MOST_THINGS {
            return Err(Refusal::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "too many directories for one request",
            ));
        }
        if !more {
            break;
        }
    }
    // What is deeper has a longer path.
    folders.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
    for folder in folders {
        root.remove_directory(&folder)?;
    }
    Ok(root.remove_directory(path)?)
}

/// Where a thing is to go, of this server.
fn destination(asked: &Asked) -> Result<Vec<u8>, Refusal> {
    let bad = || {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "a Destination of this server is needed",
        )
    };
    let uri: Uri = asked
        .field(&DESTINATION)
        .ok_or_else(bad)?
        .parse()
        .map_err(|_| bad())?;
    if !is_here(asked, &uri) {
        return Err(Refusal::new(
            StatusCode::BAD_GATEWAY,
            "the Destination is another server",
        ));
    }
    let path = decoded(uri.path().as_bytes()).ok_or_else(bad)?;
    if path.starts_with(b"/") {
        Ok(path)
    } else {
        Err(bad())
    }
}

/// Whether a place is this server, as the client calls it.
pub(crate) fn is_here(asked: &Asked, uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else {
        return true;
    };
    let port = |uri: &Uri| {
        uri.port_u16()
            .unwrap_or(if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            })
    };
    let ours = asked.field(&HOST).and_then(|host| {
        let scheme = if asked.connection.secure {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{host}/").parse::<Uri>().ok()
    });
    ours.is_some_and(|ours| {
        ours.host()
            .is_some_and(|host| host.eq_ignore_ascii_case(authority.host()))
            && port(&ours) == port(uri)
    })
}

fn may_replace(asked: &Asked) -> bool {
    asked.field(&OVERWRITE) != Some("F")
}

/// MOVE.
pub(crate) async fn rename(asked: Asked) -> Answer {
    asked.may_write()?;
    let (host, from, to) = (
        Arc::clone(&asked.connection.host),
        asked.path.clone(),
        destination(&asked)?,
    );
    let may_replace = may_replace(&asked);
    let status = patient(&asked.active, move || {
        let there = see(&host.root, &from, &to, may_replace)?;
        if there && host.root.stat(&to).is_ok_and(|facts| facts.is_directory()) {
            remove(&host.root, &to)?;
        }
        host.root.rename(&from, &to).map_err(within)?;
        Ok(if there {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::CREATED
        })
    })
    .await?;
    Ok(empty(status))
}

/// Whether something is at the destination, which may be replaced.
fn see(root: &Root, from: &[u8], to: &[u8], may_replace: bool) -> Result<bool, Refusal> {
    let source = root.stat(from)?;
    let there = root.stat(to).ok();
    let inside = [from.strip_suffix(b"/").unwrap_or(from), b"/"].concat();
    // RFC 4918, section 9.9.4: the source itself, or in it.
    if there.is_some_and(|there| there.identity == source.identity) || to.starts_with(&inside) {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "the Destination is the source, or in it",
        ));
    }
    if there.is_some() && !may_replace {
        return Err(Refusal::new(
            StatusCode::PRECONDITION_FAILED,
            "it is there already",
        ));
    }
    Ok(there.is_some())
}

/// COPY within the server.
pub(crate) async fn copy(asked: Asked) -> Answer {
    asked.may_write()?;
    let (host, from, to) = (
        Arc::clone(&asked.connection.host),
        asked.path.clone(),
        destination(&asked)?,
    );
    let (may_replace, sync) = (may_replace(&asked), host.settings.sync);
    let alone = asked.field(&HeaderName::from_static("depth")) == Some("0");
    let status = patient(&asked.active, move || {
        let there = see(&host.root, &from, &to, may_replace)?;
        if !host.root.stat(&from)?.is_directory() {
            file(&host.root, &from, &to, sync)?;
        } else {
            if there {
                remove(&host.root, &to)?;
            }
            host.root.make_directory(&to).map_err(within)?;
            if !alone {
                tree(&host.root, &from, &to, sync)?;
            }
        }
        Ok(if there {
            StatusCode::NO_CONTENT
        } else {
            StatusCode::CREATED
        })
    })
    .await;
    Ok(empty(status?))
}

fn tree(root: &Root, from: &[u8], to: &[u8], sync: bool) -> Result<(), Refusal> {
    let mut listing = root.list(from, true)?;
    let mut found = Vec::new();
    let mut count = 0;
    loop {
        let more = listing.next(root, 1024, &mut found)?;
        for entry in found.drain(..) {
            count += 1;
            if count > MOST_THINGS {
                return Err(Refusal::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "too much for one request",
                ));
            }
            let (old, new) = (
                [from, b"/", &entry.name].concat(),
                [to, b"/", &entry.name].concat(),
            );
            if entry.facts.is_directory() {
                root.make_directory(&new).or_else(|errno| {
                    if errno == Errno::EXIST {
                        Ok(())
                    } else {
                        Err(errno)
                    }
                })?;
            } else if entry.facts.is_file() {
                file(root, &old, &new, sync)?;
            }
        }
        if !more {
            return Ok(());
        }
    }
}

fn file(root: &Root, from: &[u8], to: &[u8], sync: bool) -> Result<(), Refusal> {
    let source = root.read(from)?;
    let upload = root.upload(to, Begin::New).map_err(within)?;
    let (mut read, mut written) = (0, 0);
    // Bounded by the file, and by what it was when it was opened.
    while read < source.facts.bytes {
        match rustix::fs::copy_file_range(
            &source.file,
            Some(&mut read),
            upload.file(),
            Some(&mut written),
            SLICE,
        ) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    upload.commit(sync)?;
    Ok(())
}
