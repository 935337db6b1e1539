//! Every value the agent met, once each: its text in one arena, found by hash and compared as a
//! whole, with the kinds it is trusted as and where it was met first.

use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::event::{EventId, Source};
use crate::value::Origin;

/// At most this many origins are kept for one value, from as many events; the first ones say enough.
const ORIGINS_MAX: usize = 4;

/// No origin.
const NONE: u32 = u32::MAX;

/// A value's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Symbol(u32);

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    texts: String,
    entries: Vec<Entry>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    origins: Vec<Met>,
    events: Vec<(EventId, Source)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    bytes: u32,
    origin: u32,
    trusted: u16,
}

/// An origin, and the one before it of the same value.
#[derive(Clone, Copy, Debug)]
struct Met {
    event: u32,
    line: u32,
    before: u32,
}

impl Table {
    /// The origins that follow are of this event.
    pub(super) fn begin(&mut self, event: EventId, source: &Source) {
        self.events.push((event, source.clone()));
    }

    pub(super) fn find(&self, text: &str) -> Option<Symbol> {
        let found = self
            .index
            .find(self.hash(text), |at| self.text(*at) == text);
        found.copied().map(Symbol)
    }

    /// The bits of what a value is trusted as.
    pub(super) fn trusted(&self, symbol: Symbol) -> u16 {
        self.entry(symbol.0).map_or(0, |entry| entry.trusted)
    }

    /// Adds a value, met in a line of the current event and trusted as `bits` say. A table that
    /// is full takes nothing more: what is then not found does not derive.
    pub(super) fn add(&mut self, text: &str, bits: u16, line: u32) -> Option<Symbol> {
        let symbol = match self.find(text) {
            Some(symbol) => symbol,
            None => self.intern(text)?,
        };
        let event = u32::try_from(self.events.len().checked_sub(1)?).ok()?;
        let next = u32::try_from(self.origins.len()).ok()?;
        let mut n = 0;
        let mut known = false;
        let mut at = self.entry(symbol.0)?.origin;
        while let Some(met) = self.origins.get(at as usize) {
            known |= met.event == event;
            n += 1;
            at = met.before;
        }
        let entry = self.entries.get_mut(symbol.0 as usize)?;
        entry.trusted |= bits;
        if !known && n < ORIGINS_MAX && next != NONE {
            self.origins.push(Met {
                event,
                line,
                before: entry.origin,
            });
            entry.origin = next;
        }
        Some(symbol)
    }

    /// Where a value was met, first meetings first.
    pub(super) fn met(&self, symbol: Symbol) -> Vec<Origin> {
        let mut origins = Vec::new();
        let mut at = self.entry(symbol.0).map_or(NONE, |entry| entry.origin);
        while let Some(met) = self.origins.get(at as usize) {
            if let Some((event, source)) = self.events.get(met.event as usize) {
                origins.push(Origin {
                    source: source.clone(),
                    event: *event,
                    line: met.line,
                });
            }
            at = met.before;
        }
        origins.reverse();
        origins
    }

    fn intern(&mut self, text: &str) -> Option<Symbol> {
        let symbol = u32::try_from(self.entries.len()).ok()?;
        let entry = Entry {
            start: u32::try_from(self.texts.len()).ok()?,
            bytes: u32::try_from(text.len()).ok()?,
            origin: NONE,
            trusted: 0,
        };
        self.texts.push_str(text);
        self.entries.push(entry);
        let hash = self.hash(text);
        let Self {
            index,
            entries,
            texts,
            hasher,
            ..
        } = self;
        index.insert_unique(hash, symbol, |at| {
            hashed(hasher, text_of(entries, texts, *at))
        });
        Some(Symbol(symbol))
    }

    fn hash(&self, text: &str) -> u64 {
        hashed(&self.hasher, text)
    }

    fn entry(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at as usize)
    }

    fn text(&self, at: u32) -> &str {
        text_of(&self.entries, &self.texts, at)
    }
}

fn hashed(hasher: &DefaultHashBuilder, text: &str) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(text.as_bytes());
    state.finish()
}

fn text_of<'a>(entries: &[Entry], texts: &'a str, at: u32) -> &'a str {
    let place = entries.get(at as usize).map(|entry| {
        let start = entry.start as usize;
        start..start + entry.bytes as usize
    });
    place.and_then(|place| texts.get(place)).unwrap_or_default()
}
