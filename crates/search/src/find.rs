//! The search for tokens as they are, in bytes that are all there.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::anchor::{folded, load};
use crate::kind::{Block, EVERY_FOURTH, Span};
use crate::part::{PART_BYTES, Shape};
use crate::table::Table;
use crate::tokens::{Chunk, in_chunks};

/// Tokens of this length are found in any case; shorter ones only in names, where case says nothing.
const ANY_CASE_BYTES_MIN: usize = 8;
/// Places that the filter lets through are looked at in groups, whose memory accesses overlap.
const GROUP: usize = 64;
/// Blocks that are looked at for one table after the other.
const STRIP: usize = 64;
/// Bytes behind a block that its last places reach into.
const AHEAD: usize = 8;
/// From so many places of a block on, all are probed.
const DENSE: u32 = 10;

/// A search for the tokens up to a number. Cheap to make and to clone.
#[derive(Clone, Default)]
pub struct Finder {
    tables: Vec<Arc<Table>>,
    chunks: Arc<Vec<Arc<Chunk>>>,
    /// Numbers below this one.
    known: u32,
}

/// A token in a text, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The token's number.
    pub number: u32,
    /// Where it begins in the text.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Finder({} tokens)", self.known)
    }
}

impl Finder {
    pub(crate) fn new(tables: Vec<Arc<Table>>, chunks: Arc<Vec<Arc<Chunk>>>, known: u32) -> Self {
        Self {
            tables,
            chunks,
            known,
        }
    }

    /// How many tokens it knows.
    pub fn known(&self) -> u32 {
        self.known
    }

    /// Whether there is nothing to be found.
    pub fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Tells every token in the text, some more than once; names have no case.
    pub fn find(&self, text: &[u8], name: bool, tell: &mut dyn FnMut(Found)) {
        if self.tables.is_empty() {
            return;
        }
        let look = Look {
            finder: self,
            text,
            name,
        };
        let mut kinds = [Block::default(); STRIP + 1];
        let mut at = 0;
        loop {
            let blocks = text.len().saturating_sub(at + AHEAD) / Block::BYTES;
            let blocks = blocks.min(STRIP);
            if blocks == 0 {
                break;
            }
            let bytes = text.get(at..).unwrap_or_default();
            for (nth, kind) in kinds.iter_mut().take(blocks + 1).enumerate() {
                *kind = block(bytes.get(nth * Block::BYTES..).unwrap_or_default());
            }
            for nth in 0..=blocks {
                let next = kinds.get(nth + 1).copied().filter(|_| nth < blocks);
                if let Some(here) = kinds.get_mut(nth) {
                    *here = here.fours(next.unwrap_or_default());
                }
            }
            for table in &self.tables {
                look.strip(table, at, kinds.get(..=blocks).unwrap_or_default(), tell);
            }
            at += blocks * Block::BYTES;
        }
        for table in &self.tables {
            look.rest(table, at, tell);
        }
    }
}

/// One text.
struct Look<'a> {
    finder: &'a Finder,
    text: &'a [u8],
    name: bool,
}

impl Look<'_> {
    /// Looks at all blocks but the last, which is what comes behind them; each by its [`Block::fours`].
    #[inline(never)]
    fn strip(&self, table: &Table, at: usize, kinds: &[Block], tell: &mut dyn FnMut(Found)) {
        let filter = table.filter();
        let mut group = [0; GROUP];
        let mut held = 0;
        for (nth, pair) in kinds.windows(2).enumerate() {
            let [here, next] = pair else {
                continue;
            };
            let mut places = here.places(*next, table.kind, table.span);
            if places == 0 {
                continue;
            }
            let start = at + nth * Block::BYTES;
            let Some(bytes) = self.text.get(start..).and_then(|rest| rest.first_chunk()) else {
                continue;
            };
            // Without a branch on what memory says: the next places do not wait for it.
            let mut probe = |at: usize| {
                if let Some(slot) = group.get_mut(held % GROUP) {
                    *slot = start + at;
                }
                held += usize::from(filter.may(eight(bytes, at)));
            };
            if places == EVERY_FOURTH || (table.span == Span::Long && places.count_ones() >= DENSE)
            {
                for at in 0..Block::BYTES / 4 {
                    probe(at * 4);
                }
            } else {
                while places != 0 {
                    probe(places.trailing_zeros() as usize);
                    places &= places - 1;
                }
            }
            // A block has up to 32 places.
            if held >= GROUP / 2 {
                self.verify(table, group.get(..held).unwrap_or_default(), tell);
                held = 0;
            }
        }
        if held > 0 {
            self.verify(table, group.get(..held).unwrap_or_default(), tell);
        }
    }

    /// Looks at what is left of the text behind the last whole block.
    fn rest(&self, table: &Table, mut at: usize, tell: &mut dyn FnMut(Found)) {
        let filter = table.filter();
        while at + Span::WINDOW <= self.text.len() {
            if filter.may(load(self.text.get(at..).unwrap_or_default())) {
                self.verify(table, &[at], tell);
            }
            at += table.span.windows();
        }
    }

    #[inline(never)]
    fn verify(&self, table: &Table, places: &[usize], tell: &mut dyn FnMut(Found)) {
        let filter = table.filter();
        let windows = table.span.windows();
        let may = |at: usize| filter.may(load(self.text.get(at..).unwrap_or_default()));
        for place in places {
            // One window of an anchor is here; the others stand before it or behind it.
            let behind = (1..windows).take_while(|by| may(place + by)).count();
            let before = (1..windows).take_while(|by| place.checked_sub(*by).is_some_and(may));
            let before = before.count();
            for nth in windows..=before + 1 + behind {
                self.at(table, place + nth - windows - before, tell);
            }
        }
    }

    /// Tells the tokens whose anchor is at `at`.
    fn at(&self, table: &Table, at: usize, tell: &mut dyn FnMut(Found)) {
        let x = load(self.text.get(at..).unwrap_or_default());
        let anchor = folded(x, table.span);
        for number in table.candidates(anchor) {
            if number < self.finder.known {
                self.compare(at, number, (anchor, table.span), tell);
            }
        }
    }

    /// Whether a token, or a part of it, stands in the text so that its anchor is at `at`.
    fn compare(
        &self,
        at: usize,
        number: u32,
        (anchor, span): (u64, Span),
        tell: &mut dyn FnMut(Found),
    ) {
        let Some(token) = in_chunks(&self.finder.chunks, number) else {
            return;
        };
        let mut parts_of = None;
        for offset in 0..=token.len().saturating_sub(span.bytes()) {
            if folded(load(token.get(offset..).unwrap_or_default()), span) != anchor {
                continue;
            }
            if let Some(start) = at.checked_sub(offset)
                && let Some(there) = self.text.get(start..start + token.len())
                && (there == token
                    || ((self.name || token.len() >= ANY_CASE_BYTES_MIN)
                        && there.eq_ignore_ascii_case(token)))
            {
                let end = start + token.len();
                tell(Found { number, start, end });
                return;
            }
            let parts = *parts_of.get_or_insert_with(|| Shape::of(token).parts);
            if parts != 0
                && let Some((start, end)) = self.part(token, parts, at, offset)
            {
                tell(Found { number, start, end });
                return;
            }
        }
    }

    /// Where the text has what stands around an offset of a token, when it is as much as a part of it.
    fn part(&self, token: &[u8], parts: u64, at: usize, offset: usize) -> Option<(usize, usize)> {
        let same = |(a, b): &(&u8, &u8)| a.eq_ignore_ascii_case(b);
        let (before, after) = token.split_at_checked(offset)?;
        let (text_before, text_after) = self.text.split_at_checked(at)?;
        let left = text_before.iter().rev().zip(before.iter().rev());
        let left = left.take_while(same).count();
        let right = text_after.iter().zip(after).take_while(same).count();
        let begins = (offset + right).checked_sub(PART_BYTES)?;
        let first = offset - left;
        // A part that begins where the same bytes begin, or later, and ends before they do.
        let within = parts >> first;
        let len = begins.checked_sub(first)? as u32 + 1;
        let within = within & u64::MAX.checked_shl(len).map_or(u64::MAX, |above| !above);
        (within != 0).then_some((at - left, at + right))
    }
}

/// What a block is that may be cut short.
fn block(bytes: &[u8]) -> Block {
    if let Some(block) = bytes.first_chunk() {
        return Block::of(block);
    }
    let mut block = [0; Block::BYTES];
    for (to, byte) in block.iter_mut().zip(bytes) {
        *to = *byte;
    }
    Block::of(&block)
}

/// Eight bytes of a block as one number.
#[inline(always)]
fn eight(bytes: &[u8; Block::BYTES + AHEAD], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<8>())
        .map_or(0, |eight| u64::from_le_bytes(*eight))
}
