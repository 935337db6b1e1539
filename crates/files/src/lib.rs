//! Mediates files: copy-on-write trees over FUSE.
//!
//! The agent sees the owner's directories with its own changes on top; the owner's stay as they are
//! until a change is released. Reads are incoming events, settled changes are effects.
//!
//! Modules in reading order:

/// The file channel: trees, their session, and how decisions are carried out.
pub mod trees;
/// From settled changes to effects, and what becomes of them.
mod decide;
/// Held changes that were read, and what was made from them.
mod layers;
mod leaning;
/// Carries out what was released.
mod batch;
/// The trees as a FUSE file system.
mod fuse;
/// Attributes in the kernel's form.
mod fuse_attr;
/// Where the dispatcher runs.
mod beside;
/// What needs raw system calls.
mod sys;
/// Threads for what would keep the dispatcher waiting.
mod pool;
/// Files of content before they are needed, and afterwards.
mod behind;
/// Copy-on-write over names.
mod overlay;
/// Copy-on-write over content and attributes.
mod content;
/// The agent's view in memory.
mod tree;
/// The names of one directory of the view.
mod lift;
mod listing;
/// Reads as incoming events.
mod labels;
/// Who read what is staged, and what they changed afterwards.
mod reads;
/// Which changes have come to rest, and what they amount to.
mod settle;
/// One net change of one path.
pub mod delta;
/// Carries one delta out on the host.
mod commit;
/// The new version of a path, before it is in place.
mod made_in;
mod make;
/// Renames that replace nothing.
mod swap;
/// What a decision does to the view.
mod outcome;
/// Rebuilds the view after a crash, and finishes what was interrupted.
mod recover;
/// Brings back what commits replaced.
pub mod undo;
/// Which objects of a repository an undo leaves.
mod objects;
/// Names that were one file.
mod one_file;
/// Names that nobody has looked at.
mod other_names;
/// What the owner changed as well as the agent.
pub mod conflicts;
/// What a session keeps on disk.
pub mod space;
/// Staged changes as text, for people.
pub mod diff;
/// What in a file runs.
pub mod runs;
/// Places that run later although no table names them.
mod places;
/// Other names of a path.
mod links;
/// What git would run in a repository.
mod repository;
/// The disk form of what is staged.
mod upper;
mod watch;
/// Room for records on a full disk.
mod reserve;
/// The owner's directory as it is.
mod base;
/// Copies and digests of open files.
mod bytes;
/// What a file is besides its content.
pub mod attr;
/// Access lists.
mod acl;
/// Owner ids on both sides.
pub mod ids;
/// Paths as bytes and as text.
pub mod path;

pub use commit::CommitError;
pub use conflicts::{Choice, Conflict, Merge};
pub use delta::Delta;
pub use diff::{Attribute, Change};
pub use ids::Ids;
pub use overlay::Precheck;
pub use places::Own;
pub use space::{Kept, forget_undo, kept};
pub use trees::{Options, Reads, Serving, TreeSpec, Trees, TreesError, staged_changes};
pub use undo::Undone;
