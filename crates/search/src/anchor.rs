//! The bytes by which a token is known, and which of them are best.

use crate::kind::{Kind, Span};
use crate::part::Shape;

/// ASCII letters lose their case; what else falls together costs a comparison, no more.
pub(crate) const FOLD: u64 = 0xdfdf_dfdf_dfdf_dfdf;

/// Six or eight bytes of a token.
#[derive(Clone, Copy)]
pub(crate) struct Anchor {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// Lower is better.
    pub(crate) score: u64,
    pub(crate) bytes: u64,
    /// Where in the token.
    pub(crate) at: usize,
}

/// What a token is known by, before it is known what others are.
#[derive(Clone, Copy)]
pub(crate) struct Anchors {
    pub(crate) shape: Shape,
    pub(crate) best: Anchor,
    /// Where those of its parts begin, one bit each.
    others: u64,
    /// Where a key's anchors may begin.
    mixed: u64,
}

impl Anchors {
    /// None for what is shorter than an anchor.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let shape = Shape::of(bytes);
        let pivot = shape.pivot();
        let mixed = shape.anchors(Kind::Mixed);
        // Of most keys.
        if (mixed & !shape.numbers()) >> pivot & 1 != 0 {
            return Some(Self {
                shape,
                best: Anchor::new(bytes, pivot as usize, Kind::Mixed, shape.span),
                others: shape.cover & !(1 << pivot),
                mixed,
            });
        }
        let mut kinds = [Kind::Mixed, Kind::Other, Kind::Words].into_iter();
        let best = kinds.find_map(|kind| shape.anchor_after(bytes, kind, None))?;
        Some(Self {
            shape,
            best,
            others: match best.at == pivot as usize {
                true => shape.cover & !(1 << best.at),
                false => shape.others(best.at),
            },
            mixed,
        })
    }

    /// Those of the token's parts, when its first one is at `first`.
    pub(crate) fn others(&self, bytes: &[u8], first: usize) -> impl Iterator<Item = Anchor> {
        let mut left = match first == self.best.at {
            true => self.others,
            false => self.shape.others(first),
        };
        core::iter::from_fn(move || {
            let at = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            let kind = match 1 << at {
                bit if self.mixed & bit != 0 => Kind::Mixed,
                bit if self.shape.anchors(Kind::Other) & bit != 0 => Kind::Other,
                _ => Kind::Words,
            };
            Some(Anchor::new(bytes, at as usize, kind, self.shape.span))
        })
    }
}

impl Anchor {
    pub(crate) fn new(token: &[u8], at: usize, kind: Kind, span: Span) -> Self {
        Self {
            kind,
            span,
            score: 0,
            bytes: folded(load(token.get(at..).unwrap_or_default()), span),
            at,
        }
    }
}

impl Shape {
    /// A token's best anchor of a kind after the one with the given score. Numbers come after what has something
    /// else in it; of words no place is better than another, but common endings are many.
    #[inline]
    pub(crate) fn anchor_after(
        &self,
        token: &[u8],
        kind: Kind,
        after: Option<u64>,
    ) -> Option<Anchor> {
        let mut left = self.anchors(kind);
        if kind == Kind::Words {
            let mut best: Option<Anchor> = None;
            while left != 0 {
                let at = left.trailing_zeros() as usize;
                left &= left - 1;
                let mut anchor = Anchor::new(token, at, kind, self.span);
                // Not the table's hash: the smallest of those would all fall into one corner of it.
                anchor.score = anchor.bytes.wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 1;
                if after.is_none_or(|after| anchor.score > after)
                    && best.is_none_or(|best| anchor.score < best.score)
                {
                    best = Some(anchor);
                }
            }
            return best;
        }
        let numbers = match kind {
            Kind::Mixed => self.numbers(),
            _ => 0,
        };
        // The last ones up to the pivot score lowest, then those behind it; those of digits only above all others.
        let turn = 63 - self.pivot();
        for (rank, left) in [left & !numbers, left & numbers].into_iter().enumerate() {
            let mut left = left.rotate_left(turn);
            if let Some(after) = after {
                let below = match after.checked_sub(64 * rank as u64) {
                    Some(after @ 0..64) => u64::MAX.checked_shr(after as u32 + 1).unwrap_or(0),
                    Some(_) => 0,
                    None => u64::MAX,
                };
                left &= below;
            }
            if let Some(turned) = left.checked_ilog2() {
                let score = u64::from(63 - turned) + 64 * rank as u64;
                let at = turned.wrapping_sub(turn) % 64;
                let anchor = Anchor::new(token, at as usize, kind, self.span);
                return Some(Anchor { score, ..anchor });
            }
        }
        None
    }
}

/// Eight bytes of a text as one number, the first byte lowest; zeros where it ends.
#[inline]
pub(crate) fn load(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes
            .iter()
            .rev()
            .fold(0, |x, byte| x << 8 | u64::from(*byte)),
    }
}

/// What counts of an anchor's bytes.
#[inline]
pub(crate) fn folded(x: u64, span: Span) -> u64 {
    x & FOLD & span.mask()
}
