//! The kernel: decides every effect, and nothing else.
//!
//! Pure: no I/O, no clock, no randomness, no unsafe. Time, disk and chance are arguments, so the
//! simulation and the product run the same code. The one entry is [`step`].
//!
//! Modules in reading order:
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// What was tried: channels, operations, objects, effects, incoming content.
pub mod event;
/// How far content may travel.
pub mod label;
/// Values by kind, their normal forms, and how they are found in text.
pub mod value;
/// Labels that stick to places, and when.
pub mod labels;
/// What a value derives from: trusted values, origins, `D(x, T)`.
pub mod provenance;
/// Sensitive tokens and the search for them in what leaves.
pub mod sensitive;
/// What the operator declared, and the three questions.
pub mod policy;
/// Release, refuse, defer; the permit.
pub mod decision;
/// The canonical description of one action, and its digest.
pub mod manifest;
/// Holds, what they depend on, and how they resolve together.
pub mod scope;
/// What the agent is told, worded in one place.
pub mod notice;
/// Bugs for tests to find; nothing without a feature that the program never has.
pub mod planted;
/// The one entry: an input goes in, actions come out.
pub mod step;

pub use decision::{Decision, Limit, Permit, Question, Reason, Refusal};
pub use event::{
    Channel, Class, Content, Digest, Effect, EventId, FileOp, HoldId, Incoming, Leaf, Object,
    Operation, Payload, Source,
};
pub use label::Level;
pub use labels::{Label, Place, Relabel};
pub use notice::Notice;
pub use policy::{Party, Policy, Rules};
pub use sensitive::{Carried, Scanner};
pub use step::{Action, Input, State, Verdict, step};
pub use value::{Gated, Kind, KindSet, Origin};
