//! One oracle after the other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod support;

use kernel::Verdict;
use monitor::{Answer, Judgement, Oracle, View};
use oracles::{Chain, Deny};
use support::{hook, post, view};

/// Answers as it was told, by the hold's number; what is not listed is not mentioned.
struct Says(Vec<(u64, Option<Verdict>)>);

impl Oracle for Says {
    fn name(&self) -> String {
        "says".to_string()
    }
    fn judge(&self, view: &View) -> Judgement {
        let answer = |hold: &monitor::ViewHold| {
            let (_, verdict) = self.0.iter().find(|(n, _)| *n == hold.hold.0)?;
            Some(Answer {
                hold: hold.hold,
                manifest: hold.manifest,
                verdict: *verdict,
                reason: "so".to_string(),
            })
        };
        Judgement::Answers(view.holds.iter().filter_map(answer).collect())
    }
}

struct Ends(Judgement);

impl Oracle for Ends {
    fn name(&self) -> String {
        "ends".to_string()
    }
    fn judge(&self, _: &View) -> Judgement {
        self.0.clone()
    }
}

const YES: Option<Verdict> = Some(Verdict::Release);
const NO: Option<Verdict> = Some(Verdict::Refuse);

fn outcome(steps: Vec<Box<dyn Oracle>>) -> Vec<(u64, Option<Verdict>)> {
    let view = view(vec![post(1), hook(2, "a"), hook(3, "b")]);
    match Chain::new(steps).judge(&view) {
        Judgement::Answers(mut answers) => {
            answers.sort_by_key(|answer| answer.hold);
            answers
                .into_iter()
                .map(|answer| (answer.hold.0, answer.verdict))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_decides_what_is_kept() {
    let first = Says(vec![(1, YES), (2, None), (3, NO)]);
    assert_eq!(
        outcome(vec![Box::new(first), Box::new(Says(vec![(2, YES)]))]),
        [(1, YES), (2, YES), (3, NO)]
    );
}

#[test]
fn what_is_not_mentioned_does_not_go_on() {
    // Hold 3 has no answer, which the monitor takes for a refusal; the second is not to change that.
    let answers = outcome(vec![
        Box::new(Says(vec![(1, None), (2, None)])),
        Box::new(Says(vec![(1, YES), (2, NO), (3, YES)])),
    ]);
    assert_eq!(answers, [(1, YES), (2, NO)]);
}

#[test]
fn keeping_everything_asks_the_next_about_everything() {
    let keep = || Box::new(Ends(Judgement::Keep("nobody".to_string())));
    assert_eq!(
        outcome(vec![keep(), Box::new(Deny)]),
        [(1, NO), (2, NO), (3, NO)]
    );
    let all = Chain::new(vec![keep(), keep()]).judge(&view(vec![post(1)]));
    assert!(matches!(all, Judgement::Keep(_)));
}

#[test]
fn a_failure_refuses_what_was_open_and_ends_the_chain() {
    let failed = || Box::new(Ends(Judgement::Failed("broken".to_string())));
    let all = Box::new(Says(vec![(1, YES), (2, YES), (3, YES)]));
    assert!(matches!(
        Chain::new(vec![failed(), all]).judge(&view(vec![post(1)])),
        Judgement::Failed(_)
    ));
    let first = Says(vec![(1, YES), (2, None), (3, None)]);
    assert_eq!(
        outcome(vec![Box::new(first), failed()]),
        [(1, YES), (2, NO), (3, NO)]
    );
}
