//! Against the model, and against what an exfiltrator would do.

use std::collections::BTreeSet;

use kernel::sensitive::Sensitive;
use kernel::{Carried, EventId, Level, Scanner, Source};
use proptest::prelude::*;
use proptest::sample::select;

use crate::codes::Code;
use crate::model;

/// `S` that holds just these tokens, one a line.
fn sensitive(tokens: &[String]) -> Sensitive {
    let mut sensitive = Sensitive::default();
    for (event, token) in tokens.iter().enumerate() {
        let event = EventId(event as u64 + 1);
        sensitive.add_text(token, Level::Critical, &Source::Task, event);
    }
    sensitive
}

fn numbers(carried: &Carried) -> BTreeSet<usize> {
    carried.tokens().collect()
}

fn in_pieces(scanner: &Scanner, text: &[u8], cuts: &[usize]) -> Carried {
    let mut scan = scanner.start();
    let mut rest = text;
    for cut in cuts {
        let (piece, after) = rest.split_at(cut % (rest.len() + 1));
        scan.feed(piece);
        rest = after;
    }
    scan.feed(rest);
    scan.finish()
}

/// Few letters, so that tokens overlap and nearly match.
fn few() -> impl Strategy<Value = String> {
    "[abAB1]{6,12}".prop_filter("everybody writes it", |token| is_one(token))
}

/// Whether a text is one token, not a word that everybody writes.
fn is_one(text: &str) -> bool {
    let sensitive = sensitive(&[text.to_string()]);
    sensitive.len() == 1 && sensitive.number_of(text.as_bytes()).is_some()
}

fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9]{6,40}",
        "[a-z]{6,9}",
        "[a-zA-Z0-9/+_.#$%!*-]{5,60}[a-z0-9]",
        "[a-zäöüß€]{7,20}",
        "[a-z0-9]{5,20}😀[a-z]{2,5}",
    ]
    .prop_filter("not cut into pieces", |token| {
        let bytes = token.as_bytes();
        bytes.len() <= 64
            && bytes.iter().any(|b| *b != bytes[0])
            && !token.starts_with(['.', '-'])
            && !token.ends_with(['.', '-'])
            && is_one(token)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Without codes the search is exact.
    #[test]
    fn plain_is_exact(tokens in prop::collection::btree_set(few(), 1..40), text in "[abAB1]{0,120}") {
        let tokens: Vec<String> = tokens.into_iter().collect();
        let sensitive = sensitive(&tokens);
        let bytes: Vec<Vec<u8>> = tokens.iter().map(|t| t.as_bytes().to_vec()).collect();
        prop_assert_eq!(sensitive.len(), tokens.len());
        let found = numbers(&sensitive.scanner().scan_plain(text.as_bytes()));
        prop_assert_eq!(found, model::plain(&bytes, text.as_bytes()));
    }

    /// So it is for parts of tokens: cut out of them, in any case, between what else there may be.
    #[test]
    fn parts_are_exact(
        tokens in prop::collection::btree_set("[abc12]{17,20}|[a-z]{9,14}[0-9]{2}[a-z]{9,14}|[A-Za-z0-9_-]{20,64}|[a-z0-9 ß]{20,40}", 1..6),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, 10usize..30, any::<bool>(), "[abc12 ]{0,20}"), 1..6),
    ) {
        let tokens: Vec<String> = tokens.into_iter().filter(|token| !token.contains(' ')).collect();
        let mut text = Vec::new();
        for (which, from, len, upper, between) in cuts {
            if let Some(token) = tokens.get(which.index(tokens.len().max(1))) {
                let part = token.as_bytes().get(from..).unwrap_or_default();
                let part = &part[..len.min(part.len())];
                text.extend(if upper { part.to_ascii_uppercase() } else { part.to_vec() });
            }
            text.extend(between.into_bytes());
        }
        let mut set = search::Set::default();
        for token in &tokens {
            set.add(token.as_bytes());
        }
        set.seal();
        let mut found = BTreeSet::new();
        set.finder().find(&text, false, &mut |one| {
            found.insert(one.number as usize);
        });
        let bytes: Vec<Vec<u8>> = tokens.iter().map(|t| t.as_bytes().to_vec()).collect();
        prop_assert_eq!(found, model::plain(&bytes, &text), "{:?} in {:?}", tokens, String::from_utf8_lossy(&text));
    }

    /// What the model finds, the search finds.
    #[test]
    fn the_model_finds_no_more(
        tokens in prop::collection::btree_set(token(), 1..6),
        parts in prop::collection::vec((any::<prop::sample::Index>(), select(&Code::ALL[..]), "[ a-f0-9=%&\\\\n\",:-]{0,9}"), 1..4),
        cuts in prop::collection::vec(0usize..400, 0..4),
    ) {
        let tokens: Vec<String> = tokens.into_iter().collect();
        let mut text = Vec::new();
        for (which, code, between) in parts {
            text.extend(code.apply(which.get(&tokens).as_bytes()));
            text.extend(between.into_bytes());
            // A backslash before a token would make an escape of its first letter.
            text.push(b' ');
        }
        let bytes: Vec<Vec<u8>> = tokens.iter().map(|t| t.as_bytes().to_vec()).collect();
        let expected = model::coded(&bytes, &text, 2);
        let found = numbers(&in_pieces(&sensitive(&tokens).scanner(), &text, &cuts));
        prop_assert!(expected.is_subset(&found), "{:?} in {:?}: model {expected:?}, search {found:?}", tokens, String::from_utf8_lossy(&text));
    }

    /// A token is found under any three codes one within the other, between any other bytes.
    #[test]
    fn codes_are_undone(
        token in token(),
        before in "[a-zA-Z0-9 ,;:{}\"\n]{0,50}",
        inner_before in "[a-zA-Z0-9 ]{0,7}",
        inner_after in "[a-zA-Z0-9 ]{0,7}",
        codes in prop::collection::vec(select(&Code::ALL[..]), 0..=3),
        noise in prop_oneof![Just(Vec::new()), prop::collection::vec(prop_oneof![0x80..=0xffu8, 1..=8u8], 0..1500)],
        cuts in prop::collection::vec(0usize..3000, 0..5),
    ) {
        let mut coded = format!("{inner_before}{token}{inner_after}").into_bytes();
        let (mut folded, mut was_wide) = (false, false);
        for code in &codes {
            if code.is_for_text() && std::str::from_utf8(&coded).is_err() {
                continue;
            }
            // Found where three Latin characters stand together.
            let wide = matches!(code, Code::Utf16Le | Code::Utf16Be);
            if wide && !coded.windows(3).any(|w| w.is_ascii()) {
                continue;
            }
            // Within base64 and the like, a code is looked for where printable characters stand together.
            let printable = |b: &u8| (b' '..=b'~').contains(b) || matches!(b, b'\r' | b'\n');
            if code.is_noise() && folded && !was_wide && !coded.iter().all(printable) {
                continue;
            }
            // Upper case changes what other codes say.
            if *code == Code::Upper && (folded || code != &codes[0] || token.len() < 8) {
                continue;
            }
            folded = true;
            was_wide = wide;
            coded = code.apply(&coded);
        }
        let mut text = noise.clone();
        text.extend(before.into_bytes());
        text.push(b' ');
        text.extend(coded);
        text.extend(b" and so on");
        text.extend(noise);
        let found = in_pieces(&sensitive(std::slice::from_ref(&token)).scanner(), &text, &cuts);
        prop_assert_eq!(numbers(&found), BTreeSet::from([0]), "{:?} under {:?}: {:?}", token, codes, String::from_utf8_lossy(&text));
    }

    /// How the bytes are cut changes nothing.
    #[test]
    fn pieces_change_nothing(
        tokens in prop::collection::btree_set(token(), 1..6),
        text in prop::collection::vec(any::<u8>(), 0..500),
        cuts in prop::collection::vec(0usize..500, 0..8),
    ) {
        let tokens: Vec<String> = tokens.into_iter().collect();
        let scanner = sensitive(&tokens).scanner();
        prop_assert_eq!(in_pieces(&scanner, &text, &cuts), scanner.scan(&text));
    }

    /// Nothing crashes it, and nothing secret is shown.
    #[test]
    fn redacted_holds_nothing(
        tokens in prop::collection::btree_set(token(), 1..4),
        code in select(&Code::ALL[..]),
        before in ".{0,20}",
    ) {
        let tokens: Vec<String> = tokens.into_iter().collect();
        let scanner = sensitive(&tokens).scanner();
        let text = before + &String::from_utf8_lossy(&code.apply(tokens[0].as_bytes()));
        let shown = scanner.redacted(&text);
        prop_assert_eq!(scanner.scan(shown.as_bytes()).tokens().count(), 0, "{}", shown);
    }
}

/// Larger than a block, cut where a token stands.
#[test]
fn tokens_across_blocks_are_found() {
    let token = "s3cr3t-Value-in-0ne-piece";
    let scanner = sensitive(&[token.to_string()]).scanner();
    let coded = Code::Json.apply(&Code::Percent.apply(&Code::Base64.apply(token.as_bytes())));
    for at in (200_000..300_000).step_by(1777) {
        let mut text = vec![b'.'; at];
        text.extend(&coded);
        text.resize(600_000, b' ');
        assert_eq!(
            in_pieces(&scanner, &text, &[at / 3, 5]).tokens().count(),
            1,
            "{at}"
        );
    }
}
