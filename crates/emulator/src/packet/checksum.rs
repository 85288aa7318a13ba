//! The Internet checksum (RFC 1071): the one's complement of the one's-complement sum of 16-bit words.

/// Return the folded sum of some bytes, without the complement. An odd last byte is padded with a
/// zero.
///
/// Words are summed in machine order, four bytes at a time, and swapped once at the end, because
/// the sum is independent of the byte order (RFC 1071, section 2 B).
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut chunks = bytes.chunks_exact(4);
    let mut total: u64 = chunks
        .by_ref()
        .map(|four| u64::from(u32::from_ne_bytes([four[0], four[1], four[2], four[3]])))
        .sum();
    let mut rest = [0; 4];
    let left = chunks.remainder();
    rest[..left.len()].copy_from_slice(left);
    total += u64::from(u32::from_ne_bytes(rest));
    u16::from_be_bytes(fold(total).to_ne_bytes())
}

/// Return the sum of two sums.
pub(crate) fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::try_from(total).expect("folded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_is_reproduced() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
    }

    proptest! {
        #[test]
        fn the_checksum_equals_the_sum_word_by_word(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut plain = 0_u32;
            for pair in bytes.chunks(2) {
                plain += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
                plain = (plain & 0xffff) + (plain >> 16);
            }
            prop_assert_eq!(u32::from(sum(&bytes)), plain);
        }
    }
}
