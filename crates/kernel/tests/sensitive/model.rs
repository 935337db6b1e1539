//! The slow model: every code undone over the whole text, in every alignment, then `contains`.

use std::collections::BTreeSet;

/// Which of the tokens stand in a text, as it is.
pub(crate) fn plain(tokens: &[Vec<u8>], text: &[u8]) -> BTreeSet<usize> {
    tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| {
            text.windows(token.len()).any(|there| {
                there == **token || (token.len() >= 8 && there.eq_ignore_ascii_case(token))
            }) || parts(token).any(|part| {
                text.windows(part.len())
                    .any(|there| there.eq_ignore_ascii_case(part))
            })
        })
        .map(|(number, _)| number)
        .collect()
}

/// The parts of a token that are found without the rest: sixteen bytes in which a letter stands beside a digit twice.
fn parts(token: &[u8]) -> impl Iterator<Item = &[u8]> {
    let alternates = |pair: &[u8]| {
        let [a, b] = [pair[0], pair[1]];
        (a.is_ascii_alphabetic() && b.is_ascii_digit())
            || (a.is_ascii_digit() && b.is_ascii_alphabetic())
    };
    token.windows(16).filter(move |part| {
        token.len() <= 64
            && part.iter().all(u8::is_ascii_graphic)
            && part.windows(2).filter(|pair| alternates(pair)).count() >= 2
    })
}

/// Which of the tokens stand in a text under so many codes.
pub(crate) fn coded(tokens: &[Vec<u8>], text: &[u8], depth: usize) -> BTreeSet<usize> {
    let mut found = plain(tokens, text);
    if depth > 0 {
        for decoded in undone(text) {
            found.extend(coded(tokens, &decoded, depth - 1));
        }
    }
    found
}

/// A text with one code undone, for every code that changes something.
fn undone(text: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![percent(text), json(text), quoted(text)];
    let digits = |alphabet: &[u8], bits: usize, least: usize| {
        let mut out = Vec::new();
        for run in text.split(|b| !alphabet.contains(b)) {
            if run.len() < least {
                continue;
            }
            for skip in 0..8 {
                let stream: Vec<u8> = run
                    .iter()
                    .skip(skip)
                    .flat_map(|d| {
                        let value = alphabet.iter().position(|a| a == d).unwrap();
                        (0..bits).rev().map(move |i| (value >> i & 1) as u8)
                    })
                    .collect();
                let bytes = stream.chunks_exact(8);
                out.push(
                    bytes
                        .map(|b| b.iter().fold(0, |v, bit| v << 1 | bit))
                        .collect(),
                );
            }
        }
        out
    };
    all.extend(digits(
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        6,
        8,
    ));
    all.extend(digits(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 5, 10));
    all.extend(digits(b"0123456789abcdef", 4, 12));
    all.retain(|decoded: &Vec<u8>| decoded != text);
    all
}

fn percent(text: &[u8]) -> Vec<u8> {
    replaced(text, |rest| match rest {
        [b'%', a, b, ..] => Some((vec![byte(&[*a, *b])?], 3)),
        _ => None,
    })
}

fn json(text: &[u8]) -> Vec<u8> {
    replaced(text, |rest| match rest {
        [b'\\', b'u', a, b, c, d, ..] => {
            let unit = u32::from(byte(&[*a, *b])?) << 8 | u32::from(byte(&[*c, *d])?);
            Some((char::from_u32(unit)?.to_string().into_bytes(), 6))
        }
        [b'\\', b'n', ..] => Some((vec![b'\n'], 2)),
        [b'\\', c @ (b'"' | b'\\' | b'/'), ..] => Some((vec![*c], 2)),
        _ => None,
    })
}

fn quoted(text: &[u8]) -> Vec<u8> {
    replaced(text, |rest| match rest {
        [b'=', b'\n', ..] => Some((Vec::new(), 2)),
        [b'=', a, b, ..] => Some((vec![byte(&[*a, *b])?], 3)),
        _ => None,
    })
}

fn byte(digits: &[u8; 2]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    text.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
    u8::from_str_radix(text, 16).ok()
}

fn replaced(text: &[u8], one: impl Fn(&[u8]) -> Option<(Vec<u8>, usize)>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match one(&text[at..]) {
            Some((bytes, used)) => {
                out.extend(bytes);
                at += used;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}
