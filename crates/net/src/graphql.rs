//! GraphQL over HTTP: whether a request only asks or changes something. A query needs its answer; a
//! mutation can wait behind a stub.

use serde_json::Value;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Its answer is all there is to it.
    Query,
    /// Answers that keep coming.
    Subscription,
    /// It changes something.
    Mutation,
}

impl Kind {
    /// As GraphQL writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Subscription => "subscription",
            Self::Mutation => "mutation",
        }
    }
}

/// What the body of a request holds: the kind that does most, and the names of its operations.
/// `None` when it is no GraphQL that can be read (a stored query, for one).
pub fn of(content_type: &str, body: &[u8]) -> Option<(Kind, Vec<String>)> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/graphql") {
        return document(std::str::from_utf8(body).ok()?);
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let requests = match &body {
        Value::Array(requests) if !requests.is_empty() => requests.as_slice(),
        Value::Object(_) => std::slice::from_ref(&body),
        _ => return None,
    };
    let mut most: Option<Kind> = None;
    let mut names = Vec::new();
    for request in requests {
        let (kind, mut more) = document(request.get("query")?.as_str()?)?;
        most = most.max(Some(kind));
        names.append(&mut more);
    }
    Some((most?, names))
}

/// The operations of one document. Which of several would run is the server's business, so the one
/// that does most counts.
fn document(text: &str) -> Option<(Kind, Vec<String>)> {
    let mut words = Words { rest: text };
    let mut most: Option<Kind> = None;
    let mut names = Vec::new();
    while let Some(word) = words.next()? {
        let kind = match word {
            "{" => Some(Kind::Query),
            "query" => Some(Kind::Query),
            "mutation" => Some(Kind::Mutation),
            "subscription" => Some(Kind::Subscription),
            "fragment" => None,
            _ => return None,
        };
        let mut depth = usize::from(word == "{");
        let mut named = word == "{" || kind.is_none();
        // To the end of its selection, whose first brace lies outside of all brackets.
        loop {
            let word = words.next()??;
            let opens_selection = word == "{" && depth == 0;
            match word {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.checked_sub(1)?,
                _ if !named && is_name(word) => names.push(word.to_string()),
                _ => {}
            }
            named = true;
            if opens_selection {
                break;
            }
            if depth == 0 && word == "}" {
                break;
            }
        }
        while depth > 0 {
            match words.next()?? {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
        }
        most = most.max(kind);
    }
    Some((most?, names))
}

/// Names, brackets and other marks of a document, without comments, strings and white space.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    /// The next one; `None` outside when the text is cut short, inside at its end.
    #[expect(
        clippy::option_option,
        reason = "the end of a document is no mistake in it"
    )]
    fn next(&mut self) -> Option<Option<&'a str>> {
        loop {
            self.rest = self
                .rest
                .trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '\u{feff}');
            if let Some(comment) = self.rest.strip_prefix('#') {
                self.rest = comment
                    .find(['\n', '\r'])
                    .map_or("", |end| comment.get(end..).unwrap_or_default());
            } else if let Some(block) = self.rest.strip_prefix("\"\"\"") {
                let mut from = 0;
                loop {
                    let end = from + block.get(from..)?.find("\"\"\"")?;
                    from = end + 3;
                    if !block.get(..end)?.ends_with('\\') {
                        break;
                    }
                }
                self.rest = block.get(from..)?;
                return Some(Some("\"\""));
            } else if let Some(string) = self.rest.strip_prefix('"') {
                let mut escaped = false;
                let end = string.find(|c: char| {
                    let ends = !escaped && c == '"';
                    escaped = !escaped && c == '\\';
                    ends
                })?;
                self.rest = string.get(end + 1..)?;
                return Some(Some("\"\""));
            } else {
                break;
            }
        }
        let mut chars = self.rest.char_indices();
        let Some((_, first)) = chars.next() else {
            return Some(None);
        };
        let end = if first.is_ascii_alphanumeric() || first == '_' {
            self.rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        } else {
            chars.next().map(|(at, _)| at)
        };
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(Some(word))
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(query: &str) -> Vec<u8> {
        serde_json::json!({ "query": query, "variables": { "query": "mutation" } })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn what_asks_and_what_changes() {
        for (query, expect) in [
            ("{ viewer { login } }", Some(Kind::Query)),
            (
                "query Q($a: In = {mutation: [1]}) @d(x: \"}\") { a(b: {c: 1}) }",
                Some(Kind::Query),
            ),
            ("# mutation { x }\nquery { mutation }", Some(Kind::Query)),
            ("query { a(text: \"} mutation { b }\") }", Some(Kind::Query)),
            (
                "query { a(text: \"\"\"x \\\"\"\" } mutation { b }\"\"\") }",
                Some(Kind::Query),
            ),
            (
                "mutation { addComment(input: {}) { id } }",
                Some(Kind::Mutation),
            ),
            (
                "fragment F on T { a } mutation M { ...F }",
                Some(Kind::Mutation),
            ),
            ("query A { a } mutation B { b }", Some(Kind::Mutation)),
            (
                "query A { a }, mutation B { b } query C { c }",
                Some(Kind::Mutation),
            ),
            ("subscription { s }", Some(Kind::Subscription)),
            ("\u{feff}query{a}", Some(Kind::Query)),
            ("fragment F on T { a }", None),
            ("query { a", None),
            ("query { a(x: \"", None),
            ("", None),
            ("type Query { a: Int }", None),
            ("} mutation { a }", None),
        ] {
            let found = of("application/json", &json(query));
            assert_eq!(found.map(|(kind, _)| kind), expect, "{query}");
        }
        let batch = br#"[{"query":"{a}"},{"query":"mutation Add{b}"}]"#;
        assert_eq!(
            of("application/json", batch),
            Some((Kind::Mutation, vec!["Add".to_string()]))
        );
        assert_eq!(
            of("application/graphql; charset=utf-8", b"query List { a }"),
            Some((Kind::Query, vec!["List".to_string()]))
        );
        assert_eq!(of("application/json", br#"{"id":"stored"}"#), None);
        assert_eq!(of("application/json", b"[]"), None);
    }

    proptest! {
        /// A mutation is never taken for a query, whatever stands before it.
        #[test]
        fn a_mutation_is_found_behind_anything_that_parses(before in "[a-z{}()\\[\\]\"#,@$:! \n\\\\]{0,40}") {
            let text = format!("{before}\nmutation M {{ a }}");
            if let Some((kind, names)) = document(&text)
                && names.contains(&"M".to_string())
            {
                prop_assert_eq!(kind, Kind::Mutation);
            }
        }

        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let _ = document(&text);
        }
    }
}
