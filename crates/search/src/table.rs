//! One filter with its table. They only grow and are read without a lock.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::anchor::{Anchor, FOLD};
use crate::kind::{Kind, Span};
use crate::near;
use crate::part::Shape;
use crate::tokens::Tokens;

/// So many tokens share an anchor; the next ones take another of theirs.
const SHARE_MAX: usize = 8;
/// Bits of an entry that are a token's number; the rest of it tells strangers apart.
const NUMBER_BITS: u32 = 25;
/// Anchors of one table.
pub(crate) const ROOM_MAX: usize = 1 << NUMBER_BITS;
/// Anchors for each 64 bits of a filter, at most; half as many after it has grown.
const FILTER: usize = 2;

/// One filter with its table.
pub(crate) struct Table {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// The number from which entries count.
    pub(crate) base: u32,
    /// Anchors it is made for.
    pub(crate) room: usize,
    /// Bits that are cleared, four for each window of an anchor; a power of two of words.
    pub(crate) filter: Vec<AtomicU64>,
    /// 0, or some bits of the anchor's hash above the token's number from 1.
    pub(crate) entries: Vec<AtomicU32>,
}

/// The filter of a table.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'a>(&'a [AtomicU64]);

/// Where a token belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) anchor: Anchor,
    pub(crate) at: usize,
    pub(crate) entry: u32,
    /// Whether as many as may share this anchor.
    pub(crate) crowded: bool,
}

/// What there is for one more anchor of a token.
pub(crate) enum Another {
    Free(Place),
    /// The token is there already, by this anchor or by one that looks the same.
    Same,
    /// Many have it in common: what many tokens begin with is no secret of one.
    Shared,
}

impl Place {
    pub(crate) fn none(anchor: Anchor) -> Self {
        Self {
            anchor,
            at: usize::MAX,
            entry: 0,
            crowded: true,
        }
    }
}

impl Table {
    pub(crate) fn new(kind: Kind, span: Span, base: u32, room: usize) -> Self {
        Self {
            kind,
            span,
            base,
            room,
            filter: (0..(room / FILTER).next_power_of_two())
                .map(|_| AtomicU64::new(u64::MAX))
                .collect(),
            entries: (0..room + room / 2 + 8)
                .map(|_| AtomicU32::new(0))
                .collect(),
        }
    }

    pub(crate) fn filter(&self) -> Filter<'_> {
        Filter(&self.filter)
    }

    /// The numbers of the tokens that may have such an anchor.
    pub(crate) fn candidates(&self, anchor: u64) -> impl Iterator<Item = u32> + '_ {
        let hash = whole(anchor);
        let mut at = within(hash, self.entries.len());
        core::iter::from_fn(move || {
            let entry = self.entry(at);
            at = self.next(at);
            (entry != 0).then_some(entry)
        })
        .filter(move |entry| entry >> NUMBER_BITS == tag(hash))
        .map(|entry| self.number(entry))
    }

    #[inline]
    fn entry(&self, at: usize) -> u32 {
        self.entries.get(at).map_or(0, |entry| entry.load(Relaxed))
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() {
            0
        } else {
            at + 1
        }
    }

    pub(crate) fn number(&self, entry: u32) -> u32 {
        self.base + (entry & (ROOM_MAX as u32 - 1)) - 1
    }

    /// Only the one who owns the index adds, so nothing is lost between reading and writing.
    pub(crate) fn add(&self, place: Place, number: u32) {
        if let Some(slot) = self.entries.get(place.at) {
            slot.store(place.entry | (number - self.base + 1), Relaxed);
        }
    }

    /// Gives windows to the filter.
    pub(crate) fn fill(&self, waiting: &mut Vec<u32>) {
        for hash in waiting.drain(..) {
            let (at, mask) = self.filter().bits(hash);
            if let Some(word) = self.filter.get(at) {
                word.store(word.load(Relaxed) & !mask, Relaxed);
            }
        }
    }

    /// The free place for an anchor; or the number, among those that may share it, at which `stop` says so.
    #[inline]
    fn walk(&self, hash: u64, mut stop: impl FnMut(u32) -> bool) -> Result<usize, u32> {
        let mut at = within(hash, self.entries.len());
        loop {
            let entry = self.entry(at);
            if entry == 0 {
                return Ok(at);
            }
            if entry >> NUMBER_BITS == tag(hash) && stop(self.number(entry)) {
                return Err(self.number(entry));
            }
            at = self.next(at);
        }
    }

    /// Where an anchor of a token that has one already belongs.
    pub(crate) fn another(&self, anchor: Anchor, number: u32) -> Another {
        let hash = whole(anchor.bytes);
        let mut shared = 0;
        let free = self.walk(hash, |other| {
            shared += 1;
            shared >= SHARE_MAX || other == number
        });
        match free {
            Ok(at) => Another::Free(Place {
                anchor,
                at,
                entry: tag(hash) << NUMBER_BITS,
                crowded: false,
            }),
            Err(other) if other == number => Another::Same,
            Err(_) => Another::Shared,
        }
    }

    /// The number of a token, or where it belongs: at its best anchor of this kind, or at the next one that is
    /// not shared by many.
    pub(crate) fn place(
        &self,
        tokens: &Tokens,
        bytes: &[u8],
        shape: &Shape,
        best: Anchor,
    ) -> Result<u32, Place> {
        let mut next = Some(best);
        let mut crowded: Option<Place> = None;
        while let Some(anchor) = next {
            let place = match self.place_by(tokens, bytes, anchor) {
                Err(place) if place.crowded => place,
                found => return found,
            };
            crowded.get_or_insert(place);
            next = shape.anchor_after(bytes, self.kind, Some(anchor.score));
        }
        // All its anchors are shared by many: one more shares the first.
        Err(crowded.unwrap_or(Place::none(best)))
    }

    /// The number of a token, or where it belongs by this anchor of it.
    #[inline]
    pub(crate) fn place_by(
        &self,
        tokens: &Tokens,
        bytes: &[u8],
        anchor: Anchor,
    ) -> Result<u32, Place> {
        let hash = whole(anchor.bytes);
        let mut shared = 0;
        let at = self.walk(hash, |number| {
            shared += 1;
            tokens.get(number) == Some(bytes)
        });
        Err(Place {
            anchor,
            at: match at {
                Ok(at) => at,
                Err(number) => return Ok(number),
            },
            entry: tag(hash) << NUMBER_BITS,
            crowded: shared >= SHARE_MAX,
        })
    }

    /// The search for an anchor will begin soon.
    #[inline]
    pub(crate) fn fetch(&self, anchor: u64) {
        near::fetch(&self.entries, within(whole(anchor), self.entries.len()));
    }

    pub(crate) fn copy(&self) -> Self {
        Self {
            kind: self.kind,
            span: self.span,
            base: self.base,
            room: self.room,
            filter: self
                .filter
                .iter()
                .map(|word| AtomicU64::new(word.load(Relaxed)))
                .collect(),
            entries: self
                .entries
                .iter()
                .map(|entry| AtomicU32::new(entry.load(Relaxed)))
                .collect(),
        }
    }
}

impl Filter<'_> {
    /// Whether a window of an anchor may be the first bytes of `x`.
    #[inline(always)]
    pub(crate) fn may(self, x: u64) -> bool {
        let (at, mask) = self.bits(Self::hash(x));
        self.0
            .get(at)
            .is_some_and(|word| word.load(Relaxed) & mask == 0)
    }

    /// The window of a hash will be needed soon.
    #[inline]
    pub(crate) fn fetch(self, hash: u32) {
        near::fetch(self.0, self.bits(hash).0);
    }

    /// The hash of a window.
    #[inline(always)]
    pub(crate) fn hash(x: u64) -> u32 {
        (((x & FOLD) & 0xff_ffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// The word of the filter and its bits for a window.
    #[inline(always)]
    fn bits(self, hash: u32) -> (usize, u64) {
        let mask = MASKS
            .get(usize::from(hash as u8))
            .copied()
            .unwrap_or(u64::MAX);
        ((hash >> 8) as usize & self.0.len().wrapping_sub(1), mask)
    }
}

#[inline]
pub(crate) fn whole(anchor: u64) -> u64 {
    let x = anchor.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x ^ x >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

fn tag(hash: u64) -> u32 {
    (hash as u32) >> NUMBER_BITS
}

/// A place out of `room` by the upper half of a hash.
#[inline(always)]
fn within(hash: u64, room: usize) -> usize {
    (((hash >> 32).wrapping_mul(room as u64)) >> 32) as usize
}

/// Four bits of a word of the filter.
static MASKS: [u64; 256] = masks();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would not accept a wrong index"
)]
const fn masks() -> [u64; 256] {
    let mut masks = [0; 256];
    let mut state: u64 = 0x2545_f491_4f6c_dd1d;
    let mut at = 0;
    while at < masks.len() {
        let mut mask: u64 = 0;
        while mask.count_ones() < 4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            mask |= 1 << (state >> 58);
        }
        masks[at] = mask;
        at += 1;
    }
    masks
}
