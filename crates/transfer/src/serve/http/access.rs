//! Authentication and permissions: anonymous clients, users with a password (Basic), and tokens.
//!
//! A token from a file is a password: **the server does not decode it**, and its bearer has the permissions of a
//! user. Other tokens grant the permissions of their scopes, if a trusted issuer signed them (see
//! [`super::issuers`]).

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use venturi_gridftp::base64;

use super::issuers::Scope;
use crate::error::{CopyError, describe};
use crate::serve::state::{Permissions, ServerState};

/// Maximum bytes of a token file.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum number of wrong passwords per connection.
const MAX_REJECTED: u32 = 3;
/// Delay of the response to a wrong password.
const REJECTION_DELAY: Duration = Duration::from_secs(1);

/// SHA-256 of tokens, so that lookup time reveals no token.
#[derive(Debug, Default)]
pub(crate) struct FileTokens(HashSet<[u8; 32]>);

impl FileTokens {
    /// Read a file with one token per line; skip empty lines and lines that start with `#`.
    ///
    /// # Errors
    /// An unreadable or too large file.
    pub(crate) fn read(path: &Path) -> Result<Self, CopyError> {
        let uri = |found: String| CopyError::Location {
            location: path.to_owned(),
            expected: "a file of at most 16 MiB with one bearer token per line",
            found,
            advice: "create one: openssl rand -hex 32 > FILE",
        };
        let facts = std::fs::metadata(path).map_err(|error| uri(describe(&error)))?;
        if facts.len() > MAX_BYTES {
            return Err(uri(format!("{} bytes", facts.len())));
        }
        let text = std::fs::read_to_string(path).map_err(|error| uri(describe(&error)))?;
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let tokens: HashSet<_> = lines.map(|line| Sha256::digest(line).into()).collect();
        if tokens.is_empty() {
            return Err(uri("no token".into()));
        }
        Ok(Self(tokens))
    }

    fn admit(&self, token: &str) -> bool {
        self.0
            .contains(<[u8; 32]>::from(Sha256::digest(token)).as_slice())
    }
}

/// Authenticated client.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) permissions: Permissions,
    /// User name for logs.
    pub(crate) user: String,
    /// Scope of its token; none permits all operations of the user.
    pub(crate) scope: Option<Arc<Scope>>,
}

/// Client identity; none if unknown.
pub(crate) type MaybeIdentity = Option<Identity>;

/// Credentials of the last request and their result.
#[derive(Debug, Default)]
pub(crate) struct AuthCache {
    last: Option<(Vec<u8>, MaybeIdentity)>,
    /// Number of wrong passwords.
    rejected: u32,
}

impl AuthCache {
    /// Return whether too many passwords were wrong to accept another.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rejected >= MAX_REJECTED
    }
}

/// Return permissions and log name of a request; none if it must authenticate.
pub(crate) async fn permissions(
    host: &Arc<ServerState>,
    memory: &mut AuthCache,
    fields: &HeaderMap,
) -> MaybeIdentity {
    let Some(inputs) = fields.get(AUTHORIZATION) else {
        return anonymous(host);
    };
    // The check of a password takes milliseconds, so it runs once per connection.
    let now_s = now_s();
    let lives = |unauthorized: &MaybeIdentity| {
        let scope = unauthorized
            .as_ref()
            .and_then(|unauthorized| unauthorized.scope.as_ref());
        scope.is_none_or(|scope| scope.lives(now_s))
    };
    if let Some((known, unauthorized)) = &memory.last
        && known == inputs.as_bytes()
        && lives(unauthorized)
    {
        return unauthorized.clone();
    }
    let (kind, secret) = inputs.to_str().ok()?.split_once(' ')?;
    let permissions = if kind.eq_ignore_ascii_case("bearer") {
        // Without configured tokens, a token is no reason to reject anonymous access.
        if host.web.accepts_tokens() {
            bearer(host, secret.trim(), now_s)
        } else {
            anonymous(host)
        }
    } else if kind.eq_ignore_ascii_case("basic") {
        let pair = base64::decode(secret.trim().as_bytes()).ok()?;
        let cut = pair.iter().position(|byte| *byte == b':')?;
        let (user, password) = (pair[..cut].to_vec(), pair[cut + 1..].to_vec());
        let name = String::from_utf8_lossy(&user).into_owned();
        let host = Arc::clone(host);
        let checked = tokio::task::spawn_blocking(move || host.user(&user, &password)).await;
        let checked = checked.ok().flatten();
        if checked.is_none() {
            memory.rejected += 1;
            tokio::time::sleep(REJECTION_DELAY).await;
        }
        checked.map(|permissions| Identity {
            permissions,
            user: name,
            scope: None,
        })
    } else {
        None
    };
    memory.last = Some((inputs.as_bytes().to_vec(), permissions.clone()));
    permissions
}

fn bearer(host: &ServerState, token: &str, now_s: i64) -> MaybeIdentity {
    let listed = host
        .web
        .tokens
        .as_ref()
        .filter(|tokens| tokens.admit(token));
    let scope = match listed {
        Some(_) => None,
        None => Some(host.web.issuers.as_ref()?.admit(token, now_s)?),
    };
    Some(Identity {
        permissions: host.known(),
        user: scope
            .as_ref()
            .map_or("token", |scope| &scope.subject)
            .to_owned(),
        scope: scope.map(Arc::new),
    })
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

fn anonymous(host: &ServerState) -> MaybeIdentity {
    let has_tokens = host.web.accepts_tokens();
    let permissions = host
        .anonymous(b"anonymous")
        .filter(|_| !has_tokens || host.web.anonymous)?;
    // With tokens, only their bearers may write.
    Some(Identity {
        permissions: Permissions {
            write: permissions.write && !has_tokens,
            ..permissions
        },
        user: "anonymous".into(),
        scope: None,
    })
}
