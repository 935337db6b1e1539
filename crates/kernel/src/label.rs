//! Confidentiality, from `public` to `critical`; combining content takes the join. Integrity is kept kind
//! by kind, in [`crate::labels::Label`].

use core::fmt;

/// How far content may travel; also the clearance of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Anybody may have it.
    #[default]
    Public,
    /// Not for publication.
    Internal,
    /// For named parties only.
    Confidential,
    /// Keys and the like.
    Critical,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Self; 4] = [
        Self::Public,
        Self::Internal,
        Self::Confidential,
        Self::Critical,
    ];

    /// Least upper bound.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        self.max(other)
    }

    /// The word for it in policies and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Confidential => "confidential",
            Self::Critical => "critical",
        }
    }

    /// Reads [`Level::name`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == word)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
