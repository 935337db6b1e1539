//! Runs by seed, and the shortest run that still fails.

use crate::checkers::{Checkers, Violation};
use crate::world::World;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Steps taken.
    pub steps: u64,
    /// Things the witness wrote down.
    pub seen: u64,
    /// Effects that became observable.
    pub observed: u64,
    /// Crashes.
    pub crashes: u64,
    /// Sessions gone on with.
    pub recovered: u64,
    /// Holds.
    pub held: u64,
}

impl Report {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.seen += other.seen;
        self.observed += other.observed;
        self.crashes += other.crashes;
        self.recovered += other.recovered;
        self.held += other.held;
    }
}

/// A run that broke a guarantee.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The step, from 1.
    pub step: u64,
    /// What was broken.
    pub violation: Violation,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} (seed {}, step {}; again: just simulate --seed {} --steps {})",
            self.violation.checker, self.violation.what, self.seed, self.step, self.seed, self.step
        )
    }
}

/// One run: so many steps from one seed.
///
/// # Errors
/// The first broken guarantee.
pub fn run(seed: u64, steps: u64) -> Result<Report, Failure> {
    run_telling(seed, steps, |_, _| {})
}

/// As [`run`], and shows everything the witness writes down.
///
/// # Errors
/// The first broken guarantee.
pub fn run_telling(
    seed: u64,
    steps: u64,
    mut tell: impl FnMut(u64, &crate::seen::Seen),
) -> Result<Report, Failure> {
    use crate::seen::{Decided, Seen};
    let mut world = World::new(seed);
    let mut checkers = Checkers::default();
    let mut report = Report::default();
    for step in 1..=steps {
        world.step();
        report.steps += 1;
        for seen in world.seen() {
            tell(step, &seen);
            report.seen += 1;
            match &seen {
                Seen::Observed(_) => report.observed += 1,
                Seen::Crash { .. } => report.crashes += 1,
                Seen::Recovered(_) => report.recovered += 1,
                Seen::Decided {
                    decision: Decided::Held(_),
                    ..
                } => report.held += 1,
                _ => {}
            }
            checkers.see(seen).map_err(|violation| Failure {
                seed,
                step,
                violation,
            })?;
        }
    }
    Ok(report)
}

/// Among the seeds that follow one that failed, the run that fails earliest.
pub fn shrink(failure: Failure, tries: u64) -> Failure {
    let mut best = failure;
    for seed in best.seed + 1..=best.seed + tries {
        if let Err(failure) = run(seed, best.step.saturating_sub(1))
            && failure.violation.checker == best.violation.checker
        {
            best = failure;
        }
    }
    best
}
