//! Holds, what they depend on, and how they resolve together. The connected parts of the
//! dependency graph are the open scopes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::decision::Question;
use crate::event::{Digest, Effect, HoldId};
use crate::manifest::Nonce;

/// A deferred effect waiting for its verdict.
#[derive(Clone, Debug)]
pub struct Hold {
    /// What an oracle is asked.
    pub question: Question,
    /// The effect.
    pub effect: Effect,
    /// Digest of its manifest; a verdict names it.
    pub manifest: Digest,
    /// Its nonce, which is also the mark of its stub.
    pub nonce: Nonce,
    /// The oracle that released it, and why, while it waits for what it depends on.
    pub endorsed: Option<(String, String)>,
}

/// All open holds of a session, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    open: BTreeMap<HoldId, Hold>,
}

impl Holds {
    /// The hold of that name.
    pub fn find(&self, hold: HoldId) -> Option<&Hold> {
        self.open.get(&hold)
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.open.values()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// A hold and everything that depends on it, oldest first.
    pub fn dependents(&self, hold: HoldId) -> Vec<HoldId> {
        // A hold depends on older ones only, so one pass in order finds the closure.
        let mut found = BTreeSet::from([hold]);
        for (name, held) in &self.open {
            if held.question.depends.iter().any(|on| found.contains(on)) {
                found.insert(*name);
            }
        }
        found.into_iter().collect()
    }

    /// The open scopes: holds that are connected by dependency, each oldest first.
    pub fn scopes(&self) -> Vec<Vec<HoldId>> {
        let mut scope_of: BTreeMap<HoldId, HoldId> = BTreeMap::new();
        for (name, held) in &self.open {
            let mut root = *name;
            let touched: Vec<HoldId> = held
                .question
                .depends
                .iter()
                .filter_map(|on| scope_of.get(on).copied())
                .collect();
            if let Some(oldest) = touched.iter().min() {
                root = *oldest;
            }
            for scope in scope_of.values_mut() {
                if touched.contains(scope) {
                    *scope = root;
                }
            }
            scope_of.insert(*name, root);
        }
        let mut scopes: BTreeMap<HoldId, Vec<HoldId>> = BTreeMap::new();
        for (name, scope) in scope_of {
            scopes.entry(scope).or_default().push(name);
        }
        scopes.into_values().collect()
    }

    pub(crate) fn insert(&mut self, hold: Hold) {
        self.open.insert(hold.question.hold, hold);
    }

    pub(crate) fn remove(&mut self, hold: HoldId) -> Option<Hold> {
        self.open.remove(&hold)
    }

    pub(crate) fn endorse(&mut self, hold: HoldId, oracle: String, reason: String) {
        if let Some(held) = self.open.get_mut(&hold) {
            held.endorsed = Some((oracle, reason));
        }
    }

    /// The oldest hold that may be committed now.
    pub(crate) fn next_ready(&self) -> Option<HoldId> {
        self.open
            .values()
            .find(|held| {
                (held.endorsed.is_some() || !held.question.needs_oracle)
                    && held
                        .question
                        .depends
                        .iter()
                        .all(|on| !self.open.contains_key(on))
            })
            .map(|held| held.question.hold)
    }
}
