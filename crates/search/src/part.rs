//! What a token looks like: where its anchors may be, and which parts of it are found without the rest. Those are the
//! parts in which a letter stands beside a digit at least twice, as in keys and hardly elsewhere.

use crate::index::load;
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
}

impl Shape {
    pub(crate) fn of(token: &[u8]) -> Self {
        let len = token.len().min(Block::BYTES);
        let eights = || token.chunks(8).take(8).map(load).enumerate();
        let mut block = Block::default();
        for (at, x) in eights() {
            block.strange |= packed(strange(x)) << (8 * at);
            block.digits |= packed(between(x, b'0', b'9')) << (8 * at);
        }
        block.strange &= up_to(len.saturating_sub(1));
        let mut parts = 0;
        if len > PART_BYTES && len == token.len() && block.digits != 0 {
            let (mut letters, mut gaps) = (0, block.strange);
            for (at, x) in eights() {
                letters |= packed(between(x | (0x20 * ONES), b'a', b'z')) << (8 * at);
                gaps |= packed(between(x, b' ', b' ') | between(x, b'\n', b'\n')) << (8 * at);
            }
            parts = alternating(letters, block.digits, gaps) & up_to(len - PART_BYTES);
        }
        Self {
            len,
            block,
            parts,
            span: Span::of(len),
        }
    }

    /// Where anchors of a kind begin, one bit each.
    #[inline]
    pub(crate) fn anchors(&self, kind: Kind) -> u64 {
        let Some(last) = self.len.checked_sub(self.span.bytes()) else {
            return 0;
        };
        let middles = self.block.middles(Block::default(), kind);
        (middles >> self.span.middle()) as u64 & up_to(last)
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

/// Where parts begin in which letters and digits alternate, and which have no gap in them.
fn alternating(letters: u64, digits: u64, gaps: u64) -> u64 {
    // Where a letter stands beside a digit.
    let mut turns = (letters & digits >> 1) | (digits & letters >> 1);
    let mut parts = 0;
    while turns != 0 {
        // The parts that hold this turn and the next one.
        let one = turns.trailing_zeros() as usize;
        turns &= turns - 1;
        if turns == 0 {
            break;
        }
        let next = turns.trailing_zeros() as usize;
        let first = (next + 2).saturating_sub(PART_BYTES);
        if first <= one {
            parts |= up_to(one) & !up_to(first).wrapping_shr(1);
        }
    }
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
