//! Inserting into a JSON text without touching the rest of it: values are found as slices of the
//! text, so that key order, numbers and white space stay as the agent wrote them.

use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A value, as the slice of the text that holds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) text: &'a str,
    /// Where it begins in the whole text.
    pub(crate) at: usize,
}

/// The members of an object.
pub(crate) type Members<'a> = BTreeMap<String, Span<'a>>;

impl<'a> Span<'a> {
    /// The one value that `text` holds.
    pub(crate) fn whole(text: &'a str) -> Option<Self> {
        let raw: &RawValue = serde_json::from_str(text).ok()?;
        Self { text, at: 0 }.within(raw)
    }

    pub(crate) fn members(self) -> Option<Members<'a>> {
        if !self.text.starts_with('{') {
            return None;
        }
        let raw: BTreeMap<String, &'a RawValue> = serde_json::from_str(self.text).ok()?;
        raw.into_iter()
            .map(|(key, raw)| Some((key, self.within(raw)?)))
            .collect()
    }

    pub(crate) fn elements(self) -> Option<Vec<Self>> {
        if !self.text.starts_with('[') {
            return None;
        }
        let raw: Vec<&'a RawValue> = serde_json::from_str(self.text).ok()?;
        raw.into_iter().map(|raw| self.within(raw)).collect()
    }

    pub(crate) fn string(self) -> Option<String> {
        let parsed = self
            .text
            .starts_with('"')
            .then(|| crate::json::parse(self.text.as_bytes()));
        parsed?.ok()?.as_str().map(str::to_owned)
    }

    pub(crate) fn is(self, text: &str) -> bool {
        self.text == text
    }

    /// Just before the closing quote, bracket or brace.
    pub(crate) fn inner_end(self) -> usize {
        self.at + self.text.len().saturating_sub(1)
    }

    /// Whether an array or object has nothing in it.
    pub(crate) fn is_empty(self) -> bool {
        let inner = self.text.get(1..self.text.len().saturating_sub(1));
        inner.is_none_or(|inner| inner.trim_ascii().is_empty())
    }

    fn within(self, raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        let offset = text
            .as_ptr()
            .addr()
            .checked_sub(self.text.as_ptr().addr())?;
        let found = self.text.get(offset..offset + text.len())?;
        (found == text).then_some(Self {
            text,
            at: self.at + offset,
        })
    }
}

pub(crate) fn member<'a>(members: &Members<'a>, key: &str) -> Option<Span<'a>> {
    members.get(key).copied()
}

pub(crate) fn string_member(members: &Members<'_>, key: &str) -> String {
    member(members, key)
        .and_then(Span::string)
        .unwrap_or_default()
}

/// What to put where: `until` is `at` unless something is replaced.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) at: usize,
    pub(crate) until: usize,
    pub(crate) text: String,
}

/// Applies edits that do not overlap.
pub(crate) fn apply(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    edits.sort_by_key(|edit| edit.at);
    let mut out =
        String::with_capacity(text.len() + edits.iter().map(|e| e.text.len()).sum::<usize>());
    let mut done = 0;
    for edit in &edits {
        out.push_str(text.get(done..edit.at)?);
        out.push_str(&edit.text);
        done = edit.until;
    }
    out.push_str(text.get(done..)?);
    Some(out)
}

/// `text` as the inside of a JSON string.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted
        .get(1..quoted.len().saturating_sub(1))
        .unwrap_or_default()
        .to_owned()
}
