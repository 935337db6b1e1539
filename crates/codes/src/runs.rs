//! Stretches of a text that may be base64, base32 or hexadecimal, decoded. Where a digit group begins is not
//! known in the middle of a stretch, so what is decoded is to be looked at in every alignment ([`shifted`]).

use alloc::vec::Vec;

/// Stands between stretches that are not neighbours.
const GAP: u8 = 0;
/// Digits that hold the shortest token (of base64 that is eight, which `stretches` looks for).
const BASE32_DIGITS_MIN: usize = 10;
const HEX_DIGITS_MIN: usize = 12;
/// Pairs of digits with something between them.
const PAIRS_MIN: usize = 6;
/// White space at the start of a wrapped line.
const INDENT_MAX: usize = 64;

/// What was decoded, by code.
#[derive(Default)]
pub struct Decoded {
    /// Both alphabets of base64.
    pub base64: Vec<u8>,
    /// Either case.
    pub base32: Vec<u8>,
    /// Either case.
    pub hex: Vec<u8>,
    /// `aa:bb:cc`; always aligned.
    pub pairs: Vec<u8>,
    /// Stretches with the line breaks in them taken out.
    pub unwrapped: Vec<u8>,
}

impl Decoded {
    /// Decodes every stretch of a text.
    pub fn fill(&mut self, text: &[u8]) {
        for buffer in [
            &mut self.base64,
            &mut self.base32,
            &mut self.hex,
            &mut self.pairs,
            &mut self.unwrapped,
        ] {
            buffer.clear();
        }
        stretches(text, &mut |start, kind| match kind {
            Kind::Digits => {
                let end = end_of_run(text, start);
                if let Some(run) = text.get(start..end) {
                    self.run(run);
                }
                end
            }
            Kind::Pairs => pairs(text, start, &mut self.pairs),
        });
    }

    fn run(&mut self, run: &[u8]) {
        base64(run, &mut self.base64);
        let digits = run.iter().filter(|b| class(**b) & BASE64 != 0).count();
        if digits < run.len() {
            self.unwrapped
                .extend(run.iter().filter(|b| class(**b) & BASE64 != 0));
            self.unwrapped.push(GAP);
        }
        if digits >= BASE32_DIGITS_MIN {
            parts(run, BASE32, BASE32_DIGITS_MIN, &mut |part| {
                packed::<5>(part, BASE32, value32, &mut self.base32);
            });
        }
        if digits >= HEX_DIGITS_MIN {
            parts(run, HEX, HEX_DIGITS_MIN, &mut |part| {
                packed::<4>(part, HEX, value16, &mut self.hex);
            });
        }
    }
}

/// Where runs stand in a text, for showing what is left of it.
pub fn each_run(text: &[u8], tell: &mut dyn FnMut(usize, usize)) {
    let mut ignored = Vec::new();
    stretches(text, &mut |start, kind| {
        let end = match kind {
            Kind::Digits => end_of_run(text, start),
            Kind::Pairs => pairs(text, start, &mut ignored),
        };
        tell(start, end);
        end
    });
}

/// All bits moved up: the bytes that begin so many bits later.
pub fn shifted(bytes: &[u8], bits: u32, out: &mut Vec<u8>) {
    out.clear();
    let next = bytes.iter().skip(1);
    out.extend(
        bytes
            .iter()
            .zip(next)
            .map(|(byte, next)| byte << bits | next >> (8 - bits)),
    );
    out.extend(bytes.last().map(|last| last << bits));
}

enum Kind {
    Digits,
    Pairs,
}

/// Tells the start of every stretch; the answer is its end. The two kinds may overlap.
fn stretches(text: &[u8], tell: &mut dyn FnMut(usize, Kind) -> usize) {
    let (mut digits_from, mut pairs_from) = (0, 0);
    let mut block = 0;
    let mut here = masks(text, 0);
    while block < text.len() {
        let next = masks(text, block + 64);
        let digits = u128::from(here.0) | u128::from(next.0) << 64;
        let eight = digits & digits >> 1;
        let eight = eight & eight >> 2;
        each_bit((eight & eight >> 4) as u64, block, &mut digits_from, |at| {
            tell(at, Kind::Digits)
        });
        let hex = u128::from(here.1) | u128::from(next.1) << 64;
        let pair = hex & hex >> 1 & !(hex >> 2);
        let pairs = pair & pair >> 3 & pair >> 6;
        each_bit(pairs as u64, block, &mut pairs_from, |at| {
            tell(at, Kind::Pairs)
        });
        if digits_from >= block + 128 && pairs_from >= block + 128 {
            block = digits_from.min(pairs_from) & !63;
            here = masks(text, block);
        } else {
            block += 64;
            here = next;
        }
    }
}

/// Tells the places of the set bits of a block, from a place on that the answers move.
#[inline]
fn each_bit(mut bits: u64, block: usize, from: &mut usize, mut tell: impl FnMut(usize) -> usize) {
    while bits != 0 {
        let at = block + bits.trailing_zeros() as usize;
        if at >= *from {
            *from = tell(at).max(at + 1);
        }
        // What lies before the place is passed over.
        let passed = from.saturating_sub(block).max(at - block + 1);
        bits &= u32::try_from(passed)
            .ok()
            .and_then(|passed| u64::MAX.checked_shl(passed))
            .unwrap_or(0);
    }
}

/// For 64 bytes: which are digits of base64 in either alphabet, and which of hexadecimal.
fn masks(text: &[u8], from: usize) -> (u64, u64) {
    let rest = text.get(from..).unwrap_or_default();
    if let Some(block) = rest.first_chunk::<64>() {
        return block_masks(block);
    }
    let mut block = [0; 64];
    for (to, byte) in block.iter_mut().zip(rest) {
        *to = *byte;
    }
    block_masks(&block)
}

fn block_masks(block: &[u8; 64]) -> (u64, u64) {
    let (mut digits, mut hex) = (0, 0);
    for (at, eight) in block.as_chunks::<8>().0.iter().enumerate() {
        let (d, h) = eight_masks(u64::from_le_bytes(*eight));
        digits |= d << (at * 8);
        hex |= h << (at * 8);
    }
    (digits, hex)
}

/// The same for eight bytes, whose answers are in the upper bits of each: additions do not carry from
/// one byte into the next, as the upper bits are taken off before.
fn eight_masks(x: u64) -> (u64, u64) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let low = x & !HIGH;
    let any = low | (0x20 * ONES);
    let from_a = any + (0x80 - 0x61) * ONES;
    let letter = from_a & !(any + (0x7f - 0x7a) * ONES);
    let hex_letter = from_a & !(any + (0x7f - 0x66) * ONES);
    let to_nine = !(low + (0x7f - 0x39) * ONES);
    let digit = (low + (0x80 - 0x30) * ONES) & to_nine;
    let slash_or_digit = (low + (0x80 - 0x2f) * ONES) & to_nine;
    let same = |byte: u64| !((low ^ (byte * ONES)) + 0x7f * ONES);
    let others = same(0x2b) | same(0x2d) | same(0x5f);
    let ascii = !x & HIGH;
    let packed = |mask: u64| (mask >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    (
        packed((letter | slash_or_digit | others) & ascii),
        packed((hex_letter | digit) & ascii),
    )
}

/// The end of a run that may be wrapped over lines.
fn end_of_run(text: &[u8], start: usize) -> usize {
    let mut at = start;
    loop {
        while text.get(at).is_some_and(|b| class(*b) & BASE64 != 0) {
            at += 1;
        }
        let rest = text.get(at..).unwrap_or_default();
        let line = match rest {
            [b'\r', b'\n', ..] => 2,
            [b'\n' | b'\r', ..] => 1,
            _ => return at,
        };
        let indent = rest
            .iter()
            .skip(line)
            .take(INDENT_MAX)
            .take_while(|b| matches!(b, b' ' | b'\t'))
            .count();
        match rest.get(line + indent) {
            Some(next) if class(*next) & BASE64 != 0 => at += line + indent,
            _ => return at,
        }
    }
}

/// Appends a run's bytes; bits that are left over count as the start of one more.
fn base64(run: &[u8], out: &mut Vec<u8>) {
    let mut rest = run;
    let mut bits: u64 = 0;
    let mut held = 0;
    while let Some((first, after)) = rest.split_first() {
        if held == 0
            && let Some(eight) = rest.first_chunk::<8>()
        {
            let mut all: u64 = 0;
            let mut wrong = 0;
            for digit in eight {
                let value = value64(*digit);
                wrong |= value;
                all = all << 6 | u64::from(value & 63);
            }
            if wrong < 64 {
                let [_, _, six @ ..] = all.to_be_bytes();
                out.extend_from_slice(&six);
                rest = rest.get(8..).unwrap_or_default();
                continue;
            }
        }
        rest = after;
        let value = value64(*first);
        if value >= 64 {
            continue;
        }
        bits = bits << 6 | u64::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        out.push((bits << (8 - held)) as u8);
    }
    out.push(GAP);
}

/// Tells the parts of a run whose digits are all of a class, line breaks aside.
fn parts(run: &[u8], wanted: u8, min: usize, tell: &mut dyn FnMut(&[u8])) {
    let mut start = 0;
    let mut digits = 0;
    let mut end = |start: usize, at: usize, digits: usize| {
        if digits >= min
            && let Some(part) = run.get(start..at)
        {
            tell(part);
        }
    };
    for (at, byte) in run.iter().enumerate() {
        let class = class(*byte);
        if class & wanted != 0 {
            digits += 1;
        } else if class & BASE64 != 0 {
            end(start, at, digits);
            start = at + 1;
            digits = 0;
        }
    }
    end(start, run.len(), digits);
}

/// Appends digits of `BITS` bits; bits that are left over count as the start of one more byte.
fn packed<const BITS: u32>(part: &[u8], wanted: u8, value: fn(u8) -> u8, out: &mut Vec<u8>) {
    let mut bits: u32 = 0;
    let mut held = 0;
    for digit in part.iter().filter(|b| class(**b) & wanted != 0) {
        bits = bits << BITS | u32::from(value(*digit));
        held += BITS;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        out.push((bits << (8 - held)) as u8);
    }
    out.push(GAP);
}

/// Appends pairs of digits with one other character between them; the answer is where they end.
fn pairs(text: &[u8], start: usize, out: &mut Vec<u8>) -> usize {
    let before = out.len();
    let mut at = start;
    let mut count = 0;
    while let Some([high, low, rest @ ..]) = text.get(at..)
        && class(*high) & class(*low) & HEX != 0
    {
        out.push(value16(*high) << 4 | value16(*low));
        count += 1;
        at += 2;
        if rest.first().is_none_or(|b| class(*b) & HEX != 0) {
            break;
        }
        at += 1;
        // A list broken over lines.
        while matches!(text.get(at), Some(b'\n' | b'\r' | b' ' | b'\t')) {
            at += 1;
        }
    }
    if count < PAIRS_MIN {
        out.truncate(before);
        return start;
    }
    out.push(GAP);
    at
}

const BASE64: u8 = 1;
const BASE32: u8 = 2;
const HEX: u8 = 4;

fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(0)
}

static CLASSES: [u8; 256] = classes();

static VALUES64: [u8; 256] = values64();

fn value64(digit: u8) -> u8 {
    VALUES64.get(usize::from(digit)).copied().unwrap_or(0xff)
}

fn value32(digit: u8) -> u8 {
    match digit {
        b'2'..=b'7' => digit - b'2' + 26,
        _ => (digit | 0x20).wrapping_sub(b'a') & 31,
    }
}

fn value16(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => ((digit | 0x20).wrapping_sub(b'a') + 10) & 15,
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would not accept a wrong index"
)]
const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_') {
            classes[at] |= BASE64;
        }
        if byte.is_ascii_alphabetic() || matches!(byte, b'2'..=b'7') {
            classes[at] |= BASE32;
        }
        if byte.is_ascii_hexdigit() {
            classes[at] |= HEX;
        }
        at += 1;
    }
    classes
}

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, which would not accept a wrong index"
)]
const fn values64() -> [u8; 256] {
    let mut values = [0xff; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        values[at] = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => 0xff,
        };
        at += 1;
    }
    values
}
