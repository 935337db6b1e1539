//! What stands in the middle of an anchor decides which filter knows it, so that a search asks each filter only where
//! one of its anchors can be: prose has hardly a place for keys, and noise hardly one for words.

use crate::lanes::{LANES, Lanes};

/// Every fourth place of a block.
pub(crate) const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;
/// Every second one.
const EVERY_SECOND: u64 = 0x5555_5555_5555_5555;

/// What four bytes in an anchor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Printable, a digit among them.
    Mixed,
    /// Not all of them printable.
    Other,
    /// Printable, without a digit.
    Words,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Mixed, Self::Other, Self::Words];
}

/// How long an anchor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Eight bytes: four windows, so that every fourth place of a text is probed.
    Long,
    /// Six bytes, of tokens that have no more than seven: two windows.
    Short,
}

impl Span {
    /// Bytes of a window, of which the filter knows all that an anchor has.
    pub(crate) const WINDOW: usize = 5;

    /// That of a token's anchors.
    pub(crate) fn of(token: usize) -> Self {
        if token >= Self::Long.bytes() {
            Self::Long
        } else {
            Self::Short
        }
    }

    pub(crate) fn bytes(self) -> usize {
        Self::WINDOW - 1 + self.windows()
    }

    /// Windows of an anchor, and bytes from one place that is probed to the next.
    #[inline]
    pub(crate) fn windows(self) -> usize {
        match self {
            Self::Long => 4,
            Self::Short => 2,
        }
    }

    /// Where the bytes are that make the kind.
    pub(crate) fn middle(self) -> usize {
        self.windows() - 1
    }

    /// What counts of eight bytes.
    #[inline]
    pub(crate) fn mask(self) -> u64 {
        match self {
            Self::Long => u64::MAX,
            Self::Short => 0xffff_ffff_ffff,
        }
    }
}

/// What up to 64 bytes are, one bit each; what is beyond their end is nothing of it all.
#[derive(Clone, Copy, Default)]
pub(crate) struct Block {
    /// Not printable; the end of a line counts as printable.
    pub(crate) strange: u64,
    /// From 0 to 9.
    pub(crate) digits: u64,
}

impl Block {
    pub(crate) const BYTES: usize = 64;

    #[inline]
    pub(crate) fn of(bytes: &[u8; Self::BYTES]) -> Self {
        let sixteens = bytes.as_chunks::<LANES>().0.iter().enumerate();
        sixteens.fold(Self::default(), |block, (nth, sixteen)| {
            let lanes = Lanes::of(*sixteen);
            Self {
                strange: block.strange | lanes.strange() << (nth * LANES),
                digits: block.digits | lanes.digits() << (nth * LANES),
            }
        })
    }

    /// Where four bytes begin that have some of each in them; `next` is the block behind it. What is said of the last
    /// three places is right only where the block behind was looked at, too.
    #[inline(always)]
    pub(crate) fn fours(self, next: Self) -> Self {
        Self {
            strange: smeared(self.strange, next.strange, 4),
            digits: smeared(self.digits, next.digits, 4),
        }
    }

    /// Where four bytes begin that make such an anchor, by the block's [`Block::fours`].
    #[inline(always)]
    fn middles(self, kind: Kind) -> u64 {
        match kind {
            Kind::Other => self.strange,
            Kind::Mixed => self.digits & !self.strange,
            Kind::Words => !(self.digits | self.strange),
        }
    }

    /// Where four bytes begin that make such an anchor, with nothing behind the block.
    #[inline]
    pub(crate) fn middles_alone(self, kind: Kind) -> u64 {
        let any = |bits: u64| {
            let two = bits | bits >> 1;
            two | two >> 2
        };
        match kind {
            Kind::Other => any(self.strange),
            Kind::Mixed => any(self.digits) & !any(self.strange),
            Kind::Words => !any(self.digits | self.strange),
        }
    }

    /// Those of the places of a block that are probed where a window of such an anchor may begin, by the
    /// [`Block::fours`] of the block and of the one behind it.
    #[inline(always)]
    pub(crate) fn places(self, next: Self, kind: Kind, span: Span) -> u64 {
        let (here, next) = (self.middles(kind), next.middles(kind));
        // The first window begins furthest before the middle, the last one with it.
        match span {
            Span::Long => smeared(here, next, 4) & EVERY_FOURTH,
            Span::Short => smeared(here, next, 2) & EVERY_SECOND,
        }
    }
}

/// Where a stretch of two or four begins that has a set bit in it.
#[inline(always)]
fn smeared(here: u64, next: u64, of: usize) -> u64 {
    let two = here | here >> 1 | next << 63;
    if of == 2 {
        return two;
    }
    let next = next | next >> 1;
    two | two >> 2 | next << 62
}
