//! The hosts that a command's words name.

use crate::programs::Channel;
use crate::shell::Run;

/// The hosts that a command goes to.
pub(crate) fn hosts(program: &str, channel: Channel, run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for word in run.arguments() {
        found.extend(addresses(&word.text));
    }
    let plain: Vec<&str> = run
        .arguments()
        .iter()
        .map(|word| word.text.as_str())
        .filter(|word| !word.starts_with('-') && !word.is_empty())
        .collect();
    match channel {
        Channel::Http
            if found.is_empty()
                && matches!(program, "curl" | "wget" | "http" | "xh" | "ab" | "grpcurl") =>
        {
            // `curl example.org/x`
            found.extend(
                plain
                    .iter()
                    .filter_map(|word| host_of(word.split('/').next()?)),
            );
        }
        Channel::Ssh | Channel::Http if found.is_empty() => {
            for word in &plain {
                let Some((before, _)) = word.split_once(':') else {
                    continue;
                };
                let host = before.rsplit('@').next().unwrap_or(before);
                found.extend(host_of(host));
            }
            if found.is_empty() && channel == Channel::Ssh {
                found.extend(
                    plain
                        .iter()
                        .filter_map(|word| host_of(word.rsplit('@').next()?)),
                );
            }
        }
        Channel::Dns | Channel::RawSocket if found.is_empty() => {
            for word in &plain {
                let word = word.trim_start_matches('@');
                // `socat - TCP:host:port`
                let parts = word.split([':', ',', '/']);
                found.extend(parts.filter_map(host_of));
            }
        }
        Channel::Mail => {
            for word in &plain {
                if let Some((_, domain)) = word.split_once('@') {
                    found.extend(host_of(domain.trim_end_matches('>')));
                }
            }
        }
        Channel::CloudCli | Channel::PackagePublish if found.is_empty() => {
            found.extend(
                plain
                    .iter()
                    .filter_map(|word| host_of(word.split('/').next()?)),
            );
        }
        _ => {}
    }
    found.sort();
    found.dedup();
    found
}

/// Hosts of the addresses in a text.
pub(crate) fn addresses(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let rest = text.get(at + 3..).unwrap_or_default();
        let end = rest
            .find(|c: char| {
                matches!(
                    c,
                    '/' | '?' | '#' | '"' | '\'' | '`' | ')' | '>' | '<' | ',' | ';' | '\\'
                ) || c.is_whitespace()
            })
            .unwrap_or(rest.len());
        let authority = rest.get(..end).unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let host = if host.starts_with('[') {
            host.split(']')
                .next()
                .unwrap_or_default()
                .trim_start_matches('[')
        } else {
            host.split(':').next().unwrap_or_default()
        };
        if let Some(host) = host_of(host)
            .or_else(|| (host == "localhost" || host.contains(':')).then(|| host.to_owned()))
        {
            found.push(host);
        }
    }
    found
}

/// A name with a dot in it, or an address.
fn host_of(text: &str) -> Option<String> {
    let text = text.trim_end_matches('.').to_ascii_lowercase();
    let labels: Vec<&str> = text.split('.').collect();
    let fits = labels.len() >= 2
        && text.len() <= 253
        && labels.iter().all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        });
    let last = labels.last().copied().unwrap_or_default();
    let numeric = text.parse::<std::net::Ipv4Addr>().is_ok();
    let named = last.chars().all(|c| c.is_ascii_alphabetic()) && last.len() >= 2
        || last.starts_with("xn--");
    // `main.rs` is no host.
    let file = [
        "rs", "py", "js", "ts", "sh", "md", "txt", "json", "yml", "yaml", "toml", "gz", "zip",
        "tar", "html", "css", "lock", "log", "env", "pem", "key",
    ];
    (fits && (numeric || named && !(labels.len() == 2 && file.contains(&last)))).then_some(text)
}
