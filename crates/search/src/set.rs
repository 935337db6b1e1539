//! Tokens with their numbers.

use core::fmt;

use crate::anchor::Anchors;
use crate::find::Finder;
use crate::index::Index;
use crate::tokens::Tokens;

/// So many tokens are looked at before the first of them is added.
const AHEAD: usize = 8;

/// Tokens, numbered in the order in which they came. Each is held once.
#[derive(Default)]
pub struct Set {
    tokens: Tokens,
    index: Index,
}

/// What became of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was there under this number.
    Known(u32),
    /// It has this number now.
    New(u32),
    /// It is too short, or numbers have run out.
    Not,
}

impl Clone for Set {
    fn clone(&self) -> Self {
        Self {
            tokens: self.tokens.clone(),
            index: self.index.copy(),
        }
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Set({} tokens)", self.len())
    }
}

impl Set {
    /// Adds a token.
    pub fn add(&mut self, token: &[u8]) -> Added {
        let mut added = Added::Not;
        self.add_all(&[token], 0, &mut |_, became| added = became);
        added
    }

    /// Adds tokens, and tells what became of each. About so many more will come, as far as that is known.
    pub fn add_all(&mut self, tokens: &[&[u8]], more: usize, tell: &mut dyn FnMut(usize, Added)) {
        // What a token needs of memory comes while those before it are added.
        let mut ahead: [Option<Anchors>; AHEAD] = [None; AHEAD];
        for at in 0..tokens.len() + AHEAD {
            let Some(slot) = ahead.get_mut(at % AHEAD) else {
                return;
            };
            if let Some(at) = at.checked_sub(AHEAD)
                && let Some(token) = tokens.get(at)
            {
                let added = match slot {
                    Some(anchors) => self.add_one(token, anchors, more),
                    None => Added::Not,
                };
                tell(at, added);
            }
            *slot = tokens.get(at).and_then(|token| Anchors::of(token));
            if let (Some(token), Some(anchors)) = (tokens.get(at), slot) {
                self.index.fetch(token, anchors);
            }
        }
    }

    /// Makes what was added known to the searches made from now on.
    pub fn seal(&mut self) {
        self.tokens.seal();
        self.index.seal(&self.tokens);
    }

    /// A search for everything added before the last [`Set::seal`].
    pub fn finder(&self) -> Finder {
        Finder::new(
            self.index.tables(),
            self.tokens.chunks(),
            self.tokens.sealed(),
        )
    }

    /// The number of a token.
    pub fn number(&self, token: &[u8]) -> Option<u32> {
        self.index.number(&self.tokens, token)
    }

    /// The token with a number.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        self.tokens.get(number)
    }

    /// How many there are; the number of the next one.
    pub fn len(&self) -> u32 {
        self.tokens.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory.
    pub fn bytes_held(&self) -> usize {
        self.tokens.bytes() + self.index.bytes()
    }

    fn add_one(&mut self, token: &[u8], anchors: &Anchors, more: usize) -> Added {
        let number = self.tokens.len();
        match self.index.place(&self.tokens, token, anchors, more) {
            Ok(number) => Added::Known(number),
            Err(_) if number == u32::MAX => Added::Not,
            Err(place) => {
                self.tokens.push(token);
                let tokens = (&self.tokens, token);
                self.index.add(place, anchors, tokens, number, more);
                Added::New(number)
            }
        }
    }
}
