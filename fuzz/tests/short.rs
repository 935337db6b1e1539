//! Every target over its seeds, over what was found before, and over mutations of both: what a machine without the
//! fuzzing engine can do in the test command. `scripts/fuzz` looks further.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use targets::{TARGETS, Target};

/// For each target; mutations beyond it are left to the engine.
const TIME: Duration = Duration::from_millis(1000);
const MUTATIONS: u64 = 20_000;

#[test]
fn targets_hold_over_seeds_and_mutations() {
    for target in TARGETS {
        let corpus = corpus(target);
        for bytes in &corpus {
            run(target, bytes);
        }
        let started = Instant::now();
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        let mut done = 0;
        for _ in 0..MUTATIONS {
            if started.elapsed() > TIME {
                break;
            }
            run(target, &mutated(&corpus, &mut chance));
            done += 1;
        }
        println!("{}: {} seeds, {done} mutations", target.name, corpus.len());
        assert!(!corpus.is_empty(), "{} has no seed", target.name);
    }
}

#[test]
fn every_target_has_its_binary() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    for name in &names {
        let path = format!("fuzz_targets/{name}.rs");
        assert!(
            manifest.contains(&path),
            "fuzz/Cargo.toml has no [[bin]] for {path}"
        );
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        assert!(
            text.contains(&format!("targets::{name}::run")),
            "{path} runs something else"
        );
    }
    for file in std::fs::read_dir(root().join("fuzz_targets")).unwrap() {
        let stem = file
            .unwrap()
            .path()
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        assert!(
            names.contains(&&*stem),
            "fuzz_targets/{stem}.rs is not in TARGETS"
        );
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Seeds, and files in `seeds/NAME/`: what the engine found once.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = target.seeds.iter().map(|seed| seed.to_vec()).collect();
    if let Ok(files) = std::fs::read_dir(root().join("seeds").join(target.name)) {
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        all.extend(paths.iter().map(|path| std::fs::read(path).unwrap()));
    }
    all
}

fn run(target: &Target, bytes: &[u8]) {
    let result = std::panic::catch_unwind(|| (target.run)(bytes));
    assert!(
        result.is_ok(),
        "target {} fails on these bytes (keep them as a file in fuzz/seeds/{}/): {}",
        target.name,
        target.name,
        bytes.escape_ascii()
    );
}

/// One to four changes: a bit, a byte, a piece taken out, doubled, or brought in from another seed.
fn mutated(corpus: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = corpus[chance.below(corpus.len())].clone();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        let end = at + chance.below(bytes.len() - at + 1).min(32);
        match chance.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 if at < bytes.len() => bytes[at] = chance.next() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = &corpus[chance.below(corpus.len())];
                let from = chance.below(other.len() + 1);
                let to = from + chance.below(other.len() - from + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ => {
                let word = WORDS[chance.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
    bytes
}

const WORDS: &[&[u8]] = &[
    b"\x00",
    b"\xff",
    b"\r\n",
    b"\n",
    b"\x1b",
    b"\x1b]",
    b"\x1b[",
    b"%",
    b"%2e",
    b"..",
    b"\\",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"null",
    b"-1",
    b"18446744073709551615",
    b"\xc2\x9b",
    b"\xe2\x80\x8b",
    b"0",
    b"1e999",
    b"data: ",
    b"\\u0000",
    b"=",
];

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
