//! Rejected credentials, chains and names: both sides of GSI in memory.

#![expect(
    clippy::disallowed_methods,
    reason = "certificates of openssl, and the files that it writes"
)]

mod grid;
mod handshake;

use std::fs;
use std::sync::Arc;

use grid::{FULL, USER};
use handshake::{client, now_s, rejection, server, shake, target, with_grid};
use venturi_gridftp::Security;
use venturi_gridftp::gsi::{Credential, Gsi, TrustStore};

const DAY_S: u64 = 86_400;

#[test]
fn a_proxy_and_its_delegated_proxy_authenticate_as_the_user() {
    with_grid(|grid| {
        let credential = grid.credential(&grid.user_proxy());
        for delegates in [false, true] {
            let (mut one, mut other) = (client(grid, &credential, delegates), server(grid));
            shake(&mut one, &mut other).expect("both are content");
            let peer = other.peer().expect("somebody");
            assert_eq!(peer.identity, USER);
            assert_eq!(peer.subject, format!("{USER}/CN=4711"));
            assert!(!peer.limited);
            assert_eq!(other.secures_data(), delegates);
            let token = one.wrap(b"NOOP\r\n").expect("a token");
            assert_eq!(other.unwrap(&token).expect("a command"), b"NOOP\r\n");
            let long = vec![7; 100_000];
            let token = other.wrap(&long).expect("a token");
            assert!(one.unwrap(&token).expect("a reply") == long);
        }
    });
}

#[test]
fn a_proxy_issued_by_a_limited_proxy_is_limited() {
    with_grid(|grid| {
        let limited = FULL.replace("id-ppl-inheritAll", "1.3.6.1.4.1.3536.1.1.1.9");
        grid.proxy("limited", "user", &format!("{USER}/CN=1"), &limited);
        let below = grid.proxy("below", "limited", &format!("{USER}/CN=1/CN=2"), FULL);
        let credential = grid.credential(&below);
        assert!(credential.is_limited());
        let mut other = server(grid);
        shake(&mut client(grid, &credential, true), &mut other).expect("both are content");
        assert!(other.peer().expect("somebody").limited);
    });
}

#[test]
fn proxies_that_break_a_rule_are_rejected_with_the_reason() {
    with_grid(|grid| {
        let of = |number: u32| format!("{USER}/CN={number}");
        let names = "subjectAltName=DNS:localhost\n";
        let unknown = "1.2.3.4=critical,ASN1:NULL\n";
        let short = FULL.replace("language:", "pathlen:0,language:");
        let independent = FULL.replace("id-ppl-inheritAll", "id-ppl-independent");
        let lax = FULL.replace("proxyCertInfo=critical,", "proxyCertInfo=");
        let mute = FULL.replace("digitalSignature", "keyEncipherment");
        let cases = [
            (
                "other",
                "user",
                "/O=Test Grid/CN=Boss/CN=1".to_owned(),
                FULL.to_owned(),
                "its name is not",
            ),
            (
                "deep",
                "user",
                format!("{USER}/CN=1/CN=2"),
                FULL.to_owned(),
                "its name is not",
            ),
            (
                "names",
                "user",
                of(2),
                format!("{FULL}{names}"),
                "2.5.29.17",
            ),
            (
                "unknown",
                "user",
                of(3),
                format!("{FULL}{unknown}"),
                "1.2.3.4",
            ),
            (
                "authority",
                "ca",
                "/O=Test Grid/CN=Authority/CN=1".to_owned(),
                FULL.to_owned(),
                "CA certificate",
            ),
            ("mute", "user", of(4), mute, "does not allow signatures"),
        ];
        for (name, by, subject, extensions, reason) in cases {
            let file = grid.proxy(name, by, &subject, &extensions);
            let reply_text = rejection(grid, &grid.credential(&file));
            assert!(reply_text.contains(reason), "{name}: {reply_text}");
        }
        for (name, extensions, reason) in [
            ("independent", independent, "policy"),
            ("lax", lax, "non-critical"),
        ] {
            let file = grid.proxy(name, "user", &of(5), &extensions);
            let reply_text = grid.try_credential(&file).expect_err("refused").to_string();
            assert!(reply_text.contains(reason), "{name}: {reply_text}");
        }
        grid.proxy("short", "user", &of(6), &short);
        let below = grid.proxy("longer", "short", &format!("{}/CN=1", of(6)), FULL);
        let reply_text = rejection(grid, &grid.credential(&below));
        assert!(reply_text.contains("more than it allows"), "{reply_text}");
    });
}

#[test]
fn a_globus_toolkit_2_proxy_is_recognized_by_its_name_and_not_delegated() {
    with_grid(|grid| {
        let usage = "keyUsage=critical,digitalSignature\n";
        for (name, common, limited) in [("old", "proxy", false), ("older", "limited proxy", true)] {
            let file = grid.proxy(name, "user", &format!("{USER}/CN={common}"), usage);
            let credential = grid.credential(&file);
            assert_eq!(credential.identity(), USER);
            let mut other = server(grid);
            shake(&mut client(grid, &credential, false), &mut other).expect("content");
            let peer = other.peer().expect("somebody");
            assert_eq!((peer.identity.as_str(), peer.limited), (USER, limited));
            let reply_text = shake(&mut client(grid, &credential, true), &mut server(grid));
            let reply_text = reply_text.expect_err("not delegated").to_string();
            assert!(reply_text.contains("Globus Toolkit 2"), "{reply_text}");
        }
        let file = grid.proxy("fake", "ca", "/O=Test Grid/CN=Authority/CN=proxy", usage);
        rejection(grid, &grid.credential(&file));
    });
}

#[test]
fn a_proxy_that_allows_no_further_proxies_is_not_delegated() {
    with_grid(|grid| {
        let short = FULL.replace("language:", "pathlen:0,language:");
        let file = grid.proxy("short", "user", &format!("{USER}/CN=6"), &short);
        let (mut one, mut other) = (client(grid, &grid.credential(&file), true), server(grid));
        let reply_text = shake(&mut one, &mut other)
            .expect_err("refused")
            .to_string();
        assert!(
            reply_text.contains("allows no more proxies"),
            "{reply_text}"
        );
        let mut other = server(grid);
        shake(
            &mut client(grid, &grid.credential(&file), false),
            &mut other,
        )
        .expect("content");
    });
}

#[test]
fn expired_and_not_yet_valid_certificates_are_rejected_on_both_sides() {
    with_grid(|grid| {
        let credential = grid.credential(&grid.user_proxy());
        let trust_store = grid.trust_store();
        let later = now_s() + 2 * DAY_S;
        credential.check(now_s()).expect("valid now");
        let own = Gsi::client(
            &credential,
            &trust_store,
            &target("localhost", false),
            later,
        );
        let reply_text = own.err().expect("its own proxy has ended").to_string();
        assert!(
            reply_text.contains("expired") && reply_text.contains("new certificate"),
            "{reply_text}"
        );
        let mut other = Gsi::server(&grid.pair("host"), &trust_store, later).expect("valid then");
        let reply_text = shake(&mut client(grid, &credential, false), &mut other);
        assert!(
            reply_text
                .expect_err("refused")
                .to_string()
                .contains("expired")
        );
        let early = credential
            .check(now_s() - DAY_S)
            .expect_err("not begun")
            .to_string();
        assert!(early.contains("clocks"), "{early}");
        // A client whose clock is past the end of its own certificate.
        let user = grid.pair("user");
        let late = now_s() + 11 * DAY_S;
        Gsi::client(&user, &trust_store, &target("localhost", false), late)
            .err()
            .expect("ended");
    });
}

#[test]
fn an_unknown_authority_is_not_trusted_even_under_a_known_name() {
    with_grid(|grid| {
        grid.authority("evil", "/O=Test Grid/CN=Authority")
            .expect("an authority");
        grid.issue(
            "thief",
            USER,
            "evil",
            "keyUsage=critical,digitalSignature\n",
        );
        let reply_text = rejection(grid, &grid.pair("thief"));
        assert!(reply_text.contains("not trusted"), "{reply_text}");
        grid.authority("stranger", "/O=Elsewhere/CN=Authority")
            .expect("an authority");
        grid.issue(
            "guest",
            "/O=Elsewhere/CN=Guest",
            "stranger",
            "keyUsage=critical,digitalSignature\n",
        );
        let reply_text = rejection(grid, &grid.pair("guest"));
        assert!(
            reply_text.contains("/O=Elsewhere/CN=Authority")
                && reply_text.contains("X509_CERT_DIR"),
            "{reply_text}"
        );
        let unmapped = Arc::new(TrustStore::default());
        let one = Gsi::client(
            &grid.pair("user"),
            &unmapped,
            &target("localhost", false),
            now_s(),
        );
        let reply_text = shake(&mut one.expect("a client"), &mut server(grid));
        assert!(
            reply_text
                .expect_err("refused")
                .to_string()
                .contains("/O=Test Grid/CN=Authority")
        );
    });
}

#[test]
fn an_expired_authority_is_trusted_only_with_a_new_certificate() {
    with_grid(|grid| {
        let later = now_s() + 5 * DAY_S;
        let shaken = || {
            let target = target("localhost", false);
            let trust_store = grid.trust_store();
            let one = Gsi::client(&grid.pair("user"), &trust_store, &target, later);
            let two = Gsi::server(&grid.pair("host"), &trust_store, later);
            shake(&mut one.expect("a client"), &mut two.expect("a server"))
        };
        let names = fs::read_dir(grid.path("certificates")).expect("a directory");
        let names = names.map(|file| file.expect("a file").path());
        let known = names
            .into_iter()
            .find(|path| path.extension().is_some_and(|end| end == "0"));
        let known = known.expect("an authority");
        let new = fs::read(&known).expect("a certificate");
        let subject = "/O=Test Grid/CN=Authority";
        let request = [
            "req", "-x509", "-new", "-key", "ca.key", "-sha256", "-days", "2",
        ];
        let more = ["-subj", subject, "-out", "old.pem"];
        grid.openssl(&[&request[..], &more].concat())
            .expect("a certificate");
        fs::copy(grid.path("old.pem"), &known).expect("a copy");
        let reply_text = shaken().expect_err("it has ended").to_string();
        assert!(reply_text.contains("expired"), "{reply_text}");
        fs::write(known.with_extension("1"), new).expect("a file");
        shaken().expect("the new certificate is trusted");
    });
}

#[test]
fn a_subject_outside_of_the_signing_policy_is_rejected() {
    with_grid(|grid| {
        grid.issue(
            "odd",
            "/O=Other Grid/CN=Odd",
            "ca",
            "keyUsage=critical,digitalSignature\n",
        );
        let reply_text = rejection(grid, &grid.pair("odd"));
        assert!(
            reply_text.contains("signing policy") && reply_text.contains("/O=Other Grid/CN=Odd"),
            "{reply_text}"
        );
    });
}

#[test]
fn an_intermediate_authority_is_trusted_within_the_signing_policy() {
    with_grid(|grid| {
        let extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n";
        grid.issue("sub", "/O=Test Grid/CN=Below", "ca", extensions);
        for (name, subject, expected) in [
            ("inner", "/O=Test Grid/CN=Inner", Ok(())),
            ("outer", "/O=Other Grid/CN=Outer", Err("signing policy")),
        ] {
            grid.issue(name, subject, "sub", "keyUsage=critical,digitalSignature\n");
            let read = |file: String| fs::read(grid.path(&file)).expect("a file");
            let chain = [read(format!("{name}.pem")), read("sub.pem".to_owned())].concat();
            let key = read(format!("{name}.key"));
            let credential = Credential::from_pem(&chain, Some(&key)).expect("a credential");
            let shaken = shake(&mut client(grid, &credential, false), &mut server(grid));
            match expected {
                Ok(()) => shaken.expect("believed"),
                Err(reason) => {
                    let reply_text = shaken.expect_err("refused").to_string();
                    assert!(reply_text.contains(reason), "{reply_text}");
                }
            }
            // Without the intermediate certificate, the chain cannot be verified.
            rejection(grid, &grid.pair(name));
        }
    });
}

#[test]
fn revoked_certificates_and_outdated_revocation_lists_are_rejected() {
    with_grid(|grid| {
        let config =
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\n";
        for (name, text) in [("ca.cnf", config), ("index", ""), ("number", "01\n")] {
            fs::write(grid.path(name), text).expect("a file");
        }
        let ca = [
            "ca", "-config", "ca.cnf", "-keyfile", "ca.key", "-cert", "ca.pem",
        ];
        let run = |more: &[&str]| grid.openssl(&[&ca[..], more].concat()).expect("a list");
        let hash = grid
            .openssl(&["x509", "-hash", "-noout", "-in", "ca.pem"])
            .expect("a hash");
        let list = || {
            run(&["-gencrl", "-crldays", "5", "-out", "list.pem"]);
            let to = grid.path("certificates").join(format!("{hash}.r0"));
            fs::copy(grid.path("list.pem"), to).expect("a copy");
        };
        let user = grid.pair("user");
        list();
        assert_eq!(grid.trust_store().rejected(), [""; 0]);
        shake(&mut client(grid, &user, false), &mut server(grid)).expect("not revoked");
        let late = Gsi::server(&grid.pair("host"), &grid.trust_store(), now_s() + 6 * DAY_S);
        let reply_text = shake(
            &mut client(grid, &user, false),
            &mut late.expect("a server"),
        );
        let reply_text = reply_text.expect_err("an old list").to_string();
        assert!(reply_text.contains("too old"), "{reply_text}");
        run(&["-revoke", "user.pem"]);
        list();
        let reply_text = rejection(grid, &user);
        assert!(reply_text.contains("revoked"), "{reply_text}");
        let torn = grid.path("certificates").join(format!("{hash}.r0"));
        fs::write(
            torn,
            "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
        )
        .expect("a file");
        let trust_store = grid.trust_store();
        assert!(trust_store.is_empty());
        assert!(
            trust_store.rejected()[0].contains(".r0"),
            "{:?}",
            trust_store.rejected()
        );
    });
}
