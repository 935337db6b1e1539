//! Tests of trees on a real mount, in one program: each wants the same world, and one is built
//! faster than seven.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

/// What every test starts with.
mod world;
/// The life of changes: staged, settled, released, held, refused.
mod basic;
/// What real programs do.
mod work;
/// The same as a plain directory, for random sequences of operations.
mod model;
/// The same as a plain directory, for what programs expect of a file system.
mod generic;
/// Held changes over one another.
mod scopes;
/// Places that run later, by whatever name.
mod places;
/// Access lists.
mod lists;
/// Full, read-only and foreign disks.
mod trouble;
/// The cases of the design that no other test is named for: `f6`, `f7`, ... The others are tests of
/// the same names in other files.
mod cases;
/// Names that change while they are committed.
mod meanwhile;
/// Directories that their owner may not write.
mod modes;
/// What the owner does meanwhile.
mod owner;
/// A crash at any step.
mod crash;
/// Everything over everything, and the owner meanwhile.
mod matrix;
/// Undo and conflicts.
mod undo;
/// Changes as patches.
mod diff;
