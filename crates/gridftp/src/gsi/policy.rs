//! Signing policies of certificate authorities: files `<hash>.signing_policy`, in the subset of the
//! EACL format that grid authorities use.

use super::name::{is_same, normal};
use crate::FtpError;

/// Maximum bytes of a signing policy. Most files have several hundred.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// Rules of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SigningPolicy {
    /// Name of a CA → patterns of the subjects that it is permitted to sign.
    rules: Vec<(String, Vec<String>)>,
}

impl SigningPolicy {
    /// Parses a signing policy.
    ///
    /// # Errors
    /// If a rule is incomplete.
    pub fn parse(text: &[u8]) -> Result<Self, FtpError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(FtpError::Limit {
                context: "bytes of a signing policy",
                limit: MAX_FILE_BYTES as u64,
            });
        }
        let text = String::from_utf8_lossy(text);
        let mut rules: Vec<(String, Vec<String>)> = Vec::new();
        let mut may_sign = false;
        for line in text.lines().map(str::trim) {
            let (keyword, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let (kind, value) = rest
                .trim()
                .split_once(char::is_whitespace)
                .unwrap_or(("", ""));
            match (keyword, kind) {
                ("access_id_CA", "X509") => {
                    may_sign = false;
                    rules.push((unquoted(value)?.to_owned(), Vec::new()));
                }
                ("pos_rights", "globus") => may_sign = value.trim() == "CA:sign",
                ("cond_subjects", "globus") => {
                    let Some((_, patterns)) = rules.last_mut().filter(|_| may_sign) else {
                        continue;
                    };
                    patterns.extend(parse_patterns(unquoted(value)?));
                }
                _ => {}
            }
        }
        Ok(Self { rules })
    }

    /// Returns `true` if `ca` is permitted to sign `subject`.
    pub fn allows(&self, ca: &str, subject: &str) -> bool {
        let subject = normal(subject);
        self.rules
            .iter()
            .filter(|(name, _)| is_same(name, ca))
            .flat_map(|(_, patterns)| patterns)
            .any(|pattern| fits(&normal(pattern), &subject))
    }
}

/// Returns the text between apostrophes or quotation marks.
fn unquoted(value: &str) -> Result<&str, FtpError> {
    let value = value.trim();
    let mark = value.chars().next().filter(|mark| "'\"".contains(*mark));
    mark.and_then(|mark| value[1..].split_once(mark))
        .map(|(inside, _)| inside)
        .ok_or_else(|| {
            FtpError::malformed(
                "signing policy",
                "a name between apostrophes",
                value.as_bytes(),
            )
        })
}

/// Parses several quoted patterns, or a single pattern without quotation marks.
fn parse_patterns(value: &str) -> Vec<String> {
    if value.contains('"') {
        value
            .split('"')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    } else {
        vec![value.trim().to_owned()]
    }
}

/// Matches a pattern; `*` matches any text, and no other character is special.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or("");
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text_and_other_characters_match_literally() {
        for (pattern, text, expected) in [
            ("/O=Grid/*", "/O=Grid/CN=a", true),
            ("/O=Grid/*", "/O=Grid", false),
            ("*", "", true),
            ("*/CN=*x", "/O=a/CN=abx", true),
            ("*/CN=*x", "/O=a/CN=abxy", false),
            ("a*b*b", "ab", false),
            ("/O=G.id/*", "/O=Grid/CN=a", false),
            ("/CN=a", "/CN=ab", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn only_the_named_authority_may_sign_and_only_matching_subjects() {
        let policy = SigningPolicy::parse(
            b"# comment\n access_id_CA  X509  '/C=AU/O=A/CN=CA'\n pos_rights globus CA:sign\n cond_subjects globus '\"/C=AU/O=A/*\" \"/C=AU/O=B/*\"'\naccess_id_CA X509 \"/CN=Other\"\npos_rights globus CA:sign\ncond_subjects globus \"/CN=x*\"\n",
        )
        .unwrap();
        assert!(policy.allows("/C=AU/O=A/CN=CA", "/C=AU/O=B/CN=x"));
        assert!(!policy.allows("/C=AU/O=A/CN=CA", "/C=AU/O=C/CN=x"));
        assert!(policy.allows("/CN=Other", "/CN=xy"));
        assert!(!policy.allows("/CN=Third", "/CN=xy"));
    }

    #[test]
    fn an_authority_without_the_signing_right_may_sign_no_subject() {
        let policy =
            SigningPolicy::parse(b"access_id_CA X509 '/CN=C'\ncond_subjects globus '\"*\"'")
                .unwrap();
        assert!(!policy.allows("/CN=C", "/CN=x"));
        SigningPolicy::parse(b"access_id_CA X509 /CN=C").unwrap_err();
    }
}
