//! Tokens that say themselves what their bearer may do: JSON Web Tokens (RFC 7519) with the scopes of WLCG (Common JWT Profiles 1.2, section 3).
//!
//! Believed is who an administrator names, with the keys that lie beside: nothing is fetched. A key has one algorithm, RS256 or ES256, whatever a token says.
//! Left out: SciTokens, groups (`wlcg.groups`), revocation.
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

use super::answer::path_of;
use crate::error::{Error, said};

#[cfg(test)]
mod tests;

/// Largest file of issuers or keys, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Largest token, bytes: what fits into the head of a request.
const MAX_TOKEN_BYTES: usize = 32 << 10;
/// Seconds by which clocks may differ.
const LEEWAY_S: i64 = 60;
/// The audience that stands for all (WLCG Common JWT Profiles 1.2, section 3.1).
const ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";

/// Whose tokens are believed.
#[derive(Debug, Default)]
pub(crate) struct Issuers(Vec<Issuer>);

#[derive(Debug)]
struct Issuer {
    name: String,
    audiences: Vec<String>,
    /// Where its paths begin, without a slash at the end.
    base: Vec<u8>,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
}

/// An issuer, as it is written.
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

/// What can be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Read it, and what is said of it.
    Read,
    /// Make it where nothing is.
    Create,
    /// Change, move or remove it.
    Modify,
}

/// What a token allows, until when, and whose it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// For logs.
    pub(crate) subject: String,
    expires_s: i64,
    allowed: Vec<(Deed, Vec<u8>)>,
}

impl Issuers {
    /// Reads a file of issuers, and those of their keys, whose paths are relative to it.
    ///
    /// # Errors
    /// If one cannot be read, or has something else in it.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let written: Vec<Written> = parsed(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let issuers = written.into_iter().map(|written| {
            let keys_path = folder.join(&written.keys);
            let Keys { keys } = parsed(&keys_path)?;
            let keys: Vec<Key> = keys.iter().filter_map(key).collect();
            if keys.is_empty() {
                return Err(refused(&keys_path, "no key for RS256 or ES256".into()));
            }
            if written.audiences.is_empty() {
                return Err(refused(
                    path,
                    format!("no audience of `{}`", written.issuer),
                ));
            }
            let base = format!("/{}", written.path.trim_matches('/'));
            let base = path_of(&base).filter(|base| !leads_up(base));
            let base = base.ok_or_else(|| refused(path, format!("path `{}`", written.path)))?;
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
            // Which audiences and which path would be its?
            Some(twice) => Err(refused(path, format!("`{}` twice", twice.name))),
            None => Ok(Self(issuers)),
        }
    }

    /// What a token allows at a time, in seconds since 1970; none if it is not believed.
    pub(crate) fn admit(&self, token: &str, now_s: i64) -> Option<Scope> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let (head, claims) = (json(head)?, json(claims)?);
        let issuer = claims.get("iss")?.as_str()?;
        let issuer = self.0.iter().find(|known| known.name == issuer)?;
        // RFC 7515, section 4.1.11: what must be understood, and is not.
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

impl Kind {
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
                .filter_map(|scope| self.allowed(scope))
                .collect(),
        })
    }

    /// What is not understood allows nothing.
    fn allowed(&self, scope: &str) -> Option<(Deed, Vec<u8>)> {
        let (name, path) = scope.split_once(':')?;
        let deed = match name {
            "storage.read" => Deed::Read,
            "storage.create" => Deed::Create,
            "storage.modify" => Deed::Modify,
            _ => return None,
        };
        let path = path_of(path).filter(|path| !leads_up(path))?;
        Some((deed, [&self.base[..], &path].concat()))
    }
}

impl Scope {
    /// Whether it allows this at a path, as [`path_of`] has it. Who may change what is there may make it, too.
    pub(crate) fn allows(&self, deed: Deed, path: &[u8]) -> bool {
        self.allowed.iter().any(|(allowed, place)| {
            let fits = *allowed == deed || (deed == Deed::Create && *allowed == Deed::Modify);
            fits && is_within(path, place)
        })
    }

    /// Whether it still allows anything.
    pub(crate) fn lives(&self, now_s: i64) -> bool {
        now_s < self.expires_s.saturating_add(LEEWAY_S)
    }
}

/// Whether a path is that place, or in it.
fn is_within(path: &[u8], place: &[u8]) -> bool {
    let rest = path.strip_prefix(place.strip_suffix(b"/").unwrap_or(place));
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
        ("RSA", _) => Kind::Rsa {
            n: part(&written.n)?,
            e: part(&written.e)?,
        },
        ("EC", Some("P-256")) => {
            let point = [vec![4], part(&written.x)?, part(&written.y)?].concat();
            Kind::P256(point)
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

fn parsed<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let found = std::fs::metadata(path).map_err(|error| refused(path, said(&error)))?;
    if found.len() > MAX_BYTES {
        return Err(refused(path, format!("{} bytes", found.len())));
    }
    let text = std::fs::read(path).map_err(|error| refused(path, said(&error)))?;
    serde_json::from_slice(&text).map_err(|error| refused(path, error.to_string()))
}

fn refused(path: &Path, found: String) -> Error {
    Error::Place {
        place: path.to_owned(),
        expected: "issuers of tokens, or their keys (JSON)",
        found,
        advice: "see `Tokens of WLCG` in docs/howto/serve.md",
    }
}
