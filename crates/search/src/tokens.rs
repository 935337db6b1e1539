//! The tokens' bytes, in chunks that searches share.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// Chunks up to this size are joined, so that there are few.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Bytes of all tokens, by number.
#[derive(Clone, Default)]
pub(crate) struct Tokens {
    sealed: Arc<Vec<Arc<Chunk>>>,
    open: Chunk,
}

#[derive(Clone, Default)]
pub(crate) struct Chunk {
    first: u32,
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Tokens {
    pub(crate) fn len(&self) -> u32 {
        self.open.next()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&[u8]> {
        if number >= self.open.first {
            return self.open.get(number);
        }
        in_chunks(&self.sealed, number)
    }

    /// Adds a token; its number is the length before. Nothing is added when numbers run out.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.open.bytes.len() + bytes.len() > u32::MAX as usize {
            self.seal();
        }
        self.open.bytes.extend_from_slice(bytes);
        self.open
            .ends
            .push(u32::try_from(self.open.bytes.len()).unwrap_or(u32::MAX));
    }

    /// Gives what was added since to the searches made from now on.
    pub(crate) fn seal(&mut self) {
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

    /// How many are sealed.
    pub(crate) fn sealed(&self) -> u32 {
        self.open.first
    }

    /// What a search needs.
    pub(crate) fn chunks(&self) -> Arc<Vec<Arc<Chunk>>> {
        Arc::clone(&self.sealed)
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.sealed
            .iter()
            .map(|chunk| chunk.bytes.capacity() + chunk.ends.capacity() * 4)
            .sum()
    }
}

/// A token's bytes out of chunks.
pub(crate) fn in_chunks(chunks: &[Arc<Chunk>], number: u32) -> Option<&[u8]> {
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
