//! Checksums in header fields: `Digest` (RFC 3230, with `adler32` as grid storage uses it) and `Repr-Digest` (RFC 9530).

use http::{HeaderMap, HeaderName, HeaderValue};
use venturi_gridftp::base64;

use super::fault::Fault;
use crate::checksum::Algorithm;
use crate::error::Failure;

/// RFC 3230, section 4.3.1.
pub(crate) const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
/// RFC 3230, section 4.3.2.
pub(crate) const DIGEST: HeaderName = HeaderName::from_static("digest");
/// RFC 9530, section 4.
pub(crate) const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
/// RFC 9530, section 3.
pub(crate) const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// A checksum of a whole file, most significant byte first.
pub(crate) type Digest = (Algorithm, Vec<u8>);

/// Asks for a checksum: Adler-32, which pieces of a file can be put together to. XRootD understands no list in the old field.
pub(crate) fn ask(fields: &mut HeaderMap) {
    fields.insert(WANT_DIGEST, HeaderValue::from_static("adler32"));
    ask_anew(fields);
}

/// Asks by the new field alone, which XRootD (5.5) passes over.
pub(crate) fn ask_anew(fields: &mut HeaderMap) {
    fields.insert(
        WANT_REPR_DIGEST,
        HeaderValue::from_static("adler=10, md5=5, sha-256=3"),
    );
}

/// The checksums in an answer; what we do not know, or what is malformed, is left out.
pub(crate) fn found(fields: &HeaderMap) -> Vec<Digest> {
    let values = |name: &HeaderName| -> Vec<String> {
        let texts = fields
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        texts
            .flat_map(|text| text.split(','))
            .map(|item| item.trim().to_owned())
            .collect()
    };
    let old = values(&DIGEST).into_iter().filter_map(|item| {
        let (name, value) = item.split_once('=')?;
        let algorithm = named(name)?;
        let bytes = match algorithm {
            Algorithm::Adler32 => from_hex(value)?,
            _ => base64::decode(value.as_bytes()).ok()?,
        };
        Some((algorithm, bytes))
    });
    let new = values(&REPR_DIGEST).into_iter().filter_map(|item| {
        let (name, value) = item.split_once('=')?;
        let value = value.strip_prefix(':')?.split(':').next()?;
        Some((named(name)?, base64::decode(value.as_bytes()).ok()?))
    });
    let sound = |digest: &Digest| digest.1.len() == length(digest.0);
    old.chain(new).filter(sound).collect()
}

/// Takes checksums out of an answer that were not asked for: XRootD (5.5) repeats those of the last file that was asked for over the connection.
pub(crate) fn forget(fields: &mut HeaderMap, asked: &HeaderMap) {
    for (wanted, told) in [(WANT_DIGEST, DIGEST), (WANT_REPR_DIGEST, REPR_DIGEST)] {
        if !asked.contains_key(wanted) {
            fields.remove(told);
        }
    }
}

/// The best that we know of those that a client wants; none if it wants none of them.
pub(crate) fn wanted(fields: &HeaderMap) -> Option<Algorithm> {
    let items = |name: &HeaderName| {
        let text = fields.get(name)?.to_str().ok()?;
        Some(text.split(',').map(str::trim).collect::<Vec<_>>())
    };
    let old = items(&WANT_DIGEST)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|item| {
            let (name, weight) = item.split_once(';').unwrap_or((item, "q=1"));
            let weight = weight.trim().strip_prefix("q=")?.parse::<f32>().ok()?;
            Some((named(name.trim())?, weight))
        });
    let new = items(&WANT_REPR_DIGEST)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|item| {
            let (name, weight) = item.split_once('=').unwrap_or((item, "1"));
            Some((
                named(name.trim())?,
                weight.trim().parse::<f32>().ok()? / 10.0,
            ))
        });
    let positive = old.chain(new).filter(|(_, weight)| *weight > 0.0);
    // The first of those that weigh most.
    positive
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(algorithm, _)| algorithm)
}

/// Puts a checksum into an answer, in the way that was asked for.
pub(crate) fn tell(fields: &mut HeaderMap, asked: &HeaderMap, digest: &Digest) {
    let (algorithm, bytes) = digest;
    let encoded = base64::encode(bytes);
    let mut put = |name, text: String| {
        fields.insert(
            name,
            text.try_into()
                .expect("letters, digits and marks of base 64"),
        );
    };
    if asked.contains_key(WANT_REPR_DIGEST) {
        let name = if *algorithm == Algorithm::Adler32 {
            "adler"
        } else {
            old_name(*algorithm)
        };
        put(REPR_DIGEST, format!("{name}=:{encoded}:"));
    }
    if asked.contains_key(WANT_DIGEST) {
        let value = if *algorithm == Algorithm::Adler32 {
            to_hex(bytes)
        } else {
            encoded
        };
        put(DIGEST, format!("{}={value}", old_name(*algorithm)));
    }
}

fn named(name: &str) -> Option<Algorithm> {
    match name.trim().to_ascii_lowercase().as_str() {
        "adler32" | "adler" => Some(Algorithm::Adler32),
        "md5" => Some(Algorithm::Md5),
        "sha-256" | "sha256" => Some(Algorithm::Sha256),
        _ => None,
    }
}

/// As it stands in `Digest`.
pub(crate) fn old_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Adler32 => "adler32",
        Algorithm::Md5 => "md5",
        Algorithm::Sha256 => "sha-256",
    }
}

fn length(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Adler32 => 4,
        Algorithm::Md5 => 16,
        Algorithm::Sha256 => 32,
    }
}

/// Sees that what came is what the server has a checksum of.
pub(crate) fn compare(told: Option<&Digest>, found: Option<Vec<u8>>) -> Result<(), Fault> {
    match (told, found) {
        (Some((algorithm, told)), Some(found)) if *told != found => {
            Err(Fault::Local(Failure::found(
                std::path::PathBuf::new(),
                format!("bytes of {} {}", old_name(*algorithm), to_hex(told)),
                format!("others, of {}", to_hex(&found)),
                "run the same command again; if it stays so, the file at the server is not the one that its checksum was made of",
            )))
        }
        _ => Ok(()),
    }
}

/// As people read it.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Eight digits; some servers leave out zeros at the front.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = digits
        .then(|| u32::from_str_radix(text, 16).ok())
        .flatten()?;
    Some(value.to_be_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, text)| (name.clone(), text.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn both_ways_of_saying_a_checksum_are_read() {
        let adler = vec![0x03, 0xda, 0x01, 0x95];
        let check = |name, text, expected: &[Digest]| {
            assert_eq!(found(&fields(&[(name, text)])), expected, "{text}")
        };
        check(
            DIGEST,
            "adler32=03da0195",
            &[(Algorithm::Adler32, adler.clone())],
        );
        check(
            DIGEST,
            "ADLER32=3da0195",
            &[(Algorithm::Adler32, adler.clone())],
        );
        check(
            REPR_DIGEST,
            "adler=:A9oBlQ==:",
            &[(Algorithm::Adler32, adler.clone())],
        );
        // RFC 3230, section 4.3.2, and its like of RFC 9530.
        let md5 = base64::decode(b"HUXZLQLMuI/KZ5KDcJPcOA==").expect("base 64");
        check(
            DIGEST,
            "md5=HUXZLQLMuI/KZ5KDcJPcOA==,unixsum=30637",
            &[(Algorithm::Md5, md5.clone())],
        );
        check(
            REPR_DIGEST,
            "sha-512=:AA==:, md5=:HUXZLQLMuI/KZ5KDcJPcOA==:;a=1",
            &[(Algorithm::Md5, md5)],
        );
        for malformed in [
            "adler32=123456789",
            "adler32=",
            "adler32",
            "md5=xyz",
            "md5=AAAA",
            "=",
            "",
        ] {
            check(DIGEST, malformed, &[]);
        }
    }

    #[test]
    fn the_checksum_that_weighs_most_is_given() {
        let check =
            |name, text, expected| assert_eq!(wanted(&fields(&[(name, text)])), expected, "{text}");
        check(WANT_DIGEST, "adler32", Some(Algorithm::Adler32));
        check(
            WANT_DIGEST,
            "md5;q=0.3, sha-256;q=1, unixsum",
            Some(Algorithm::Sha256),
        );
        check(
            WANT_REPR_DIGEST,
            "sha-512=3, sha-256=10, adler=2",
            Some(Algorithm::Sha256),
        );
        check(WANT_REPR_DIGEST, "adler=0", None);
        check(WANT_DIGEST, "crc32;q=x", None);
        let mut asked = HeaderMap::new();
        ask(&mut asked);
        assert_eq!(wanted(&asked), Some(Algorithm::Adler32));
    }

    proptest! {
        #[test]
        fn what_is_told_is_found(bytes in proptest::collection::vec(any::<u8>(), 32..=32), kind in 0..3_usize) {
            let algorithm = [Algorithm::Adler32, Algorithm::Md5, Algorithm::Sha256][kind];
            let digest = (algorithm, bytes[..length(algorithm)].to_vec());
            let (mut asked, mut told) = (HeaderMap::new(), HeaderMap::new());
            ask(&mut asked);
            tell(&mut told, &asked, &digest);
            prop_assert_eq!(found(&told), vec![digest.clone(), digest]);
        }

        #[test]
        fn no_text_panics(text in "[ -~]{0,60}", name in 0..4_usize) {
            let name = [WANT_DIGEST, DIGEST, WANT_REPR_DIGEST, REPR_DIGEST][name].clone();
            let fields = fields(&[(name, &text)]);
            let _ = (found(&fields), wanted(&fields));
        }
    }
}
