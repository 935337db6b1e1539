//! A path with its query has one canonical form, that is canonical, and that leads nowhere else.

use net::canonical;

/// Dots, escapes, queries.
pub const SEEDS: &[&[u8]] = &[
    b"/a/../b?c=d%20e",
    b"/%2e%2E/x//y;v=1",
    b"/a%2fb?x=%zz",
    "/\u{fc}?\u{20ac}".as_bytes(),
];

/// Canonical once, canonical twice.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(path) = canonical::path(text) else {
        return;
    };
    assert_eq!(canonical::path(&path).as_deref(), Ok(&*path), "{text:?}");
    assert!(
        path.is_ascii() && path.starts_with('/'),
        "{text:?} became {path:?}"
    );
    let above = path.split('?').next().unwrap_or_default();
    assert!(
        above.split('/').all(|part| part != ".." && part != "."),
        "{text:?} became {path:?}"
    );
}
