//! The tables that speak of parties: `[[party]]`, `[[provider]]`, `[[credential]]`.

use std::net::IpAddr;

use kernel::Level;
use kernel::policy::{Glob, PathRule};

use crate::connection::{self, HostKey, Rate, Upstream, base_url, upstream};
use crate::error::listed;
use crate::read::{Document, Item, Table, Word};
use crate::sheet::clearance;

/// A party as a file names it.
#[derive(Clone, Debug)]
pub(crate) struct PartyEntry {
    pub(crate) name: Word,
    pub(crate) hosts: Vec<Word>,
    pub(crate) ports: Vec<u16>,
    pub(crate) clearance: Option<Level>,
    pub(crate) allow: Allow,
    pub(crate) paths: Vec<String>,
    pub(crate) blocking: Vec<PathRule>,
    pub(crate) provider: Option<ProviderEntry>,
    pub(crate) upstream: Option<Upstream>,
    pub(crate) roots: Vec<Word>,
    /// Files of a client certificate and its key.
    pub(crate) identity: Option<(Word, Word)>,
    pub(crate) host_keys: Vec<HostKey>,
    pub(crate) rate: Option<Rate>,
    pub(crate) connections: Option<u32>,
    pub(crate) preset: Option<Word>,
    pub(crate) credentials: Vec<Word>,
    pub(crate) placeholder: String,
}

/// What a party is named for.
#[derive(Clone, Debug, Default)]
pub(crate) enum Allow {
    /// Nothing was said: a request that only reads goes out when its URL derives from the task.
    #[default]
    Unsaid,
    /// Every request.
    Any,
    /// These requests.
    Some(Vec<PathRule>),
}

/// How a party is a model provider.
#[derive(Clone, Debug)]
pub(crate) enum ProviderEntry {
    /// It is not, whatever its host is known for.
    No,
    /// By all protocols that are known.
    Any,
    /// As the provider of this name.
    Like(Word),
    /// By these requests.
    Models(Vec<PathRule>),
}

/// `[[credential]]`.
#[derive(Debug)]
pub(crate) struct CredentialEntry {
    pub(crate) env: Word,
    pub(crate) hosts: Vec<Word>,
    pub(crate) placeholder: String,
}

const NOT_HERE: &[(&str, &str)] = &[
    ("methods", "write `allow = [\"GET\", \"HEAD\"]`"),
    ("kind", "write `provider = true` for a model provider"),
    ("internal", "write `provider = true` for a model provider"),
    ("port", "write `ports`"),
    ("url", "write `hosts`, and `paths` for what lies below"),
    ("level", "write `clearance`"),
    (
        "trusted",
        "what a party is trusted for stands in `[[source]] party = \"...\"`",
    ),
    ("permit", "write `allow`"),
];

/// `[[party]]` and `[[preset]]`.
pub(crate) fn party<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<PartyEntry> {
    let name = table
        .take("name")
        .and_then(|item| document.string(item, "\"registry\""));
    let (one, many) = (table.take("host"), table.take("hosts"));
    let preset = table.take("preset");
    if one.or(many).or(preset).is_none() {
        table.lacks(
            "`[[party]]` has to say who it is",
            "no `hosts` here",
            "write `hosts = [\"api.example.org\"]`, or `preset = \"npm\"`",
        );
    }
    let hosts = both_hosts(document, one, many);
    let preset = preset.and_then(|item| document.string(item, "\"npm\""));
    let ports = table
        .take("ports")
        .map(|item| document.ports(item))
        .unwrap_or_default();
    let clearance = clearance(document, table.take("clearance"));
    let allow = table
        .take("allow")
        .map(|item| allow(document, item))
        .unwrap_or_default();
    let paths = table
        .take("paths")
        .map(|item| prefixes(document, item))
        .unwrap_or_default();
    let blocking = table
        .take("blocking")
        .map(|item| requests(document, item))
        .unwrap_or_default();
    let provider = table.take("provider").and_then(|item| like(document, item));
    let upstream = table
        .take("upstream")
        .and_then(|item| upstream(document, item));
    let roots = table
        .take("roots")
        .map(|item| document.strings(item, "[\"ca.pem\"]"));
    let identity = connection::identity(document, &mut table);
    let host_keys = table
        .take("host_keys")
        .map(|item| connection::host_keys(document, item))
        .unwrap_or_default();
    let rate = table
        .take("rate")
        .and_then(|item| connection::rate(document, item));
    let connections = table
        .take("connections")
        .and_then(|item| connection::connections(document, item));
    let span = table.span();
    table.finish(document, NOT_HERE);
    let first = hosts.first().or(preset.as_ref()).cloned();
    Some(PartyEntry {
        name: name.or(first).unwrap_or(Word {
            text: String::new(),
            span,
        }),
        hosts,
        ports,
        clearance,
        allow,
        paths,
        blocking,
        provider,
        upstream,
        roots: roots.unwrap_or_default(),
        identity,
        host_keys,
        rate,
        connections,
        preset,
        credentials: Vec::new(),
        placeholder: String::new(),
    })
}

/// `[[provider]]`: a party whose model paths are an internal channel.
pub(crate) fn provider<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<PartyEntry> {
    let name = table
        .take("name")
        .and_then(|item| document.string(item, "\"local\""));
    let (one, many, base) = (
        table.take("host"),
        table.take("hosts"),
        table.take("base_url"),
    );
    let mut hosts = both_hosts(document, one, many);
    let mut ports = table
        .take("ports")
        .map(|item| document.ports(item))
        .unwrap_or_default();
    let mut models = table
        .take("models")
        .map(|item| requests(document, item))
        .unwrap_or_default();
    if let Some((at, path, span)) =
        base.and_then(|item| base_url(document, item, "http://127.0.0.1:11434/v1"))
    {
        hosts.push(Word {
            text: at.host,
            span,
        });
        ports.push(at.port);
        if models.is_empty() {
            models = below(&path);
        }
    } else if models.is_empty() && !hosts.is_empty() {
        models = ["", "/v1"].iter().flat_map(|base| below(base)).collect();
    }
    if one.or(many).or(base).is_none() {
        table.lacks(
            "`[[provider]]` has to say where its models are",
            "no `hosts` or `base_url` here",
            "write `base_url = \"http://127.0.0.1:11434/v1\"`, or `hosts = [\"models.example.org\"]`",
        );
    }
    let upstream = table
        .take("upstream")
        .and_then(|item| upstream(document, item));
    let roots = table
        .take("roots")
        .map(|item| document.strings(item, "[\"ca.pem\"]"));
    let identity = connection::identity(document, &mut table);
    let rate = table
        .take("rate")
        .and_then(|item| connection::rate(document, item));
    let credentials = table
        .take("credential")
        .map(|item| document.strings(item, "\"MY_API_KEY\""));
    let placeholder = table
        .take("placeholder")
        .and_then(|item| document.string(item, "\"sk-\""));
    let span = table.span();
    table.finish(document, NOT_HERE);
    let first = hosts.first().cloned();
    Some(PartyEntry {
        name: name.or(first).unwrap_or(Word {
            text: String::new(),
            span,
        }),
        hosts,
        ports,
        clearance: None,
        allow: Allow::Unsaid,
        paths: Vec::new(),
        blocking: Vec::new(),
        provider: Some(ProviderEntry::Models(models)),
        upstream,
        roots: roots.unwrap_or_default(),
        identity,
        host_keys: Vec::new(),
        rate,
        connections: None,
        preset: None,
        credentials: credentials.unwrap_or_default(),
        placeholder: placeholder.map(|word| word.text).unwrap_or_default(),
    })
}

/// `[[credential]]`.
pub(crate) fn credential<'a>(
    document: &Document<'a>,
    mut table: Table<'a>,
) -> Option<CredentialEntry> {
    let env = table.take("env");
    let (one, many) = (table.take("host"), table.take("hosts"));
    let placeholder = table
        .take("placeholder")
        .and_then(|item| document.string(item, "\"ghp_\""));
    if env.is_none() || one.or(many).is_none() {
        table.lacks(
            "`[[credential]]` has to have `env` and `hosts`",
            "this table",
            "write `env = \"GITHUB_TOKEN\"` and `hosts = [\"api.github.com\"]`: the variable's value is put in \
             only towards these hosts",
        );
    }
    let env = env.and_then(|item| document.string(item, "\"GITHUB_TOKEN\""));
    let hosts = both_hosts(document, one, many);
    for host in hosts.iter().filter(|host| host.text == "*") {
        document.wrong_help(
            host.span.clone(),
            "a credential cannot be for everybody",
            "every host",
            "name the hosts that are meant to get it",
        );
    }
    table.finish(
        document,
        &[(
            "value",
            "a secret does not belong into a policy; name the variable that holds it: `env`",
        )],
    );
    let placeholder = placeholder.map(|word| word.text).unwrap_or_default();
    (!hosts.is_empty()).then_some(())?;
    Some(CredentialEntry {
        env: env?,
        hosts,
        placeholder,
    })
}

fn both_hosts(document: &Document<'_>, one: Option<Item<'_>>, many: Option<Item<'_>>) -> Vec<Word> {
    [one, many]
        .into_iter()
        .flatten()
        .flat_map(|item| hosts(document, item))
        .collect()
}

/// Host patterns in canonical form.
pub(crate) fn hosts(document: &Document<'_>, item: Item<'_>) -> Vec<Word> {
    document
        .strings(item, "[\"api.example.org\"]")
        .into_iter()
        .filter_map(|word| host(document, word))
        .collect()
}

fn host(document: &Document<'_>, word: Word) -> Option<Word> {
    let lower = word.text.to_ascii_lowercase();
    let text = lower.trim_matches(['[', ']']).trim_end_matches('.');
    if text == "*" || text.parse::<IpAddr>().is_ok() {
        return Some(Word {
            text: canonical_address(text),
            span: word.span,
        });
    }
    let name = text
        .strip_prefix("*.")
        .or_else(|| text.strip_prefix('.'))
        .unwrap_or(text);
    let (what, help) = if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':', '?', '#']).next().unwrap_or_default();
        (
            "this is a URL, not a host",
            format!("write `{host}`, and `paths` for what lies below"),
        )
    } else if let Some((host, _)) = name.split_once('/') {
        (
            "a host has no path",
            format!("write `{host}`, and `paths` for what lies below"),
        )
    } else if let Some((host, port)) = name.split_once(':') {
        (
            "a host has no port",
            format!("write `{host}`, and `ports = [{port}]`"),
        )
    } else if !text.is_ascii() {
        (
            "a host is written in its ASCII form",
            "write the `xn--...` form".to_string(),
        )
    } else if name.contains('*') {
        (
            "a `*` can only stand for everything before the first dot of a host",
            "write `*.example.org`, or `*` for everybody".to_string(),
        )
    } else if !is_name(name) {
        (
            "this is not a host name",
            "write a name such as `api.example.org`, or an address".to_string(),
        )
    } else {
        return Some(Word {
            text: text.to_string(),
            span: word.span,
        });
    };
    document.wrong_help(
        word.span.clone(),
        format!("{what}: `{}`", word.text),
        "here",
        help,
    );
    None
}

pub(crate) fn canonical_address(text: &str) -> String {
    text.parse::<IpAddr>()
        .map_or_else(|_| text.to_string(), |address| address.to_string())
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        })
}

fn allow(document: &Document<'_>, item: Item<'_>) -> Allow {
    if item.is_bool() {
        return match document.boolean(item) {
            Some(true) => Allow::Any,
            _ => Allow::Unsaid,
        };
    }
    Allow::Some(requests(document, item))
}

/// Requests written `POST`, `POST /path/**` or `/path/**`.
fn requests(document: &Document<'_>, item: Item<'_>) -> Vec<PathRule> {
    let words = document.strings(item, "[\"GET\", \"POST /graphql\"]");
    words
        .iter()
        .filter_map(|word| request(document, word))
        .collect()
}

const METHODS: [&str; 9] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE",
];

/// Methods of WebDAV and its kin, which there are, but which nobody means by mistake.
const FURTHER_METHODS: [&str; 14] = [
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "QUERY",
    "MKCALENDAR",
    "LINK",
    "UNLINK",
    "PURGE",
];

fn request(document: &Document<'_>, word: &Word) -> Option<PathRule> {
    let (method, path) = match word.text.split_once(' ') {
        Some((method, path)) => (method, path.trim()),
        None if word.text.starts_with('/') => ("", word.text.as_str()),
        None => (word.text.as_str(), ""),
    };
    let known = method.is_empty() || METHODS.contains(&method) || FURTHER_METHODS.contains(&method);
    if !known || (!path.is_empty() && !path.starts_with('/')) || path.contains(['?', ' ', '#']) {
        let upper = method.to_ascii_uppercase();
        let help = if METHODS.contains(&upper.as_str()) && !known {
            format!("methods are upper case: `{upper}`")
        } else {
            format!(
                "write a method, a path pattern, or both: `POST`, `/v1/**`, `POST /graphql`; methods are {}",
                listed(METHODS)
            )
        };
        document.wrong_help(
            word.span.clone(),
            format!("`{}` is not a request", word.text),
            "here",
            help,
        );
        return None;
    }
    let methods = if method.is_empty() {
        Vec::new()
    } else {
        vec![method.to_string()]
    };
    Some(PathRule {
        methods,
        path: Glob(if path.is_empty() { "**" } else { path }.to_string()),
    })
}

/// Whether a request rule speaks of every path.
pub(crate) fn is_any_path(rule: &PathRule) -> bool {
    rule.path.0 == "**" || rule.path.0 == "/**"
}

fn prefixes(document: &Document<'_>, item: Item<'_>) -> Vec<String> {
    let words = document.strings(item, "[\"/v1/public\"]");
    words
        .into_iter()
        .filter_map(|word| {
            if word.text.starts_with('/') && !word.text.contains(['*', '?', '#', ' ']) {
                return Some(word.text);
            }
            document.wrong_help(
                word.span,
                format!("`{}` is not the beginning of a path", word.text),
                "here",
                "write `/v1/public`: it stands for that path and everything below it",
            );
            None
        })
        .collect()
}

fn like(document: &Document<'_>, item: Item<'_>) -> Option<ProviderEntry> {
    if item.is_bool() {
        let any = document.boolean(item)?;
        return Some(if any {
            ProviderEntry::Any
        } else {
            ProviderEntry::No
        });
    }
    document.string(item, "\"openai\"").map(ProviderEntry::Like)
}

/// The requests of the protocols that are known, below a base path.
pub(crate) fn below(base: &str) -> Vec<PathRule> {
    [
        ("POST", "/chat/completions"),
        ("POST", "/completions"),
        ("POST", "/responses"),
        ("GET", "/responses"),
        ("POST", "/messages"),
        ("POST", "/embeddings"),
        ("GET", "/models"),
        ("POST", "/models/**"),
        ("POST", "/api/chat"),
        ("POST", "/api/generate"),
        ("POST", "/api/embed"),
        ("GET", "/api/tags"),
    ]
    .iter()
    .map(|(method, path)| PathRule {
        methods: vec![(*method).to_string()],
        path: Glob(format!("{base}{path}")),
    })
    .collect()
}
