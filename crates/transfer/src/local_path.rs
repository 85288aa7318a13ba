//! Parser of local paths and `file:` URLs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::error::CopyError;
use crate::net::url::{decoded, scheme, shown};

/// Parses a local path.
///
/// Text with a scheme (letters, a colon and a slash) is a URL. All other text is a path: `a:b` is a file.
///
/// # Errors
/// A URL with another scheme or another host.
pub(crate) fn parse(text: &OsStr) -> Result<PathBuf, CopyError> {
    let bytes = text.as_bytes();
    let Some((scheme, rest)) = scheme(bytes) else {
        return Ok(PathBuf::from(text));
    };
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(CopyError::Scheme {
            location: shown(text),
            scheme: scheme.to_owned(),
        });
    }
    let path = match rest.strip_prefix(b"//") {
        None => Some(rest),
        Some(rest) if rest.starts_with(b"/") => Some(rest),
        Some(rest) => rest
            .strip_prefix(b"localhost")
            .filter(|path| path.starts_with(b"/")),
    };
    let decoded = path.and_then(decoded);
    decoded
        .map(|path| PathBuf::from(OsString::from_vec(path)))
        .ok_or_else(|| CopyError::Location {
            location: PathBuf::from(text),
            expected: "file:///PATH, with %XX for unusual bytes",
            found: "a host, an incomplete %XX or a zero byte".into(),
            advice: "write the path without `file:`",
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_unchanged_and_file_urls_are_decoded() {
        let check = |text: &[u8], expected: &[u8]| {
            assert_eq!(
                parse(OsStr::from_bytes(text))
                    .expect("a place")
                    .as_os_str()
                    .as_bytes(),
                expected
            );
        };
        check(b"a b", b"a b");
        check(b"a:b/c", b"a:b/c");
        check(b"\xff\n", b"\xff\n");
        check(b"%41", b"%41");
        check(b"file:/a", b"/a");
        check(b"file:///a%20b%ff", b"/a b\xff");
        check(b"FILE://localhost/a", b"/a");
    }

    #[test]
    fn other_schemes_and_hosts_are_rejected_by_their_names() {
        for (text, expected) in [
            ("gsiftp://h/p", "found a `gsiftp:` URL"),
            ("file://host/p", "found a host"),
            ("file:///%4", "incomplete"),
            ("file:///%00", "zero byte"),
        ] {
            let error = parse(OsStr::new(text)).expect_err(text).to_string();
            assert!(error.contains(expected) && error.contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_path_round_trips_through_its_url(path in proptest::collection::vec(1u8.., 0..40)) {
            let url: String = path.iter().map(|byte| format!("%{byte:02x}")).collect();
            let found = parse(OsStr::new(&format!("file:///{url}"))).expect("a place");
            prop_assert_eq!(found.as_os_str().as_bytes(), &[b"/", path.as_slice()].concat()[..]);
        }

        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(OsStr::from_bytes(&text));
        }
    }
}
