//! The bytes of a fuzzer as choices. When they are used up every choice is the first one, so that each input has an end.

/// What is left of the bytes.
#[derive(Debug, Clone)]
pub struct Draws<'a> {
    rest: &'a [u8],
}

impl<'a> Draws<'a> {
    /// All choices of an input.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all is used up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.chunk(1).first().copied().unwrap_or(0)
    }

    /// One of so many, at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// Yes or no.
    pub fn coin(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Any number; small ones and the largest are as likely as all others.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=127 => u64::from(small),
            128..=191 => {
                let mut read_u64 = [0; 8];
                let chunk = self.chunk(8);
                read_u64[..chunk.len()].copy_from_slice(chunk);
                u64::from_be_bytes(read_u64)
            }
            large => u64::MAX - u64::from(large - 192),
        }
    }

    /// As many bytes as the next one says.
    pub fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte());
        self.chunk(count)
    }

    /// As many bytes as the next two say.
    pub fn long_bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()) << 8 | usize::from(self.byte());
        self.chunk(count)
    }

    /// All that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn chunk(&mut self, count: usize) -> &'a [u8] {
        let (chunk, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        chunk
    }
}
