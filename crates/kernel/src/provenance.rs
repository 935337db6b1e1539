//! What a value derives from. Only incoming content adds to what is known; nothing the agent
//! emits ever does.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::event::{EventId, HoldId, Incoming, Leaf, Source};
use crate::label::Level;
use crate::policy::Policy;
use crate::sensitive::{Carried, Scanner, Sensitive};
use crate::value::normal::normal_of;
use crate::value::{Kind, KindSet, Origin, host_of};

/// `D(x, T)`.
mod derive;
/// The structured forms of derivation, by name.
mod form;
/// Values of a text.
mod met;
/// Every value the agent met.
mod table;
/// The task as text.
mod task;
/// What answers of tools may steer.
mod typed;

pub use derive::Steered;
pub use form::{Form, Forms};
pub use met::Values;

use derive::{Asked, alias, prefixes};
use table::{Symbol, Table};
use task::Task;
use typed::{Call, Released};

/// Bit of a URL's loose form in the table, beside the bits of kinds.
const LOOSE: u16 = 1 << 12;
/// Bit of a number's canonical form.
const DECIMAL: u16 = 1 << 13;

/// Longest value that is kept, in bytes; encoded data is not worth it.
const VALUE_BYTES_MAX: usize = 2000;

/// Longest text that counts as one value as a whole, in bytes.
const WHOLE_BYTES_MAX: usize = 200;

/// Everything the agent could know by now, and from where.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// Every value the agent met; `T` is those that are trusted as some kind.
    table: Table,
    /// What the principal said.
    task: Task,
    /// What the task is trusted for.
    task_kinds: KindSet,
    /// Values good for named arguments only.
    released: HashMap<Symbol, Vec<Released>>,
    /// Calls whose answers may release values.
    calls: BTreeMap<EventId, Call>,
    /// `S`: sensitive tokens.
    sensitive: Sensitive,
}

impl Provenance {
    /// Adds what an incoming event brought.
    /// Its source, and what sticks to its place, are trusted for `kinds` and have `level`. `values` are those of its
    /// text, when somebody has looked for them already.
    pub(crate) fn learn(
        &mut self,
        policy: &Policy,
        (kinds, level): (KindSet, Level),
        event: EventId,
        incoming: &Incoming,
        values: Option<&Values>,
    ) {
        let source = &incoming.source;
        self.table.begin(event, source);
        let Ok(text) = core::str::from_utf8(&incoming.content.bytes) else {
            if level > Level::Public {
                // Another encoding than UTF-8 is text all the same, as far as it is ASCII.
                let text = String::from_utf8_lossy(&incoming.content.bytes);
                self.sensitive.add_text(&text, level, source, event);
                self.sensitive
                    .add_bytes(&incoming.content.bytes, level, source, event);
            }
            return;
        };
        let echoed = incoming
            .answers
            .and_then(|event| self.calls.get(&event))
            .map(|call| call.said.clone())
            .unwrap_or_default();
        let of_leaf = |leaf: &Leaf| level.join(policy.sensitivity_of_leaf(source, &leaf.path));
        let of_leaves = incoming.leaves.iter().map(of_leaf).max();
        // A field that is sensitive cannot be told apart in what has no fields.
        let whole = if incoming.leaves.is_empty() {
            level.join(policy.sensitivity_of_fields(source))
        } else {
            level
        };
        if whole > Level::Public {
            // Values of sensitive content would show up in explanations; it explains nothing.
            self.sensitive.add_text(text, whole, source, event);
        } else if of_leaves > Some(Level::Public) {
            for leaf in &incoming.leaves {
                match of_leaf(leaf) {
                    Level::Public => self.values(kinds, &leaf.value, &echoed),
                    level => self.sensitive.add_text(&leaf.value, level, source, event),
                }
            }
        } else {
            self.sensitive.met_in_public(text);
            match values.filter(|values| values.are_for(kinds)) {
                Some(values) => self.add(kinds, values, &echoed),
                None => self.values(kinds, text, &echoed),
            }
            self.wholes(kinds, text, &incoming.leaves, &echoed);
            if *source == Source::Task && !kinds.is_empty() {
                self.task.add(text);
                self.task_kinds = self.task_kinds.union(kinds);
            }
        }
        self.release(policy, incoming, text);
    }

    /// Every value found in a text, trusted as far as its source is.
    fn values(&mut self, kinds: KindSet, text: &str, echoed: &BTreeSet<String>) {
        self.add(kinds, &Values::of(kinds, text), echoed);
    }

    fn add(&mut self, kinds: KindSet, values: &Values, echoed: &BTreeSet<String>) {
        let table = &mut self.table;
        values.each(kinds, |kind, normal, line, trusted| {
            let trusted = trusted && !echoed.contains(normal);
            table.add(normal, if trusted { kind.bit() } else { 0 }, line);
            if let Some((bit, alias)) = alias(kind, normal).filter(|_| trusted) {
                table.add(&alias, bit, line);
            }
        });
    }

    /// Lines and leaves as wholes: names of several words.
    fn wholes(&mut self, kinds: KindSet, text: &str, leaves: &[Leaf], echoed: &BTreeSet<String>) {
        let bits = kinds.intersection(KindSet::of(&[Kind::Text])).0;
        let add = |table: &mut Table, whole: &str, line: u32| {
            let whole = whole.trim();
            if !whole.is_empty() && whole.len() <= WHOLE_BYTES_MAX && !whole.contains('\n') {
                let normal = normal_of(Kind::Text, whole);
                let bits = if echoed.contains(&*normal) { 0 } else { bits };
                table.add(&normal, bits, line);
            }
        };
        if bits != 0 {
            for (line, number) in text.lines().zip(1u32..) {
                add(
                    &mut self.table,
                    line.trim_start_matches(['-', '*', ' ']),
                    number,
                );
            }
        }
        // A leaf stands in the text soon after the one before it.
        const NEAR_BYTES: usize = 4096;
        let (mut rest, mut line) = (text, 1u32);
        for leaf in leaves {
            let mut near = rest.len().min(NEAR_BYTES);
            while !rest.is_char_boundary(near) {
                near -= 1;
            }
            let at = rest.get(..near).and_then(|near| near.find(&leaf.value));
            if let Some((passed, after)) = at.and_then(|at| rest.split_at_checked(at)) {
                line =
                    line.saturating_add(u32::try_from(passed.matches('\n').count()).unwrap_or(0));
                rest = after;
            }
            add(&mut self.table, &leaf.value, line);
        }
    }

    /// `D(x, T)`: whether the trusted values justify a value, as they stand or by one of the
    /// forms that the policy has in force. `steered` says what the value would steer.
    pub fn derives(
        &self,
        policy: &Policy,
        kind: Kind,
        value: &str,
        steered: Option<Steered<'_>>,
    ) -> bool {
        self.ask(policy, steered).derives(kind, value)
    }

    fn ask<'a>(&'a self, policy: &'a Policy, steered: Option<Steered<'a>>) -> Asked<'a> {
        Asked {
            provenance: self,
            policy,
            steered,
        }
    }

    /// Where the agent met a value, first meetings first.
    pub fn met_at(&self, kind: Kind, value: &str) -> Vec<Origin> {
        let normal = normal_of(kind, value);
        let met = |text: &str| {
            let symbol = self.table.find(text)?;
            Some(self.table.met(symbol)).filter(|origins| !origins.is_empty())
        };
        let near = || match kind {
            Kind::Url => prefixes(&normal)
                .find_map(met)
                .or_else(|| host_of(&normal).and_then(met)),
            Kind::Path => prefixes(&normal).find_map(met),
            _ => None,
        };
        met(&normal)
            .or_else(|| met(&normal_of(Kind::Text, value)))
            .or_else(|| met(&alias(kind, &normal)?.1))
            .or_else(near)
            .unwrap_or_default()
    }

    /// Level of what an effect carries.
    pub fn level_of(&self, carries: &Carried) -> Level {
        self.sensitive.level_of(carries)
    }

    /// Where the carried tokens above a level came from.
    pub fn origins_of(&self, carries: &Carried, above: Level) -> Vec<Origin> {
        self.sensitive.origins_of(carries, above)
    }

    /// What was found by the numbers of another session's tokens, by the numbers of this one's.
    pub fn translated(&self, carries: &Carried, from: &Self) -> Carried {
        self.sensitive.translated(carries, &from.sensitive)
    }

    /// How many sensitive tokens and marks are known by now; a search made before is as good as a new one while
    /// there are no more.
    pub fn sensitive_tokens(&self) -> usize {
        self.sensitive.len()
    }

    /// A search for everything sensitive known by now, to be run over what would leave.
    pub fn scanner(&self) -> Scanner {
        self.sensitive.scanner()
    }

    /// Adds the mark of a stub the agent is about to be given.
    pub(crate) fn mark(&mut self, hold: HoldId, mark: String) {
        self.sensitive.add_mark(hold, &mark);
    }
}
