//! The search beside a naive one: every token is found wherever it stands, whatever else is known.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails says where"
)]

use search::{Added, Finder, Found, PART_BYTES, Set};

/// Small numbers by chance, always the same ones.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn bytes(&mut self, alphabet: &[u8], len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..len {
            out.extend(alphabet.get(self.below(alphabet.len())));
        }
        out
    }
}

const KEYS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
const ALL: [&[u8]; 5] = [
    KEYS,
    b"abcdefghij",
    b"0123456789",
    b"ab1",
    b"x\xff\x00\x80y z",
];

fn found(finder: &Finder, text: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    finder.find(text, false, &mut |found: Found| numbers.push(found.number));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Adds in pieces, so that tables grow, move and stand beside one another.
fn set_of(tokens: &[Vec<u8>], chance: &mut Chance) -> Set {
    let mut set = Set::default();
    let mut left = tokens;
    while !left.is_empty() {
        let (now, later) = left.split_at(1 + chance.below(left.len()));
        let now: Vec<&[u8]> = now.iter().map(Vec::as_slice).collect();
        let more = [0, later.len()][chance.below(2)];
        set.add_all(&now, more, &mut |_, _| ());
        set.seal();
        left = later;
    }
    set
}

#[test]
fn every_token_is_found_at_every_place_and_under_its_number() {
    for round in 0..60 {
        let mut chance = Chance(0x5eed + round);
        let alphabet = ALL[chance.below(ALL.len())];
        let tokens: Vec<Vec<u8>> = (0..1 + chance.below(900))
            .map(|_| {
                let len = 6 + chance.below(59);
                chance.bytes(alphabet, len)
            })
            .collect();
        let set = set_of(&tokens, &mut chance);
        let finder = set.finder();
        for token in &tokens {
            let number = set.number(token).unwrap();
            assert_eq!(set.get(number), Some(token.as_slice()));
            let len = chance.below(200);
            let mut text = chance.bytes(KEYS, len);
            text.extend_from_slice(token);
            let len = chance.below(200);
            text.extend(chance.bytes(KEYS, len));
            assert!(
                found(&finder, &text).contains(&number),
                "round {round}: {token:?}"
            );
        }
    }
}

#[test]
fn what_many_tokens_have_in_common_hides_none_of_them() {
    let mut chance = Chance(77);
    for common in [0, 4, 8, 12, 16, 20, 24, 31, 40] {
        let head = chance.bytes(KEYS, common);
        for tail_first in [false, true] {
            let tokens: Vec<Vec<u8>> = (0..300)
                .map(|_| {
                    let own = chance.bytes(KEYS, 12);
                    match tail_first {
                        true => [own, head.clone()].concat(),
                        false => [head.clone(), own].concat(),
                    }
                })
                .collect();
            let set = set_of(&tokens, &mut chance);
            let finder = set.finder();
            assert_eq!(set.len(), 300);
            for token in &tokens {
                let number = set.number(token).unwrap();
                assert!(found(&finder, token).contains(&number), "{token:?}");
                assert_eq!(set.clone().add(token), Added::Known(number));
            }
        }
    }
}

#[test]
fn any_part_of_a_key_is_found_without_the_rest() {
    let mut chance = Chance(4242);
    for _ in 0..40 {
        let tokens: Vec<Vec<u8>> = (0..50)
            .map(|_| {
                let len = PART_BYTES + 1 + chance.below(48);
                chance.bytes(KEYS, len.min(64))
            })
            .collect();
        let set = set_of(&tokens, &mut chance);
        let finder = set.finder();
        for token in &tokens {
            let number = set.number(token).unwrap();
            for part in token.windows(PART_BYTES) {
                // Two places at which a letter stands beside a digit make it a part.
                let turns = part
                    .windows(2)
                    .filter(|two| {
                        two[0].is_ascii_digit() && two[1].is_ascii_alphabetic()
                            || two[0].is_ascii_alphabetic() && two[1].is_ascii_digit()
                    })
                    .count();
                if turns >= 2 {
                    let text = [b"  (", part, b")  "].concat();
                    assert!(
                        found(&finder, &text).contains(&number),
                        "{} of {}",
                        String::from_utf8_lossy(part),
                        String::from_utf8_lossy(token)
                    );
                }
            }
        }
    }
}

#[test]
fn nothing_is_found_that_is_not_there() {
    let mut chance = Chance(9);
    let tokens: Vec<Vec<u8>> = (0..2000)
        .map(|_| {
            let len = 8 + chance.below(9);
            chance.bytes(b"abcdef", len)
        })
        .collect();
    let set = set_of(&tokens, &mut chance);
    let text = chance.bytes(b"abcdef", 40_000);
    let naive: Vec<u32> = (0..set.len())
        .filter(|number| {
            let token = set.get(*number).unwrap();
            text.windows(token.len()).any(|window| window == token)
        })
        .collect();
    assert_eq!(found(&set.finder(), &text), naive);
}
