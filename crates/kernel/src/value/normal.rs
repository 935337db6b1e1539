//! One form for everything that means the same: NFKC, no surrounding white space, lower case where
//! case does not matter, canonical hosts (IDNA), URLs (RFC 3986, section 6) and paths.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use unicode_normalization::UnicodeNormalization;

use super::Kind;

/// The normal form of a value.
pub fn normal(kind: Kind, text: &str) -> String {
    normal_of(kind, text).into_owned()
}

/// As [`normal`], borrowed when the text is in its normal form already.
pub(crate) fn normal_of(kind: Kind, text: &str) -> Cow<'_, str> {
    let folded = folded(text);
    match kind {
        Kind::Host => Cow::Owned(host(folded.trim())),
        Kind::Url => Cow::Owned(url(folded.trim())),
        Kind::Path => Cow::Owned(path(folded.trim())),
        Kind::Account => lower(solid(folded)),
        Kind::Email | Kind::Package | Kind::Date | Kind::Number => lower(trimmed(folded)),
        Kind::Command | Kind::Text | Kind::Id => lower(spaced(trimmed(folded))),
    }
}

/// NFKC, without characters that nobody sees, and with one kind of full stop.
pub(crate) fn folded(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let unseen = |c: &char| {
        !matches!(
            c,
            '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}'
        )
    };
    let stop = |c| if c == '\u{3002}' { '.' } else { c };
    Cow::Owned(text.chars().filter(unseen).nfkc().map(stop).collect())
}

fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_string()),
    }
}

/// Without blanks and hyphens.
fn solid(text: Cow<'_, str>) -> Cow<'_, str> {
    let gap = |c: char| c.is_whitespace() || c == '-';
    if text.contains(gap) {
        Cow::Owned(text.replace(gap, "").nfkc().collect())
    } else {
        text
    }
}

/// White space is one blank.
fn spaced(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.chars().any(char::is_whitespace) {
        Cow::Owned(text.split_whitespace().collect::<Vec<_>>().join(" "))
    } else {
        text
    }
}

/// Lower case, still in NFKC: a letter may have a composed form in lower case only (`T` with a
/// diaeresis has none, `t` with one has).
fn lower(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.is_ascii() {
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Cow::Owned(text.to_ascii_lowercase());
        }
    } else if text
        .chars()
        .any(|c| !c.to_lowercase().eq(core::iter::once(c)))
    {
        return Cow::Owned(text.to_lowercase().nfkc().collect());
    }
    text
}

/// The host of a URL, as written.
pub fn host_of(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

/// A host name: lower case, ASCII (IDNA), no trailing dot, no brackets.
fn host(text: &str) -> String {
    let around = |c: char| c.is_whitespace() || matches!(c, '[' | ']');
    let bare = text
        .trim_matches(around)
        .trim_end_matches(|c| c == '.' || around(c));
    if bare.is_ascii() {
        return bare.to_ascii_lowercase();
    }
    // What UTS 46 maps further than NFKC and lower case do stays apart, and so does not derive.
    let lower = lower(Cow::Borrowed(bare)).into_owned();
    let labels = lower.split('.').map(|label| match label.is_ascii() {
        true => Some(label.to_string()),
        false => punycode(label),
    });
    let labels: Option<Vec<String>> = labels.collect();
    labels.map_or(lower, |labels| labels.join("."))
}

/// A label in its ASCII form (RFC 3492); none when it is too long to be one.
fn punycode(label: &str) -> Option<String> {
    const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut out = String::from("xn--");
    out.extend(label.chars().filter(char::is_ascii));
    let plain = u32::try_from(out.len() - 4).ok()?;
    if plain > 0 {
        out.push('-');
    }
    let count = u32::try_from(label.chars().count())
        .ok()
        .filter(|n| *n <= 63)?;
    let (mut n, mut delta, mut bias, mut done) = (128u32, 0u32, 72u32, plain);
    while done < count {
        let next = label.chars().map(u32::from).filter(|c| *c >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(done + 1)?)?;
        n = next;
        for c in label.chars().map(u32::from) {
            if c < n {
                delta = delta.checked_add(1)?;
            }
            if c != n {
                continue;
            }
            let mut rest = delta;
            for k in (36u32..).step_by(36) {
                let least = k.saturating_sub(bias).clamp(1, 26);
                let digit = match rest < least {
                    true => rest,
                    false => least + (rest - least) % (36 - least),
                };
                out.push(char::from(*DIGITS.get(usize::try_from(digit).ok()?)?));
                if rest < least {
                    break;
                }
                rest = (rest - least) / (36 - least);
            }
            bias = adapted(delta, done + 1, done == plain);
            delta = 0;
            done += 1;
        }
        delta += 1;
        n += 1;
    }
    Some(out)
}

fn adapted(delta: u32, count: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / count;
    let mut k = 0;
    while delta > 455 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

/// A URL: lower-case scheme and host, no default port, no fragment, no dot segments, `/`
/// for an empty path, percent-encoding only where it is needed. One without a scheme stays so.
fn url(text: &str) -> String {
    // Browsers pass over these wherever they stand.
    let text = &text.replace(['\t', '\n', '\r'], "");
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            (Some(scheme.to_ascii_lowercase()), rest)
        }
        _ => (None, text.strip_prefix("//").unwrap_or(text)),
    };
    let scheme = scheme.map(|scheme| match scheme.as_str() {
        "ws" => "http".to_string(),
        "wss" => "https".to_string(),
        _ => scheme,
    });
    let rest = rest.split('#').next().unwrap_or_default();
    let split = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(split);
    let (user, authority) = match authority.rsplit_once('@') {
        Some((user, authority)) => (user, authority),
        None => ("", authority),
    };
    let colon = authority
        .rfind(':')
        .filter(|at| !authority.get(*at..).unwrap_or_default().contains(']'))
        .unwrap_or(authority.len());
    let (name, port) = authority.split_at(colon);
    let usual = match scheme.as_deref() {
        Some("https") => port == ":443",
        Some("http") => port == ":80",
        _ => false,
    };
    let host = host(name);
    // Without a scheme it is a host that makes it a URL.
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    let address = name.starts_with('[') && host.contains(':');
    if scheme.is_none() && (host.is_empty() || !(address || host.chars().all(inside))) {
        return String::new();
    }
    let mut out = String::with_capacity(text.len() + 8);
    if let Some(scheme) = &scheme {
        out.push_str(scheme);
        out.push_str("://");
    }
    if !user.is_empty() {
        out.push_str(user);
        out.push('@');
    }
    let v6 = name.starts_with('[');
    out.push_str(if v6 { "[" } else { "" });
    out.push_str(&host);
    out.push_str(if v6 { "]" } else { "" });
    if !usual && port.len() > 1 {
        out.push_str(port);
    }
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (tail, None),
    };
    segments(&percent(&path.replace('\\', "/")), &mut out);
    if let Some(query) = query {
        out.push('?');
        out.push_str(&percent(query));
    }
    out
}

/// A canonical URL without what it may lack in running text: `http://` or `https://`, `www.`, a slash
/// at the end.
pub(crate) fn loose(url: &str) -> &str {
    let web = ["http://", "https://"];
    let rest = web
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme))
        .unwrap_or(url);
    let rest = rest.strip_prefix("www.").unwrap_or(rest);
    rest.trim_end_matches('/')
}

/// Decodes what needs no percent-encoding, encodes what does, in one way.
fn percent(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    let encode = |out: &mut String, byte: u8| {
        out.push('%');
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from(*HEX.get(usize::from(digit)).unwrap_or(&b'0')));
        }
    };
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) if unreserved(byte) => out.push(char::from(byte)),
            Some(byte) => encode(&mut out, byte),
            None if byte.is_ascii_graphic() && byte != b'%' => out.push(char::from(byte)),
            None => encode(&mut out, byte),
        }
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends a URL's path without `.` and `..`.
fn segments(path: &str, out: &mut String) {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path
        .split('/')
        .skip(usize::from(path.starts_with('/')))
        .peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    out.push('/');
    out.push_str(&kept.join("/"));
}

/// A path: no `.` components, no doubled or trailing slash. `..` stays: it may mean anything.
fn path(text: &str) -> String {
    let root = if text.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> = text
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let mut out = String::from(root);
    out.push_str(parts.join("/").trim());
    out
}

/// A number without currency, thousands separators and trailing zeros: `$1,200.50` is `1200.5`.
pub(crate) fn decimal(text: &str) -> Option<String> {
    let folded = folded(text);
    let bare = folded
        .trim()
        .trim_start_matches(['$', '€', '£', '¥', '+'])
        .trim_end_matches(['$', '€', '£', '¥', '%'])
        .trim();
    let (sign, bare) = match bare.strip_prefix(['-', '−']) {
        Some(rest) => ("-", rest),
        None => ("", bare),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // The last separator is a decimal point when it stands alone, or when another kind precedes it.
    let last = bare.rfind(['.', ',']);
    let (whole, fraction) = match last.and_then(|at| Some((at, bare.get(at..=at)?))) {
        None => (bare.to_string(), ""),
        Some((at, mark)) => {
            let (before, after) = (bare.get(..at)?, bare.get(at + 1..)?);
            let other = if mark == "." { ',' } else { '.' };
            let grouped = |text: &str, by: char| {
                let mut groups = text.split(by);
                groups
                    .next()
                    .is_some_and(|first| (1..=3).contains(&first.len()))
                    && groups.all(|group| group.len() == 3)
            };
            if before.contains(mark) || (mark == "," && after.len() == 3 && !before.contains('.')) {
                let by = mark.chars().next()?;
                if !grouped(bare, by) {
                    return None;
                }
                (bare.replace(by, ""), "")
            } else if before.contains(other) && !grouped(before, other) {
                return None;
            } else {
                (before.replace(other, ""), after)
            }
        }
    };
    if !digits(&whole) || !(fraction.is_empty() || digits(fraction)) {
        return None;
    }
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let fraction = fraction.trim_end_matches('0');
    let mut out = String::from(sign);
    out.push_str(whole);
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_one_form() {
        for (a, b) in [
            ("HTTPS://A.example:443", "https://a.example/"),
            ("http://a.example:80/x#y", "http://a.example/x"),
            ("https://user@A.example./x", "https://user@a.example/x"),
            ("https://a.example/.\t./x", "https://a.example/../x"),
            ("https://a.example/%7Ebob/%e4", "https://a.example/~bob/%E4"),
            (
                "https://a.example/docs/%2e%2E/evil",
                "https://a.example/evil",
            ),
            ("https://a.example/docs/./x/..", "https://a.example/docs/"),
            ("https://a.example\\docs\\x", "https://a.example/docs/x"),
            (
                "https://bücher.example/ä",
                "https://xn--bcher-kva.example/%C3%A4",
            ),
            ("https://ａ.example。/", "https://a.example/"),
            ("https://[::1]:443/", "https://[::1]/"),
            ("wss://a.example/", "https://a.example/"),
            ("https://a.example/%%30a", "https://a.example/%250a"),
        ] {
            assert_eq!(normal(Kind::Url, a), normal(Kind::Url, b), "{a}");
        }
        assert_ne!(
            normal(Kind::Url, "https://a.example/a%2Fb"),
            normal(Kind::Url, "https://a.example/a/b")
        );
        assert_eq!(loose("https://www.a.example/x/"), "a.example/x");
    }

    #[test]
    fn numbers_have_one_form() {
        for (text, expect) in [
            ("$1,200.50", Some("1200.5")),
            ("1.200,50", Some("1200.5")),
            ("1200,5", Some("1200.5")),
            ("1,200", Some("1200")),
            ("1.200", Some("1.2")),
            ("-0098.70", Some("-98.7")),
            ("10%", Some("10")),
            ("1,20,0", None),
            ("1,2000.5", None),
            ("12a", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(decimal(text).as_deref(), expect, "{text}");
        }
    }

    #[test]
    fn paths_and_words() {
        assert_eq!(normal(Kind::Path, "./a//b/./c/"), "a/b/c");
        assert_eq!(normal(Kind::Path, "/"), "/");
        assert_eq!(normal(Kind::Path, "a/../b"), "a/../b");
        assert_eq!(
            normal(Kind::Text, " Ｈello\u{200b}\t WORLD "),
            "hello world"
        );
        assert_eq!(normal(Kind::Account, "GB29 NWBK-6016"), "gb29nwbk6016");
    }
}
