//! Chance from a seed: SplitMix64, small enough to be read, the same on every machine.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a bound; 0 for the bound 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.any() % (bound.max(1) as u64)) as usize
    }

    /// True `parts` times in a thousand.
    pub fn permille(&mut self, parts: usize) -> bool {
        self.below(1000) < parts
    }

    /// One of several.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Sixteen bytes.
    pub fn bytes16(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.any().to_le_bytes());
        bytes[8..].copy_from_slice(&self.any().to_le_bytes());
        bytes
    }
}
