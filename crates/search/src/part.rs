//! What a token looks like: where its anchors may be, and which parts of it are found without the rest. Those are the
//! parts in which a letter stands beside a digit at least twice, as in keys and hardly elsewhere.

use crate::kind::{Block, Kind, Span};
use crate::lanes::{LANES, Lanes};

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
        let bytes = token.get(..len).unwrap_or(token);
        let mut block = Block::default();
        let (mut letters, mut marks) = (0, 0);
        let mut look = |lanes: Lanes, at: usize| {
            block.digits |= lanes.digits() << at;
            letters |= lanes.letters() << at;
            let here = lanes.marks();
            marks |= here << at;
            // Hardly a token has any of the others.
            if here != 0xffff {
                block.strange |= lanes.strange() << at;
            }
        };
        match bytes.last_chunk::<LANES>() {
            Some(last) => {
                for (nth, sixteen) in bytes.as_chunks::<LANES>().0.iter().enumerate() {
                    look(Lanes::of(*sixteen), nth * LANES);
                }
                // What was seen already is the same.
                if !len.is_multiple_of(LANES) {
                    look(Lanes::of(*last), len - LANES);
                }
            }
            None => look(Lanes::first(bytes), 0),
        }
        let gaps = !marks & up_to(len.saturating_sub(1));
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
