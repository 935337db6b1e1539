//! The tokens' bytes, in chunks that searches share, and where each token comes from.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::{EventId, Source};
use crate::label::Level;
use crate::value::Origin;

/// Chunks up to this size are joined, so that there are few.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A line number is written down anew after so many tokens.
const LINE_MARK_EVERY: usize = 4096;

/// Bytes of all tokens, by number.
#[derive(Clone, Default)]
pub(super) struct Tokens {
    sealed: Arc<Vec<Arc<Chunk>>>,
    open: Chunk,
}

#[derive(Clone, Default)]
pub(super) struct Chunk {
    first: u32,
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Tokens {
    pub(super) fn len(&self) -> u32 {
        self.open.next()
    }

    pub(super) fn get(&self, number: u32) -> Option<&[u8]> {
        if number >= self.open.first {
            return self.open.get(number);
        }
        in_chunks(&self.sealed, number)
    }

    /// Adds a token; its number is the length before. Nothing is added when numbers run out.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.open.bytes.len() + bytes.len() > u32::MAX as usize {
            self.seal();
        }
        self.open.bytes.extend_from_slice(bytes);
        self.open
            .ends
            .push(u32::try_from(self.open.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Gives what was added since to the searches made from now on.
    pub(super) fn seal(&mut self) {
        if self.open.ends.is_empty() {
            return;
        }
        let next = self.open.next();
        let mut chunk = core::mem::take(&mut self.open);
        self.open.first = next;
        let sealed = Arc::make_mut(&mut self.sealed);
        // As with the digits of a counter: each byte is copied a few times at most.
        while let Some(last) = sealed.last()
            && last.bytes.len() <= 2 * chunk.bytes.len()
            && last.bytes.len() + chunk.bytes.len() <= CHUNK_BYTES_MAX
            && let Some(before) = sealed.pop()
        {
            chunk = before.with(&chunk);
        }
        chunk.bytes.shrink_to_fit();
        chunk.ends.shrink_to_fit();
        sealed.push(Arc::new(chunk));
    }

    /// What a search needs.
    pub(super) fn chunks(&self) -> Arc<Vec<Arc<Chunk>>> {
        Arc::clone(&self.sealed)
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.sealed
            .iter()
            .map(|chunk| chunk.bytes.capacity() + chunk.ends.capacity() * 4)
            .sum()
    }
}

/// A token's bytes out of chunks.
pub(super) fn in_chunks(chunks: &[Arc<Chunk>], number: u32) -> Option<&[u8]> {
    let after = chunks.partition_point(|chunk| chunk.first <= number);
    chunks.get(after.checked_sub(1)?)?.get(number)
}

impl Chunk {
    fn next(&self) -> u32 {
        self.first + u32::try_from(self.ends.len()).unwrap_or(u32::MAX - self.first)
    }

    fn get(&self, number: u32) -> Option<&[u8]> {
        let at = number.checked_sub(self.first)? as usize;
        let end = *self.ends.get(at)? as usize;
        let start = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    fn with(&self, next: &Self) -> Self {
        let mut joined = Self {
            first: self.first,
            bytes: Vec::with_capacity(self.bytes.len() + next.bytes.len()),
            ends: Vec::with_capacity(self.ends.len() + next.ends.len()),
        };
        joined.bytes.extend_from_slice(&self.bytes);
        joined.bytes.extend_from_slice(&next.bytes);
        let shift = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        joined.ends.extend_from_slice(&self.ends);
        joined.ends.extend(next.ends.iter().map(|end| end + shift));
        joined
    }
}

/// Level and origin of each token, by number: what one content brought stands together.
#[derive(Clone, Default)]
pub(super) struct Records {
    contents: Vec<Content>,
    /// Lines from the token before.
    steps: Vec<u8>,
    /// Token and line, where the steps do not say it.
    marks: Vec<(u32, u32)>,
    /// Tokens that a later content holds at a higher level.
    higher: BTreeMap<u32, Level>,
    line: u32,
}

#[derive(Clone)]
struct Content {
    first: u32,
    source: Source,
    event: EventId,
    level: Level,
}

impl Records {
    /// What is pushed from now on comes from this content.
    pub(super) fn begin(&mut self, source: &Source, event: EventId, level: Level) {
        let first = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        if self.contents.last().is_some_and(|last| last.first == first) {
            self.contents.pop();
        }
        self.contents.push(Content {
            first,
            source: source.clone(),
            event,
            level,
        });
    }

    /// Origin of the next token.
    pub(super) fn push(&mut self, line: u32) {
        let number = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        let step = line
            .checked_sub(self.line)
            .and_then(|s| u8::try_from(s).ok());
        let first = self.contents.last().is_none_or(|c| c.first == number);
        match step {
            Some(step) if !first && !self.steps.len().is_multiple_of(LINE_MARK_EVERY) => {
                self.steps.push(step);
            }
            _ => {
                self.marks.push((number, line));
                self.steps.push(0);
            }
        }
        self.line = line;
    }

    pub(super) fn raise(&mut self, number: u32, level: Level) {
        if self.level(number) < level {
            self.higher.insert(number, level);
        }
    }

    pub(super) fn level(&self, number: u32) -> Level {
        let below = self.content(number).map_or(Level::Public, |c| c.level);
        self.higher
            .get(&number)
            .map_or(below, |level| below.join(*level))
    }

    pub(super) fn origin(&self, number: u32) -> Option<Origin> {
        let content = self.content(number)?;
        let after = self.marks.partition_point(|(token, _)| *token <= number);
        let (token, line) = *self.marks.get(after.checked_sub(1)?)?;
        let steps = self.steps.get(token as usize..=number as usize)?;
        Some(Origin {
            source: content.source.clone(),
            event: content.event,
            line: line + steps.iter().map(|step| u32::from(*step)).sum::<u32>(),
        })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.steps.capacity()
            + self.marks.capacity() * 8
            + self.contents.capacity() * size_of::<Content>()
    }

    fn content(&self, number: u32) -> Option<&Content> {
        if number as usize >= self.steps.len() {
            return None;
        }
        let after = self.contents.partition_point(|c| c.first <= number);
        self.contents.get(after.checked_sub(1)?)
    }
}

/// A set of hashes in 256 parts, so that growing one is quick.
#[derive(Clone, Default)]
pub(super) struct Hashes {
    parts: Vec<Part>,
}

#[derive(Clone, Default)]
struct Part {
    slots: Vec<u64>,
    held: usize,
}

impl Hashes {
    pub(super) fn insert(&mut self, hash: u64) {
        if self.parts.is_empty() {
            self.parts.resize_with(256, Part::default);
        }
        if let Some(part) = self.parts.get_mut((hash & 0xff) as usize) {
            part.insert(hash | 1);
        }
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.parts
            .get((hash & 0xff) as usize)
            .is_some_and(|part| part.find(hash | 1).is_ok())
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.held).sum()
    }
}

impl Part {
    fn insert(&mut self, hash: u64) {
        if (self.held + 1) * 4 > self.slots.len() * 3 {
            let room = (self.slots.len() * 2).max(8);
            let old = core::mem::replace(&mut self.slots, alloc::vec![0; room]);
            self.held = 0;
            for hash in old.into_iter().filter(|hash| *hash != 0) {
                self.insert(hash);
            }
        }
        if let Err(at) = self.find(hash)
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = hash;
            self.held += 1;
        }
    }

    fn find(&self, hash: u64) -> Result<(), usize> {
        let room = self.slots.len();
        let mut at = (((hash >> 32) * room as u64) >> 32) as usize;
        while let Some(slot) = self.slots.get(at) {
            match *slot {
                0 => return Err(at),
                found if found == hash => return Ok(()),
                _ => at = if at + 1 == room { 0 } else { at + 1 },
            }
        }
        Err(0)
    }
}

/// A hash of a token's bytes.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15 ^ bytes.len() as u64;
    for eight in bytes.chunks(8) {
        hash = (hash ^ super::index::load(eight)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 29
}
