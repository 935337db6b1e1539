//! What a request means beyond its method and path: a push of git, a GraphQL mutation. It decides
//! whether the answer is needed, what a reviewer is shown, and what a stub looks like. It vouches
//! for nothing: whether a request may leave is decided all the same.

use std::collections::BTreeMap;
use std::io::Read;

use ::http::header::{CONTENT_TYPE, HeaderMap};

use crate::canonical::shown;
use crate::git::{self, Push};
use crate::graphql::{self, Kind};
use crate::inspect;
use crate::spool::Spool;

/// GraphQL requests are read up to this size.
const GRAPHQL_BYTES_MAX: u64 = 1 << 20;

/// What a request means.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// What its method says.
    Plain,
    /// git asks for objects.
    Fetch,
    /// git moves refs.
    Push(Push),
    /// GraphQL, with the names of its operations.
    GraphQl(Kind, Vec<String>),
}

impl Meaning {
    /// Reads it.
    pub(crate) fn of(method: &str, path: &str, headers: &HeaderMap, spool: &Spool) -> Self {
        if method != "POST" {
            return Self::Plain;
        }
        if git::is_fetch(method, path) {
            return Self::Fetch;
        }
        if git::is_push(method, path) {
            return plain(headers, spool)
                .and_then(Push::read)
                .map_or(Self::Plain, Self::Push);
        }
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let bare = path.split('?').next().unwrap_or_default();
        let named = bare
            .rsplit('/')
            .next()
            .is_some_and(|last| last == "graphql" || last == "gql");
        if (named || kind.starts_with("application/graphql"))
            && spool.body_bytes() <= GRAPHQL_BYTES_MAX
        {
            let mut body = Vec::new();
            let read = plain(headers, spool)
                .map(|reader| reader.take(GRAPHQL_BYTES_MAX).read_to_end(&mut body));
            if let Some(Ok(_)) = read
                && let Some((kind, names)) = graphql::of(kind, &body)
            {
                return Self::GraphQl(kind, names);
            }
        }
        Self::Plain
    }

    /// Whether its answer is all there is to it.
    pub(crate) fn needs_answer(&self) -> bool {
        match self {
            Self::Fetch => true,
            Self::GraphQl(kind, _) => *kind != Kind::Mutation,
            Self::Plain | Self::Push(_) => false,
        }
    }

    /// What a reviewer is shown of it, if there is something to be shown.
    pub(crate) fn told(&self, fields: &mut BTreeMap<String, String>) -> Option<String> {
        match self {
            Self::Plain => None,
            Self::Fetch => Some("git asks for objects".into()),
            Self::Push(push) => {
                let refs = shown(&push.refs_in_words());
                let commits: Vec<String> = push.commits_in_words().lines().map(shown).collect();
                fields.insert("git refs".into(), refs.clone());
                fields.insert("git commits".into(), commits.join("\n"));
                let with = match commits.first() {
                    None => String::new(),
                    Some(first) if commits.len() == 1 => format!(", with {first}"),
                    Some(first) => format!(", with {first} and {} more", commits.len() - 1),
                };
                Some(format!("git pushes {refs}{with}"))
            }
            Self::GraphQl(kind, names) => {
                fields.insert("graphql".into(), kind.word().into());
                let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
                Some(
                    format!("GraphQL {} {}", kind.word(), names.join(", "))
                        .trim()
                        .to_string(),
                )
            }
        }
    }
}

/// The body without its content coding; `None` when it has one that cannot be undone.
fn plain(headers: &HeaderMap, spool: &Spool) -> Option<Box<dyn Read + Send>> {
    match inspect::decoded(headers, spool.body_reader()) {
        Ok(Some(reader)) => Some(reader),
        Ok(None) => Some(spool.body_reader()),
        Err(_) => None,
    }
}
