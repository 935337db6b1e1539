//! What people and oracles are shown holds no secret, in any form that is searched for.

use kernel::policy::{Glob, NoRules, Policy, SensitiveRule, SourcePattern};
use kernel::{Channel, Content, EventId, Incoming, Input, Level, Scanner, Source, State, step};

fn scanner() -> Scanner {
    let policy = Policy {
        sensitive: vec![SensitiveRule {
            of: SourcePattern::Location {
                tree: "*".to_string(),
                path: Glob(".env".to_string()),
            },
            level: Level::Critical,
        }],
        ..Policy::default()
    };
    let mut state = State::default();
    let incoming = Incoming {
        channel: Channel::File,
        source: Source::Location {
            tree: "workspace".to_string(),
            path: ".env".to_string(),
        },
        content: Content::new(b"API_KEY=s3cr3t-value-42\nOTHER=zweites\"geheim\n".to_vec()),
        leaves: Vec::new(),
        answers: None,
        layer: None,
    };
    let input = Input::Incoming {
        event: EventId(1),
        incoming,
    };
    step(&mut state, &policy, &NoRules, "w", input);
    state.provenance().scanner()
}

#[test]
fn secrets_are_replaced_and_the_rest_stays() {
    let scanner = scanner();
    for (text, expect) in [
        ("nothing to hide", "nothing to hide"),
        ("key=s3cr3t-value-42!", "key=[secret]!"),
        (
            "s3cr3t-value-42 and s3cr3t-value-42",
            "[secret] and [secret]",
        ),
        ("hex 7333637233742d76616c75652d3432.", "hex [secret]."),
        // Shows only after decoding: nothing of it is shown.
        ("x=s3cr3t%2Dvalue%2D42", "[secret]"),
        ("ünicode s3cr3t-value-42 ümlaut", "ünicode [secret] ümlaut"),
    ] {
        assert_eq!(scanner.redacted(text), expect, "{text}");
    }
    let shown = scanner.redacted("Authorization: Basic czNjcjN0LXZhbHVlLTQy");
    assert!(!shown.contains("czNjcjN0LXZhbHVl"), "{shown}");
}

#[test]
fn what_was_replaced_is_not_found_again() {
    let scanner = scanner();
    for text in [
        "s3cr3t-value-42s3cr3t-value-42",
        "s3cr3t-value-s3cr3t-value-4242",
        "{\"k\":\"zweites\\\"geheim\"}",
    ] {
        let shown = scanner.redacted(text);
        assert_eq!(
            scanner.scan(shown.as_bytes()).tokens().count(),
            0,
            "{shown}"
        );
    }
}
