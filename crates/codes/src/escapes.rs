//! Escapes undone: percent-encoding, forms, the backslashes of JSON and of programming languages, HTML
//! entities, quoted-printable, and bytes written as numbers. Only the surroundings of an escape are copied:
//! what has none nearby was searched as it is.

use alloc::vec::Vec;

use crate::lanes;
use crate::leads::Leads;

/// Stands between copies that are not neighbours.
const GAP: u8 = 0;

/// One way of escaping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// `%41`, and `%u0041` of old scripts.
    Percent,
    /// The same, and `+` for a space.
    Form,
    /// `\n`, `\x41`, `\u0041` with surrogates, `\u{41}`, `\U00000041`, `\101`.
    Backslash,
    /// `&#65;`, `&#x41;`, `&amp;`.
    Html,
    /// `=41`, and `=` before a line break.
    Quoted,
    /// `0x41, 0x42`.
    Numbers,
}

impl Escape {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Percent,
        Self::Form,
        Self::Backslash,
        Self::Html,
        Self::Quoted,
        Self::Numbers,
    ];

    /// Appends what stands around escapes, with them undone; `reach` bytes on both sides of each, and fewer among
    /// bytes that are no text. `leads` are those of the text.
    pub fn undo(self, text: &[u8], leads: &Leads, reach: usize, out: &mut Vec<u8>) {
        let places = match self {
            Self::Percent => &leads.percent,
            Self::Form => return self.undo_at(text, form_leads(text), reach, out),
            Self::Backslash => &leads.backslash,
            Self::Html => &leads.ampersand,
            Self::Quoted => &leads.equals,
            Self::Numbers => &leads.x,
        };
        let places = places.iter().map(|at| *at as usize);
        self.undo_at(text, places, reach, out);
    }

    fn undo_at(
        self,
        text: &[u8],
        places: impl Iterator<Item = usize>,
        reach: usize,
        out: &mut Vec<u8>,
    ) {
        // Up to where the text is copied or decoded.
        let mut done = 0;
        let mut any = false;
        for at in places {
            // Within the one before.
            if at < done {
                continue;
            }
            let Some((start, end, bytes)) = self.one(text, at) else {
                continue;
            };
            let between = text.get(done..start.max(done)).unwrap_or_default();
            surroundings(between, any, reach, out);
            out.extend_from_slice(bytes.get());
            any = true;
            done = end;
        }
        if any {
            let rest = text.get(done..).unwrap_or_default();
            let behind = near(rest, reach, Side::Behind);
            out.extend_from_slice(rest.get(..behind).unwrap_or_default());
            out.push(GAP);
        }
    }

    /// The escape whose lead is at `at`: where it starts and ends, and what it means.
    fn one(self, text: &[u8], at: usize) -> Option<(usize, usize, Meant)> {
        let rest = text.get(at + 1..)?;
        let (used, meant) = match self {
            Self::Percent => percent(rest)?,
            Self::Form => match text.get(at) {
                Some(b'+') => (0, Meant::byte(b' ')),
                _ => percent(rest)?,
            },
            Self::Backslash => backslash(rest)?,
            Self::Html => entity(rest)?,
            Self::Quoted => quoted(rest)?,
            Self::Numbers => {
                let start = at.checked_sub(1).filter(|s| text.get(*s) == Some(&b'0'))?;
                let (used, meant) = number(rest)?;
                return Some((start, at + 1 + used, meant));
            }
        };
        Some((at, at + 1 + used, meant))
    }
}

/// Where a form's escapes may begin; nowhere when it has no `+`, since it is percent-encoding alone then.
fn form_leads(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let any = memchr::memchr(b'+', text).is_some();
    let text = if any { text } else { &[] };
    memchr::memchr2_iter(b'+', b'%', text)
}

/// Appends what belongs to an escape, or to the one before when there is `any`, of what stands between them.
#[inline]
fn surroundings(between: &[u8], any: bool, reach: usize, out: &mut Vec<u8>) {
    // Mostly they stand close together.
    if any && between.len() <= 2 * reach.min(BLOCK) {
        out.extend_from_slice(between);
        return;
    }
    let before = near(between, reach, Side::Before);
    let behind = if any {
        near(between, reach, Side::Behind)
    } else {
        0
    };
    if any && before + behind >= between.len() {
        out.extend_from_slice(between);
        return;
    }
    out.extend_from_slice(between.get(..behind).unwrap_or_default());
    out.push(GAP);
    let from = between.len() - before;
    out.extend_from_slice(between.get(from..).unwrap_or_default());
}

/// On which side of an escape something stands.
#[derive(Clone, Copy)]
enum Side {
    Before,
    Behind,
}

/// How many of the bytes beside an escape may belong to the same thing as it, and no more than `reach`. Codes write
/// what is printable, or part other bytes by what is: where more of these stand side by side than a token has bytes,
/// whatever the escape belongs to has ended.
fn near(bytes: &[u8], reach: usize, side: Side) -> usize {
    let most = bytes.len().min(reach);
    let mut strange = 0;
    let mut seen = 0;
    while seen < most && strange <= STRANGE_MAX {
        let block = match side {
            Side::Behind => bytes.get(seen..(seen + BLOCK).min(most)),
            Side::Before => {
                let end = bytes.len() - seen;
                bytes.get(end.saturating_sub(BLOCK).max(bytes.len() - most)..end)
            }
        };
        let block = block.unwrap_or_default();
        strange += strange_pairs(block);
        seen += block.len().max(1);
    }
    seen.min(most)
}

/// Twice the bytes of the longest token.
const STRANGE_MAX: u32 = 128;
/// Bytes that are looked at together.
const BLOCK: usize = 64;

/// How many of at most 64 bytes are no text, and stand beside one that is none either.
fn strange_pairs(block: &[u8]) -> u32 {
    let mut strange = 0;
    for (at, sixteen) in block.as_chunks::<16>().0.iter().enumerate() {
        strange |= u64::from(lanes::strange(*sixteen)) << (16 * at);
    }
    let whole = block.len() / 16 * 16;
    for (at, byte) in block.iter().enumerate().skip(whole) {
        let text = matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
        strange |= u64::from(!text) << at;
    }
    (strange & strange >> 1).count_ones()
}

/// A few bytes.
struct Meant {
    bytes: [u8; 4],
    len: usize,
}

impl Meant {
    fn byte(byte: u8) -> Self {
        Self {
            bytes: [byte, 0, 0, 0],
            len: 1,
        }
    }

    fn nothing() -> Self {
        Self {
            bytes: [0; 4],
            len: 0,
        }
    }

    fn code(code: u32) -> Option<Self> {
        let mut bytes = [0; 4];
        let len = char::from_u32(code)?.encode_utf8(&mut bytes).len();
        Some(Self { bytes, len })
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

fn percent(rest: &[u8]) -> Option<(usize, Meant)> {
    match rest {
        [b'u' | b'U', digits @ ..] => {
            let (used, meant) = unit(digits, b"%u")?;
            Some((1 + used, meant))
        }
        [high, low, ..] => Some((2, Meant::byte(hex_pair(*high, *low)?))),
        _ => None,
    }
}

fn backslash(rest: &[u8]) -> Option<(usize, Meant)> {
    let (first, after) = rest.split_first()?;
    let plain = |byte| Some((1, Meant::byte(byte)));
    match first {
        b'n' => plain(b'\n'),
        b't' => plain(b'\t'),
        b'r' => plain(b'\r'),
        b'"' | b'\'' | b'\\' | b'/' | b'$' | b'`' | b'&' | b' ' => plain(*first),
        b'\n' => Some((1, Meant::nothing())),
        b'x' | b'X' => match after {
            [high, low, ..] => Some((3, Meant::byte(hex_pair(*high, *low)?))),
            _ => None,
        },
        b'u' => match after {
            [b'{', digits @ ..] => {
                let len = digits.iter().take(8).position(|b| *b == b'}')?;
                let code = hex_number(digits.get(..len)?)?;
                Some((len + 3, Meant::code(code)?))
            }
            _ => {
                let (used, meant) = unit(after, b"\\u")?;
                Some((1 + used, meant))
            }
        },
        b'U' => Some((9, Meant::code(hex_number(after.get(..8)?)?)?)),
        b'0'..=b'7' => {
            let len = rest
                .iter()
                .take(3)
                .take_while(|b| matches!(b, b'0'..=b'7'))
                .count();
            let value = rest
                .iter()
                .take(len)
                .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            Some((len, Meant::byte(u8::try_from(value).ok()?)))
        }
        _ => None,
    }
}

/// Four digits, and four more behind the same lead when they are half of a pair.
fn unit(digits: &[u8], lead: &[u8]) -> Option<(usize, Meant)> {
    let code = hex_number(digits.get(..4)?)?;
    if !(0xd800..0xdc00).contains(&code) {
        return Some((4, Meant::code(code)?));
    }
    let rest = digits.get(4..)?.strip_prefix(lead)?;
    let low = hex_number(rest.get(..4)?)?;
    if !(0xdc00..0xe000).contains(&low) {
        return None;
    }
    let code = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    Some((8 + lead.len(), Meant::code(code)?))
}

fn entity(rest: &[u8]) -> Option<(usize, Meant)> {
    const NAMED: [(&[u8], u8); 9] = [
        (b"amp;", b'&'),
        (b"lt;", b'<'),
        (b"gt;", b'>'),
        (b"quot;", b'"'),
        (b"apos;", b'\''),
        (b"nbsp;", b' '),
        (b"plus;", b'+'),
        (b"equals;", b'='),
        (b"sol;", b'/'),
    ];
    let Some(digits) = rest.strip_prefix(b"#") else {
        let (name, byte) = NAMED.iter().find(|(name, _)| rest.starts_with(name))?;
        return Some((name.len(), Meant::byte(*byte)));
    };
    let (lead, digits, radix) = match digits {
        [b'x' | b'X', digits @ ..] => (2, digits, 16),
        _ => (1, digits, 10),
    };
    let mut code = 0;
    let mut len = 0;
    for digit in digits.iter().take(8) {
        let Some(value) = char::from(*digit).to_digit(radix) else {
            break;
        };
        code = code * radix + value;
        len += 1;
    }
    let semicolon = usize::from(digits.get(len) == Some(&b';'));
    (len > 0)
        .then(|| Meant::code(code))
        .flatten()
        .map(|meant| (lead + len + semicolon, meant))
}

fn quoted(rest: &[u8]) -> Option<(usize, Meant)> {
    match rest {
        [b'\r', b'\n', ..] => Some((2, Meant::nothing())),
        [b'\n', ..] => Some((1, Meant::nothing())),
        [high, low, ..] => Some((2, Meant::byte(hex_pair(*high, *low)?))),
        _ => None,
    }
}

/// Two digits after `0x`, and what stands between them and the next ones.
fn number(rest: &[u8]) -> Option<(usize, Meant)> {
    let [high, low, after @ ..] = rest else {
        return None;
    };
    let byte = hex_pair(*high, *low)?;
    let between = after
        .iter()
        .take(64)
        .take_while(|b| matches!(b, b',' | b';' | b' ' | b'\n' | b'\r' | b'\t'))
        .count();
    let more = after
        .get(between..)
        .is_some_and(|next| next.starts_with(b"0x"));
    let between = if more { between } else { 0 };
    Some((2 + between, Meant::byte(byte)))
}

fn hex_number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |value, digit| {
        Some(value.checked_mul(16)? + char::from(*digit).to_digit(16)?)
    })
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(text: &[u8], reach: usize) -> Vec<u8> {
        let (mut leads, mut out) = (Leads::default(), Vec::new());
        leads.fill(text);
        Escape::Percent.undo(text, &leads, reach, &mut out);
        out
    }

    #[test]
    fn of_text_all_within_reach_is_looked_at_and_of_noise_less() {
        let reach = 36 * 64;
        let around = |byte: u8| {
            let side = [byte; 4000];
            undone(&[&side[..], b"%41", &side].concat(), reach).len()
        };
        // With a gap before and behind.
        assert_eq!(around(b'x'), 2 * reach + 3);
        assert_eq!(around(b'\n'), 2 * reach + 3);
        let noise = around(0xff);
        assert!((2 * 129..2 * 300).contains(&noise), "{noise}");
        // Every second byte, as in UTF-16 and between digits, is no noise.
        let wide: Vec<u8> = b"x\0".repeat(2000);
        let text = [&wide[..], b"%41", &wide].concat();
        assert_eq!(undone(&text, reach).len(), 2 * reach + 3);
        // So is what a token may have of its own.
        let own = [
            &[b'x'; 3000][..],
            &[0xff; 64],
            b"%41",
            &[0xff; 64],
            &[b'x'; 3000],
        ]
        .concat();
        assert_eq!(undone(&own, reach).len(), 2 * reach + 3);
    }

    #[test]
    fn neighbours_are_one_stretch() {
        assert_eq!(undone(b"a%41b%42c", 64), b"\0aAbBc\0");
        let far = [&b"%41"[..], &[b'x'; 300], b"%42"].concat();
        let out = undone(&far, 64);
        let ends = [&b"\0A"[..], &[b'x'; 64], b"\0", &[b'x'; 64], b"B\0"].concat();
        assert_eq!(out, ends);
    }
}
