//! Which parts of a text are tokens. Sensitive and public content are cut in the same way, so that what is
//! public takes its tokens away.
//!
//! - A line is cut at white space and at the marks that end words in source, data and URLs. Pieces of
//!   [`TOKEN_BYTES_MIN`] to [`TOKEN_BYTES_MAX`] bytes are tokens, longer ones are known by parts of
//!   [`PART_BYTES`], so that any longer stretch of them is found.
//! - Of `NAME=value` and `name: value` only the value counts, and the whole of it is a token too.
//! - A line none of whose pieces is a token (its words are short, or public) is one itself.
//! - Shorter values are found everywhere and say nothing.
//! - One byte over and over is no token.

/// Shorter tokens are found everywhere and say nothing.
pub const TOKEN_BYTES_MIN: usize = 6;
/// Longer ones are known by their parts.
pub const TOKEN_BYTES_MAX: usize = 64;
/// Length of such a part.
pub const PART_BYTES: usize = 32;

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
}

/// The lines of a text.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split(|b| *b == b'\n').map(|line| {
        let (name, value) = match line.iter().position(|b| matches!(b, b'=' | b':')) {
            Some(at) if is_name(line.get(..at).unwrap_or_default()) => (
                line.get(..at).unwrap_or_default(),
                line.get(at + 1..).unwrap_or_default(),
            ),
            _ => (&[][..], line),
        };
        Line {
            value,
            whole: unquoted(value.trim_ascii()),
            named: !name.is_empty(),
            bytes: line.len() + 1,
        }
    })
}

/// The pieces of a text between the marks that end words, long enough to be tokens.
pub(super) fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    core::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let end = end_of_piece(rest);
            let (piece, after) = rest.split_at_checked(end)?;
            rest = after.get(split_bytes(after)..).unwrap_or_default();
            let piece = trimmed(piece);
            if piece.len() >= TOKEN_BYTES_MIN {
                return Some(piece);
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

fn end_of_piece(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let ends = match class(*byte) {
            IN => false,
            ENDS => true,
            _ => split_bytes(text.get(at..).unwrap_or_default()) > 0,
        };
        if ends {
            return at;
        }
        at += 1;
    }
    at
}

/// Length of the character at the start that ends words, or 0.
fn split_bytes(text: &[u8]) -> usize {
    match text {
        [byte, ..] if class(*byte) == ENDS => 1,
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

const IN: u8 = 0;
const ENDS: u8 = 1;
const PERHAPS: u8 = 2;

fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(IN)
}

static CLASSES: [u8; 256] = classes();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would not accept a wrong index"
)]
const fn classes() -> [u8; 256] {
    let mut classes = [IN; 256];
    let ends = b" \t\n\r\x0b\x0c\0\"'`=,;:<>()[]{}|&@?\\";
    let mut at = 0;
    while at < ends.len() {
        classes[ends[at] as usize] = ENDS;
        at += 1;
    }
    let leads = [0xc2, 0xe1, 0xe2, 0xe3, 0xef];
    at = 0;
    while at < leads.len() {
        classes[leads[at]] = PERHAPS;
        at += 1;
    }
    classes
}

fn trimmed(mut piece: &[u8]) -> &[u8] {
    while let [b'.' | b'-', rest @ ..] | [rest @ .., b'.' | b'-'] = piece {
        piece = rest;
    }
    piece
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
