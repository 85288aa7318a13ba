//! What GSI reads: grid-mapfiles, certificates of authorities and what they revoke and may sign, credentials, and tokens of a handshake of which
//! some are changed on the way. The certificates and keys in `grid/` were made for this with openssl, and are believed nowhere else.

use std::sync::{Arc, OnceLock};

use venturi_gridftp::gsi::{Credential, GridMap, Gsi, GsiPeer, TrustStore};
use venturi_gridftp::{FtpError, Security, base64};

use crate::Draws;

const AUTHORITY: &[u8] = include_bytes!("../grid/authority.pem");
const HOST: &[u8] = include_bytes!("../grid/host.pem");
const PROXY: &[u8] = include_bytes!("../grid/proxy.pem");
const USER: &str = "/O=Fuzz/CN=Ann Onymous";
const SERVER: &str = "/O=Fuzz/CN=localhost";
/// While all of these are valid, in seconds since 1970.
const NOW_S: u64 = 1_795_400_000;
/// Tokens of a handshake with delegation are eight.
const MAX_TOKENS: usize = 40;
const MAX_FILES: usize = 5;

/// A grid-mapfile: who is somebody there may be that user.
pub fn maps(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(map) = GridMap::parse(&text) else {
        return;
    };
    for line in text.lines() {
        let name = line.trim().trim_matches('"');
        if let Some(user) = map.user(name) {
            assert!(
                !user.is_empty()
                    && !user.contains(|letter: char| letter.is_whitespace() || letter == ',')
            );
            assert!(map.allows(name, user));
        }
    }
    assert!(
        map.user("").is_none() && map.user("nobody").is_none(),
        "names begin with a slash"
    );
}

/// Files of authorities, whole or as the bytes of their PEM; then a handshake of people who know no others.
pub fn trust_store(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let names = ["a.0", "a.r0", "a.signing_policy", "b.0", "a.1"];
    let labels = ["CERTIFICATE", "X509 CRL", "TRUSTED CERTIFICATE"];
    let mut files = Vec::new();
    while !draws.is_over() && files.len() < MAX_FILES {
        let (name, label, is_text) = (draws.one_of(&names), draws.one_of(&labels), draws.coin());
        let content = draws.long_bytes();
        let content = if is_text {
            content.to_vec()
        } else {
            pem(label, content)
        };
        files.push((name, content));
    }
    let files = files
        .iter()
        .map(|(name, content)| (*name, content.as_slice()));
    let read = TrustStore::from_files(files).expect("few files");
    assert!(read.len() <= MAX_FILES);
    assert!(
        read.rejected()
            .iter()
            .all(|reason| !reason.is_empty() && reason.len() < 4000)
    );
    if !read.is_empty() {
        let _ = exchange(&Arc::new(read), &mut Draws::new(&[]), true);
    }
}

/// Credentials: a file as it is, or the bytes of certificates beside a key that is known.
pub fn credentials(bytes: &[u8]) {
    let mut draws = Draws::new(bytes);
    let read = match draws.below(3) {
        0 => Credential::from_pem(draws.rest(), None),
        1 => Credential::from_pem(PROXY, Some(draws.rest())),
        _ => {
            let mut chain = Vec::new();
            while !draws.is_over() && chain.len() < 4096 * MAX_FILES {
                chain.extend(pem("CERTIFICATE", draws.long_bytes()));
            }
            Credential::from_pem(&chain, Some(PROXY))
        }
    };
    match read {
        Ok(credential) => {
            let (subject, identity) = (credential.subject(), credential.identity());
            assert!(subject.is_ascii() && identity.is_ascii());
            assert!(
                subject.len() >= identity.len(),
                "{subject} is {identity} or a proxy of it"
            );
            let _ = (
                credential.is_limited(),
                credential.check(NOW_S),
                credential.check(credential.not_after_s()),
            );
        }
        Err(error) => assert!(error.to_string().len() < 4000),
    }
}

/// A handshake. Untouched it succeeds; whatever is done to its tokens, nobody passes for somebody else.
pub fn handshake(bytes: &[u8]) {
    static KNOWN: OnceLock<Arc<TrustStore>> = OnceLock::new();
    let known = KNOWN
        .get_or_init(|| Arc::new(TrustStore::from_files([("a.0", AUTHORITY)]).expect("one file")));
    let mut draws = Draws::new(bytes);
    let delegates = draws.coin();
    let (done, touched) = exchange(known, &mut draws, delegates).unwrap_or_else(|error| {
        assert!(error.to_string().len() < 4000);
        (false, true)
    });
    assert!(done || touched, "the unchanged handshake failed");
}

/// Has two sides talk. Whether both are content, and whether a token was changed; an error is one side's.
fn exchange(
    known: &Arc<TrustStore>,
    draws: &mut Draws<'_>,
    delegates: bool,
) -> Result<(bool, bool), FtpError> {
    static OWN: OnceLock<[Credential; 2]> = OnceLock::new();
    let [user, host] = OWN.get_or_init(|| {
        [PROXY, HOST].map(|file| Credential::from_pem(file, None).expect("a credential"))
    });
    let target = GsiPeer {
        host: "localhost".to_owned(),
        subject: None,
        delegates,
    };
    let mut sides = [
        Gsi::client(user, known, &target, NOW_S)?,
        Gsi::server(host, known, NOW_S)?,
    ];
    let (mut done, mut touched, mut token) = ([false; 2], false, None::<Vec<u8>>);
    for turn in 0..MAX_TOKENS {
        let side = turn % 2;
        let output = match sides[side].step(token.as_deref()) {
            Err(_) if touched => return Ok((false, true)),
            output => output?,
        };
        done[side] = output.done;
        let Some(mut output) = output.token else {
            break;
        };
        touched |= change(draws, &mut output);
        token = Some(output);
    }
    for (side, name) in [(0, SERVER), (1, USER)] {
        let peer = sides[side].peer();
        assert_eq!(
            peer.is_some(),
            done[side],
            "somebody is known when the handshake is over"
        );
        assert!(
            peer.is_none_or(|peer| peer.identity == name),
            "{peer:?} is not {name}"
        );
    }
    if done == [true; 2] && !touched {
        let wrapped = sides[0].wrap(b"NOOP\r\n")?;
        assert_eq!(sides[1].unwrap(&wrapped)?, b"NOOP\r\n");
    }
    Ok((done == [true; 2], touched))
}

/// Changes a token, or leaves it. Whether it is another one then.
fn change(draws: &mut Draws<'_>, token: &mut Vec<u8>) -> bool {
    if draws.is_over() {
        return false;
    }
    let before = token.clone();
    let offset = |draws: &mut Draws<'_>, length: usize| {
        (draws.below(256) << 8 | draws.below(256)) % length.max(1)
    };
    match draws.below(8) {
        0..=3 => {}
        4 => {
            let at = offset(draws, token.len());
            token.truncate(at);
        }
        5 => *token = draws.bytes().to_vec(),
        6 => {
            let at = offset(draws, token.len());
            let bytes = draws.bytes();
            token.splice(at..at, bytes.iter().copied());
        }
        _ => {
            for _ in 0..=draws.below(4) {
                let at = offset(draws, token.len());
                let byte = draws.byte();
                if let Some(found) = token.get_mut(at) {
                    *found = byte;
                }
            }
        }
    }
    *token != before
}

fn pem(label: &str, content: &[u8]) -> Vec<u8> {
    let text = base64::encode(content);
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
    .into_bytes()
}
