//! Patterns of hosts, paths, names and fields.

use alloc::string::String;
use alloc::vec::Vec;

/// A name in which `*` stands for any characters: `search_*`, `mcp__*__read`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(pub String);

impl NamePattern {
    /// Whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        // Most names of a long list are told apart by their last letter.
        let (wanted, given) = (self.0.as_bytes().last(), name.as_bytes().last());
        let literal_end = !matches!(wanted, Some(b'*' | b'?') | None);
        !(literal_end && wanted != given) && component_matches(&self.0, name)
    }
}

/// The way to values of something structured: keys and positions joined by dots; `*` stands for
/// one of them, `**` for any number. It speaks of what lies below, too: `recipients` of
/// `recipients.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPattern(pub String);

impl FieldPattern {
    /// Whether a leaf's path matches.
    pub fn matches(&self, path: &str) -> bool {
        fields_match(Some(&self.0), Some(path))
    }
}

impl FieldPattern {
    /// What the parts with a `*` stand for, when a leaf's path matches: the record it is in.
    pub(crate) fn bound<'a>(&self, path: &'a str) -> Option<Vec<&'a str>> {
        let mut record = Vec::new();
        bind(Some(&self.0), Some(path), &mut record).then_some(record)
    }

    /// Keys in a leaf's path that the pattern does not spell; positions are none.
    pub(crate) fn keys<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let spelt = |part: &str| self.0.split('.').any(|field| field == part);
        let position = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        path.split('.')
            .filter(move |part| !part.is_empty() && !position(part) && !spelt(part))
    }

    /// Of two patterns that match, the one with more parts, and then with fewer wildcards, is the
    /// more specific.
    pub(crate) fn weight(&self) -> (usize, usize) {
        let parts = self.0.split('.');
        let plain = parts.clone().filter(|part| !part.contains('*')).count();
        (parts.count(), plain)
    }
}

fn bind<'a>(pattern: Option<&str>, path: Option<&'a str>, record: &mut Vec<&'a str>) -> bool {
    let Some(pattern) = pattern else { return true };
    let (first, rest) = split_field(pattern);
    let whole = path.unwrap_or_default();
    if first == "**" {
        let (n, mut tail) = (record.len(), path);
        loop {
            let taken = whole.len() - tail.map_or(0, str::len);
            record.push(whole.get(..taken).unwrap_or_default().trim_end_matches('.'));
            if bind(rest, tail, record) {
                return true;
            }
            record.truncate(n);
            match tail {
                Some(some) => tail = split_field(some).1,
                None => return false,
            }
        }
    }
    let Some(path) = path else { return false };
    let (field, below) = split_field(path);
    if !component_matches(first, field) {
        return false;
    }
    if first.contains('*') {
        record.push(field);
    }
    bind(rest, below, record)
}

fn fields_match(pattern: Option<&str>, path: Option<&str>) -> bool {
    let Some(pattern) = pattern else { return true };
    let (first, rest) = split_field(pattern);
    if first == "**" {
        let mut tail = path;
        loop {
            if fields_match(rest, tail) {
                return true;
            }
            match tail {
                Some(some) => tail = split_field(some).1,
                None => return false,
            }
        }
    }
    let Some(path) = path else { return false };
    let (field, below) = split_field(path);
    component_matches(first, field) && fields_match(rest, below)
}

fn split_field(path: &str) -> (&str, Option<&str>) {
    match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    }
}

/// A host pattern: `example.org` (that host), `.example.org` or `*.example.org` (any host below
/// it), `*` (any).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(pub String);

impl HostPattern {
    /// Whether a canonical host matches.
    pub fn matches(&self, host: &str) -> bool {
        let pattern = self.0.as_str();
        if pattern == "*" {
            return true;
        }
        let below = pattern
            .strip_prefix("*.")
            .or_else(|| pattern.strip_prefix('.'));
        match below {
            Some(suffix) => host
                .strip_suffix(suffix)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => host == pattern,
        }
    }
}

/// A path pattern over `/`-separated components: `*` within a component, `**` for any number of
/// components, `?` one character. Without a slash it matches a name at any depth; a directory
/// matches with everything below it. A leading slash binds a single component to the root, too.
/// Exceptions may follow, each after ` !`: `.env.* !.env.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(pub String);

impl Glob {
    /// Whether a path (without leading slash) matches.
    pub fn matches(&self, path: &str) -> bool {
        let Some(end) = self.0.as_bytes().windows(2).position(|pair| pair == b" !") else {
            return pattern_matches(&self.0, path);
        };
        let (pattern, exceptions) = self.0.split_at(end);
        pattern_matches(pattern, path)
            && !exceptions
                .split(" !")
                .skip(1)
                .any(|exception| pattern_matches(exception, path))
    }
}

// Runs for every pattern of a policy on every file event, so nothing here allocates.
fn pattern_matches(pattern: &str, path: &str) -> bool {
    let bare = pattern.trim_matches('/');
    if bare.is_empty() {
        return false;
    }
    if pattern.as_bytes().contains(&b'/') && (pattern.starts_with('/') || bare.contains('/'))
        || bare == "**"
    {
        return components_match(bare, path);
    }
    let literal = is_literal(bare);
    path.split('/').any(|component| {
        !component.is_empty()
            && if literal {
                component == bare
            } else {
                component_matches(bare, component)
            }
    })
}

/// Components are matched one by one; a pattern that ends matches everything below.
fn components_match(pattern: &str, path: &str) -> bool {
    let path = path.trim_start_matches('/');
    let (first, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    match (first, rest) {
        ("", "") => true,
        ("**", "") => true,
        ("**", rest) => {
            let mut tail = path;
            loop {
                if components_match(rest, tail) {
                    return true;
                }
                match tail.split_once('/') {
                    Some((_, below)) => tail = below,
                    None if tail.is_empty() => return false,
                    None => tail = "",
                }
            }
        }
        (first, rest) => {
            let (component, tail) = path.split_once('/').unwrap_or((path, ""));
            !component.is_empty()
                && component_matches(first, component)
                && components_match(rest, tail)
        }
    }
}

fn is_literal(pattern: &str) -> bool {
    !pattern.bytes().any(|byte| matches!(byte, b'*' | b'?'))
}

fn component_matches(pattern: &str, text: &str) -> bool {
    if is_literal(pattern) {
        return pattern == text;
    }
    // On a mismatch go back to the last `*` and let it take one more character.
    let (mut pattern, mut text) = (pattern, text);
    let mut star: Option<(&str, &str)> = None;
    loop {
        let (mut wanted, mut given) = (pattern.chars(), text.chars());
        match (wanted.next(), given.next()) {
            (Some('*'), _) => {
                pattern = wanted.as_str();
                star = Some((pattern, text));
            }
            (Some(w), Some(g)) if w == '?' || w == g => {
                pattern = wanted.as_str();
                text = given.as_str();
            }
            (None, None) => return true,
            _ => {
                let Some((after, taken)) = star else {
                    return false;
                };
                let mut more = taken.chars();
                if more.next().is_none() {
                    return false;
                }
                pattern = after;
                text = more.as_str();
                star = Some((after, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn globs() {
        for (pattern, path, expect) in [
            (".env*", "a/b/.env.local", true),
            (".env*", "env", false),
            ("**/.git/hooks/**", ".git/hooks/pre-commit", true),
            ("**/.git/hooks/**", "sub/mod/.git/hooks/x", true),
            ("**/.git/hooks/**", ".git/config", false),
            (".github/workflows", ".github/workflows/ci.yml", true),
            ("*.pem", "keys/a.pem", true),
            ("a/*/c", "a/b/c/d", true),
            ("a/*/c", "a/b/b/c", false),
            ("**", "anything/at/all", true),
            ("a?c", "abc", true),
            ("*a*b", "xaybzab", true),
            ("*a*b", "xaybza", false),
            ("?", "é", true),
            ("??", "é", false),
            ("**/b/**", "b", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b/c", true),
            ("/", "a", false),
            ("", "a", false),
            ("/graphql", "graphql", true),
            ("/graphql", "api/graphql", false),
            (".env.* !.env.example !.env.sample", ".env.local", true),
            (".env.* !.env.example !.env.sample", "a/.env.sample", false),
        ] {
            assert_eq!(
                Glob(pattern.to_string()).matches(path),
                expect,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn fields() {
        for (pattern, path, expect) in [
            ("recipients", "recipients", true),
            ("recipients", "recipients.0", true),
            ("recipients", "recipientsx", false),
            ("files.*.id_", "files.3.id_", true),
            ("files.*.id_", "files.3.name", false),
            ("*.id_", "3.id_", true),
            ("**.id_", "a.3.id_", true),
            ("**.id_", "id_", true),
            ("**", "", true),
            ("", "", true),
            ("a.b", "a", false),
        ] {
            let pattern_ = FieldPattern(pattern.to_string());
            assert_eq!(pattern_.matches(path), expect, "{pattern} {path}");
        }
    }

    #[test]
    fn hosts() {
        for (pattern, host, expect) in [
            ("example.org", "example.org", true),
            ("example.org", "a.example.org", false),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "badexample.org", false),
            (".example.org", "a.b.example.org", true),
            ("*", "x", true),
        ] {
            assert_eq!(
                HostPattern(pattern.to_string()).matches(host),
                expect,
                "{pattern} {host}"
            );
        }
    }
}
