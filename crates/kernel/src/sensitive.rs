//! Sensitive tokens, and the search for them in what leaves: as they are, and percent-encoded,
//! JSON-escaped, base64 at any offset, or hexadecimal. Over-approximates on purpose.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use crate::event::{EventId, HoldId, Source};
use crate::label::Level;
use crate::value::Origin;

/// Shorter tokens are found everywhere and say nothing.
const TOKEN_BYTES_MIN: usize = 6;
/// Longer ones are known by their parts.
const TOKEN_BYTES_MAX: usize = 256;
/// Length of such a part.
const PART_BYTES: usize = 32;

/// `S`: tokens of sensitive content.
#[derive(Clone, Debug, Default)]
pub struct Sensitive {
    tokens: Vec<Token>,
    index: BTreeMap<Vec<u8>, usize>,
    public: BTreeSet<Vec<u8>>,
    marks: Vec<(HoldId, String)>,
}

#[derive(Clone)]
struct Token {
    bytes: Vec<u8>,
    level: Level,
    origin: Origin,
    public: bool,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A secret does not belong in a debug print.
        write!(
            f,
            "Token({} bytes, {}, {})",
            self.bytes.len(),
            self.level,
            self.origin
        )
    }
}

/// What a scan found in an effect's outgoing bytes. Only a [`Scanner`] makes one that is not
/// empty; an adapter cannot forget to look without saying `Carried::unscanned`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    tokens: BTreeSet<usize>,
    marks: BTreeSet<HoldId>,
}

impl Carried {
    /// For an effect none of whose bytes leave the mediated state (a file change).
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
    pub(crate) fn add_text(&mut self, text: &str, level: Level, source: &Source, event: EventId) {
        for (index, line) in text.lines().enumerate() {
            let origin = Origin {
                source: source.clone(),
                event,
                line: u32::try_from(index + 1).unwrap_or(u32::MAX),
            };
            // Of `NAME=value` only the value is secret.
            let value = match line.split_once('=') {
                Some((name, value)) if is_name(name) => value,
                _ => line,
            };
            let whole = value.trim().trim_matches(['"', '\'']);
            if whole.len() <= TOKEN_BYTES_MAX {
                self.add(whole.as_bytes(), level, &origin);
            }
            for token in value.split(splits) {
                self.add(token.trim_matches(['.', '-']).as_bytes(), level, &origin);
            }
        }
    }

    pub(crate) fn add_bytes(
        &mut self,
        bytes: &[u8],
        level: Level,
        source: &Source,
        event: EventId,
    ) {
        // Binary content: windows of it, so that a copy of any larger part is found.
        let origin = Origin {
            source: source.clone(),
            event,
            line: 1,
        };
        for window in bytes.chunks(32).take(4096) {
            if window.len() >= 16 {
                self.add(window, level, &origin);
            }
        }
    }

    fn add(&mut self, bytes: &[u8], level: Level, origin: &Origin) {
        if bytes.len() > TOKEN_BYTES_MAX {
            // Any larger part of a long one gives it away.
            for part in bytes.chunks(PART_BYTES) {
                self.add(part, level, origin);
            }
            return;
        }
        if bytes.len() < TOKEN_BYTES_MIN
            || bytes
                .iter()
                .all(|b| *b == bytes.first().copied().unwrap_or(0))
        {
            return;
        }
        match self.index.get(bytes).and_then(|i| self.tokens.get_mut(*i)) {
            Some(token) => token.level = token.level.join(level),
            None => {
                self.index.insert(bytes.to_vec(), self.tokens.len());
                let public = self.public.contains(bytes);
                self.tokens.push(Token {
                    bytes: bytes.to_vec(),
                    level,
                    origin: origin.clone(),
                    public,
                });
            }
        }
    }

    /// A token that the agent has met in public content before is not a secret. What becomes
    /// public afterwards is not told from a secret that somebody repeats (a server that echoes).
    pub(crate) fn met_in_public(&mut self, text: &str) {
        for token in text.split(splits) {
            let token = token.trim_matches(['.', '-']);
            if token.len() >= TOKEN_BYTES_MIN
                && token.len() <= TOKEN_BYTES_MAX
                && !self.index.contains_key(token.as_bytes())
            {
                self.public.insert(token.as_bytes().to_vec());
            }
        }
    }

    pub(crate) fn add_mark(&mut self, hold: HoldId, mark: String) {
        self.marks.push((hold, mark));
    }

    pub(crate) fn level_of(&self, carries: &Carried) -> Level {
        carries
            .tokens
            .iter()
            .filter_map(|i| self.tokens.get(*i))
            .filter(|token| !token.public)
            .fold(Level::Public, |level, token| level.join(token.level))
    }

    pub(crate) fn origins_of(&self, carries: &Carried, above: Level) -> Vec<Origin> {
        let mut origins: Vec<Origin> = carries
            .tokens
            .iter()
            .filter_map(|i| self.tokens.get(*i))
            .filter(|token| !token.public && token.level > above)
            .map(|token| token.origin.clone())
            .collect();
        origins.sort();
        origins.dedup_by(|a, b| a.source == b.source && a.line == b.line);
        origins
    }

    pub(crate) fn scanner(&self) -> Scanner {
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        let mut means: Vec<Means> = Vec::new();
        for (number, token) in self.tokens.iter().enumerate().filter(|(_, t)| !t.public) {
            for form in forms(&token.bytes) {
                patterns.push(form);
                means.push(Means::Token(number));
            }
        }
        for (hold, mark) in &self.marks {
            for form in forms(mark.as_bytes()) {
                patterns.push(form);
                means.push(Means::Mark(*hold));
            }
        }
        let automaton = if patterns.is_empty() {
            None
        } else {
            AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .match_kind(MatchKind::Standard)
                .build(&patterns)
                .ok()
        };
        let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
        Scanner {
            broken: automaton.is_none() && !patterns.is_empty(),
            automaton,
            means: means.into(),
            longest,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Means {
    Token(usize),
    Mark(HoldId),
}

/// A search for everything sensitive that was known when it was made. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scanner {
    automaton: Option<AhoCorasick>,
    means: Arc<[Means]>,
    longest: usize,
    broken: bool,
}

impl Scanner {
    /// Starts a scan of one effect's bytes, to be fed piece by piece.
    pub fn start(&self) -> Scan<'_> {
        Scan {
            scanner: self,
            carried: Carried::default(),
            tail: Vec::new(),
        }
    }

    /// Scans bytes that are all there.
    pub fn scan(&self, bytes: &[u8]) -> Carried {
        let mut scan = self.start();
        scan.feed(bytes);
        scan.finish()
    }

    /// Whether the search could not be built (then nothing may be released on its word).
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// A text for people and oracles: every sensitive token in it is replaced by `[secret]`; all of
    /// it, when one shows only after decoding.
    pub fn redacted(&self, text: &str) -> String {
        const SECRET: &str = "[secret]";
        if self.broken {
            return SECRET.into();
        }
        let Some(automaton) = &self.automaton else {
            return text.into();
        };
        let is_token = |n: usize| matches!(self.means.get(n), Some(Means::Token(_)));
        let mut spans: Vec<(usize, usize)> = automaton
            .find_overlapping_iter(text.as_bytes())
            .filter(|found| is_token(found.pattern().as_usize()))
            .map(|found| (found.start(), found.end()))
            .collect();
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

    fn search(&self, bytes: &[u8], carried: &mut Carried) {
        let Some(automaton) = &self.automaton else {
            return;
        };
        for found in automaton.find_overlapping_iter(bytes) {
            match self.means.get(found.pattern().as_usize()) {
                Some(Means::Token(number)) => {
                    carried.tokens.insert(*number);
                }
                Some(Means::Mark(hold)) => {
                    carried.marks.insert(*hold);
                }
                None => {}
            }
        }
    }
}

/// One scan under way.
#[derive(Debug)]
pub struct Scan<'a> {
    scanner: &'a Scanner,
    carried: Carried,
    tail: Vec<u8>,
}

impl Scan<'_> {
    /// Looks at the next piece; tokens that span pieces are found.
    pub fn feed(&mut self, piece: &[u8]) {
        if self.scanner.automaton.is_none() || piece.is_empty() {
            return;
        }
        let mut window = core::mem::take(&mut self.tail);
        window.extend_from_slice(piece);
        self.scanner.search(&window, &mut self.carried);
        for decode in [percent_decoded, json_unescaped] {
            if let Some(decoded) = decode(&window) {
                self.scanner.search(&decoded, &mut self.carried);
            }
        }
        // Escaped forms are up to six times as long.
        let keep = self.scanner.longest.saturating_mul(6).min(window.len());
        self.tail = window.split_off(window.len() - keep);
    }

    /// What was found.
    pub fn finish(self) -> Carried {
        self.carried
    }
}

/// The forms of a token that are searched for directly.
fn forms(token: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = alloc::vec![token.to_vec()];
    forms.push(hex::encode(token).into_bytes());
    forms.push(hex::encode_upper(token).into_bytes());
    for alphabet in [STANDARD, URL_SAFE] {
        for offset in 0..3 {
            let form = base64_at(token, offset, alphabet);
            if form.len() >= TOKEN_BYTES_MIN && !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    forms
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The characters of base64 that depend on the token alone when it starts `offset` bytes after a
/// multiple of three.
fn base64_at(token: &[u8], offset: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bit = |i: usize| -> u8 { token.get(i / 8).map_or(0, |byte| (byte >> (7 - i % 8)) & 1) };
    let bits = token.len() * 8;
    // The token's first bit is bit `offset * 8` of the stream; the next sextet starts at a
    // multiple of six.
    let skip = (6 - (offset * 8) % 6) % 6;
    let mut out = Vec::new();
    let mut at = skip;
    while at + 6 <= bits {
        let sextet = (0..6).fold(0u8, |acc, k| (acc << 1) | bit(at + k));
        out.push(alphabet.get(usize::from(sextet)).copied().unwrap_or(b'='));
        at += 6;
    }
    out
}

fn percent_decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.contains(&b'%') && !bytes.contains(&b'+') {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let decoded = match (first, tail) {
            (b'%', [high, low, ..]) => hex_pair(*high, *low),
            _ => None,
        };
        match decoded {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    Some(out)
}

fn json_unescaped(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.contains(&b'\\') {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let Some((escape, after)) = tail.split_first() else {
            break;
        };
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'u' => {
                let code = after
                    .get(..4)
                    .and_then(|digits| core::str::from_utf8(digits).ok())
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                    .and_then(char::from_u32);
                match code {
                    Some(c) => {
                        let mut buffer = [0; 4];
                        out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
                        rest = after.get(4..).unwrap_or_default();
                    }
                    None => out.push(b'u'),
                }
            }
            other => out.push(*other),
        }
    }
    Some(out)
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

fn is_name(text: &str) -> bool {
    let text = text.trim().trim_start_matches("export ").trim();
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn splits(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\''
                | '`'
                | '='
                | ','
                | ';'
                | ':'
                | '<'
                | '>'
                | '('
                | ')'
                | '['
                | ']'
                | '{'
                | '}'
                | '|'
                | '&'
                | '@'
                | '?'
                | '\\'
        )
}
