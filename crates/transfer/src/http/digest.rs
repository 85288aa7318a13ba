//! Checksums in header fields: `Digest` (RFC 3230, with `adler32` as used by grid storage) and
//! `Repr-Digest` (RFC 9530).

use http::{HeaderMap, HeaderName, HeaderValue};
use venturi_gridftp::base64;

use super::request_error::RequestError;
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

/// Checksum of a complete file, most significant byte first.
pub(crate) type Digest = (Algorithm, Vec<u8>);

/// Request a checksum: Adler-32, because the checksums of chunks can be combined. XRootD does not support lists in
/// the old field.
pub(crate) fn request_digest(fields: &mut HeaderMap) {
    fields.insert(WANT_DIGEST, HeaderValue::from_static("adler32"));
    request_again(fields);
}

/// Request a checksum only with the new field, which XRootD 5.5 ignores.
pub(crate) fn request_again(fields: &mut HeaderMap) {
    fields.insert(
        WANT_REPR_DIGEST,
        HeaderValue::from_static("adler=10, md5=5, sha-256=3"),
    );
}

/// Return the checksums of a response without unknown and malformed ones.
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

/// Remove unrequested checksums of a response. XRootD 5.5 repeats the checksums of the previous
/// file on the connection.
pub(crate) fn forget(fields: &mut HeaderMap, expected: &HeaderMap) {
    for (requested, reported) in [(WANT_DIGEST, DIGEST), (WANT_REPR_DIGEST, REPR_DIGEST)] {
        if !expected.contains_key(requested) {
            fields.remove(reported);
        }
    }
}

/// Return the preferred supported checksum of a client; none if it requests none.
pub(crate) fn preferred(fields: &HeaderMap) -> Option<Algorithm> {
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
    // The first one of the highest weight.
    positive
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
        .map(|(algorithm, _)| algorithm)
}

/// Add a checksum to a response in the requested fields.
pub(crate) fn set(fields: &mut HeaderMap, requested: &HeaderMap, digest: &Digest) {
    let (algorithm, bytes) = digest;
    let encoded = base64::encode(bytes);
    let mut put = |name, text: String| {
        fields.insert(
            name,
            text.try_into()
                .expect("letters, digits and marks of base 64"),
        );
    };
    if requested.contains_key(WANT_REPR_DIGEST) {
        let name = if *algorithm == Algorithm::Adler32 {
            "adler"
        } else {
            old_name(*algorithm)
        };
        put(REPR_DIGEST, format!("{name}=:{encoded}:"));
    }
    if requested.contains_key(WANT_DIGEST) {
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

/// Return the name of an algorithm in `Digest`.
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

/// Check received bytes against the checksum of the server.
pub(crate) fn compare(
    reported: Option<&Digest>,
    found: Option<Vec<u8>>,
) -> Result<(), RequestError> {
    match (reported, found) {
        (Some((algorithm, reported)), Some(found)) if *reported != found => {
            Err(RequestError::Local(Failure::found(
                std::path::PathBuf::new(),
                format!("bytes of {} {}", old_name(*algorithm), to_hex(reported)),
                format!("a checksum of {}", to_hex(&found)),
                "run the same command again; if the error remains, the checksum of the server belongs to another version of the file",
            )))
        }
        _ => Ok(()),
    }
}

/// Return bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parse eight digits; some servers omit leading zeros.
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
    fn both_forms_of_a_checksum_are_read() {
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
        // RFC 3230, section 4.3.2, and the equivalent of RFC 9530.
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
    fn the_checksum_with_the_highest_weight_is_preferred() {
        let check = |name, text, expected| {
            assert_eq!(preferred(&fields(&[(name, text)])), expected, "{text}")
        };
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
        let mut requested = HeaderMap::new();
        request_digest(&mut requested);
        assert_eq!(preferred(&requested), Some(Algorithm::Adler32));
    }

    proptest! {
        #[test]
        fn checksums_of_headers_are_found(bytes in proptest::collection::vec(any::<u8>(), 32..=32), kind in 0..3_usize) {
            let algorithm = [Algorithm::Adler32, Algorithm::Md5, Algorithm::Sha256][kind];
            let digest = (algorithm, bytes[..length(algorithm)].to_vec());
            let (mut requested, mut reported) = (HeaderMap::new(), HeaderMap::new());
            request_digest(&mut requested);
            set(&mut reported, &requested, &digest);
            prop_assert_eq!(found(&reported), vec![digest.clone(), digest]);
        }

        #[test]
        fn no_text_panics(text in "[ -~]{0,60}", name in 0..4_usize) {
            let name = [WANT_DIGEST, DIGEST, WANT_REPR_DIGEST, REPR_DIGEST][name].clone();
            let fields = fields(&[(name, &text)]);
            let _ = (found(&fields), preferred(&fields));
        }
    }
}
