//! Tools: what a call does, which of its arguments steer, and what its answer may steer in turn.

use alloc::string::String;
use alloc::vec::Vec;

use super::{FieldPattern, NamePattern};
use crate::event::{Class, Leaf};
use crate::label::Level;
use crate::value::{Gated, Kind, KindSet, find};

/// A tool that the policy names.
#[derive(Clone, Debug)]
pub struct ToolRule {
    /// Its name.
    pub name: NamePattern,
    /// What a call does.
    pub effect: ToolEffect,
    /// How a call can be held.
    pub class: Class,
    /// Which arguments steer it.
    pub gate: Vec<Gates>,
    /// Highest level its arguments may carry.
    pub clearance: Level,
}

/// What a call of a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEffect {
    /// Reads what the principal already has; nobody else learns of it.
    Read,
    /// Asks somebody beyond the boundary, who sees the arguments.
    Fetch,
    /// Changes something.
    Act,
}

impl ToolEffect {
    /// The word for it in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Fetch => "fetch",
            Self::Act => "act",
        }
    }

    /// How a call is held when the policy does not say: who waits for an answer, waits.
    pub fn class(self) -> Class {
        match self {
            Self::Read | Self::Fetch => Class::Blocking,
            Self::Act => Class::Stallable,
        }
    }
}

/// Arguments that steer a call.
#[derive(Clone, Debug)]
pub enum Gates {
    /// The argument as a whole is a value of this kind.
    Whole(FieldPattern, Kind),
    /// The argument is text; values of these kinds inside it steer (a URL in a message).
    Inside(FieldPattern, KindSet),
}

impl ToolRule {
    /// The values that steer a call with these arguments.
    pub(crate) fn gated(&self, arguments: &[Leaf]) -> Vec<Gated> {
        let mut gated = Vec::new();
        for leaf in arguments {
            for gate in &self.gate {
                match gate {
                    Gates::Whole(field, kind) if field.matches(&leaf.path) => {
                        gated.push(Gated::new(&leaf.path, *kind, leaf.value.clone()));
                    }
                    Gates::Inside(field, kinds) if field.matches(&leaf.path) => {
                        for found in find(&leaf.value) {
                            if kinds.contains(found.kind) {
                                gated.push(Gated::new(&leaf.path, found.kind, found.normal));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        gated
    }
}

/// A narrow value of a tool's structured answer, good for named arguments and nothing else.
#[derive(Clone, Debug)]
pub struct TypedRule {
    /// What it is called in explanations.
    pub name: String,
    /// The tool whose answer it is.
    pub from: NamePattern,
    /// Which leaves of the answer.
    pub field: FieldPattern,
    /// Of which kind they are; what is not of that kind is not released.
    pub kind: Kind,
    /// Under which condition.
    pub when: When,
    /// Other leaves of the same record have to derive from trusted values, each of these.
    pub matching: Vec<Matching>,
    /// What it may steer.
    pub to: Vec<Destination>,
}

/// When a value of an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// Always.
    #[default]
    Always,
    /// When every argument of the call that brought it derives from trusted values.
    Selected,
    /// When the answer holds one such value only.
    Unique,
    /// Both.
    SelectedUnique,
}

/// A condition on the record that a value stands in.
#[derive(Clone, Debug)]
pub struct Matching {
    /// The other leaf; `*` stands for the same positions as in the rule's field.
    pub field: FieldPattern,
    /// Its kind.
    pub kind: Kind,
}

/// An argument of a tool.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The tool.
    pub tool: NamePattern,
    /// The argument.
    pub argument: FieldPattern,
}
