//! One figure of the sensitive search, for `scripts/measure-scan`, which runs this once a figure, each in a
//! process of its own so that its memory is its own.
//!
//!     measure_scan tokens N FILE          N tokens, one a line
//!     measure_scan text KIND BYTES FILE   a text of a kind: plain, code, json, base64, percent, binary
//!     measure_scan ours TOKENS TEXT...    insertion, memory, search; one line of JSON
//!     measure_scan aho TOKENS TEXT...     the same with an automaton of the `aho-corasick` crate
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measurement that fails has nothing to hand on"
)]

use std::fmt::Write as _;

use kernel::sensitive::Sensitive;
use kernel::{EventId, Level, Source};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tokens", count, file] => std::fs::write(file, tokens(count.parse().unwrap())).unwrap(),
        ["text", kind, bytes, file] => {
            std::fs::write(file, text(kind, bytes.parse().unwrap())).unwrap();
        }
        ["ours", tokens, ref texts @ ..] => ours(tokens, texts),
        ["aho", tokens, ref texts @ ..] => aho(tokens, texts),
        _ => panic!("see the head of this file"),
    }
}

fn ours(tokens: &str, texts: &[&str]) {
    let content = std::fs::read_to_string(tokens).unwrap();
    let bytes: usize = content.lines().map(str::len).sum();
    let before = resident();
    let mut sensitive = Sensitive::default();
    let start = spent();
    sensitive.add_text(&content, Level::Critical, &Source::Task, EventId(1));
    let adding = spent() - start;
    let resident = resident() - before;
    let held = sensitive.bytes_held();
    let start = spent();
    let scanner = sensitive.scanner();
    let handed = spent() - start;
    // What one small secret more costs, the search included.
    let start = spent();
    for event in 0..1000 {
        let text = format!("LATE={event:x}-late-secret-{event}");
        sensitive.add_text(&text, Level::Critical, &Source::Task, EventId(event + 2));
        std::hint::black_box(sensitive.scanner());
    }
    let late = (spent() - start) / 1000.0;
    let mut out = format!(
        r#"{{"tokens": {}, "token_bytes": {bytes}, "insert_mb_s": {:.1}, "held": {held}, "resident": {resident}, "scanner_us": {:.2}, "late_us": {:.2}, "search": ["#,
        sensitive.len() - 1000,
        content.len() as f64 / 1e6 / adding,
        handed * 1e6,
        late * 1e6,
    );
    for (at, file) in texts.iter().enumerate() {
        let text = std::fs::read(file).unwrap();
        let plain = best(|| scanner.scan_plain(&text).tokens().count());
        let coded = best(|| scanner.scan(&text).tokens().count());
        let comma = if at == 0 { "" } else { ", " };
        let mb = text.len() as f64 / 1e6;
        write!(
            out,
            r#"{comma}{{"plain_mb_s": {:.1}, "coded_mb_s": {:.1}, "found": {}}}"#,
            mb / plain.0,
            mb / coded.0,
            plain.1
        )
        .unwrap();
    }
    println!("{out}]}}");
}

fn aho(tokens: &str, texts: &[&str]) {
    let content = std::fs::read_to_string(tokens).unwrap();
    let patterns: Vec<&str> = content.lines().collect();
    let before = resident();
    let start = spent();
    // As the search: every token, wherever it stands, in any case.
    let automaton = aho_corasick::AhoCorasick::builder()
        .match_kind(aho_corasick::MatchKind::Standard)
        .build(&patterns)
        .unwrap();
    let adding = spent() - start;
    let mut out = format!(
        r#"{{"tokens": {}, "insert_mb_s": {:.1}, "held": {}, "resident": {}, "search": ["#,
        patterns.len(),
        content.len() as f64 / 1e6 / adding,
        automaton.memory_usage(),
        resident() - before,
    );
    for (at, file) in texts.iter().enumerate() {
        let text = std::fs::read(file).unwrap();
        let found = best(|| {
            automaton
                .find_overlapping_iter(&text)
                .map(|found| found.pattern())
                .collect::<std::collections::BTreeSet<_>>()
                .len()
        });
        let comma = if at == 0 { "" } else { ", " };
        write!(
            out,
            r#"{comma}{{"plain_mb_s": {:.1}, "found": {}}}"#,
            text.len() as f64 / 1e6 / found.0,
            found.1
        )
        .unwrap();
    }
    println!("{out}]}}");
}

/// The clock steps by a few milliseconds: what is shorter than this is done again.
const SECONDS_MIN: f64 = 0.2;

/// The best of three: seconds, and what it gave.
fn best(mut run: impl FnMut() -> usize) -> (f64, usize) {
    let mut best = (f64::MAX, 0);
    for _ in 0..3 {
        let (start, mut runs) = (spent(), 0);
        let (took, found) = loop {
            let found = run();
            runs += 1;
            let took = spent() - start;
            if took >= SECONDS_MIN {
                break (took / f64::from(runs), found);
            }
        };
        if took < best.0 {
            best = (took, found);
        }
    }
    best
}

/// Seconds that this thread has had a processor, so that who else works on the machine counts little.
fn spent() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds: u64 = stat.split_whitespace().next().unwrap().parse().unwrap();
    nanoseconds as f64 / 1e9
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

struct Chance(u64);

impl Chance {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }
}

/// What secrets look like: keys with a known beginning, random words, digits, passwords.
fn tokens(count: usize) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const HEADS: [&str; 6] = ["sk-proj-", "ghp_", "AKIA", "xoxb-", "glpat-", "eyJhbGciOi"];
    let mut chance = Chance(0x5eed_1234_5678_9abc);
    let mut out = String::new();
    for _ in 0..count {
        let (head, alphabet, length) = match chance.next(10) {
            0..=2 => (
                HEADS[chance.next(HEADS.len())],
                LETTERS,
                16 + chance.next(24),
            ),
            3..=5 => ("", &LETTERS[36..], 16 + chance.next(17)),
            6..=7 => ("", LETTERS, 10 + chance.next(15)),
            8 => ("", &LETTERS[52..], 9 + chance.next(8)),
            _ => ("", &LETTERS[26..52], 8 + chance.next(9)),
        };
        out += head;
        for _ in 0..length {
            out.push(char::from(alphabet[chance.next(alphabet.len())]));
        }
        out.push('\n');
    }
    out
}

/// A text without any of the tokens, but by chance.
fn text(kind: &str, bytes: usize) -> Vec<u8> {
    let mut chance = Chance(0x7e47_0000_1111_2222);
    let vowels = b"aeiou";
    let others = b"bcdfghklmnprstvwz";
    let words: Vec<String> = (0..4000)
        .map(|_| {
            let mut word = String::new();
            for _ in 0..1 + chance.next(4) {
                word.push(char::from(others[chance.next(others.len())]));
                word.push(char::from(vowels[chance.next(5)]));
            }
            word + ["n", "", "s", ""][chance.next(4)]
        })
        .collect();
    let word = |chance: &mut Chance| words[chance.next(4000).min(chance.next(4000))].clone();
    let mut plain = String::new();
    while plain.len() < bytes {
        let first = word(&mut chance);
        match kind {
            "code" => {
                let (a, b) = (word(&mut chance), word(&mut chance));
                let number = chance.next(10_000);
                let _ = match chance.next(4) {
                    0 => writeln!(plain, "    let {first}_{a} = self.{b}({number})?;"),
                    1 => writeln!(plain, "        if {first} != {a} && {b}.is_some() {{"),
                    2 => writeln!(plain, "    // The {first} of a {a} is {b}."),
                    _ => writeln!(plain, "use crate::{first}::{{{a}, {b}}};"),
                };
            }
            "json" => {
                let (a, b) = (word(&mut chance), word(&mut chance));
                let number = chance.next(1_000_000);
                let _ = write!(
                    plain,
                    r#"{{"{first}": "{a} \"{b}\"\n", "at": {number}, "ok": true}}, "#
                );
            }
            _ => {
                plain += &first;
                plain += match chance.next(14) {
                    0 => ".\n",
                    1 => ", ",
                    _ => " ",
                };
            }
        }
    }
    plain.truncate(bytes);
    match kind {
        "base64" => {
            let bytes: Vec<u8> = (0..bytes / 4 * 3).map(|_| chance.next(256) as u8).collect();
            const DIGITS: &[u8] =
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let mut out = Vec::new();
            for three in bytes.chunks(3) {
                let all = three.iter().fold(0u32, |all, b| all << 8 | u32::from(*b));
                out.extend([18, 12, 6, 0].map(|shift| DIGITS[(all >> shift) as usize & 63]));
            }
            out
        }
        "percent" => {
            let mut out = String::new();
            for byte in plain.bytes().take(bytes / 2) {
                match byte {
                    b'a'..=b'z' if chance.next(4) > 0 => out.push(char::from(byte)),
                    _ => {
                        let _ = write!(out, "%{byte:02X}");
                    }
                }
            }
            out.into_bytes()
        }
        "binary" => (0..bytes).map(|_| chance.next(256) as u8).collect(),
        _ => plain.into_bytes(),
    }
}
