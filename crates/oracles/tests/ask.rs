//! A person at a terminal: what is shown, what each key does, and that nothing is released by
//! accident.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod support;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use kernel::{HoldId, Object, Verdict};
use monitor::{Judgement, Oracle, View};
use oracles::{Ask, Explain};
use support::{hook, post, view, with_recipient};

#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Diffs;

impl Explain for Diffs {
    fn diff(&self, hold: HoldId) -> Option<String> {
        (hold.0 == 9).then(|| "+#!/bin/sh\n+echo hi".to_string())
    }
}

fn asked(view: &View, keys: &'static str) -> (Judgement, String) {
    let screen = Screen::default();
    let ask = Ask::through(
        Box::new(keys.as_bytes()),
        Box::new(screen.clone()),
        Arc::new(Diffs),
    );
    let judgement = ask.judge(view);
    let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
    (judgement, shown)
}

fn verdicts(judgement: Judgement) -> Vec<(u64, Option<Verdict>)> {
    match judgement {
        Judgement::Answers(answers) => answers.into_iter().map(|a| (a.hold.0, a.verdict)).collect(),
        other => panic!("{other:?}"),
    }
}

const YES: Option<Verdict> = Some(Verdict::Release);
const NO: Option<Verdict> = Some(Verdict::Refuse);

#[test]
fn a_dialogue() {
    let view = view(vec![
        with_recipient(post(7)),
        hook(9, ".git/hooks/pre-commit"),
    ]);
    let (judgement, shown) = asked(&view, "\nwhy\nwhat\nn the checklist is not mine\nd\ny\n");
    assert_eq!(verdicts(judgement), [(7, NO), (9, YES)]);
    insta::assert_snapshot!(shown);
}

#[test]
fn a_reason_is_kept() {
    let (judgement, _) = asked(&view(vec![post(7)]), "n the checklist is not mine\n");
    let Judgement::Answers(answers) = judgement else {
        panic!()
    };
    assert_eq!(answers[0].reason, "the checklist is not mine");
    assert_eq!(answers[0].manifest, post(7).manifest);
}

#[test]
fn sixty_of_one_kind_are_one_question() {
    let holds = (1..=60)
        .map(|n| hook(n, &format!(".git/hooks/hook{n}")))
        .collect();
    let (judgement, shown) = asked(&view(holds), "a\nn\n");
    assert!(
        verdicts(judgement)
            .iter()
            .all(|(_, verdict)| *verdict == NO)
    );
    insta::assert_snapshot!(shown);
}

#[test]
fn all_of_a_kind_leaves_other_kinds_alone() {
    let view = view(vec![
        post(1),
        hook(2, ".git/hooks/a"),
        post(3),
        hook(4, ".git/hooks/b"),
    ]);
    let (judgement, _) = asked(&view, "y\na\ny\nn\nn\n");
    assert_eq!(verdicts(judgement), [(1, YES), (2, NO), (3, YES), (4, NO)]);
}

#[test]
fn nothing_is_released_by_accident() {
    for keys in [
        "",
        "\n\n\n",
        "yy\n",
        "Y\n",
        "release\n",
        "a\n\n",
        "a\na\n",
        "\u{1b}[A\n",
        "y",
        " \n",
    ] {
        let (judgement, _) = asked(&view(vec![post(7), post(8)]), keys);
        match judgement {
            Judgement::Keep(_) => {}
            Judgement::Answers(answers) => {
                assert!(
                    answers.iter().all(|a| a.verdict != YES),
                    "{keys:?} released something"
                );
            }
            Judgement::Failed(why) => panic!("{keys:?}: {why}"),
        }
    }
}

#[test]
fn who_leaves_keeps_what_is_open() {
    let holds = || view(vec![post(1), hook(2, ".git/hooks/a"), hook(3, "Makefile")]);
    for (keys, expect) in [
        ("n\nq\n", vec![(1, NO), (2, None), (3, None)]),
        ("n\n", vec![(1, NO), (2, None), (3, None)]),
        ("s\nn\ns\n", vec![(1, None), (2, NO), (3, None)]),
    ] {
        assert_eq!(verdicts(asked(&holds(), keys).0), expect, "{keys:?}");
    }
    for keys in ["q\n", "", "s\ns\ns\n"] {
        let kept = matches!(asked(&holds(), keys).0, Judgement::Keep(_));
        assert!(kept, "{keys:?}");
    }
}

#[test]
fn what_an_agent_writes_cannot_move_the_cursor() {
    let mut evil = post(7);
    evil.excerpt = "\u{1b}[2J\u{1b}[H  release h7? y\r\u{202e}".to_string();
    evil.effect.about = "x\u{1b}]0;t\u{7}".to_string();
    if let Object::Party { path, .. } = &mut evil.effect.object {
        *path = format!("/{}\u{9b}31m", "a".repeat(400));
    }
    let (_, shown) = asked(&view(vec![evil]), "w\nd\nq\n");
    let odd: Vec<char> = shown
        .chars()
        .filter(|c| c.is_control() && *c != '\n' || *c == '\u{202e}')
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert!(
        shown.contains("in full: https://sink.example/aaaa"),
        "{shown}"
    );
}
