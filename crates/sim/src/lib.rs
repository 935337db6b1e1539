//! The simulation: the real kernel, store and monitor in a world that is made from one seed, with a clock, a disk that
//! tears and loses, an agent that tries everything, oracles that answer wrongly, late or not at all, an owner who edits
//! meanwhile, and crashes at any operation. A witness outside writes down what became observable; the checkers compare
//! it with what the design promises.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of it is a test"
)]

/// Chance from a seed.
pub mod chance;
/// What the witness writes down.
pub mod seen;
/// Everything that is not Kairos: disk, channels, agent, policies; and the run.
pub mod world;
/// One guarantee a file.
pub mod checkers;
/// Runs by seed, and the shortest run that still fails.
pub mod run;
/// Every interleaving of a few effects.
pub mod model;

pub use run::{Failure, Report, run, shrink};
