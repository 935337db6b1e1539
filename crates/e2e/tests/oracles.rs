//! Oracles that misbehave: prose, unknown names, everything twice, silence, an error at the end. In doubt: refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::time::{Duration, Instant};

use kairos_e2e::{Outcome, Policy, Run, Witness, Workspace};

const SINK: &str = "sink.example.test";

/// A session that holds two POSTs, resolved by the oracle.
fn resolved_by(oracle: &str, more: impl Fn(Run<'_>) -> Run<'_>) -> (Outcome, usize) {
    let workspace = Workspace::plain();
    let witness = Witness::start(&workspace.logs());
    let policy = Policy::new().elsewhere(SINK, &witness.url());
    let script =
        format!("curl -sS -d one http://{SINK}/one; curl -sS -d two http://{SINK}/two; true");
    let outcome = more(
        Run::shell(&workspace, &script)
            .policy(&policy)
            .oracle(oracle),
    )
    .finish();
    (outcome, witness.requests().len())
}

#[test]
fn one_that_approves_releases_everything_once() {
    let (outcome, delivered) = resolved_by("approve-all", |run| run);
    assert_eq!(delivered, 2, "{outcome}");
    outcome.expect_code(0);
}

#[test]
fn one_that_says_everything_twice_releases_it_once() {
    let (outcome, delivered) = resolved_by("twice", |run| run);
    assert_eq!(delivered, 2, "{outcome}");
    outcome.expect_code(0);
}

#[test]
fn one_that_answers_in_prose_releases_nothing() {
    let (outcome, delivered) = resolved_by("prose", |run| run);
    assert_eq!(delivered, 0, "{outcome}");
    assert_eq!(outcome.listed("released", SINK).len(), 0, "{outcome}");
    assert_eq!(outcome.listed("refused", SINK).len(), 2, "{outcome}");
}

#[test]
fn one_that_names_an_unknown_hold_releases_nothing() {
    let (outcome, delivered) = resolved_by("unknown-id", |run| run);
    assert_eq!(delivered, 0, "{outcome}");
}

#[test]
fn one_that_fails_after_its_verdicts_releases_nothing() {
    let (outcome, delivered) = resolved_by("fails", |run| run);
    assert_eq!(delivered, 0, "{outcome}");
    assert_eq!(outcome.listed("refused", SINK).len(), 2, "{outcome}");
}

#[test]
fn one_that_is_not_there_releases_nothing() {
    let workspace = Workspace::plain();
    let witness = Witness::start(&workspace.logs());
    let policy = Policy::new().elsewhere(SINK, &witness.url());
    let run = Run::shell(&workspace, &format!("curl -sS -d one http://{SINK}/one")).policy(&policy);
    let outcome = run
        .option("--oracle")
        .option("command:/no/such/oracle")
        .finish();
    assert_eq!(witness.connections(), 0, "{outcome}");
    assert!(
        outcome.stderr.contains("/no/such/oracle"),
        "it is named\n{outcome}"
    );
}

#[test]
fn one_that_never_answers_releases_nothing_and_does_not_hang() {
    let start = Instant::now();
    let (outcome, delivered) = resolved_by("never", |run| run.limit(Duration::from_secs(60)));
    assert_eq!(delivered, 0, "{outcome}");
    assert!(start.elapsed() < Duration::from_secs(50), "{outcome}");
}
