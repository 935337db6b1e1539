//! The model: sets of texts and nothing clever. Content is made of pieces whose values are known
//! when they are made, so the model parses nothing.

use std::collections::BTreeSet;

use kernel::provenance::{Form, Forms};
use kernel::{Kind, KindSet};
use proptest::prelude::*;

use crate::{World, policy};

/// A piece of text and the values that stand in it, in normal form.
#[derive(Clone, Debug)]
struct Piece {
    text: String,
    values: Vec<(Kind, String)>,
}

fn piece(text: &str, values: &[(Kind, &str)]) -> Piece {
    let mut values: Vec<(Kind, String)> = values.iter().map(|(k, v)| (*k, v.to_string())).collect();
    // Its own line is a text, whatever else it is.
    values.push((Kind::Text, text.to_lowercase()));
    Piece {
        text: text.to_string(),
        values,
    }
}

const WORDS: [&str; 5] = ["alpha", "Bravo", "carol", "Delta42", "echo"];
const HOSTS: [&str; 3] = ["a.example", "www.b.example", "my-c.example"];
const NAMES: [&str; 3] = ["docs", "x1", "report"];

fn pieces() -> impl Strategy<Value = Piece> {
    let host = || prop::sample::select(&HOSTS[..]);
    let name = || prop::sample::select(&NAMES[..]);
    let word = || prop::sample::select(&WORDS[..]);
    prop_oneof![
        word().prop_map(|w| piece(w, &[])),
        (word(), host()).prop_map(|(w, h)| {
            let text = format!("{w}@{h}");
            piece(
                &text,
                &[(Kind::Email, &text.to_lowercase()), (Kind::Host, h)],
            )
        }),
        (host(), name()).prop_map(|(h, n)| {
            let text = format!("https://{h}/{n}");
            piece(&text, &[(Kind::Url, &text), (Kind::Host, h)])
        }),
        host().prop_map(|h| piece(h, &[(Kind::Url, &format!("{h}/")), (Kind::Host, h)])),
        (name(), name()).prop_map(|(a, b)| {
            let text = format!("{a}/{b}");
            piece(&text, &[(Kind::Path, &text)])
        }),
        (1..40u32).prop_map(|n| piece(&n.to_string(), &[(Kind::Number, &n.to_string())])),
        (1..40u32).prop_map(|n| {
            let text = format!("{n},200.50");
            piece(&text, &[(Kind::Number, &text)])
        }),
        (1..29u8).prop_map(|d| {
            let day = format!("2024-05-{d:02}");
            piece(&day, &[(Kind::Date, &day)])
        }),
    ]
}

/// What is asked: a kind, and a piece or a variation of one.
fn question() -> impl Strategy<Value = (Kind, String)> {
    let kind = prop::sample::select(&Kind::ALL[..]);
    (kind, pieces(), pieces(), 0..9u8).prop_map(|(kind, one, other, form)| {
        let (a, b) = (one.text, other.text);
        let text = match form {
            0 => a.to_uppercase(),
            1 => format!(" {a} "),
            2 => format!("{a}/{b}"),
            3 => format!("{a}/../{b}"),
            4 => a.replace("https://", "http://").replace("www.", ""),
            5 => format!("{a}, {b}"),
            6 => format!("{a} {b}"),
            7 => match a.strip_prefix("2024-05-") {
                Some(day) => format!("May {}th, 2024", day.trim_start_matches('0')),
                None => a.replace(',', ""),
            },
            _ => a,
        };
        (kind, text)
    })
}

#[derive(Debug)]
struct Model {
    trusted: BTreeSet<(Kind, String)>,
    /// The task, one blank between pieces and at both ends.
    task: String,
    forms: Forms,
}

impl Model {
    fn derives(&self, kind: Kind, asked: &str) -> bool {
        let trimmed = asked.trim();
        let lower = trimmed.to_lowercase();
        match kind {
            Kind::Email => self.has(kind, &lower) || self.list(kind, trimmed),
            Kind::Host => self.has(kind, &lower) || self.list(kind, trimmed),
            Kind::Text | Kind::Command => self.has(kind, &lower) || self.says(&lower),
            Kind::Account => (lower.len() >= 3 && self.says(&lower)) || self.list(kind, trimmed),
            Kind::Id => {
                let mixed =
                    lower.chars().any(char::is_alphabetic) && lower.chars().any(char::is_numeric);
                (mixed && self.says(&lower)) || self.list(kind, trimmed)
            }
            Kind::Package => {
                // A word of package characters is a package; the pieces' own texts are all there is.
                let plain = trimmed
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"@/_.+-".contains(&b));
                (plain && self.has(Kind::Text, &lower)) || self.list(kind, trimmed)
            }
            Kind::Number => self.number(trimmed),
            Kind::Date => self.date(trimmed),
            Kind::Url | Kind::Path => unreachable!("asked elsewhere"),
        }
    }

    fn has(&self, kind: Kind, text: &str) -> bool {
        self.trusted.contains(&(kind, text.to_string()))
    }

    /// A stretch of the task beside which nothing stands that would make its words longer.
    fn says(&self, lower: &str) -> bool {
        let task: Vec<char> = self.task.to_lowercase().chars().collect();
        let phrase: Vec<char> = lower.chars().collect();
        let joins = |beside: char, edge: char| {
            beside == '@' || beside == '_' || (beside.is_alphanumeric() && edge.is_alphanumeric())
        };
        self.forms.contains(Form::Substring)
            && phrase.iter().any(|c| c.is_alphanumeric())
            // The task has a blank at both ends.
            && (1..task.len() - phrase.len().min(task.len() - 1)).any(|start| {
                let end = start + phrase.len();
                task[start..end] == phrase[..]
                    && !joins(task[start - 1], phrase[0])
                    && !joins(task[end], phrase[phrase.len() - 1])
            })
    }

    fn list(&self, kind: Kind, text: &str) -> bool {
        self.forms.contains(Form::Lists)
            && text.contains(',')
            && text
                .split(',')
                .map(str::trim)
                .all(|element| !element.is_empty() && self.derives(kind, element))
    }

    /// All numbers here are `12` and `12,200.50`, or `12200.50` when it is asked for.
    fn number(&self, text: &str) -> bool {
        let plain = |text: &str| text.replace(",200", "200");
        self.has(Kind::Number, text)
            || self.forms.contains(Form::Numbers)
                && self
                    .trusted
                    .iter()
                    .any(|(kind, known)| *kind == Kind::Number && plain(known) == plain(text))
    }

    fn date(&self, text: &str) -> bool {
        let day = |text: &str| -> Option<String> {
            if let Some(rest) = text.strip_prefix("May ").or(text.strip_prefix("MAY ")) {
                let day: u8 = rest.split("th").next()?.parse().ok()?;
                return Some(format!("2024-05-{day:02}"));
            }
            let day = text.strip_prefix("2024-05-")?;
            (day.len() == 2).then(|| text.to_string())
        };
        // Several days: from, to.
        let each = text.split(|c: char| !c.is_ascii_digit() && c != '-');
        let days: Vec<&str> = each.filter(|part| !part.is_empty()).collect();
        if days.len() > 1 && !text.contains(char::is_alphabetic) {
            return self.forms.contains(Form::Dates)
                && days
                    .iter()
                    .all(|one| day(one).is_some() && self.has(Kind::Date, one));
        }
        match day(text) {
            Some(iso) if iso == text => self.has(Kind::Date, &iso),
            Some(iso) => self.forms.contains(Form::Dates) && self.has(Kind::Date, &iso),
            None => false,
        }
    }
}

fn forms() -> impl Strategy<Value = Forms> {
    prop::collection::vec(any::<bool>(), Form::ALL.len()).prop_map(|on| {
        Form::ALL
            .iter()
            .zip(on)
            .fold(Forms::NONE, |forms, (form, on)| forms.with(*form, on))
    })
}

/// A world that has read the same as its model knows.
fn both(task: &[Piece], directory: &[Piece], kinds: KindSet, forms: Forms) -> (World, Model) {
    let mut policy = policy(kinds);
    policy.derive = forms;
    let mut world = World::new(policy);
    let text = |pieces: &[Piece]| {
        pieces
            .iter()
            .map(|p| p.text.clone())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let said: String = task.iter().map(|p| p.text.clone() + "\n").collect();
    world.task(&said);
    // One to a line, so that no two of them make a whole that is trusted.
    world.content(
        "directory",
        &directory
            .iter()
            .map(|p| p.text.clone() + "\n")
            .collect::<String>(),
    );
    let from_directory = directory.iter().flat_map(|piece| &piece.values);
    let trusted = task
        .iter()
        .flat_map(|piece| &piece.values)
        .chain(from_directory.filter(|(kind, _)| {
            // What is a word is a package, if the source is trusted for that.
            kinds.contains(*kind)
        }))
        .cloned()
        .collect();
    let model = Model {
        trusted,
        task: format!(" {} ", text(task)),
        forms,
    };
    (world, model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Email, host, text, account, id, number, date and package, every form on or off.
    #[test]
    fn derives_as_the_model_says(
        task in prop::collection::vec(pieces(), 0..5),
        directory in prop::collection::vec(pieces(), 0..4),
        questions in prop::collection::vec(question(), 1..12),
        forms in forms(),
    ) {
        let kinds = KindSet::of(&[Kind::Email, Kind::Host, Kind::Text, Kind::Package, Kind::Number, Kind::Date]);
        let (world, model) = both(&task, &directory, kinds, forms);
        for (kind, asked) in questions {
            if matches!(kind, Kind::Url | Kind::Path) {
                continue;
            }
            prop_assert_eq!(
                world.derives(kind, &asked), model.derives(kind, &asked),
                "{:?} {:?} with {:?}", kind, asked, model
            );
        }
    }

    /// URLs: equal, alike, below, standing in the task, or put together.
    #[test]
    fn urls_derive_as_the_model_says(
        task in prop::collection::vec(pieces(), 0..5),
        host in prop::sample::select(&HOSTS[..]),
        scheme in prop::sample::select(&["", "http://", "https://"][..]),
        path in prop::collection::vec(prop::sample::select(&["docs", "x1", "report", "..", "other"][..]), 0..3),
        forms in forms(),
    ) {
        let (world, model) = both(&task, &[], KindSet::NONE, forms);
        let asked = format!("{scheme}{host}/{}", path.join("/"));
        // `..` takes away what stands before it.
        let mut parts: Vec<&str> = Vec::new();
        for part in &path {
            if *part == ".." { parts.pop(); } else { parts.push(part); }
        }
        let slash = if path.last() == Some(&"..") && !parts.is_empty() { "/" } else { "" };
        let plain = format!("{scheme}{host}/{}{slash}", parts.join("/"));
        let bare = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            rest.strip_prefix("www.").unwrap_or(rest).trim_end_matches('/').to_string()
        };
        let alike = forms.contains(Form::UrlForm);
        let mut expect = false;
        for known in model.trusted.iter().filter(|(kind, _)| *kind == Kind::Url).map(|(_, url)| url) {
            let below = forms.contains(Form::Below);
            let under = |a: &str, b: &str| a.starts_with(&format!("{}/", b.trim_end_matches('/')));
            expect |= plain == *known || (below && under(&plain, known));
            expect |= alike && (bare(&plain) == bare(known) || (below && under(&bare(&plain), &bare(known))));
        }
        if forms.contains(Form::Substring) {
            // A URL stands in the task with or without what stands before its host.
            let sought = if alike { bare(&plain) } else { plain.clone() };
            for piece in task.iter().filter(|piece| !piece.text.contains('@')) {
                let text = piece.text.to_lowercase();
                let texts = [text.clone(), text.replace("https://", ""), bare(&text)];
                expect |= texts.contains(&sought);
            }
            let said = |part: &&str| {
                let whole = model.task.to_lowercase();
                whole.split(|c: char| !c.is_alphanumeric()).any(|word| word == *part)
            };
            expect |= forms.contains(Form::Composed)
                && model.trusted.contains(&(Kind::Host, host.to_string()))
                && !parts.is_empty()
                && parts.iter().all(said);
        }
        prop_assert_eq!(world.derives(Kind::Url, &asked), expect, "{} ({}) with {:?}", asked, plain, model);
    }

    /// Paths: equal, below, or standing in the task.
    #[test]
    fn paths_derive_as_the_model_says(
        task in prop::collection::vec(pieces(), 0..5),
        path in prop::collection::vec(prop::sample::select(&["docs", "x1", "report", "..", "other"][..]), 1..4),
        forms in forms(),
    ) {
        let (world, model) = both(&task, &[], KindSet::NONE, forms);
        let asked = path.join("/");
        let named = |text: &str| {
            forms.contains(Form::Substring) && model.task.contains(&format!(" {text} "))
        };
        let mut expect = model.has(Kind::Path, &asked) || named(&asked);
        if forms.contains(Form::Below) && !path.contains(&"..") {
            for n in 1..path.len() {
                let above = path[..n].join("/");
                expect |= model.has(Kind::Path, &above) || named(&above);
            }
        }
        // A host or URL is written like a path, too; its pieces are no components of these.
        prop_assert_eq!(world.derives(Kind::Path, &asked), expect, "{} with {:?}", asked, model);
    }
}
