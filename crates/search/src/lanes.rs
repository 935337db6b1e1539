//! Sixteen bytes that are looked at together.

use core::ops::BitOr;

use wide::u8x16;

use crate::anchor::load;

/// Bytes that are looked at together.
pub const LANES: usize = 16;

/// Sixteen bytes.
#[derive(Clone, Copy, Debug)]
pub struct Lanes(u8x16);

/// Which of them are something.
#[derive(Clone, Copy, Debug)]
pub struct Which(u8x16);

impl Lanes {
    /// Of these bytes, the first ones: zeros stand behind the end of fewer.
    #[inline(always)]
    pub fn first(bytes: &[u8]) -> Self {
        Self::of(first(bytes))
    }

    /// These bytes.
    #[inline(always)]
    pub fn of(bytes: [u8; LANES]) -> Self {
        Self(u8x16::new(bytes))
    }

    /// Those that are this byte.
    #[inline(always)]
    pub fn are(self, byte: u8) -> Which {
        Which(self.0.simd_eq(u8x16::splat(byte)))
    }

    /// Those from one byte to another, both included.
    #[inline(always)]
    pub fn between(self, first: u8, last: u8) -> Which {
        let from = self.0 - u8x16::splat(first);
        Which(
            from.min(u8x16::splat(last.wrapping_sub(first)))
                .simd_eq(from),
        )
    }

    /// From 0 to 9.
    #[inline(always)]
    pub(crate) fn digits(self) -> u64 {
        self.between(b'0', b'9').bits()
    }

    /// ASCII letters.
    #[inline(always)]
    pub(crate) fn letters(self) -> u64 {
        Self(self.0 | u8x16::splat(0x20)).between(b'a', b'z').bits()
    }

    /// Printable, and no space.
    #[inline(always)]
    pub(crate) fn marks(self) -> u64 {
        self.between(b'!', b'~').bits()
    }

    /// Not printable; the end of a line counts as printable.
    #[inline(always)]
    pub(crate) fn strange(self) -> u64 {
        !(self.between(b' ', b'~') | self.are(b'\n')).bits() & 0xffff
    }
}

impl Which {
    /// One bit each, the first byte's lowest.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        u64::from(self.0.to_bitmask())
    }
}

impl BitOr for Which {
    type Output = Self;

    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The first sixteen bytes of some; of fewer all, and zeros behind their end.
#[inline]
fn first(bytes: &[u8]) -> [u8; LANES] {
    if let Some(sixteen) = bytes.first_chunk() {
        return *sixteen;
    }
    let (first, last) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => (
            u64::from_le_bytes(*first),
            // Those that the first eight have are shifted out.
            u64::from_le_bytes(*last).unbounded_shr(8 * (LANES - bytes.len()) as u32),
        ),
        _ => (load(bytes), 0),
    };
    (u128::from(first) | u128::from(last) << 64).to_le_bytes()
}
