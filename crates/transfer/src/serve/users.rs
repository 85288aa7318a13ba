//! Users: a file with one line `NAME:HASH` for each user.
//!
//! HASH is SHA-crypt, `$6$` (SHA-512) or `$5$` (SHA-256), as printed by `openssl passwd -6` and
//! `mkpasswd`: salted, deliberately slow, and available on all systems. Empty lines and lines that
//! start with `#` are skipped.

use std::collections::HashMap;
use std::path::Path;

use sha_crypt::{Sha256Params, Sha512Params, sha256_crypt_b64, sha512_crypt_b64};

use crate::error::{CopyError, describe};

/// Maximum bytes of a users file.
const MAX_BYTES: u64 = 16 << 20;
/// Default rounds of a hash (specification of SHA-crypt).
const ROUNDS: usize = 5000;
/// Maximum rounds: about a second for each attempt of any client.
const MAX_ROUNDS: usize = 1_000_000;
/// Maximum length of a salt (specification of SHA-crypt).
const MAX_SALT_BYTES: usize = 16;
/// Maximum length of a password, because the time of a hash grows with it.
const MAX_PASSWORD_BYTES: usize = 256;

/// Users and their hashes.
#[derive(Debug, Default)]
pub(crate) struct Users(HashMap<Vec<u8>, Hash>);

#[derive(Debug, Clone)]
struct Hash {
    wide: bool,
    rounds: usize,
    salt: String,
    digest: String,
}

impl Users {
    /// Read a file.
    ///
    /// # Errors
    /// The file is unreadable or too large, or has an invalid line.
    pub(crate) fn read(path: &Path) -> Result<Self, CopyError> {
        let base_path = |found: String| CopyError::Location {
            location: path.to_owned(),
            expected: "a file of users of at most 16 MiB",
            found,
            advice: "create one: echo \"NAME:$(openssl passwd -6)\" > FILE",
        };
        let facts = std::fs::metadata(path).map_err(|error| base_path(describe(&error)))?;
        if facts.len() > MAX_BYTES {
            return Err(base_path(format!("{} bytes", facts.len())));
        }
        let text = std::fs::read_to_string(path).map_err(|error| base_path(describe(&error)))?;
        let users = Self::parse(path, &text)?;
        if users.0.is_empty() {
            return Err(base_path("no user, so every login would fail".into()));
        }
        Ok(users)
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, CopyError> {
        let mut users = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            // The line may contain a password, so it is not repeated.
            let wrong = |found: &str| CopyError::List {
                list: path.to_owned(),
                line,
                expected: "NAME:HASH, with HASH as `openssl passwd -6` prints it",
                found: found.to_owned(),
            };
            let (name, hash) = text.split_once(':').ok_or_else(|| wrong("no colon"))?;
            let hash = Hash::parse(hash).ok_or_else(|| wrong("another type of hash"))?;
            if name.is_empty() || users.insert(name.as_bytes().to_vec(), hash).is_some() {
                return Err(wrong("an empty or duplicate name"));
            }
        }
        Ok(Self(users))
    }

    /// Check the password of a user. Takes milliseconds of CPU time, also for unknown users.
    pub(crate) fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        let unknown = Hash {
            wide: true,
            rounds: ROUNDS,
            salt: "unknown".into(),
            digest: String::new(),
        };
        let hash = self.0.get(name);
        let matches = hash.unwrap_or(&unknown).matches(password);
        hash.is_some() && matches
    }
}

impl Hash {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix('$')?.split('$');
        let wide = match fields.next()? {
            "6" => true,
            "5" => false,
            _ => return None,
        };
        let mut salt = fields.next()?;
        let mut rounds = ROUNDS;
        if let Some(count) = salt.strip_prefix("rounds=") {
            rounds = count.parse().ok()?;
            salt = fields.next()?;
        }
        let digest = fields.next()?;
        let bytes = if wide { 86 } else { 43 };
        let known = fields.next().is_none()
            && (1000..=MAX_ROUNDS).contains(&rounds)
            && salt.len() <= MAX_SALT_BYTES
            && digest.len() == bytes;
        known.then(|| Self {
            wide,
            rounds,
            salt: salt.to_owned(),
            digest: digest.to_owned(),
        })
    }

    fn matches(&self, password: &[u8]) -> bool {
        if password.len() > MAX_PASSWORD_BYTES {
            return false;
        }
        let salt = self.salt.as_bytes();
        let found = if self.wide {
            Sha512Params::new(self.rounds).and_then(|how| sha512_crypt_b64(password, salt, &how))
        } else {
            Sha256Params::new(self.rounds).and_then(|how| sha256_crypt_b64(password, salt, &how))
        };
        // The position of a difference reveals no password, so no constant-time comparison is needed.
        found.is_ok_and(|found| found == self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of OpenSSL 3.0 for the example password of the specification (U. Drepper): `openssl passwd -6 -salt
    /// saltstring`, `-5`, and with the salt `rounds=10000$saltstringsaltst`.
    const FILE: &str = "# users\n\n\
        short:$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1\n\
        narrow:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n\
        rounds:$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.\n";

    fn users(text: &str) -> Result<Users, CopyError> {
        Users::parse(Path::new("users"), text)
    }

    #[test]
    fn passwords_that_openssl_hashed_are_admitted_and_others_are_not() {
        let users = users(FILE).expect("a file of users");
        for name in ["short", "narrow", "rounds"] {
            assert!(users.admits(name.as_bytes(), b"Hello world!"), "{name}");
            assert!(!users.admits(name.as_bytes(), b"Hello world"), "{name}");
            assert!(!users.admits(name.as_bytes(), b""), "{name}");
        }
        assert!(!users.admits(b"nobody", b"Hello world!"));
        assert!(!users.admits(b"short", &[b'x'; 1 << 20]));
    }

    #[test]
    fn invalid_lines_are_reported_by_their_number_without_their_text() {
        for wrong in [
            "ann",
            "ann:password",
            "ann:$1$salt$digest",
            ":$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5",
            "ann:$6$rounds=999999999$s$x",
            "ann:$6$salt$short",
        ] {
            let error = users(&format!("# first\n{wrong}"))
                .expect_err(wrong)
                .to_string();
            assert!(
                error.contains("line 2") && !error.contains(wrong),
                "{error}"
            );
        }
        let twice = FILE.lines().nth(2).expect("a line");
        users(&format!("{twice}\n{twice}")).expect_err("twice");
    }
}
