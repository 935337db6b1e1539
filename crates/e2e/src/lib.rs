//! Fixtures of the end-to-end tests: a workspace with a planted instruction, a stand-in model, witnesses outside the
//! boundary, and `kairos` itself, started in an environment that holds nothing of the developer's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "this crate is test code throughout: a fixture that cannot be built must stop its test, loudly"
)]

pub mod place;
pub mod tree;
pub mod workspace;
pub mod policy;
pub mod server;
pub mod process;
pub mod run;
pub mod agent;
pub mod world;

pub use agent::Agent;
pub use policy::Policy;
pub use process::{Finished, Process};
pub use run::{Outcome, Run, Who};
pub use server::{Provider, Witness};
pub use tree::Tree;
pub use workspace::Workspace;
pub use world::World;
