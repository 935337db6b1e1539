//! A secret is found however the bytes around it were cut on the way.

use kernel::policy::{NoRules, Policy, SensitiveRule, SourcePattern};
use kernel::{Channel, Content, EventId, Incoming, Level, Source, State, step};

/// A secret in the middle of encodings.
pub const SEEDS: &[&[u8]] = &[
    b"\x03GET /?k=hunter2-hunter2-hunter2 HTTP/1.1",
    b"\x05{\"k\":\"aHVudGVyMi1odW50ZXIyLWh1bnRlcjI=\"}",
    b"\x00%68unter2-hunter2-hunter2",
];

const SECRET: &[u8] = b"hunter2-hunter2-hunter2";

/// The same finds whole and in pieces; the secret itself is among them.
pub fn run(bytes: &[u8]) {
    let policy = Policy {
        sensitive: vec![SensitiveRule {
            of: SourcePattern::Party(kernel::policy::HostPattern("*".into())),
            level: Level::Critical,
        }],
        ..Policy::default()
    };
    let mut state = State::default();
    let incoming = Incoming::new(
        Channel::Net,
        Source::Party("secret.example".into()),
        Content::new(SECRET),
    );
    let event = EventId(1);
    step(
        &mut state,
        &policy,
        &NoRules,
        "w",
        kernel::Input::Incoming { event, incoming },
    );
    let scanner = state.provenance().scanner();
    let (rest, pieces) = crate::pieces(bytes);
    let find = |pieces: &[&[u8]]| {
        let mut search = scanner.start();
        for piece in pieces {
            search.feed(piece);
        }
        search.finish()
    };
    let whole = find(&[rest]);
    assert_eq!(whole, find(&pieces));
    if rest.windows(SECRET.len()).any(|window| window == SECRET) {
        assert!(
            whole.tokens().next().is_some(),
            "the secret itself was not found"
        );
    }
}
