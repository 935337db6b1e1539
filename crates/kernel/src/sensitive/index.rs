//! Which token may stand where: a filter that says no for nearly every place of a text, and a table that
//! names the tokens of the others. Both only ever grow and are read without a lock, so a search made
//! earlier goes on with what it knew while new tokens come in.
//!
//! A token is known by one *anchor*: six consecutive bytes of it, without regard to case. Which six is
//! decided by the token alone (the least common looking ones), so it is found again in the same way. The
//! filter holds both five-byte halves of each anchor; a search therefore probes every second place only.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::tokens::Tokens;

/// Bytes of an anchor, and of the shortest token.
pub(super) const ANCHOR: usize = 6;
/// So many tokens share an anchor; the next ones take another of theirs.
const SHARE_MAX: usize = 8;
/// Tokens of one table: their number has 24 bits, the rest of an entry tells strangers apart.
const TABLE_TOKENS_MAX: usize = 1 << 23;
/// Tokens of the first table.
const TABLE_TOKENS_MIN: usize = 64;
/// Tokens that move from a full table to the next one with each token that comes.
const MOVES: u32 = 16;
/// ASCII letters lose their case; what else falls together costs a comparison, no more.
const FOLD: u64 = 0xdfdf_dfdf_dfdf_dfdf;

/// The filters and tables. What is old is kept until all of it is in the newest.
#[derive(Default)]
pub(super) struct Index {
    tables: Vec<Arc<Table>>,
    /// Tokens in the newest table.
    held: usize,
    /// The table that is being emptied, and its next token.
    moving: Option<(Arc<Table>, u32)>,
}

/// One filter with its table.
pub(super) struct Table {
    /// The number of its first token.
    base: u32,
    /// Tokens it is made for.
    room: usize,
    /// Bits that are cleared, four for each half of an anchor; a power of two of words.
    filter: Vec<AtomicU64>,
    /// 0, or eight bits of the anchor's hash above the token's number from 1.
    entries: Vec<AtomicU32>,
}

impl Index {
    /// The number of a token, if it is known.
    pub(super) fn number(&self, tokens: &Tokens, bytes: &[u8]) -> Option<u32> {
        let first = anchor_after(bytes, None);
        self.tables
            .iter()
            .find_map(|table| table.place(tokens, bytes, first).ok())
    }

    /// The number of a token, or where it belongs; room is made for it.
    pub(super) fn place(&mut self, tokens: &Tokens, bytes: &[u8]) -> Result<u32, Place> {
        let full = self
            .tables
            .last()
            .is_none_or(|table| self.held >= table.room);
        if full {
            self.grow(tokens);
        }
        for _ in 0..MOVES {
            self.move_one(tokens);
        }
        let first = anchor_after(bytes, None);
        let mut place = Place::default();
        // The newest table comes last.
        for table in &self.tables {
            place = match table.place(tokens, bytes, first) {
                Ok(number) => return Ok(number),
                Err(place) => place,
            };
        }
        Err(place)
    }

    /// Adds a token at the place just found for it; `tokens` holds it under `number`.
    pub(super) fn add(&mut self, place: Place, number: u32) {
        if let Some(table) = self.tables.last() {
            table.add(place, number);
            self.held += 1;
        }
    }

    /// What a search needs.
    pub(super) fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.tables
            .iter()
            .map(|t| t.filter.len() * 8 + t.entries.len() * 4)
            .sum()
    }

    /// One of its own with the same content, sharing nothing that can change.
    pub(super) fn copy(&self) -> Self {
        let mut copies: Vec<Arc<Table>> = Vec::new();
        let mut moving = None;
        for table in &self.tables {
            let copy = Arc::new(table.copy());
            if let Some((from, next)) = &self.moving
                && Arc::ptr_eq(from, table)
            {
                moving = Some((Arc::clone(&copy), *next));
            }
            copies.push(copy);
        }
        Self {
            tables: copies,
            held: self.held,
            moving,
        }
    }

    fn grow(&mut self, tokens: &Tokens) {
        while self.moving.is_some() {
            self.move_one(tokens);
        }
        match self.tables.last() {
            Some(old) if old.room < TABLE_TOKENS_MAX => {
                let old = Arc::clone(old);
                let room = (old.room * 2).min(TABLE_TOKENS_MAX);
                self.tables.push(Arc::new(Table::new(old.base, room)));
                self.moving = Some((old, 0));
            }
            _ => {
                self.tables
                    .push(Arc::new(Table::new(tokens.len(), TABLE_TOKENS_MIN)));
                self.held = 0;
            }
        }
    }

    fn move_one(&mut self, tokens: &Tokens) {
        let Some((old, next)) = &mut self.moving else {
            return;
        };
        if (*next as usize) < old.room {
            let number = old.base + *next;
            if let (Some(table), Some(bytes)) = (self.tables.last(), tokens.get(number))
                && let Err(place) = table.place(tokens, bytes, anchor_after(bytes, None))
            {
                table.add(place, number);
            }
            *next += 1;
            return;
        }
        let old = Arc::clone(old);
        self.tables.retain(|table| !Arc::ptr_eq(table, &old));
        self.moving = None;
    }
}

impl Table {
    fn new(base: u32, room: usize) -> Self {
        Self {
            base,
            room,
            filter: (0..(room / 2).next_power_of_two())
                .map(|_| AtomicU64::new(u64::MAX))
                .collect(),
            entries: (0..room + room / 2).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Whether an anchor may be at the place whose next bytes are in `x`, or one byte before it.
    #[inline(always)]
    pub(super) fn may(&self, x: u64) -> bool {
        let (at, mask) = self.bits(x);
        self.filter
            .get(at)
            .is_some_and(|word| word.load(Relaxed) & mask == 0)
    }

    /// The word of the filter and its bits for five bytes.
    #[inline(always)]
    fn bits(&self, x: u64) -> (usize, u64) {
        let hash = half(x) >> 32;
        let mask = MASKS
            .get(usize::from(hash as u8))
            .copied()
            .unwrap_or(u64::MAX);
        (
            (hash >> 8) as usize & self.filter.len().wrapping_sub(1),
            mask,
        )
    }

    /// The numbers of the tokens whose anchor may be the first six bytes of `x`.
    pub(super) fn candidates(&self, x: u64) -> impl Iterator<Item = u32> + '_ {
        let hash = whole(x);
        let tag = tag(hash);
        let mut at = within(hash, self.entries.len());
        core::iter::from_fn(move || {
            let entry = self.entries.get(at)?.load(Relaxed);
            at = if at + 1 == self.entries.len() {
                0
            } else {
                at + 1
            };
            (entry != 0).then_some(entry)
        })
        .filter(move |entry| entry >> 24 == tag)
        .map(|entry| self.base + (entry & 0xff_ffff) - 1)
    }

    /// Only the one who owns the index adds, so nothing is lost between reading and writing.
    fn add(&self, place: Place, number: u32) {
        let Place { at, entry, anchor } = place;
        let Some(slot) = self.entries.get(at) else {
            return;
        };
        for x in [anchor, anchor >> 8] {
            let (at, mask) = self.bits(x);
            if let Some(word) = self.filter.get(at) {
                word.store(word.load(Relaxed) & !mask, Relaxed);
            }
        }
        slot.store(entry | (number - self.base + 1), Relaxed);
    }

    /// The number of a token, or where it belongs.
    fn place(
        &self,
        tokens: &Tokens,
        bytes: &[u8],
        first: Option<(u64, u64)>,
    ) -> Result<u32, Place> {
        let mut next = first;
        let mut first = None;
        while let Some((score, anchor)) = next {
            let hash = whole(anchor);
            let tag = tag(hash);
            let mut at = within(hash, self.entries.len());
            let mut shared = 0;
            while let Some(entry) = self.entries.get(at).map(|entry| entry.load(Relaxed)) {
                if entry == 0 {
                    break;
                }
                if entry >> 24 == tag {
                    let number = self.base + (entry & 0xff_ffff) - 1;
                    if tokens.get(number) == Some(bytes) {
                        return Ok(number);
                    }
                    shared += 1;
                }
                at = if at + 1 == self.entries.len() {
                    0
                } else {
                    at + 1
                };
            }
            let place = Place {
                at,
                entry: tag << 24,
                anchor,
            };
            if shared < SHARE_MAX {
                return Err(place);
            }
            first.get_or_insert(place);
            next = anchor_after(bytes, Some(score));
        }
        // All its anchors are shared by many: one more shares the first.
        Err(first.unwrap_or_default())
    }

    fn copy(&self) -> Self {
        Self {
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

/// Where a token belongs in a table.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    at: usize,
    entry: u32,
    anchor: u64,
}

/// Eight bytes of a text as one number, the first byte lowest; zeros where it ends.
#[inline]
pub(super) fn load(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes
            .iter()
            .rev()
            .fold(0, |x, byte| x << 8 | u64::from(*byte)),
    }
}

/// What of six bytes counts.
#[inline]
pub(super) fn folded(x: u64) -> u64 {
    (x & FOLD) & 0xffff_ffff_ffff
}

/// A token's best anchor after the one with the given score: those that look like words come last.
fn anchor_after(bytes: &[u8], after: Option<u64>) -> Option<(u64, u64)> {
    let mut best: Option<(u64, u64)> = None;
    let mut consider = |x: u64| {
        let x = x & 0xffff_ffff_ffff;
        // Not the table's hash: the smallest of those would all fall into one corner of it.
        let score = folded(x).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 2 | plain(x) << 62;
        if after.is_none_or(|after| score > after) && best.is_none_or(|(found, _)| score < found) {
            best = Some((score, x));
        }
    };
    for eight in bytes.windows(8) {
        consider(load(eight));
    }
    // The last two, or all there are.
    let rest = bytes.len().saturating_sub(7).min(bytes.len());
    for window in bytes.get(rest..).unwrap_or_default().windows(ANCHOR) {
        consider(load(window));
    }
    best
}

/// How much six bytes look like prose: 0 with a digit and something else in them, 2 without any digit.
#[inline]
fn plain(x: u64) -> u64 {
    const ONES: u64 = 0x0001_0101_0101_0101 & 0xffff_ffff_ffff;
    let low = x & (0x7f * ONES);
    // The upper bit of each byte that is a digit; a byte above ASCII may look like one, which does no harm.
    let digits = (low + 0x50 * ONES) & !(low + 0x46 * ONES) & (0x80 * ONES);
    match digits {
        0 => 2,
        _ if digits == 0x80 * ONES => 1,
        _ => 0,
    }
}

#[inline(always)]
fn half(x: u64) -> u64 {
    ((x & FOLD) & 0xff_ffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn whole(x: u64) -> u64 {
    let x = folded(x).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x ^ x >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

fn tag(hash: u64) -> u32 {
    ((hash >> 16) & 0xff) as u32
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
