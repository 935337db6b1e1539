//! What is kept of findings for the next session of the same agent in the same workspace. The check
//! that fired is the author: a reflection holds facts lifted from the trace, each in a form that can
//! carry no sentence, and widens what guards notice, never what they refuse.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::finding::{Any, Code, Severity};
use crate::trace::Trace;

/// Reflections of the code `instruction-source`.
pub const SOURCES_MAX: usize = 50;
/// Reflections of any other code.
pub const OTHERS_MAX: usize = 150;
/// Places kept for what was seen once, so that what is new is always learned.
pub const ONE_OFFS_MIN: usize = 10;
/// Conversations in which a reflection has to be seen to be a recurring one.
const RECURRING: usize = 2;
/// Stopped hosts under one domain that make a family.
const FAMILY: usize = 2;
/// Conversations that a reflection remembers.
const SEEN_MAX: usize = 8;

/// What a reflection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A file whose content held the destination.
    InstructionSource,
    /// A host where an action was stopped.
    Host,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InstructionSource => "instruction-source",
            Self::Host => "host",
        }
    }

    fn most(self) -> usize {
        match self {
            Self::InstructionSource => SOURCES_MAX,
            Self::Host => OTHERS_MAX,
        }
    }
}

/// One lesson.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Reflection {
    /// What it is about.
    pub kind: Kind,
    /// The file or the host.
    pub value: String,
    /// The way out that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The finding it comes from.
    pub code: String,
    /// Conversations in which it was seen, oldest first.
    pub seen: Vec<String>,
    /// When it was last seen, in the memory's own count.
    pub last: u64,
}

impl Reflection {
    /// Seen in two independent conversations.
    pub fn is_recurring(&self) -> bool {
        self.seen.len() >= RECURRING
    }
}

/// All that is kept for one agent in one workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Memory {
    /// Version of this form.
    #[serde(default)]
    pub format: u32,
    /// Counts what is kept, in the place of a clock.
    #[serde(default)]
    pub count: u64,
    /// The reflections.
    #[serde(default)]
    pub reflections: Vec<Reflection>,
}

/// What became of a finding at the gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It taught these, by value.
    Kept(Vec<String>),
    /// Not sure enough.
    Severity,
    /// It holds no fact that could be kept.
    Facts,
    /// A fact is not of its form.
    Form(&'static str),
    /// The principal named all of it; this, for one.
    Named(String),
}

impl Memory {
    /// Learns from a finding of one conversation, through four gates: it is a warning or worse; it
    /// holds facts; each fact has the form of its kind; and the principal did not name the fact.
    pub fn learn(&mut self, finding: &Any, trace: &Trace, conversation: &str) -> Gate {
        if finding.severity() < Severity::Warn {
            return Gate::Severity;
        }
        // What a lesson noticed is no lesson, or one would confirm itself.
        let teaches = matches!(
            finding.code(),
            Code::SensitiveEgress | Code::OutboundBlob | Code::Drift
        );
        let facts = finding.facts();
        let host = facts.get("host");
        let source = facts.get("source");
        if !teaches || host.is_none() && source.is_none() {
            return Gate::Facts;
        }
        if let Some(host) = host
            && !is_host(host)
        {
            return Gate::Form("host");
        }
        if let Some(source) = source
            && !is_path(source)
        {
            return Gate::Form("source");
        }
        let channel = facts
            .get("channel")
            .filter(|channel| is_word(channel))
            .cloned();
        if facts.contains_key("channel") && channel.is_none() {
            return Gate::Form("channel");
        }
        let mut kept = Vec::new();
        let mut named = None;
        let facts = [(Kind::InstructionSource, source), (Kind::Host, host)];
        for (kind, value) in facts {
            let Some(value) = value else { continue };
            if is_named(trace, kind, value) {
                named.get_or_insert(value);
                continue;
            }
            kept.push(value.clone());
            self.keep(kind, value, channel.clone(), finding.code(), conversation);
        }
        if let (true, Some(named)) = (kept.is_empty(), named) {
            return Gate::Named(named.clone());
        }
        Gate::Kept(kept)
    }

    fn keep(
        &mut self,
        kind: Kind,
        value: &str,
        channel: Option<String>,
        code: Code,
        conversation: &str,
    ) {
        self.format = 1;
        self.count += 1;
        let known = self
            .reflections
            .iter_mut()
            .find(|known| known.kind == kind && known.value == value);
        match known {
            Some(known) => {
                known.last = self.count;
                if !known.seen.iter().any(|seen| seen == conversation)
                    && known.seen.len() < SEEN_MAX
                {
                    known.seen.push(conversation.to_owned());
                }
            }
            None => self.reflections.push(Reflection {
                kind,
                value: value.to_owned(),
                channel,
                code: code.name().to_owned(),
                seen: vec![conversation.to_owned()],
                last: self.count,
            }),
        }
        self.evict(kind);
    }

    /// Over the cap, what was seen once goes first, the longest unseen first; only when there are no
    /// more one-offs than their kept places does a recurring one go.
    fn evict(&mut self, kind: Kind) {
        loop {
            let of_kind = || {
                self.reflections
                    .iter()
                    .enumerate()
                    .filter(|(_, r)| r.kind == kind)
            };
            if of_kind().count() <= kind.most() {
                return;
            }
            let one_offs = of_kind().filter(|(_, r)| !r.is_recurring()).count();
            let oldest = |recurring: bool| {
                of_kind()
                    .filter(|(_, r)| r.is_recurring() == recurring)
                    .min_by_key(|(_, r)| r.last)
                    .map(|(at, _)| at)
            };
            let goes = if one_offs > ONE_OFFS_MIN {
                oldest(false)
            } else {
                oldest(true).or_else(|| oldest(false))
            };
            match goes {
                Some(at) => drop(self.reflections.remove(at)),
                None => return,
            }
        }
    }

    /// Forgets what is about this value, or everything; how many were forgotten.
    pub fn forget(&mut self, value: Option<&str>) -> usize {
        let before = self.reflections.len();
        self.reflections
            .retain(|reflection| value.is_some_and(|value| reflection.value != value));
        before - self.reflections.len()
    }

    /// What guards look for.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let of = |kind: Kind| {
            let fitting = self.reflections.iter().filter(move |r| r.kind == kind);
            // What was put into the file by another hand has to pass the gates too.
            fitting
                .filter(move |r| match kind {
                    Kind::Host => is_host(&r.value),
                    Kind::InstructionSource => is_path(&r.value),
                })
                .map(|r| r.value.clone())
        };
        Watch::new(of(Kind::Host), of(Kind::InstructionSource))
    }
}

/// What guards look for, folded from a memory at the start of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    hosts: BTreeSet<String>,
    sources: BTreeSet<String>,
    /// Domains with two stopped hosts; derived, never stored.
    families: BTreeSet<String>,
}

impl Watch {
    /// Of these hosts and files.
    pub fn new(
        hosts: impl IntoIterator<Item = String>,
        sources: impl IntoIterator<Item = String>,
    ) -> Self {
        let hosts: BTreeSet<String> = hosts.into_iter().collect();
        let mut families: BTreeMap<String, usize> = BTreeMap::new();
        for host in &hosts {
            if let Some(domain) = registrable(host) {
                *families.entry(domain).or_default() += 1;
            }
        }
        families.retain(|_, hosts| *hosts >= FAMILY);
        Self {
            hosts,
            sources: sources.into_iter().collect(),
            families: families.into_keys().collect(),
        }
    }

    /// Hosts where an action was stopped.
    pub fn hosts(&self) -> &BTreeSet<String> {
        &self.hosts
    }

    /// The watched file that this path names.
    pub fn source(&self, path: &str) -> Option<&str> {
        let bare = path.trim_start_matches("./");
        self.sources
            .iter()
            .find(|source| {
                let source = source.trim_start_matches("./");
                bare == source
                    || bare.ends_with(&format!("/{source}"))
                    || source.ends_with(&format!("/{bare}"))
            })
            .map(String::as_str)
    }

    /// The family that a host belongs to.
    pub fn family(&self, host: &str) -> Option<String> {
        registrable(host).filter(|domain| self.families.contains(domain))
    }

    /// All families.
    pub fn families(&self) -> &BTreeSet<String> {
        &self.families
    }
}

/// The domain that somebody registered, by the public suffix list; none for an address, or for a
/// name that is itself a public suffix.
#[must_use]
pub fn registrable(host: &str) -> Option<String> {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    psl::domain_str(host).map(str::to_owned)
}

/// Whether the principal named a fact. A file is named by any end of its path.
fn is_named(trace: &Trace, kind: Kind, value: &str) -> bool {
    let mut ends = value.match_indices('/').map(|(at, _)| at + 1);
    trace.named_by_principal(value)
        || kind == Kind::InstructionSource
            && ends.any(|at| trace.named_by_principal(value.get(at..).unwrap_or_default()))
}

/// Lower-case labels; nothing in it can be read as a sentence.
fn is_host(value: &str) -> bool {
    let labels = value.split('.').count();
    let address = value.parse::<std::net::IpAddr>().is_ok();
    address
        || value.len() <= 253
            && (2..=10).contains(&labels)
            && value.split('.').all(|label| {
                (1..=63).contains(&label.len())
                    && label.bytes().all(|b| {
                        b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_'
                    })
            })
}

/// A path without blanks, short, of few parts.
fn is_path(value: &str) -> bool {
    (1..=200).contains(&value.len())
        && value.split('/').count() <= 24
        && value.split('/').all(|part| part.len() <= 80)
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-/+@~".contains(&b))
}

fn is_word(value: &str) -> bool {
    (1..=24).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}
