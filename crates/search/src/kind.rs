//! What stands in the middle of an anchor decides which filter knows it, so that a search asks each filter only where
//! one of its anchors can be: prose has hardly a place for keys, and noise hardly one for words.

use crate::lanes::{LANES, Lanes};

/// Every fourth place of a block.
pub(crate) const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;

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

    /// Where four bytes begin that make such an anchor; `next` is the block behind it.
    #[inline]
    pub(crate) fn middles(self, next: Self, kind: Kind) -> u128 {
        let any = |here: u64, next: u64| {
            let bits = u128::from(here) | u128::from(next) << 64;
            let two = bits | bits >> 1;
            two | two >> 2
        };
        match kind {
            Kind::Other => any(self.strange, next.strange),
            Kind::Mixed => any(self.digits, next.digits) & !any(self.strange, next.strange),
            Kind::Words => !any(self.digits | self.strange, next.digits | next.strange),
        }
    }

    /// The same with nothing behind the block.
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

    /// Those of the places of a block that are probed where a window of such an anchor may begin; perhaps a few
    /// more.
    #[inline]
    pub(crate) fn places(self, next: Self, kind: Kind, span: Span) -> u64 {
        let all = match span {
            Span::Long => EVERY_FOURTH,
            Span::Short => 0x5555_5555_5555_5555,
        };
        let none = match kind {
            Kind::Mixed => self.digits == 0 && next.digits == 0,
            Kind::Other => self.strange == 0 && next.strange == 0,
            Kind::Words => false,
        };
        if none {
            return 0;
        }
        if kind == Kind::Words && self.digits == 0 && self.strange == 0 {
            return all;
        }
        // The first window begins furthest before the middle, the last one with it.
        let middles = self.middles(next, kind);
        let mut places = middles | middles >> 1;
        if span == Span::Long {
            places |= places >> 2;
        }
        places as u64 & all
    }
}
