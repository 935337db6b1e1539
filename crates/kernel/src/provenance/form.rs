//! The structured forms of derivation, by name.

/// A structured form in which a value may derive from trusted ones; each has a name by which a
/// policy turns it on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A path or URL below a trusted one, at a boundary between components.
    Below,
    /// Words that stand in a row in the task.
    Substring,
    /// A URL with or without scheme, `www.` and a slash at its end.
    UrlForm,
    /// A date in another notation.
    Dates,
    /// A number in another format.
    Numbers,
    /// A list each element of which derives.
    Lists,
    /// A text or URL made of parts each of which derives.
    Composed,
    /// A selecting argument all of whose words occur in the task.
    Words,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 8] = [
        Self::Below,
        Self::Substring,
        Self::UrlForm,
        Self::Dates,
        Self::Numbers,
        Self::Lists,
        Self::Composed,
        Self::Words,
    ];

    /// The word for it in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Below => "below",
            Self::Substring => "substring",
            Self::UrlForm => "url-form",
            Self::Dates => "dates",
            Self::Numbers => "numbers",
            Self::Lists => "lists",
            Self::Composed => "composed",
            Self::Words => "words",
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
    /// No form: equality alone.
    pub const NONE: Self = Self(0);

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
