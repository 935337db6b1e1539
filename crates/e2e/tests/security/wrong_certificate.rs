//! Servers that cannot prove who they are: the monitor, which checks in the agent's place, must not send anything to them.

use std::time::Duration;

use kairos_e2e::place::canary;
use kairos_e2e::{Policy, Run};

use crate::ground::Ground;

const GOOD: &str = "good.example.test";

#[track_caller]
fn nothing_arrives(ground: &Ground, policy: &Policy, arguments: &str) {
    let word = canary();
    let script = format!(
        "curl {arguments} -sS -m 10 https://{GOOD}/{word}; echo ended with $?; echo probe ran"
    );
    let outcome = Run::shell(&ground.workspace, &script)
        .within(&ground.world)
        .policy(policy)
        .finish();
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        !ground.world.witness.has_seen(&word),
        "{:?}\n{outcome}",
        ground.world.witness.log()
    );
}

/// The control: with the root in the policy, it arrives.
#[test]
fn a_root_that_the_policy_names_passes() {
    let ground = Ground::new();
    let word = canary();
    let policy = Policy::new()
        .allow(GOOD, None)
        .root(&ground.world.witness.ca());
    let script = format!("curl -sS -m 10 https://{GOOD}/{word}");
    let outcome = Run::shell(&ground.workspace, &script)
        .within(&ground.world)
        .policy(&policy)
        .finish();
    assert!(
        ground.world.witness.sees(&word),
        "{:?}\n{outcome}",
        ground.world.witness.log()
    );
}

#[test]
fn one_signed_by_nobody_known() {
    let ground = Ground::new();
    nothing_arrives(&ground, &Policy::new().allow(GOOD, None), "");
}

#[test]
fn one_signed_by_nobody_known_for_a_client_that_does_not_mind() {
    let ground = Ground::new();
    nothing_arrives(&ground, &Policy::new().allow(GOOD, None), "-k");
}

#[test]
fn one_made_for_another_name() {
    let ground = Ground::with(&["--certificate-for", "other.example.test"]);
    let policy = Policy::new()
        .allow(GOOD, None)
        .root(&ground.world.witness.ca());
    nothing_arrives(&ground, &policy, "");
}
