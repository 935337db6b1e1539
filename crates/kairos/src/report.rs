//! A session as its log tells it. A pure fold over records, so a running session, an ended one
//! and one that was cut off are told by the same code.

use std::collections::BTreeMap;

use serde::Serialize;
use store::Record;
use store::log::Entry;
use store::record::{UNKNOWN, WrittenEffect, WrittenObject};

use crate::exit::{Failure, Outcome};

/// What became of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    /// It happened.
    Released,
    /// It waits for a verdict.
    Held,
    /// It did not happen and will not.
    Refused,
    /// It was to happen and its sink failed, or its owner's version was in the way.
    Failed,
    /// It was released, and nobody knows what came of it: the session was cut off, or no answer came.
    Unknown,
    /// The agent took it back.
    Withdrawn,
}

/// One effect.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Item {
    /// Number of the event.
    pub(crate) event: u64,
    /// Name of the hold, if it was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold: Option<String>,
    /// Channel.
    pub(crate) channel: String,
    /// What it does: `create`, `POST`, ...
    pub(crate) operation: String,
    /// To what: a path or a URL.
    pub(crate) object: String,
    /// What its content is, in a few words.
    pub(crate) about: String,
    /// More of its content, a line each, where a few words are not enough: the commits of a push.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
    /// What became of it.
    pub(crate) fate: Fate,
    /// Why it was decided as it was, in words.
    pub(crate) reasons: Vec<String>,
    /// Where its steering values, and what is sensitive in it, came from.
    pub(crate) origins: Vec<store::record::WrittenOrigin>,
    /// Who decided it at last: `policy`, or an oracle with its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
    /// Whether it is traffic with a model provider.
    #[serde(skip)]
    pub(crate) internal: bool,
    /// Digest of the manifest.
    pub(crate) manifest: String,
}

/// A session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Its id.
    pub(crate) session: String,
    /// The command.
    pub(crate) command: Vec<String>,
    /// When it started.
    pub(crate) started: String,
    /// The agent's exit status, once it has ended.
    pub(crate) status: Option<i32>,
    /// Every effect, in order.
    pub(crate) items: Vec<Item>,
    /// Reads: source and number of events.
    pub(crate) reads: u64,
    /// Warnings.
    pub(crate) warnings: Vec<String>,
}

impl Report {
    /// Folds the log of a session as it is now.
    pub(crate) fn read(dir: &store::SessionDir) -> Outcome<Self> {
        let log = store::log::read(&dir.log()).map_err(Failure::new)?;
        Ok(Self::of(&dir.id(), &log.entries))
    }

    /// Folds a log.
    pub(crate) fn of(session: &str, entries: &[Entry]) -> Self {
        let mut report = Self {
            session: session.to_string(),
            ..Self::default()
        };
        let mut index: BTreeMap<u64, usize> = BTreeMap::new();
        for entry in entries {
            report.take(&entry.record, &mut index);
        }
        report
    }

    /// Effects with a fate, without the traffic with model providers.
    pub(crate) fn with(&self, fates: &[Fate]) -> Vec<&Item> {
        self.items
            .iter()
            .filter(|item| fates.contains(&item.fate) && !item.internal)
            .collect()
    }

    /// Effects that happened only because the mode was not to enforce.
    pub(crate) fn unenforced(&self) -> Vec<&Item> {
        let told = |why: &String| why.starts_with("shadow: ") || why.starts_with("record: ");
        self.items
            .iter()
            .filter(|item| item.reasons.iter().any(told))
            .collect()
    }

    /// Effects that wait.
    pub(crate) fn held(&self) -> Vec<&Item> {
        self.items
            .iter()
            .filter(|item| item.fate == Fate::Held)
            .collect()
    }

    fn take(&mut self, record: &Record, index: &mut BTreeMap<u64, usize>) {
        match record {
            Record::Header {
                command, started, ..
            } => {
                self.command.clone_from(command);
                self.started.clone_from(started);
            }
            Record::Incoming { .. } => self.reads += 1,
            Record::Proposed {
                event,
                effect,
                decision,
                why,
                manifest,
                origins,
                ..
            } => {
                index.insert(*event, self.items.len());
                let mut item = Item::new(*event, effect, why, manifest);
                item.origins.clone_from(origins);
                match decision.as_str() {
                    // Until something is known of it.
                    "release" => {
                        item.fate = Fate::Unknown;
                        item.by = Some("policy".to_string());
                        item.internal = why.iter().any(|w| w.contains("internal channel"));
                    }
                    "defer" => {
                        item.fate = Fate::Held;
                        item.hold = Some(format!("h{event}"));
                    }
                    _ => item.by = Some("policy".to_string()),
                }
                self.items.push(item);
            }
            Record::Verdict {
                hold,
                oracle,
                reason,
                ..
            } => {
                if let Some(item) = self.hold(hold, index) {
                    item.by = Some(format!("{oracle}: {reason}"));
                }
            }
            Record::Withdrawn { hold, .. } => {
                if let Some(item) = self.hold(hold, index) {
                    item.fate = Fate::Withdrawn;
                }
            }
            Record::Spent { event, .. } => {
                if let Some(item) = self.item(*event, index) {
                    item.fate = Fate::Unknown;
                }
            }
            Record::Aborted { event, why } => {
                if let Some(item) = self.item(*event, index) {
                    item.fate = Fate::Refused;
                    item.result = Some(why.clone());
                }
            }
            Record::Done { event, ok, what } => {
                let item = self.item(*event, index);
                if let Some(item) = item.filter(|item| item.fate == Fate::Unknown) {
                    item.fate = match ok {
                        true => Fate::Released,
                        false if what.starts_with(UNKNOWN) => Fate::Unknown,
                        false => Fate::Failed,
                    };
                    item.result = Some(what.clone());
                }
            }
            Record::Note { what, facts } => match what.as_str() {
                "agent ended" => self.status = facts.get("status").and_then(|s| s.parse().ok()),
                "warning" => self.warnings.extend(facts.get("text").cloned()),
                _ => {}
            },
            Record::Expired { .. }
            | Record::Overdue { .. }
            | Record::Policy { .. }
            | Record::Labels { .. }
            | Record::Relabelled { .. }
            | Record::Told { .. } => {}
        }
    }

    fn hold(&mut self, hold: &str, index: &BTreeMap<u64, usize>) -> Option<&mut Item> {
        let event = hold.strip_prefix('h')?.parse().ok()?;
        self.item(event, index)
    }

    fn item(&mut self, event: u64, index: &BTreeMap<u64, usize>) -> Option<&mut Item> {
        self.items.get_mut(*index.get(&event)?)
    }
}

impl Item {
    fn new(event: u64, effect: &WrittenEffect, why: &[String], manifest: &str) -> Self {
        let object = match effect.read() {
            Ok(effect) => effect.object.to_string(),
            Err(_) => match &effect.object {
                WrittenObject::Location(tree, path) => format!("{tree}/{path}"),
                WrittenObject::Party { host, path, .. } => format!("{host}{path}"),
                WrittenObject::Tool(name) => name.clone(),
            },
        };
        Self {
            event,
            hold: None,
            channel: effect.channel.clone(),
            operation: effect.operation.clone(),
            object,
            about: effect.about.clone(),
            details: details(effect),
            fate: Fate::Refused,
            reasons: why.to_vec(),
            origins: Vec::new(),
            by: None,
            result: None,
            internal: false,
            manifest: manifest.to_string(),
        }
    }

    /// Whether it has no reason of its own: it waits for, or went with, something else.
    pub(crate) fn follows(&self) -> bool {
        match self.fate {
            Fate::Held => {
                !self.reasons.is_empty()
                    && self
                        .reasons
                        .iter()
                        .all(|why| why.starts_with(kernel::Reason::AFTER))
            }
            Fate::Refused => {
                let result = self.result.as_deref().unwrap_or_default();
                result.starts_with(kernel::Refusal::DEPENDS)
            }
            _ => false,
        }
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let about = if self.about.is_empty() {
            String::new()
        } else {
            format!("  ({})", self.about)
        };
        format!("{} {}{about}", self.operation, self.object)
    }
}

/// The commits of a push, when there are several.
fn details(effect: &store::record::WrittenEffect) -> Vec<String> {
    let commits = effect.fields.get("git commits").map(String::as_str);
    let lines: Vec<&str> = commits.unwrap_or_default().lines().collect();
    let several = if lines.len() > 1 {
        lines.as_slice()
    } else {
        &[]
    };
    several
        .iter()
        .map(|line| format!("commit {line}"))
        .collect()
}
