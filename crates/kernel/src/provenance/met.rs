//! What a text says, looked for before it is learned: that needs nothing of a session, so it can be done by many at
//! once.

use alloc::string::String;
use alloc::vec::Vec;

use super::VALUE_BYTES_MAX;
use crate::value::normal::normal_of;
use crate::value::{Kind, KindSet, each};

/// The values of a text in their normal forms, in order.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// What the source may be trusted for at most; other kinds are there only where they are known by their text.
    kinds: KindSet,
    texts: String,
    found: Vec<Value>,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    kind: Kind,
    /// Where its text ends; it begins where the one before ends.
    end: usize,
    line: u32,
    doubtful: bool,
}

impl Values {
    /// Looks for the values of content from a source that is trusted for these kinds at most.
    pub fn of(kinds: KindSet, text: &str) -> Self {
        let mut values = Self {
            kinds,
            ..Self::default()
        };
        each(text, |kind, value, line, doubtful| {
            if !is_kept(kinds, kind, doubtful) {
                return;
            }
            let normal = normal_of(kind, value);
            if normal.is_empty() || normal.len() > VALUE_BYTES_MAX {
                return;
            }
            values.texts.push_str(&normal);
            values.found.push(Value {
                kind,
                end: values.texts.len(),
                line,
                doubtful,
            });
        });
        values
    }

    /// Whether they were looked for as far as these kinds need it.
    pub(super) fn are_for(&self, kinds: KindSet) -> bool {
        self.kinds.union(kinds) == self.kinds
    }

    /// Tells those that are worth keeping when their source is trusted for `kinds`: kind, normal form, line, and
    /// whether it is trusted.
    pub(super) fn each(&self, kinds: KindSet, mut tell: impl FnMut(Kind, &str, u32, bool)) {
        let mut start = 0;
        for value in &self.found {
            let text = self.texts.get(start..value.end).unwrap_or_default();
            start = value.end;
            if is_kept(kinds, value.kind, value.doubtful) {
                let trusted = kinds.contains(value.kind) && !value.doubtful;
                tell(value.kind, text, value.line, trusted);
            }
        }
    }
}

/// What is not trusted only has to be known by its text, to say where it came from.
fn is_kept(kinds: KindSet, kind: Kind, doubtful: bool) -> bool {
    let known = matches!(
        kind,
        Kind::Text | Kind::Url | Kind::Host | Kind::Email | Kind::Account
    );
    known || (kinds.contains(kind) && !doubtful)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Pay 1,200.50 to DE89 3704 0044 0532 0130 00 by 2026-03-04, or ask ann@example.org.\n\
                        See https://docs.example.org/a/b?c=1 and `cargo add serde`; src/main.rs is \"The Big Plan\".\n\
                        host build.example.org order A-4711 [::1]:80 nothing else";

    fn told(values: &Values, kinds: KindSet) -> Vec<(Kind, String, u32, bool)> {
        let mut all = Vec::new();
        values.each(kinds, |kind, text, line, trusted| {
            all.push((kind, String::from(text), line, trusted));
        });
        all
    }

    #[test]
    fn looked_for_by_more_is_the_same_as_by_just_these() {
        let all = Values::of(KindSet::ALL, TEXT);
        assert!(told(&all, KindSet::ALL).len() > 20);
        assert!(all.are_for(KindSet::NONE));
        let mut differ = 0;
        for kind in Kind::ALL {
            for kinds in [KindSet::NONE, KindSet::of(&[kind])] {
                let just = Values::of(kinds, TEXT);
                assert_eq!(told(&all, kinds), told(&just, kinds), "{kind:?}");
                differ += usize::from(told(&all, kinds) != told(&all, KindSet::ALL));
            }
            assert!(!Values::of(KindSet::NONE, TEXT).are_for(KindSet::of(&[kind])));
        }
        assert!(differ > 0);
    }
}
