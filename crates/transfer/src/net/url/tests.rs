//! Tests of URLs: examples of RFC 3986, and secrecy of passwords.

use proptest::prelude::*;

use super::*;

fn url(text: &str) -> Url {
    Url::parse(OsStr::new(text)).expect(text)
}

#[test]
fn a_url_is_parsed_into_its_parts() {
    let found = url("ftp://me:p%40ss@host.example:2811/a%20b/c");
    assert_eq!(found.scheme, Scheme::Ftp);
    assert_eq!(found.user.as_deref(), Some(&b"me"[..]));
    assert_eq!(found.password, Some(Secret(b"p@ss".to_vec())));
    assert_eq!((&found.host[..], found.port), ("host.example", 2811));
    assert_eq!(found.path, b"/a b/c");
    assert_eq!(found.query, None);
}

#[test]
fn the_default_port_is_that_of_the_scheme() {
    for (text, port) in [
        ("ftp://h/", 21),
        ("gsiftp://h/", 2811),
        ("sshftp://h", 22),
        ("http://h", 80),
        ("davs://h/", 443),
        ("HTTPS://h/", 443),
        ("https://h:8443/", 8443),
        ("https://h:/", 443),
    ] {
        assert_eq!(url(text).port, port, "{text}");
    }
}

#[test]
fn an_ipv6_address_is_in_brackets() {
    let found = url("https://[::1]:8443/x");
    assert_eq!((&found.host[..], found.port), ("::1", 8443));
    assert_eq!(found.authority(), "[::1]:8443");
    assert_eq!(url("https://[fe80::2]/x").authority(), "[fe80::2]");
}

#[test]
fn a_question_mark_starts_a_query_in_http_and_is_part_of_a_name_in_ftp() {
    let found = url("https://h/p%3fq?authz=a%20b");
    assert_eq!(found.path, b"/p?q");
    assert_eq!(found.query.as_deref(), Some("authz=a%20b"));
    assert_eq!(url("ftp://h/p?q#r").path, b"/p?q#r");
}

#[test]
fn errors_are_reported_without_the_password() {
    for (text, expected) in [
        ("ftp:/host/p", "one slash"),
        ("ftp:///p", "no host"),
        ("ftp://u:secret@ho st/p", "no host, or one with a blank"),
        ("ftp://u:secret@h:99999/p", "not a number up to 65535"),
        ("ftp://u:secret@h:0/p", "not a number up to 65535"),
        ("ftp://u:sec%ret@h/p", "an invalid %XX"),
        ("ftp://[::1/p", "without `]`"),
        ("ftp://[::1]x/p", "after `]`"),
        // Found by the fuzzer: the URL was shown and used as another location.
        ("ftp://[[]:3/p", "or a bracket"),
        ("ftp://u:secret@h/%4", "incomplete %XX"),
        ("ftp://u:secret@h/%00", "zero byte"),
        ("https://h/a#b", "a `#`"),
        ("root://u:secret@h//p", "found a `root:` URL"),
        ("plain", "no scheme"),
    ] {
        let error = Url::parse(OsStr::new(text)).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("sec"), "{error}");
    }
}

#[test]
fn no_form_of_a_url_shows_a_password_or_a_token() {
    let text = "https://me:secret@h/p?authz=secret";
    let found = url(text);
    for reported in [
        format!("{found}"),
        format!("{found:?}"),
        shown(OsStr::new(text)),
    ] {
        assert!(!reported.contains("secret"), "{reported}");
        assert!(reported.starts_with("https://me@h/p"), "{reported}");
    }
    for (text, expected) in [
        ("a:b/c@d:e", "a:b/c@d:e"),
        ("ftp://h/a@b:c", "ftp://h/a@b:c"),
        ("ftp://u:a@b@h", "ftp://u@h"),
        ("gsiftp://h/p?q", "gsiftp://h/p?q"),
        ("ftp://u:pa/ss@h/x", "ftp://u@h/x"),
        ("ftp://u:/pass@h/x", "ftp://u@h/x"),
        ("root://u:pa/s@s@h/x", "root://u@h/x"),
        ("ftp://h:2811/a@b", "ftp://h:2811/a@b"),
        ("ftp://[::1]/a@b", "ftp://[::1]/a@b"),
    ] {
        assert_eq!(shown(OsStr::new(text)), expected);
    }
}

#[test]
fn a_session_is_shared_only_for_the_same_server_and_user() {
    let same = |a, b| url(a).is_same_server(&url(b));
    assert!(same("ftp://H:21/a", "ftp://h/b"));
    assert!(!same("ftp://h/a", "ftp://u@h/a"));
    assert!(!same("ftp://h/a", "gsiftp://h:21/a"));
}

proptest! {
    #[test]
    fn any_path_round_trips_through_its_url(path in proptest::collection::vec(1u8.., 0..40)) {
        let path = [b"/", &path[..]].concat();
        for scheme in ["ftp", "https"] {
            let text = format!("{scheme}://h{}", encoded(&path));
            let found = url(&text);
            prop_assert_eq!(&found.path, &path);
            prop_assert_eq!(found.to_string(), text);
        }
    }

    #[test]
    fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..40), prefix in "(ftp|https|file)://") {
        let text = [prefix.as_bytes(), &text[..]].concat();
        let _ = Url::parse(OsStr::from_bytes(&text));
        let _ = shown(OsStr::from_bytes(&text));
    }
}
