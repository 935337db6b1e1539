//! Labels that stick to places. What the agent writes inherits the integrity of everything it
//! read before, and the level of what the content carries; a place keeps that with the workspace,
//! so that a note planted in one session is not trusted in the next. Only a commit makes a label
//! permanent; merging two keeps the worse of each.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::event::{Effect, FileOp, HoldId, Object, Operation, Source};
use crate::label::Level;
use crate::value::KindSet;

/// What is known of some content: the kinds of value that everything it was made from was trusted
/// for (its integrity, kind by kind), and how far it may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// No more is to be trusted of it than this.
    pub trusted: KindSet,
    /// Level of what it carries.
    pub level: Level,
}

impl Label {
    /// Of content about which nothing bad is known.
    pub const CLEAN: Self = Self {
        trusted: KindSet::ALL,
        level: Level::Public,
    };

    /// The worse of both: the meet of integrity, the join of confidentiality.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            trusted: self.trusted.intersection(other.trusted),
            level: self.level.join(other.level),
        }
    }
}

/// A place in mediated state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The tree's name.
    pub tree: String,
    /// Path below the tree's root, without a leading slash.
    pub path: String,
}

impl Place {
    /// The place that content came from, if it came from one.
    pub fn at(source: &Source) -> Option<Self> {
        match source {
            Source::Location { tree, path } => Some(Self {
                tree: tree.clone(),
                path: path.clone(),
            }),
            _ => None,
        }
    }

    /// The place an effect changes, if it changes one.
    pub fn of(effect: &Effect) -> Option<Self> {
        match &effect.object {
            Object::Location { tree, path } => Some(Self {
                tree: tree.clone(),
                path: path.clone(),
            }),
            _ => None,
        }
    }

    /// Whether it is `other` or lies below it.
    fn is_within(&self, other: &Self) -> bool {
        self.tree == other.tree
            && self
                .path
                .strip_prefix(other.path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// What a commit does to labels, to be kept with the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relabel {
    /// The place has this label from now on, merged with what it had.
    Stick(Place, Label),
    /// The place is gone, and its label and those below it with it.
    Clear(Place),
}

/// The labels of a workspace.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    permanent: BTreeMap<Place, Label>,
    pending: BTreeMap<HoldId, Relabel>,
    /// What places had that are gone: what comes to be there in the same session is likely to be
    /// made from it.
    gone: BTreeMap<Place, Label>,
}

impl Labels {
    /// Label of what the agent reads at a place now: what sticks to it, and what is staged there.
    pub fn of(&self, tree: &str, path: &str) -> Label {
        if self.permanent.is_empty() && self.pending.is_empty() {
            return Label::CLEAN;
        }
        let place = Place {
            tree: tree.into(),
            path: path.into(),
        };
        let sticks = self.permanent.get(&place).copied();
        self.pending
            .values()
            .filter_map(|relabel| match relabel {
                Relabel::Stick(at, label) if *at == place => Some(*label),
                _ => None,
            })
            .fold(sticks.unwrap_or(Label::CLEAN), Label::merge)
    }

    /// Every permanent label, in order of places.
    pub fn permanent(&self) -> impl Iterator<Item = (&Place, Label)> {
        self.permanent.iter().map(|(place, label)| (place, *label))
    }

    /// Labels that depend on a hold being committed.
    pub fn pending(&self) -> impl Iterator<Item = (HoldId, &Relabel)> {
        self.pending.iter().map(|(hold, relabel)| (*hold, relabel))
    }

    /// Makes a change permanent.
    pub fn apply(&mut self, relabel: &Relabel) {
        match relabel {
            Relabel::Stick(place, label) => {
                let merged = self.permanent.get(place).copied().unwrap_or(Label::CLEAN);
                self.permanent.insert(place.clone(), merged.merge(*label));
            }
            Relabel::Clear(gone) => {
                let below: Vec<Place> = self
                    .permanent
                    .range(gone..)
                    .take_while(|(place, _)| {
                        place.tree == gone.tree && place.path.starts_with(gone.path.as_str())
                    })
                    .filter(|(place, _)| place.is_within(gone))
                    .map(|(place, _)| place.clone())
                    .collect();
                for place in below {
                    if let Some(label) = self.permanent.remove(&place) {
                        let before = self.gone.get(&place).copied().unwrap_or(Label::CLEAN);
                        self.gone.insert(place, before.merge(label));
                    }
                }
            }
        }
    }

    /// A change of labels, merged with what its place has or had in this session.
    pub(crate) fn merged(&self, relabel: Relabel) -> Relabel {
        match relabel {
            Relabel::Stick(place, label) => {
                let had = [self.permanent.get(&place), self.gone.get(&place)];
                let merged = had.into_iter().flatten().fold(label, |a, b| a.merge(*b));
                Relabel::Stick(place, merged)
            }
            clear @ Relabel::Clear(_) => clear,
        }
    }

    pub(crate) fn hold(&mut self, hold: HoldId, relabel: Relabel) {
        self.pending.insert(hold, relabel);
    }

    pub(crate) fn discard(&mut self, hold: HoldId) {
        self.pending.remove(&hold);
    }

    pub(crate) fn commit(&mut self, hold: HoldId) -> Option<Relabel> {
        let relabel = self.pending.remove(&hold)?;
        self.apply(&relabel);
        Some(relabel)
    }
}

/// What carrying out an effect does to labels: `made_from` is the label of everything read so
/// far, `level` that of what the content carries.
pub(crate) fn relabel(effect: &Effect, made_from: KindSet, level: Level) -> Option<Relabel> {
    let place = Place::of(effect)?;
    match effect.operation {
        Operation::File(FileOp::Create | FileOp::Modify) => Some(Relabel::Stick(
            place,
            Label {
                trusted: made_from,
                level,
            },
        )),
        Operation::File(FileOp::Delete) => Some(Relabel::Clear(place)),
        // Mode, owner and times are not content.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Kind;

    fn place(path: &str) -> Place {
        Place {
            tree: "workspace".into(),
            path: path.into(),
        }
    }

    #[test]
    fn the_worse_of_both_stays_until_the_place_is_gone() {
        let mut labels = Labels::default();
        let paths = KindSet::of(&[Kind::Path, Kind::Host]);
        let hosts = KindSet::of(&[Kind::Host]);
        for (trusted, level) in [(paths, Level::Critical), (hosts, Level::Public)] {
            labels.apply(&Relabel::Stick(place("d/a"), Label { trusted, level }));
        }
        let label = labels.of("workspace", "d/a");
        assert_eq!((label.trusted, label.level), (hosts, Level::Critical));
        labels.apply(&Relabel::Stick(place("d.txt"), label));
        assert_eq!(labels.of("home", "d/a"), Label::CLEAN);
        labels.apply(&Relabel::Clear(place("d")));
        assert_eq!(labels.of("workspace", "d/a"), Label::CLEAN);
        assert_eq!(labels.of("workspace", "d.txt"), label);
    }
}
