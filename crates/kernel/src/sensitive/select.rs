//! Which parts of a text are tokens. Sensitive and public content are cut in the same way, so that what is
//! public takes its tokens away.
//!
//! - A line is cut at white space and at the marks that end words in source, data and URLs. Pieces of
//!   [`TOKEN_BYTES_MIN`] to [`TOKEN_BYTES_MAX`] bytes are tokens, longer ones are known by parts of
//!   [`PART_BYTES`], so that any longer stretch of them is found. Both sides of an `@` are one, too.
//! - A piece that everybody writes (see `words`) is none by itself: words are a token together, when they are at least
//!   three of [`PHRASE_BYTES_MIN`] bytes, or when capital words are all of a field (a name).
//! - Of `NAME=value` and `name: value` only the value counts, and the whole of it is a token too.
//! - A line none of whose pieces is a token (its words are short, or public) is one itself.
//! - Shorter values are found everywhere and say nothing.
//! - One byte over and over is no token.

use alloc::vec::Vec;

use search::{LANES, Lanes};

use super::words::{is_capital, is_ordinary};

/// Shorter tokens are found everywhere and say nothing.
pub const TOKEN_BYTES_MIN: usize = 6;
/// Longer ones are known by their parts.
pub const TOKEN_BYTES_MAX: usize = 64;
/// Length of such a part.
pub const PART_BYTES: usize = 32;
/// Words that everybody writes are a token together from this length on.
pub const PHRASE_BYTES_MIN: usize = 18;
/// And when there are so many of them.
const PHRASE_WORDS_MIN: usize = 3;
/// Capital words are a name from this length on.
const NAME_BYTES_MIN: usize = 8;

/// One line, as far as it may hold tokens.
pub(super) struct Line<'a> {
    /// The value behind a name, or all of it.
    pub(super) value: &'a [u8],
    /// The value as it is written: without white space and quotes around it.
    pub(super) whole: &'a [u8],
    /// Whether there is a name before it.
    pub(super) named: bool,
    /// Its length in the text, with its end.
    pub(super) bytes: usize,
    /// Whether it is odd, when it is one piece.
    one: Option<bool>,
}

impl Line<'_> {
    /// Whether it is one piece.
    pub(super) fn is_one(&self) -> bool {
        self.one.is_some()
    }
}

/// The lines of a text.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut left = Some(text);
    core::iter::from_fn(move || {
        let text = left?;
        // Most pieces that reach the end of a line are all of it.
        let (first, odd) = end_of_piece(text);
        let (_, after) = text.split_at_checked(first)?;
        let end = match after.first() {
            None | Some(b'\n') => first,
            Some(_) => memchr::memchr(b'\n', after).map_or(text.len(), |end| first + end),
        };
        let line = text.get(..end).unwrap_or_default();
        left = text.get(end + 1..);
        let bytes = line.len() + 1;
        if first == line.len() {
            return Some(Line {
                value: line,
                whole: line,
                named: false,
                bytes,
                one: Some(odd),
            });
        }
        let (name, value) = match memchr::memchr2(b'=', b':', line) {
            Some(at) if is_name(line.get(..at).unwrap_or_default()) => (
                line.get(..at).unwrap_or_default(),
                line.get(at + 1..).unwrap_or_default(),
            ),
            _ => (&[][..], line),
        };
        Some(Line {
            value,
            whole: unquoted(value.trim_ascii()),
            named: !name.is_empty(),
            bytes,
            one: None,
        })
    })
}

/// Tells the tokens of a line; `all` of the phrases in it instead of as many as cover it, when it is public. Whether
/// there is a phrase among them.
pub(super) fn tokens<'a>(line: &Line<'a>, all: bool, tell: &mut dyn FnMut(&'a [u8])) -> bool {
    let value = line.value;
    if let Some(odd) = line.one {
        let (from, to) = trimmed(value);
        let piece = value.get(from..to).unwrap_or_default();
        if piece.len() >= TOKEN_BYTES_MIN && !is_ordinary(piece, odd) {
            tell(piece);
        }
        return false;
    }
    let mut any = false;
    let mut run: Vec<(usize, usize)> = Vec::new();
    // Most values are one piece, which makes no run.
    let mut one: Option<(usize, usize)> = None;
    let mut end = 0;
    // Whether the run has pieces that are none by themselves.
    let mut ordinary = false;
    for (from, to, odd) in pieces(value) {
        let piece = value.get(from..to).unwrap_or_default();
        let between = value.get(end..from).unwrap_or_default();
        if between == b"@"
            && let Some((first, _)) = one
        {
            tell(value.get(first..to).unwrap_or_default());
        }
        if !joins(between) {
            any |= phrases(value, &run, ordinary, all, tell);
            run.clear();
            one = None;
            ordinary = false;
        }
        if is_ordinary(piece, odd) {
            ordinary = true;
        } else if piece.len() >= TOKEN_BYTES_MIN {
            tell(piece);
        }
        match one {
            None => one = Some((from, to)),
            Some(first) => {
                if run.is_empty() {
                    run.push(first);
                }
                run.push((from, to));
            }
        }
        end = to;
    }
    any | phrases(value, &run, ordinary, all, tell)
}

/// Whether a value has nothing but what everybody writes, and little of it.
pub(super) fn is_common(value: &[u8]) -> bool {
    value.len() < PHRASE_BYTES_MIN
        && pieces(value)
            .all(|(from, to, odd)| is_ordinary(value.get(from..to).unwrap_or_default(), odd))
}

/// Tells the phrases of words that stand together: from one word on as many as are needed.
fn phrases<'a>(
    value: &'a [u8],
    run: &[(usize, usize)],
    ordinary: bool,
    all: bool,
    tell: &mut dyn FnMut(&'a [u8]),
) -> bool {
    let (Some((start, _)), Some((_, end))) = (run.first(), run.last()) else {
        return false;
    };
    if !ordinary || run.len() < 2 {
        return false;
    }
    let whole = value.get(*start..*end).unwrap_or_default();
    let mut words = run
        .iter()
        .map(|(from, to)| value.get(*from..*to).unwrap_or_default());
    if whole.len() >= NAME_BYTES_MIN && whole.len() < PHRASE_BYTES_MIN && words.all(is_capital) {
        tell(whole);
    }
    // The word behind the phrase that begins with a word, if there are enough.
    let phrase = |first: usize| {
        let (from, _) = run.get(first)?;
        let last = (first + PHRASE_WORDS_MIN - 1..run.len()).find(|last| {
            run.get(*last)
                .is_some_and(|(_, to)| to - from >= PHRASE_BYTES_MIN)
        })?;
        let (_, to) = run.get(last)?;
        Some((last + 1, value.get(*from..*to)?))
    };
    let (mut first, mut covered) = (0, 0);
    while let Some((behind, bytes)) = phrase(first) {
        tell(bytes);
        covered = behind;
        first = if all { first + 1 } else { behind };
    }
    if !all
        && covered < run.len()
        && let Some((_, bytes)) = (0..run.len()).rev().find_map(phrase)
    {
        tell(bytes);
    }
    covered > 0
}

/// Whether words with this between them stand together.
fn joins(between: &[u8]) -> bool {
    matches!(
        between,
        b" " | [b',' | b';' | b':' | b'.' | b'?' | b'!', b' ']
    )
}

/// The pieces of a text between the marks that end words: where they begin and end, and whether
/// they are odd.
fn pieces(text: &[u8]) -> impl Iterator<Item = (usize, usize, bool)> {
    let mut at = 0;
    core::iter::from_fn(move || {
        loop {
            let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
            let (end, odd) = end_of_piece(rest);
            let (piece, after) = rest.split_at_checked(end)?;
            let start = at;
            at += end + split_bytes(after);
            let (from, to) = trimmed(piece);
            if from < to {
                return Some((start + from, start + to, odd));
            }
        }
    })
}

/// A token's bytes as they are remembered: as they are, or in parts when they are long. The last part
/// ends where the token ends.
pub(super) fn parts(token: &[u8]) -> impl Iterator<Item = &[u8]> {
    let size = if token.len() > TOKEN_BYTES_MAX {
        PART_BYTES
    } else {
        token.len().max(1)
    };
    let odd = token.len() % size;
    let last = (odd > 0).then(|| token.get(token.len() - size..)).flatten();
    token.chunks_exact(size).chain(last)
}

/// Whether these bytes say anything.
pub(super) fn says_something(token: &[u8]) -> bool {
    token
        .first()
        .is_some_and(|first| token.iter().any(|byte| byte != first))
}

/// Whether a part of binary content says anything: long stretches of padding look alike everywhere.
pub(super) fn is_varied(part: &[u8]) -> bool {
    let mut seen = [0u64; 4];
    for byte in part {
        if let Some(word) = seen.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }
    part.len() >= 16 && seen.iter().map(|word| word.count_ones()).sum::<u32>() >= 6
}

/// Text in UTF-16 as UTF-8, when content is that.
pub(super) fn utf16(bytes: &[u8]) -> Option<alloc::string::String> {
    let head = bytes.get(..bytes.len().min(256)).unwrap_or_default();
    let zeros = |from: usize| {
        head.iter()
            .skip(from)
            .step_by(2)
            .filter(|b| **b == 0)
            .count()
    };
    let little = match head {
        [0xff, 0xfe, ..] => true,
        [0xfe, 0xff, ..] => false,
        _ if head.len() >= 4 && zeros(1) * 10 > head.len() * 4 => true,
        _ if head.len() >= 4 && zeros(0) * 10 > head.len() * 4 => false,
        _ => return None,
    };
    let units = bytes.as_chunks::<2>().0.iter().map(|pair| {
        if little {
            u16::from_le_bytes(*pair)
        } else {
            u16::from_be_bytes(*pair)
        }
    });
    Some(
        char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .filter(|c| *c != '\u{feff}')
            .collect(),
    )
}

/// The end of the piece at the start, and whether it is odd: whether there is a digit in it, or a byte beyond ASCII.
fn end_of_piece(text: &[u8]) -> (usize, bool) {
    let (mut at, mut odd) = (0, false);
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let here = rest.len().min(LANES);
        let lanes = Lanes::first(rest);
        let beyond = lanes.between(0x80, 0xff);
        let ends = ends(lanes);
        let mut stops = ends | beyond.bits();
        let end = loop {
            let stop = (stops.trailing_zeros() as usize).min(here);
            if stop == here || ends >> stop & 1 != 0 {
                break stop;
            }
            if split_bytes(rest.get(stop..).unwrap_or_default()) > 0 {
                break stop;
            }
            stops &= stops - 1;
        };
        let odds = (lanes.between(b'0', b'9') | beyond).bits();
        odd |= odds & ((1 << end) - 1) != 0;
        at += end;
        if end < LANES {
            return (at, odd);
        }
    }
}

/// Length of the character at the start that ends words, or 0.
fn split_bytes(text: &[u8]) -> usize {
    match text {
        [byte, ..] if ends_words(*byte) => 1,
        // White space beyond ASCII, and what stands for bytes that are no text.
        [0xc2, 0x85 | 0xa0, ..] => 2,
        [0xe1, 0x9a, 0x80, ..]
        | [0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf, ..]
        | [0xe2, 0x81, 0x9f, ..]
        | [0xe3, 0x80, 0x80, ..]
        | [0xef, 0xbf, 0xbd, ..] => 3,
        _ => 0,
    }
}

/// Whether a byte ends words by itself.
fn ends_words(byte: u8) -> bool {
    matches!(
        byte,
        0 | b'\t'..=b'\r'
            | b' '
            | b'"'
            | b'&'..=b')'
            | b','
            | b':'..=b'@'
            | b'['..=b']'
            | b'`'
            | b'{'..=b'}'
    )
}

/// Which of sixteen bytes do, one bit each.
fn ends(lanes: Lanes) -> u64 {
    let ends = lanes.are(0)
        | lanes.between(b'\t', b'\r')
        | lanes.are(b' ')
        | lanes.are(b'"')
        | lanes.between(b'&', b')')
        | lanes.are(b',')
        | lanes.between(b':', b'@')
        | lanes.between(b'[', b']')
        | lanes.are(b'`')
        | lanes.between(b'{', b'}');
    ends.bits()
}

/// Where a piece begins and ends without dots and hyphens around it.
fn trimmed(piece: &[u8]) -> (usize, usize) {
    let inner = |byte: &u8| !matches!(byte, b'.' | b'-');
    let from = piece.iter().position(inner).unwrap_or(piece.len());
    let to = piece.iter().rposition(inner).map_or(from, |last| last + 1);
    (from, to)
}

fn unquoted(mut value: &[u8]) -> &[u8] {
    while let [b'"' | b'\'', rest @ ..] | [rest @ .., b'"' | b'\'' | b','] = value {
        value = rest;
    }
    value
}

/// Whether the part of a line before `=` or `:` is a name.
fn is_name(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"export ").unwrap_or(text);
    let text = text.strip_prefix(b"- ").unwrap_or(text);
    let text = unquoted(text.trim_ascii());
    !text.is_empty()
        && text
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_at_once_end_words_as_one_does() {
        for byte in 0..=u8::MAX {
            for at in 0..LANES {
                let mut sixteen = [b'a'; LANES];
                sixteen[at] = byte;
                let expected = u64::from(ends_words(byte)) << at;
                assert_eq!(ends(Lanes::of(sixteen)), expected, "{byte:#x} at {at}");
            }
        }
    }

    /// By one byte after the other.
    fn plainly(text: &[u8]) -> (usize, bool) {
        let end = (0..text.len()).find(|at| split_bytes(&text[*at..]) > 0);
        let end = end.unwrap_or(text.len());
        let odd = |byte: &u8| byte.is_ascii_digit() || !byte.is_ascii();
        (end, text[..end].iter().any(odd))
    }

    proptest::proptest! {
        #[test]
        fn a_piece_ends_where_a_byte_or_a_character_ends_it(
            text in proptest::collection::vec(proptest::sample::select(&b"aZ7-._/ \n\"=\xc2\x85\xa0\xe2\x80\x8a\xe3\xef\xbf\xbd\x00\xff"[..]), 0..70),
            word in "[a-zA-Z0-9é]{0,40}",
        ) {
            let text = [word.as_bytes(), &text].concat();
            proptest::prop_assert_eq!(end_of_piece(&text), plainly(&text));
        }
    }
}
