//! Typed releases: a narrow value of a tool's answer becomes good for named arguments, and for
//! nothing else. Only the answer to a call that really happened counts.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Provenance;
use super::derive::{Steered, alias, any};
use crate::event::{Effect, EventId, Incoming, Leaf, Object, Source};
use crate::policy::{Condition, Destination, Policy, TypedRule};
use crate::value::normal::{decimal, folded, normal_of};
use crate::value::{Kind, KindSet, date, each};

/// Calls that are remembered until their answers come.
const CALLS_MAX: usize = 10_000;

/// Longest value that is released, in bytes.
const VALUE_BYTES_MAX: usize = 1000;

/// A call whose answer may release values.
#[derive(Clone, Debug)]
pub(super) struct Call {
    tool: String,
    /// Everything that selects what it brings derives.
    selected: bool,
    /// It really happened.
    carried_out: bool,
    /// Values of its arguments that did not derive, in normal form.
    pub(super) said: BTreeSet<String>,
}

/// What a value is good for.
#[derive(Clone, Debug)]
pub(super) struct Released {
    pub(super) bits: u16,
    pub(super) to: Arc<[Destination]>,
}

impl Provenance {
    /// Remembers a call some of whose answer may be released.
    pub(crate) fn called(&mut self, policy: &Policy, event: EventId, effect: &Effect) {
        let Object::Tool { name } = &effect.object else {
            return;
        };
        let trusted = policy.trusted_kinds(&Source::Tool(name.clone()));
        if trusted.is_empty() && !policy.typed.iter().any(|rule| rule.from.matches(name)) {
            return;
        }
        // An answer that repeats what it was asked says nothing of its own.
        let mut said = BTreeSet::new();
        let asked = self.ask(policy, None);
        for leaf in &effect.arguments {
            let mut note = |kind: Kind, value: &str| {
                if !asked.derives(kind, value) {
                    said.insert(normal_of(Kind::Text, value).into_owned());
                    said.insert(normal_of(kind, value).into_owned());
                }
            };
            note(Kind::Text, &leaf.value);
            each(&leaf.value, |kind, value, _, _| note(kind, value));
        }
        let call = Call {
            said,
            tool: name.clone(),
            selected: self.selected(policy, name, &effect.arguments),
            carried_out: false,
        };
        self.calls.insert(event, call);
        if self.calls.len() > CALLS_MAX {
            self.calls.pop_first();
        }
    }

    /// A call was let happen.
    pub(crate) fn carried_out(&mut self, event: EventId) {
        if let Some(call) = self.calls.get_mut(&event) {
            call.carried_out = true;
        }
    }

    /// Whether a call brings what the principal asked for: it has selecting arguments, and every
    /// one of them derives. One that is empty selects nothing.
    fn selected(&self, policy: &Policy, tool: &str, arguments: &[Leaf]) -> bool {
        let Some(rule) = policy.tool(tool) else {
            return false;
        };
        let mut any = false;
        for leaf in arguments
            .iter()
            .filter(|leaf| !leaf.value.trim().is_empty())
        {
            let kinds = if rule.selects.is_empty() {
                KindSet::of(&[Kind::Text])
            } else {
                let mut named = rule
                    .selects
                    .iter()
                    .filter(|(field, _)| field.matches(&leaf.path));
                match named.next() {
                    Some((_, kinds)) => *kinds,
                    None => continue,
                }
            };
            let asked = self.ask(
                policy,
                Some(Steered {
                    tool,
                    argument: &leaf.path,
                }),
            );
            any = true;
            let mut of = Kind::ALL.into_iter().filter(|kind| kinds.contains(*kind));
            if !of.any(|kind| asked.selects(kind, &leaf.value)) {
                return false;
            }
        }
        any
    }

    /// Releases what the policy's typed rules say of an answer.
    pub(super) fn release(&mut self, policy: &Policy, incoming: &Incoming, text: &str) {
        // A call has one answer.
        let Some(call) = incoming.answers.and_then(|event| self.calls.remove(&event)) else {
            return;
        };
        if !call.carried_out || incoming.source != Source::Tool(call.tool.clone()) {
            return;
        }
        let mut releases: Vec<(String, Kind, Arc<[Destination]>)> = Vec::new();
        for rule in policy
            .typed
            .iter()
            .filter(|rule| rule.from.matches(&call.tool))
        {
            if rule.when.selected() && !call.selected {
                continue;
            }
            let values = self.values_of(policy, rule, &call, incoming, text);
            if !rule.when.unique() || values.len() == 1 {
                let to = |value| (value, rule.kind, Arc::clone(&rule.to));
                releases.extend(values.into_iter().map(to));
            }
        }
        for (value, kind, to) in releases {
            let alias = alias(kind, &value).map(|(bit, alias)| (bit, alias.into_owned()));
            let forms = core::iter::once((kind.bit(), value)).chain(alias);
            for (bits, text) in forms {
                if let Some(symbol) = self.table.add(&text, 0, 1) {
                    let known = self.released.entry(symbol).or_default();
                    if !known
                        .iter()
                        .any(|one| one.bits == bits && Arc::ptr_eq(&one.to, &to))
                    {
                        known.push(Released {
                            bits,
                            to: Arc::clone(&to),
                        });
                    }
                }
            }
        }
    }

    /// The distinct values of an answer that a rule speaks of, in normal form.
    fn values_of(
        &self,
        policy: &Policy,
        rule: &TypedRule,
        call: &Call,
        incoming: &Incoming,
        text: &str,
    ) -> BTreeSet<String> {
        let conditions: Vec<Records<'_>> = rule
            .matching
            .iter()
            .map(|matching| {
                let mut records = Records::new();
                for leaf in &incoming.leaves {
                    if let Some(record) = matching.field.bound(&leaf.path) {
                        let holds = self.holds_true(policy, &matching.is, &leaf.value);
                        // Of two fields with one name, one may be somebody else's.
                        *records.entry(record).or_insert(true) &= holds;
                    }
                }
                records
            })
            .collect();
        let mut values = BTreeSet::new();
        for (value, record) in candidates(rule, incoming, text) {
            let mut take = |value: &str| {
                let value = value.trim();
                if value.is_empty()
                    || value.len() > VALUE_BYTES_MAX
                    || value.contains('\n')
                    || !is_of(rule.kind, value)
                    || (rule.named && !self.task.names(&normal_of(Kind::Text, value)))
                {
                    return;
                }
                let normal = normal_of(rule.kind, value);
                let echo = call.said.contains(&*normal);
                if !normal.is_empty() && !echo {
                    values.insert(normal.into_owned());
                }
            };
            if !conditions.iter().all(|records| meets(records, &record)) {
                continue;
            }
            if !rule.inside {
                take(&value);
                continue;
            }
            each(&value, |kind, found, _, doubtful| {
                let wanted = match rule.kind {
                    Kind::Id => kind == Kind::Text && found.chars().any(char::is_numeric),
                    wanted => kind == wanted && !doubtful,
                };
                if wanted {
                    take(found);
                }
            });
        }
        values
    }

    fn holds_true(&self, policy: &Policy, condition: &Condition, value: &str) -> bool {
        let text = || normal_of(Kind::Text, value);
        match condition {
            Condition::Derives(kinds) => any(&self.ask(policy, None), *kinds, value),
            Condition::Is(texts) => texts.iter().any(|one| normal_of(Kind::Text, one) == text()),
            Condition::Named => self.task.names(&text()),
            Condition::Words => self.task.shares_a_word(&text()),
        }
    }
}

/// Whether a condition is met, by record: what the `*` of its field stood for.
type Records<'a> = BTreeMap<Vec<&'a str>, bool>;

/// Whether the record that a value stands in, or one within or around it, meets a condition.
fn meets(records: &Records<'_>, record: &[&str]) -> bool {
    let parts = records.keys().next().map_or(0, Vec::len);
    match record.get(..parts) {
        Some(around) => records.get(around).copied().unwrap_or_default(),
        None => records
            .iter()
            .any(|(within, met)| *met && within.starts_with(record)),
    }
}

/// What a rule's field speaks of, each with its record.
fn candidates<'a>(
    rule: &TypedRule,
    incoming: &'a Incoming,
    text: &'a str,
) -> Vec<(Cow<'a, str>, Vec<&'a str>)> {
    match rule.field.0.as_str() {
        "$text" => alloc::vec![(Cow::Borrowed(text), Vec::new())],
        "$lines" => {
            let mut lines = text.lines();
            // `Hotel Names: A` says what follows.
            let first = lines
                .next()
                .map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest));
            first
                .into_iter()
                .chain(lines)
                .map(|line| (Cow::Borrowed(line), Vec::new()))
                .collect()
        }
        _ => incoming
            .leaves
            .iter()
            .filter_map(|leaf| {
                let record = rule.field.bound(&leaf.path)?;
                Some((Cow::Borrowed(leaf.value.as_str()), record))
            })
            .collect(),
    }
}

/// Whether a value is one of its kind at all, as far as that can be told.
fn is_of(kind: Kind, value: &str) -> bool {
    match kind {
        Kind::Email | Kind::Url | Kind::Host => {
            let normal = normal_of(kind, value).to_string();
            let mut whole = false;
            each(value, |found, text, _, _| {
                whole |= found == kind && normal_of(kind, text) == normal;
            });
            whole
        }
        Kind::Number => decimal(value).is_some(),
        Kind::Date => {
            let (moments, all) = date::moments(&folded(value));
            all && !moments.is_empty()
        }
        _ => true,
    }
}
