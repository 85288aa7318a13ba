//! Signed tokens: JSON Web Tokens (RFC 7519) with WLCG scopes (Common JWT Profiles 1.2, section 3).
//!
//! Only issuers of the configuration are trusted, with keys in local files; the server downloads none. A key has
//! one algorithm, RS256 or ES256, regardless of the token. Not supported: SciTokens, groups (`wlcg.groups`),
//! revocation.
//!
//! Read [`Issuers`] first, then [`Scope`].

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;
use venturi_gridftp::base64;

use super::response::parse_path;
use crate::error::{CopyError, describe};

#[cfg(test)]
mod tests;

/// Maximum bytes of a file of issuers or keys.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum bytes of a token: the limit of a request head.
const MAX_TOKEN_BYTES: usize = 32 << 10;
/// Accepted difference between clocks, in seconds.
const LEEWAY_S: i64 = 60;
/// Audience that includes all servers (WLCG Common JWT Profiles 1.2, section 3.1).
const ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";

/// Trusted issuers.
#[derive(Debug, Default)]
pub(crate) struct Issuers(Vec<Issuer>);

#[derive(Debug)]
struct Issuer {
    name: String,
    audiences: Vec<String>,
    /// Base of its paths, without trailing slash.
    base: Vec<u8>,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    kind: KeyKind,
}

#[derive(Debug)]
enum KeyKind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
}

/// Issuer in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    issuer: String,
    keys: PathBuf,
    audiences: Vec<String>,
    #[serde(default)]
    path: String,
}

#[derive(Debug, Deserialize)]
struct Keys {
    keys: Vec<WrittenKey>,
}

/// RFC 7517, section 4, and RFC 7518, section 6.
#[derive(Debug, Deserialize)]
struct WrittenKey {
    kty: String,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Read data and metadata.
    Read,
    /// Create a new path.
    Create,
    /// Change, move or remove an existing path.
    Modify,
}

/// Permissions, expiry and subject of a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Subject for logs.
    pub(crate) subject: String,
    expires_s: i64,
    allowed: Vec<(Operation, Vec<u8>)>,
}

impl Issuers {
    /// Read a file of issuers and their key files, whose paths are relative to it.
    ///
    /// # Errors
    /// An unreadable or invalid file.
    pub(crate) fn read(path: &Path) -> Result<Self, CopyError> {
        let written: Vec<Written> = parsed(path)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        let issuers = written.into_iter().map(|written| {
            let keys_path = directory.join(&written.keys);
            let Keys { keys } = parsed(&keys_path)?;
            let keys: Vec<Key> = keys.iter().filter_map(key).collect();
            if keys.is_empty() {
                return Err(rejected(&keys_path, "no key for RS256 or ES256".into()));
            }
            if written.audiences.is_empty() {
                return Err(rejected(
                    path,
                    format!("no audience of `{}`", written.issuer),
                ));
            }
            let base = format!("/{}", written.path.trim_matches('/'));
            let base = parse_path(&base).filter(|base| !leads_up(base));
            let base = base.ok_or_else(|| rejected(path, format!("path `{}`", written.path)))?;
            Ok(Issuer {
                name: written.issuer,
                audiences: written.audiences,
                base: if base == b"/" { Vec::new() } else { base },
                keys,
            })
        });
        let issuers = issuers.collect::<Result<Vec<_>, _>>()?;
        let mut names = HashSet::new();
        match issuers.iter().find(|issuer| !names.insert(&issuer.name)) {
            // The audiences and the path would be ambiguous.
            Some(twice) => Err(rejected(path, format!("`{}` twice", twice.name))),
            None => Ok(Self(issuers)),
        }
    }

    /// Return the scope of a token at a time in seconds since 1970; none if it is not trusted.
    pub(crate) fn admit(&self, token: &str, now_s: i64) -> Option<Scope> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let (head, claims) = (json(head)?, json(claims)?);
        let issuer = claims.get("iss")?.as_str()?;
        let issuer = self.0.iter().find(|known| known.name == issuer)?;
        // RFC 7515, section 4.1.11: an unknown critical header.
        if head.get("crit").is_some() {
            return None;
        }
        let (algorithm, id) = (
            head.get("alg")?.as_str()?,
            head.get("kid").and_then(Value::as_str),
        );
        let signature = from_base64url(signature)?;
        let mut fitting = issuer.keys.iter().filter(|key| {
            let named = id.is_none() || key.id.is_none() || key.id.as_deref() == id;
            named && key.kind.algorithm() == algorithm
        });
        fitting
            .any(|key| key.kind.verifies(signed.as_bytes(), &signature))
            .then_some(())?;
        issuer.scope(&claims, now_s)
    }
}

impl KeyKind {
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
        }
    }

    fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e } => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok(),
            Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .verify(signed, signature)
                .is_ok(),
        }
    }
}

impl Issuer {
    fn scope(&self, claims: &Value, now_s: i64) -> Option<Scope> {
        let seconds = |name: &str| claims.get(name).map(whole_seconds);
        let expires_s = seconds("exp")??;
        let not_before_s = seconds("nbf").unwrap_or(Some(i64::MIN))?;
        let lives = now_s < expires_s.saturating_add(LEEWAY_S)
            && now_s >= not_before_s.saturating_sub(LEEWAY_S);
        let ours = |text: &Value| {
            text.as_str()
                .is_some_and(|text| text == ANY || self.audiences.iter().any(|ours| ours == text))
        };
        let audience = claims.get("aud")?;
        let is_for_us =
            ours(audience) || audience.as_array().is_some_and(|all| all.iter().any(ours));
        if !(lives && is_for_us) {
            return None;
        }
        let scopes = claims
            .get("scope")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or("token");
        Some(Scope {
            subject: subject.chars().take(200).collect(),
            expires_s,
            allowed: scopes
                .split_ascii_whitespace()
                .filter_map(|scope| allowed(&self.base, scope))
                .collect(),
        })
    }
}

/// Return the permission of a scope below a base path; none for unknown scopes.
fn allowed(base: &[u8], scope: &str) -> Option<(Operation, Vec<u8>)> {
    let (name, path) = scope.split_once(':')?;
    let operation = match name {
        "storage.read" => Operation::Read,
        "storage.create" => Operation::Create,
        "storage.modify" => Operation::Modify,
        _ => return None,
    };
    let path = parse_path(path).filter(|path| !leads_up(path))?;
    Some((operation, [base, &path].concat()))
}

/// Scope of a token of the user: not verified, because only the server has the keys.
#[derive(Debug)]
pub(crate) struct UnverifiedScope {
    /// Seconds since 1970.
    pub(crate) expires_s: Option<i64>,
    /// Permissions, with paths relative to a base that only the server knows; none if the token has no scopes for storage.
    allowed: Option<Vec<(Operation, Vec<u8>)>>,
}

impl UnverifiedScope {
    /// Read a JSON Web Token; none for other tokens.
    pub(crate) fn read(token: &str) -> Option<Self> {
        let claims = json(token.split('.').nth(1)?)?;
        let scopes = claims.get("scope").and_then(Value::as_str);
        let scopes = scopes.filter(|scopes| scopes.contains("storage."));
        let scopes = scopes.map(|scopes| {
            let scopes = scopes.split_ascii_whitespace();
            scopes.filter_map(|scope| allowed(b"", scope)).collect()
        });
        Some(Self {
            expires_s: claims.get("exp").and_then(whole_seconds),
            allowed: scopes,
        })
    }

    /// Return whether the scope permits an operation at a path of a URL; none if that depends on the base path of the server.
    pub(crate) fn may_allow(&self, operation: Operation, path: &[u8]) -> Option<bool> {
        let allowed = self.allowed.as_ref()?;
        let fits = |path: &[u8]| allows(allowed, operation, path);
        if allowed.iter().any(|(_, uri)| uri == b"/") && fits(b"/") {
            return Some(true);
        }
        // The base path of the server can be any number of leading names.
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let possible = slashes.into_iter().any(|(at, _)| fits(&path[at..]));
        (!possible).then_some(false)
    }
}

/// Return whether permissions include an operation at a path. Permission to modify includes permission to create.
fn allows(allowed: &[(Operation, Vec<u8>)], operation: Operation, path: &[u8]) -> bool {
    allowed.iter().any(|(allowed, uri)| {
        let fits = *allowed == operation
            || (operation == Operation::Create && *allowed == Operation::Modify);
        fits && is_within(path, uri)
    })
}

impl Scope {
    /// Return whether the scope permits an operation at a path of [`parse_path`].
    pub(crate) fn allows(&self, operation: Operation, path: &[u8]) -> bool {
        allows(&self.allowed, operation, path)
    }

    /// Return whether the scope is still valid.
    pub(crate) fn lives(&self, now_s: i64) -> bool {
        now_s < self.expires_s.saturating_add(LEEWAY_S)
    }
}

/// Return whether a path is at or below a base path.
fn is_within(path: &[u8], uri: &[u8]) -> bool {
    let rest = path.strip_prefix(uri.strip_suffix(b"/").unwrap_or(uri));
    !leads_up(path) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn leads_up(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b"..")
}

/// RFC 7519, section 2: a number, perhaps with a fraction.
fn whole_seconds(value: &Value) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "it saturates")]
    let cut = |seconds: f64| seconds as i64;
    value.as_i64().or_else(|| value.as_f64().map(cut))
}

fn key(written: &WrittenKey) -> Option<Key> {
    let part = |part: &Option<String>| from_base64url(part.as_deref()?);
    let kind = match (written.kty.as_str(), written.crv.as_deref()) {
        ("RSA", _) => KeyKind::Rsa {
            n: part(&written.n)?,
            e: part(&written.e)?,
        },
        ("EC", Some("P-256")) => {
            let point = [vec![4], part(&written.x)?, part(&written.y)?].concat();
            KeyKind::P256(point)
        }
        _ => return None,
    };
    Some(Key {
        id: written.kid.clone(),
        kind,
    })
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_slice(&from_base64url(text)?).ok()
}

/// RFC 4648, section 5, without padding.
fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let mut text: Vec<u8> = text
        .bytes()
        .map(|byte| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b'+' | b'/' | b'=' => None,
            other => Some(other),
        })
        .collect::<Option<_>>()?;
    text.resize(text.len().next_multiple_of(4), b'=');
    base64::decode(&text).ok()
}

fn parsed<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, CopyError> {
    let found = std::fs::metadata(path).map_err(|error| rejected(path, describe(&error)))?;
    if found.len() > MAX_BYTES {
        return Err(rejected(path, format!("{} bytes", found.len())));
    }
    let text = std::fs::read(path).map_err(|error| rejected(path, describe(&error)))?;
    serde_json::from_slice(&text).map_err(|error| rejected(path, error.to_string()))
}

fn rejected(path: &Path, found: String) -> CopyError {
    CopyError::Location {
        location: path.to_owned(),
        expected: "issuers of tokens, or their keys (JSON)",
        found,
        advice: "see `Tokens of WLCG` in docs/howto/serve.md",
    }
}
