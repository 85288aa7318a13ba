//! grid-mapfiles, which map names in certificates to local users. A line has a name in quotation
//! marks and a comma-separated list of users.

use super::name::normal;
use crate::FtpError;

/// Maximum bytes of a grid-mapfile. Files of large sites have several hundred thousand.
const MAX_FILE_BYTES: usize = 64 << 20;

/// Names of a grid-mapfile, each with its permitted users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GridMap {
    lines: Vec<(String, Vec<String>)>,
}

impl GridMap {
    /// Parses a grid-mapfile. Ignores empty lines and lines that start with `#`.
    ///
    /// # Errors
    /// If a line lacks a name or a user. The error contains the line number.
    pub fn parse(text: &str) -> Result<Self, FtpError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(FtpError::Limit {
                context: "bytes of a grid-mapfile",
                limit: MAX_FILE_BYTES as u64,
            });
        }
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = entry(line).ok_or_else(|| {
                FtpError::Security(format!(
                    "grid-mapfile, line {number}: expected `\"/name\" user`, found `{}`. Fix the line.",
                    crate::excerpt(line.as_bytes())
                ))
            })?;
            lines.push(parsed);
        }
        Ok(Self { lines })
    }

    /// Returns `true` if the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the default user of a name: the first user of its first line.
    #[must_use]
    pub fn user(&self, identity: &str) -> Option<&str> {
        self.users(identity).next()
    }

    /// Returns `true` if the name is permitted to use this user.
    #[must_use]
    pub fn allows(&self, identity: &str, user: &str) -> bool {
        self.users(identity).any(|known| known == user)
    }

    fn users(&self, identity: &str) -> impl Iterator<Item = &str> {
        let identity = normal(identity);
        self.lines
            .iter()
            .filter(move |(name, _)| *name == identity)
            .flat_map(|(_, users)| users.iter().map(String::as_str))
    }
}

fn entry(line: &str) -> Option<(String, Vec<String>)> {
    let (name, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted_name(quoted)?,
        None => {
            let (name, rest) = line.split_once(char::is_whitespace)?;
            (name.to_owned(), rest)
        }
    };
    let users = rest.split_whitespace().next()?;
    let users: Vec<String> = users
        .split(',')
        .filter(|user| !user.is_empty())
        .map(str::to_owned)
        .collect();
    (name.starts_with('/') && !users.is_empty()).then(|| (normal(&name), users))
}

/// Splits the text at the first unescaped quotation mark. A backslash escapes quotation marks and
/// backslashes; in `\xHH` it is kept.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                escaped @ ('"' | '\\') => name.push(escaped),
                other => name.extend(['\\', other]),
            },
            other => name.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_subject_maps_to_the_users_of_all_its_lines_and_by_default_to_the_first() {
        let map = GridMap::parse(
            "# users\n\n\"/O=Grid/CN=A B\" alice,bob\n\"/O=Grid/CN=A B\" carol\n/O=Grid/CN=x dave\n\"/O=Grid/E=a@b/CN=\\\"q\\\"\" eve # later\n",
        )
        .unwrap();
        assert_eq!(map.user("/O=Grid/CN=A B"), Some("alice"));
        assert!(map.allows("/O=Grid/CN=A B", "carol"));
        assert!(!map.allows("/O=Grid/CN=A B", "dave"));
        assert_eq!(map.user("/O=Grid/CN=x"), Some("dave"));
        assert_eq!(map.user("/O=Grid/emailAddress=a@b/CN=\"q\""), Some("eve"));
        assert_eq!(map.user("/O=Grid/CN=A"), None);
    }

    #[test]
    fn a_line_without_a_user_is_reported_by_its_number() {
        for wrong in [
            "\"/O=Grid\"",
            "\"/O=Grid user",
            "O=Grid user",
            "\"/O=Grid\" ,",
        ] {
            let error = GridMap::parse(&format!("# first\n{wrong}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains("line 2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: String) {
            let _ = GridMap::parse(&text);
        }
    }
}
