//! Reads TOML tables field by field: keeps the place of everything, and collects what is wrong
//! instead of stopping at the first mistake.

use std::cell::RefCell;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Finding, listed, nearest};

/// A document under reading, with the mistakes found so far.
pub(crate) struct Document<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
    findings: RefCell<Vec<Finding>>,
}

/// A value with its place.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

/// A text with its place.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) span: Range<usize>,
}

/// A table under reading: every key that is asked for counts as known.
pub(crate) struct Table<'a> {
    name: &'a str,
    map: &'a DeTable<'a>,
    span: Range<usize>,
    known: Vec<&'a str>,
    lacks: Vec<(String, String, String)>,
}

impl<'a> Document<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            findings: RefCell::new(Vec::new()),
        }
    }

    /// Parses the text; what cannot be parsed is left out and noted.
    pub(crate) fn parse(&self) -> Spanned<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            self.wrong(
                span,
                format!("this is not TOML: {}", error.message()),
                "here",
            );
        }
        table
    }

    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.borrow().is_empty()
    }

    pub(crate) fn into_findings(self) -> Vec<Finding> {
        let mut findings = self.findings.into_inner();
        findings.sort_by_key(|finding| (finding.line, finding.column));
        findings
    }

    pub(crate) fn wrong(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        here: impl Into<String>,
    ) {
        self.push(Finding::at(self.file, self.text, span, what, here));
    }

    pub(crate) fn wrong_help(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        here: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(Finding::at(self.file, self.text, span, what, here).help(help));
    }

    pub(crate) fn push(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// A word out of a fixed set.
    pub(crate) fn one_of<T>(
        &self,
        word: &Word,
        what: &str,
        words: &[&str],
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let parsed = parse(&word.text);
        if parsed.is_none() {
            let help = match nearest(&word.text, words.iter().copied()) {
                Some(near) => format!(
                    "did you mean `{near}`? There is {}",
                    listed(words.iter().copied())
                ),
                None => format!("write {}", listed(words.iter().copied())),
            };
            self.wrong_help(
                word.span.clone(),
                format!("there is no {what} `{}`", word.text),
                "not known",
                help,
            );
        }
        parsed
    }

    pub(crate) fn mistyped(&self, item: Item<'_>, wanted: &str, example: &str) {
        self.wrong_help(
            item.span(),
            format!("`{}` has to be {wanted}", item.key),
            format!("this is {}", described(item.value.get_ref())),
            format!("write `{} = {example}`", item.key),
        );
    }

    pub(crate) fn string(&self, item: Item<'_>, example: &str) -> Option<Word> {
        match item.value.get_ref().as_str() {
            Some("") => {
                self.mistyped(item, "a text that is not empty", example);
                None
            }
            Some(text) => Some(Word {
                text: text.to_string(),
                span: item.span(),
            }),
            None => {
                self.mistyped(item, "a text", example);
                None
            }
        }
    }

    /// One text, or a list of them.
    pub(crate) fn strings(&self, item: Item<'_>, example: &str) -> Vec<Word> {
        match item.value.get_ref() {
            DeValue::String(_) => self.string(item, example).into_iter().collect(),
            DeValue::Array(array) => array
                .iter()
                .filter_map(|value| {
                    let element = Item {
                        key: item.key,
                        value,
                    };
                    match value.get_ref().as_str() {
                        Some(text) if !text.is_empty() => Some(Word {
                            text: text.to_string(),
                            span: element.span(),
                        }),
                        _ => {
                            self.mistyped(element, "a list of texts that are not empty", example);
                            None
                        }
                    }
                })
                .collect(),
            _ => {
                self.mistyped(item, "a text or a list of texts", example);
                Vec::new()
            }
        }
    }

    pub(crate) fn boolean(&self, item: Item<'_>) -> Option<bool> {
        let value = item.value.get_ref().as_bool();
        if value.is_none() {
            self.mistyped(item, "`true` or `false`", "true");
        }
        value
    }

    pub(crate) fn number(&self, item: Item<'_>, range: Range<u64>, example: &str) -> Option<u64> {
        let number = item.integer();
        match number {
            Some(n) if range.contains(&n) => Some(n),
            _ => {
                let wanted = format!("a whole number from {} to {}", range.start, range.end - 1);
                self.mistyped(item, &wanted, example);
                None
            }
        }
    }

    /// One number, or a list of them.
    pub(crate) fn ports(&self, item: Item<'_>) -> Vec<u16> {
        let one = |item: Item<'_>| match item.integer().and_then(|n| u16::try_from(n).ok()) {
            Some(port) if port > 0 => Some(port),
            _ => {
                self.mistyped(
                    item,
                    "a port from 1 to 65535, or a list of them",
                    "[443, 8443]",
                );
                None
            }
        };
        match item.value.get_ref() {
            DeValue::Array(array) => array
                .iter()
                .filter_map(|value| {
                    one(Item {
                        key: item.key,
                        value,
                    })
                })
                .collect(),
            _ => one(item).into_iter().collect(),
        }
    }

    /// The tables of `[[name]]`, or the one of `[name]`.
    pub(crate) fn tables(&self, item: Item<'a>, name: &'a str) -> Vec<Table<'a>> {
        match item.value.get_ref() {
            DeValue::Array(array) => array
                .iter()
                .filter_map(|value| match value.get_ref() {
                    DeValue::Table(map) => Some(Table::new(name, map, value.span())),
                    _ => {
                        self.not_a_table(
                            Item {
                                key: item.key,
                                value,
                            },
                            name,
                        );
                        None
                    }
                })
                .collect(),
            DeValue::Table(map) => vec![Table::new(name, map, item.span())],
            _ => {
                self.not_a_table(item, name);
                Vec::new()
            }
        }
    }

    /// The one table `[name]`.
    pub(crate) fn table(&self, item: Item<'a>, name: &'a str) -> Option<Table<'a>> {
        match item.value.get_ref() {
            DeValue::Table(map) => Some(Table::new(name, map, item.span())),
            DeValue::Array(_) => {
                let bare = name.trim_matches(['[', ']']);
                self.wrong_help(
                    item.span(),
                    format!("there is only one `{name}`"),
                    "a list of tables",
                    format!("write `[{bare}]` once, in single brackets"),
                );
                None
            }
            _ => {
                self.not_a_table(item, name);
                None
            }
        }
    }

    /// A table with keys of the policy's own choosing: `key = { a = ... }`.
    pub(crate) fn inline(&self, item: Item<'a>, name: &'a str, example: &str) -> Option<Table<'a>> {
        match item.value.get_ref() {
            DeValue::Table(map) => Some(Table::new(name, map, item.span())),
            _ => {
                self.mistyped(item, "a table", example);
                None
            }
        }
    }

    fn not_a_table(&self, item: Item<'_>, name: &str) {
        self.wrong_help(
            item.span(),
            format!("`{}` has to be a table", item.key),
            format!("this is {}", described(item.value.get_ref())),
            format!("write `{name}` on a line of its own and the keys below it"),
        );
    }
}

impl<'a> Item<'a> {
    pub(crate) fn span(&self) -> Range<usize> {
        self.value.span()
    }

    pub(crate) fn is_string_or_list(&self) -> bool {
        self.value.get_ref().is_str() || self.value.get_ref().is_array()
    }

    pub(crate) fn is_bool(&self) -> bool {
        self.value.get_ref().is_bool()
    }

    fn integer(&self) -> Option<u64> {
        let integer = self.value.get_ref().as_integer()?;
        u64::from_str_radix(integer.as_str(), integer.radix()).ok()
    }
}

impl<'a> Table<'a> {
    pub(crate) fn new(name: &'a str, map: &'a DeTable<'a>, span: Range<usize>) -> Self {
        Self {
            name,
            map,
            span,
            known: Vec::new(),
            lacks: Vec::new(),
        }
    }

    /// The place of the whole table.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Every key with its value, for a table whose keys are the policy's own.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&'a str, Item<'a>)> + use<'a> {
        let map = self.map;
        map.iter().map(|(key, value)| {
            let key: &'a str = key.get_ref();
            (key, Item { key, value })
        })
    }

    pub(crate) fn take(&mut self, key: &'a str) -> Option<Item<'a>> {
        self.known.push(key);
        self.map.get(key).map(|value| Item { key, value })
    }

    /// Something that has to be there is not; a misspelt key is told instead of it.
    pub(crate) fn lacks(
        &mut self,
        what: impl Into<String>,
        here: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.lacks.push((what.into(), here.into(), help.into()));
    }

    /// Notes every key that nobody asked for. `instead` knows what people write by mistake.
    pub(crate) fn finish(self, document: &Document<'_>, instead: &[(&str, &str)]) {
        let mut odd = false;
        for key in self.map.keys() {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            odd = true;
            let place = if self.name.is_empty() {
                "a policy".to_string()
            } else {
                format!("`{}`", self.name)
            };
            let help = match instead
                .iter()
                .chain(OF_THE_TOP)
                .find(|(wrong, _)| *wrong == name)
            {
                Some((_, help)) => (*help).to_string(),
                None => match nearest(name, self.known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there is {}", listed(self.known.iter().copied())),
                },
            };
            document.wrong_help(
                key.span(),
                format!("`{name}` means nothing in {place}"),
                "not known here",
                help,
            );
        }
        for (what, here, help) in self.lacks.iter().filter(|_| !odd) {
            document.wrong_help(self.span(), what, here, help);
        }
    }
}

/// Keys that end up in a table because they stand below its head.
const OF_THE_TOP: &[(&str, &str)] = &[(
    "rules",
    "write it at the top of the file, before the first `[...]`",
)];

fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(s) if s.is_empty() => "an empty text",
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
