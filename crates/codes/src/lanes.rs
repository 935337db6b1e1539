//! Sixteen bytes that are looked at together; what is said of them is one bit each, the first byte's lowest.

use wide::u8x16;

/// Digits of base64 in either alphabet, and those of hexadecimal.
#[inline(always)]
pub(crate) fn digits(bytes: [u8; 16]) -> (u16, u16) {
    let all = u8x16::new(bytes);
    let lower = all | u8x16::splat(0x20);
    let is = |byte| all.simd_eq(u8x16::splat(byte));
    let number = between(all, b'0', b'9');
    let base64 = between(lower, b'a', b'z') | number | is(b'/') | is(b'+') | is(b'-') | is(b'_');
    let hex = between(lower, b'a', b'f') | number;
    (bits(base64), bits(hex))
}

/// Bytes that an escape begins with.
#[inline(always)]
pub(crate) fn leads(bytes: [u8; 16]) -> u16 {
    let all = u8x16::new(bytes);
    let is = |byte| all.simd_eq(u8x16::splat(byte));
    // `%` and `&` are neighbours.
    bits(between(all, b'%', b'&') | is(b'\\') | is(b'=') | is(b'x'))
}

/// Printable, spaces among them.
#[inline(always)]
pub(crate) fn printable(bytes: [u8; 16]) -> u16 {
    bits(between(u8x16::new(bytes), b' ', b'~'))
}

/// Neither printable nor white space.
#[inline(always)]
pub(crate) fn strange(bytes: [u8; 16]) -> u16 {
    let all = u8x16::new(bytes);
    let is = |byte| all.simd_eq(u8x16::splat(byte));
    let text = between(all, b' ', b'~') | is(b'\t') | is(b'\n') | is(b'\r');
    !bits(text)
}

/// Those from one byte to another, both included.
#[inline(always)]
fn between(all: u8x16, first: u8, last: u8) -> u8x16 {
    let from = all - u8x16::splat(first);
    from.min(u8x16::splat(last.wrapping_sub(first)))
        .simd_eq(from)
}

#[inline(always)]
fn bits(which: u8x16) -> u16 {
    // Sixteen lanes are sixteen bits.
    which.to_bitmask() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_what_it_is() {
        for byte in 0..=u8::MAX {
            let all = [byte; 16];
            let same = |is: bool| if is { u16::MAX } else { 0 };
            let digit = byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
            let hex = byte.is_ascii_hexdigit();
            assert_eq!(digits(all), (same(digit), same(hex)), "{byte}");
            assert_eq!(leads(all), same(b"%&\\=x".contains(&byte)), "{byte}");
            let shown = (b' '..=b'~').contains(&byte);
            assert_eq!(printable(all), same(shown), "{byte}");
            assert_eq!(
                strange(all),
                same(!shown && !b"\t\n\r".contains(&byte)),
                "{byte}"
            );
        }
        let mut one = [0; 16];
        one[3] = b'a';
        assert_eq!((digits(one), printable(one), strange(one)), ((8, 8), 8, !8));
    }
}
