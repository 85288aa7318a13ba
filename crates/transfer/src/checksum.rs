//! Incremental checksums.

use md5::Md5;
use sha2::{Digest, Sha256};

/// Checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// RFC 1950, section 8.2: the checksum that grid storage keeps for its files.
    Adler32,
    /// RFC 1321.
    Md5,
    /// FIPS 180-4.
    Sha256,
}

/// Checksum that is being computed.
#[derive(Debug, Clone)]
pub(crate) enum Checksum {
    Adler32(Adler32),
    Md5(Md5),
    Sha256(Sha256),
}

impl Checksum {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Adler32 => Self::Adler32(Adler32::default()),
            Algorithm::Md5 => Self::Md5(Md5::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Adler32(sum) => sum.update(bytes),
            Self::Md5(sum) => sum.update(bytes),
            Self::Sha256(sum) => sum.update(bytes),
        }
    }

    /// Returns the checksum, most significant byte first.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Self::Adler32(sum) => sum.value().to_be_bytes().to_vec(),
            Self::Md5(sum) => sum.finalize().to_vec(),
            Self::Sha256(sum) => sum.finalize().to_vec(),
        }
    }
}

/// Adler-32 checksum. Checksums of chunks combine to the checksum of the file: see [`Adler32::followed_by`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adler32 {
    a: u32,
    b: u32,
    bytes: u64,
}

/// The largest prime below 2¹⁶ (RFC 1950, section 8.2).
const PRIME: u32 = 65521;
/// Bytes that are summed in parallel, so that the compiler uses vector instructions.
const LANES: usize = 32;
/// Maximum bytes between reductions of the 32-bit sums: the largest multiple of `LANES` below the
/// limit of zlib (5552).
const UNREDUCED: usize = 5536;

impl Default for Adler32 {
    fn default() -> Self {
        Self {
            a: 1,
            b: 0,
            bytes: 0,
        }
    }
}

impl Adler32 {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut sum = Self::default();
        sum.update(bytes);
        sum
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for block in bytes.chunks(UNREDUCED) {
            let mut groups = block.chunks_exact(LANES);
            for group in &mut groups {
                let group: &[u8; LANES] = group.try_into().expect("exact chunks");
                let mut plain = 0;
                let mut weighted = 0;
                for (index, &byte) in group.iter().enumerate() {
                    plain += u32::from(byte);
                    weighted += u32::from(byte) * (LANES - index) as u32;
                }
                self.b += self.a * LANES as u32 + weighted;
                self.a += plain;
            }
            for &byte in groups.remainder() {
                self.a += u32::from(byte);
                self.b += self.a;
            }
            self.a %= PRIME;
            self.b %= PRIME;
        }
    }

    /// Returns the checksum of these bytes followed by other bytes.
    pub(crate) fn followed_by(self, next: Self) -> Self {
        // `b` contains each byte of the first part once more for each byte of the second; the initial 1 of `a` counts once.
        let prime = u64::from(PRIME);
        let (first, second) = (
            (u64::from(self.a), u64::from(self.b)),
            (u64::from(next.a), u64::from(next.b)),
        );
        let before = (first.0 + prime - 1) % prime;
        let a = (before + second.0) % prime;
        let b = (first.1 + second.1 + before * (next.bytes % prime)) % prime;
        Self {
            a: u32::try_from(a).expect("below the prime"),
            b: u32::try_from(b).expect("below the prime"),
            bytes: self.bytes + next.bytes,
        }
    }

    pub(crate) fn value(self) -> u32 {
        self.b << 16 | self.a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(algorithm: Algorithm, bytes: &[u8]) -> String {
        let mut sum = Checksum::new(algorithm);
        sum.update(bytes);
        sum.finish()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    #[test]
    fn published_vectors_match() {
        // Adler-32: value of zlib; MD5: RFC 1321, section A.5; SHA-256: FIPS 180-4, example.
        assert_eq!(hex(Algorithm::Adler32, b""), "00000001");
        assert_eq!(hex(Algorithm::Adler32, b"Wikipedia"), "11e60398");
        assert_eq!(hex(Algorithm::Adler32, &vec![255; 1 << 20]), "8e88ef11");
        assert_eq!(
            hex(Algorithm::Md5, b"message digest"),
            "f96b697d7cb7938d525a2f31aaf161d0"
        );
        assert_eq!(
            hex(Algorithm::Sha256, b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    proptest! {
        #[test]
        fn adler32_matches_its_definition_and_checksums_of_parts_combine(bytes in proptest::collection::vec(any::<u8>(), 0..20_000), at in any::<prop::sample::Index>()) {
            let (mut a, mut b) = (1_u32, 0_u32);
            for &byte in &bytes {
                a = (a + u32::from(byte)) % PRIME;
                b = (b + a) % PRIME;
            }
            let at = at.index(bytes.len() + 1);
            let (first, second) = bytes.split_at(at);
            prop_assert_eq!(Adler32::of(&bytes).value(), b << 16 | a);
            prop_assert_eq!(Adler32::of(first).followed_by(Adler32::of(second)), Adler32::of(&bytes));
        }
    }
}
