//! What a token looks like: where its anchors may be, and which parts of it are found without the rest. Those are the
//! parts in which a letter stands beside a digit at least twice, as in keys and hardly elsewhere.

use crate::anchor::load;
use crate::kind::{Block, Kind, Span};

/// Length of a part that is found without the rest.
pub const PART_BYTES: usize = 16;

/// What a token's bytes are; of a longer one the first 64.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    len: usize,
    block: Block,
    /// Where parts begin that are found without the rest, one bit each.
    pub(crate) parts: u64,
    pub(crate) span: Span,
    /// Anchors so that each of those parts has one of them in it.
    pub(crate) cover: u64,
}

impl Shape {
    pub(crate) fn of(token: &[u8]) -> Self {
        let len = token.len().min(Block::BYTES);
        let mut block = Block::default();
        let (mut letters, mut gaps) = (0, 0);
        for nth in 0..len.div_ceil(8) {
            let x = eight(token, nth);
            let by = 8 * nth;
            block.digits |= packed(between(x, b'0', b'9')) << by;
            letters |= packed(between(x | (0x20 * ONES), b'a', b'z')) << by;
            let gap = !between(x, b'!', b'~') & (0x80 * ONES);
            // Hardly a token has any, but in the zeros behind its end.
            if gap != 0 {
                gaps |= packed(gap) << by;
                block.strange |= packed(strange(x)) << by;
            }
        }
        block.strange &= up_to(len.saturating_sub(1));
        let mut parts = 0;
        if len > PART_BYTES && len == token.len() && block.digits != 0 {
            parts = alternating(letters, block.digits, gaps) & up_to(len - PART_BYTES);
        }
        let mut shape = Self {
            len,
            block,
            parts,
            span: Span::of(len),
            cover: 0,
        };
        shape.cover = shape.others(usize::MAX);
        shape
    }

    /// The best place for an anchor, if it is one: the last that is needed for parts.
    #[inline]
    pub(crate) fn pivot(&self) -> u32 {
        self.cover.checked_ilog2().unwrap_or(63)
    }

    /// Where anchors of a kind begin, one bit each.
    #[inline]
    pub(crate) fn anchors(&self, kind: Kind) -> u64 {
        let Some(last) = self.len.checked_sub(self.span.bytes()) else {
            return 0;
        };
        self.block.middles_alone(kind) >> self.span.middle() & up_to(last)
    }

    /// Those that are digits only.
    pub(crate) fn numbers(&self) -> u64 {
        let two = self.block.digits & self.block.digits >> 1;
        let four = two & two >> 2;
        match self.span {
            Span::Long => four & four >> 4,
            Span::Short => four & two >> 4,
        }
    }

    /// Anchors besides the first one, so that each part has one of them in it.
    pub(crate) fn others(&self, first: usize) -> u64 {
        let reach = PART_BYTES - self.span.bytes();
        let mut left = self.parts;
        if left == 0 {
            return 0;
        }
        let mixed = self.anchors(Kind::Mixed);
        let mut others = 0;
        while left != 0 {
            let part = left.trailing_zeros() as usize;
            let mut at = part + reach;
            if (part..=at).contains(&first) {
                at = first;
            } else {
                // The last one that looks like a key.
                let within = (mixed >> part) & up_to(reach);
                if let Some(last) = within.checked_ilog2() {
                    at = part + last as usize;
                }
                others |= 1 << at;
            }
            // Parts that begin later do not hold it.
            left &= !up_to(at);
        }
        others
    }
}

/// The eight bytes of a token that begin at so many times eight; zeros behind its end.
#[inline]
fn eight(token: &[u8], nth: usize) -> u64 {
    let at = 8 * nth;
    let rest = token.get(at..).unwrap_or_default();
    match (rest.first_chunk::<8>(), token.last_chunk::<8>()) {
        (Some(eight), _) => u64::from_le_bytes(*eight),
        (None, Some(last)) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        (None, None) => load(rest),
    }
}

/// Where parts begin in which letters and digits alternate, and which have no gap in them.
fn alternating(letters: u64, digits: u64, gaps: u64) -> u64 {
    // Where a letter stands beside a digit.
    let turns = (letters & digits >> 1) | (digits & letters >> 1);
    // Whether there is one, or are two, in so many bytes from each on: a part has room for fifteen.
    let join = |(one, two): (u64, u64), by: u32, (more_one, more_two): (u64, u64)| {
        let (more_one, more_two) = (more_one >> by, more_two >> by);
        (one | more_one, two | more_two | one & more_one)
    };
    let single = (turns, 0);
    let double = join(single, 1, single);
    let four = join(double, 2, double);
    let eight = join(four, 4, four);
    let twelve = join(eight, 8, four);
    let fourteen = join(twelve, 12, double);
    let (_, parts) = join(fourteen, 14, single);
    let mut holes = gaps | gaps >> 1;
    holes |= holes >> 2;
    holes |= holes >> 4;
    holes |= holes >> 8;
    parts & !holes
}

/// So many bits and one more.
#[inline]
fn up_to(bit: usize) -> u64 {
    u64::MAX >> (63 - bit.min(63))
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The upper bit of each of eight bytes that is between two of ASCII.
#[inline]
fn between(x: u64, first: u8, last: u8) -> u64 {
    let low = x & (0x7f * ONES);
    let from = low + u64::from(0x80 - first) * ONES;
    let beyond = low + u64::from(0x7f - last) * ONES;
    from & !beyond & !x & (0x80 * ONES)
}

/// As [`Block`] has it.
#[inline]
fn strange(x: u64) -> u64 {
    !(between(x, b' ', b'~') | between(x, b'\n', b'\n')) & (0x80 * ONES)
}

/// The upper bits of eight bytes, the first one lowest.
#[inline]
fn packed(bits: u64) -> u64 {
    (bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}
