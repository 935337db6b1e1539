//! Sets of hashes.

use alloc::vec::Vec;

use crate::anchor::load;

/// A set of hashes in 256 parts, so that growing one is quick.
#[derive(Clone, Debug, Default)]
pub struct Hashes {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, Default)]
struct Part {
    slots: Vec<u64>,
    held: usize,
}

impl Hashes {
    /// Adds one.
    pub fn insert(&mut self, hash: u64) {
        if self.parts.is_empty() {
            self.parts.resize_with(256, Part::default);
        }
        if let Some(part) = self.parts.get_mut((hash & 0xff) as usize) {
            part.insert(hash | 1);
        }
    }

    /// Whether it is among them.
    pub fn contains(&self, hash: u64) -> bool {
        self.parts
            .get((hash & 0xff) as usize)
            .is_some_and(|part| part.find(hash | 1).is_ok())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
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
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15 ^ bytes.len() as u64;
    for eight in bytes.chunks(8) {
        hash = (hash ^ load(eight)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 29
}
