use super::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

const NOW_S: i64 = 2_000_000_000;

struct Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

fn url64(bytes: &[u8]) -> String {
    let text = base64::encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).expect("a key");
        Self { pair, random }
    }

    /// Return trusted issuers as read from a file.
    fn issuers(&self, path: &str) -> Issuers {
        let directory = tempfile::tempdir().expect("a folder");
        let point = self.pair.public_key().as_ref();
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": url64(&point[1..33]), "y": url64(&point[33..])});
        let keys = json!({"keys": [{"kty": "oct", "k": "AAAA"}, key]});
        let issuer = json!([{"issuer": "https://i/", "keys": "keys", "audiences": ["https://se"], "path": path}]);
        for (name, text) in [("keys", keys), ("issuers", issuer)] {
            std::fs::write(directory.path().join(name), text.to_string()).expect("written");
        }
        Issuers::read(&directory.path().join("issuers")).expect("sound")
    }

    fn token(&self, head: &Value, claims: &Value) -> String {
        let signed = format!(
            "{}.{}",
            url64(head.to_string().as_bytes()),
            url64(claims.to_string().as_bytes())
        );
        let signature = self.pair.sign(&self.random, signed.as_bytes());
        format!("{signed}.{}", url64(signature.expect("signed").as_ref()))
    }
}

fn head() -> Value {
    json!({"alg": "ES256", "kid": "k", "typ": "JWT"})
}

fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://i/", "sub": "ann", "aud": "https://se", "nbf": NOW_S - 10, "exp": NOW_S + 10,
        "scope": "openid storage.read:/ storage.create:/in storage.modify:/in/mine/ storage.read storage.stage:/",
    });
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

#[test]
fn a_scope_applies_only_to_its_path() {
    let signer = Signer::new();
    let token = signer.token(&head(), &claims(&json!({})));
    let scope = signer.issuers("").admit(&token, NOW_S).expect("believed");
    assert_eq!(scope.subject, "ann");
    let check = |operation, path: &str, expected| {
        assert_eq!(
            scope.allows(operation, path.as_bytes()),
            expected,
            "{operation:?} {path}"
        );
    };
    check(Operation::Read, "/any/file", true);
    check(Operation::Read, "/", true);
    check(Operation::Read, "/in/../x", false);
    check(Operation::Create, "/in/file", true);
    check(Operation::Create, "/in", true);
    check(Operation::Create, "/inner", false);
    check(Operation::Create, "/", false);
    check(Operation::Modify, "/in/file", false);
    check(Operation::Modify, "/in/mine/file", true);
    check(Operation::Create, "/in/mine/file", true);
    check(Operation::Modify, "/in/mine2", false);
}

#[test]
fn paths_of_a_token_are_relative_to_the_path_of_its_issuer() {
    let signer = Signer::new();
    let claims =
        claims(&json!({"scope": "storage.read:/ storage.modify:/../x storage.modify:/%2e%2e/x"}));
    let token = signer.token(&head(), &claims);
    let scope = signer
        .issuers("/vo/")
        .admit(&token, NOW_S)
        .expect("believed");
    assert!(scope.allows(Operation::Read, b"/vo/file") && scope.allows(Operation::Read, b"/vo"));
    assert!(!scope.allows(Operation::Read, b"/other") && !scope.allows(Operation::Read, b"/vo2"));
    assert!(
        !scope.allows(Operation::Modify, b"/x") && !scope.allows(Operation::Modify, b"/vo/../x")
    );
}

#[test]
fn a_token_is_accepted_only_if_all_its_parts_are_valid() {
    let signer = Signer::new();
    let issuers = signer.issuers("");
    let check = |head: &Value, changes: &Value, expected: bool| {
        let token = signer.token(head, &claims(changes));
        assert_eq!(
            issuers.admit(&token, NOW_S).is_some(),
            expected,
            "{head} {changes}"
        );
    };
    let sound = head();
    check(&sound, &json!({}), true);
    check(&json!({"alg": "ES256"}), &json!({}), true);
    check(&sound, &json!({"aud": ["x", "https://se"]}), true);
    check(&sound, &json!({"aud": ANY}), true);
    check(&sound, &json!({"exp": NOW_S as f64 + 0.5}), true);
    check(&sound, &json!({"exp": NOW_S - LEEWAY_S}), false);
    check(&sound, &json!({"exp": null}), false);
    check(&sound, &json!({"exp": "never"}), false);
    check(&sound, &json!({"nbf": NOW_S + LEEWAY_S + 1}), false);
    check(&sound, &json!({"nbf": "ever"}), false);
    check(&sound, &json!({"aud": "https://another"}), false);
    check(&sound, &json!({"aud": null}), false);
    check(&sound, &json!({"iss": "https://another/"}), false);
    check(&json!({"alg": "none"}), &json!({}), false);
    check(&json!({"alg": "HS256", "kid": "k"}), &json!({}), false);
    check(&json!({"alg": "RS256", "kid": "k"}), &json!({}), false);
    check(
        &json!({"alg": "ES256", "kid": "another"}),
        &json!({}),
        false,
    );
    check(&json!({"alg": "ES256", "crit": ["x"]}), &json!({}), false);
}

#[test]
fn a_modified_token_and_one_signed_by_another_key_are_not_trusted() {
    let (signer, other) = (Signer::new(), Signer::new());
    let issuers = signer.issuers("");
    let token = signer.token(&head(), &claims(&json!({})));
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let (first, _) = signed.split_once('.').expect("three parts");
    let more = url64(
        claims(&json!({"scope": "storage.modify:/"}))
            .to_string()
            .as_bytes(),
    );
    for wrong in [
        other.token(&head(), &claims(&json!({}))),
        format!("{first}.{more}.{signature}"),
        format!("{signed}."),
        format!("{signed}.{signature}="),
        signed.to_owned(),
        String::new(),
        "..".to_owned(),
        "a".repeat(MAX_TOKEN_BYTES + 1),
    ] {
        assert_eq!(issuers.admit(&wrong, NOW_S), None, "{wrong}");
    }
}

#[test]
fn an_empty_scope_allows_nothing_and_an_expired_scope_is_invalid() {
    let signer = Signer::new();
    let token = signer.token(&head(), &claims(&json!({"scope": ""})));
    let scope = signer.issuers("").admit(&token, NOW_S).expect("believed");
    assert!(!scope.allows(Operation::Read, b"/"));
    assert!(scope.lives(NOW_S) && !scope.lives(NOW_S + 10 + LEEWAY_S));
}

proptest::proptest! {
    #[test]
    fn no_token_panics(token in "[a-zA-Z0-9._=-]{0,80}", bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
        let issuers = Issuers::default();
        let _ = issuers.admit(&token, NOW_S);
        let _ = issuers.admit(&format!("{}.{}.", url64(&bytes), url64(&bytes)), NOW_S);
    }
}
