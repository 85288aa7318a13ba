//! Conditions of requests: those of RFC 9110, section 13, and `If` of RFC 4918, section 10.4. There are no locks here, so no state token matches.

use std::time::{Duration, SystemTime};

use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, StatusCode, Uri};
use rustix::io::Errno;

use super::answer::{Asked, Refusal, is_here, path_of};
use super::issuers::Deed;
use crate::serve::root::{Facts, Root};

/// The last second of the year 9999, since 1970.
const LAST_DATE_S: u64 = 253_402_300_799;
const IF: HeaderName = HeaderName::from_static("if");

/// The tag of a version: another one after each change, also one whose time was set back.
pub(crate) fn etag(facts: &Facts) -> String {
    let ((device, inode), (changed_s, changed_ns)) = (facts.identity, facts.changed);
    format!(
        "\"{device:x}-{inode:x}-{:x}-{:x}.{:x}-{changed_s:x}.{changed_ns:x}\"",
        facts.bytes, facts.modified_s, facts.modified_ns
    )
}

/// The time of a version, as near to it as a date of HTTP can be, which has four digits for the year.
pub(crate) fn modified(facts: &Facts) -> SystemTime {
    let seconds = u64::try_from(facts.modified_s).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_DATE_S))
}

/// What must be so for something to be changed.
#[derive(Debug)]
pub(super) struct Conditions {
    path: Vec<u8>,
    fields: HeaderMap,
    /// Of `If`, by the path that each is about; of another server, or where the client may not look, none. One must be true, if there are any.
    lists: Vec<(Option<Vec<u8>>, Vec<Test>)>,
}

/// One of a list of `If`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) negated: bool,
    /// None: a state token.
    pub(crate) tag: Option<Vec<u8>>,
}

impl Conditions {
    /// Those of a request.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn of(asked: &Asked) -> Result<Self, Refusal> {
        let mut found = Vec::new();
        let mut lines = asked.fields.get_all(IF).iter();
        if let Some(line) = lines.next() {
            let bad = || Refusal::new(StatusCode::BAD_REQUEST, "an If that is not understood");
            let read = lists(line.as_bytes()).filter(|_| lines.next().is_none());
            for (place, tests) in read.ok_or_else(bad)? {
                let path = match place {
                    Some(uri) if !is_here(asked, &uri) => None,
                    Some(uri) => path_of(uri.path()),
                    None => Some(asked.path.clone()),
                };
                let path = path.filter(|path| *path == asked.path || may_look(asked, path));
                found.push((path, tests));
            }
        }
        let mut fields = HeaderMap::new();
        for name in [IF_MATCH, IF_UNMODIFIED_SINCE, IF_NONE_MATCH] {
            for value in asked.fields.get_all(&name) {
                fields.append(&name, value.clone());
            }
        }
        Ok(Self {
            path: asked.path.clone(),
            fields,
            lists: found,
        })
    }

    /// Whether they want nothing to be there.
    pub(super) fn only_new(&self) -> bool {
        is_any(&self.fields, &IF_NONE_MATCH)
    }

    /// Sees that they hold now.
    ///
    /// # Errors
    /// If they do not.
    pub(super) fn hold(&self, root: &Root) -> Result<(), Refusal> {
        if self.of_target(root)? && self.of_lists(root)? {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::PRECONDITION_FAILED,
            "what is there is not what was expected",
        ))
    }

    fn of_target(&self, root: &Root) -> Result<bool, Errno> {
        if self.fields.is_empty() {
            return Ok(true);
        }
        let there = found(root, &self.path)?;
        let is_refused = is_listed(&self.fields, &IF_NONE_MATCH, there.as_ref());
        Ok(is_expected(&self.fields, there.as_ref()) && is_refused != Some(true))
    }

    fn of_lists(&self, root: &Root) -> Result<bool, Errno> {
        for (path, tests) in &self.lists {
            let there = match path {
                Some(path) => found(root, path)?,
                None => None,
            };
            if tests.iter().all(|test| test.is_true(there.as_ref())) {
                return Ok(true);
            }
        }
        Ok(self.lists.is_empty())
    }

    /// The same where something must be there in any case: if nothing is, that is told (RFC 9110, section 13.2.1).
    ///
    /// # Errors
    /// If they do not, or nothing is there.
    pub(super) fn hold_of_source(&self, root: &Root) -> Result<(), Refusal> {
        self.hold(root).or_else(|refusal| {
            root.stat(&self.path)?;
            Err(refusal)
        })
    }
}

impl Test {
    fn is_true(&self, there: Option<&Facts>) -> bool {
        let tag = self.tag.as_ref().zip(there);
        tag.is_some_and(|(tag, facts)| *tag == etag(facts).as_bytes()) != self.negated
    }
}

/// What is at a path. A disk that does not tell makes no condition true or false: that is told.
fn found(root: &Root, path: &[u8]) -> Result<Option<Facts>, Errno> {
    match root.stat(path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        there => there.map(Some),
    }
}

fn may_look(asked: &Asked, path: &[u8]) -> bool {
    asked.may(Deed::Read, path).is_ok()
}

/// What they say of GET and HEAD (RFC 9110, section 13.2.2): none, go on.
pub(super) fn of_reading(fields: &HeaderMap, facts: &Facts) -> Option<StatusCode> {
    if !is_expected(fields, Some(facts)) {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = is_listed(fields, &IF_NONE_MATCH, Some(facts)).unwrap_or_else(|| {
        date(fields, &IF_MODIFIED_SINCE).is_some_and(|since| modified(facts) <= since)
    });
    is_known.then_some(StatusCode::NOT_MODIFIED)
}

fn is_expected(fields: &HeaderMap, there: Option<&Facts>) -> bool {
    is_listed(fields, &IF_MATCH, there).unwrap_or_else(|| {
        let since = there.zip(date(fields, &IF_UNMODIFIED_SINCE));
        since.is_none_or(|(facts, since)| modified(facts) <= since)
    })
}

fn date(fields: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(fields.get(name)?.to_str().ok()?).ok()
}

/// Whether what is there is in a list of tags, of however many lines; none: there is no list.
fn is_listed(fields: &HeaderMap, name: &HeaderName, there: Option<&Facts>) -> Option<bool> {
    if !fields.contains_key(name) {
        return None;
    }
    let Some(facts) = there else {
        return Some(false);
    };
    let own = etag(facts);
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

/// The tags of a list. One that has a comma in it is cut, and is no tag of ours then either.
fn tags<'f>(fields: &'f HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'f [u8]> {
    let lines = fields.get_all(name).into_iter();
    let tags = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    tags.map(<[u8]>::trim_ascii)
}

/// Reads an `If`: its lists, each with the place that it is about, which is that of the request if none is named.
pub(crate) fn lists(text: &[u8]) -> Option<Vec<(Option<Uri>, Vec<Test>)>> {
    let mut text = Text(text);
    let (mut found, mut place, mut is_due) = (Vec::new(), None, true);
    loop {
        if text.takes(b'<') {
            // A place has a list, and lists without one have none before them.
            if is_due != found.is_empty() || place.is_none() != found.is_empty() {
                return None;
            }
            let uri = Uri::try_from(text.until(b'>')?).ok()?;
            place = Some(uri).filter(|uri| uri.path().starts_with('/'));
            place.as_ref()?;
            is_due = true;
        } else if text.takes(b'(') {
            found.push((place.clone(), list(&mut text)?));
            is_due = false;
        } else {
            return (text.0.is_empty() && !is_due).then_some(found);
        }
    }
}

fn list(text: &mut Text<'_>) -> Option<Vec<Test>> {
    let mut found = Vec::new();
    while !text.takes(b')') {
        let negated = text.takes_not();
        let tag = if text.takes(b'[') {
            let tag = text.tag()?.to_vec();
            text.takes(b']').then_some(Some(tag))?
        } else if text.takes(b'<') {
            let token = text.until(b'>')?;
            token.contains(&b':').then_some(None)?
        } else {
            return None;
        };
        found.push(Test { negated, tag });
    }
    (!found.is_empty()).then_some(found)
}

/// What is not read yet.
struct Text<'t>(&'t [u8]);

impl<'t> Text<'t> {
    fn takes(&mut self, byte: u8) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn takes_not(&mut self) -> bool {
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

    /// A tag in its quotes, with what makes it weak.
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
    fn lists_are_read_as_rfc_4918_has_them() {
        let place = |text: &str| Some(text.parse::<Uri>().expect("a URI"));
        // Section 10.4.6, and what follows there.
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
                    place("/resource1"),
                    vec![test(false, None), test(false, Some("W/\"A weak ETag\""))]
                ),
                (
                    place("/resource1"),
                    vec![test(false, Some("\"strong ]ETag\""))]
                ),
                (place("http://h:80/b"), vec![test(true, Some("\"x\""))]),
            ]
        );
    }

    #[test]
    fn what_is_no_list_is_refused() {
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
