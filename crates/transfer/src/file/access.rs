//! Permissions of the user in a directory: from the token if it is decisive, otherwise by a probe.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::content::{NewContent, NewFile};
use super::error::{ErrorKind, FileError};
use super::location::{FileLocation, Protocol};
use super::server::RemoteKind;
use super::servers::{FileServers, unusable};
use crate::net::grid::now_s;
use crate::net::url::Scheme;
use crate::serve::http::issuers::{Operation, UnverifiedScope};

/// Permissions in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct AccessReport {
    /// Permission to create files; none if unknown.
    pub(super) create: Option<bool>,
    /// Permission to remove files; none if unknown.
    pub(super) remove: Option<bool>,
    /// Source of the values; none if both are unknown.
    pub(super) by: Option<AccessSource>,
    /// End of the token or certificate, in seconds since 1970.
    pub(super) valid_until_s: Option<i64>,
    /// Reason of a false value, with the next step.
    pub(super) detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AccessSource {
    Token,
    Probe,
}

/// Check the permissions in a directory. If `probes`, a file is created and removed if the credentials are not decisive.
pub(super) fn check(
    servers: &mut FileServers,
    at: &FileLocation,
    probes: bool,
) -> Result<AccessReport, FileError> {
    let token = token(at)?;
    let valid_until_s = match &token {
        Some(token) => token.expires_s,
        None => certificate_end(servers, at)?,
    };
    let now_s = i64::try_from(now_s()).unwrap_or(i64::MAX);
    if let Some(end) = valid_until_s.filter(|end| *end <= now_s) {
        let end = httpdate::fmt_http_date(
            UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or(0)),
        );
        return Err(FileError::new(
            ErrorKind::Permission,
            format!("the token or certificate expired at {end}; get a new one"),
        ));
    }
    let unknown = AccessReport {
        create: None,
        remove: None,
        by: None,
        valid_until_s,
        detail: None,
    };
    if let Some(report) = token.and_then(|token| by_token(&token, at, &unknown)) {
        return Ok(report);
    }
    if probes {
        probe(servers, at, unknown)
    } else {
        Ok(unknown)
    }
}

/// Return the scopes of the token that this server gets; none if it gets none, or if it is no WLCG token.
fn token(at: &FileLocation) -> Result<Option<UnverifiedScope>, FileError> {
    if at.protocol != Protocol::Http || at.url.user.is_some() {
        return Ok(None);
    }
    let token = crate::http::token::ours().map_err(unusable)?;
    let text = token.and_then(|token| String::from_utf8(token.0).ok());
    Ok(text.and_then(|text| UnverifiedScope::read(&text)))
}

/// Return the end of the certificate that this server gets.
fn certificate_end(servers: &FileServers, at: &FileLocation) -> Result<Option<i64>, FileError> {
    let end = match (at.protocol, at.url.scheme) {
        (Protocol::Ftp, Scheme::Gsiftp) => Some(servers.context().grid()?.not_after_s()),
        (Protocol::Http, Scheme::Https | Scheme::Davs) | (Protocol::Srm, _) => {
            crate::net::grid::certificate_end_s().map_err(unusable)?
        }
        _ => None,
    };
    Ok(end.and_then(|end| i64::try_from(end).ok()))
}

/// Return the permissions of a token; none if it is not decisive: the paths of its scopes are relative to a base that only the server
/// knows.
fn by_token(
    token: &UnverifiedScope,
    at: &FileLocation,
    unknown: &AccessReport,
) -> Option<AccessReport> {
    let path = at.child("x").url.path;
    let (create, remove) = (
        token.may_allow(Operation::Create, &path),
        token.may_allow(Operation::Modify, &path),
    );
    let lacks = match (create, remove) {
        (Some(false), _) => Some("storage.create or storage.modify"),
        // Not decisive for the creation, but a probe file would stay.
        (_, Some(false)) => Some("storage.modify, which permits removal,"),
        (Some(true), Some(true)) => None,
        _ => return None,
    };
    let detail = lacks.map(|scope| {
        format!("the token has no scope {scope} for this path; get a token with the scope storage.modify")
    });
    Some(AccessReport {
        create,
        remove,
        by: Some(AccessSource::Token),
        detail,
        ..unknown.clone()
    })
}

/// Create an empty file and remove it.
fn probe(
    servers: &mut FileServers,
    at: &FileLocation,
    unknown: AccessReport,
) -> Result<AccessReport, FileError> {
    if servers.server(at)?.needs_parents()
        && servers.server(at)?.stat(at)?.kind != RemoteKind::Directory
    {
        return Err(FileError::new(
            ErrorKind::Invalid,
            "expected a directory, found a file; use the URL of its directory",
        ));
    }
    // The directory exists, so no parent is created.
    servers.remember_directory(at);
    let nanoseconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let name = format!(
        ".venturi-access-{}-{}",
        std::process::id(),
        nanoseconds.as_nanos()
    );
    let file = at.child(&name);
    let empty = NewFile {
        size_bytes: 0,
        content: NewContent::Generated { seed: 0, index: 0 },
    };
    let report = AccessReport {
        by: Some(AccessSource::Probe),
        ..unknown
    };
    match servers.write_new(&file, &empty) {
        Ok(_) => {}
        Err(error) if matches!(error.kind, ErrorKind::Permission | ErrorKind::Unsupported) => {
            let detail = format!(
                "cannot create a file: {}; request access, or choose another directory",
                error.message
            );
            return Ok(AccessReport {
                create: Some(false),
                remove: Some(false),
                detail: Some(detail),
                ..report
            });
        }
        Err(error) => return Err(error),
    }
    match servers.server(&file)?.remove_file(&file) {
        Ok(()) => Ok(AccessReport {
            create: Some(true),
            remove: Some(true),
            ..report
        }),
        Err(error) => Ok(AccessReport {
            create: Some(true),
            remove: Some(false),
            detail: Some(format!(
                "cannot remove the probe file {file}: {}; remove it yourself, and request access",
                error.message
            )),
            ..report
        }),
    }
}
