//! Programs as oracles, well behaved and not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::Verdict;
use monitor::{Answer, Judgement, View};
use oracles::{build, parse};
use support::{hook, post, setting, view};

fn judge_within(script: &str, view: &View, deadline: Duration) -> Judgement {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("judge");
    write_program(&path, script);
    let spec = parse(&format!("command:{}", path.display())).unwrap();
    build(&spec, &setting(deadline)).unwrap().judge(view)
}

fn write_program(path: &Path, script: &str) {
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn judge(script: &str) -> Judgement {
    judge_within(
        script,
        &view(vec![post(7), hook(9, ".git/hooks/x")]),
        Duration::from_secs(20),
    )
}

fn answers(judgement: Judgement) -> Vec<(u64, Option<Verdict>, String)> {
    match judgement {
        Judgement::Answers(answers) => answers
            .into_iter()
            .map(
                |Answer {
                     hold,
                     verdict,
                     reason,
                     ..
                 }| (hold.0, verdict, reason),
            )
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn failure(judgement: Judgement) -> String {
    match judgement {
        Judgement::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

const SAYS: &str = "#!/bin/sh\ncat > /dev/null\necho ";

#[test]
fn verdicts_count_and_silence_refuses() {
    let said = format!(
        "{SAYS}'{{\"verdicts\":[{{\"hold\":\"h9\",\"verdict\":\"release\",\"reason\":\"fine\"}}]}}'"
    );
    assert_eq!(
        answers(judge(&said)),
        [
            (9, Some(Verdict::Release), "fine".to_string()),
            (
                7,
                Some(Verdict::Refuse),
                "it did not answer for this hold".to_string()
            ),
        ]
    );
}

#[test]
fn one_may_keep_a_hold() {
    let said = format!("{SAYS}'{{\"verdicts\":[{{\"hold\":\"h9\",\"verdict\":\"keep\"}}]}}'");
    assert_eq!(answers(judge(&said))[0].1, None);
}

#[test]
fn an_answer_for_another_manifest_refuses() {
    let other = "0".repeat(64);
    let said = format!(
        "{SAYS}'{{\"verdicts\":[{{\"hold\":\"h9\",\"verdict\":\"release\",\"manifest\":\"{other}\"}}]}}'"
    );
    assert_eq!(
        answers(judge(&said))[0],
        (
            9,
            Some(Verdict::Refuse),
            "the answer was for another action".to_string()
        )
    );
}

#[test]
fn the_same_twice_counts_once_and_both_ways_refuses() {
    let one = |verdict| format!("{{\"hold\":\"h9\",\"verdict\":\"{verdict}\"}}");
    let said = |a, b| format!("{SAYS}'{{\"verdicts\":[{},{}]}}'", one(a), one(b));
    let twice = answers(judge(&said("release", "release")));
    assert_eq!(twice.iter().filter(|(hold, ..)| *hold == 9).count(), 1);
    assert_eq!(twice[0].1, Some(Verdict::Release));
    assert_eq!(
        answers(judge(&said("release", "refuse")))[0].1,
        Some(Verdict::Refuse)
    );
    assert_eq!(
        answers(judge(&said("refuse", "release")))[0].1,
        Some(Verdict::Refuse)
    );
}

#[test]
fn an_unknown_hold_releases_nothing() {
    let said = format!("{SAYS}'{{\"verdicts\":[{{\"hold\":\"h999\",\"verdict\":\"release\"}}]}}'");
    assert!(
        answers(judge(&said))
            .iter()
            .all(|(_, verdict, _)| *verdict == Some(Verdict::Refuse))
    );
}

#[test]
fn failures_are_told() {
    let told = [
        failure(judge(
            "#!/bin/sh\ncat > /dev/null\necho I think that all of this looks fine",
        )),
        failure(judge("#!/bin/sh\ncat > /dev/null")),
        failure(judge(&format!(
            "{SAYS}'{{\"verdicts\":[]}}'; echo no key given >&2; exit 3"
        ))),
        failure(judge(&format!(
            "{SAYS}'{{\"verdicts\":[{{\"hold\":\"h9\",\"verdict\":\"maybe\"}}]}}'"
        ))),
        failure(judge("#!/bin/sh\nprintf '\\033[2Jhidden'")),
        failure(judge("#!/bin/sh\nprintf '\\377\\376'")),
        failure(judge("#!/bin/sh\nkill -9 $$")),
    ];
    assert!(told.iter().all(|why| !why.contains('\u{1b}')));
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn one_that_never_answers_is_stopped_with_all_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let witness = dir.path().join("alive");
    // Both the program and what it started in the background would leave a trace.
    let script = format!(
        "#!/bin/sh\n(sleep 2; echo late > {0}) &\nsleep 60\necho late > {0}\n",
        witness.display()
    );
    let start = Instant::now();
    let why = failure(judge_within(
        &script,
        &view(vec![post(7)]),
        Duration::from_millis(500),
    ));
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(why.contains("did not answer within"), "{why}");
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!witness.exists(), "something went on after the deadline");
}

#[test]
fn a_view_that_is_never_read_does_not_block() {
    let many: Vec<_> = (1..2000).map(post).collect();
    let judgement = judge_within(
        "#!/bin/sh\necho '{\"verdicts\":[]}'",
        &view(many),
        Duration::from_secs(20),
    );
    assert_eq!(answers(judgement).len(), 1999);
}

#[test]
fn much_complaint_does_not_block() {
    let script = "#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x >&2\ncat > /dev/null\necho '{\"verdicts\":[]}'";
    assert_eq!(answers(judge(script)).len(), 2);
}
