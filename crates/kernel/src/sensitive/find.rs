//! The search for tokens as they are, in bytes that are all there.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::index::{ANCHOR, Table, folded, load};
use super::tokens::{Chunk, in_chunks};

/// Tokens of this length are found in any case; shorter ones only in names, where case says nothing.
const ANY_CASE_BYTES_MIN: usize = 8;
/// Places that the filter lets through are looked at in groups, whose memory accesses overlap.
const GROUP: usize = 64;

/// What a search knows: the tokens up to a number.
#[derive(Clone, Default)]
pub(super) struct Finder {
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) chunks: Arc<Vec<Arc<Chunk>>>,
    /// Numbers below this one.
    pub(super) known: u32,
}

/// A token in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) number: u32,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Finder {
    pub(super) fn is_empty(&self) -> bool {
        self.known == 0
    }

    /// Tells every token in the text, some more than once; names have no case.
    pub(super) fn find(&self, text: &[u8], name: bool, tell: &mut dyn FnMut(Found)) {
        for table in &self.tables {
            self.find_by(table, text, name, tell);
        }
    }

    fn find_by(&self, table: &Table, text: &[u8], name: bool, tell: &mut dyn FnMut(Found)) {
        let mut group = [0; GROUP];
        let mut held = 0;
        let mut at = 0;
        while let Some(bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<20>()) {
            // Four loads, two places in each.
            for (offset, x) in [
                (0, eight::<0>(bytes)),
                (4, eight::<4>(bytes)),
                (8, eight::<8>(bytes)),
                (12, eight::<12>(bytes)),
            ] {
                for (offset, x) in [(offset, x), (offset + 2, x >> 16)] {
                    if table.may(x)
                        && let Some(slot) = group.get_mut(held)
                    {
                        *slot = at + offset;
                        held += 1;
                    }
                }
            }
            at += 16;
            if held > GROUP - 8 {
                self.verify(
                    table,
                    text,
                    name,
                    group.get(..held).unwrap_or_default(),
                    tell,
                );
                held = 0;
            }
        }
        self.verify(
            table,
            text,
            name,
            group.get(..held).unwrap_or_default(),
            tell,
        );
        while at + ANCHOR <= text.len() + 1 {
            if table.may(load(text.get(at..).unwrap_or_default())) {
                self.verify(table, text, name, &[at], tell);
            }
            at += 2;
        }
    }

    #[inline(never)]
    fn verify(
        &self,
        table: &Table,
        text: &[u8],
        name: bool,
        places: &[usize],
        tell: &mut dyn FnMut(Found),
    ) {
        for place in places {
            // The place has one half of an anchor; the other is one byte later, or one byte before.
            let other = |at: usize| load(text.get(at..).unwrap_or_default());
            if table.may(other(place + 1)) {
                self.at(table, text, name, *place, tell);
            }
            if let Some(before) = place.checked_sub(1)
                && table.may(other(before))
            {
                self.at(table, text, name, before, tell);
            }
        }
    }

    /// Tells the tokens whose anchor is at `at`.
    fn at(&self, table: &Table, text: &[u8], name: bool, at: usize, tell: &mut dyn FnMut(Found)) {
        let x = load(text.get(at..).unwrap_or_default());
        for number in table.candidates(x) {
            if number < self.known {
                self.compare(text, name, at, number, folded(x), tell);
            }
        }
    }

    /// Whether a token stands in the text so that its anchor is at `at`.
    fn compare(
        &self,
        text: &[u8],
        name: bool,
        at: usize,
        number: u32,
        anchor: u64,
        tell: &mut dyn FnMut(Found),
    ) {
        let Some(token) = in_chunks(&self.chunks, number) else {
            return;
        };
        for (offset, window) in token.windows(ANCHOR).enumerate() {
            if folded(load(window)) != anchor {
                continue;
            }
            let Some(start) = at.checked_sub(offset) else {
                return;
            };
            let end = start + token.len();
            let same = text.get(start..end).is_some_and(|there| {
                there == token
                    || ((name || token.len() >= ANY_CASE_BYTES_MIN)
                        && there.eq_ignore_ascii_case(token))
            });
            if same {
                tell(Found { number, start, end });
                return;
            }
        }
    }
}

/// Eight of twenty bytes as one number.
#[inline(always)]
fn eight<const FROM: usize>(bytes: &[u8; 20]) -> u64 {
    bytes
        .get(FROM..)
        .and_then(|rest| rest.first_chunk::<8>())
        .map_or(0, |eight| u64::from_le_bytes(*eight))
}
