//! Sensitive tokens, and the search for them in what leaves.
//!
//! A token is found anywhere in an effect: as it is, from eight bytes on in any case, and under up to
//! [`DEPTH`] codes one within the other: percent-encoding and forms, the escapes of JSON and of programming
//! languages, HTML entities, quoted-printable, base64 (any alignment, both alphabets, wrapped lines, padding
//! or none), base32, hexadecimal (also `aa:bb` and `0xaa, 0xbb`), UTF-16. What tokens are: see
//! [`select`]. Over-approximates on purpose.
//!
//! Adding content costs what its size costs, and searches that were made before go on undisturbed: the
//! structure only grows (see `index`). Token numbers are given in order, so a log may name them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::event::{EventId, HoldId, Source};
use crate::label::Level;
use crate::value::Origin;

/// Tokens as they are.
mod find;
/// Filter and table.
mod index;
/// Pieces and codes.
mod scan;
/// Which parts of a text are tokens.
pub mod select;
/// Bytes and origins.
mod tokens;

pub use scan::{DEPTH, Scan, Scanner};
pub use select::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};

use find::Finder;
use index::{Index, Place};
use select::{is_varied, lines, parts, pieces, says_something};
use tokens::{Hashes, Records, Tokens, hash_of};

/// `S`: tokens of sensitive content.
#[derive(Default)]
pub struct Sensitive {
    tokens: Tokens,
    records: Records,
    index: Index,
    /// Hashes of what was met in public; 64 bits, so that a secret is taken for public by chance only.
    public: Hashes,
    marks: Arc<BTreeMap<u32, HoldId>>,
    /// Whether any token has a space in it.
    spaced: bool,
}

impl Clone for Sensitive {
    fn clone(&self) -> Self {
        Self {
            tokens: self.tokens.clone(),
            records: self.records.clone(),
            index: self.index.copy(),
            public: self.public.clone(),
            marks: Arc::clone(&self.marks),
            spaced: self.spaced,
        }
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A secret does not belong in a debug print.
        f.debug_struct("Sensitive")
            .field("tokens", &self.tokens.len())
            .field("public", &self.public.len())
            .field("marks", &self.marks.len())
            .finish()
    }
}

/// What a scan found in an effect's outgoing bytes. Only a [`Scanner`] makes one that is not
/// empty; an adapter cannot forget to look without saying [`Carried::nothing`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    tokens: BTreeSet<usize>,
    marks: BTreeSet<HoldId>,
}

impl Carried {
    /// For an effect none of whose bytes leave the mediated state.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Numbers of the tokens found.
    pub fn tokens(&self) -> impl Iterator<Item = usize> + '_ {
        self.tokens.iter().copied()
    }

    /// Holds whose stub's mark was found.
    pub fn marks(&self) -> impl Iterator<Item = HoldId> + '_ {
        self.marks.iter().copied()
    }

    /// Rebuilds what a log recorded.
    pub fn recorded(
        tokens: impl IntoIterator<Item = usize>,
        marks: impl IntoIterator<Item = HoldId>,
    ) -> Self {
        Self {
            tokens: tokens.into_iter().collect(),
            marks: marks.into_iter().collect(),
        }
    }

    /// What either holds.
    pub fn merge(&mut self, other: &Self) {
        self.tokens.extend(&other.tokens);
        self.marks.extend(&other.marks);
    }
}

impl Sensitive {
    /// Adds the tokens of a text.
    pub fn add_text(&mut self, text: &str, level: Level, source: &Source, event: EventId) {
        if level == Level::Public {
            return;
        }
        self.records.begin(source, event, level);
        self.add_lines(text.as_bytes(), level);
        if let Some(text) = select::utf16(text.as_bytes()) {
            self.add_lines(text.as_bytes(), level);
        }
        self.tokens.seal();
    }

    /// Adds binary content: parts of it, so that a copy of any larger part is found.
    pub fn add_bytes(&mut self, bytes: &[u8], level: Level, source: &Source, event: EventId) {
        if level == Level::Public {
            return;
        }
        self.records.begin(source, event, level);
        if let Some(text) = select::utf16(bytes) {
            self.add_lines(text.as_bytes(), level);
        }
        for part in bytes.chunks(select::PART_BYTES) {
            if is_varied(part) {
                self.add(part, level, 1);
            }
        }
        self.tokens.seal();
    }

    /// A token that the agent has met in public content before is not a secret. What becomes
    /// public afterwards is not told from a secret that somebody repeats (a server that echoes).
    pub fn met_in_public(&mut self, text: &str) {
        for line in lines(text.as_bytes()) {
            if line.whole.len() >= TOKEN_BYTES_MIN && line.whole.len() <= TOKEN_BYTES_MAX {
                self.met(line.whole);
            }
            for piece in pieces(line.value) {
                for part in parts(piece) {
                    self.met(part);
                }
            }
        }
    }

    /// Adds the mark of a stub.
    pub fn add_mark(&mut self, hold: HoldId, mark: &str) {
        self.records
            .begin(&Source::Policy, EventId(hold.0), Level::Public);
        let number = self.tokens.len();
        if let Err(place) = self.index.place(&self.tokens, mark.as_bytes())
            && self.put(place, mark.as_bytes(), 1)
        {
            Arc::make_mut(&mut self.marks).insert(number, hold);
        }
        self.tokens.seal();
    }

    /// The highest level of the tokens found.
    pub fn level_of(&self, carries: &Carried) -> Level {
        carries.numbers().fold(Level::Public, |level, number| {
            level.join(self.records.level(number))
        })
    }

    /// Where the tokens above a level come from, each line once.
    pub fn origins_of(&self, carries: &Carried, above: Level) -> Vec<Origin> {
        let mut origins: Vec<Origin> = carries
            .numbers()
            .filter(|number| self.records.level(*number) > above)
            .filter_map(|number| self.records.origin(number))
            .collect();
        origins.sort();
        origins.dedup_by(|a, b| a.source == b.source && a.line == b.line);
        origins
    }

    /// A search for everything known by now.
    pub fn scanner(&self) -> Scanner {
        Scanner {
            finder: Finder {
                tables: self.index.tables().to_vec(),
                chunks: self.tokens.chunks(),
                known: self.tokens.len(),
            },
            marks: Arc::clone(&self.marks),
            spaced: self.spaced,
        }
    }

    /// What was found under other numbers, here: a log's tokens under another policy. Tokens that are
    /// not known here are left out.
    pub fn translated(&self, carries: &Carried, from: &Self) -> Carried {
        let tokens = carries
            .numbers()
            .filter_map(|number| from.tokens.get(number))
            .filter_map(|bytes| self.number_of(bytes));
        Carried::recorded(tokens, carries.marks())
    }

    /// The number of a token.
    pub fn number_of(&self, token: &[u8]) -> Option<usize> {
        self.index
            .number(&self.tokens, token)
            .filter(|number| !self.marks.contains_key(number))
            .map(|number| number as usize)
    }

    /// How many tokens there are, marks included.
    pub fn len(&self) -> usize {
        self.tokens.len() as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory, without what was met in public.
    pub fn bytes_held(&self) -> usize {
        self.tokens.bytes() + self.records.bytes() + self.index.bytes()
    }

    fn add_lines(&mut self, text: &[u8], level: Level) {
        for (at, line) in lines(text).enumerate() {
            let at = u32::try_from(at + 1).unwrap_or(u32::MAX);
            let mut any = false;
            if line.named {
                any |= self.add(line.whole, level, at);
            }
            for piece in pieces(line.value) {
                any |= self.add(piece, level, at);
            }
            if !any {
                self.add(line.whole, level, at);
            }
        }
    }

    /// Adds a token; whether it (or a part of it) is one now.
    fn add(&mut self, token: &[u8], level: Level, line: u32) -> bool {
        let mut any = false;
        for part in parts(token) {
            any |= self.add_part(part, level, line);
        }
        any
    }

    fn add_part(&mut self, bytes: &[u8], level: Level, line: u32) -> bool {
        if bytes.len() < TOKEN_BYTES_MIN || !says_something(bytes) {
            return false;
        }
        match self.index.place(&self.tokens, bytes) {
            Ok(number) => {
                self.records.raise(number, level);
                true
            }
            Err(place) => !self.public.contains(hash_of(bytes)) && self.put(place, bytes, line),
        }
    }

    fn put(&mut self, place: Place, bytes: &[u8], line: u32) -> bool {
        let number = self.tokens.len();
        if number == u32::MAX {
            return false;
        }
        self.spaced |= bytes.contains(&b' ');
        self.tokens.push(bytes);
        self.records.push(line);
        self.index.add(place, number);
        true
    }

    fn met(&mut self, token: &[u8]) {
        let hash = hash_of(token);
        if !self.public.contains(hash) && self.index.number(&self.tokens, token).is_none() {
            self.public.insert(hash);
        }
    }
}

impl Carried {
    fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.tokens()
            .filter_map(|number| u32::try_from(number).ok())
    }
}
