//! Mediates files: copy-on-write trees over FUSE.
//!
//! The agent sees the owner's directories with its own changes on top; the owner's stay as they are
//! until a change is released. Reads are incoming events, settled changes are effects.
//!
//! Modules in reading order:

/// The file channel: trees, their session, and how decisions are carried out.
pub mod trees;
/// The trees as a FUSE file system.
mod fuse;
/// Copy-on-write over names.
mod overlay;
/// Copy-on-write over content and attributes.
mod content;
/// The agent's view in memory.
mod tree;
/// Reads as incoming events.
mod labels;
/// Which changes have come to rest, and what they amount to.
mod settle;
/// One net change of one path.
pub mod delta;
/// Carries one delta out on the host.
mod commit;
/// What a decision does to the view.
mod outcome;
/// Rebuilds the view after a crash, and finishes what was interrupted.
mod recover;
/// The disk form of what is staged.
mod upper;
/// The owner's directory as it is.
mod base;
/// What a file is besides its content.
pub mod attr;
/// Owner ids on both sides.
pub mod ids;
/// Paths as bytes and as text.
pub mod path;

pub use commit::CommitError;
pub use delta::Delta;
pub use ids::Ids;
pub use overlay::Precheck;
pub use trees::{Options, Serving, TreeSpec, Trees, TreesError};
