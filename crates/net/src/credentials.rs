//! Real credentials in place of their placeholders: put in when a request leaves, after it was decided,
//! towards their own hosts only, and only where servers look for credentials.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use kernel::Object;
use monitor::{Held, Session};

use crate::config::Credential;
use crate::{inspect, spool};

fn carries_credentials(name: &str) -> bool {
    [
        "auth",
        "key",
        "token",
        "cookie",
        "secret",
        "credential",
        "pass",
    ]
    .iter()
    .any(|word| name.contains(word))
}

/// Puts real values where placeholders stand, towards the hosts they are meant for only. What was put
/// in is added to `sent`, as it stands there.
pub(crate) fn in_headers(
    credentials: &[Credential],
    host: &str,
    mut headers: HeaderMap,
    sent: &mut BTreeSet<String>,
) -> HeaderMap {
    for credential in credentials {
        if !is_for(credential, host) {
            continue;
        }
        for (name, value) in &mut headers {
            // Only where servers look for credentials, not where they might echo anything.
            if !carries_credentials(name.as_str()) {
                continue;
            }
            let Ok(text) = value.to_str() else { continue };
            let changed = if text.contains(&credential.placeholder) {
                sent.insert(credential.value.clone());
                text.replace(&credential.placeholder, &credential.value)
            } else {
                let Some(decoded) =
                    inspect::basic(value.as_bytes()).and_then(|d| String::from_utf8(d).ok())
                else {
                    continue;
                };
                if !decoded.contains(&credential.placeholder) {
                    continue;
                }
                let real = decoded.replace(&credential.placeholder, &credential.value);
                let coded = base64::engine::general_purpose::STANDARD.encode(real);
                sent.extend([credential.value.clone(), coded.clone()]);
                format!("Basic {coded}")
            };
            if let Ok(mut real) = HeaderValue::from_str(&changed) {
                real.set_sensitive(true);
                *value = real;
            }
        }
    }
    headers
}

/// Whether a placeholder stands in the head of a held request.
pub fn stands_in(session: &Session, held: &Held, placeholder: &str) -> bool {
    let Object::Party { path, .. } = &held.effect.object else {
        return false;
    };
    let stands = |value: &HeaderValue| {
        let coded = inspect::basic(value.as_bytes()).unwrap_or_default();
        [value.as_bytes(), &coded]
            .iter()
            .any(|bytes| String::from_utf8_lossy(bytes).contains(placeholder))
    };
    let blob = session.blobs().path(&held.effect.payload.digest);
    let head = std::fs::File::open(blob)
        .ok()
        .and_then(|file| spool::read_head_of(&file));
    path.contains(placeholder)
        || held.parked.note.contains(placeholder)
        || head.is_some_and(|(_, headers, _)| headers.values().any(stands))
}

/// Puts real values into the parameters of a query that are meant for them, and adds them to `sent`.
pub(crate) fn in_path(
    credentials: &[Credential],
    host: &str,
    path: &str,
    sent: &mut BTreeSet<String>,
) -> String {
    let Some((before, query)) = path.split_once('?') else {
        return path.to_string();
    };
    let mut query = query.to_string();
    for credential in credentials
        .iter()
        .filter(|credential| is_for(credential, host))
    {
        if !query.contains(&credential.placeholder) {
            continue;
        }
        let value = escaped(&credential.value);
        let pairs: Vec<String> = query
            .split('&')
            .map(|pair| match pair.split_once('=') {
                Some((name, text)) if carries_credentials(&name.to_ascii_lowercase()) => {
                    if text.contains(&credential.placeholder) {
                        sent.extend([credential.value.clone(), value.clone()]);
                    }
                    format!("{name}={}", text.replace(&credential.placeholder, &value))
                }
                _ => pair.to_string(),
            })
            .collect();
        query = pairs.join("&");
    }
    format!("{before}?{query}")
}

fn is_for(credential: &Credential, host: &str) -> bool {
    !credential.placeholder.is_empty() && credential.hosts.iter().any(|hosts| hosts.matches(host))
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use kernel::policy::HostPattern;

    use super::*;

    #[test]
    fn credentials_go_to_their_hosts_only() {
        let credentials = [Credential {
            placeholder: "KAIROS_TOKEN".into(),
            value: "real".into(),
            hosts: vec![HostPattern("api.example".into())],
        }];
        let mut headers = HeaderMap::new();
        headers.insert(
            "authorization",
            HeaderValue::from_static("Bearer KAIROS_TOKEN"),
        );
        let coded = base64::engine::general_purpose::STANDARD.encode("me:KAIROS_TOKEN");
        headers.insert("x-upstream-auth", format!("Basic {coded}").parse().unwrap());
        headers.insert("x-echo", HeaderValue::from_static("KAIROS_TOKEN"));
        let (mut sent, mut none) = (BTreeSet::new(), BTreeSet::new());
        let real = in_headers(&credentials, "api.example", headers.clone(), &mut sent);
        assert_eq!(real["authorization"], "Bearer real");
        assert_eq!(real["x-echo"], "KAIROS_TOKEN");
        assert_eq!(
            inspect::basic(real["x-upstream-auth"].as_bytes()).unwrap(),
            b"me:real"
        );
        assert_eq!(
            in_headers(&credentials, "evil.example", headers.clone(), &mut none),
            headers
        );
        let coded = base64::engine::general_purpose::STANDARD.encode("me:real");
        assert_eq!(sent, BTreeSet::from(["real".to_string(), coded]));
        assert!(none.is_empty());
    }

    #[test]
    fn a_query_has_them_where_servers_look_for_them() {
        let credentials = [Credential {
            placeholder: "kairos-placeholder-1".into(),
            value: "a&b c".into(),
            hosts: vec![HostPattern("api.example".into())],
        }];
        let mut sent = BTreeSet::new();
        let path = "/kairos-placeholder-1?access_token=kairos-placeholder-1&note=kairos-placeholder-1&Key=x-kairos-placeholder-1";
        assert_eq!(
            in_path(&credentials, "api.example", path, &mut sent),
            "/kairos-placeholder-1?access_token=a%26b%20c&note=kairos-placeholder-1&Key=x-a%26b%20c"
        );
        let expect = ["a&b c".to_string(), "a%26b%20c".to_string()];
        assert_eq!(sent, BTreeSet::from(expect));
        let mut none = BTreeSet::new();
        assert_eq!(in_path(&credentials, "evil.example", path, &mut none), path);
        let plain = in_path(&credentials, "api.example", "/plain", &mut none);
        assert_eq!(plain, "/plain");
        assert!(none.is_empty());
    }
}
