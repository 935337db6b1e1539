//! Rules and quorums.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod support;

use std::time::Duration;

use kernel::{Object, Verdict};
use monitor::{Answer, Judgement, Oracle, View};
use oracles::{Quorum, Rules};
use support::{hook, post, setting, view};

const YES: Option<Verdict> = Some(Verdict::Release);
const NO: Option<Verdict> = Some(Verdict::Refuse);

fn verdicts(judgement: Judgement) -> Vec<Option<Verdict>> {
    match judgement {
        Judgement::Answers(answers) => answers.into_iter().map(|a| a.verdict).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_a_file_what_carries_too_much_is_refused_and_the_rest_kept() {
    let judged = Rules::default().judge(&view(vec![post(7), hook(9, ".git/hooks/a")]));
    assert_eq!(verdicts(judged), [NO, None]);
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rules = Rules::parse(
        r#"
        [[rule]]
        verdict = "refuse"
        host = ["*.evil.example"]
        [[rule]]
        verdict = "release"
        path = ["docs/**", "hooks"]
        operation = ["create"]
        reason = "docs may grow"
        "#,
    )
    .unwrap();
    let mut docs = hook(1, "docs/a.md");
    docs.reasons.clear();
    let mut evil = post(2);
    evil.carries = None;
    evil.reasons.pop();
    if let Object::Party { host, .. } = &mut evil.effect.object {
        *host = "a.evil.example".into();
    }
    // Runs later, and the rule does not speak of that.
    let later = hook(3, "docs/hook");
    assert_eq!(
        verdicts(rules.judge(&view(vec![docs, evil, later]))),
        [YES, NO, None]
    );
}

#[test]
fn mistakes_in_rules_are_told() {
    let told: Vec<String> = [
        "[[rule]]\nverdict = \"release\"\n",
        "[[rule]]\nverdict = \"maybe\"\n",
        "[[rule]]\nverdict = \"refuse\"\nhosts = [\"a\"]\n",
        "[[rule]]\nverdict = \"refuse\"\ncarries-at-least = \"secret\"\n",
    ]
    .iter()
    .map(|text| Rules::parse(text).unwrap_err())
    .collect();
    insta::assert_snapshot!(told.join("\n---\n"));
    assert!(oracles::oracle("rules:/no/such/file", Duration::from_secs(1)).is_err());
}

struct Says(Option<Verdict>);

impl Oracle for Says {
    fn name(&self) -> String {
        "says".into()
    }
    fn judge(&self, view: &View) -> Judgement {
        let answer = |hold: &monitor::ViewHold| Answer {
            hold: hold.hold,
            manifest: hold.manifest,
            verdict: self.0,
            reason: "x".into(),
        };
        Judgement::Answers(view.holds.iter().map(answer).collect())
    }
}

struct Fails;

impl Oracle for Fails {
    fn name(&self) -> String {
        "fails".into()
    }
    fn judge(&self, _: &View) -> Judgement {
        Judgement::Failed("broken".into())
    }
}

#[test]
fn so_many_have_to_agree() {
    let quorum = |needed: usize, says: &[Option<Verdict>]| {
        let members = says
            .iter()
            .map(|v| Box::new(Says(*v)) as Box<dyn Oracle>)
            .collect();
        verdicts(Quorum::new(needed, members).judge(&view(vec![post(7)])))[0]
    };
    assert_eq!(quorum(2, &[YES, YES, NO]), YES);
    assert_eq!(quorum(2, &[YES, NO, NO]), NO);
    assert_eq!(quorum(2, &[YES, NO, None]), None);
    assert_eq!(quorum(2, &[None, None, None]), None);
    assert_eq!(quorum(1, &[NO, NO]), NO);
    assert_eq!(quorum(0, &[NO]), NO);

    let mixed = Quorum::new(1, vec![Box::new(Fails), Box::new(Says(YES))]);
    assert_eq!(verdicts(mixed.judge(&view(vec![post(7)]))), [YES]);
    let both = Quorum::new(2, vec![Box::new(Fails), Box::new(Says(YES))]);
    assert_eq!(
        verdicts(both.judge(&view(vec![post(7)]))),
        [NO],
        "a failing oracle refuses"
    );
    let none = Quorum::new(1, vec![Box::new(Fails)]);
    assert!(matches!(
        none.judge(&view(vec![post(7)])),
        Judgement::Failed(_)
    ));
}

#[test]
fn rules_then_a_model_then_a_person() {
    let chain = oracles::oracle_in("rules,deny", &setting(Duration::from_secs(1))).unwrap();
    let judged = chain.judge(&view(vec![post(7), hook(9, "a")]));
    let Judgement::Answers(answers) = judged else {
        panic!()
    };
    let said: Vec<(u64, String)> = answers.into_iter().map(|a| (a.hold.0, a.reason)).collect();
    assert_eq!(said[0].0, 7);
    assert!(
        said[0].1.starts_with("rules: it carries critical content"),
        "{said:?}"
    );
    assert!(said[1].1.starts_with("deny: "), "{said:?}");
}
