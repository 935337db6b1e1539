//! Holds, what they depend on, and how they resolve together. Holds form a graph without cycles,
//! because a hold depends on older ones only; its connected parts are the open scopes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::decision::Question;
use crate::event::{Class, Digest, Effect, HoldId};
use crate::manifest::{Manifest, Nonce};
use crate::policy::Policy;

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
    /// Digest of the principal's words when it was proposed.
    pub task: Digest,
    /// The oracle that released it, and why, while it waits for what it depends on.
    pub endorsed: Option<(String, String)>,
    /// What it waits for by coming later; waiting for it is waiting for all of that.
    pub waits: Waits,
}

/// What an effect waits for among the holds that came before it, whatever it builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// Nothing: it can be undone, or nobody outside learns of it.
    Nothing,
    /// Held requests and calls: what only asks could have seen what they do.
    Calls,
    /// Every hold.
    Everything,
}

impl Hold {
    /// Digest of its manifest under a policy and in a workspace.
    pub fn digest(&self, policy: &Policy, workspace: &str) -> Digest {
        Manifest {
            effect: &self.effect,
            epoch: policy.epoch,
            workspace,
            task: self.task,
            nonce: self.nonce,
        }
        .digest()
    }

    fn is_staged(&self) -> bool {
        self.effect.class == Class::Stageable
    }

    fn is_decided(&self) -> bool {
        self.endorsed.is_some() || !self.question.needs_oracle
    }
}

/// All open holds of a session, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    open: BTreeMap<HoldId, Hold>,
    /// Who waits for a hold directly.
    waiting: BTreeMap<HoldId, BTreeSet<HoldId>>,
    bytes: u64,
}

impl Holds {
    /// The hold of that name.
    pub fn find(&self, hold: HoldId) -> Option<&Hold> {
        self.open.get(&hold)
    }

    /// Oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Hold> {
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

    /// Sum of the parked bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A hold and everything that depends on it, oldest first.
    pub fn dependents(&self, hold: HoldId) -> Vec<HoldId> {
        self.closure(hold, |on| {
            self.waiting.get(&on).into_iter().flatten().copied()
        })
    }

    /// A hold and everything it depends on, oldest first: what has to be resolved for it.
    pub fn needs(&self, hold: HoldId) -> Vec<HoldId> {
        self.closure(hold, |of| self.waits_for(of))
    }

    /// The open scopes: holds that are connected by dependency, each oldest first.
    pub fn scopes(&self) -> Vec<Vec<HoldId>> {
        let mut seen = BTreeSet::new();
        let mut scopes = Vec::new();
        for hold in self.open.keys() {
            if seen.contains(hold) {
                continue;
            }
            let scope = self.closure(*hold, |of| {
                let dependents = self.waiting.get(&of).into_iter().flatten().copied();
                self.waits_for(of).chain(dependents)
            });
            seen.extend(scope.iter().copied());
            scopes.push(scope);
        }
        scopes
    }

    /// The holds that an effect waits for by coming later: the youngest, up to one that waits for
    /// the others itself.
    pub(crate) fn before(&self, waits: Waits) -> Vec<HoldId> {
        let mut found = Vec::new();
        if waits == Waits::Nothing {
            return found;
        }
        for held in self.open.values().rev() {
            if held.is_staged() && waits == Waits::Calls {
                continue;
            }
            found.push(held.question.hold);
            if held.waits >= waits {
                break;
            }
        }
        found
    }

    pub(crate) fn insert(&mut self, hold: Hold) {
        let name = hold.question.hold;
        for on in &hold.question.depends {
            self.waiting.entry(*on).or_default().insert(name);
        }
        self.bytes = self.bytes.saturating_add(hold.effect.payload.bytes);
        self.open.insert(name, hold);
    }

    /// Takes a hold out. What waited for it and is still open waits for it no more.
    pub(crate) fn remove(&mut self, hold: HoldId) -> Option<Hold> {
        let held = self.open.remove(&hold)?;
        self.bytes = self.bytes.saturating_sub(held.effect.payload.bytes);
        for on in &held.question.depends {
            if let Some(waiting) = self.waiting.get_mut(on) {
                waiting.remove(&hold);
                if waiting.is_empty() {
                    self.waiting.remove(on);
                }
            }
        }
        for waiting in self.waiting.remove(&hold).into_iter().flatten() {
            if let Some(other) = self.open.get_mut(&waiting) {
                other.question.depends.retain(|on| *on != hold);
            }
        }
        Some(held)
    }

    /// Takes a hold out that nobody decided.
    pub(crate) fn withdraw(&mut self, hold: HoldId) -> Option<Hold> {
        let waiting: Vec<HoldId> = self
            .waiting
            .get(&hold)
            .into_iter()
            .flatten()
            .copied()
            .collect();
        let held = self.remove(hold)?;
        // It stood for what came before it as well; for that they wait themselves from now on.
        let inherited: Vec<(HoldId, bool)> = held
            .question
            .depends
            .iter()
            .filter_map(|on| Some((*on, self.open.get(on)?.is_staged())))
            .collect();
        for name in waiting {
            let Some(other) = self.open.get_mut(&name) else {
                continue;
            };
            for (on, staged) in &inherited {
                let needed = if *staged {
                    Waits::Everything
                } else {
                    Waits::Calls
                };
                if other.waits < needed {
                    continue;
                }
                if let Err(place) = other.question.depends.binary_search(on) {
                    other.question.depends.insert(place, *on);
                    self.waiting.entry(*on).or_default().insert(name);
                }
            }
        }
        Some(held)
    }

    /// Makes an open hold wait for another one.
    pub(crate) fn wait(&mut self, name: HoldId, on: HoldId) {
        if let Some(held) = self.open.get_mut(&name)
            && let Err(place) = held.question.depends.binary_search(&on)
        {
            held.question.depends.insert(place, on);
            self.waiting.entry(on).or_default().insert(name);
        }
    }

    pub(crate) fn find_mut(&mut self, hold: HoldId) -> Option<&mut Hold> {
        self.open.get_mut(&hold)
    }

    /// Holds that wait directly for this one.
    pub(crate) fn waiting_for(&self, hold: HoldId) -> Vec<HoldId> {
        self.waiting
            .get(&hold)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    /// Whether it may be committed now: decided, and nothing it depends on is open.
    pub(crate) fn is_ready(&self, hold: HoldId) -> bool {
        self.open
            .get(&hold)
            .is_some_and(|held| held.is_decided() && self.waits_for(hold).next().is_none())
    }

    fn waits_for(&self, hold: HoldId) -> impl Iterator<Item = HoldId> + '_ {
        self.open
            .get(&hold)
            .into_iter()
            .flat_map(|held| held.question.depends.iter().copied())
            .filter(|on| self.open.contains_key(on))
    }

    fn closure<I: Iterator<Item = HoldId>>(
        &self,
        hold: HoldId,
        next: impl Fn(HoldId) -> I,
    ) -> Vec<HoldId> {
        let mut found = BTreeSet::from([hold]);
        let mut ahead = alloc::vec![hold];
        while let Some(at) = ahead.pop() {
            ahead.extend(next(at).filter(|name| found.insert(*name)));
        }
        found.retain(|name| self.open.contains_key(name));
        found.into_iter().collect()
    }
}
