//! Who may come in: a file with a line `NAME:HASH` for each user.
//!
//! HASH is that of SHA-crypt, `$6$` (SHA-512) or `$5$` (SHA-256), as `openssl passwd -6` and `mkpasswd` print it: salted, slow on purpose, and
//! known to everybody who has a system. Empty lines and those that begin with `#` count for nothing.

use std::collections::HashMap;
use std::path::Path;

use sha_crypt::{Sha256Params, Sha512Params, sha256_crypt_b64, sha512_crypt_b64};

use crate::error::{Error, said};

/// Largest file of users, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// Rounds where a hash does not say how many (specification of SHA-crypt).
const ROUNDS: usize = 5000;
/// Most rounds: a second or so, for each try of anybody.
const MAX_ROUNDS: usize = 1_000_000;
/// Longest salt (specification of SHA-crypt).
const MAX_SALT_BYTES: usize = 16;
/// Longest password; the time that a hash takes grows with it.
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
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is too large, or has a line that is not of the form.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let place = |found: String| Error::Place {
            place: path.to_owned(),
            expected: "a file of users of at most 16 MiB",
            found,
            advice: "make one: echo \"NAME:$(openssl passwd -6)\" > FILE",
        };
        let facts = std::fs::metadata(path).map_err(|error| place(said(&error)))?;
        if facts.len() > MAX_BYTES {
            return Err(place(format!("{} bytes", facts.len())));
        }
        let text = std::fs::read_to_string(path).map_err(|error| place(said(&error)))?;
        let users = Self::parse(path, &text)?;
        if users.0.is_empty() {
            return Err(place("no user, so that nobody could come in".into()));
        }
        Ok(users)
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut users = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            // What stands there may be somebody's password: it is not repeated.
            let wrong = |found: &str| Error::List {
                list: path.to_owned(),
                line,
                expected: "NAME:HASH, with HASH as `openssl passwd -6` prints it",
                found: found.to_owned(),
            };
            let (name, hash) = text.split_once(':').ok_or_else(|| wrong("no colon"))?;
            let hash = Hash::parse(hash).ok_or_else(|| wrong("another kind of hash"))?;
            if name.is_empty() || users.insert(name.as_bytes().to_vec(), hash).is_some() {
                return Err(wrong("no name, or one that is there twice"));
            }
        }
        Ok(Self(users))
    }

    /// Whether this is the password of this user. Takes milliseconds of a processor, as many for users who are not there.
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
        // Where two hashes differ says nothing of the password; no need to compare them at an even pace.
        found.is_ok_and(|found| found == self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What OpenSSL 3.0 prints for the password of the specification's examples (U. Drepper): `openssl passwd -6 -salt saltstring`, `-5`, and
    /// with the salt `rounds=10000$saltstringsaltst`.
    const FILE: &str = "# users\n\n\
        short:$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1\n\
        narrow:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n\
        rounds:$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v.\n";

    fn users(text: &str) -> Result<Users, Error> {
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
    fn lines_that_are_not_of_the_form_are_told_by_their_number_and_not_repeated() {
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
