//! The tables that speak of tools: `[[tool]]`, `[[typed]]`, `[derive]`.

use std::sync::Arc;

use kernel::policy::{
    Condition, Destination, FieldPattern, Gates, Matching, NamePattern, ToolEffect, ToolRule,
    TypedRule, When,
};
use kernel::provenance::{Form, Forms};
use kernel::{Class, Kind, KindSet, Level};

use crate::error::nearest;
use crate::read::{Document, Item, Table, Word};
use crate::sheet::{Sheet, clearance, kinds};

/// `[[tool]]`: one rule for each name.
pub(crate) fn tool<'a>(document: &Document<'a>, mut table: Table<'a>) -> Vec<ToolRule> {
    let names = table.take("name");
    let effect = table.take("effect");
    if names.is_none() || effect.is_none() {
        table.lacks(
            "`[[tool]]` has to have `name` and `effect`",
            "this table",
            "write `name = \"send_mail\"` and `effect = \"act\"`; `read` only looks at what you already have, `fetch` \
             asks somebody outside, `act` changes something",
        );
    }
    let names = names
        .map(|item| document.strings(item, "\"send_mail\""))
        .unwrap_or_default();
    let effect = effect.and_then(|item| {
        let word = document.string(item, "\"act\"")?;
        let all = [ToolEffect::Read, ToolEffect::Fetch, ToolEffect::Act];
        document.one_of(&word, "effect", &all.map(ToolEffect::name), |word| {
            all.into_iter().find(|effect| effect.name() == word)
        })
    });
    let class = table.take("class").and_then(|item| {
        let word = document.string(item, "\"stallable\"")?;
        let all = [Class::Stageable, Class::Stallable, Class::Blocking];
        document.one_of(&word, "class", &all.map(Class::name), |word| {
            all.into_iter().find(|class| class.name() == word)
        })
    });
    let mut gate = Vec::new();
    if let Some(item) = table.take("gate") {
        for (field, item) in pairs(document, item, "gate", "{ recipient = \"email\" }") {
            if let Some(kinds) = one_or_more(document, item) {
                gate.push(Gates::Whole(field, kinds));
            }
        }
    }
    if let Some(item) = table.take("inside") {
        for (field, item) in pairs(document, item, "inside", "{ body = [\"url\"] }") {
            if let Some(kinds) = one_or_more(document, item) {
                gate.push(Gates::Inside(field, kinds));
            }
        }
    }
    let selects: Vec<(FieldPattern, KindSet)> = table
        .take("selects")
        .map(|item| pairs(document, item, "selects", "{ query = \"text\" }"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(field, item)| Some((field, one_or_more(document, item)?)))
        .collect();
    let said = clearance(document, table.take("clearance"));
    table.finish(
        document,
        &[
            ("gated", "write `gate = { argument = \"kind\" }`"),
            ("trusted", "what a tool's answers are trusted for stands in `[[source]] tool = \"...\"`"),
            ("level", "write `clearance`; what a tool's answers hold stands in `[[sensitive]] tool = \"...\"`"),
            ("allow", "name the arguments that steer it in `gate`; without any it is released"),
        ],
    );
    let Some(effect) = effect else {
        return Vec::new();
    };
    names
        .into_iter()
        .filter(|word| is_name(document, word))
        .map(|word| ToolRule {
            name: NamePattern(word.text),
            effect,
            class: class.unwrap_or(effect.class()),
            gate: gate.clone(),
            selects: selects.clone(),
            // What is only looked at does not leave.
            clearance: said.unwrap_or(match effect {
                ToolEffect::Read => Level::Critical,
                ToolEffect::Fetch | ToolEffect::Act => Level::Public,
            }),
        })
        .collect()
}

/// `[[typed]]`, with the places of the tools it names.
#[derive(Debug)]
pub(crate) struct TypedEntry {
    pub(crate) from: Vec<Word>,
    pub(crate) to: Vec<Word>,
    pub(crate) rules: Vec<TypedRule>,
}

/// Reads `[[typed]]`.
pub(crate) fn typed<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<TypedEntry> {
    let name = table
        .take("name")
        .and_then(|item| document.string(item, "\"ids of files\""));
    let (from, field) = (table.take("from"), table.take("field"));
    let (kind_item, to) = (table.take("kind"), table.take("to"));
    if from.is_none() || field.is_none() || kind_item.is_none() || to.is_none() {
        table.lacks(
            "`[[typed]]` has to have `from`, `field`, `kind` and `to`",
            "this table",
            "write `from = \"search_files\"`, `field = \"*.id\"`, `kind = \"id\"` and `to = [\"delete_file.id\"]`",
        );
    }
    let from = words(document, from, "\"search_files\"");
    let fields = words(document, field, "\"*.id\"");
    let to = words(document, to, "[\"delete_file.id\"]");
    let kind = kind_item.and_then(|item| kind(document, item));
    let when = table
        .take("when")
        .map_or(Some(When::Always), |item| when(document, item));
    let matching: Vec<Matching> = table
        .take("where")
        .map(|item| pairs(document, item, "where", "{ \"*.filename\" = \"text\" }"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(field, item)| {
            let is = condition(document, item)?;
            Some(Matching { field, is })
        })
        .collect();
    let inside = table
        .take("inside")
        .and_then(|item| document.boolean(item))
        .unwrap_or_default();
    let named = table.take("match").is_some_and(|item| {
        document.string(item, "\"named\"").is_some_and(|word| {
            document
                .one_of(&word, "match", &["named"], |word| {
                    (word == "named").then_some(())
                })
                .is_some()
        })
    });
    table.finish(
        document,
        &[
            ("source", "write `from`"),
            ("tool", "write `from`"),
            ("if", "write `when` or `where`"),
            ("fields", "write `field`"),
        ],
    );
    let destinations: Arc<[Destination]> = to
        .iter()
        .filter_map(|word| destination(document, word))
        .collect();
    let (kind, when) = (kind?, when?);
    let mut rules = Vec::new();
    for tool in from.iter().filter(|word| is_name(document, word)) {
        for field in &fields {
            rules.push(TypedRule {
                name: name.as_ref().map_or_else(
                    || format!("{} {}", tool.text, field.text),
                    |name| name.text.clone(),
                ),
                from: NamePattern(tool.text.clone()),
                field: FieldPattern(field.text.clone()),
                kind,
                when,
                matching: matching.clone(),
                named,
                inside,
                to: destinations.clone(),
            });
        }
    }
    Some(TypedEntry { from, to, rules })
}

/// `[derive]`: the forms in force.
pub(crate) fn derive<'a>(document: &Document<'a>, mut table: Table<'a>) -> Forms {
    let mut forms = Forms::default();
    for form in Form::ALL {
        if let Some(on) = table
            .take(form.name())
            .and_then(|item| document.boolean(item))
        {
            forms = forms.with(form, on);
        }
    }
    table.finish(document, &[]);
    forms
}

/// What a typed release names has to be there: a tool that is not named is deferred whatever its
/// arguments are, and an argument that neither steers nor selects needs no release.
pub(crate) fn check(document: &Document<'_>, sheet: &Sheet) {
    let (entries, tools) = (&sheet.typed, &sheet.tools);
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.0.as_str()).collect();
    for entry in entries {
        for word in &entry.from {
            known_tool(document, word, &word.text, &names);
        }
        for word in &entry.to {
            let Some((tool, argument)) = word.text.split_once('.') else {
                continue;
            };
            known_tool(document, word, tool, &names);
            let named: Vec<&ToolRule> = tools
                .iter()
                .filter(|rule| meets(&rule.name.0, tool))
                .collect();
            let concerned = |rule: &&ToolRule| {
                let gated = rule.gate.iter().map(|gate| match gate {
                    Gates::Whole(field, _) | Gates::Inside(field, _) => field,
                });
                let mut fields = gated.chain(rule.selects.iter().map(|(field, _)| field));
                // What selects without being named does so as text.
                rule.selects.is_empty() && rule.effect != ToolEffect::Act
                    || fields.any(|field| overlap(&field.0, argument))
            };
            if !named.is_empty() && !named.iter().any(concerned) {
                document.wrong_help(
                    word.span.clone(),
                    format!("`{argument}` of `{tool}` neither steers nor selects, so it needs no release"),
                    "not in `gate` and not in `selects`",
                    format!("write `gate = {{ {argument} = \"...\" }}` in the `[[tool]]` of `{tool}`, or leave this out"),
                );
            }
        }
    }
}

/// Whether two field patterns can speak of the same leaf, or of one below the other.
fn overlap(a: &str, b: &str) -> bool {
    FieldPattern(a.to_string()).matches(b) || FieldPattern(b.to_string()).matches(a)
}

fn known_tool(document: &Document<'_>, word: &Word, tool: &str, names: &[&str]) {
    if names.iter().any(|name| meets(name, tool)) {
        return;
    }
    let help = match nearest(tool, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "name it in a `[[tool]]` of its own".to_string(),
    };
    document.wrong_help(
        word.span.clone(),
        format!("no `[[tool]]` is called `{tool}`"),
        "not known",
        help,
    );
}

/// Whether two names, either of which may hold `*`, can speak of the same tool.
fn meets(a: &str, b: &str) -> bool {
    NamePattern(a.to_string()).matches(b) || NamePattern(b.to_string()).matches(a)
}

fn words(document: &Document<'_>, item: Option<Item<'_>>, example: &str) -> Vec<Word> {
    item.map(|item| document.strings(item, example))
        .unwrap_or_default()
}

fn kind(document: &Document<'_>, item: Item<'_>) -> Option<Kind> {
    let word = document.string(item, "\"email\"")?;
    document.one_of(
        &word,
        "kind of value",
        &Kind::ALL.map(Kind::name),
        Kind::parse,
    )
}

/// One kind or a list of them.
fn one_or_more(document: &Document<'_>, item: Item<'_>) -> Option<KindSet> {
    if item.is_bool() {
        kind(document, item)?;
    }
    kinds(document, item)
}

/// A kind that a leaf has to derive as, or `{ is = [...] }`, `{ named = true }`, `{ words = true }`.
fn condition(document: &Document<'_>, item: Item<'_>) -> Option<Condition> {
    if item.is_string_or_list() {
        return Some(Condition::Derives(one_or_more(document, item)?));
    }
    let mut table = document.inline(item, "where", "\"text\"")?;
    let is = table
        .take("is")
        .map(|item| document.strings(item, "[\"billing@bank.example\"]"));
    let mut flag = |key| {
        table
            .take(key)
            .and_then(|item| document.boolean(item))
            .unwrap_or_default()
    };
    let (named, words) = (flag("named"), flag("words"));
    let n = usize::from(is.is_some()) + usize::from(named) + usize::from(words);
    if n != 1 {
        table.lacks(
            "a condition is one of `is`, `named` and `words`",
            "this table",
            "write `{ is = [\"billing@bank.example\"] }`, `{ named = true }`, `{ words = true }` or just a kind",
        );
    }
    table.finish(document, &[]);
    match is {
        _ if n != 1 => None,
        Some(texts) => Some(Condition::Is(
            texts.into_iter().map(|word| word.text).collect(),
        )),
        None if named => Some(Condition::Named),
        None => Some(Condition::Words),
    }
}

/// `[values]`: what the policy itself vouches for, in normal form.
pub(crate) fn values<'a>(document: &Document<'a>, mut table: Table<'a>) -> Vec<(Kind, String)> {
    let mut values = Vec::new();
    for kind in Kind::ALL {
        let Some(item) = table.take(kind.name()) else {
            continue;
        };
        for word in document.strings(item, "[\"me@example.org\"]") {
            let normal = kernel::value::normal(kind, &word.text);
            if normal.is_empty()
                || (kind == Kind::Path && normal.split('/').any(|part| part == ".."))
            {
                document.wrong_help(
                    word.span,
                    format!("`{}` is no {}", word.text, kind.name()),
                    "not a value of this kind",
                    "write it as it stands in what the agent does",
                );
                continue;
            }
            values.push((kind, normal));
        }
    }
    table.finish(document, &[]);
    values.sort();
    values.dedup();
    values
}

fn when(document: &Document<'_>, item: Item<'_>) -> Option<When> {
    let names = ["always", "selected", "unique"];
    let mut when = When::Always;
    for word in document.strings(item, "\"selected\"") {
        let one = document.one_of(&word, "condition", &names, |word| match word {
            "always" => Some(When::Always),
            "selected" => Some(When::Selected),
            "unique" => Some(When::Unique),
            _ => None,
        })?;
        when = match (when, one) {
            (When::Always, one) | (one, When::Always) => one,
            (a, b) if a == b => a,
            _ => When::SelectedUnique,
        };
    }
    Some(when)
}

/// A table from fields to something.
fn pairs<'a>(
    document: &Document<'a>,
    item: Item<'a>,
    name: &'a str,
    example: &str,
) -> Vec<(FieldPattern, Item<'a>)> {
    let Some(table) = document.inline(item, name, example) else {
        return Vec::new();
    };
    table
        .pairs()
        .map(|(key, item)| (FieldPattern(key.to_string()), item))
        .collect()
}

fn destination(document: &Document<'_>, word: &Word) -> Option<Destination> {
    match word.text.split_once('.') {
        Some((tool, argument)) if !tool.is_empty() && !argument.is_empty() => Some(Destination {
            tool: NamePattern(tool.to_string()),
            argument: FieldPattern(argument.to_string()),
        }),
        _ => {
            document.wrong_help(
                word.span.clone(),
                format!("`{}` does not say which argument of which tool", word.text),
                "not an argument",
                "write `delete_file.id`",
            );
            None
        }
    }
}

fn is_name(document: &Document<'_>, word: &Word) -> bool {
    let sound = !word
        .text
        .chars()
        .any(|c| c.is_whitespace() || c.is_control());
    if !sound {
        document.wrong_help(
            word.span.clone(),
            format!("`{}` is not the name of a tool", word.text),
            "not a name",
            "write it as the harness does; `*` stands for any characters",
        );
    }
    sound
}

/// The kinds of a set, for reports.
pub(crate) fn gate_words(gate: &[Gates]) -> Vec<String> {
    gate.iter()
        .map(|gate| match gate {
            Gates::Whole(field, kinds) => format!("{} ({})", field.0, names(*kinds).join(" or ")),
            Gates::Inside(field, kinds) => {
                format!("{} in {}", names(*kinds).join(", "), field.0)
            }
        })
        .collect()
}

fn names(set: KindSet) -> Vec<&'static str> {
    Kind::ALL
        .into_iter()
        .filter(|kind| set.contains(*kind))
        .map(Kind::name)
        .collect()
}
