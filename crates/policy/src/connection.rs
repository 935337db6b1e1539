//! What a policy says of connections: as whom we show ourselves, whom we expect at the other end of
//! SSH, and how much may come at a time.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use kernel::Digest;

use crate::amount::{SIZES, quantity};
use crate::party::{canonical_address, is_name};
use crate::read::{Document, Item, Table, Word};

/// How many requests in how much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests.
    pub requests: u32,
    /// In so many seconds.
    pub seconds: u32,
}

/// Limits of the whole session; what is not said is left to the channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetLimits {
    /// Requests of a session.
    pub rate: Option<Rate>,
    /// Connections at a time.
    pub connections: Option<u32>,
    /// Bytes of one request's body.
    pub body_bytes: Option<u64>,
    /// Bytes of one request's head.
    pub head_bytes: Option<u32>,
    /// Header lines of one request.
    pub headers: Option<u32>,
}

/// Where a party is really reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Whether TLS is spoken there.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// The key by which an SSH server is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey {
    /// `SHA256:...`, as SSH shows it.
    pub fingerprint: String,
    /// The public key itself (`ssh-ed25519 AAAA...`), where the policy has it.
    pub key: Option<String>,
}

/// Units of time that a rate is said in.
const PER: [(&str, u32); 3] = [("s", 1), ("min", 60), ("h", 3600)];
const RATE_EXAMPLE: &str = "\"10/s\"";
const KEY_EXAMPLE: &str = "\"ssh-ed25519 AAAA...\"";

/// `upstream`.
pub(crate) fn upstream(document: &Document<'_>, item: Item<'_>) -> Option<Upstream> {
    let (upstream, path, span) = base_url(document, item, "http://127.0.0.1:8080")?;
    if !path.is_empty() {
        document.wrong_help(
            span,
            "an upstream has no path: requests keep theirs",
            "a path",
            "write scheme, host and port only: `http://127.0.0.1:8080`",
        );
        return None;
    }
    Some(upstream)
}

/// An address with a path, as written and where.
pub(crate) fn base_url(
    document: &Document<'_>,
    item: Item<'_>,
    example: &str,
) -> Option<(Upstream, String, std::ops::Range<usize>)> {
    let word = document.string(item, &format!("{example:?}"))?;
    let parsed = split_url(&word.text);
    if parsed.is_none() {
        document.wrong_help(
            word.span.clone(),
            format!("`{}` is not an address to connect to", word.text),
            "here",
            format!("write `{example}`"),
        );
    }
    parsed.map(|(upstream, path)| (upstream, path, word.span))
}

fn split_url(url: &str) -> Option<(Upstream, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let default = if tls { 443 } else { 80 };
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None => default,
    };
    let host = canonical_address(&host.to_ascii_lowercase());
    let sound = host.parse::<IpAddr>().is_ok() || is_name(&host);
    let clean = !path.contains(['?', '#', '*', ' ']);
    (sound && clean).then(|| {
        (
            Upstream { tls, host, port },
            path.trim_end_matches('/').to_string(),
        )
    })
}

/// `certificate` and `key`, which belong together.
pub(crate) fn identity<'a>(document: &Document<'a>, table: &mut Table<'a>) -> Option<(Word, Word)> {
    let (certificate, key) = (table.take("certificate"), table.take("key"));
    if certificate.is_some() != key.is_some() {
        table.lacks(
            "a client certificate needs its key, and a key its certificate",
            "one of the two is missing",
            "write `certificate = \"client.pem\"` and `key = \"~/.config/kairos/client.key\"`",
        );
    }
    let certificate = document.string(certificate?, "\"client.pem\"");
    let key = document.string(key?, "\"~/.config/kairos/client.key\"");
    Some((certificate?, key?))
}

/// `host_keys`.
pub(crate) fn host_keys(document: &Document<'_>, item: Item<'_>) -> Vec<HostKey> {
    let words = document.strings(item, KEY_EXAMPLE);
    words
        .into_iter()
        .filter_map(|word| {
            let found = host_key(&word.text);
            if found.is_none() {
                document.wrong_help(
                    word.span,
                    format!("`{}` is not an SSH host key", word.text),
                    "here",
                    "write what `ssh-keyscan HOST` prints (`ssh-ed25519 AAAA...`), or the fingerprint that \
                     its owner publishes (`SHA256:...`)",
                );
            }
            found
        })
        .collect()
}

/// A public key, a line of `known_hosts`, or a fingerprint.
fn host_key(text: &str) -> Option<HostKey> {
    if let Some(digest) = text.strip_prefix("SHA256:") {
        let digest = digest.trim_end_matches('=');
        let bytes = STANDARD_NO_PAD.decode(digest).ok()?;
        return (bytes.len() == 32).then(|| HostKey {
            fingerprint: format!("SHA256:{digest}"),
            key: None,
        });
    }
    let mut words = text.split_ascii_whitespace();
    let kind = words.find(|word| {
        ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|start| word.starts_with(start))
    })?;
    let key = words.next()?;
    let blob = STANDARD.decode(key).ok()?;
    // A key says its own kind first.
    let said = blob.get(4..)?.get(..kind.len())?;
    (said == kind.as_bytes()).then(|| HostKey {
        fingerprint: format!("SHA256:{}", STANDARD_NO_PAD.encode(Digest::of(&blob).0)),
        key: Some(format!("{kind} {key}")),
    })
}

/// `"10/s"`, `"600/min"`.
pub(crate) fn rate(document: &Document<'_>, item: Item<'_>) -> Option<Rate> {
    let word = document.string(item, RATE_EXAMPLE)?;
    let found = word.text.split_once('/').and_then(|(requests, unit)| {
        let requests = requests.trim().parse().ok().filter(|n| *n > 0)?;
        let (_, seconds) = PER.iter().find(|(name, _)| *name == unit.trim())?;
        Some(Rate {
            requests,
            seconds: *seconds,
        })
    });
    if found.is_none() {
        document.wrong_help(
            word.span,
            format!("`{}` is not a rate", word.text),
            "here",
            "write `\"10/s\"`, `\"600/min\"` or `\"1000/h\"`",
        );
    }
    found
}

/// `connections`.
pub(crate) fn connections(document: &Document<'_>, item: Item<'_>) -> Option<u32> {
    let number = document.number(item, 1..1_000_001, "64")?;
    u32::try_from(number).ok()
}

/// What `[limits]` says of the net channel.
pub(crate) fn limits<'a>(document: &Document<'a>, table: &mut Table<'a>) -> NetLimits {
    let number = |item, range, example| {
        let number = document.number(item, range, example)?;
        u32::try_from(number).ok()
    };
    NetLimits {
        rate: table.take("rate").and_then(|item| rate(document, item)),
        connections: table
            .take("connections")
            .and_then(|item| connections(document, item)),
        body_bytes: table
            .take("body")
            .and_then(|item| quantity(document, item, &SIZES, "\"64MiB\"")),
        head_bytes: table.take("head").and_then(|item| {
            let bytes = quantity(document, item, &SIZES, "\"256KiB\"")?;
            let fits = u32::try_from(bytes).ok().filter(|n| HEAD_BYTES.contains(n));
            if fits.is_none() {
                document.mistyped(item, "a size from 8KiB to 16MiB", "\"256KiB\"");
            }
            fits
        }),
        headers: table
            .take("headers")
            .and_then(|item| number(item, 10..10_001, "200")),
    }
}

const HEAD_BYTES: std::ops::RangeInclusive<u32> = (8 << 10)..=(16 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_keys_are_known_in_every_spelling() {
        let blob = [
            &11u32.to_be_bytes()[..],
            b"ssh-ed25519",
            &32u32.to_be_bytes(),
            &[7; 32],
        ]
        .concat();
        let key = STANDARD.encode(&blob);
        let digest = format!("SHA256:{}", STANDARD_NO_PAD.encode(Digest::of(&blob).0));
        for text in [
            format!("ssh-ed25519 {key}"),
            format!("ssh-ed25519 {key} somebody@somewhere"),
            format!("git.example.org,192.0.2.1 ssh-ed25519 {key}"),
            format!("[git.example.org]:2222 ssh-ed25519 {key}"),
            digest.clone(),
            format!("{digest}="),
        ] {
            let found = host_key(&text).unwrap();
            assert_eq!(found.fingerprint, digest, "{text}");
            let full = (!text.starts_with("SHA")).then(|| format!("ssh-ed25519 {key}"));
            assert_eq!(found.key, full, "{text}");
        }
        for text in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 AAAA",
            &format!("ssh-rsa {key}"),
            "SHA256:short",
            "MD5:aa:bb",
        ] {
            assert_eq!(host_key(text), None, "{text}");
        }
    }
}
