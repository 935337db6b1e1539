//! Values by kind, their normal forms, and how they are found in text.

/// Bank accounts and cards, told by their checksums.
mod account;
/// Dates and times in many notations.
pub(crate) mod date;
/// Values found in running text.
mod find;
/// One form for everything that means the same.
pub(crate) mod normal;

use alloc::string::{String, ToString};
use core::fmt;

pub use find::{Found, find};
pub(crate) use find::{each, name_of_file};
pub use normal::{host_of, normal};

use crate::event::{EventId, Source};

/// Kinds of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A host name or address.
    Host,
    /// A URL.
    Url,
    /// A path.
    Path,
    /// A mail address.
    Email,
    /// An account: IBAN, card number.
    Account,
    /// A command line.
    Command,
    /// A package of some registry.
    Package,
    /// A number.
    Number,
    /// A date or time.
    Date,
    /// Any other text: a word, or what stood in quotes.
    Text,
    /// A name that a system gave to one of its objects: the number of a file, a one-time code.
    /// Nothing that merely reads the same makes it derive: "June 13" is not about file 13.
    Id,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Host,
        Self::Url,
        Self::Path,
        Self::Email,
        Self::Account,
        Self::Command,
        Self::Package,
        Self::Number,
        Self::Date,
        Self::Text,
        Self::Id,
    ];

    /// The word for it in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Url => "url",
            Self::Path => "path",
            Self::Email => "email",
            Self::Account => "account",
            Self::Command => "command",
            Self::Package => "package",
            Self::Number => "number",
            Self::Date => "date",
            Self::Text => "text",
            Self::Id => "id",
        }
    }

    /// Reads [`Kind::name`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == word)
    }

    pub(crate) const fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct KindSet(pub(crate) u16);

impl KindSet {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// Every kind.
    pub const ALL: Self = Self((1 << 11) - 1);

    /// The set of these kinds.
    pub fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | kind.bit()))
    }

    /// Whether it holds a kind.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Kinds of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Kinds of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(Kind::ALL.iter().filter(|k| self.contains(**k)))
            .finish()
    }
}

/// Where the agent met a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The source.
    pub source: Source,
    /// The event that brought it.
    pub event: EventId,
    /// Line in the content, from 1.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Task | Source::Policy => write!(f, "{}", self.source),
            _ => write!(f, "{} line {}", self.source, self.line),
        }
    }
}

/// A value that steers an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gated {
    /// What it steers: `host`, `path`, `recipient`, ...
    pub field: String,
    /// Its kind.
    pub kind: Kind,
    /// The value as it stands in the effect.
    pub value: String,
}

impl Gated {
    /// A gated value.
    pub fn new(field: &str, kind: Kind, value: impl Into<String>) -> Self {
        Self {
            field: field.to_string(),
            kind,
            value: value.into(),
        }
    }
}
