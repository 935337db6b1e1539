//! Paths below a tree's root: bytes joined by `/`, without a leading slash; the root is empty.
//! Linux names are bytes, the monitor's locations are text, so there is a lossless escape.

use std::fmt::Write as _;

/// A path below a tree's root.
pub(crate) type Rel = Vec<u8>;

/// `parent/name`, or `name` at the root.
pub(crate) fn join(parent: &[u8], name: &[u8]) -> Rel {
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    if !parent.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Parent and last name; `None` for the root.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => Some((path.get(..at)?, path.get(at + 1..)?)),
        None => Some((&[], path)),
    }
}

/// Whether `path` lies strictly below `above`.
pub(crate) fn below(path: &[u8], above: &[u8]) -> bool {
    if above.is_empty() {
        return !path.is_empty();
    }
    path.strip_prefix(above)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Whether `path` is `place` or lies below it.
pub fn lies_at(path: &[u8], place: &[u8]) -> bool {
    path == place || below(path, place)
}

/// The directories that a path lies in, nearest first, without the root.
pub(crate) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| split(path).map(|(parent, _)| parent))
        .skip(1)
        .filter(|path| !path.is_empty())
}

/// The components of a path.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty())
}

/// A path as text for locations and messages. Valid UTF-8 without control characters stays as it
/// is, but for the backslash, which becomes `\\`; every other byte becomes `\xHH`.
pub fn text(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(out, "\\x{byte:02x}");
                    }
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Reads what [`text`] wrote; `None` when it did not.
pub fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'\\' {
            out.push(*first);
            rest = tail;
            continue;
        }
        match tail.split_first()? {
            (b'\\', tail) => {
                out.push(b'\\');
                rest = tail;
            }
            (b'x', tail) => {
                let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
                out.push(u8::from_str_radix(hex, 16).ok()?);
                rest = tail.get(2..)?;
            }
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes() {
        for (raw, escaped) in [
            (&b"src/main.rs"[..], "src/main.rs"),
            (b"a\\b", "a\\\\b"),
            (b"\xff\xfe", "\\xff\\xfe"),
            (b"new\nline", "new\\x0aline"),
            ("grün".as_bytes(), "grün"),
        ] {
            assert_eq!(text(raw), escaped);
            assert_eq!(bytes(escaped).as_deref(), Some(raw));
        }
        assert_eq!(bytes("\\q"), None);
        assert_eq!(bytes("\\x4"), None);
    }

    #[test]
    fn parts() {
        assert_eq!(split(b""), None);
        assert_eq!(split(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
        assert!(
            below(b"a/b", b"a") && below(b"a", b"") && !below(b"ab", b"a") && !below(b"a", b"a")
        );
    }

    proptest! {
        #[test]
        fn the_escape_is_lossless(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(bytes(&text(&raw)), Some(raw));
        }
    }
}
