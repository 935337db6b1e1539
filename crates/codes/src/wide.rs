//! UTF-16 as UTF-8. Searched for where every second byte is zero for a while, as in text with Latin letters.

use alloc::vec::Vec;

use memchr::memchr;

/// Stands between stretches that are not neighbours.
const GAP: u8 = 0;
/// Bytes on both sides of a zero that may belong to the same text.
const REACH: usize = 512;

/// Whether there is any of it.
pub fn is_in(text: &[u8]) -> bool {
    memchr::memchr_iter(0, text).any(|zero| is_latin(text, zero))
}

/// Appends the surroundings of zeros, read as UTF-16.
pub fn narrowed(text: &[u8], little: bool, out: &mut Vec<u8>) {
    let mut from = 0;
    // The end of the last stretch.
    let mut done = 0;
    while let Some(found) = text.get(from..).and_then(|rest| memchr(0, rest)) {
        let zero = from + found;
        // The high byte comes second when the order is little-endian.
        let Some(first) = zero.checked_sub(usize::from(little)) else {
            from = zero + 1;
            continue;
        };
        if !is_latin(text, zero) {
            from = zero + 1;
            continue;
        }
        let start = first.saturating_sub(REACH).max(done);
        let start = start + (start ^ first) % 2;
        let end = stretch_end(text, zero);
        if let Some(stretch) = text.get(start..end) {
            decoded(stretch, little, out);
            out.push(GAP);
        }
        done = end;
        from = end.max(zero + 1);
    }
}

/// Whether zeros stand here at every second place, and not only zeros.
fn is_latin(text: &[u8], zero: usize) -> bool {
    matches!(text.get(zero..), Some([0, a, 0, b, 0, ..]) if *a != 0 || *b != 0)
}

/// The end of the stretch around a zero: [`REACH`] bytes after the last zero.
fn stretch_end(text: &[u8], zero: usize) -> usize {
    let mut last = zero;
    loop {
        let ahead = text.get(last + 1..(last + 1 + REACH).min(text.len()));
        match ahead.and_then(|bytes| memchr(0, bytes)) {
            Some(found) => last += 1 + found,
            None => return (last + 1 + REACH).min(text.len()),
        }
    }
}

fn decoded(stretch: &[u8], little: bool, out: &mut Vec<u8>) {
    let units = stretch.as_chunks::<2>().0.iter().map(|pair| {
        if little {
            u16::from_le_bytes(*pair)
        } else {
            u16::from_be_bytes(*pair)
        }
    });
    let mut utf8 = [0; 4];
    for c in char::decode_utf16(units) {
        let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
    }
}
