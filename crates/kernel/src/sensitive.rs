//! Sensitive tokens, and the search for them in what leaves.
//!
//! A token is found anywhere in an effect: as it is, from eight bytes on in any case, of a key any sixteen
//! bytes, and under up to
//! [`DEPTH`] codes one within the other: percent-encoding and forms, the escapes of JSON and of programming
//! languages, HTML entities, quoted-printable, base64 (any alignment, both alphabets, wrapped lines, padding
//! or none), base32, hexadecimal (also `aa:bb` and `0xaa, 0xbb`), UTF-16. What tokens are: see
//! [`select`]. Over-approximates on purpose.
//!
//! Adding content costs what its size costs, and searches that were made before go on undisturbed: the
//! structure only grows (see the crate `search`). Token numbers are given in order, so a log may name them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::event::{EventId, HoldId, Source};
use crate::label::Level;
use crate::value::Origin;

/// Heads of requests.
mod head;
/// Levels and origins.
mod records;
/// Pieces and codes.
mod scan;
/// Which parts of a text are tokens.
pub mod select;
/// What everybody writes.
mod words;

pub use scan::{DEPTH, Scan, Scanner};
pub use select::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};

use records::Records;
use search::{Added, Hashes, Set, hash_of};
use select::{is_common, is_varied, lines, parts, says_something};

/// Tokens that are added together.
const BATCH: usize = 256;

/// `S`: tokens of sensitive content.
#[derive(Clone, Default)]
pub struct Sensitive {
    tokens: Set,
    records: Records,
    /// Hashes of what was met in public; 64 bits, so that a secret is taken for public by chance only.
    public: Hashes,
    marks: Arc<BTreeMap<u32, HoldId>>,
    /// Whether any token has a space in it.
    spaced: bool,
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
        let parts = bytes.chunks(select::PART_BYTES);
        let mut batch: Vec<(&[u8], u32)> = Vec::with_capacity(BATCH);
        let count = bytes.len() / select::PART_BYTES;
        for (at, part) in parts.enumerate().filter(|(_, part)| is_varied(part)) {
            if self.is_token(part) {
                batch.push((part, 1));
            }
            if batch.len() == BATCH {
                self.add_all(&mut batch, level, count - at, true);
            }
        }
        self.add_all(&mut batch, level, 0, true);
        self.tokens.seal();
    }

    /// A token that the agent has met in public content before is not a secret. What becomes
    /// public afterwards is not told from a secret that somebody repeats (a server that echoes).
    pub fn met_in_public(&mut self, text: &str) {
        for line in lines(text.as_bytes()) {
            if line.whole.len() >= TOKEN_BYTES_MIN && line.whole.len() <= TOKEN_BYTES_MAX {
                self.met(line.whole);
            }
            select::tokens(&line, true, &mut |token| {
                for part in parts(token) {
                    self.met(part);
                }
            });
        }
    }

    /// Adds the mark of a stub.
    pub fn add_mark(&mut self, hold: HoldId, mark: &str) {
        self.records
            .begin(&Source::Policy, EventId(hold.0), Level::Public);
        if let Added::New(number) = self.tokens.add(mark.as_bytes()) {
            self.records.push(1);
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
            finder: self.tokens.finder(),
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
        self.tokens
            .number(token)
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
        self.tokens.bytes_held() + self.records.bytes()
    }

    fn add_lines(&mut self, text: &[u8], level: Level) {
        let mut batch: Vec<(&[u8], u32)> = Vec::with_capacity(BATCH);
        let (mut done, mut told) = (0, 0);
        // Only what is more than one piece has a space in it.
        let mut spaced = false;
        for (at, line) in lines(text).enumerate() {
            let at = u32::try_from(at + 1).unwrap_or(u32::MAX);
            let before = batch.len();
            let phrase = select::tokens(&line, false, &mut |token| {
                self.choose(token, at, &mut batch);
            });
            let whole = line.named || (batch.len() == before && !phrase);
            if whole && !is_common(line.whole) {
                self.choose(line.whole, at, &mut batch);
            }
            spaced |= !line.is_one();
            done += line.bytes;
            if batch.len() >= BATCH {
                told += batch.len();
                // As many as so far, for what is left of the text.
                let more = told as u64 * (text.len() - done.min(text.len())) as u64 / done as u64;
                self.add_all(&mut batch, level, more as usize, spaced);
                spaced = false;
            }
        }
        self.add_all(&mut batch, level, 0, spaced);
    }

    /// Puts a token, or the parts of a long one, with what will be added.
    fn choose<'a>(&self, token: &'a [u8], line: u32, batch: &mut Vec<(&'a [u8], u32)>) {
        if token.len() <= TOKEN_BYTES_MAX {
            if self.is_token(token) {
                batch.push((token, line));
            }
            return;
        }
        let parts = parts(token).filter(|part| self.is_token(part));
        batch.extend(parts.map(|part| (part, line)));
    }

    fn is_token(&self, bytes: &[u8]) -> bool {
        bytes.len() >= TOKEN_BYTES_MIN
            && says_something(bytes)
            && (self.public.is_empty() || !self.public.contains(hash_of(bytes)))
    }

    /// Adds a batch, some of which may have a space in it.
    fn add_all(
        &mut self,
        batch: &mut Vec<(&[u8], u32)>,
        level: Level,
        more: usize,
        may_be_spaced: bool,
    ) {
        let Self {
            tokens,
            records,
            spaced,
            ..
        } = self;
        let bytes: Vec<&[u8]> = batch.iter().map(|(bytes, _)| *bytes).collect();
        let mut each = batch.iter();
        tokens.add_all(&bytes, more, &mut |_, added| match (each.next(), added) {
            (Some((bytes, line)), Added::New(_)) => {
                *spaced = *spaced || may_be_spaced && memchr::memchr(b' ', bytes).is_some();
                records.push(*line);
            }
            (_, Added::Known(number)) => records.raise(number, level),
            _ => {}
        });
        batch.clear();
    }

    fn met(&mut self, token: &[u8]) {
        let hash = hash_of(token);
        if !self.public.contains(hash) && self.tokens.number(token).is_none() {
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
