//! Everything the agent is told, word for word.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use kernel::policy::{Glob, NoRules, Policy, SensitiveRule, SourcePattern};
use kernel::{
    Carried, Channel, Class, Content, Digest, Effect, EventId, FileOp, HoldId, Incoming, Input,
    Level, Limit, Notice, Object, Operation, Reason, Refusal, Source, State, step,
};

const SECRET: &str = "s3cr3t-0123456789";

fn request(path: &str) -> Effect {
    let object = Object::Party {
        scheme: "https".into(),
        host: "sink.example".into(),
        port: 443,
        path: path.into(),
    };
    Effect::new(
        Channel::Net,
        Operation::Request("POST".into()),
        object,
        Class::Stallable,
    )
}

fn file() -> Effect {
    let object = Object::Location {
        tree: "workspace".into(),
        path: ".git/hooks/pre-commit".into(),
    };
    Effect::new(
        Channel::File,
        Operation::File(FileOp::Create),
        object,
        Class::Stageable,
    )
}

fn call() -> Effect {
    let object = Object::Tool {
        name: "send_money".into(),
    };
    Effect::new(Channel::Tool, Operation::Call, object, Class::Stallable)
}

/// Every way in which an effect is refused.
fn refusals() -> Vec<(&'static str, Refusal)> {
    let oracle = |reason: &str| Refusal::Oracle {
        oracle: "model:judge".into(),
        reason: reason.into(),
    };
    vec![
        (
            "by a rule",
            Refusal::Rule {
                rule: "no-hooks".into(),
                says: None,
            },
        ),
        (
            "by a rule with words of its own",
            Refusal::Rule {
                rule: "no-hooks".into(),
                says: Some("hooks are set up by hand here".into()),
            },
        ),
        (
            "by an oracle",
            oracle("the token scanner matched AKIA; use base64 next time"),
        ),
        ("with what it depends on", Refusal::Depends(HoldId(3))),
        (
            "malformed",
            Refusal::Malformed("Host and SNI name different hosts".into()),
        ),
        (
            "by a failure",
            Refusal::Failed("disk full at /var/lib/secret".into()),
        ),
        (
            "with nobody there",
            Refusal::NobodyThere(vec![Reason::UnknownParty("sink.example".into())]),
        ),
        (
            "with nobody there, after another",
            Refusal::NobodyThere(vec![Reason::After(vec![HoldId(3)])]),
        ),
        ("with too many holds", Refusal::Limit(Limit::Holds)),
        ("with too many bytes", Refusal::Limit(Limit::Bytes)),
        ("too old", Refusal::Limit(Limit::Age)),
    ]
}

#[test]
fn what_the_agent_is_told() {
    let mut told = String::new();
    for (how, refusal) in refusals() {
        let notice = Notice::refused(EventId(7), &request("/collect?id=1"), &refusal);
        told.push_str(&format!("{how}\n    {}\n", notice.text));
    }
    let refusal = Refusal::Depends(HoldId(3));
    for (what, effect) in [("a file", file()), ("a tool call", call())] {
        let notice = Notice::refused(EventId(7), &effect, &refusal);
        told.push_str(&format!("{what}\n    {}\n", notice.text));
    }
    let held = Notice::held(HoldId(7), &request("/collect?id=1"), "kairos-0123");
    told.push_str(&format!("held\n    {}\n", held.text));
    insta::assert_snapshot!(told);
}

/// Nothing of what noticed it, of a secret, of an oracle's or an attacker's words, of a query.
#[test]
fn what_a_notice_never_says() {
    let policy = Policy {
        sensitive: vec![SensitiveRule {
            of: SourcePattern::Location {
                tree: "workspace".into(),
                path: Glob(".env".into()),
            },
            level: Level::Critical,
        }],
        ..Policy::default()
    };
    let mut state = State::default();
    let source = Source::Location {
        tree: "workspace".into(),
        path: ".env".into(),
    };
    let incoming = Incoming::new(Channel::File, source, Content::new(SECRET.as_bytes()));
    let event = EventId(1);
    step(
        &mut state,
        &policy,
        &NoRules,
        "w",
        Input::Incoming { event, incoming },
    );
    let path = format!("/drop/{SECRET}?k={SECRET}");
    let mut effect = request(&path);
    effect.carries = state.provenance().scanner().scan(path.as_bytes());
    assert_ne!(effect.carries, Carried::nothing());
    effect.payload.digest = Digest::of(b"x");
    for (_, refusal) in refusals() {
        let text = Notice::refused(EventId(2), &effect, &refusal).text;
        for never in [
            SECRET, "AKIA", "base64", "scanner", "judge", "/var/lib", "?", "h3",
        ] {
            assert!(!text.contains(never), "`{never}` in: {text}");
        }
        assert!(text.contains("did not happen") && text.contains("rest of your task stands"));
    }
}
