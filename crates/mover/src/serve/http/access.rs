//! Who may do what: anonymous clients, users with a password (Basic), and who has a token.
//!
//! A token that is in a file is a password: **nothing in it is looked at**, and whoever has it may do what a user may. What others may do is in
//! their tokens, if an issuer that is believed has signed them (see [`super::issuers`]).

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use venturi_gridftp::base64;

use super::issuers::Scope;
use crate::error::{Error, said};
use crate::serve::host::{Host, Rights};

/// Largest file of tokens, bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Wrong passwords of one connection.
const MOST_REFUSED: u32 = 3;
/// How late the answer to a wrong one comes.
const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// Tokens, as their SHA-256: how long it takes to find one says nothing of any.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashSet<[u8; 32]>);

impl Tokens {
    /// Reads a file: a token a line; empty lines and those that begin with `#` count for nothing.
    ///
    /// # Errors
    /// If it cannot be read or is too large.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let place = |found: String| Error::Place {
            place: path.to_owned(),
            expected: "a file of at most 16 MiB with a bearer token a line",
            found,
            advice: "make one: openssl rand -hex 32 > FILE",
        };
        let facts = std::fs::metadata(path).map_err(|error| place(said(&error)))?;
        if facts.len() > MAX_BYTES {
            return Err(place(format!("{} bytes", facts.len())));
        }
        let text = std::fs::read_to_string(path).map_err(|error| place(said(&error)))?;
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let tokens: HashSet<_> = lines.map(|line| Sha256::digest(line).into()).collect();
        if tokens.is_empty() {
            return Err(place("no token".into()));
        }
        Ok(Self(tokens))
    }

    fn admit(&self, token: &str) -> bool {
        self.0
            .contains(<[u8; 32]>::from(Sha256::digest(token)).as_slice())
    }
}

/// Somebody who was let in.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub(crate) rights: Rights,
    /// For logs.
    pub(crate) user: String,
    /// What of it a token allows; none: all.
    pub(crate) scope: Option<Arc<Scope>>,
}

/// Who it is; none: nobody that is known.
pub(crate) type Who = Option<Admitted>;

/// Who is at the other end, as far as the last request said: its words, and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    last: Option<(Vec<u8>, Who)>,
    /// Passwords that were wrong.
    refused: u32,
}

impl Memory {
    /// Whether so many passwords were wrong that no more are heard.
    pub(crate) fn is_at_end(&self) -> bool {
        self.refused >= MOST_REFUSED
    }
}

/// What a request may do, and the name for logs; none: it has to say who it is.
pub(crate) async fn rights(host: &Arc<Host>, memory: &mut Memory, fields: &HeaderMap) -> Who {
    let Some(given) = fields.get(AUTHORIZATION) else {
        return anonymous(host);
    };
    // A password takes milliseconds: once a connection is enough.
    let now_s = now_s();
    let lives = |who: &Who| {
        let scope = who.as_ref().and_then(|who| who.scope.as_ref());
        scope.is_none_or(|scope| scope.lives(now_s))
    };
    if let Some((known, who)) = &memory.last
        && known == given.as_bytes()
        && lives(who)
    {
        return who.clone();
    }
    let (kind, secret) = given.to_str().ok()?.split_once(' ')?;
    let rights = if kind.eq_ignore_ascii_case("bearer") {
        // Where no tokens are known, one is no reason to refuse what everybody may do.
        if host.web.knows_tokens() {
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
            memory.refused += 1;
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
        checked.map(|rights| Admitted {
            rights,
            user: name,
            scope: None,
        })
    } else {
        None
    };
    memory.last = Some((given.as_bytes().to_vec(), rights.clone()));
    rights
}

fn bearer(host: &Host, token: &str, now_s: i64) -> Who {
    let listed = host
        .web
        .tokens
        .as_ref()
        .filter(|tokens| tokens.admit(token));
    let scope = match listed {
        Some(_) => None,
        None => Some(host.web.issuers.as_ref()?.admit(token, now_s)?),
    };
    Some(Admitted {
        rights: host.known(),
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

fn anonymous(host: &Host) -> Who {
    let has_tokens = host.web.knows_tokens();
    let rights = host
        .anonymous(b"anonymous")
        .filter(|_| !has_tokens || host.web.anonymous)?;
    // Where there are tokens, it is they who may write.
    Some(Admitted {
        rights: Rights {
            write: rights.write && !has_tokens,
            ..rights
        },
        user: "anonymous".into(),
        scope: None,
    })
}
