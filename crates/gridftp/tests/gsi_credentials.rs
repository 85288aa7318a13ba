//! Credential files and host names in certificates: invalid credentials and wrong names are
//! rejected.

#![expect(
    clippy::disallowed_methods,
    reason = "certificates of openssl, and the files that it writes"
)]

mod grid;
mod handshake;

use std::fs;

use handshake::{client, now_s, server, shake, target, with_grid};
use venturi_gridftp::base64;
use venturi_gridftp::gsi::{Credential, Gsi, GsiPeer};

#[test]
fn a_host_is_identified_by_the_names_of_its_certificate() {
    with_grid(|grid| {
        let (credential, trust_store) = (grid.pair("user"), grid.trust_store());
        let try_host = |host: &str, subject: Option<&str>| {
            let target = GsiPeer {
                subject: subject.map(str::to_owned),
                ..target(host, false)
            };
            let one = Gsi::client(&credential, &trust_store, &target, now_s());
            shake(&mut one.expect("a client"), &mut server(grid)).map_err(|error| error.to_string())
        };
        try_host("localhost", None).expect("its name");
        try_host("127.0.0.1", None).expect("its address");
        for wrong in ["localhost.example.org", "127.0.0.2", "::1", "", "host"] {
            let reply_text = try_host(wrong, None).expect_err("another host");
            assert!(
                reply_text.contains("expected a certificate for this host"),
                "{reply_text}"
            );
        }
        try_host("elsewhere", Some("/O=Test Grid/CN=localhost")).expect("the name asked for");
        try_host("localhost", Some("/O=Test Grid/CN=other")).expect_err("another name");
        // A user certificate is not valid for a host.
        let user = Gsi::server(&grid.pair("user"), &trust_store, now_s());
        let reply_text = shake(
            &mut client(grid, &credential, false),
            &mut user.expect("a server"),
        );
        reply_text.expect_err("no host");
    });
}

#[test]
fn unreadable_alternative_names_do_not_count_as_absent() {
    with_grid(|grid| {
        // The common name is the host's, which counts only without alternative names.
        let extensions = "subjectAltName=DER:3003820561\nextendedKeyUsage=serverAuth\n";
        grid.issue("unread", "/O=Test Grid/CN=localhost", "ca", extensions);
        let user = grid.pair("user");
        let one = Gsi::client(
            &user,
            &grid.trust_store(),
            &target("localhost", false),
            now_s(),
        );
        let two = Gsi::server(&grid.pair("unread"), &grid.trust_store(), now_s());
        let reply_text = shake(&mut one.expect("a client"), &mut two.expect("a server"));
        let reply_text = reply_text.expect_err("no names").to_string();
        assert!(reply_text.contains("alternative names"), "{reply_text}");
    });
}

#[test]
fn invalid_credential_files_are_distinguished() {
    with_grid(|grid| {
        grid.openssl(&[
            "ec",
            "-in",
            "user.key",
            "-aes128",
            "-passout",
            "pass:x",
            "-out",
            "locked.key",
        ])
        .expect("a key");
        grid.openssl(&["genrsa", "-out", "weak.key", "1024"])
            .expect("a key");
        let read = |name: &str| fs::read(grid.path(name)).expect("a file");
        let cases = [
            (read("user.pem"), Some(read("locked.key")), "passphrase"),
            (read("user.pem"), Some(read("host.key")), "another key"),
            (read("user.pem"), Some(read("weak.key")), "2048"),
            (read("user.pem"), None, "found none"),
            (read("user.key"), None, "found 0"),
            (
                b"-----BEGIN CERTIFICATE-----\nAAAA".to_vec(),
                Some(read("user.key")),
                "PEM",
            ),
            (vec![b' '; 2 << 20], None, "1048576"),
        ];
        for (certificates, key, reason) in cases {
            let reply_text =
                Credential::from_pem(&certificates, key.as_deref()).expect_err("refused");
            assert!(reply_text.to_string().contains(reason), "{reply_text}");
        }
        let alone = fs::read_to_string(grid.user_proxy()).expect("a proxy");
        let cut = alone.rfind("-----BEGIN CERTIFICATE").expect("a chain");
        let reply_text = Credential::from_pem(&alone.as_bytes()[..cut], None).expect_err("refused");
        assert!(
            reply_text.to_string().contains("incomplete"),
            "{reply_text}"
        );
        let credential = grid.credential(&grid.path("usual.proxy"));
        let shown = format!("{credential:?}");
        assert!(
            shown.contains("CN=4711") && !shown.contains("BEGIN"),
            "{shown}"
        );
    });
}

#[test]
fn a_proxy_is_rejected_with_another_certificate_of_the_same_key() {
    with_grid(|grid| {
        grid.user_proxy();
        fs::copy(grid.path("user.key"), grid.path("renamed.key")).expect("a key");
        grid.sign(
            "renamed",
            "/O=Test Grid/CN=Renamed",
            "ca",
            "",
            &["-days", "10"],
        );
        let read = |name: &str| fs::read_to_string(grid.path(name)).expect("a file");
        let chain = |above: &str| read("usual.pem") + &read("usual.key") + &read(above);
        Credential::from_pem(chain("user.pem").as_bytes(), None).expect("a proxy of the user");
        let reply_text =
            Credential::from_pem(chain("renamed.pem").as_bytes(), None).expect_err("refused");
        assert!(
            reply_text.to_string().contains("found another issuer"),
            "{reply_text}"
        );
    });
}

/// Returns a certificate of a PEM file, by number, and the text around it.
fn certificate(text: &str, number: usize) -> (String, Vec<u8>, String) {
    let (opening, end) = (
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
    );
    let start = text
        .match_indices(opening)
        .nth(number)
        .expect("that many")
        .0
        + opening.len();
    let stop = start + text[start..].find(end).expect("an end");
    let body: String = text[start..stop].split_whitespace().collect();
    let der = base64::decode(body.as_bytes()).expect("base 64");
    (text[..start].to_owned(), der, text[stop..].to_owned())
}

#[test]
fn any_changed_byte_of_a_certificate_chain_is_detected() {
    with_grid(|grid| {
        let text = fs::read_to_string(grid.user_proxy()).expect("a proxy");
        let trust_store = grid.trust_store();
        let host = grid.pair("host");
        for number in [0, 1] {
            let (before, der, after) = certificate(&text, number);
            for at in (0..der.len()).step_by(11) {
                let mut other = der.clone();
                other[at] ^= 1 << (at % 8);
                let text = format!("{before}{}\n{after}", base64::encode(&other));
                let Ok(credential) = Credential::from_pem(text.as_bytes(), None) else {
                    continue;
                };
                let target = target("localhost", false);
                let Ok(mut one) = Gsi::client(&credential, &trust_store, &target, now_s()) else {
                    continue;
                };
                let mut two = Gsi::server(&host, &trust_store, now_s()).expect("a server");
                let shaken = shake(&mut one, &mut two);
                assert!(shaken.is_err(), "byte {at} of certificate {number}");
            }
        }
    });
}
