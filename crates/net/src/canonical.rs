//! Canonical hosts and paths. Total over anything the agent writes: either one canonical form,
//! which is both judged and sent, or a refusal that says why.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

/// Why something has no canonical form, in words for the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Ambiguous(pub String);

fn ambiguous<T>(what: impl Into<String>) -> Result<T, Ambiguous> {
    Err(Ambiguous(what.into()))
}

/// The canonical form of a host: lower case, ASCII (IDNA), no trailing dot; addresses in their
/// usual notation, however they were spelled.
///
/// # Errors
/// When it is not a host, or could be read in two ways.
pub fn host(text: &str) -> Result<String, Ambiguous> {
    if text.is_empty() {
        return ambiguous("the host is empty");
    }
    if text.contains(['%', '@', '/', '\\', '?', '#']) {
        return ambiguous(format!("`{}` is not a host name", shown(text)));
    }
    if let Some(inner) = text.strip_prefix('[') {
        let Some(inner) = inner.strip_suffix(']') else {
            return ambiguous(format!("`{}` is not an address", shown(text)));
        };
        return match inner.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address_text(IpAddr::V6(address))),
            Err(_) => ambiguous(format!("`{}` is not an address", shown(text))),
        };
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address_text(address));
    }
    match url::Host::parse(text) {
        Ok(url::Host::Ipv4(address)) => Ok(address.to_string()),
        Ok(url::Host::Ipv6(address)) => Ok(address_text(IpAddr::V6(address))),
        Ok(url::Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(&name).to_string();
            let fits = name.len() <= 253 && name.split('.').all(|l| (1..=63).contains(&l.len()));
            if fits && name.bytes().all(host_byte) {
                Ok(name)
            } else {
                ambiguous(format!("`{}` is not a host name", shown(text)))
            }
        }
        Err(error) => ambiguous(format!("`{}` is not a host name: {error}", shown(text))),
    }
}

/// An address in its usual notation; an IPv4 address inside an IPv6 one is that IPv4 address.
pub fn address_text(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// A host with an optional port, as in `Host:` or `CONNECT`, in canonical form.
///
/// # Errors
/// When it is not one.
pub fn authority(text: &str) -> Result<(String, Option<u16>), Ambiguous> {
    let (name, port) = match text.rfind(']') {
        Some(end) => {
            let (name, rest) = text.split_at(end + 1);
            match rest.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if rest.is_empty() => (name, None),
                None => return ambiguous(format!("`{}` is not a host and port", shown(text))),
            }
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) && digits.len() <= 5 => {
            match digits.parse::<u16>() {
                Ok(port) if port > 0 => Some(port),
                _ => return ambiguous(format!("`{}` is not a port", shown(digits))),
            }
        }
        Some(other) => return ambiguous(format!("`{}` is not a port", shown(other))),
    };
    Ok((host(name)?, port))
}

/// The canonical form of a path with its query: no dot segments (also when encoded), no empty
/// segments, escapes in upper case and only where they are needed.
///
/// # Errors
/// When servers are known to read it in different ways.
pub fn path(text: &str) -> Result<String, Ambiguous> {
    if text.contains('#') {
        return ambiguous("the request target has a fragment");
    }
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    if !path.is_empty() && !path.starts_with('/') {
        return ambiguous(format!(
            "the path `{}` does not start with a slash",
            shown(path)
        ));
    }
    let normal = escapes(path.as_bytes(), true)?;
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_open = true;
    for segment in normal.split('/') {
        ends_open = false;
        match segment {
            "" | "." => ends_open = true,
            ".." => {
                segments.pop();
                ends_open = true;
            }
            _ => {
                check_segment(segment)?;
                segments.push(segment);
            }
        }
    }
    let mut out = String::with_capacity(text.len() + 1);
    for segment in &segments {
        out.push('/');
        out.push_str(segment);
    }
    if ends_open || out.is_empty() {
        out.push('/');
    }
    if let Some(query) = query {
        out.push('?');
        out.push_str(&escapes(query.as_bytes(), false)?);
    }
    Ok(out)
}

/// A segment that some servers split further must not climb when they do.
fn check_segment(segment: &str) -> Result<(), Ambiguous> {
    let upper = segment.to_ascii_uppercase();
    if upper.contains("%00") {
        return ambiguous("the path has an encoded zero byte");
    }
    let parts = upper
        .replace("%5C", "/")
        .replace("%2F", "/")
        .replace("%3B", ";");
    for part in parts.split('/') {
        let bare = part.split(';').next().unwrap_or_default();
        if matches!(bare, "." | "..") {
            return ambiguous(format!(
                "the path segment `{}` is read in different ways by different servers",
                shown(segment)
            ));
        }
    }
    Ok(())
}

/// Escapes in upper case; escaped letters, digits and `-._~` as themselves; what may not stand
/// in a URL escaped.
fn escapes(bytes: &[u8], is_path: bool) -> Result<String, Ambiguous> {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte == b'%' {
            let pair = match tail {
                [high, low, ..] => hex_digit(*high)
                    .zip(hex_digit(*low))
                    .map(|(h, l)| h * 16 + l),
                _ => None,
            };
            match pair {
                Some(value) => {
                    rest = tail.get(2..).unwrap_or_default();
                    if is_path && unreserved(value) {
                        out.push(char::from(value));
                    } else {
                        let _ = write!(out, "%{value:02X}");
                    }
                }
                None => out.push_str("%25"),
            }
        } else if *byte < 0x20 || *byte == 0x7f {
            return ambiguous("the request target has a control character");
        } else if url_byte(*byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    Ok(out)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|d| u8::try_from(d).ok())
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// What may stand in a path or query as it is; the backslash may not, since some read it as `/`.
fn url_byte(byte: u8) -> bool {
    unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
                | b'/'
                | b'?'
                | b'['
                | b']'
                | b'|'
        )
}

fn host_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_')
}

/// A text short enough, and plain enough, for a message.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(100)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(100).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts() {
        for (given, canonical) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("0x7f.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("[::ffff:169.254.169.254]", "169.254.169.254"),
            ("[::FFFF:a9fe:a9fe]", "169.254.169.254"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("::1", "::1"),
            ("a_b.example", "a_b.example"),
        ] {
            assert_eq!(host(given).as_deref(), Ok(canonical), "{given}");
        }
        for wrong in [
            "",
            ".",
            "a..b",
            "a b",
            "a%62",
            "user@a",
            "[::1",
            "[x]",
            "a/b",
            "::1%lo",
            "256.256.256.256",
            "a\0b",
        ] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn authorities() {
        assert_eq!(
            authority("A.example:443"),
            Ok(("a.example".into(), Some(443)))
        );
        assert_eq!(authority("[::1]:80"), Ok(("::1".into(), Some(80))));
        assert_eq!(authority("a.example:"), Ok(("a.example".into(), None)));
        for wrong in [
            "a:0", "a:65536", "a:+80", "a:80:80", "[::1]80", "a:80 ", "u@a:80",
        ] {
            assert!(authority(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths() {
        for (given, canonical) in [
            ("", "/"),
            ("/", "/"),
            ("/allowed/../denied", "/denied"),
            ("/allowed/%2e%2E/denied", "/denied"),
            ("/allowed/.%2e/denied", "/denied"),
            ("//denied", "/denied"),
            ("/a//b/", "/a/b/"),
            ("/allowed;/../denied", "/denied"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/../../x", "/x"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/%61%2f%3a", "/a%2F%3A"),
            ("/%zz", "/%25zz"),
            ("/x?a=/../b&c=%2e", "/x?a=/../b&c=%2E"),
            ("/ü", "/%C3%BC"),
            ("/a b", "/a%20b"),
            ("/A", "/A"),
            ("?q", "/?q"),
        ] {
            assert_eq!(path(given).as_deref(), Ok(canonical), "{given}");
        }
        for wrong in [
            "x",
            "/a/..%2fb",
            "/a/..\\b",
            "/a/..;/b",
            "/a%2f%2e%2e%2fb",
            "/%00",
            "/a#b",
            "/a\nb",
            "/a/..%3bx/b",
            "/..%5cx",
        ] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// What is canonical stays as it is, and holds nothing that climbs.
        #[test]
        fn canonical_paths_are_stable(text in "/[a-z./%;2eEfF5cC?\\\\ü]{0,24}") {
            if let Ok(once) = path(&text) {
                prop_assert_eq!(path(&once), Ok(once.clone()));
                let bare = once.split('?').next().unwrap();
                prop_assert!(bare.starts_with('/'));
                let climbs = bare.split('/').any(|s| matches!(s, "." | ".."));
                prop_assert!(!climbs);
                prop_assert!(!bare.contains("//"));
            }
        }

        #[test]
        fn nothing_panics(text in any::<String>()) {
            if let Ok(once) = host(&text) {
                prop_assert_eq!(host(&once), Ok(once.clone()));
            }
            let _ = authority(&text);
            let _ = path(&text);
        }
    }
}
