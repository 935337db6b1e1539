//! One search over what leaves: piece by piece, in bounded memory, as it is and decoded.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use codes::escapes::Escape;
use codes::leads::Leads;
use codes::runs::{Decoded, each_run, printable, shifted};
use codes::wide;

use search::{Finder, Found};

use super::Carried;
use crate::event::HoldId;

/// Codes one within the other that are undone.
pub const DEPTH: usize = 3;
/// Bytes that are looked at together.
const BLOCK: usize = 240 << 10;
/// Bytes of one block that are looked at again with the next: the longest token in three codes.
const OVERLAP: usize = 16 << 10;
/// What stands on both sides of an escape, by the number of codes that may be within.
const REACH: [usize; DEPTH] = [64, 6 * 64, 36 * 64];

/// A search for everything sensitive that was known when it was made. Cheap to make and to clone; what
/// comes later does not change it.
#[derive(Clone, Default)]
pub struct Scanner {
    pub(super) finder: Finder,
    pub(super) marks: Arc<BTreeMap<u32, HoldId>>,
    pub(super) spaced: bool,
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scanner({} tokens)", self.finder.known())
    }
}

impl Scanner {
    /// A search may be cut at any multiple of so many bytes, ...
    pub const STEP: u64 = BLOCK as u64;
    /// ... if each part but the last goes so many bytes into the next: nothing is found otherwise than in
    /// one piece.
    pub const OVERLAP: u64 = OVERLAP as u64;

    /// Whether there is nothing to be found.
    pub fn is_empty(&self) -> bool {
        self.finder.is_empty() && self.marks.is_empty()
    }

    /// Whether it looks for the same as another of the same session, whose tokens only become more.
    pub fn is_as(&self, other: &Self) -> bool {
        self.finder.known() == other.finder.known()
            && self.spaced == other.spaced
            && self.marks == other.marks
    }

    /// Starts a scan of one effect's bytes, to be fed piece by piece.
    pub fn start(&self) -> Scan<'_> {
        Scan {
            look: Look::new(self),
            buffer: Vec::new(),
        }
    }

    /// Scans bytes that are all there.
    pub fn scan(&self, bytes: &[u8]) -> Carried {
        let mut look = Look::new(self);
        look.all(bytes);
        look.carried
    }

    /// Scans a name, whose case says nothing: a host, a label of one.
    pub fn scan_name(&self, name: &str) -> Carried {
        let mut look = Look::new(self);
        look.name = true;
        look.at(name.as_bytes(), DEPTH);
        look.carried
    }

    /// Scans bytes as they are, without undoing any code.
    pub fn scan_plain(&self, bytes: &[u8]) -> Carried {
        let mut look = Look::new(self);
        look.at(bytes, 0);
        look.carried
    }

    /// A text for people and oracles: every sensitive token in it is replaced by `[secret]`; all of
    /// it, when one shows only after decoding.
    pub fn redacted(&self, text: &str) -> String {
        const SECRET: &str = "[secret]";
        if self.finder.is_empty() {
            return text.into();
        }
        let mut spans: Vec<(usize, usize)> = Vec::new();
        self.finder
            .find(text.as_bytes(), true, &mut |found: Found| {
                if !self.marks.contains_key(&found.number) {
                    spans.push((found.start, found.end));
                }
            });
        each_run(text.as_bytes(), &mut |start, end| {
            let run = text.as_bytes().get(start..end).unwrap_or_default();
            if self.scan(run).tokens().next().is_some() && self.scan_plain(run).is_empty() {
                spans.push((start, end));
            }
        });
        spans.sort_unstable();
        let mut shown: Vec<u8> = Vec::with_capacity(text.len());
        let mut at = 0;
        for (start, end) in spans {
            if start >= at {
                shown.extend_from_slice(text.as_bytes().get(at..start).unwrap_or_default());
                shown.extend_from_slice(SECRET.as_bytes());
            }
            at = at.max(end);
        }
        shown.extend_from_slice(text.as_bytes().get(at..).unwrap_or_default());
        if self.scan(&shown).tokens().next().is_some() {
            return SECRET.into();
        }
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// One scan under way.
pub struct Scan<'a> {
    look: Look<'a>,
    buffer: Vec<u8>,
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("waiting", &self.buffer.len())
            .field("carried", &self.look.carried)
            .finish()
    }
}

impl Scan<'_> {
    /// Looks at the next piece; tokens that span pieces are found.
    pub fn feed(&mut self, piece: &[u8]) {
        if self.look.scanner.finder.is_empty() {
            return;
        }
        let mut rest = piece;
        while !rest.is_empty() {
            let room = (BLOCK + OVERLAP).saturating_sub(self.buffer.len());
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.buffer.extend_from_slice(now);
            rest = later;
            if self.buffer.len() >= BLOCK + OVERLAP {
                self.look.at(&self.buffer, DEPTH);
                self.buffer.drain(..BLOCK);
            }
        }
    }

    /// What was found.
    pub fn finish(mut self) -> Carried {
        self.look.at(&self.buffer, DEPTH);
        self.look.carried
    }
}

/// Bytes that are all there, looked at in every way.
pub(super) struct Look<'a> {
    scanner: &'a Scanner,
    /// What was found so far.
    pub(super) carried: Carried,
    /// Whether case says nothing.
    pub(super) name: bool,
    /// What one level of decoding gives, for each level; kept from block to block.
    levels: [Level; DEPTH],
}

#[derive(Default)]
struct Level {
    leads: Leads,
    decoded: Decoded,
    bytes: Vec<u8>,
    printable: Vec<u8>,
}

impl<'a> Look<'a> {
    pub(super) fn new(scanner: &'a Scanner) -> Self {
        Self {
            scanner,
            carried: Carried::default(),
            name: false,
            levels: Default::default(),
        }
    }

    /// Looks at a text of any length under all codes.
    pub(super) fn all(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some(block) = rest.get(..BLOCK + OVERLAP) {
            self.at(block, DEPTH);
            rest = rest.get(BLOCK..).unwrap_or_default();
        }
        self.at(rest, DEPTH);
    }

    /// Looks at a text, and undoes so many codes one within the other.
    fn at(&mut self, text: &[u8], depth: usize) {
        self.find(text);
        self.within(text, depth, |this, level, below| {
            this.wide(text, level, below);
            this.decode(text, level, below);
        });
    }

    /// Looks at what was decoded without knowing that it was code: most of it is noise, in which another code
    /// is looked for only where printable characters stand together.
    fn at_noise(&mut self, noise: &[u8], depth: usize) {
        self.find(noise);
        self.within(noise, depth, |this, level, below| {
            this.wide(noise, level, below);
            let mut text = core::mem::take(&mut level.printable);
            printable(noise, &mut text);
            this.decode(&text, level, below);
            level.printable = text;
        });
    }

    fn find(&mut self, text: &[u8]) {
        let Self {
            scanner,
            carried,
            name,
            ..
        } = self;
        let mut last = None;
        scanner.finder.find(text, *name, &mut |found| {
            if last != Some(found.number) {
                last = Some(found.number);
                carried.found(found.number, &scanner.marks);
            }
        });
    }

    /// Lends the buffers of a level.
    fn within(
        &mut self,
        text: &[u8],
        depth: usize,
        undo: impl FnOnce(&mut Self, &mut Level, usize),
    ) {
        if self.scanner.finder.is_empty() || text.len() < super::TOKEN_BYTES_MIN {
            return;
        }
        let Some(below) = depth.checked_sub(1) else {
            return;
        };
        let Some(mut level) = self.levels.get_mut(below).map(core::mem::take) else {
            return;
        };
        undo(self, &mut level, below);
        if let Some(kept) = self.levels.get_mut(below) {
            *kept = level;
        }
    }

    fn wide(&mut self, text: &[u8], level: &mut Level, below: usize) {
        if wide::is_in(text) {
            for little in [true, false] {
                level.bytes.clear();
                wide::narrowed(text, little, &mut level.bytes);
                self.at(&level.bytes, below);
            }
        }
    }

    fn decode(&mut self, text: &[u8], level: &mut Level, below: usize) {
        if text.len() < super::TOKEN_BYTES_MIN {
            return;
        }
        let Level {
            leads,
            decoded,
            bytes,
            ..
        } = level;
        leads.fill(text);
        let reach = REACH.get(below).copied().unwrap_or(0);
        for escape in Escape::ALL {
            // Without a space in any token, `+` for a space hides none.
            if escape == Escape::Form && !self.scanner.spaced {
                continue;
            }
            bytes.clear();
            escape.undo(text, leads, reach, bytes);
            self.at(bytes, below);
        }
        decoded.fill(text);
        self.at(&decoded.unwrapped, below);
        self.at(&decoded.pairs, below);
        let codes: [(&[u8], &[u32], usize); 4] = [
            (&decoded.base64, &[2, 4, 6], below),
            (&decoded.short64, &[2, 4, 6], 0),
            (&decoded.hex, &[4], below),
            (&decoded.base32, &[1, 2, 3, 4, 5, 6, 7], below),
        ];
        for (code, shifts, depth) in codes {
            self.at_noise(code, depth);
            for shift in shifts {
                if !code.is_empty() {
                    shifted(code, *shift, bytes);
                    self.at_noise(bytes, depth);
                }
            }
        }
    }
}

impl Carried {
    fn found(&mut self, number: u32, marks: &BTreeMap<u32, HoldId>) {
        match marks.get(&number) {
            Some(hold) => {
                self.marks.insert(*hold);
            }
            None => {
                self.tokens.insert(number as usize);
            }
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.marks.is_empty()
    }
}
