//! Which token may stand where: filters that say no for nearly every place of a text, and tables that name the tokens
//! of the others. Both only ever grow and are read without a lock, so a search made earlier goes on with what it knew
//! while new tokens come in.
//!
//! A token is known by an *anchor*: eight consecutive bytes of it (or six, when it has no more than seven), without
//! regard to case. Which ones is decided by the token alone (the last ones with a digit, as many have their beginning
//! in common), so it is found again in the same way. Each kind and span of anchors has a filter and a table of its
//! own. The filter holds every five-byte window of each anchor; a search therefore probes every fourth place only.
//! Parts that are found without the rest have anchors besides.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::kind::{Kind, Span};
use crate::part::Shape;
use crate::tokens::Tokens;

/// So many tokens share an anchor; the next ones take another of theirs.
const SHARE_MAX: usize = 8;
/// Bits of an entry that are a token's number; the rest of it tells strangers apart.
const NUMBER_BITS: u32 = 25;
/// Anchors of one table.
const ROOM_MAX: usize = 1 << NUMBER_BITS;
/// Anchors of the first table.
const ROOM_MIN: usize = 64;
/// A table grows so much at once when it is known that more will come.
const GROWTH_MAX: usize = 256;
/// Places of a full table that are moved to the next one with each anchor that comes.
const MOVES: usize = 32;
/// Anchors that are looked for in memory together.
const TOUCHED_MAX: usize = 128;
/// Windows that wait for the filter.
const WAITING: usize = 512;
/// Anchors for each 64 bits of a filter, at most; half as many after it has grown.
const FILTER: usize = 2;
/// ASCII letters lose their case; what else falls together costs a comparison, no more.
const FOLD: u64 = 0xdfdf_dfdf_dfdf_dfdf;

/// The filters and tables.
#[derive(Default)]
pub(crate) struct Index {
    long: [Part; Kind::ALL.len()],
    short: [Part; Kind::ALL.len()],
    /// Whether a token has its first anchor in another part than that of its best one.
    spilled: bool,
    /// Anchors since all was sealed.
    added: usize,
}

/// What is known by one kind of anchor. What is old is kept until all of it is in the newest.
#[derive(Default)]
struct Part {
    tables: Vec<Arc<Table>>,
    /// Anchors in the newest table.
    held: usize,
    /// The table that is being emptied, and its next entry.
    moving: Option<(Arc<Table>, usize)>,
    /// Hashes of windows that the newest filter does not have yet: together, they wait for memory together.
    waiting: Vec<u32>,
}

/// One filter with its table.
pub(crate) struct Table {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// The number from which entries count.
    base: u32,
    /// Anchors it is made for.
    room: usize,
    /// Bits that are cleared, four for each window of an anchor; a power of two of words.
    filter: Vec<AtomicU64>,
    /// 0, or some bits of the anchor's hash above the token's number from 1.
    entries: Vec<AtomicU32>,
}

/// The filter of a table.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'a>(&'a [AtomicU64]);

/// Six or eight bytes of a token.
#[derive(Clone, Copy)]
pub(crate) struct Anchor {
    kind: Kind,
    span: Span,
    /// Lower is better.
    score: u64,
    bytes: u64,
    /// Where in the token.
    at: usize,
}

/// What a token is known by, before it is known what others are.
#[derive(Clone, Copy)]
pub(crate) struct Anchors {
    shape: Shape,
    best: Anchor,
    /// Where those of its parts begin, one bit each.
    others: u64,
}

/// Where a token belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    anchor: Anchor,
    at: usize,
    entry: u32,
    /// Whether as many as may share this anchor.
    crowded: bool,
}

impl Index {
    /// The number of a token, if it is known.
    pub(crate) fn number(&self, tokens: &Tokens, bytes: &[u8]) -> Option<u32> {
        self.look(tokens, bytes, &Anchors::of(bytes)?).ok()
    }

    /// The number of a token, or where it belongs; room is made for it and about so many more.
    pub(crate) fn place(
        &mut self,
        tokens: &Tokens,
        bytes: &[u8],
        anchors: &Anchors,
        more: usize,
    ) -> Result<u32, Place> {
        let (best, span) = (anchors.best.kind, anchors.best.span);
        let part = self.part_mut(best, span);
        part.make_room(best, span, tokens, more);
        let place = match self.look(tokens, bytes, anchors) {
            Ok(number) => return Ok(number),
            Err(place) => place,
        };
        let kind = place.anchor.kind;
        if kind == best {
            return Err(place);
        }
        self.spilled = true;
        let part = self.part_mut(kind, span);
        part.make_room(kind, span, tokens, more);
        self.look(tokens, bytes, anchors)
    }

    /// Adds a token at the place just found for it; `tokens` holds it under `number`.
    pub(crate) fn add(
        &mut self,
        place: Place,
        anchors: &Anchors,
        (tokens, bytes): (&Tokens, &[u8]),
        number: u32,
        more: usize,
    ) {
        self.added += 1;
        let part = self.part_mut(place.anchor.kind, place.anchor.span);
        part.add(place, number);
        for anchor in anchors.others(bytes, place.anchor.at) {
            let part = self.part_mut(anchor.kind, anchor.span);
            part.make_room(anchor.kind, anchor.span, tokens, more);
            part.add_another(anchor, number);
        }
    }

    /// Gives everything to the filters, so that a search made now finds it. After much has come, what is old is
    /// moved to the end: each table more is one more to be asked.
    pub(crate) fn seal(&mut self, tokens: &Tokens) {
        let moves = core::mem::take(&mut self.added) * MOVES;
        for part in self.long.iter_mut().chain(&mut self.short) {
            for _ in 0..moves {
                if part.moving.is_none() {
                    break;
                }
                part.move_one(tokens);
            }
            part.fill();
        }
    }

    /// Brings into the caches what will be needed for tokens with such anchors; the answer says nothing.
    pub(crate) fn touched<'a>(
        &self,
        tokens: impl Iterator<Item = (&'a &'a [u8], &'a Option<Anchors>)>,
    ) -> u32 {
        // In a loop that does nothing else, many of them wait for memory together.
        let mut hashes = [(0, 0); TOUCHED_MAX];
        let mut held = 0;
        for (bytes, anchors) in tokens {
            let Some(anchors) = anchors else {
                continue;
            };
            let best = core::iter::once(anchors.best);
            for anchor in best.chain(anchors.others(bytes, anchors.best.at)) {
                if let Some(slot) = hashes.get_mut(held) {
                    let part = anchor.kind as usize + 3 * (anchor.span as usize);
                    *slot = (part, whole(anchor.bytes));
                    held += 1;
                }
            }
        }
        let [a, b, c] = &self.long;
        let [d, e, f] = &self.short;
        let tables = [a, b, c, d, e, f].map(|part| part.tables.last());
        let touch = |(part, hash): &(usize, u64)| {
            let table = tables.get(*part).copied().flatten();
            table.map_or(0, |table| table.first(*hash))
        };
        hashes.iter().take(held).map(touch).fold(0, |all, x| all ^ x)
    }

    /// What a search needs.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        let tables = self.parts().flat_map(|part| &part.tables);
        tables.map(Arc::clone).collect()
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let tables = self.parts().flat_map(|part| &part.tables);
        tables
            .map(|t| t.filter.len() * 8 + t.entries.len() * 4)
            .sum()
    }

    /// One of its own with the same content, sharing nothing that can change.
    pub(crate) fn copy(&self) -> Self {
        Self {
            long: self.long.each_ref().map(Part::copy),
            short: self.short.each_ref().map(Part::copy),
            spilled: self.spilled,
            added: self.added,
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.long.iter().chain(&self.short)
    }

    fn part(&self, kind: Kind, span: Span) -> &Part {
        let [mixed, other, words] = match span {
            Span::Long => &self.long,
            Span::Short => &self.short,
        };
        match kind {
            Kind::Mixed => mixed,
            Kind::Other => other,
            Kind::Words => words,
        }
    }

    fn part_mut(&mut self, kind: Kind, span: Span) -> &mut Part {
        let [mixed, other, words] = match span {
            Span::Long => &mut self.long,
            Span::Short => &mut self.short,
        };
        match kind {
            Kind::Mixed => mixed,
            Kind::Other => other,
            Kind::Words => words,
        }
    }

    /// Its best kind comes first; the others count only where anchors are crowded.
    fn look(&self, tokens: &Tokens, bytes: &[u8], anchors: &Anchors) -> Result<u32, Place> {
        let first = anchors.best.kind;
        if !self.spilled {
            let found = self.look_in(tokens, bytes, anchors, anchors.best);
            if !found.is_err_and(|place| place.crowded) {
                return found;
            }
        }
        let (mut free, mut crowded): (Option<Place>, Option<Place>) = (None, None);
        let others = Kind::ALL.into_iter().filter(|kind| *kind != first);
        for kind in core::iter::once(first).chain(others) {
            let best = match kind == first {
                true => Some(anchors.best),
                false => anchors.shape.anchor_after(bytes, kind, None),
            };
            let Some(best) = best else {
                continue;
            };
            let place = match self.look_in(tokens, bytes, anchors, best) {
                Ok(number) => return Ok(number),
                Err(place) => place,
            };
            if place.crowded {
                crowded.get_or_insert(place);
                continue;
            }
            free.get_or_insert(place);
            if !self.spilled {
                break;
            }
        }
        Err(free.or(crowded).unwrap_or(Place::none(anchors.best)))
    }

    /// In the tables of one kind.
    #[inline]
    fn look_in(
        &self,
        tokens: &Tokens,
        bytes: &[u8],
        anchors: &Anchors,
        best: Anchor,
    ) -> Result<u32, Place> {
        let mut place = Place::none(best);
        place.crowded = false;
        // The newest table comes last.
        for table in &self.part(best.kind, best.span).tables {
            place = match table.place(tokens, bytes, &anchors.shape, best) {
                Ok(number) => return Ok(number),
                Err(place) => place,
            };
        }
        Err(place)
    }
}

impl Place {
    fn none(anchor: Anchor) -> Self {
        Self {
            anchor,
            at: usize::MAX,
            entry: 0,
            crowded: true,
        }
    }
}

impl Part {
    fn add(&mut self, place: Place, number: u32) {
        let Some(table) = self.tables.last() else {
            return;
        };
        table.add(place, number);
        self.held += 1;
        for window in 0..table.span.windows() {
            let hash = Filter::hash(place.anchor.bytes >> (8 * window));
            self.waiting.push(hash);
        }
        if self.waiting.len() >= WAITING {
            table.fill(&mut self.waiting);
        }
    }

    fn add_another(&mut self, anchor: Anchor, number: u32) {
        let table = self.tables.last();
        if let Some(place) = table.and_then(|table| table.another(anchor, number)) {
            self.add(place, number);
        }
    }

    fn fill(&mut self) {
        if let Some(table) = self.tables.last() {
            table.fill(&mut self.waiting);
        }
    }

    fn make_room(&mut self, kind: Kind, span: Span, tokens: &Tokens, more: usize) {
        let full = self.tables.last().is_none_or(|table| {
            self.held >= table.room || (tokens.len() - table.base) as usize >= ROOM_MAX - 2
        });
        if full {
            self.grow(kind, span, tokens, more);
        }
        if self.moving.is_some() {
            for _ in 0..MOVES {
                self.move_one(tokens);
            }
        }
    }

    fn grow(&mut self, kind: Kind, span: Span, tokens: &Tokens, more: usize) {
        while self.moving.is_some() {
            self.move_one(tokens);
        }
        self.fill();
        // As many of them as of those so far.
        let share = self.held as u64 * more as u64 / u64::from(tokens.len().max(1));
        let more = share as usize;
        if let Some(old) = self.tables.last()
            && old.room <= ROOM_MAX / 2
            && ((tokens.len() - old.base) as usize) < ROOM_MAX - 2
        {
            let old = Arc::clone(old);
            let most = (old.room * GROWTH_MAX).min(ROOM_MAX);
            let least = match more {
                0 => old.room * 2,
                _ => old.room + old.room / 4,
            };
            let room = (self.held + more + more / 8).clamp(least.min(most), most);
            self.tables
                .push(Arc::new(Table::new(kind, span, old.base, room)));
            self.moving = Some((old, 0));
        } else {
            // The token that is being added may be among them already.
            let base = tokens.len().saturating_sub(1);
            let room = more.clamp(ROOM_MIN, ROOM_MIN * GROWTH_MAX);
            self.tables
                .push(Arc::new(Table::new(kind, span, base, room)));
        }
        self.held = 0;
    }

    /// Moves what one entry stands for.
    fn move_one(&mut self, tokens: &Tokens) {
        let Some((old, next)) = &mut self.moving else {
            return;
        };
        let Some(entry) = old.entries.get(*next) else {
            let old = Arc::clone(old);
            self.tables.retain(|table| !Arc::ptr_eq(table, &old));
            self.moving = None;
            return;
        };
        *next += 1;
        let entry = entry.load(Relaxed);
        if entry == 0 {
            return;
        }
        let number = old.number(entry);
        if let (Some(table), Some(bytes)) = (self.tables.last(), tokens.get(number))
            && let Some(mut anchors) = Anchors::of(bytes)
        {
            // Which of its anchors this is, nothing says; those that are there already are passed over.
            let table = Arc::clone(table);
            if anchors.best.kind != table.kind {
                let best = anchors.shape.anchor_after(bytes, table.kind, None);
                anchors.best = best.unwrap_or(anchors.best);
            }
            let mut first = usize::MAX;
            if anchors.best.kind == table.kind {
                first = anchors.best.at;
                if let Err(place) = table.place(tokens, bytes, &anchors.shape, anchors.best) {
                    first = place.anchor.at;
                    self.add(place, number);
                }
            }
            for anchor in anchors.others(bytes, first) {
                if anchor.kind == table.kind {
                    self.add_another(anchor, number);
                }
            }
        }
    }

    fn copy(&self) -> Self {
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
            waiting: self.waiting.clone(),
        }
    }
}

impl Table {
    fn new(kind: Kind, span: Span, base: u32, room: usize) -> Self {
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

    fn number(&self, entry: u32) -> u32 {
        self.base + (entry & (ROOM_MAX as u32 - 1)) - 1
    }

    /// Only the one who owns the index adds, so nothing is lost between reading and writing.
    fn add(&self, place: Place, number: u32) {
        if let Some(slot) = self.entries.get(place.at) {
            slot.store(place.entry | (number - self.base + 1), Relaxed);
        }
    }

    /// Gives windows to the filter.
    fn fill(&self, waiting: &mut Vec<u32>) {
        for hash in waiting.drain(..) {
            let (at, mask) = self.filter().bits(hash);
            if let Some(word) = self.filter.get(at) {
                word.store(word.load(Relaxed) & !mask, Relaxed);
            }
        }
    }

    /// Where an anchor of a token that has one already belongs, unless it is there or many have it in common: what
    /// many tokens begin with is no secret of one.
    fn another(&self, anchor: Anchor, number: u32) -> Option<Place> {
        let hash = whole(anchor.bytes);
        let mut at = within(hash, self.entries.len());
        let mut shared = 0;
        loop {
            let entry = self.entry(at);
            if entry == 0 {
                break;
            }
            if entry >> NUMBER_BITS == tag(hash) {
                shared += 1;
                if shared >= SHARE_MAX || self.number(entry) == number {
                    return None;
                }
            }
            at = self.next(at);
        }
        Some(Place {
            anchor,
            at,
            entry: tag(hash) << NUMBER_BITS,
            crowded: false,
        })
    }

    /// The number of a token, or where it belongs: at its best anchor of this kind, or at the next one that is
    /// not shared by many.
    fn place(
        &self,
        tokens: &Tokens,
        bytes: &[u8],
        shape: &Shape,
        best: Anchor,
    ) -> Result<u32, Place> {
        let mut next = Some(best);
        let mut crowded: Option<Place> = None;
        while let Some(anchor) = next {
            let hash = whole(anchor.bytes);
            let mut at = within(hash, self.entries.len());
            let mut shared = 0;
            loop {
                let entry = self.entry(at);
                if entry == 0 {
                    break;
                }
                if entry >> NUMBER_BITS == tag(hash) {
                    if tokens.get(self.number(entry)) == Some(bytes) {
                        return Ok(self.number(entry));
                    }
                    shared += 1;
                }
                at = self.next(at);
            }
            let place = Place {
                anchor,
                at,
                entry: tag(hash) << NUMBER_BITS,
                crowded: shared >= SHARE_MAX,
            };
            if !place.crowded {
                return Err(place);
            }
            crowded.get_or_insert(place);
            next = shape.anchor_after(bytes, self.kind, Some(anchor.score));
        }
        // All its anchors are shared by many: one more shares the first.
        Err(crowded.unwrap_or(Place::none(best)))
    }

    /// Where the search for an anchor begins.
    #[inline]
    fn first(&self, hash: u64) -> u32 {
        self.entry(within(hash, self.entries.len()))
    }

    fn copy(&self) -> Self {
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

    /// The hash of a window.
    #[inline(always)]
    fn hash(x: u64) -> u32 {
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

impl Anchors {
    /// None for what is shorter than an anchor.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let shape = Shape::of(bytes);
        let mut kinds = [Kind::Mixed, Kind::Other, Kind::Words].into_iter();
        let best = kinds.find_map(|kind| shape.anchor_after(bytes, kind, None))?;
        Some(Self {
            shape,
            best,
            others: match best.at == shape.pivot() as usize {
                true => shape.cover & !(1 << best.at),
                false => shape.others(best.at),
            },
        })
    }

    /// Those of the token's parts, when its first one is at `first`.
    fn others(&self, bytes: &[u8], first: usize) -> impl Iterator<Item = Anchor> {
        let mut left = match first == self.best.at {
            true => self.others,
            false => self.shape.others(first),
        };
        let mixed = self.shape.anchors(Kind::Mixed);
        let other = self.shape.anchors(Kind::Other);
        core::iter::from_fn(move || {
            let at = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            let kind = match 1 << at {
                bit if mixed & bit != 0 => Kind::Mixed,
                bit if other & bit != 0 => Kind::Other,
                _ => Kind::Words,
            };
            Some(Anchor::new(bytes, at as usize, kind, self.shape.span))
        })
    }
}

impl Anchor {
    fn new(token: &[u8], at: usize, kind: Kind, span: Span) -> Self {
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
    fn anchor_after(&self, token: &[u8], kind: Kind, after: Option<u64>) -> Option<Anchor> {
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

#[inline]
fn whole(anchor: u64) -> u64 {
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
