//! Choices taken from bytes, for the bodies that build something from them. What has run out is 0, so that any bytes
//! are a whole input and a shorter one is a simpler one.

/// What is left of the bytes.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Where there is no number of steps, the bytes' end is the last one.
    #[cfg(feature = "sim")]
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    /// One of `0..bound`; `bound` is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// So many bytes, or what is left.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// As many bytes as the first one says.
    pub fn short(&mut self) -> &'a [u8] {
        let most = self.byte().into();
        self.take(most)
    }

    /// Small numbers in one byte; the largest ones, and any, behind a mark.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            0xff => u64::MAX,
            0xfe => u64::MAX - u64::from(self.byte()),
            0xfd => 1 << (self.byte() % 64),
            0xfc => {
                let mut bytes = [0; 8];
                let taken = self.take(8);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
            small => small.into(),
        }
    }
}
