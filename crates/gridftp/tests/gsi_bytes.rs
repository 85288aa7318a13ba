//! Tokens and bytes of data connections that are split, mixed or fabricated: both sides of GSI in
//! memory.

#![expect(
    clippy::disallowed_methods,
    reason = "certificates of openssl, and the files that it writes"
)]

mod grid;
mod handshake;

use std::fs;

use grid::{Grid, USER};
use handshake::{MAX_TOKENS, client, now_s, server, target, with_grid};
use proptest::prelude::*;
use venturi_gridftp::gsi::{Credential, Gsi};
use venturi_gridftp::{
    ConnectionRole, DataSecurity, DataSecurityRequest, Dcau, FtpError, Protection, Secret,
    Security, base64,
};

const DAY_S: u64 = 86_400;

#[test]
fn truncated_tokens_are_rejected() {
    with_grid(|grid| {
        let credential = grid.credential(&grid.user_proxy());
        let trust_store = grid.trust_store();
        let host = grid.pair("host");
        let server = || Gsi::server(&host, &trust_store, now_s()).expect("a server");
        let target = target("localhost", true);
        let client = || Gsi::client(&credential, &trust_store, &target, now_s()).expect("a client");
        let hello = client()
            .step(None)
            .expect("a token")
            .token
            .expect("a token");
        for cut in 1..hello.len() {
            server().step(Some(&hello[..cut])).expect_err("cut");
        }
        for tokens in 0..4 {
            for part in 1..16 {
                let (mut one, mut two) = (client(), server());
                let mut reply_text = one.step(None).expect("a token");
                for _ in 0..tokens / 2 {
                    let response = two.step(reply_text.token.as_deref()).expect("a token");
                    reply_text = one.step(response.token.as_deref()).expect("a token");
                }
                if tokens % 2 == 1 {
                    let token = two
                        .step(reply_text.token.as_deref())
                        .expect("a token")
                        .token;
                    let token = token.expect("a token");
                    one.step(Some(&token[..token.len() * part / 16]))
                        .expect_err("cut");
                } else {
                    let token = reply_text.token.expect("a token");
                    two.step(Some(&token[..token.len() * part / 16]))
                        .expect_err("cut");
                }
            }
        }
    });
}

#[test]
fn oversized_and_malformed_tokens_are_rejected() {
    with_grid(|grid| {
        let credential = grid.pair("user");
        // A message that claims 16 MB, in any number of records.
        let mut record = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
        record.resize(5 + 0x4000, 0);
        let huge = record.repeat(64);
        for token in [
            huge.as_slice(),
            &[23, 3, 3, 0xff, 0xff],
            &[0x30, 0x82],
            &[0; 70_000],
        ] {
            server(grid).step(Some(token)).expect_err("refused");
            let mut one = client(grid, &credential, true);
            one.step(None).expect("a token");
            one.step(Some(token)).expect_err("refused");
        }
    });
}

/// Creates both ends of a data connection.
fn ends(
    grid: &Grid,
    who: [&Dcau; 2],
    protection: Protection,
    other: &Credential,
) -> [Box<dyn DataSecurity>; 2] {
    let credential = grid.credential(&grid.path("usual.proxy"));
    let one = client(grid, &credential, false);
    let mut two = client(grid, &grid.pair("host"), false);
    two.set_data_credential(Some(&other.to_dcsc()), now_s())
        .expect("a credential");
    let wish = |role, dcau| DataSecurityRequest {
        role,
        dcau,
        protection,
        now_s: now_s(),
    };
    let layer = |gsi: &Gsi, end, who| {
        gsi.data_layer(wish(end, who))
            .expect("a credential")
            .expect("a layer")
    };
    [
        layer(&one, ConnectionRole::Connects, who[0]),
        layer(&two, ConnectionRole::Accepts, who[1]),
    ]
}

/// Moves output of both ends in pieces of `chunk` bytes, until both are ready.
fn secure(
    ends: &mut [Box<dyn DataSecurity>; 2],
    chunk: usize,
    plain: &mut [Vec<u8>; 2],
) -> Result<(), FtpError> {
    for _ in 0..MAX_TOKENS {
        for from in [0, 1] {
            let mut bytes = Vec::new();
            ends[from].output(&mut bytes)?;
            for part in bytes.chunks(chunk) {
                ends[1 - from].handle_input(part, &mut plain[1 - from])?;
            }
        }
        if ends.iter().all(|end| end.is_ready()) {
            return Ok(());
        }
    }
    panic!("no end");
}

#[test]
fn data_connection_bytes_are_unchanged_for_any_fragmentation() {
    with_grid(|grid| {
        let other = grid.credential(&grid.user_proxy());
        let content: Vec<u8> = (0..70_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        for protection in [Protection::Clear, Protection::Safe, Protection::Private] {
            for chunk in [1, 5, 6, 999, usize::MAX] {
                let mut ends = ends(grid, [&Dcau::User; 2], protection, &other);
                let mut plain = [Vec::new(), Vec::new()];
                ends[0]
                    .protect(b"early", &mut Vec::new())
                    .expect_err("not ready");
                secure(&mut ends, chunk, &mut plain).expect("both ready");
                for from in [0, 1] {
                    let mut socket = Vec::new();
                    ends[from].protect(&content, &mut socket).expect("ready");
                    let clear = socket == content;
                    assert_eq!(clear, protection == Protection::Clear);
                    assert_eq!(ends[from].is_clear(), clear);
                    for part in socket.chunks(chunk) {
                        ends[1 - from]
                            .handle_input(part, &mut plain[1 - from])
                            .expect("bytes");
                    }
                    assert!(
                        plain[1 - from] == content,
                        "{protection:?} in chunks of {chunk}"
                    );
                }
            }
        }
    });
}

#[test]
fn bytes_received_together_with_the_end_of_a_handshake_are_kept() {
    with_grid(|grid| {
        let other = grid.credential(&grid.user_proxy());
        for protection in [Protection::Clear, Protection::Private] {
            let mut ends = ends(grid, [&Dcau::User; 2], protection, &other);
            let mut plain = [Vec::new(), Vec::new()];
            let mut last = Vec::new();
            for _ in 0..MAX_TOKENS {
                let mut bytes = Vec::new();
                ends[0].output(&mut bytes).expect("bytes");
                if ends[0].is_ready() {
                    last = bytes;
                    break;
                }
                ends[1].handle_input(&bytes, &mut plain[1]).expect("bytes");
                bytes.clear();
                ends[1].output(&mut bytes).expect("bytes");
                ends[0].handle_input(&bytes, &mut plain[0]).expect("bytes");
            }
            ends[0].protect(b"at once", &mut last).expect("ready");
            ends[1].handle_input(&last, &mut plain[1]).expect("bytes");
            assert!(ends[1].is_ready());
            assert_eq!(plain[1], b"at once", "{protection:?}");
        }
    });
}

#[test]
fn a_data_connection_of_another_identity_is_rejected() {
    with_grid(|grid| {
        grid.user_proxy();
        grid.issue(
            "other",
            "/O=Test Grid/CN=Other",
            "ca",
            "keyUsage=critical,digitalSignature\n",
        );
        let other = grid.pair("other");
        let (user, faulty_client) = (
            Dcau::Subject(USER.into()),
            Dcau::Subject(b"/O=Test Grid/CN=Other".to_vec()),
        );
        for protection in [Protection::Clear, Protection::Private] {
            let mut plain = [Vec::new(), Vec::new()];
            let mut both = ends(grid, [&Dcau::User, &user], protection, &other);
            let reply_text = secure(&mut both, 1000, &mut plain)
                .expect_err("refused")
                .to_string();
            assert!(
                reply_text.contains("data connection: expected the peer"),
                "{reply_text}"
            );
            let mut both = ends(grid, [&faulty_client, &user], protection, &other);
            secure(&mut both, 1000, &mut plain).expect("as asked for");
        }
    });
}

#[test]
fn dcsc_accepts_only_valid_credentials() {
    with_grid(|grid| {
        let mut other = server(grid);
        assert!(!other.secures_data());
        for wrong in [
            "",
            "AAAA",
            "no base 64",
            &base64::encode(&fs::read(grid.path("user.pem")).expect("a file")),
        ] {
            other
                .set_data_credential(Some(&Secret(wrong.into())), now_s())
                .expect_err("none");
            assert!(!other.secures_data());
        }
        let whole = grid.credential(&grid.user_proxy()).to_dcsc();
        other
            .set_data_credential(Some(&whole), now_s() + 2 * DAY_S)
            .expect_err("ended");
        other
            .set_data_credential(Some(&whole), now_s())
            .expect("a credential");
        assert!(other.secures_data());
        other.set_data_credential(None, now_s()).expect("back");
        assert!(!other.secures_data());
    });
}

#[test]
fn arbitrary_bytes_do_not_panic_and_do_not_complete_a_handshake() {
    with_grid(|grid| {
        let credential = grid.credential(&grid.user_proxy());
        let (trust_store, host) = (grid.trust_store(), grid.pair("host"));
        let target = target("localhost", true);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(200)
        });
        let bytes = proptest::collection::vec(any::<u8>(), 0..300);
        let kinds = (20_u8..25, bytes, any::<bool>());
        runner
            .run(&kinds, |(kind, body, framed)| {
                let mut token = body;
                if framed {
                    let length = u16::try_from(token.len()).expect("short").to_be_bytes();
                    token.splice(0..0, [kind, 3, 3, length[0], length[1]]);
                }
                let mut one =
                    Gsi::client(&credential, &trust_store, &target, now_s()).expect("a client");
                one.step(None).expect("a token");
                let mut two = Gsi::server(&host, &trust_store, now_s()).expect("a server");
                for side in [&mut one, &mut two] {
                    if let Ok(reply_text) = side.step(Some(&token)) {
                        prop_assert!(!reply_text.done);
                    }
                    prop_assert!(side.peer().is_none());
                }
                Ok(())
            })
            .expect("none");
    });
}
