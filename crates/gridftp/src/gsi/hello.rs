//! Hides the server name of a ClientHello from rustls, but keeps it in the handshake hash.
//!
//! Globus writes the common name of the expected peer into the server name (`Jane Doe` on a data
//! connection). rustls rejects names that are not DNS names, and version 0.23 has no option to
//! accept them. Version 0.24 will have `InvalidSniPolicy`; then remove this file.
//!
//! The name is not needed here, since each side has one certificate. The extension therefore gets a
//! private number before rustls reads it. Because both sides hash the sent bytes, every hash
//! restores the original number. If a client sends the private number itself, the hashes differ and
//! its handshake fails.

use std::sync::LazyLock;

use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

/// Extension `server_name` (RFC 6066 section 3).
const SERVER_NAME: [u8; 2] = [0, 0];
/// An extension of the range for private use (RFC 8446 section 11).
const HIDDEN: [u8; 2] = [0xff, 0x5c];
/// Type of a ClientHello message (RFC 8446 section 4).
const CLIENT_HELLO: u8 = 1;
/// Version and random number, which precede the fields with a length prefix.
const FIXED_BYTES: usize = 2 + 32;
/// Content type, version and length of a record.
const HEADER_BYTES: usize = 5;
const HANDSHAKE: u8 = 22;

/// Hides the name in a record.
pub(super) fn hide(record: &mut [u8]) {
    if let Some((header, messages)) = record.split_first_chunk_mut::<HEADER_BYTES>()
        && header[0] == HANDSHAKE
    {
        rename(messages, SERVER_NAME, HIDDEN);
    }
}

/// Returns the messages as sent, with the original extension number.
pub(super) fn shown(messages: &[u8]) -> Vec<u8> {
    let mut messages = messages.to_vec();
    rename(&mut messages, HIDDEN, SERVER_NAME);
    messages
}

/// Returns the ring provider with hashes of the sent bytes.
pub(super) fn provider() -> CryptoProvider {
    static SUITES: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
        let usual = default_provider().cipher_suites;
        usual.into_iter().map(showing).collect()
    });
    CryptoProvider {
        cipher_suites: SUITES.clone(),
        ..default_provider()
    }
}

fn rename(messages: &mut [u8], from: [u8; 2], to: [u8; 2]) {
    let mut rest = messages;
    while let Some((head, behind)) = rest.split_first_chunk_mut::<4>() {
        let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        let Some((body, next)) = behind.split_at_mut_checked(length) else {
            return;
        };
        if head[0] == CLIENT_HELLO {
            rename_extension(body, from, to);
        }
        rest = next;
    }
}

fn rename_extension(hello: &mut [u8], from: [u8; 2], to: [u8; 2]) {
    let mut rest = extensions(hello).unwrap_or_default();
    while let Some((kind, behind)) = rest.split_first_chunk_mut::<2>() {
        if *kind == from {
            *kind = to;
        }
        rest = behind_long(behind).unwrap_or_default();
    }
}

/// Returns the extensions, which follow the session id, cipher suites and compression methods (RFC
/// 8446 section 4.1.2).
fn extensions(hello: &mut [u8]) -> Option<&mut [u8]> {
    let rest = behind_short(hello.get_mut(FIXED_BYTES..)?)?;
    let rest = behind_short(behind_long(rest)?)?;
    rest.get_mut(2..)
}

/// Returns the bytes after a field with a one-byte length prefix.
fn behind_short(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let (&mut length, rest) = bytes.split_first_mut()?;
    rest.get_mut(usize::from(length)..)
}

/// Returns the bytes after a field with a two-byte length prefix.
fn behind_long(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let (length, rest) = bytes.split_first_chunk_mut::<2>()?;
    rest.get_mut(usize::from(u16::from_be_bytes(*length))..)
}

struct Shown(&'static dyn Hash);

struct ShownContext(Box<dyn Context>);

impl Hash for Shown {
    fn start(&self) -> Box<dyn Context> {
        Box::new(ShownContext(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(&shown(data))
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }
}

impl Context for ShownContext {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        self.0.update(&shown(data));
    }
}

/// Returns the suite with these hashes. rustls needs `'static` suites; the nine suites are created
/// once.
fn showing(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let common = |common: &CipherSuiteCommon| CipherSuiteCommon {
        hash_provider: Box::leak(Box::new(Shown(common.hash_provider))),
        suite: common.suite,
        confidentiality_limit: common.confidentiality_limit,
    };
    match suite {
        SupportedCipherSuite::Tls13(suite) => {
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: common(&suite.common),
                ..*suite
            })))
        }
        SupportedCipherSuite::Tls12(suite) => {
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: common(&suite.common),
                ..*suite
            })))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a ClientHello with extensions of these numbers, one byte each.
    fn hello(kinds: &[[u8; 2]]) -> Vec<u8> {
        let mut body = vec![3; FIXED_BYTES];
        body.extend([2, 9, 9, 0, 2, 0x13, 1, 1, 0]);
        body.extend(u16::try_from(kinds.len() * 5).unwrap().to_be_bytes());
        for kind in kinds {
            body.extend([kind[0], kind[1], 0, 1, 0]);
        }
        let length = u8::try_from(body.len()).unwrap();
        [vec![CLIENT_HELLO, 0, 0, length], body].concat()
    }

    fn record(messages: &[u8]) -> Vec<u8> {
        let length = u8::try_from(messages.len()).unwrap();
        [&[HANDSHAKE, 3, 1, 0, length], messages].concat()
    }

    #[test]
    fn the_server_name_is_hidden_and_restored_without_other_changes() {
        for kinds in [
            &[[0, 10], SERVER_NAME, [0, 13]][..],
            &[SERVER_NAME],
            &[[0, 0x2b]],
            &[],
        ] {
            let sent = hello(kinds);
            let mut read = record(&sent);
            hide(&mut read);
            let hidden = kinds
                .iter()
                .map(|&kind| if kind == SERVER_NAME { HIDDEN } else { kind });
            assert_eq!(read, record(&hello(&hidden.collect::<Vec<_>>())));
            assert_eq!(shown(&read[HEADER_BYTES..]), sent);
            // As after a HelloRetryRequest, which puts other messages first.
            let later = [&[254, 0, 0, 2, 0, 0][..], &read[HEADER_BYTES..]].concat();
            assert_eq!(shown(&later)[6..], sent[..]);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic_and_keep_their_length(mut bytes: Vec<u8>, cut in 0_usize..80) {
            let length = bytes.len();
            prop_assert_eq!(shown(&bytes).len(), length);
            hide(&mut bytes);
            let mut short = record(&hello(&[SERVER_NAME, [0, 1]]));
            let whole = short.len();
            short.truncate(cut);
            hide(&mut short);
            prop_assert_eq!(short.len(), cut.min(whole));
        }
    }
}
