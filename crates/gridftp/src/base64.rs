//! Base 64 (RFC 4648 section 4), as RFC 2228 uses it for tokens and protected lines, and HTTP for
//! checksums.

use crate::FtpError;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes as padded text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for index in 0..4 {
            let digit = (bits >> (18 - 6 * index)) & 63;
            text.push(if index <= group.len() {
                char::from(ALPHABET[digit as usize])
            } else {
                '='
            });
        }
    }
    text
}

/// Decodes padded text.
///
/// # Errors
/// If the text is not valid base 64.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, FtpError> {
    let wrong = || FtpError::malformed("token", "base 64", text);
    if !text.len().is_multiple_of(4) {
        return Err(wrong());
    }
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 {
        return Err(wrong());
    }
    let digits = &text[..text.len() - padding];
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &character in group {
            bits = bits << 6 | digit(character).ok_or_else(wrong)?;
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Ok(bytes)
}

fn digit(character: u8) -> Option<u32> {
    Some(u32::from(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_section_10() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).unwrap(), plain.as_bytes());
        }
        for wrong in ["Z", "Zg=", "Zg==Zg==", "Z===", "Zm9 ", "Z=g="] {
            decode(wrong.as_bytes()).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn bytes_round_trip_through_base64(bytes: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()).unwrap(), bytes);
        }

        #[test]
        fn no_text_makes_the_decoder_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
