//! The task as text: phrases that stand in it, and the names it uses.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::derive::says_something;
use crate::value::{Kind, normal::normal_of};

/// Everything the principal said, in normal form, with an index of its words.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    text: String,
    words: BTreeMap<String, Vec<usize>>,
    /// Words that were written with a capital, in lower case, without those of mail addresses.
    names: BTreeSet<String>,
}

/// What may stand beside a phrase for it to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edges {
    /// Not a letter, digit, `_` or `@` that would make its words longer.
    Words,
    /// Nothing that a longer host, URL or path could go on with.
    Places,
}

impl Task {
    pub(super) fn add(&mut self, said: &str) {
        let normal = normal_of(Kind::Text, said);
        let start = self.text.len() + usize::from(!self.text.is_empty());
        if start > 0 {
            // Two messages are no phrase.
            self.text.push('\n');
        }
        self.text.push_str(&normal);
        for (at, word) in words(&normal) {
            let places = self.words.entry(word.to_string()).or_default();
            places.push(start + at);
        }
        for word in said
            .split(|c: char| c.is_whitespace())
            .filter(|word| !word.contains('@'))
        {
            for name in word.split(|c: char| !c.is_alphabetic()) {
                if name.starts_with(char::is_uppercase) && name.chars().count() >= 3 {
                    self.names.insert(name.to_lowercase());
                }
            }
        }
    }

    /// Whether a text in normal form stands in the task.
    pub(super) fn says(&self, phrase: &str, edges: Edges) -> bool {
        // Every whole word of the phrase is one of the task: look where the rarest stands.
        let mut rarest: Option<(usize, &[usize])> = None;
        for (at, word) in words(phrase) {
            let places = self.words.get(word).map(Vec::as_slice).unwrap_or_default();
            if places.is_empty() {
                return false;
            }
            if rarest.is_none_or(|(_, known)| places.len() < known.len()) {
                rarest = Some((at, places));
            }
        }
        let Some((offset, places)) = rarest else {
            return false;
        };
        places.iter().any(|place| {
            place.checked_sub(offset).is_some_and(|start| {
                let end = start + phrase.len();
                self.text.get(start..end) == Some(phrase) && self.stands_alone(start, end, edges)
            })
        })
    }

    fn stands_alone(&self, start: usize, end: usize, edges: Edges) -> bool {
        let phrase = self.text.get(start..end).unwrap_or_default();
        let before = self.text.get(..start).unwrap_or_default();
        let mut after = self.text.get(end..).unwrap_or_default().chars();
        let (left, right) = (before.chars().next_back(), after.next());
        match edges {
            Edges::Words => {
                let joins = |beside: Option<char>, edge: Option<char>| {
                    beside.is_some_and(|c| {
                        matches!(c, '@' | '_')
                            || (c.is_alphanumeric() && edge.is_some_and(char::is_alphanumeric))
                    })
                };
                !joins(left, phrase.chars().next()) && !joins(right, phrase.chars().next_back())
            }
            Edges::Places => {
                let left = before.strip_suffix("www.").unwrap_or(before);
                let left = left
                    .strip_suffix("://")
                    .map_or(left.chars().next_back(), |_| None);
                let goes_on = |c: char| c.is_alphanumeric() || "-_@/\\%~&?=:+".contains(c);
                let ends = match right {
                    // A slash or full stop at the end of what is named.
                    Some('/' | ':' | '?') => !after.next().is_some_and(goes_on),
                    Some(c) => !goes_on(c),
                    None => true,
                };
                ends && !left.is_some_and(|c| c == '.' || goes_on(c))
            }
        }
    }

    /// Whether every word of a text occurs in the task, and there is one.
    pub(super) fn has_words(&self, text: &str) -> bool {
        let mut any = false;
        words(text).all(|(_, word)| {
            any = true;
            self.words.contains_key(word)
        }) && any
    }

    /// Whether some word of a text, of three characters or more, occurs in the task.
    pub(super) fn shares_a_word(&self, text: &str) -> bool {
        words(text).any(|(_, word)| word.chars().count() >= 3 && self.words.contains_key(word))
    }

    /// Whether the task names somebody or something: a word of an address's local part that the
    /// task writes with a capital, or the whole text as a phrase.
    pub(super) fn names(&self, text: &str) -> bool {
        let named = |word: &str| word.chars().count() >= 3 && self.names.contains(word);
        text.split_once('@')
            .is_some_and(|(local, _)| local.split(|c: char| !c.is_alphabetic()).any(named))
            || (says_something(text) && self.says(text, Edges::Words))
    }
}

/// Runs of letters, digits and `_`, with their places.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        let start = rest.find(inside)?;
        let tail = rest.get(start..)?;
        let end = tail.find(|c| !inside(c)).unwrap_or(tail.len());
        let (word, after) = tail.split_at(end);
        let at = text.len() - tail.len();
        rest = after;
        Some((at, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases() {
        let mut task = Task::default();
        task.add("Post to www.our-company.com.They want 'Le Marais Boutique', my-bank.com/x and https://a.example/docs/.");
        task.add("Pay Bob Miller; see /documents/a.txt, user_name and eve@x.example");
        for (phrase, edges, expect) in [
            ("le marais boutique", Edges::Words, true),
            ("marais", Edges::Words, true),
            ("arais", Edges::Words, false),
            ("user", Edges::Words, false),
            ("eve", Edges::Words, false),
            ("and pay", Edges::Words, false),
            ("'", Edges::Words, false),
            ("our-company.com", Edges::Places, true),
            ("company.com", Edges::Places, false),
            ("bank.com", Edges::Places, false),
            ("my-bank.com", Edges::Places, false),
            ("my-bank.com/x", Edges::Places, true),
            ("a.example/docs", Edges::Places, true),
            ("a.example", Edges::Places, false),
            ("/documents", Edges::Places, false),
            ("/documents/a.txt", Edges::Places, true),
            ("a.txt", Edges::Places, false),
        ] {
            assert_eq!(task.says(phrase, edges), expect, "{phrase}");
        }
        assert!(task.names("bob@gmail.example"));
        assert!(!task.names("eve@gmail.example"));
        assert!(!task.names("documents@gmail.example"));
        assert!(task.has_words("miller pay"));
        assert!(!task.has_words("miller pays"));
    }
}
