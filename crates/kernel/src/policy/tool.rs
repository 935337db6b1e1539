//! Tools: what a call does, which of its arguments steer, and what its answer may steer in turn.

use alloc::string::String;
use alloc::sync::Arc;
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
    /// Which arguments select what it brings, and as what; empty for all of them, as text.
    pub selects: Vec<(FieldPattern, KindSet)>,
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
    /// The argument as a whole is a value of one of these kinds.
    Whole(FieldPattern, KindSet),
    /// The argument is text; values of these kinds inside it steer (a URL in a message).
    Inside(FieldPattern, KindSet),
}

impl ToolRule {
    /// The values that steer a call with these arguments, each with the kinds any one of which
    /// will do. What is empty steers nothing, but keys of the caller's own choosing do.
    pub(crate) fn gated(&self, arguments: &[Leaf]) -> Vec<(Gated, KindSet)> {
        let mut gated = Vec::new();
        for leaf in arguments {
            let mut whole: Option<(&FieldPattern, KindSet)> = None;
            for gate in &self.gate {
                match gate {
                    Gates::Whole(field, kinds)
                        if field.matches(&leaf.path)
                            && whole.is_none_or(|(known, _)| field.weight() > known.weight()) =>
                    {
                        whole = Some((field, *kinds));
                    }
                    Gates::Inside(field, kinds) if field.matches(&leaf.path) => {
                        for found in find(&leaf.value) {
                            if kinds.contains(found.kind) {
                                let kinds = KindSet::of(&[found.kind]);
                                gated.push((
                                    Gated::new(&leaf.path, found.kind, found.normal),
                                    kinds,
                                ));
                            }
                        }
                    }
                    _ => {}
                }
            }
            if let Some((field, kinds)) = whole {
                let first = Kind::ALL.into_iter().find(|kind| kinds.contains(*kind));
                let kind = first.unwrap_or(Kind::Text);
                let value = (!leaf.value.trim().is_empty()).then(|| leaf.value.clone());
                // A key stands for a value when it has none, or is no name of a field.
                let bare = value.is_none();
                let name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                let keys = field.keys(&leaf.path);
                let keys = keys.filter(|key| bare || !key.bytes().all(name));
                let keys = keys.map(|key| key.replace('\u{ff0e}', "."));
                gated.extend(
                    keys.chain(value)
                        .map(|text| (Gated::new(&leaf.path, kind, text), kinds)),
                );
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
    /// What else has to be true of the record that it stands in; all of these.
    pub matching: Vec<Matching>,
    /// The task has to name the value itself, as in [`Condition::Named`].
    pub named: bool,
    /// The field is text, and every value of the kind inside it counts.
    pub inside: bool,
    /// What it may steer.
    pub to: Arc<[Destination]>,
}

/// When a value of an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// Always.
    #[default]
    Always,
    /// When the call that brought it has selecting arguments and every one of them derives.
    Selected,
    /// When the answer holds one such value only.
    Unique,
    /// Both.
    SelectedUnique,
}

impl When {
    pub(crate) fn selected(self) -> bool {
        matches!(self, Self::Selected | Self::SelectedUnique)
    }

    pub(crate) fn unique(self) -> bool {
        matches!(self, Self::Unique | Self::SelectedUnique)
    }
}

/// A condition on the record that a value stands in.
#[derive(Clone, Debug)]
pub struct Matching {
    /// The other leaf; `*` stands for the same positions as in the rule's field.
    pub field: FieldPattern,
    /// What has to be true of it.
    pub is: Condition,
}

/// What has to be true of a leaf.
#[derive(Clone, Debug)]
pub enum Condition {
    /// It derives as one of these kinds.
    Derives(KindSet),
    /// It is one of these texts, but for case and white space.
    Is(Vec<String>),
    /// The task names it: writes it as a phrase or, for an address, writes a word of its local part
    /// of three letters or more with a capital.
    Named,
    /// It shares a word of three characters or more with the task.
    Words,
}

/// An argument of a tool.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The tool.
    pub tool: NamePattern,
    /// The argument.
    pub argument: FieldPattern,
}
