//! Properties of the private parsers of this crate for fuzzers. Each function takes arbitrary bytes
//! and panics if a property does not hold.
//!
//! Only `venturi-fuzz` builds this module, with the feature `fuzz`. Properties of the protocol core
//! are in the crate of the core.

use std::ffi::OsStr;
use std::io::Cursor;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use http::{HeaderMap, HeaderValue, Uri};

use crate::checksum::Algorithm;
use crate::glob;
use crate::http::dav;
use crate::http::digest;
use crate::http::marker::{self, CopyOutcome, Markers};
use crate::http::range::{self, MAX_RANGES, RequestedRange};
use crate::http::target::HttpTarget;
use crate::http::token;
use crate::list;
use crate::net::url::{self, Scheme, Url};
use crate::serve::http::conditions;
use crate::serve::http::properties::{self, END, PropertyChanges, PropfindRequest, START};
use crate::serve::users;

/// Password that occurs in no other part of a URL.
const PASSWORD: &str = "\u{1f511}sesame\u{1f511}";

/// A parsed URL is written and parsed again without change, and its password is not shown.
pub fn urls(bytes: &[u8]) {
    let text = OsStr::from_bytes(bytes);
    if let Ok(read) = Url::parse(text) {
        assert!(!read.path.contains(&0) && (read.port > 0 || read.scheme == Scheme::File));
        let scheme = read.scheme.name();
        let written = format!("{scheme}://{}{}", read.authority(), read.encoded_path());
        let again = Url::parse(OsStr::new(&written)).expect("what was written");
        assert!(again.is_same_server(&Url {
            user: None,
            password: None,
            ..read.clone()
        }));
        let path = if read.path.starts_with(b"/") {
            &read.path[..]
        } else {
            b"/"
        };
        assert_eq!(again.path, path, "{written}");
        let (target, query) = (HttpTarget::from(&read), read.query.clone());
        assert!(
            target.path.starts_with('/') && query.is_none_or(|query| target.path.ends_with(&query))
        );
    }
    let ends = |byte: &u8| b"/?#@".contains(byte);
    let mut parts = bytes.splitn(3, ends).map(String::from_utf8_lossy);
    let mut part = || parts.next().unwrap_or_default().into_owned();
    let (user, host, path) = (part(), part(), part());
    let user = user.replace(PASSWORD, "");
    for scheme in ["ftp", "davs", "sftp"] {
        let secret = format!("{scheme}://{user}:{PASSWORD}@{host}/{path}");
        let report = match Url::parse(OsStr::new(&secret)) {
            Ok(read) => format!("{read} {read:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        let shown = url::shown(OsStr::new(&secret)) + &report;
        assert!(
            !shown.contains("sesame") || format!("{user}{host}{path}").contains("sesame"),
            "{shown}"
        );
    }
    if !bytes.contains(&0) {
        assert_eq!(
            url::decoded(url::encoded(bytes).as_bytes()).as_deref(),
            Some(bytes)
        );
    }
}

/// A wildcard match has the result of a matcher that tries all possibilities.
pub fn globs(bytes: &[u8]) {
    let (pattern, name) = halves(bytes);
    let found = glob::matches(pattern, name);
    assert!(glob::wild(pattern) || found == (pattern == name));
    if !pattern.contains(&b'[') && pattern.len() < 12 && name.len() < 24 {
        assert_eq!(found, fits(pattern, name), "{}", pattern.escape_ascii());
    }
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, _) => name.is_empty(),
        (Some((b'*', rest)), _) => (0..=name.len()).any(|at| fits(rest, &name[at..])),
        (Some((b'?', rest)), Some((_, behind))) => fits(rest, behind),
        (Some((letter, rest)), Some((first, behind))) => letter == first && fits(rest, behind),
        (Some(_), None) => false,
    }
}

/// No name in a list leaves its directory, and no pair lacks a side.
pub fn lists(bytes: &[u8]) {
    let from = Path::new("list");
    for null in [false, true] {
        if let Ok(names) = list::names(from, &mut Cursor::new(bytes), null) {
            for name in names {
                let inside =
                    |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
                assert!(name.file_name().is_some() && name.components().all(inside));
            }
        }
        if let Ok(pairs) = list::pairs(from, &mut Cursor::new(bytes), null) {
            let whole = |side: std::ffi::OsString| !side.into_vec().is_empty();
            assert!(pairs.into_iter().all(|(from, to)| whole(from) && whole(to)));
        }
    }
}

/// The result of a third-party copy does not depend on how its body is split, and it is a success
/// only if the body contains the word.
pub fn markers(bytes: &[u8]) {
    let Some((&cut, body)) = bytes.split_first() else {
        return;
    };
    let (mut whole, mut in_parts) = (Markers::default(), Markers::default());
    let read = whole.feed(body);
    let cut_read: Result<Vec<_>, _> = body
        .chunks(usize::from(cut).max(1))
        .map(|bytes| in_parts.feed(bytes))
        .collect();
    assert_eq!(read.is_ok(), cut_read.is_ok());
    if let (Ok(read), Ok(cut_read)) = (read, cut_read) {
        assert_eq!(read, cut_read.into_iter().flatten().last());
        let (report, again) = (whole.finish(), in_parts.finish());
        assert_eq!(report, again);
        let text = String::from_utf8_lossy(body).to_ascii_lowercase();
        assert!(report != Some(CopyOutcome::Success) || text.contains("success"));
    }
    let reason = String::from_utf8_lossy(body);
    let mut own = Markers::default();
    let text = marker::marker(1, u64::from(cut), &[]) + &marker::failure(&reason);
    if let Ok(count) = own.feed(text.as_bytes()) {
        assert_eq!(count, Some(u64::from(cut)));
        assert!(
            matches!(own.finish(), Some(CopyOutcome::Failure(_))),
            "{text}"
        );
    }
}

/// Requested ranges do not exceed the file, and a written range is parsed again without change.
pub fn http_ranges(bytes: &[u8]) {
    let (size, text) = number(bytes);
    let text = String::from_utf8_lossy(text);
    if let RequestedRange::Ranges(ranges) = range::requested(Some(&text), size) {
        assert!((1..=MAX_RANGES).contains(&ranges.len()));
        assert!(
            ranges
                .iter()
                .all(|range| range.start < range.end && range.end <= size)
        );
        assert!(
            ranges
                .iter()
                .map(|range| range.end - range.start)
                .sum::<u64>()
                <= size
        );
        for range in &ranges {
            let written = range::content_range(range, size);
            assert_eq!(
                range::parse_content_range(&written),
                Some((Some(range.clone()), Some(size)))
            );
            let one: Vec<Range<u64>> = std::iter::once(range.clone()).collect();
            assert_eq!(
                range::requested(Some(&range::range(range)), size),
                RequestedRange::Ranges(one)
            );
        }
    }
    if let Some((Some(range), whole)) = range::parse_content_range(&text) {
        assert!(range.start < range.end && whole.is_none_or(|whole| range.end <= whole));
    }
}

/// A parsed `If` of WebDAV is written and parsed again without change.
pub fn conditions(bytes: &[u8]) {
    let Some(read) = conditions::lists(bytes) else {
        return;
    };
    let mut written = Vec::new();
    for (target, tests) in &read {
        if let Some(target) = target {
            written.extend(format!("<{target}>").bytes());
        }
        written.push(b'(');
        for test in tests {
            written.extend(if test.negated { &b"Not "[..] } else { b"" });
            match &test.tag {
                Some(tag) => written.extend([b"[", &tag[..], b"]"].concat()),
                None => written.extend(b"<a:b>"),
            }
        }
        written.push(b')');
    }
    assert_eq!(conditions::lists(&written).as_ref(), Some(&read));
}

/// Written checksums are found again, and each found checksum has the length of its algorithm.
pub fn digests(bytes: &[u8]) {
    let mut fields = HeaderMap::new();
    let names = [
        digest::DIGEST,
        digest::REPR_DIGEST,
        digest::WANT_DIGEST,
        digest::WANT_REPR_DIGEST,
    ];
    for (name, line) in names
        .into_iter()
        .cycle()
        .zip(bytes.split(|byte| *byte == b'\n'))
        .take(16)
    {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            fields.append(name, value);
        }
    }
    for (algorithm, value) in digest::found(&fields) {
        let length = match algorithm {
            Algorithm::Adler32 => 4,
            Algorithm::Md5 => 16,
            Algorithm::Sha256 => 32,
        };
        assert_eq!(value.len(), length);
        let mut response = HeaderMap::new();
        let report = (algorithm, value);
        digest::set(&mut response, &fields, &report);
        assert!(
            digest::found(&response)
                .iter()
                .all(|found| *found == report)
        );
        assert_eq!(digest::found(&response).len(), response.len());
    }
    let _ = digest::preferred(&fields);
}

/// After any redirection, the next request is a single valid request with a path from `/`.
pub fn locations(bytes: &[u8]) {
    let (first, second) = halves(bytes);
    let Ok(base) = Url::parse(OsStr::new("https://door.example:1/a/b?c")) else {
        unreachable!("a URL as it should be");
    };
    let mut target = HttpTarget::from(&base);
    for location in [first, second] {
        if let Ok(next) = target.redirected(&String::from_utf8_lossy(location)) {
            target = next;
        }
    }
    for target in [target.child(second), target.directory_url(), target.clone()] {
        assert!(target.path.starts_with('/'), "{}", target.path);
        assert!(
            target.path.bytes().all(|byte| byte > b' ' && byte != 0x7f),
            "{}",
            target.path
        );
        assert!(target.path.parse::<Uri>().is_ok(), "{}", target.path);
        assert!(HeaderValue::from_str(&target.server.authority()).is_ok());
        assert!(!target.to_string().contains('?'));
        let _ = (target.name(), target.parent(), target.url());
    }
    let name: Vec<u8> = second
        .iter()
        .copied()
        .filter(|byte| !b"/\0".contains(byte))
        .collect();
    if !name.is_empty() {
        assert_eq!(target.child(&name).name(), name);
    }
}

/// No name in a WebDAV listing leaves its directory, and a written entry is parsed again without
/// change.
pub fn multistatus(bytes: &[u8]) {
    let Ok(entries) = dav::entries(bytes) else {
        return;
    };
    for entry in &entries {
        assert!(entry.path.starts_with(b"/") && !entry.path.contains(&0));
    }
    for entry in entries.iter().filter(|entry| entry.modified.is_none()) {
        let text = format!(
            "{START}{}{END}",
            properties::response(entry, &PropfindRequest::All)
        );
        let again = dav::entries(text.as_bytes()).expect("what was written");
        let sound = |text: &String| text.trim() == text;
        if entry.etag.as_ref().is_none_or(sound) {
            assert_eq!(again, std::slice::from_ref(entry), "{text}");
        }
    }
    let own = entries
        .first()
        .map(|entry| entry.path.clone())
        .unwrap_or_default();
    for (name, _) in dav::children(&own, entries).unwrap_or_default() {
        assert!(!name.is_empty() && !name.iter().any(|byte| b"/\0".contains(byte)));
        assert!(name != b"." && name != b"..");
    }
}

/// For any requested properties, the response is a listing of one entry.
pub fn properties(bytes: &[u8]) {
    let entry = dav::DavEntry {
        path: b"/a b".to_vec(),
        size: Some(7),
        ..dav::DavEntry::default()
    };
    let responses = [
        PropfindRequest::read(bytes)
            .map(|requested| (properties::response(&entry, &requested), true)),
        PropertyChanges::read(bytes).map(|changes| (changes.fields(&entry), false)),
    ];
    for (reply, has_size) in responses.into_iter().flatten() {
        let text = format!("{START}{reply}{END}");
        let report = dav::entries(text.as_bytes()).expect("what was written");
        assert!(report.len() == 1 && report[0].path == entry.path, "{text}");
        assert!(report[0].size.is_none() || has_size, "{text}");
    }
}

/// An accepted token is a single field value.
pub fn tokens(bytes: &[u8]) {
    if let Ok(token) = token::sound(bytes, Path::new("token")) {
        let field = [b"Bearer ", token.0.as_slice()].concat();
        assert!(HeaderValue::from_bytes(&field).is_ok() && !token.0.contains(&b' '));
    }
}

/// An error of a users file does not repeat its content.
pub fn users(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let kept = text.replace("sesame", "");
    let secret = format!("ann:sesame\n{kept}");
    let report =
        users::Users::parse(Path::new("users"), &secret).expect_err("another kind of hash");
    assert!(!report.to_string().contains("sesame"));
    let _ = users::Users::parse(Path::new("users"), &text);
}

/// Return the bytes before and after the first zero byte.
fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    let cut = bytes.iter().position(|byte| *byte == 0);
    match cut {
        Some(cut) => (&bytes[..cut], &bytes[cut + 1..]),
        None => (bytes, &[]),
    }
}

/// Return a number from the first bytes, often a small one, and the rest.
fn number(bytes: &[u8]) -> (u64, &[u8]) {
    match bytes.split_first() {
        None => (0, bytes),
        Some((&small @ 0..=199, rest)) => (u64::from(small), rest),
        Some((_, rest)) => {
            let (word, rest) = rest.split_at(rest.len().min(8));
            (
                word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                rest,
            )
        }
    }
}
