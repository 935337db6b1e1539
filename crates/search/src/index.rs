//! Which token may stand where: filters that say no for nearly every place of a text, and tables that name the tokens
//! of the others. Both only ever grow and are read without a lock, so a search made earlier goes on with what it knew
//! while new tokens come in.
//!
//! A token is known by an *anchor*: eight consecutive bytes of it (or six, when it has no more than seven), without
//! regard to case. Which ones is decided by the token alone (one that its parts need, or the last with a digit, as many
//! have their beginning in common), so it is found again in the same way. Each kind and span of anchors has a filter and a table of its
//! own. The filter holds every five-byte window of each anchor; a search therefore probes every fourth place only.
//! Parts that are found without the rest have anchors besides.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::anchor::{Anchor, Anchors};
use crate::kind::{Kind, Span};
use crate::table::{Another, Filter, Place, ROOM_MAX, Table};
use crate::tokens::Tokens;

/// Anchors of the first table.
const ROOM_MIN: usize = 64;
/// A table grows so much at once when it is known that more will come.
const GROWTH_MAX: usize = 256;
/// Places of a full table that are moved to the next one with each anchor that comes.
const MOVES: usize = 32;
/// Windows that wait for the filter.
const WAITING: usize = 512;

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

impl Index {
    /// The number of a token, if it is known.
    pub(crate) fn number(&self, tokens: &Tokens, bytes: &[u8]) -> Option<u32> {
        self.look(tokens, bytes, &Anchors::of(bytes)?).ok()
    }

    /// The number of a token, or where it belongs; room is made for it and about so many more.
    #[inline]
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
        // For most there is one table, and a free place in it.
        if let [table] = part.tables.as_slice() {
            let found = table.place_by(tokens, bytes, anchors.best);
            if found.is_ok() || !self.spilled && found.is_err_and(|place| !place.crowded) {
                return found;
            }
        }
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

    /// A token with such anchors will be added soon.
    #[inline]
    pub(crate) fn fetch(&self, bytes: &[u8], anchors: &Anchors) {
        let best = core::iter::once(anchors.best);
        for anchor in best.chain(anchors.others(bytes, anchors.best.at)) {
            if let Some(table) = self.part(anchor.kind, anchor.span).tables.last() {
                table.fetch(anchor.bytes);
            }
        }
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

impl Part {
    fn add(&mut self, place: Place, number: u32) {
        let Some(table) = self.tables.last() else {
            return;
        };
        table.add(place, number);
        self.held += 1;
        self.windows(place.anchor);
    }

    /// Gives an anchor's windows to the filter, soon.
    fn windows(&mut self, anchor: Anchor) {
        let Some(table) = self.tables.last() else {
            return;
        };
        for window in 0..anchor.span.windows() {
            let hash = Filter::hash(anchor.bytes >> (8 * window));
            table.filter().fetch(hash);
            self.waiting.push(hash);
        }
        if self.waiting.len() >= WAITING {
            self.fill();
        }
    }

    fn add_another(&mut self, anchor: Anchor, number: u32) {
        match self
            .tables
            .last()
            .map(|table| table.another(anchor, number))
        {
            Some(Another::Free(place)) => self.add(place, number),
            // Perhaps by an anchor of its own that looks the same in the table: a search finds it by either, if the
            // filter knows both.
            Some(Another::Same) => self.windows(anchor),
            Some(Another::Shared) | None => {}
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
                match table.place(tokens, bytes, &anchors.shape, anchors.best) {
                    Ok(_) => self.windows(anchors.best),
                    Err(place) => {
                        first = place.anchor.at;
                        self.add(place, number);
                    }
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
