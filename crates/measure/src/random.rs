//! Data that neither compresses nor repeats, and random names.

use std::io;

/// Generator of 64-bit numbers: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Fast; not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    /// A generator with the state `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fills a buffer; a rest of less than 8 bytes stays.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.as_chunks_mut::<8>().0 {
            *word = self.next().to_ne_bytes();
        }
    }
}

/// 16 bytes of the kernel's random generator, in hexadecimal: a name or a key that other users cannot guess.
///
/// # Errors
/// If the kernel has no random numbers yet.
pub(crate) fn random_key() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    fill_from_kernel(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A seed from the kernel's random generator.
///
/// # Errors
/// If the kernel has no random numbers yet.
pub(crate) fn random_seed() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    fill_from_kernel(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn fill_from_kernel(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `bytes`. Up to 256 bytes are never returned in part.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_reference_implementation() {
        // Output of the C code of Vigna (prng.di.unimi.it/splitmix64.c) for the state 1234567.
        let mut generator = SplitMix::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| generator.next()).collect();
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn two_keys_differ() {
        let [one, other] = [random_key(), random_key()].map(|key| key.expect("random numbers"));
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
