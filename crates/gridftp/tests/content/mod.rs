//! Bytes that differ between files and between positions of a file.

/// Returns `size` bytes of the file with this number.
pub fn content(seed: u64, size: usize) -> Vec<u8> {
    let byte = |at: u64| {
        (at.wrapping_add(seed << 32)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 56) as u8
    };
    (0..size as u64).map(byte).collect()
}
