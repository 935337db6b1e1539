//! What is wrong with a policy: where, what, and what to write instead. Several at once.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File it is in, as shown to people.
    pub file: String,
    /// Line, from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// The words beside the place.
    pub here: String,
    /// What to write instead.
    pub help: Option<String>,
    text: Option<(String, Range<usize>)>,
}

impl Finding {
    /// A mistake at a place in a text.
    pub(crate) fn at(
        file: &str,
        text: &str,
        span: Range<usize>,
        what: impl Into<String>,
        here: impl Into<String>,
    ) -> Self {
        let span = inside(text, span);
        let (line, column) = position(text, span.start);
        Self {
            file: file.to_string(),
            line,
            column,
            what: what.into(),
            here: here.into(),
            help: None,
            text: Some((text.to_string(), span)),
        }
    }

    /// A mistake that concerns a whole file.
    pub(crate) fn whole(file: &Path, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: file.display().to_string(),
            line: 0,
            column: 0,
            what: what.into(),
            here: String::new(),
            help: Some(help.into()),
            text: None,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn render(&self, renderer: &Renderer) -> String {
        let mut groups = Vec::new();
        let title = Level::ERROR.primary_title(self.what.as_str());
        match &self.text {
            Some((text, span)) => {
                let mark = AnnotationKind::Primary
                    .span(span.clone())
                    .label(self.here.as_str());
                groups.push(
                    title.element(
                        Snippet::source(text.as_str())
                            .path(self.file.as_str())
                            .annotation(mark),
                    ),
                );
            }
            None => groups.push(
                Group::with_title(title)
                    .element(annotate_snippets::Origin::path(self.file.as_str())),
            ),
        }
        if let Some(help) = &self.help {
            groups.push(Group::with_title(
                Level::HELP.secondary_title(help.as_str()),
            ));
        }
        renderer.render(&groups)
    }
}

/// Everything that is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyErrors(pub Vec<Finding>);

impl PolicyErrors {
    /// For a terminal, with colours.
    pub fn coloured(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let mut text: Vec<String> = self
            .0
            .iter()
            .map(|finding| finding.render(renderer))
            .collect();
        match self.0.iter().filter(|finding| finding.line > 0).count() {
            0 => {}
            1 => text.push("the policy has a mistake; nothing was run".to_string()),
            n => text.push(format!("the policy has {n} mistakes; nothing was run")),
        }
        text.join("\n\n")
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

impl std::error::Error for PolicyErrors {}

/// A span that lies inside a text, at character boundaries, and covers something to point at.
fn inside(text: &str, span: Range<usize>) -> Range<usize> {
    let mut start = span.start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = span.end.clamp(start, text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}

/// `; did you mean `x`?` for the nearest of some words, if one is near.
pub(crate) fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    words
        .into_iter()
        .map(|known| (strsim::osa_distance(&word.to_lowercase(), known), known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min()
        .map(|(_, known)| known)
}

/// Words as a list for people: `a`, `b` or `c`.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
