//! Who may do what: anonymous clients, users with a password (Basic), and who has a token that is in a file.
//!
//! **Nothing in a token is verified**: no signature, issuer, audience, scope, path or time. A token is a password here: whoever has one that is
//! in the file may do what a user may.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use venturi_gridftp::base64;

use crate::error::{Error, said};
use crate::serve::host::{Host, Rights};

/// Largest file of tokens, bytes.
const MAX_BYTES: u64 = 16 << 20;

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

/// What somebody may do, and the name for logs; none: nobody that is known.
pub(crate) type Who = Option<(Rights, String)>;

/// Who is at the other end, as far as the last request said: its words, and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Memory(Option<(Vec<u8>, Who)>);

/// What a request may do, and the name for logs; none: it has to say who it is.
pub(crate) async fn rights(host: &Arc<Host>, memory: &mut Memory, fields: &HeaderMap) -> Who {
    let Some(given) = fields.get(AUTHORIZATION) else {
        return anonymous(host);
    };
    // A password takes milliseconds: once a connection is enough.
    if let Some((_, rights)) = memory
        .0
        .as_ref()
        .filter(|(known, _)| known == given.as_bytes())
    {
        return rights.clone();
    }
    let (kind, secret) = given.to_str().ok()?.split_once(' ')?;
    let rights = if kind.eq_ignore_ascii_case("bearer") {
        let admitted = host
            .web
            .tokens
            .as_ref()
            .is_some_and(|tokens| tokens.admit(secret.trim()));
        let rights = Rights {
            write: host.settings.write,
            third_party: host.settings.third_party,
        };
        // Where no tokens are known, one is no reason to refuse what everybody may do.
        if host.web.tokens.is_none() {
            anonymous(host)
        } else {
            admitted.then(|| (rights, "token".into()))
        }
    } else if kind.eq_ignore_ascii_case("basic") {
        let pair = base64::decode(secret.trim().as_bytes()).ok()?;
        let cut = pair.iter().position(|byte| *byte == b':')?;
        let (user, password) = (pair[..cut].to_vec(), pair[cut + 1..].to_vec());
        let name = String::from_utf8_lossy(&user).into_owned();
        let host = Arc::clone(host);
        let checked = tokio::task::spawn_blocking(move || host.user(&user, &password)).await;
        checked.ok().flatten().map(|rights| (rights, name))
    } else {
        None
    };
    memory.0 = Some((given.as_bytes().to_vec(), rights.clone()));
    rights
}

fn anonymous(host: &Host) -> Who {
    let has_tokens = host.web.tokens.is_some();
    let rights = host
        .anonymous(b"anonymous")
        .filter(|_| !has_tokens || host.web.anonymous)?;
    // Where there are tokens, it is they who may write.
    Some((
        Rights {
            write: rights.write && !has_tokens,
            ..rights
        },
        "anonymous".into(),
    ))
}
