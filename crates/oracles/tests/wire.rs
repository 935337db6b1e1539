//! The protocol of `command:` oracles: what it looks like, that it fits its published schema, and
//! that no answer makes it fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod support;

use kernel::{HoldId, Kind, Object, Reason, Verdict};
use monitor::{Judgement, View};
use oracles::wire;
use proptest::prelude::*;
use support::{hook, post, view, with_recipient};

#[test]
fn the_view_as_a_program_reads_it() {
    let mut later = hook(9, ".git/hooks/pre-commit");
    later.depends = vec![HoldId(7)];
    later.reasons.push(Reason::After(vec![HoldId(7)]));
    let view = view(vec![with_recipient(post(7)), later]);
    let mut value = wire::view(&view, "task trusted");
    // Whether maps keep their order depends on what else is compiled along.
    value.sort_all_objects();
    let json = serde_json::to_string_pretty(&value).unwrap();
    insta::assert_snapshot!(json);
    assert!(
        !json.contains("untrusted"),
        "a model takes that word for a verdict"
    );
}

#[test]
fn every_reason_has_a_kind_and_words() {
    let mut hold = post(7);
    hold.reasons = vec![
        Reason::UnknownParty("a.example".to_string()),
        Reason::NotForOperation {
            party: "a".to_string(),
            operation: "DELETE".to_string(),
        },
        Reason::NotDerivable {
            field: "path".to_string(),
            kind: Kind::Path,
            value: "x".to_string(),
            origins: vec![],
        },
        Reason::ExecutesLater {
            place: "git hook".to_string(),
        },
        Reason::After(vec![HoldId(1)]),
        Reason::Recovered,
    ];
    let view = wire::view(&view(vec![hold]), "");
    let reasons = view["holds"][0]["reasons"].as_array().unwrap();
    assert_eq!(reasons.len(), 6);
    for reason in reasons {
        assert!(!reason["kind"].as_str().unwrap().is_empty());
        assert!(!reason["text"].as_str().unwrap().is_empty());
        assert!(!reason["text"].as_str().unwrap().contains("untrusted"));
    }
}

/// Holds of every shape that there is.
fn every_shape() -> View {
    let mut tool = hook(3, "x");
    tool.effect.object = Object::Tool {
        name: "mail".to_string(),
    };
    let mut odd = post(4);
    odd.reasons = vec![
        Reason::UnknownParty("a.example".to_string()),
        Reason::NotForOperation {
            party: "a".to_string(),
            operation: "DELETE".to_string(),
        },
        Reason::Recovered,
        Reason::After(vec![HoldId(1)]),
    ];
    view(vec![
        with_recipient(post(1)),
        hook(2, "Makefile"),
        tool,
        odd,
    ])
}

fn schema(text: &str) -> (boon::Schemas, boon::SchemaIndex) {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler
        .add_resource("schema.json", serde_json::from_str(text).unwrap())
        .unwrap();
    let index = compiler.compile("schema.json", &mut schemas).unwrap();
    (schemas, index)
}

#[test]
fn the_view_fits_its_published_schema() {
    let (schemas, index) = schema(include_str!("../../../docs/oracle-view.schema.json"));
    let mut json = wire::view(&every_shape(), "");
    schemas
        .validate(&json, index)
        .unwrap_or_else(|error| panic!("{error:#}"));
    json["holds"][0]["surprise"] = true.into();
    assert!(
        schemas.validate(&json, index).is_err(),
        "the schema lets anything through"
    );
}

#[test]
fn verdicts_that_fit_their_schema_are_understood() {
    let (schemas, index) = schema(include_str!("../../../docs/oracle-verdicts.schema.json"));
    for (text, fits) in [
        (r#"{"verdicts":[]}"#, true),
        (
            r#"{"verdicts":[{"hold":"h1","verdict":"release","reason":"x","manifest":"y"}],"model":"z"}"#,
            true,
        ),
        (r#"{"verdicts":[{"hold":"h1","verdict":"maybe"}]}"#, false),
        (r#"{"verdicts":[{"hold":"h1"}]}"#, false),
        (r#"{"verdicts":{}}"#, false),
        (r#"[]"#, false),
    ] {
        let json = serde_json::from_str(text).unwrap();
        assert_eq!(schemas.validate(&json, index).is_ok(), fits, "{text}");
        let (judgement, _) = wire::verdicts(text, &every_shape());
        assert_eq!(matches!(judgement, Judgement::Answers(_)), fits, "{text}");
    }
}

proptest! {
    #[test]
    fn no_answer_fails_and_none_releases_what_it_does_not_name(text in ".{0,200}") {
        if let (Judgement::Answers(answers), _) = wire::verdicts(&text, &view(vec![post(7)])) {
            for answer in answers {
                prop_assert_eq!(answer.verdict, Some(Verdict::Refuse));
            }
        }
    }

    #[test]
    fn every_hold_is_answered_at_most_once(
        said in proptest::collection::vec((0u64..6, prop_oneof!["release", "refuse", "keep"]), 0..12)
    ) {
        let verdicts: Vec<String> =
            said.iter().map(|(n, verdict)| format!(r#"{{"hold":"h{n}","verdict":"{verdict}"}}"#)).collect();
        let text = format!(r#"{{"verdicts":[{}]}}"#, verdicts.join(","));
        let (judgement, _) = wire::verdicts(&text, &view((1..5).map(post).collect()));
        let Judgement::Answers(answers) = judgement else { panic!("{text}") };
        prop_assert_eq!(answers.len(), 4);
        for answer in answers {
            let mine: Vec<&str> =
                said.iter().filter(|(n, _)| *n == answer.hold.0).map(|(_, v)| v.as_str()).collect();
            let released = !mine.is_empty() && mine.iter().all(|v| *v == "release");
            prop_assert_eq!(answer.verdict == Some(Verdict::Release), released, "{}", text);
        }
    }
}
