//! Credentials, chains and names that are to be refused: both sides of GSI against each other, in memory.

#![expect(
    clippy::disallowed_methods,
    reason = "certificates of openssl, and the files that it writes"
)]

mod grid;
mod sides;

use std::fs;
use std::sync::Arc;

use grid::{FULL, USER};
use sides::{client, now_s, refusal, server, shake, target, with_grid};
use venturi_gridftp::Security;
use venturi_gridftp::gsi::{Authorities, Credential, Gsi};

const DAY_S: u64 = 86_400;

#[test]
fn a_proxy_and_what_was_delegated_from_it_stand_for_the_user() {
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
fn a_limited_proxy_limits_all_below_it() {
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
fn proxies_that_break_a_rule_are_refused_each_with_its_reason() {
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
                "whose name is not",
            ),
            (
                "deep",
                "user",
                format!("{USER}/CN=1/CN=2"),
                FULL.to_owned(),
                "whose name is not",
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
                "of an authority",
            ),
            ("mute", "user", of(4), mute, "may not sign"),
        ];
        for (name, by, subject, extensions, reason) in cases {
            let file = grid.proxy(name, by, &subject, &extensions);
            let said = refusal(grid, &grid.credential(&file));
            assert!(said.contains(reason), "{name}: {said}");
        }
        for (name, extensions, reason) in [
            ("independent", independent, "policy"),
            ("lax", lax, "not critical"),
        ] {
            let file = grid.proxy(name, "user", &of(5), &extensions);
            let said = grid.try_credential(&file).expect_err("refused").to_string();
            assert!(said.contains(reason), "{name}: {said}");
        }
        grid.proxy("short", "user", &of(6), &short);
        let below = grid.proxy("longer", "short", &format!("{}/CN=1", of(6)), FULL);
        let said = refusal(grid, &grid.credential(&below));
        assert!(said.contains("more than it allows"), "{said}");
    });
}

#[test]
fn a_proxy_of_globus_toolkit_2_is_known_by_its_name_and_not_delegated() {
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
            let said = shake(&mut client(grid, &credential, true), &mut server(grid));
            let said = said.expect_err("not delegated").to_string();
            assert!(said.contains("Globus Toolkit 2"), "{said}");
        }
        let file = grid.proxy("fake", "ca", "/O=Test Grid/CN=Authority/CN=proxy", usage);
        refusal(grid, &grid.credential(&file));
    });
}

#[test]
fn a_proxy_that_allows_none_below_it_is_not_delegated() {
    with_grid(|grid| {
        let short = FULL.replace("language:", "pathlen:0,language:");
        let file = grid.proxy("short", "user", &format!("{USER}/CN=6"), &short);
        let (mut one, mut other) = (client(grid, &grid.credential(&file), true), server(grid));
        let said = shake(&mut one, &mut other)
            .expect_err("refused")
            .to_string();
        assert!(said.contains("allows no more below it"), "{said}");
        let mut other = server(grid);
        shake(
            &mut client(grid, &grid.credential(&file), false),
            &mut other,
        )
        .expect("content");
    });
}

#[test]
fn what_has_ended_or_not_begun_is_refused_on_both_sides() {
    with_grid(|grid| {
        let credential = grid.credential(&grid.user_proxy());
        let authorities = grid.authorities();
        let later = now_s() + 2 * DAY_S;
        credential.check(now_s()).expect("valid now");
        let own = Gsi::client(
            &credential,
            &authorities,
            &target("localhost", false),
            later,
        );
        let said = own.err().expect("its own proxy has ended").to_string();
        assert!(said.contains("ended") && said.contains("new one"), "{said}");
        let mut other = Gsi::server(&grid.pair("host"), &authorities, later).expect("valid then");
        let said = shake(&mut client(grid, &credential, false), &mut other);
        assert!(said.expect_err("refused").to_string().contains("ended"));
        let early = credential
            .check(now_s() - DAY_S)
            .expect_err("not begun")
            .to_string();
        assert!(early.contains("clocks"), "{early}");
        // The host's certificate, seen by a client whose clock is behind the end of its own.
        let user = grid.pair("user");
        let late = now_s() + 11 * DAY_S;
        Gsi::client(&user, &authorities, &target("localhost", false), late)
            .err()
            .expect("ended");
    });
}

#[test]
fn an_authority_that_is_not_known_is_not_believed_even_under_a_known_name() {
    with_grid(|grid| {
        grid.authority("evil", "/O=Test Grid/CN=Authority")
            .expect("an authority");
        grid.issue(
            "thief",
            USER,
            "evil",
            "keyUsage=critical,digitalSignature\n",
        );
        let said = refusal(grid, &grid.pair("thief"));
        assert!(said.contains("expected a certificate to believe"), "{said}");
        grid.authority("stranger", "/O=Elsewhere/CN=Authority")
            .expect("an authority");
        grid.issue(
            "guest",
            "/O=Elsewhere/CN=Guest",
            "stranger",
            "keyUsage=critical,digitalSignature\n",
        );
        let said = refusal(grid, &grid.pair("guest"));
        assert!(
            said.contains("/O=Elsewhere/CN=Authority") && said.contains("X509_CERT_DIR"),
            "{said}"
        );
        let nobody = Arc::new(Authorities::default());
        let one = Gsi::client(
            &grid.pair("user"),
            &nobody,
            &target("localhost", false),
            now_s(),
        );
        let said = shake(&mut one.expect("a client"), &mut server(grid));
        assert!(
            said.expect_err("refused")
                .to_string()
                .contains("/O=Test Grid/CN=Authority")
        );
    });
}

#[test]
fn an_authority_that_has_ended_is_not_believed_unless_it_has_a_new_certificate() {
    with_grid(|grid| {
        let later = now_s() + 5 * DAY_S;
        let shaken = || {
            let target = target("localhost", false);
            let authorities = grid.authorities();
            let one = Gsi::client(&grid.pair("user"), &authorities, &target, later);
            let two = Gsi::server(&grid.pair("host"), &authorities, later);
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
        let said = shaken().expect_err("it has ended").to_string();
        assert!(said.contains("ended"), "{said}");
        fs::write(known.with_extension("1"), new).expect("a file");
        shaken().expect("the new one is believed");
    });
}

#[test]
fn a_subject_outside_of_the_signing_policy_is_refused() {
    with_grid(|grid| {
        grid.issue(
            "odd",
            "/O=Other Grid/CN=Odd",
            "ca",
            "keyUsage=critical,digitalSignature\n",
        );
        let said = refusal(grid, &grid.pair("odd"));
        assert!(
            said.contains("signing policy") && said.contains("/O=Other Grid/CN=Odd"),
            "{said}"
        );
    });
}

#[test]
fn an_authority_below_a_known_one_is_believed_within_its_policy() {
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
                    let said = shaken.expect_err("refused").to_string();
                    assert!(said.contains(reason), "{said}");
                }
            }
            // Without what is between them nobody knows whom to ask.
            refusal(grid, &grid.pair(name));
        }
    });
}

#[test]
fn what_an_authority_revoked_is_refused_and_an_old_list_believed_by_nobody() {
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
        assert_eq!(grid.authorities().left_out(), [""; 0]);
        shake(&mut client(grid, &user, false), &mut server(grid)).expect("not revoked");
        let late = Gsi::server(&grid.pair("host"), &grid.authorities(), now_s() + 6 * DAY_S);
        let said = shake(
            &mut client(grid, &user, false),
            &mut late.expect("a server"),
        );
        let said = said.expect_err("an old list").to_string();
        assert!(said.contains("too old"), "{said}");
        run(&["-revoke", "user.pem"]);
        list();
        let said = refusal(grid, &user);
        assert!(said.contains("revoked"), "{said}");
        let torn = grid.path("certificates").join(format!("{hash}.r0"));
        fs::write(
            torn,
            "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
        )
        .expect("a file");
        let authorities = grid.authorities();
        assert!(authorities.is_empty());
        assert!(
            authorities.left_out()[0].contains(".r0"),
            "{:?}",
            authorities.left_out()
        );
    });
}
