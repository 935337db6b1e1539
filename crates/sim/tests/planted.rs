//! A bug planted in the real code for every guarantee, one at a time, and which checker finds it. Compiled only with the
//! feature `planted`: `cargo test --package kairos-sim --features planted --test planted`.
#![cfg(feature = "planted")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;

use kernel::planted::{Bug, plant};
use sim::run;

/// The bug, and who has to say so first or may: a bug breaks more than one promise, and chance decides which is met first.
const TABLE: [(Bug, &[&str]); 24] = [
    (Bug::ProposalUnrecorded, &["I mediated"]),
    (Bug::ProposalMisrecorded, &["I mediated"]),
    (Bug::SpentSoon, &["II released"]),
    (Bug::SpentUnrecorded, &["II released"]),
    (Bug::PostOnlyAsks, &["II released"]),
    (Bug::AbortsAlone, &["III refused"]),
    (Bug::AbortsAll, &["III refused"]),
    (Bug::RefusalCommits, &["III refused", "IV exact"]),
    (Bug::ExpiryCommits, &["III refused", "IV exact"]),
    (Bug::ReadyEarly, &["III refused", "IV exact"]),
    (Bug::MarksForgotten, &["III refused"]),
    (Bug::StaleCounts, &["IV exact"]),
    (Bug::ContentForgotten, &["IV exact"]),
    (Bug::BaseForgotten, &["IV exact"]),
    (Bug::SpentForgotten, &["IV exact"]),
    (Bug::CutOffForgotten, &["V kept"]),
    (Bug::TornKept, &["V kept"]),
    (Bug::ParkedSoon, &["V kept"]),
    (Bug::HoldSoon, &["V kept"]),
    (Bug::OwnerOverwritten, &["V kept"]),
    (Bug::DoubtForgotten, &["VI doubt"]),
    (
        Bug::LogSwallows,
        &["VI doubt", "I mediated", "II released", "V kept"],
    ),
    (Bug::FailureReleases, &["VI doubt"]),
    (Bug::NonceZero, &["VI doubt"]),
];

const STEPS: u64 = 300;
const SEEDS_MAX: u64 = 400;

#[test]
fn every_planted_bug_is_found() {
    let mut wrong = Vec::new();
    let mut guarantees = BTreeSet::new();
    println!("{:<20} {:<14} after", "planted", "found by");
    for (bug, checkers) in TABLE {
        plant(Some(bug));
        // Who finds it; a run may meet another promise first that it breaks as well.
        let found = (0..SEEDS_MAX).find_map(|seed| {
            let failure = run(seed, STEPS).err()?;
            checkers
                .contains(&failure.violation.checker)
                .then_some((seed, failure))
        });
        match found {
            Some((seed, failure)) => {
                let steps = seed * STEPS + failure.step;
                println!(
                    "{:<20} {:<14} {steps} steps: {}",
                    format!("{bug:?}"),
                    failure.violation.checker,
                    failure.violation.what
                );
                guarantees.insert(failure.violation.checker);
            }
            None => wrong.push(format!(
                "{bug:?} was not found by any of {checkers:?} in {} steps",
                SEEDS_MAX * STEPS
            )),
        }
    }
    plant(None);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(
        guarantees.len(),
        6,
        "every guarantee has its bug: {guarantees:?}"
    );
    let listed: BTreeSet<_> = TABLE.iter().map(|(bug, _)| *bug as u8).collect();
    let missing: Vec<_> = Bug::ALL
        .iter()
        .filter(|bug| !listed.contains(&(**bug as u8)))
        .collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    for seed in 0..20 {
        assert!(run(seed, STEPS).is_ok(), "without a bug nothing is found");
    }
}
