//! Conditions of requests: RFC 9110, section 13, and `If` of RFC 4918, section 10.4. The server has
//! no locks, so no state token matches.

use std::time::{Duration, SystemTime};

use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, StatusCode, Uri};
use rustix::io::Errno;

use super::issuers::Operation;
use super::response::{ErrorResponse, ParsedRequest, is_local, parse_path};
use crate::serve::confined_root::{ConfinedRoot, ServedMetadata};

/// The last second of the year 9999, since 1970.
const LAST_DATE_S: u64 = 253_402_300_799;
const IF: HeaderName = HeaderName::from_static("if");

/// Return the entity tag of a version. It changes with each modification, even if the time was set back.
pub(crate) fn etag(metadata: &ServedMetadata) -> String {
    let ((device, inode), (changed_s, changed_ns)) = (metadata.identity, metadata.changed);
    format!(
        "\"{device:x}-{inode:x}-{:x}-{:x}.{:x}-{changed_s:x}.{changed_ns:x}\"",
        metadata.bytes, metadata.modified_s, metadata.modified_ns
    )
}

/// Return the modification time of a version, limited to four-digit years, as HTTP dates require.
pub(crate) fn modified(metadata: &ServedMetadata) -> SystemTime {
    let seconds = u64::try_from(metadata.modified_s).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_DATE_S))
}

/// Conditions of a modifying request.
#[derive(Debug)]
pub(super) struct Conditions {
    path: Vec<u8>,
    fields: HeaderMap,
    /// Lists of `If`, each with its path; none for another server, or for a path that the client
    /// may not read. If there are lists, one must be true.
    lists: Vec<(Option<Vec<u8>>, Vec<Test>)>,
}

/// Test in a list of `If`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) negated: bool,
    /// Entity tag; none for a state token.
    pub(crate) tag: Option<Vec<u8>>,
}

impl Conditions {
    /// Return the conditions of a request.
    ///
    /// # Errors
    /// Malformed conditions.
    pub(super) fn of(request: &ParsedRequest) -> Result<Self, ErrorResponse> {
        let mut found = Vec::new();
        let mut lines = request.fields.get_all(IF).iter();
        if let Some(line) = lines.next() {
            let bad = || ErrorResponse::new(StatusCode::BAD_REQUEST, "the If header is malformed");
            let read = lists(line.as_bytes()).filter(|_| lines.next().is_none());
            for (tagged, tests) in read.ok_or_else(bad)? {
                let path = match tagged {
                    Some(uri) if !is_local(request, &uri) => None,
                    Some(uri) => parse_path(uri.path()),
                    None => Some(request.path.clone()),
                };
                let path = path.filter(|path| *path == request.path || may_stat(request, path));
                found.push((path, tests));
            }
        }
        let mut fields = HeaderMap::new();
        for name in [IF_MATCH, IF_UNMODIFIED_SINCE, IF_NONE_MATCH] {
            for value in request.fields.get_all(&name) {
                fields.append(&name, value.clone());
            }
        }
        Ok(Self {
            path: request.path.clone(),
            fields,
            lists: found,
        })
    }

    /// Return whether the conditions require that the destination does not exist.
    pub(super) fn only_new(&self) -> bool {
        is_any(&self.fields, &IF_NONE_MATCH)
    }

    /// Check the conditions now.
    ///
    /// # Errors
    /// A failed condition.
    pub(super) fn check(&self, root: &ConfinedRoot) -> Result<(), ErrorResponse> {
        if self.target_matches(root)? && self.lists_match(root)? {
            return Ok(());
        }
        Err(ErrorResponse::new(
            StatusCode::PRECONDITION_FAILED,
            "a condition of the request is false for the current file",
        ))
    }

    fn target_matches(&self, root: &ConfinedRoot) -> Result<bool, Errno> {
        if self.fields.is_empty() {
            return Ok(true);
        }
        let existing = found(root, &self.path)?;
        let is_rejected = is_listed(&self.fields, &IF_NONE_MATCH, existing.as_ref());
        Ok(is_expected(&self.fields, existing.as_ref()) && is_rejected != Some(true))
    }

    fn lists_match(&self, root: &ConfinedRoot) -> Result<bool, Errno> {
        for (path, tests) in &self.lists {
            let existing = match path {
                Some(path) => found(root, path)?,
                None => None,
            };
            if tests.iter().all(|test| test.is_true(existing.as_ref())) {
                return Ok(true);
            }
        }
        Ok(self.lists.is_empty())
    }

    /// Check the conditions of a request whose source must exist (RFC 9110, section 13.2.1).
    ///
    /// # Errors
    /// A failed condition, or a missing source.
    pub(super) fn check_source(&self, root: &ConfinedRoot) -> Result<(), ErrorResponse> {
        self.check(root).or_else(|rejection| {
            root.stat(&self.path)?;
            Err(rejection)
        })
    }
}

impl Test {
    fn is_true(&self, existing: Option<&ServedMetadata>) -> bool {
        let tag = self.tag.as_ref().zip(existing);
        tag.is_some_and(|(tag, metadata)| *tag == etag(metadata).as_bytes()) != self.negated
    }
}

/// Return the metadata of a path. A disk error is an error, not a failed condition.
fn found(root: &ConfinedRoot, path: &[u8]) -> Result<Option<ServedMetadata>, Errno> {
    match root.stat(path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        existing => existing.map(Some),
    }
}

fn may_stat(request: &ParsedRequest, path: &[u8]) -> bool {
    request.may(Operation::Read, path).is_ok()
}

/// Return the status of GET and HEAD (RFC 9110, section 13.2.2); none to continue.
pub(super) fn for_read(fields: &HeaderMap, metadata: &ServedMetadata) -> Option<StatusCode> {
    if !is_expected(fields, Some(metadata)) {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = is_listed(fields, &IF_NONE_MATCH, Some(metadata)).unwrap_or_else(|| {
        date(fields, &IF_MODIFIED_SINCE).is_some_and(|since| modified(metadata) <= since)
    });
    is_known.then_some(StatusCode::NOT_MODIFIED)
}

fn is_expected(fields: &HeaderMap, existing: Option<&ServedMetadata>) -> bool {
    is_listed(fields, &IF_MATCH, existing).unwrap_or_else(|| {
        let since = existing.zip(date(fields, &IF_UNMODIFIED_SINCE));
        since.is_none_or(|(metadata, since)| modified(metadata) <= since)
    })
}

fn date(fields: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(fields.get(name)?.to_str().ok()?).ok()
}

/// Return whether the current tag is in the header lines; none without such a header.
fn is_listed(
    fields: &HeaderMap,
    name: &HeaderName,
    existing: Option<&ServedMetadata>,
) -> Option<bool> {
    if !fields.contains_key(name) {
        return None;
    }
    let Some(metadata) = existing else {
        return Some(false);
    };
    let own = etag(metadata);
    let is_own = |tag: &[u8]| {
        // Only a weak comparison takes a weak tag (RFC 9110, section 8.8.3.2).
        let tag = tag
            .strip_prefix(b"W/")
            .filter(|_| name == IF_NONE_MATCH)
            .unwrap_or(tag);
        tag == own.as_bytes()
    };
    Some(is_any(fields, name) || tags(fields, name).any(is_own))
}

fn is_any(fields: &HeaderMap, name: &HeaderName) -> bool {
    tags(fields, name).any(|tag| tag == b"*")
}

/// Return the tags of a header. A tag with a comma is split; this server creates no such tags.
fn tags<'f>(fields: &'f HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'f [u8]> {
    let lines = fields.get_all(name).into_iter();
    let tags = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    tags.map(<[u8]>::trim_ascii)
}

/// Parse an `If` header into lists with their resources; the default is the resource of the
/// request.
pub(crate) fn lists(text: &[u8]) -> Option<Vec<(Option<Uri>, Vec<Test>)>> {
    let mut text = Text(text);
    let (mut found, mut path, mut is_required) = (Vec::new(), None, true);
    loop {
        if text.consume(b'<') {
            // A resource has a list, and lists without resource follow no resource.
            if is_required != found.is_empty() || path.is_none() != found.is_empty() {
                return None;
            }
            let uri = Uri::try_from(text.until(b'>')?).ok()?;
            path = Some(uri).filter(|uri| uri.path().starts_with('/'));
            path.as_ref()?;
            is_required = true;
        } else if text.consume(b'(') {
            found.push((path.clone(), list(&mut text)?));
            is_required = false;
        } else {
            return (text.0.is_empty() && !is_required).then_some(found);
        }
    }
}

fn list(text: &mut Text<'_>) -> Option<Vec<Test>> {
    let mut found = Vec::new();
    while !text.consume(b')') {
        let negated = text.consume_not();
        let tag = if text.consume(b'[') {
            let tag = text.tag()?.to_vec();
            text.consume(b']').then_some(Some(tag))?
        } else if text.consume(b'<') {
            let token = text.until(b'>')?;
            token.contains(&b':').then_some(None)?
        } else {
            return None;
        };
        found.push(Test { negated, tag });
    }
    (!found.is_empty()).then_some(found)
}

/// Unparsed rest.
struct Text<'t>(&'t [u8]);

impl<'t> Text<'t> {
    fn consume(&mut self, byte: u8) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn consume_not(&mut self) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.split_at_checked(3);
        let rest = rest.filter(|(word, _)| word.eq_ignore_ascii_case(b"Not"));
        self.0 = rest.map_or(self.0, |(_, rest)| rest);
        rest.is_some()
    }

    fn until(&mut self, end: u8) -> Option<&'t [u8]> {
        let cut = self.0.iter().position(|byte| *byte == end)?;
        let (found, rest) = (&self.0[..cut], &self.0[cut + 1..]);
        self.0 = rest;
        Some(found)
    }

    /// Parse a tag with its quotes and weakness mark.
    fn tag(&mut self) -> Option<&'t [u8]> {
        self.0 = self.0.trim_ascii_start();
        let all = self.0;
        self.0 = self.0.strip_prefix(b"W/").unwrap_or(self.0);
        self.0 = self.0.strip_prefix(b"\"")?;
        self.until(b'"')?;
        Some(&all[..all.len() - self.0.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn test(negated: bool, tag: Option<&str>) -> Test {
        Test {
            negated,
            tag: tag.map(|tag| tag.as_bytes().to_vec()),
        }
    }

    #[test]
    fn lists_are_parsed_as_in_rfc_4918() {
        let path = |text: &str| Some(text.parse::<Uri>().expect("a URI"));
        // Section 10.4.6 and its examples.
        let text = br#"(<urn:uuid:181d4fae-7d8c-11d0-a765-00a0c91e6bf2> ["I am an ETag"]) (["I am another ETag"])"#;
        assert_eq!(
            lists(text).expect("two lists"),
            [
                (
                    None,
                    vec![test(false, None), test(false, Some("\"I am an ETag\""))]
                ),
                (None, vec![test(false, Some("\"I am another ETag\""))]),
            ]
        );
        let text = b"(Not <urn:uuid:181d4fae-7d8c-11d0-a765-00a0c91e6bf2> <urn:uuid:58f202ac-22cf-11d1-b12d-002035b29092>)";
        assert_eq!(
            lists(text).expect("a list"),
            [(None, vec![test(true, None), test(false, None)])]
        );
        let text = br#"</resource1> (<urn:uuid:181d4fae-7d8c-11d0-a765-00a0c91e6bf2> [W/"A weak ETag"]) (["strong ]ETag"])<http://h:80/b>(not["x"])"#;
        assert_eq!(
            lists(text).expect("three lists"),
            [
                (
                    path("/resource1"),
                    vec![test(false, None), test(false, Some("W/\"A weak ETag\""))]
                ),
                (
                    path("/resource1"),
                    vec![test(false, Some("\"strong ]ETag\""))]
                ),
                (path("http://h:80/b"), vec![test(true, Some("\"x\""))]),
            ]
        );
    }

    #[test]
    fn invalid_lists_are_rejected() {
        for text in [
            "",
            "()",
            "(",
            "x",
            "</a>",
            "</a></b>([\"x\"])",
            "([\"x\"]) </a> ([\"x\"])",
            "<a>([\"x\"])",
            "([x])",
            "([\"x\")",
            "([\"x])",
            "(<a>)",
            "(<a:b)",
            "(Not)",
            "([\"x\"]) x",
            "([\"x\"]) </a>",
            "</a>([\"x\"]) </b>",
            "</a b>([\"x\"])",
        ] {
            assert_eq!(lists(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), text in "[<>()\\[\\]\"/a:NotW ]{0,100}") {
            let _ = lists(&bytes);
            let _ = lists(text.as_bytes());
        }
    }
}
