//! What a value derives from. Only incoming content adds to what is known; nothing the agent
//! emits ever does.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::event::{EventId, Incoming, Source};
use crate::label::Level;
use crate::sensitive::{Carried, Scanner, Sensitive};
use crate::value::{Kind, KindSet, Origin, find, normal};

/// At most this many origins are kept for one value; the first ones say enough.
const ORIGINS_MAX: usize = 4;

/// A structured form in which a value may derive from trusted ones; each has a name by which a
/// policy turns it on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A path or URL below a trusted one, at a path boundary.
    Below,
    /// A text whose words stand in a row in trusted text.
    Substring,
    /// A date that is trusted in another notation.
    Dates,
    /// A number that is trusted in another format.
    Numbers,
    /// A list each element of which derives.
    Lists,
    /// A URL each part of which derives.
    Composed,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 6] = [
        Self::Below,
        Self::Substring,
        Self::Dates,
        Self::Numbers,
        Self::Lists,
        Self::Composed,
    ];

    /// The word for it in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Below => "below",
            Self::Substring => "substring",
            Self::Dates => "dates",
            Self::Numbers => "numbers",
            Self::Lists => "lists",
            Self::Composed => "composed",
        }
    }
}

/// Which forms are in force; all of them unless a policy says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms(u16);

impl Default for Forms {
    fn default() -> Self {
        Self(u16::MAX)
    }
}

impl Forms {
    /// Whether a form is in force.
    pub fn contains(self, form: Form) -> bool {
        self.0 & (1 << (form as u16)) != 0
    }

    /// The same with a form on or off.
    #[must_use]
    pub fn with(self, form: Form, on: bool) -> Self {
        let bit = 1 << (form as u16);
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// Everything the agent could know by now, and from where.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// `T`: normal forms of values from trusted sources, by kind.
    trusted: BTreeSet<(Kind, String)>,
    /// Every value the agent met, with its first origins.
    met: BTreeMap<(Kind, String), Vec<Origin>>,
    /// `S`: sensitive tokens.
    sensitive: Sensitive,
}

impl Provenance {
    /// Adds what an incoming event brought.
    /// Its source, and what sticks to its place, are trusted for `kinds` and have `level`.
    pub(crate) fn learn(
        &mut self,
        kinds: KindSet,
        level: Level,
        event: EventId,
        incoming: &Incoming,
    ) {
        let Ok(text) = core::str::from_utf8(&incoming.content.bytes) else {
            if level > Level::Public {
                // Another encoding than UTF-8 is text all the same, as far as it is ASCII.
                let text = String::from_utf8_lossy(&incoming.content.bytes);
                self.sensitive
                    .add_text(&text, level, &incoming.source, event);
                self.sensitive
                    .add_bytes(&incoming.content.bytes, level, &incoming.source, event);
            }
            return;
        };
        if level > Level::Public {
            self.sensitive
                .add_text(text, level, &incoming.source, event);
            // Values of sensitive content would show up in explanations; it explains nothing.
            return;
        }
        self.sensitive.met_in_public(text);
        for found in find(text) {
            let key = (found.kind, found.normal);
            if kinds.contains(found.kind) {
                self.trusted.insert(key.clone());
            }
            let origins = self.met.entry(key).or_default();
            if origins.len() < ORIGINS_MAX {
                origins.push(Origin {
                    source: incoming.source.clone(),
                    event,
                    line: found.line,
                });
            }
        }
        if kinds.contains(Kind::Text) {
            self.trusted.insert((Kind::Text, normal(Kind::Text, text)));
        }
    }

    /// `D(x, T)`: whether the trusted values justify a value.
    pub fn derives(&self, kind: Kind, value: &str) -> bool {
        let normal = normal(kind, value);
        if self.trusted.contains(&(kind, normal.clone())) {
            return true;
        }
        match kind {
            // A URL below a trusted URL, at a path boundary.
            Kind::Url => prefixes(&normal).any(|p| self.trusted.contains(&(Kind::Url, p))),
            Kind::Path => prefixes(&normal).any(|p| self.trusted.contains(&(Kind::Path, p))),
            _ => false,
        }
    }

    /// Where the agent met a value, first meetings first.
    pub fn met_at(&self, kind: Kind, value: &str) -> Vec<Origin> {
        let key = (kind, normal(kind, value));
        if let Some(origins) = self.met.get(&key) {
            return origins.clone();
        }
        if kind == Kind::Url {
            if let Some(prefix) =
                prefixes(&key.1).find(|p| self.met.contains_key(&(Kind::Url, p.clone())))
            {
                return self
                    .met
                    .get(&(Kind::Url, prefix))
                    .cloned()
                    .unwrap_or_default();
            }
            if let Some(host) = crate::value::host_of(&key.1) {
                return self.met_at(Kind::Host, host);
            }
        }
        Vec::new()
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

    /// A search for everything sensitive known by now, to be run over what would leave.
    pub fn scanner(&self) -> Scanner {
        self.sensitive.scanner()
    }

    /// Adds the mark of a stub the agent is about to be given.
    pub(crate) fn mark(&mut self, hold: crate::event::HoldId, mark: String) {
        self.sensitive.add_mark(hold, &mark);
    }

    /// Whether a source's content was met (for explanations).
    pub fn knows(&self, source: &Source) -> bool {
        self.met
            .values()
            .flatten()
            .any(|origin| origin.source == *source)
    }
}

/// Every shorter form of a path or URL that ends at a `/` or `?` boundary.
fn prefixes(text: &str) -> impl Iterator<Item = String> + '_ {
    let start = text.find("://").map_or(0, |i| i + 3);
    text.char_indices()
        .rev()
        .filter(move |(i, c)| *i >= start && matches!(c, '/' | '?'))
        .flat_map(move |(i, _)| {
            let with = text.get(..=i).unwrap_or_default();
            let without = text.get(..i).unwrap_or_default();
            [String::from(with), String::from(without)]
        })
        .filter(move |prefix| prefix.len() > start)
}
