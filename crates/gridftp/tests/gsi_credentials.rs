//! Credentials in files, and the names of hosts in certificates: what is no credential, and nobody's name, is refused.

#![expect(
    clippy::disallowed_methods,
    reason = "certificates of openssl, and the files that it writes"
)]

mod grid;
mod sides;

use std::fs;

use sides::{client, now_s, server, shake, target, with_grid};
use venturi_gridftp::base64;
use venturi_gridftp::gsi::{Credential, Gsi, Target};

#[test]
fn a_host_is_who_its_certificate_names() {
    with_grid(|grid| {
        let (credential, authorities) = (grid.pair("user"), grid.authorities());
        let try_host = |host: &str, subject: Option<&str>| {
            let target = Target {
                subject: subject.map(str::to_owned),
                ..target(host, false)
            };
            let one = Gsi::client(&credential, &authorities, &target, now_s());
            shake(&mut one.expect("a client"), &mut server(grid)).map_err(|error| error.to_string())
        };
        try_host("localhost", None).expect("its name");
        try_host("127.0.0.1", None).expect("its address");
        for wrong in ["localhost.example.org", "127.0.0.2", "::1", "", "host"] {
            let said = try_host(wrong, None).expect_err("another host");
            assert!(
                said.contains("expected a certificate of the host"),
                "{said}"
            );
        }
        try_host("elsewhere", Some("/O=Test Grid/CN=localhost")).expect("the name asked for");
        try_host("localhost", Some("/O=Test Grid/CN=other")).expect_err("another name");
        // A user is no host, whatever his certificate says.
        let user = Gsi::server(&grid.pair("user"), &authorities, now_s());
        let said = shake(
            &mut client(grid, &credential, false),
            &mut user.expect("a server"),
        );
        said.expect_err("no host");
    });
}

#[test]
fn other_names_that_cannot_be_read_are_not_none() {
    with_grid(|grid| {
        // Its common name is the host's, which counts where there are no other names.
        let extensions = "subjectAltName=DER:3003820561\nextendedKeyUsage=serverAuth\n";
        grid.issue("unread", "/O=Test Grid/CN=localhost", "ca", extensions);
        let user = grid.pair("user");
        let one = Gsi::client(
            &user,
            &grid.authorities(),
            &target("localhost", false),
            now_s(),
        );
        let two = Gsi::server(&grid.pair("unread"), &grid.authorities(), now_s());
        let said = shake(&mut one.expect("a client"), &mut two.expect("a server"));
        let said = said.expect_err("no names").to_string();
        assert!(said.contains("other names"), "{said}");
    });
}

#[test]
fn files_that_are_no_credential_are_told_apart() {
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
            (read("user.pem"), Some(read("host.key")), "another one"),
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
            let said = Credential::from_pem(&certificates, key.as_deref()).expect_err("refused");
            assert!(said.to_string().contains(reason), "{said}");
        }
        let alone = fs::read_to_string(grid.user_proxy()).expect("a proxy");
        let cut = alone.rfind("-----BEGIN CERTIFICATE").expect("a chain");
        let said = Credential::from_pem(&alone.as_bytes()[..cut], None).expect_err("refused");
        assert!(said.to_string().contains("not whole"), "{said}");
        let credential = grid.credential(&grid.path("usual.proxy"));
        let shown = format!("{credential:?}");
        assert!(
            shown.contains("CN=4711") && !shown.contains("BEGIN"),
            "{shown}"
        );
    });
}

#[test]
fn a_proxy_is_of_the_certificate_that_it_names_and_of_no_other_of_its_key() {
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
        let said =
            Credential::from_pem(chain("renamed.pem").as_bytes(), None).expect_err("refused");
        assert!(
            said.to_string()
                .contains("CN=4711, whose issuer is not the next of the chain"),
            "{said}"
        );
    });
}

/// A certificate of a file in PEM, by its number, and the text around it.
fn certificate(text: &str, number: usize) -> (String, Vec<u8>, String) {
    let (begin, end) = (
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
    );
    let start = text.match_indices(begin).nth(number).expect("that many").0 + begin.len();
    let stop = start + text[start..].find(end).expect("an end");
    let body: String = text[start..stop].split_whitespace().collect();
    let der = base64::decode(body.as_bytes()).expect("base 64");
    (text[..start].to_owned(), der, text[stop..].to_owned())
}

#[test]
fn no_byte_of_a_chain_can_be_another() {
    with_grid(|grid| {
        let text = fs::read_to_string(grid.user_proxy()).expect("a proxy");
        let authorities = grid.authorities();
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
                let Ok(mut one) = Gsi::client(&credential, &authorities, &target, now_s()) else {
                    continue;
                };
                let mut two = Gsi::server(&host, &authorities, now_s()).expect("a server");
                let shaken = shake(&mut one, &mut two);
                assert!(shaken.is_err(), "byte {at} of certificate {number}");
            }
        }
    });
}
