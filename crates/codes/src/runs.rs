//! Stretches of a text that may be base64, base32 or hexadecimal, decoded. Where a digit group begins is not
//! known in the middle of a stretch, so what is decoded is to be looked at in every alignment ([`shifted`]).

use alloc::vec::Vec;

use crate::lanes;

/// Stands between stretches that are not neighbours.
const GAP: u8 = 0;
/// Digits that hold the shortest token (of base64 that is eight, which `stretches` looks for).
const BASE32_DIGITS_MIN: usize = 10;
const HEX_DIGITS_MIN: usize = 12;
/// Digits of base64 that hold another code: the eight characters that the shortest one takes.
const NESTED_DIGITS_MIN: usize = 11;
/// Pairs of digits with something between them.
const PAIRS_MIN: usize = 6;
/// White space at the start of a wrapped line.
const INDENT_MAX: usize = 64;

/// What was decoded, by code.
#[derive(Default)]
pub struct Decoded {
    /// Both alphabets of base64.
    pub base64: Vec<u8>,
    /// The same, from stretches too short for another code within.
    pub short64: Vec<u8>,
    /// Upper or lower case, not mixed.
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
            &mut self.short64,
            &mut self.base32,
            &mut self.hex,
            &mut self.pairs,
            &mut self.unwrapped,
        ] {
            buffer.clear();
        }
        stretches(text, &mut |start, kind| match kind {
            Kind::Digits(digits) => {
                let (end, wrapped) = end_of_run(text, start + digits);
                if let Some(run) = text.get(start..end) {
                    self.run(run, wrapped);
                }
                end
            }
            Kind::Pairs => pairs(text, start, &mut self.pairs),
        });
    }

    fn run(&mut self, run: &[u8], wrapped: bool) {
        let Self {
            base64,
            short64,
            base32,
            hex,
            unwrapped,
            ..
        } = self;
        let before = unwrapped.len();
        let digits = if !wrapped {
            run
        } else {
            unwrapped.extend(run.iter().filter(|b| class(**b) & BASE64 != 0));
            unwrapped.get(before..).unwrap_or_default()
        };
        let out = match digits.len() {
            ..NESTED_DIGITS_MIN => short64,
            _ => base64,
        };
        packed::<6, 8, 6>(digits, value64, out);
        if digits.len() >= BASE32_DIGITS_MIN {
            streaks(digits, &mut |class, part| match class {
                HEX => packed::<4, 8, 4>(part, value16, hex),
                _ => packed::<5, 8, 5>(part, value32, base32),
            });
        }
        if unwrapped.len() > before {
            unwrapped.push(GAP);
        }
    }
}

/// Where runs stand in a text, for showing what is left of it.
pub fn each_run(text: &[u8], tell: &mut dyn FnMut(usize, usize)) {
    let mut ignored = Vec::new();
    stretches(text, &mut |start, kind| {
        let end = match kind {
            Kind::Digits(digits) => end_of_run(text, start + digits).0,
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

/// Appends the surroundings of eight printable characters in a row: where another code may be.
pub fn printable(bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    let mut here = printable_mask(bytes, 0);
    for block in (0..bytes.len()).step_by(64) {
        let next = printable_mask(bytes, block + 64);
        if eight_in_a_row(here, next) != 0 {
            let start = block.saturating_sub(64).max(copied);
            let end = (block + 192).min(bytes.len());
            if start > copied {
                out.push(GAP);
            }
            out.extend_from_slice(bytes.get(start..end).unwrap_or_default());
            copied = end;
        }
        here = next;
    }
}

enum Kind {
    /// With so many digits at least.
    Digits(usize),
    Pairs,
}

/// Tells the start of every stretch; the answer is its end. The two kinds may overlap.
fn stretches(text: &[u8], tell: &mut dyn FnMut(usize, Kind) -> usize) {
    let (mut digits_from, mut pairs_from) = (0, 0);
    let mut block = 0;
    let mut here = masks(text, 0);
    while block < text.len() {
        let next = masks(text, block + 64);
        let runs = eight_in_a_row(here.0, next.0);
        each_bit(runs, block, &mut digits_from, |at| {
            let digits = u128::from(here.0) | u128::from(next.0) << 64;
            let known = (digits >> (at - block)).trailing_ones();
            tell(at, Kind::Digits(known as usize))
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

/// Where eight set bits in a row begin.
#[inline]
fn eight_in_a_row(here: u64, next: u64) -> u64 {
    let bits = u128::from(here) | u128::from(next) << 64;
    let bits = bits & bits >> 1;
    let bits = bits & bits >> 2;
    (bits & bits >> 4) as u64
}

/// For 64 bytes: which are printable.
fn printable_mask(text: &[u8], from: usize) -> u64 {
    let sixteens = block(text, from);
    let sixteens = sixteens.as_chunks::<16>().0.iter();
    sixteens.rev().fold(0, |mask, bytes| {
        mask << 16 | u64::from(lanes::printable(*bytes))
    })
}

/// For 64 bytes: which are digits of base64 in either alphabet, and which of hexadecimal.
#[inline]
fn masks(text: &[u8], from: usize) -> (u64, u64) {
    let sixteens = block(text, from);
    let sixteens = sixteens.as_chunks::<16>().0.iter();
    sixteens.rev().fold((0, 0), |(digits, hex), bytes| {
        let (more, more_hex) = lanes::digits(*bytes);
        (
            digits << 16 | u64::from(more),
            hex << 16 | u64::from(more_hex),
        )
    })
}

/// So many bytes of a text from a place on, and zeros where it ends.
#[inline]
fn block(text: &[u8], from: usize) -> [u8; 64] {
    let rest = text.get(from..).unwrap_or_default();
    if let Some(block) = rest.first_chunk() {
        return *block;
    }
    let mut block = [0; 64];
    for (to, byte) in block.iter_mut().zip(rest) {
        *to = *byte;
    }
    block
}

/// The end of a run that may be wrapped over lines, and whether it is; up to `at` all are digits.
fn end_of_run(text: &[u8], mut at: usize) -> (usize, bool) {
    let mut wrapped = false;
    loop {
        while text.get(at).is_some_and(|b| class(*b) & BASE64 != 0) {
            at += 1;
        }
        let rest = text.get(at..).unwrap_or_default();
        let line = match rest {
            [b'\r', b'\n', ..] => 2,
            [b'\n' | b'\r', ..] => 1,
            _ => return (at, wrapped),
        };
        let indent = rest
            .iter()
            .skip(line)
            .take(INDENT_MAX)
            .take_while(|b| matches!(b, b' ' | b'\t'))
            .count();
        match rest.get(line + indent) {
            Some(next) if class(*next) & BASE64 != 0 => at += line + indent,
            _ => return (at, wrapped),
        }
        wrapped = true;
    }
}

/// Tells the stretches of a run whose digits are all hexadecimal, or all of base32 in one case.
fn streaks(digits: &[u8], tell: &mut dyn FnMut(u8, &[u8])) {
    const KINDS: [(u8, usize); 3] = [
        (UPPER32, BASE32_DIGITS_MIN),
        (LOWER32, BASE32_DIGITS_MIN),
        (HEX, HEX_DIGITS_MIN),
    ];
    for (kind, least) in KINDS {
        let mut at = 0;
        while let Some(window) = digits.get(at..at + least) {
            // What stands last decides how far the next one is.
            if let Some(other) = window.iter().rposition(|b| class(*b) & kind == 0) {
                at += other + 1;
                continue;
            }
            let rest = digits.get(at..).unwrap_or_default();
            let len = rest.iter().take_while(|b| class(**b) & kind != 0).count();
            tell(kind, rest.get(..len).unwrap_or_default());
            at += len + 1;
        }
    }
}

/// Appends digits of `BITS` bits, `DIGITS` of which are `BYTES` bytes; bits that are left over count as the start of
/// one more byte.
fn packed<const BITS: u32, const DIGITS: usize, const BYTES: usize>(
    digits: &[u8],
    value: fn(u8) -> u8,
    out: &mut Vec<u8>,
) {
    let value = |all: u64, digit: &u8| all << BITS | u64::from(value(*digit));
    let (groups, rest) = digits.as_chunks::<DIGITS>();
    for group in groups {
        let all = group.iter().fold(0, value) << (64 - 8 * BYTES);
        if let Some(bytes) = all.to_be_bytes().first_chunk::<BYTES>() {
            out.extend_from_slice(bytes);
        }
    }
    // With a gap behind it.
    let bits = BITS * rest.len() as u32;
    let all = rest.iter().fold(0, value);
    let all = all.checked_shl(64 - bits).unwrap_or(0).to_be_bytes();
    let bytes = bits.div_ceil(8) as usize;
    out.extend_from_slice(all.get(..=bytes).unwrap_or_default());
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
const UPPER32: u8 = 2;
const LOWER32: u8 = 4;
const HEX: u8 = 8;

fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(0)
}

static CLASSES: [u8; 256] = classes();

static VALUES64: [u8; 256] = values64();

fn value64(digit: u8) -> u8 {
    VALUES64.get(usize::from(digit)).copied().unwrap_or(0)
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
        if byte.is_ascii_uppercase() || matches!(byte, b'2'..=b'7') {
            classes[at] |= UPPER32;
        }
        if byte.is_ascii_lowercase() || matches!(byte, b'2'..=b'7') {
            classes[at] |= LOWER32;
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
    let mut values = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        values[at] = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => 0,
        };
        at += 1;
    }
    values
}
