//! Bank accounts (IBAN, ISO 13616, checked modulo 97) and cards (ISO/IEC 7812, checked by Luhn's
//! formula), also written in groups.

use alloc::string::String;

/// Every account in a line whose checksum is right, without blanks and hyphens.
pub(crate) fn each(line: &str, mut sink: impl FnMut(&str)) {
    // Nothing shorter than the shortest card or IBAN holds enough digits.
    if line.bytes().filter(u8::is_ascii_digit).count() < 12 {
        return;
    }
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let fresh = at == 0 || !is_word(bytes.get(at - 1));
        let end = fresh
            .then(|| iban(bytes, at).or_else(|| card(bytes, at)))
            .flatten();
        if let Some(end) = end {
            let text: String = line
                .get(at..end)
                .unwrap_or_default()
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            sink(&text);
        }
        at = end.unwrap_or(at + 1);
    }
}

fn is_word(byte: Option<&u8>) -> bool {
    byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b >= 0x80)
}

/// Letters and digits from a place on, each with the place behind it; single blanks and hyphens
/// between them are passed over.
fn characters(bytes: &[u8], mut at: usize) -> impl Iterator<Item = (u8, usize)> {
    core::iter::from_fn(move || {
        if matches!(bytes.get(at), Some(b' ' | b'-')) {
            at += 1;
        }
        let byte = *bytes.get(at)?;
        at += 1;
        byte.is_ascii_alphanumeric().then_some((byte, at))
    })
}

/// Where an IBAN that starts here ends.
fn iban(bytes: &[u8], at: usize) -> Option<usize> {
    let head = bytes.get(at..at + 4)?;
    let shape = [
        u8::is_ascii_uppercase,
        u8::is_ascii_uppercase,
        u8::is_ascii_digit,
        u8::is_ascii_digit,
    ];
    if !head.iter().zip(shape).all(|(byte, is)| is(byte)) {
        return None;
    }
    let feed = |rest: u32, byte: u8| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte.to_ascii_uppercase() - b'A') + 10) % 97,
    };
    let (mut rest, mut best) = (0, None);
    for (n, (byte, end)) in characters(bytes, at + 4).take(30).enumerate() {
        rest = feed(rest, byte);
        let whole = head.iter().fold(rest, |rest, byte| feed(rest, *byte));
        if n >= 10 && whole == 1 && !is_word(bytes.get(end)) {
            best = Some(end);
        }
    }
    best
}

/// Where a card number that starts here ends.
fn card(bytes: &[u8], at: usize) -> Option<usize> {
    // Doubling every second digit from the right: both ways of doubling are kept up to date.
    let (mut even, mut odd, mut best) = (0, 0, None);
    let digits = characters(bytes, at).take_while(|(byte, _)| byte.is_ascii_digit());
    for (n, (byte, end)) in digits.take(19).enumerate() {
        let digit = u32::from(byte - b'0');
        let doubled = if digit > 4 { digit * 2 - 9 } else { digit * 2 };
        (even, odd) = (odd + digit, even + doubled);
        if n >= 12 && even % 10 == 0 && !is_word(bytes.get(end)) {
            best = Some(end);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn accounts_are_told_by_their_checksums() {
        let found = |line: &str| {
            let mut all = Vec::new();
            each(line, |text| all.push(text.to_string()));
            all
        };
        assert_eq!(
            found("to GB29 NWBK 6016 1331 9268 19, please"),
            ["GB29NWBK60161331926819"]
        );
        assert_eq!(found("DE89370400440532013000"), ["DE89370400440532013000"]);
        assert!(found("GB29 NWBK 6016 1331 9268 18").is_empty());
        assert_eq!(found("card 4111-1111-1111-1111."), ["4111111111111111"]);
        assert!(found("card 4111-1111-1111-1112").is_empty());
        assert_eq!(
            found("5555 5555 5555 4444 and 3782 822463 10005"),
            ["5555555555554444", "378282246310005"]
        );
        assert!(found("x4111111111111111").is_empty());
    }
}
