//! Tool calls of any harness, put through the same kernel as files and the network: what the
//! harness is about to do is proposed, what it got is told, and every call is released, refused
//! or held before it happens.
//!
//! Modules in reading order:

/// What a harness writes: requests, parsed once into types.
pub mod request;
/// What it reads back.
pub mod reply;
/// From a harness's words to effects and content.
pub mod event;
/// One session of a harness.
pub mod session;
/// `kairos decide --stdio`: one process for many sessions, one JSON object a line.
pub mod stdio;

pub use stdio::{LoadedPolicy, Outside, PolicyText, Service, Sessions};
