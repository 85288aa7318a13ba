//! Signatures of S3 requests: AWS Signature Version 4 for headers.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use ring::hmac;
use sha2::{Digest, Sha256};

use super::credentials::S3Keys;
use crate::http::digest::to_hex;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Request as it is signed.
pub(super) struct SignedRequest<'a> {
    pub(super) method: &'a Method,
    /// Host and port as in the field `Host`.
    pub(super) host: &'a str,
    /// Encoded path.
    pub(super) path: &'a str,
    /// Encoded parameters, sorted by name.
    pub(super) query: &'a str,
    /// SHA-256 of the body in hexadecimal digits, or `UNSIGNED-PAYLOAD`.
    pub(super) content_sha256: &'a str,
}

/// Return the SHA-256 of bytes in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

/// Add date, content hash and signature to the fields of a request. All fields are signed.
pub(super) fn sign(
    request: &SignedRequest<'_>,
    fields: &mut HeaderMap,
    keys: &S3Keys,
    region: &str,
    now: SystemTime,
) {
    let time = timestamp(now);
    let date = &time[..8];
    let value = |text: &str| HeaderValue::try_from(text).expect("letters, digits and marks");
    fields.insert(DATE, value(&time));
    fields.insert(CONTENT_SHA256, value(request.content_sha256));
    if let Some(session) = &keys.session
        && let Ok(mut session) = HeaderValue::from_bytes(&session.0)
    {
        session.set_sensitive(true);
        fields.insert(SECURITY_TOKEN, session);
    }
    let mut signed: Vec<(&str, String)> = fields
        .iter()
        .map(|(name, value)| {
            (
                name.as_str(),
                String::from_utf8_lossy(value.as_bytes()).trim().to_owned(),
            )
        })
        .collect();
    signed.push(("host", request.host.to_owned()));
    signed.sort();
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = signed
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{}",
        request.method, request.path, request.query, request.content_sha256
    );
    let scope = format!("{date}/{region}/s3/aws4_request");
    let to_sign = format!(
        "{ALGORITHM}\n{time}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let key = [date, region, "s3", "aws4_request"]
        .iter()
        .fold([b"AWS4", keys.secret.0.as_slice()].concat(), |key, text| {
            hmac_sha256(&key, text.as_bytes())
        });
    let signature = to_hex(&hmac_sha256(&key, to_sign.as_bytes()));
    let text = format!(
        "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        keys.id
    );
    if let Ok(mut authorization) = HeaderValue::try_from(text) {
        authorization.set_sensitive(true);
        fields.insert(http::header::AUTHORIZATION, authorization);
    }
}

fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, bytes).as_ref().to_vec()
}

/// Return a time as `YYYYMMDDTHHMMSSZ`.
fn timestamp(time: SystemTime) -> String {
    let since = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let seconds = i64::try_from(since).unwrap_or(i64::MAX);
    // `YYYYMMDDHHMMSS`, as in FTP.
    let digits = venturi_gridftp::write_timestamp(seconds);
    let (date, time) = digits.split_at(8);
    format!("{date}T{time}Z")
}

/// Percent-encode a path or the value of a parameter: all bytes except letters, digits and `-._~`; slashes only of a path stay.
pub(super) fn encoded(bytes: &[u8], keeps_slashes: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || (byte == b'/' && keeps_slashes)
        {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use venturi_gridftp::Secret;

    use super::*;

    /// Examples of the Amazon S3 API reference, "Signature Calculations for the Authorization Header".
    #[test]
    fn the_published_examples_are_signed_correctly() {
        let keys = S3Keys {
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: Secret(b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_vec()),
            session: None,
        };
        // 2013-05-24 00:00:00 UTC.
        let now = UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let check = |path,
                     query,
                     extra: &[(&'static str, &str)],
                     content: &[u8],
                     method: Method,
                     expected: &str| {
            let mut fields = HeaderMap::new();
            for (name, value) in extra {
                fields.insert(
                    HeaderName::from_static(name),
                    value.parse().expect("a value"),
                );
            }
            let request = SignedRequest {
                method: &method,
                host: "examplebucket.s3.amazonaws.com",
                path,
                query,
                content_sha256: &sha256(content),
            };
            sign(&request, &mut fields, &keys, "us-east-1", now);
            let found = fields[http::header::AUTHORIZATION]
                .to_str()
                .expect("text")
                .to_owned();
            let signature = found.split("Signature=").nth(1);
            assert_eq!(signature, Some(expected), "{found}");
        };
        check(
            "/test.txt",
            "",
            &[("range", "bytes=0-9")],
            b"",
            Method::GET,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        check(
            "/test%24file.text",
            "",
            &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            b"Welcome to Amazon S3.",
            Method::PUT,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        );
        check(
            "/",
            "max-keys=2&prefix=J",
            &[],
            b"",
            Method::GET,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn every_byte_except_the_unreserved_is_encoded() {
        assert_eq!(encoded(b"/a b$\xc3~", true), "/a%20b%24%C3~");
        assert_eq!(encoded(b"/a", false), "%2Fa");
    }
}
