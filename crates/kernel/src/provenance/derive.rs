//! `D(x, T)`: whether the trusted values justify a value. Equality after normalisation, then the
//! structured forms that the policy has in force.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use super::form::Form;
use super::task::{Edges, words};
use super::{DECIMAL, LOOSE, Provenance};
use crate::policy::Policy;
use crate::value::normal::{decimal, folded, loose, normal_of};
use crate::value::{Kind, KindSet, date, name_of_file};

/// What a value would steer: an argument of a tool. Typed releases are good for these only.
#[derive(Clone, Copy, Debug)]
pub struct Steered<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The path of the argument's leaf.
    pub argument: &'a str,
}

/// One question put to the trusted values.
pub(super) struct Asked<'a> {
    pub(super) provenance: &'a Provenance,
    pub(super) policy: &'a Policy,
    pub(super) steered: Option<Steered<'a>>,
}

/// Longest text that is taken apart into what it may be composed of, in words.
const COMPOSED_WORDS_MAX: usize = 24;

/// Longest value that derives, in bytes; nobody means a longer one.
const ASKED_BYTES_MAX: usize = 8192;

/// Deepest path or URL that is below another, in components.
const DEPTH_MAX: usize = 64;

/// Longest list that is taken apart, in elements.
const ELEMENTS_MAX: usize = 100;

impl Asked<'_> {
    pub(super) fn derives(&self, kind: Kind, value: &str) -> bool {
        if value.len() > ASKED_BYTES_MAX {
            return false;
        }
        let normal = normal_of(kind, value);
        if normal.is_empty() {
            return false;
        }
        if self.has(kind, &normal) {
            return true;
        }
        let by_form = match kind {
            Kind::Url => self.url(&normal),
            Kind::Path => self.path(&normal),
            Kind::Text | Kind::Command => {
                self.says(kind, &normal, Edges::Words) || self.composed(&normal)
            }
            Kind::Account => {
                let written = normal_of(Kind::Text, value);
                written.chars().count() >= 3 && self.says(kind, &written, Edges::Words)
            }
            // A number alone may be any number.
            Kind::Id => {
                normal.chars().any(char::is_alphabetic)
                    && normal.chars().any(char::is_numeric)
                    && self.says(kind, &normal, Edges::Words)
            }
            Kind::Date => self.date(value),
            Kind::Number => self.number(value),
            Kind::Host | Kind::Email | Kind::Package => false,
        };
        by_form || self.list(kind, value)
    }

    /// Whether an argument that selects what a call brings derives.
    pub(super) fn selects(&self, kind: Kind, value: &str) -> bool {
        if kind == Kind::Text && !says_something(value) {
            return false;
        }
        if self.derives(kind, value) {
            return true;
        }
        let free = matches!(kind, Kind::Text | Kind::Date);
        free && (self.date(value)
            || self.policy.derive.contains(Form::Words)
                && self.provenance.task_kinds.contains(kind)
                && self
                    .provenance
                    .task
                    .has_words(&normal_of(Kind::Text, value)))
    }

    /// Equality: trusted as it is, named by the policy, or released for what it would steer.
    fn has(&self, kind: Kind, normal: &str) -> bool {
        self.holds(kind.bit(), normal) || self.policy.value(kind, normal)
    }

    fn holds(&self, bit: u16, text: &str) -> bool {
        self.provenance.table.find(text).is_some_and(|symbol| {
            self.provenance.table.trusted(symbol) & bit != 0
                || self.provenance.released.get(&symbol).is_some_and(|all| {
                    all.iter().any(|one| {
                        one.bits & bit != 0
                            && self.steered.is_some_and(|steered| {
                                one.to.iter().any(|to| {
                                    to.tool.matches(steered.tool)
                                        && to.argument.matches(steered.argument)
                                })
                            })
                    })
                })
        })
    }

    fn on(&self, form: Form) -> bool {
        self.policy.derive.contains(form)
    }

    fn says(&self, kind: Kind, phrase: &str, edges: Edges) -> bool {
        self.on(Form::Substring)
            && self.provenance.task_kinds.contains(kind)
            && self.provenance.task.says(phrase, edges)
    }

    fn url(&self, normal: &str) -> bool {
        let bare = loose(normal);
        let alike = self.on(Form::UrlForm);
        let holds = |strict: &str| {
            self.has(Kind::Url, strict) || (alike && self.holds(LOOSE, loose(strict)))
        };
        (alike && self.holds(LOOSE, bare))
            || (self.on(Form::Below) && !climbs(normal) && prefixes(normal).any(holds))
            || (name_of_file(bare).is_none()
                && self.says(Kind::Url, if alike { bare } else { normal }, Edges::Places))
            || self.composed_url(normal)
    }

    /// A URL whose host is trusted and whose every other part stands in the task.
    fn composed_url(&self, normal: &str) -> bool {
        if !self.on(Form::Composed) || !self.on(Form::Substring) {
            return false;
        }
        let rest = match normal.split_once("://") {
            Some(("http" | "https", rest)) => rest,
            Some(_) => return false,
            None => normal,
        };
        let Some((host, tail)) = rest.split_once('/') else {
            return false;
        };
        let parts = tail
            .split(['/', '?', '&', '='])
            .filter(|part| !part.is_empty());
        self.has(Kind::Host, host)
            && parts.clone().next().is_some()
            && parts
                .map(str::to_lowercase)
                .all(|part| self.says(Kind::Text, &part, Edges::Words))
    }

    fn path(&self, normal: &str) -> bool {
        let named = |path: &str| {
            let lower = normal_of(Kind::Text, path);
            self.says(Kind::Path, &lower, Edges::Places)
        };
        if named(normal) {
            return true;
        }
        // What leads out again may lead anywhere.
        if climbs(normal) || !self.on(Form::Below) {
            return false;
        }
        directories(normal).any(|directory| self.has(Kind::Path, directory) || named(directory))
    }

    fn date(&self, value: &str) -> bool {
        let (moments, all) = date::moments(&folded(value));
        self.on(Form::Dates)
            && all
            && !moments.is_empty()
            && moments.iter().all(|moment| {
                let mut sought = moment.sought().into_iter().flatten();
                sought.any(|key| self.has(Kind::Date, &key))
            })
    }

    fn number(&self, value: &str) -> bool {
        self.on(Form::Numbers)
            && decimal(value).is_some_and(|decimal| {
                self.holds(DECIMAL, &decimal) || self.has(Kind::Number, &decimal)
            })
    }

    fn list(&self, kind: Kind, value: &str) -> bool {
        // A path or URL with a comma is another one than its parts.
        let listed = matches!(
            kind,
            Kind::Email | Kind::Account | Kind::Host | Kind::Package | Kind::Id
        );
        if !listed || !self.on(Form::Lists) || !value.contains([',', ';']) {
            return false;
        }
        let elements: Vec<&str> = value
            .split([',', ';'])
            .map(str::trim)
            .filter(|element| !element.is_empty())
            .take(ELEMENTS_MAX + 1)
            .collect();
        !elements.is_empty()
            && elements.len() <= ELEMENTS_MAX
            && elements.iter().all(|element| self.derives(kind, element))
    }

    /// One text that was released for what it would steer, between phrases of the task.
    fn composed(&self, normal: &str) -> bool {
        if !self.on(Form::Composed) || self.steered.is_none() || self.provenance.released.is_empty()
        {
            return false;
        }
        let words: Vec<(usize, usize)> = words(normal)
            .map(|(at, word)| (at, at + word.len()))
            .take(COMPOSED_WORDS_MAX + 1)
            .collect();
        if words.len() > COMPOSED_WORDS_MAX {
            return false;
        }
        let joint = |c: char| c.is_whitespace() || matches!(c, ':' | ',' | '-' | '–');
        let said = |part: &str| {
            let part = part.trim_matches(joint);
            part.is_empty() || self.says(Kind::Text, part, Edges::Words)
        };
        words.iter().enumerate().any(|(first, (start, _))| {
            words
                .get(first..)
                .unwrap_or_default()
                .iter()
                .any(|(_, end)| {
                    normal
                        .get(*start..*end)
                        .is_some_and(|text| self.holds(Kind::Text.bit(), text))
                        && said(normal.get(..*start).unwrap_or_default())
                        && said(normal.get(*end..).unwrap_or_default())
                })
        })
    }
}

/// Whether a path or URL leads out of where it begins, however that is spelt, could be read as more
/// than one, or is deeper than anybody means.
fn climbs(text: &str) -> bool {
    if text.matches('/').count() > DEPTH_MAX {
        return true;
    }
    let mut text = text.replace("/ ", "/").replace('\\', "/");
    for _ in 0..3 {
        let climbs = text.split(['/', '?', '#']).any(|part| {
            let name = part.split(';').next().unwrap_or_default();
            matches!(name.trim(), "..")
        });
        if climbs || text.contains(char::is_control) || text.contains(" /") || text.contains(",/") {
            return true;
        }
        let Some(decoded) = unescaped(&text) else {
            return false;
        };
        text = decoded.replace('\\', "/");
    }
    true
}

/// The text with one layer of percent-encoding taken off, if there is one.
fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut any = false;
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (*first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                any = true;
                rest = tail.get(2..).unwrap_or_default();
            }
            (byte, ..) => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    any.then(|| String::from_utf8_lossy(&out).into_owned())
}

/// Every shorter form of a URL that ends at a `/` or `?`, with and without it.
pub(super) fn prefixes(url: &str) -> impl Iterator<Item = &str> {
    let start = url.find("://").map_or(0, |at| at + 3);
    url.char_indices()
        .rev()
        .filter(move |(at, c)| *at >= start && matches!(c, '/' | '?'))
        .flat_map(move |(at, _)| [url.get(..=at), url.get(..at)])
        .flatten()
        .filter(move |prefix| prefix.len() > start)
}

/// Every directory that a path lies below; the root is none.
fn directories(path: &str) -> impl Iterator<Item = &str> {
    path.char_indices()
        .rev()
        .filter(|(at, c)| *at > 0 && *c == '/')
        .filter_map(move |(at, _)| path.get(..at))
}

/// What a text is known as besides its normal form, when a form can make use of it.
pub(super) fn alias(kind: Kind, normal: &str) -> Option<(u16, Cow<'_, str>)> {
    match kind {
        Kind::Url => Some((LOOSE, Cow::Borrowed(loose(normal)))),
        Kind::Number => Some((DECIMAL, Cow::Owned(decimal(normal)?))),
        _ => None,
    }
}

/// Whether a text has a word that is not in every other sentence: a query for "the" brings everything.
pub(super) fn says_something(text: &str) -> bool {
    const COMMON: &str = " the and for all any are but can did does from had has have her him his how its just let \
                          may new not now one our out please she some that them then there they this too was \
                          were what when where which who why will with would you your about into than also ";
    words(text).any(|(_, word)| {
        let common = COMMON
            .split(' ')
            .any(|common| word.eq_ignore_ascii_case(common));
        word.chars().any(char::is_numeric) || (word.chars().count() >= 3 && !common)
    })
}

/// Whether some kind of a set derives.
pub(super) fn any(asked: &Asked<'_>, kinds: KindSet, value: &str) -> bool {
    Kind::ALL
        .into_iter()
        .any(|kind| kinds.contains(kind) && asked.derives(kind, value))
}
